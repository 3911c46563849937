//! Rounds on the storage as soon as each has ended, so that a run can go on.

use ashlar_lab::{Found, Journal, LabError, Turn, remove_left};
use ashlar_testbed::nodes::Nodes;

use super::round::Round;
use super::{HaPlan, OWN};

/// Rounds that were played, also by a run that this one goes on with.
pub(super) struct Kept<'a> {
    journal: &'a mut Journal,
    pub(super) rounds: Vec<Round>,
    /// How many were played before.
    pub(super) before: usize,
    /// What loads have found wrong that ended before.
    pub(super) found_before: Found,
    /// The same of those that go on.
    found: Found,
    /// How many loads before have found something.
    loads: usize,
}

fn turn(number: usize) -> Turn {
    Turn {
        configuration: 0,
        cell: "fault".to_owned(),
        repeat: number as u32,
    }
}

/// What the loads of a run have found wrong so far; a later line counts instead of an earlier.
fn found(number: usize) -> Turn {
    Turn {
        cell: "found".to_owned(),
        ..turn(number)
    }
}

impl<'a> Kept<'a> {
    pub(super) fn of(journal: &'a mut Journal) -> Result<Self, LabError> {
        let rounds: Vec<Round> = journal.outcomes(&turn(1))?;
        let before: Vec<Found> = journal.outcomes(&found(1))?;
        Ok(Self {
            before: rounds.len(),
            rounds,
            found_before: before.iter().fold(Found::default(), |sum, &one| sum + one),
            found: Found::default(),
            loads: before.len(),
            journal,
        })
    }

    /// Keeps what the loads have found wrong so far.
    pub(super) fn find(&mut self, so_far: Found) -> Result<(), LabError> {
        if so_far != self.found {
            self.found = so_far;
            self.journal.keep(&found(self.loads + 1), &so_far)?;
        }
        Ok(())
    }

    /// All that was found wrong, also before.
    pub(super) fn all_found(&self) -> Found {
        self.found_before + self.found
    }

    pub(super) fn add(&mut self, round: Round) -> Result<(), LabError> {
        self.journal.keep(&turn(self.rounds.len() + 1), &round)?;
        self.rounds.push(round);
        Ok(())
    }
}

/// Takes away the cluster of a run that was killed, if this one goes on with it.
pub(super) fn end_left(plan: &HaPlan, journal: &Journal) -> Result<(), LabError> {
    let own = journal.folders().iter().map(|folder| folder.join(OWN));
    let given = plan.dir.iter().filter(|_| journal.goes_on()).cloned();
    for dir in own.chain(given) {
        if Nodes::is_in(&dir) {
            Nodes::at(&dir)?.down()?;
        }
    }
    remove_left(journal.folders())
}
