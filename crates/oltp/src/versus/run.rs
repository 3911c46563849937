//! The run: every part on the same storage, one after the other, with what that storage moves meanwhile.

use std::path::Path;

use ashlar_lab::result::Check;
use ashlar_lab::{
    Command, Head, Journal, LabError, Machine, Origin, Progress, ResultFile, Turn, check_out_dir,
};
use serde::{Deserialize, Serialize};

use super::meters::{Meters, Source};
use super::{Part, PartFile, VersusResult};
use crate::scenario::{Place, ScenarioRun, run_scenario};

/// What both sides lie on: it is made before a run, and taken away after it.
pub trait Ground {
    /// Where the databases are: the places that the parts name.
    fn places(&self) -> Vec<Place>;

    /// Patroni keeps the groups, and has its own things here; `None`: nothing keeps them.
    fn group(&self) -> Option<&Path>;

    /// What can be looked at while a part runs.
    ///
    /// # Errors
    /// It is gone.
    fn sources(&self) -> Result<Vec<Source>, LabError>;

    /// How the instance's volume is not what it is called, or was not all the time since this was asked last.
    fn unlike(&self) -> Option<String> {
        None
    }
}

/// How the parts are run.
#[derive(Clone, Copy)]
pub struct VersusRun<'a> {
    pub name: &'a str,
    /// Each part, with what the command line changes in it.
    pub parts: &'a [PartFile],
    /// The scale, as it was given.
    pub scale: &'a str,
    /// What the command line changed, as it was given.
    pub changed: &'a [String],
    /// Where the storage was made.
    pub dir: &'a Path,
    /// Where the result goes, and the directory of each part.
    pub out: &'a Path,
    /// Whom it tells what it does.
    pub progress: &'a Progress,
}

/// A part that has reached its end, as the journal keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Done {
    part: Part,
    head: Head,
    /// What does not hold of it.
    complaint: Option<String>,
}

/// Runs all parts, or what the journals do not have of them, and keeps the result after each.
///
/// # Errors
/// What ended a part before it measured anything, and what cannot be written; what was measured is in the result.
pub fn run_versus(
    run: &VersusRun<'_>,
    ground: &dyn Ground,
    result: &mut VersusResult,
    journal: &mut Journal,
) -> Result<(), LabError> {
    // A directory that is used again does not show the run before as this one's.
    result.so_far().write(run.out)?;
    for part in run.parts {
        run.progress.go_on()?;
        let turn = part.turn();
        let done = match journal.outcome(&turn)? {
            Some(done) => done,
            None => run.part(part, ground, journal)?,
        };
        result.add(&done);
        result.so_far().write(run.out)?;
    }
    Ok(())
}

impl PartFile {
    /// How a whole's journal calls it.
    fn turn(&self) -> Turn {
        Turn {
            configuration: 0,
            cell: self.name.clone(),
            repeat: 1,
        }
    }
}

impl VersusRun<'_> {
    /// Runs a part, or what its own journal does not have of it.
    fn part(
        &self,
        part: &PartFile,
        ground: &dyn Ground,
        journal: &mut Journal,
    ) -> Result<Done, LabError> {
        let places = ground.places();
        let own = self.out.join(&part.name);
        let mut turns = self.journal_of(part, &own)?;
        let meters = Meters::start(ground.sources()?)?;
        let run = ScenarioRun {
            clients: None,
            text: &part.text,
            changed: self.changed,
            scale: self.scale.parse()?,
            places: &places,
            dir: self.dir,
            out: &own,
            patroni: ground.group(),
        };
        let ran = run_scenario(&run, self.progress, &mut turns);
        // Whatever came of it, nothing looks at storage that may go.
        let seen = meters.end();
        let mut ran = ran?;
        let unlike = ground.unlike();
        let told = |why| format!("the instance's figures are not all of two copies: {why}");
        ran.head.flags.extend(unlike.map(told));
        let done = Done {
            part: Part::of(&ran, &seen)?,
            complaint: ran.complaint(),
            head: ran.head,
        };
        if !done.head.partial {
            // The whole's first: a part that it does not have goes on, if only to find that all was measured.
            journal.keep(&part.turn(), &done)?;
            turns.end()?;
        }
        Ok(done)
    }

    fn journal_of(&self, part: &PartFile, own: &Path) -> Result<Journal, LabError> {
        check_out_dir(own)?;
        let machine = Machine::here();
        if Journal::is_unfinished(own)? {
            return Journal::resume(own, &machine).map(|(journal, _)| journal);
        }
        let origin = Origin {
            command: Command::Run,
            scenario: part.text.clone(),
            changed: self.changed.to_vec(),
            scale: self.scale.to_owned(),
            dir: self.dir.to_owned(),
            machine,
            part_of: self.name.to_owned(),
            ..Origin::default()
        };
        Journal::begin(own, &origin)
    }
}

impl VersusResult {
    fn add(&mut self, done: &Done) {
        let name = &done.part.name;
        let named = |text: &String| format!("{name}: {text}");
        self.parts.push(done.part.clone());
        self.head.flags.extend(done.head.flags.iter().map(named));
        self.head.partial |= done.head.partial;
        let problems = done.head.problems.iter().map(named);
        self.head.problems.extend(problems);
        self.head
            .checks
            .extend(done.complaint.iter().map(|text| Check {
                name: name.clone(),
                passed: false,
                text: text.clone(),
            }));
    }

    /// What there is of a run that goes on, marked as such.
    fn so_far(&self) -> Self {
        let mut result = self.clone();
        result.head.unfinished();
        result
    }
}
