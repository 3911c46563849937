//! The concurrent scan on every place of a scenario, in turn.

use ashlar_lab::units::human_bytes;
use ashlar_lab::{Journal, LabError, Measurement, Turn, Workload, carry_out};
use serde::{Deserialize, Serialize};

use super::file::ScanSection;
use super::named::Asked;
use super::result::{ConfigurationResult, ScenarioResult};
use super::{Stage, scan_turns, told};
use crate::files;
use crate::postgres::{Logic, Postgres};
use crate::remote::{At, Entrance, RemoteUsers};
use crate::scan::{Elsewhere, ScanAt, ScanPlan, ScanResult, ScanStep, make};
use crate::server::{Commit, Pair, Settings, Topology, limited};

/// A server's processes take so much memory, whatever the size of the table.
const LEAST_MEMORY: u64 = 48 << 20;
const MEMORY_EACH_READER: u64 = 6 << 20;

/// Servers with the table in them, stopped, and how they are to be run.
struct Held {
    pair: Pair,
    topology: Topology,
    settings: Settings,
}

/// Runs it.
pub(super) fn run(
    stage: &Stage<'_>,
    result: &mut ScenarioResult,
    journal: &mut Journal,
) -> Result<(), LabError> {
    let Some(section) = &stage.file.scan else {
        return Ok(());
    };
    let plan = stage.file.scan_plan(section);
    let mut servers = Vec::new();
    for asked in &stage.asked {
        servers.push(configuration(stage, (section, &plan), asked, result)?);
    }
    let schedule = plan.schedule(servers.len(), stage.file.measure.seed);
    let mut scans = Scans {
        stage,
        servers,
        result,
    };
    let ran = match &stage.file.turns {
        Some(turns) => scan_turns::run(&mut scans, turns, &plan.readers, journal),
        None => carry_out(&schedule, &mut scans, journal, stage.progress),
    };
    drop(scans);
    stage.ended(ran, result)
}

/// The scan as a workload: a turn is a number of readers of a configuration.
pub(super) struct Scans<'a> {
    pub(super) stage: &'a Stage<'a>,
    servers: Vec<Held>,
    pub(super) result: &'a mut ScenarioResult,
}

/// A step, and what to know about it.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) step: ScanStep,
    pub(super) flags: Vec<String>,
}

impl Workload for Scans<'_> {
    type Outcome = Kept;

    fn name(&self, turn: &Turn) -> String {
        let name = &self.result.configurations[turn.configuration].name;
        format!("{name}, {} readers, repeat {}", turn.cell, turn.repeat)
    }

    fn measure(&mut self, turn: &Turn) -> Result<Measurement<Kept>, LabError> {
        let kept = self.told_step(turn)?;
        let line = kept.step.line();
        Ok(Measurement::Whole(kept, line))
    }

    fn take(&mut self, turn: &Turn, kept: Kept) -> Result<(), LabError> {
        self.add(turn.configuration, kept);
        Ok(())
    }
}

impl Scans<'_> {
    /// How many configurations there are.
    pub(super) fn count(&self) -> usize {
        self.servers.len()
    }

    /// Puts a step into the result.
    pub(super) fn add(&mut self, configuration: usize, kept: Kept) {
        let of = &mut self.result.configurations[configuration];
        if let Some(scan) = &mut of.scan {
            scan.steps.push(kept.step);
            scan.head.flags.extend(kept.flags);
        }
    }

    /// A step; what ends it is told in the result.
    pub(super) fn told_step(&mut self, turn: &Turn) -> Result<Kept, LabError> {
        let what = self.name(turn);
        let kept = self.step(turn);
        kept.inspect_err(|error| {
            let of = &mut self.result.configurations[turn.configuration];
            if let Some(scan) = &mut of.scan {
                scan.head.partial = true;
            }
            told(self.result, &what, error);
        })
    }

    /// One step, of a server that was just started and of whose files nothing is in memory.
    fn step(&mut self, turn: &Turn) -> Result<Kept, LabError> {
        let readers = turn.number()?;
        let held = &self.servers[turn.configuration];
        held.pair.stop()?;
        files::forget(&held.pair.primary().data())?;
        held.pair.start_as(held.topology, &held.settings)?;
        let database = open(self.stage, &held.pair)?;
        let of = &mut self.result.configurations[turn.configuration];
        let none = || LabError::environment(format!("{}: no table", of.name));
        let scan = of.scan.as_mut().ok_or_else(none)?;
        let flags = scan.head.flags.len();
        let listens = held.pair.primary().listens();
        let elsewhere = self.stage.clients.zip(listens);
        let elsewhere = elsewhere.map(|(agents, address)| Elsewhere { agents, address });
        let at = ScanAt {
            readers,
            repeat: turn.repeat,
        };
        let step = scan.step((&database, elsewhere.as_ref()), at, self.stage.progress)?;
        Ok(Kept {
            step,
            flags: scan.head.flags.split_off(flags),
        })
    }
}

