//! Rounds on the storage as soon as each has ended, so that a run can go on.

use ashlar_lab::{Journal, LabError, Turn, remove_left};
use ashlar_testbed::nodes::Nodes;

use super::round::Round;
use super::{HaPlan, OWN};

/// Rounds that were played, also by a run that this one goes on with.
pub(super) struct Kept<'a> {
    journal: &'a mut Journal,
    pub(super) rounds: Vec<Round>,
    /// How many were played before.
    pub(super) before: usize,
}

fn turn(number: usize) -> Turn {
    Turn {
        configuration: 0,
        cell: "fault".to_owned(),
        repeat: number as u32,
    }
}

impl<'a> Kept<'a> {
    pub(super) fn of(journal: &'a mut Journal) -> Result<Self, LabError> {
        let rounds: Vec<Round> = journal.outcomes(&turn(1))?;
        Ok(Self {
            before: rounds.len(),
            rounds,
            journal,
        })
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
