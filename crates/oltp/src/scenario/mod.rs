//! Scenarios of databases: a run as a file, on one or more places, scaled to the machine, beside what was
//! published. PostgreSQL is the one of [`server`](crate::server), so a scenario needs nothing but a place.

mod claims;
mod compared;
mod file;
mod groups;
mod keeper;
mod load;
mod measure;
mod named;
mod result;
mod scan_turns;
mod scans;
mod self_test;
mod turns;
mod users;

use std::path::{Path, PathBuf};

use ashlar_lab::result::{Check, ScenarioNote};
use ashlar_lab::{
    Journal, LabError, LatencyLog, OwnFolder, Progress, ResultFile, Scale, remove_left, write_whole,
};

pub use claims::{ClaimSection, ClaimedFigure};
pub use compared::Compared;
pub use file::{GroupKeeper, OltpScenario, OltpSection, ScanSection, TurnsSection};
pub(crate) use groups::{Group, Look, hint};
pub use keeper::OltpEngine;
pub use measure::MeasureSection;
pub(crate) use named::or_here;
use named::{Asked, Home};
pub use named::{NamedSection, PublishedSide};
pub use result::{ConfigurationResult, ScenarioResult};
pub use users::with_users;

use crate::fleet::FleetScenario;
use crate::group::{Group as Kept, OWN};
use crate::mariadb::MariaServer;
use crate::remote::RemoteUsers;
use crate::server::{Server, Topology};

/// The scenarios that ship: name and text.
pub const SHIPPED: [(&str, &str); 6] = [
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
        "flash-cache",
        include_str!("../../../../scenarios/flash-cache.toml"),
    ),
    (
        "statistics-self-test",
        include_str!("../../../../scenarios/statistics-self-test.toml"),
    ),
    ("fleet", include_str!("../../../../scenarios/fleet.toml")),
];

/// What is told of a scenario that asks for it.
const KEPT_BY_PATRONI: &str = "groups are kept by Patroni with etcd (three members), and fail over by themselves; their \
                               clients come in by HAProxy, those of one server by its socket";

/// Where a database's files can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name in tables.
    pub name: String,
    /// A directory on it; a new folder is made there, and removed afterwards.
    pub dir: PathBuf,
}

impl Place {
    /// Those that a command line names, `NAME=DIR`.
    ///
    /// # Errors
    /// A usage error that names one that is said otherwise, said twice, or not there: a mount that is missing is not
    /// made up for by a folder below its mount point.
    pub fn given(texts: &[String]) -> Result<Vec<Self>, LabError> {
        let place = |text: &String| match text.split_once('=') {
            Some((name, dir)) if !name.is_empty() && !dir.is_empty() => Ok(Self {
                name: name.into(),
                dir: dir.into(),
            }),
            _ => Err(LabError::usage(format!("--place {text}: must be NAME=DIR"))),
        };
        let places = texts.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        check_places(&places)?;
        match places.iter().find(|place| !place.dir.is_dir()) {
            Some(Self { name, dir }) => Err(LabError::usage(format!(
                "--place {name}={}: there is no such directory",
                dir.display()
            ))),
            None => Ok(places),
        }
    }
}

/// How a scenario is run.
#[derive(Clone, Debug)]
pub struct ScenarioRun<'a> {
    pub text: &'a str,
    /// How large.
    pub scale: Scale,
    /// Where; the first is the 100 %. None: in `dir`.
    pub places: &'a [Place],
    /// Where everything is without places.
    pub dir: &'a Path,
    /// Where result.json, scenario.toml and report.html go.
    pub out: &'a Path,
    /// What the command line changed in the text, as it was given.
    pub changed: &'a [String],
    /// Patroni keeps the groups, with etcd and HAProxy; their own things are in this directory while one runs. One
    /// that asks for Patroni itself has them in a folder of its own.
    pub patroni: Option<&'a Path>,
    /// Agents that have the users; without, they are in this process.
    pub clients: Option<&'a RemoteUsers<'a>>,
}

impl<'a> ScenarioRun<'a> {
    /// The same with its users at these agents.
    pub fn with<'b>(&self, clients: Option<&'b RemoteUsers<'b>>) -> ScenarioRun<'b>
    where
        'a: 'b,
    {
        ScenarioRun {
            clients,
            ..self.clone()
        }
    }
}

/// Refuses agents where they cannot be the users of a scenario.
///
/// # Errors
/// A usage error that says why.
pub fn check_clients(text: &str) -> Result<(), LabError> {
    match FleetScenario::is_one(text)? {
        true => FleetScenario::parse(text)?.check_clients(),
        false => Ok(()),
    }
}

impl ScenarioRun<'_> {
    /// Says what is run, keeps its text, and makes a folder on each place; those of a run that was killed go.
    pub(crate) fn prepare(
        &self,
        places: &[Place],
        note: &ScenarioNote,
        (progress, journal): (&Progress, &mut Journal),
    ) -> Result<Vec<OwnFolder>, LabError> {
        clear(journal.folders())?;
        let folders = places.iter().map(|place| OwnFolder::make(&place.dir));
        let folders = folders.collect::<Result<Vec<OwnFolder>, LabError>>()?;
        for folder in &folders {
            journal.made(folder.path())?;
        }
        progress.say(&format!("{}: {}", note.name, note.scaled));
        write_whole(&self.out.join("scenario.toml"), self.text)?;
        Ok(folders)
    }
}