fn open(stage: &Stage<'_>, pair: &Pair) -> Result<Postgres, LabError> {
    let database = Postgres::new(&pair.url(), Logic::Client)?;
    Ok(database.until(stage.progress))
}

/// Servers of a configuration, which is put into the result.
fn configuration(
    stage: &Stage<'_>,
    (section, plan): (&ScanSection, &ScanPlan),
    asked: &Asked,
    result: &mut ScenarioResult,
) -> Result<Held, LabError> {
    let mut own = stage.described(asked);
    if asked.named.is_none() {
        own.topology = None;
    }
    let name = own
        .configuration
        .clone()
        .unwrap_or_else(|| own.place.clone());
    let at = stage.home_name(asked.home);
    let rows = plan.rows;
    stage
        .progress
        .say(&format!("{at}: a server with {rows} rows is made"));
    let free = Settings {
        memory_bytes: None,
        set: section.set.clone(),
    };
    let [primary, standby] = stage.home_folders(asked.home);
    let door = stage.clients.map(RemoteUsers::door).transpose()?;
    let mut pair = Pair::start_listening([&primary, &standby], free.clone(), door)?;
    let database = open(stage, &pair)?;
    if let Some((agents, address)) = stage.clients.zip(pair.primary().listens()) {
        let entrance = Entrance {
            address,
            speaks: Logic::Client.into(),
            at: At::All,
        };
        agents.admit(&database, entrance, stage.progress)?;
    }
    make(&database, plan, stage.progress)?;
    let scan = ScanResult::new(&database, plan)?;
    if let Some(dir) = stage.patroni {
        pair.keep_by_patroni(dir);
    }
    if asked.topology == Topology::AvailabilityGroup {
        pair.seed(free, Commit::On)?;
    }
    pair.stop()?;
    let most = plan.readers.iter().copied().max().unwrap_or(1) as u64;
    let least = LEAST_MEMORY + MEMORY_EACH_READER * most;
    let wanted = section
        .memory_pct
        .map(|pct| (pct / 100.0 * scan.bytes as f64) as u64);
    let (settings, reason) = match wanted {
        Some(wanted) => limited(section.set.clone(), wanted.max(least)),
        None => (
            Settings {
                memory_bytes: None,
                set: section.set.clone(),
            },
            None,
        ),
    };
    if let Some(reason) = reason {
        result
            .head
            .flags
            .push(format!("{name}: {reason}: the page cache has no limit"));
    } else if wanted.is_some_and(|wanted| wanted < least) {
        let share = 100.0 * least as f64 / scan.bytes.max(1) as f64;
        result.head.flags.push(format!(
            "{name}: the server's processes need {}, {share:.0} % of the table",
            human_bytes(least)
        ));
    }
    result.configurations.push(ConfigurationResult {
        name,
        commit: (asked.topology == Topology::AvailabilityGroup).then_some(Commit::On),
        database_bytes: scan.bytes,
        memory_pct: section.memory_pct,
        memory_bytes: settings.memory_bytes,
        scan: Some(scan),
        ..own
    });
    Ok(Held {
        pair,
        topology: asked.topology,
        settings,
    })
}
