//! Scenarios of databases: a run as a file, on one or more places, scaled to the machine, beside what was
//! published. PostgreSQL is the one of [`server`](crate::server), so a scenario needs nothing but a place.

mod compared;
mod file;
mod groups;
mod load;
mod result;
mod scans;
mod self_test;
mod turns;
mod verdict;

use std::path::{Path, PathBuf};

use ashlar_lab::result::{Check, ScenarioNote};
use ashlar_lab::{
    Journal, LabError, Machine, OwnFolder, Progress, Scale, remove_left, write_whole,
};

pub use compared::Compared;
pub use file::{MeasureSection, OltpScenario, OltpSection, ScanSection, TurnsSection};
pub(crate) use groups::{Group, Look, hint};
pub use result::{ConfigurationResult, ScenarioResult};

use crate::server::Server;
use ashlar_lab::ResultFile;

/// The scenarios that ship: name and text.
pub const SHIPPED: [(&str, &str); 5] = [
    (
        "nvmeof-hammerdb",
        include_str!("../../../../scenarios/nvmeof-hammerdb.toml"),
    ),
    (
        "scan-concurrency",
        include_str!("../../../../scenarios/scan-concurrency.toml"),
    ),
    (
        "fixed-transactions",
        include_str!("../../../../scenarios/fixed-transactions.toml"),
    ),
    (
        "statistics-self-test",
        include_str!("../../../../scenarios/statistics-self-test.toml"),
    ),
    ("fleet", include_str!("../../../../scenarios/fleet.toml")),
];

/// Where a database's files can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name in tables.
    pub name: String,
    /// A directory on it; a new folder is made there, and removed afterwards.
    pub dir: PathBuf,
}

/// How a scenario is run.
#[derive(Clone, Debug)]
pub struct ScenarioRun<'a> {
    /// Its text.
    pub text: &'a str,
    /// How large.
    pub scale: Scale,
    /// Where; the first is the 100 %.
    pub places: &'a [Place],
    /// Where result.json, scenario.toml and report.html go.
    pub out: &'a Path,
}

/// What all steps of a scenario share.
struct Stage<'a> {
    file: OltpScenario,
    /// Users as written, for each number of users that is left.
    written: Vec<usize>,
    places: &'a [Place],
    folders: Vec<OwnFolder>,
    out: &'a Path,
    progress: &'a Progress,
}

/// Runs a scenario, or what the journal does not have of it, and writes its directory. What goes wrong while measuring
/// ends the run and is told in the result, in `partial` and `problems`.
///
/// # Errors
/// For what is wrong before anything is measured, and for what cannot be written.
pub fn run_scenario(
    run: &ScenarioRun<'_>,
    progress: &Progress,
    journal: &mut Journal,
) -> Result<ScenarioResult, LabError> {
    let mut file = OltpScenario::parse(run.text)?;
    check_places(run.places)?;
    let (written, scaled) = file.scale(run.scale);
    let folder = |place: &Place| OwnFolder::make(&place.dir);
    clear(journal.folders())?;
    let folders = run.places.iter().map(folder);
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
    let toml = run.out.join("scenario.toml");
    write_whole(&toml, run.text)?;
    let mut result = ScenarioResult::new(file.heading(), Machine::here(), note);
    let stage = Stage {
        file,
        written,
        places: run.places,
        folders,
        out: run.out,
        progress,
    };
    // A directory that is used again does not show the run before as this one's.
    stage.keep(&result)?;
    let ran = match stage.file.oltp {
        Some(_) => load::run(&stage, &mut result, journal),
        None => scans::run(&stage, &mut result, journal),
    };
    progress.finish();
    if let Err(error) = ran {
        told(&mut result, "the run", &error);
        result.write(run.out)?;
        return Err(error);
    }
    result.sum_up(&stage.file, &stage.written)?;
    result.write(run.out)?;
    result.write_report(run.out)?;
    Ok(result)
}

impl Stage<'_> {
    /// Keeps what there is, marked as a run that has not reached its end.
    fn keep(&self, result: &ScenarioResult) -> Result<(), LabError> {
        result.so_far().write(self.out)
    }

    /// What is told of turns that have ended: why they did, if that was before their end.
    fn ended(
        &self,
        ran: Result<(), LabError>,
        result: &mut ScenarioResult,
    ) -> Result<(), LabError> {
        if let Err(error) = ran
            && !result.partial
        {
            told(result, "the run", &error);
        }
        Ok(())
    }
}

/// Ends the servers in folders of a run that was killed, and removes those.
fn clear(folders: &[PathBuf]) -> Result<(), LabError> {
    for folder in folders {
        for server in SERVERS.map(|name| folder.join(name)) {
            if server.exists() {
                Server::at(&server)?.kill()?;
            }
        }
    }
    remove_left(folders)
}

/// Folders of servers in a run's own.
pub(super) const SERVERS: [&str; 2] = ["a", "b"];

pub(crate) fn check_places(places: &[Place]) -> Result<(), LabError> {
    if places.is_empty() {
        return Err(LabError::usage("--place: at least one"));
    }
    for (index, place) in places.iter().enumerate() {
        if places[..index].iter().any(|other| other.name == place.name) {
            let name = &place.name;
            return Err(LabError::usage(format!("--place {name}: twice")));
        }
    }
    Ok(())
}

/// Says what ended a run, in its result; a check that failed is told as such.
fn told(result: &mut ScenarioResult, what: &str, error: &LabError) {
    result.partial = true;
    if let LabError::Check(text) = error {
        result.checks.push(Check {
            name: what.to_owned(),
            passed: false,
            text: text.clone(),
        });
    }
    result.problems.push(format!("{what}: {error}"));
}