impl ScenarioRun<'_> {
    /// Where Patroni has its things, if the scenario asks for it and no directory is given.
    fn keeper(
        &self,
        file: &OltpScenario,
        journal: &mut Journal,
    ) -> Result<Option<OwnFolder>, LabError> {
        let asks = file.oltp.as_ref().is_some_and(OltpSection::is_kept);
        if !asks || self.patroni.is_some() {
            return Ok(None);
        }
        // On no place, which it would write to; and the path of a socket is short.
        let folder = match self.places.is_empty() {
            true => OwnFolder::make(self.dir)?,
            false => OwnFolder::make(&std::env::temp_dir())?,
        };
        journal.made(folder.path())?;
        Ok(Some(folder))
    }
}

/// What all steps of a scenario share.
struct Stage<'a> {
    file: OltpScenario,
    /// Users as written, for each number of users that is left.
    written: Vec<usize>,
    places: Vec<Place>,
    folders: Vec<OwnFolder>,
    /// Where the servers are, and what is measured at them.
    homes: Vec<Home>,
    asked: Vec<Asked>,
    out: &'a Path,
    patroni: Option<&'a Path>,
    clients: Option<&'a RemoteUsers<'a>>,
    log: LatencyLog,
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
    let (places, place_flag) = file.places(run.places, run.dir)?;
    let (written, scaled) = file.scale(run.scale);
    let note = ScenarioNote {
        name: file.name.clone(),
        about: file.about.trim().to_owned(),
        scale: run.scale.factor(),
        scaled,
        source: file.published.clone().unwrap_or_default(),
        changed: run.changed.to_vec(),
    };
    let folders = run.prepare(&places, &note, (progress, journal))?;
    let keeper = run.keeper(&file, journal)?;
    let own = keeper.as_ref().map(|folder| folder.path().join(OWN));
    let mut result = ScenarioResult::new(file.heading(), note);
    result.head.flags.extend(place_flag);
    let kept = keeper.is_some().then(|| KEPT_BY_PATRONI.to_owned());
    result.head.flags.extend(kept);
    let (homes, asked) = named::homes(&file, &places);
    let stage = Stage {
        homes,
        asked,
        file,
        written,
        places,
        folders,
        out: run.out,
        patroni: run.patroni.or(own.as_deref()),
        clients: run.clients,
        log: LatencyLog::of(run.out, journal.turns() > 0)?,
        progress,
    };
    // A directory that is used again does not show the run before as this one's.
    stage.keep(&result)?;
    let ran = match stage.file.oltp {
        Some(_) => load::run(&stage, &mut result, journal),
        None => scans::run(&stage, &mut result, journal),
    };
    progress.finish();
    if let Some(users) = run.clients {
        result.clients = users.told();
        result.head.checks.push(users.check());
    }
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

    /// Folders of a home's primary and standby.
    fn home_folders(&self, home: usize) -> [PathBuf; 2] {
        let number = if self.file.configuration.is_empty() {
            0
        } else {
            home
        };
        self.homes[home].folders(number, &self.folders)
    }

    /// A home by its places.
    fn home_name(&self, home: usize) -> String {
        let Home { place, standby } = self.homes[home];
        let of = |index: usize| &*self.places[index].name;
        match standby {
            Some(standby) if standby != place => {
                format!("{}, its standby on {}", of(place), of(standby))
            }
            _ => of(place).to_owned(),
        }
    }

    /// A configuration's places, and its name in the scenario.
    fn described(&self, asked: &Asked) -> ConfigurationResult {
        let home = &self.homes[asked.home];
        let named = asked.named.as_ref();
        // Unless it is said, a standby is where its primary is.
        let in_group = asked.topology == Topology::AvailabilityGroup;
        let is_told = |at: &usize| named.is_some() || (in_group && *at != home.place);
        let standby = home.standby.filter(is_told);
        ConfigurationResult {
            place: self.places[home.place].name.clone(),
            standby_place: standby.map(|at| self.places[at].name.clone()),
            configuration: named.map(|of| of.name.clone()),
            published: named.and_then(|of| of.published),
            topology: Some(asked.topology),
            ..ConfigurationResult::default()
        }
    }

    /// What is told of turns that have ended: why they did, if that was before their end.
    fn ended(
        &self,
        ran: Result<(), LabError>,
        result: &mut ScenarioResult,
    ) -> Result<(), LabError> {
        if let Err(error) = ran
            && !result.head.partial
        {
            told(result, "the run", &error);
        }
        Ok(())
    }
}

/// Ends the servers in folders of a run that was killed, and removes those.
fn clear(folders: &[PathBuf]) -> Result<(), LabError> {
    for folder in folders {
        if let Ok(group) = Kept::at(&folder.join(OWN)) {
            group.stop()?;
        }
    }
    folders.iter().try_for_each(|folder| end_servers(folder))?;
    remove_left(folders)
}

/// Ends the servers in a folder whose run was killed.
///
/// # Errors
/// One does not end.
pub fn end_servers(folder: &Path) -> Result<(), LabError> {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if Server::is_one(&path) {
            Server::at(&path)?.kill()?;
        } else if MariaServer::is_one(&path) {
            MariaServer::at(&path)?.kill()?;
        }
    }
    Ok(())
}

fn check_places(places: &[Place]) -> Result<(), LabError> {
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
    result.head.partial = true;
    if let LabError::Check(text) = error {
        result.head.checks.push(Check {
            name: what.to_owned(),
            passed: false,
            text: text.clone(),
        });
    }
    result.head.problems.push(format!("{what}: {error}"));
}
