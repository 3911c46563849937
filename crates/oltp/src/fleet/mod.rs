//! Many databases at once: each a server of its own with little memory, each with streams that begin a transaction
//! every so often whether it keeps up or not. What all of them have together, and what each has.

mod compare;
mod elsewhere;
mod file;
mod fill;
mod members;
mod nodes;
mod report;
mod result;
mod step;
mod storage;
mod streams;

use ashlar_lab::result::ScenarioNote;
use ashlar_lab::{Asked, Measurement, Nest, Progress, Turn, Workload, carry_out};
use ashlar_lab::{Journal, LabError, LatencyLog, OwnFolder, ResultFile, Schedule};

pub use file::FleetScenario;
use members::{Ground, Members};
use nodes::Nodes;
pub(crate) use report::html;
use result::FleetPlace;
pub use result::{FleetResult, FleetStep};
use step::Fleet;
use storage::Storage;
pub use storage::{NoVolumes, Served, VolumeNow, Volumes};

use crate::scenario::{Place, ScenarioRun};

/// Runs it, or what the journal does not have of it, and writes its directory. What goes wrong while measuring ends
/// the run and is told in the result, in `partial` and `problems`.
///
/// # Errors
/// For what is wrong before anything is measured, and for what cannot be written.
pub fn run_fleet(
    run: &ScenarioRun<'_>,
    volumes: &dyn Volumes,
    progress: &Progress,
    journal: &mut Journal,
) -> Result<FleetResult, LabError> {
    let mut file = FleetScenario::parse(run.text)?;
    if run.clients.is_some() {
        file.check_clients()?;
    }
    let scaled = file.scale(run.scale);
    let places = crate::scenario::or_here(run.places, run.dir)?;
    let nodes = Nodes::of(file.fleet.nodes, places.len())?;
    let note = ScenarioNote {
        name: file.name.clone(),
        about: file.about.trim().to_owned(),
        scale: run.scale.factor(),
        scaled,
        source: file.published.clone().unwrap_or_default(),
        changed: run.changed.to_vec(),
    };
    let folders = run.prepare(&places, &note, (progress, journal))?;
    let mut result = FleetResult::new(file.heading(), note, &file);
    if !file.fleet.shape().is_tpcc() {
        result.head.flags.push(crate::schema::SMALL.to_owned());
    }
    result.so_far().write(run.out)?;
    let ground = Ground {
        places: &places,
        folders: &folders,
        nodes: &nodes,
        clients: run.clients,
    };
    let members = Members::make(&file, &ground, progress, &mut result)?;
    let wanted = file.fleet.full_pct.map(|percent| fill::Wanted {
        percent,
        scale: run.scale,
    });
    result.places = ground.fill(wanted, volumes, progress)?;
    let file_of = |member: &members::Member| member.place.storage.clone().ok();
    let fleet = Fleet {
        file: &file,
        members: &members,
        nodes: &nodes,
        storage: Storage {
            places: places.iter().map(|place| place.dir.clone()).collect(),
            files: members.all.iter().filter_map(file_of).collect(),
            volumes,
        },
        clients: run.clients,
        log: LatencyLog::of(run.out, journal.turns() > 0)?,
    };
    let schedule = Schedule {
        configurations: 1,
        cells: Asked::all(&file.fleet.steps, file.measure.repeat),
        nest: Nest::RepeatByRepeat,
        seed: file.measure.seed,
    };
    let mut load = Load {
        fleet: &fleet,
        result: &mut result,
        out: run,
        progress,
    };
    let ran = carry_out(&schedule, &mut load, journal, progress);
    progress.finish();
    if let Err(error) = ran {
        result.head.broke_off(error.to_string());
    }
    drop(members);
    if let Some(agents) = run.clients {
        result.clients = agents.told();
        result.head.checks.push(agents.check());
    }
    result.sum_up();
    result.write(run.out)?;
    result.write_report(run.out)?;
    Ok(result)
}

impl Ground<'_> {
    /// Makes all places as full as they are to be, when the databases are there.
    fn fill(
        &self,
        wanted: Option<fill::Wanted>,
        volumes: &dyn Volumes,
        progress: &Progress,
    ) -> Result<Vec<FleetPlace>, LabError> {
        let both = self.places.iter().zip(self.folders).enumerate();
        let fill = |(at, (place, folder)): (usize, (&Place, &OwnFolder))| {
            let filled = fill::fill(&place.dir, folder, wanted, progress)?;
            Ok(FleetPlace {
                name: place.name.clone(),
                node: Nodes::name(self.nodes.of_place(at)),
                volume: volumes.under(&place.dir).map(|volume| volume.name),
                full_pct: filled.percent,
                ballast_bytes: filled.ballast_bytes,
                full_reason: filled.reason,
            })
        };
        both.map(fill).collect()
    }
}

/// A turn is a step: so many percent of the streams.
struct Load<'a> {
    fleet: &'a Fleet<'a>,
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
        let percent = turn.number()?;
        let step = {
            let at = step::StepAt {
                percent,
                repeat: turn.repeat,
            };
            step::step(self.fleet, at, self.progress)?
        };
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

#[cfg(test)]
pub(crate) use result::sample;
