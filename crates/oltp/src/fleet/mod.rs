//! Many databases at once: each a server of its own with little memory, each with streams that begin a transaction
//! every so often whether it keeps up or not. What all of them have together, and what each has.

mod crew;
mod file;
mod report;
mod result;
mod step;

use ashlar_lab::result::ScenarioNote;
use ashlar_lab::{Journal, LabError, Machine, OwnFolder, ResultFile, Schedule, write_whole};
use ashlar_lab::{Measurement, Nest, Progress, Turn, Workload, carry_out};

use crew::Crew;
pub use file::FleetScenario;
pub(crate) use report::html;
pub use result::{FleetResult, FleetStep};

use crate::scenario::ScenarioRun;

/// Runs it, or what the journal does not have of it, and writes its directory. What goes wrong while measuring ends
/// the run and is told in the result, in `partial` and `problems`.
///
/// # Errors
/// For what is wrong before anything is measured, and for what cannot be written.
pub fn run_fleet(
    run: &ScenarioRun<'_>,
    progress: &Progress,
    journal: &mut Journal,
) -> Result<FleetResult, LabError> {
    let mut file = FleetScenario::parse(run.text)?;
    let scaled = file.scale(run.scale);
    let places = crate::scenario::or_here(run.places, run.dir)?;
    crate::scenario::clear(journal.folders())?;
    let folder = |place: &crate::scenario::Place| OwnFolder::make(&place.dir);
    let folders = places.iter().map(folder);
    let folders = folders.collect::<Result<Vec<OwnFolder>, LabError>>()?;
    for folder in &folders {
        journal.made(folder.path())?;
    }
    let note = ScenarioNote {
        name: file.name.clone(),
        about: file.about.trim().to_owned(),
        scale: run.scale.factor(),
        scaled,
        source: file.published.clone().unwrap_or_default(),
    };
    progress.say(&format!("{}: {}", note.name, note.scaled));
    write_whole(&run.out.join("scenario.toml"), run.text)?;
    let mut result = FleetResult::new(file.heading(), Machine::here(), note, &file);
    if !file.fleet.shape().is_tpcc() {
        result.flags.push(crate::schema::SMALL.to_owned());
    }
    result.so_far().write(run.out)?;
    let crew = Crew::make(&file, &places, &folders, progress, &mut result)?;
    let schedule = Schedule {
        configurations: 1,
        cells: file.fleet.steps.iter().map(ToString::to_string).collect(),
        repeats: file.measure.repeat,
        nest: Nest::RepeatByRepeat,
        seed: file.measure.seed,
    };
    let mut load = Load {
        file: &file,
        crew: &crew,
        result: &mut result,
        out: run,
        progress,
    };
    let ran = carry_out(&schedule, &mut load, journal, progress);
    progress.finish();
    if let Err(error) = ran {
        result.partial = true;
        result.problems.push(error.to_string());
    }
    drop(crew);
    result.sum_up();
    result.write(run.out)?;
    crate::report::write(&run.out.join("report.html"), &html(&result)?)?;
    Ok(result)
}

/// A turn is a step: so many percent of the streams.
struct Load<'a> {
    file: &'a FleetScenario,
    crew: &'a Crew,
    result: &'a mut FleetResult,
    out: &'a ScenarioRun<'a>,
    progress: &'a Progress,
}

impl Workload for Load<'_> {
    type Outcome = FleetStep;

    fn name(&self, turn: &Turn) -> String {
        format!("{} % of the streams, repeat {}", turn.cell, turn.repeat)
    }

    fn measure(&mut self, turn: &Turn) -> Result<Measurement<FleetStep>, LabError> {
        let percent = turn.cell.parse();
        let wrong = |_| LabError::environment(format!("{:?}: no step", turn.cell));
        let percent = percent.map_err(wrong)?;
        let step = step::step(self.file, self.crew, (percent, turn.repeat), self.progress)?;
        let line = step.line();
        match step.partial {
            false => Ok(Measurement::Whole(step, line)),
            true => Ok(Measurement::Part(step)),
        }
    }

    fn take(&mut self, _: &Turn, step: FleetStep) -> Result<(), LabError> {
        self.result.steps.push(step);
        self.result.so_far().write(self.out.out)
    }
}

/// Ends the servers in folders of a run that was killed, and removes those.
#[cfg(test)]
pub(crate) use result::sample;
