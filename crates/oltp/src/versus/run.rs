//! The run: every part on the same storage, one after the other, with what that storage moves meanwhile.

use std::path::Path;

use ashlar_lab::{
    Command, Journal, LabError, Machine, Origin, Progress, ResultFile, check_out_dir,
};

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
}

/// How the parts are run.
#[derive(Clone, Debug)]
pub struct VersusRun<'a> {
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
}

/// Runs all parts, and keeps the result after each.
///
/// # Errors
/// What ended a part before it measured anything, and what cannot be written; what was measured is in the result.
pub fn run_versus(
    run: &VersusRun<'_>,
    ground: &dyn Ground,
    result: &mut VersusResult,
    progress: &Progress,
) -> Result<(), LabError> {
    for part in run.parts {
        progress.go_on()?;
        run.part(part, ground, result, progress)?;
        result.write(run.out)?;
    }
    Ok(())
}

impl VersusRun<'_> {
    fn part(
        &self,
        part: &PartFile,
        ground: &dyn Ground,
        result: &mut VersusResult,
        progress: &Progress,
    ) -> Result<(), LabError> {
        let places = ground.places();
        let own = self.out.join(&part.name);
        check_out_dir(&own)?;
        let origin = Origin {
            command: Command::Run,
            scenario: part.text.clone(),
            changed: self.changed.to_vec(),
            scale: self.scale.to_owned(),
            dir: self.dir.to_owned(),
            machine: Machine::here(),
            ..Origin::default()
        };
        let mut journal = Journal::begin(&own, &origin)?;
        let meters = Meters::start(ground.sources()?)?;
        let run = ScenarioRun {
            text: &part.text,
            changed: self.changed,
            scale: self.scale.parse()?,
            places: &places,
            dir: self.dir,
            out: &own,
            patroni: ground.group(),
        };
        let ran = run_scenario(&run, progress, &mut journal);
        // Whatever came of it, nothing looks at storage that may go.
        let seen = meters.end();
        let ran = ran?;
        journal.end()?;
        result.parts.push(Part::of(&ran, &seen)?);
        let named = |text: &String| format!("{}: {text}", part.name);
        result.head.flags.extend(ran.head.flags.iter().map(named));
        result.head.partial |= ran.head.partial;
        result
            .head
            .problems
            .extend(ran.head.problems.iter().map(named));
        result.head.problems.extend(ran.complaint());
        Ok(())
    }
}
