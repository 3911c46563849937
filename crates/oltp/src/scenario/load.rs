//! TPROC-C on every configuration of a scenario, in turn.

use std::sync::Arc;

use ashlar_lab::units::human_bytes;
use ashlar_lab::{Journal, LabError, Measurement, Nest, Schedule, Turn, Workload, carry_out};

use super::file::OltpSection;
use super::keeper::{Keeper, OltpEngine};
use super::named::Asked;
use super::result::{ConfigurationResult, ScenarioResult};
use super::{Stage, told, turns};
use crate::database::Database;
use crate::load::{BuildPlan, build};
use crate::postgres::Logic;
use crate::remote::{At, Dialect, Entrance, RemoteUsers};
use crate::result::{OltpResult, StepResult};
use crate::run::{
    Driven, Elsewhere, Place as StepPlace, RunPlan, begin, drive, drive_elsewhere, examine, ready,
    setting,
};
use crate::schema::Marker;
use crate::schema::SMALL;
use crate::server::{Settings, Topology};

/// Connections besides the users'.
const SPARE_CONNECTIONS: usize = 20;
const DEFAULT_CONNECTIONS: usize = 100;

/// A configuration that is about to be measured.
pub(super) struct Ready {
    /// Which of the homes.
    pub(super) home: usize,
    pub(super) topology: Topology,
    pub(super) plan: RunPlan,
    pub(super) settings: Settings,
}

/// Runs it.
pub(super) fn run(
    stage: &Stage<'_>,
    result: &mut ScenarioResult,
    journal: &mut Journal,
) -> Result<(), LabError> {
    let Some(oltp) = &stage.file.oltp else {
        return Ok(());
    };
    if !oltp.shape().is_tpcc() {
        result.head.flags.push(SMALL.to_owned());
    }
    let mut pairs = Vec::new();
    for index in 0..stage.homes.len() {
        pairs.push(home(stage, oltp, index)?);
    }
    let mut all = Vec::new();
    for axes in axes(stage, oltp) {
        for asked in stage.asked.iter().filter(|asked| axes.has(asked)) {
            let (_, bytes) = pairs[asked.home];
            all.push(configuration(stage, oltp, (asked, &axes), bytes, result)?);
        }
    }
    if stage.file.turns.is_some() {
        return turns::run(stage, oltp, (&pairs, &all), (result, journal));
    }
    let schedule = Schedule {
        configurations: all.len(),
        cells: ashlar_lab::Asked::all(&oltp.users, stage.file.measure.repeat),
        nest: Nest::RepeatByRepeat,
        seed: stage.file.measure.seed,
    };
    let mut load = Load {
        stage,
        oltp,
        pairs: &pairs,
        all: &all,
        result,
    };
    stage.ended(
        carry_out(&schedule, &mut load, journal, stage.progress),
        result,
    )
}

/// TPROC-C as a workload: a turn is a number of users on a configuration.
struct Load<'a> {
    stage: &'a Stage<'a>,
    oltp: &'a OltpSection,
    pairs: &'a [(Keeper, u64)],
    all: &'a [Ready],
    result: &'a mut ScenarioResult,
}

impl Workload for Load<'_> {
    /// A run with one step.
    type Outcome = OltpResult;

    fn name(&self, turn: &Turn) -> String {
        let name = &self.result.configurations[turn.configuration].name;
        format!("{name}, {} users, repeat {}", turn.cell, turn.repeat)
    }

    fn measure(&mut self, turn: &Turn) -> Result<Measurement<OltpResult>, LabError> {
        let stepped = self.step(turn);
        let run = stepped.inspect_err(|error| told(self.result, &self.name(turn), error))?;
        let step = run.steps.last();
        match step.filter(|step| !step.partial) {
            Some(step) => {
                let line = step.line();
                Ok(Measurement::Whole(run, line))
            }
            None => Ok(Measurement::Part(run)),
        }
    }

    fn take(&mut self, turn: &Turn, run: OltpResult) -> Result<(), LabError> {
        self.result.configurations[turn.configuration].add(run);
        Ok(())
    }
}

impl Load<'_> {
    /// Put back, started, driven, checked.
    fn step(&self, turn: &Turn) -> Result<OltpResult, LabError> {
        let (stage, of) = (self.stage, &self.all[turn.configuration]);
        let users = turn.number()?;
        let (pair, _) = &self.pairs[of.home];
        for (other, _) in self.pairs {
            other.end_group()?;
        }
        pair.restore(of.topology, &of.settings)?;
        let database = open(stage, pair, self.oltp)?;
        let mut run = begin(database.as_ref(), &of.plan)?;
        run.method.restored = true;
        let marker = ready(database.as_ref(), &of.plan, &mut run)?;
        let place = StepPlace {
            users,
            repeat: turn.repeat,
            ledger: None,
        };
        let mut step = self.drive(&database, (of, &marker), place)?;
        // The check is no part of what is measured, and its sorts and hashes need memory of their own.
        pair.lift_limit()?;
        examine(&database, &marker, &mut step, stage.progress);
        if !step.partial {
            step.log(&stage.log, Some(turn.configuration))?;
        }
        run.steps.push(step);
        Ok(run)
    }
}

impl Load<'_> {
    /// One step, of users here or at agents.
    fn drive(
        &self,
        database: &Arc<dyn Database>,
        (of, marker): (&Ready, &Marker),
        place: StepPlace,
    ) -> Result<StepResult, LabError> {
        let (pair, _) = &self.pairs[of.home];
        let (users, progress) = (place.users, self.stage.progress);
        let Some((agents, address)) = self.stage.clients.zip(pair.listens()) else {
            return drive(database, (&of.plan, marker), place, progress);
        };
        let all = [Elsewhere {
            database,
            plan: &of.plan,
            setting: setting(&of.plan, marker, users, place.repeat),
            server: agents.server(address, dialect(self.oltp)),
            at: At::All,
        }];
        let mut driven = drive_elsewhere(&all, agents.clients(), &mut (), progress)?;
        let none = || LabError::environment("no users at agents");
        let Driven { window, .. } = driven.pop().ok_or_else(none)?;
        Ok(StepResult {
            users,
            repeat: place.repeat,
            ..window.step()
        })
    }
}

/// What configurations differ in besides the place, which changes quickest: neighbours differ in it only.
#[derive(Clone, Copy)]
struct Axes {
    /// Every topology, if the scenario names no configurations.
    topology: Option<Topology>,
    memory_pct: Option<f64>,
    slow_pct: f64,
}

impl Axes {
    /// Whether something that is asked is of these.
    fn has(&self, asked: &Asked) -> bool {
        self.topology
            .is_none_or(|topology| topology == asked.topology)
    }
}

fn axes(stage: &Stage<'_>, oltp: &OltpSection) -> Vec<Axes> {
    let memory: Vec<Option<f64>> = match &oltp.memory_pct[..] {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let topologies: Vec<Option<Topology>> = match stage.file.configuration.is_empty() {
        true => oltp.topology.iter().copied().map(Some).collect(),
        false => vec![None],
    };
    let mut all = Vec::new();
    for &topology in &topologies {
        for &memory_pct in &memory {
            all.extend(oltp.slow_down_pct.iter().map(|&slow_pct| Axes {
                topology,
                memory_pct,
                slow_pct,
            }));
        }
    }
    all
}

/// Servers at a home, with a database that is built and saved; and its size.
fn home(stage: &Stage<'_>, oltp: &OltpSection, index: usize) -> Result<(Keeper, u64), LabError> {
    stage.progress.go_on()?;
    let (name, progress) = (stage.home_name(index), stage.progress);
    progress.say(&format!(
        "{name}: a server with {} warehouses is made",
        oltp.warehouses
    ));
    let settings = Settings {
        memory_bytes: None,
        set: set(oltp),
    };
    let door = stage.clients.map(RemoteUsers::door).transpose()?;
    let folders = stage.home_folders(index);
    let mut pair = Keeper::start(oltp.engine, &folders, settings.clone(), door)?;
    let database = open(stage, &pair, oltp)?;
    if let Some((users, address)) = stage.clients.zip(pair.listens()) {
        let entrance = Entrance {
            address,
            speaks: dialect(oltp),
            at: At::All,
        };
        users.admit(database.as_ref(), entrance, progress)?;
    }
    let plan = BuildPlan {
        shape: oltp.shape(),
        seed: stage.file.measure.seed,
        users: ashlar_lab::Machine::here().cores as usize,
        destroy_data: false,
    };
    build(database.as_ref(), &plan, progress)?;
    stage.progress.go_on()?;
    let bytes = pair.bytes(database.as_ref())?;
    if let Some(dir) = stage.patroni {
        pair.keep_by_patroni(dir);
    }
    if stage.homes[index].standby.is_some() {
        progress.say(&format!("{name}: its standby is seeded"));
        pair.seed(settings, oltp.commit)?;
    }
    pair.save()?;
    Ok((pair, bytes))
}

fn set(oltp: &OltpSection) -> Vec<String> {
    let most = oltp.users.iter().copied().max().unwrap_or(1);
    let connections = (most + SPARE_CONNECTIONS).max(DEFAULT_CONNECTIONS);
    let mut set = vec![format!("max_connections={connections}")];
    set.extend(oltp.set.iter().cloned());
    set
}

pub(super) fn open(
    stage: &Stage<'_>,
    pair: &Keeper,
    oltp: &OltpSection,
) -> Result<Arc<dyn Database>, LabError> {
    pair.open(logic(oltp), stage.progress)
}

fn logic(oltp: &OltpSection) -> Logic {
    match &*oltp.sql {
        "client" => Logic::Client,
        _ => Logic::Functions,
    }
}

/// What agents that have the users speak.
pub(super) fn dialect(oltp: &OltpSection) -> Dialect {
    match oltp.engine {
        OltpEngine::Postgres => logic(oltp).into(),
        OltpEngine::Mariadb => Dialect::Mariadb,
    }
}

/// Puts an empty configuration into the result; how it is to be run.
fn configuration(
    stage: &Stage<'_>,
    oltp: &OltpSection,
    (asked, axes): (&Asked, &Axes),
    database_bytes: u64,
    result: &mut ScenarioResult,
) -> Result<Ready, LabError> {
    let Axes {
        memory_pct,
        slow_pct,
        ..
    } = *axes;
    let topology = asked.topology;
    let most = oltp.users.iter().copied().max().unwrap_or(1) as u64;
    let least = oltp.engine.least_memory(most);
    let wanted = memory_pct.map(|pct| (pct / 100.0 * database_bytes as f64) as u64);
    let bytes = wanted.map(|wanted| wanted.max(least));
    let (settings, reason) = match bytes {
        Some(bytes) => oltp.engine.limited(set(oltp), bytes),
        None => (
            Settings {
                memory_bytes: None,
                set: set(oltp),
            },
            None,
        ),
    };
    let own = stage.described(asked);
    let name = name(oltp, (&own, axes), &result.configurations);
    if let (Some(reason), Some(bytes)) = (reason, bytes) {
        result.head.flags.push(format!(
            "{name}: {reason}: its own cache is that of {}, but the page cache has no limit",
            human_bytes(bytes)
        ));
    } else if wanted.is_some_and(|wanted| wanted < least) {
        result.head.flags.push(format!(
            "{name}: the server's processes need {}, {:.1} % of the database",
            human_bytes(least),
            100.0 * least as f64 / database_bytes.max(1) as f64
        ));
    }
    let in_group = topology == Topology::AvailabilityGroup;
    result.configurations.push(ConfigurationResult {
        name,
        commit: in_group.then_some(oltp.commit),
        database_bytes,
        memory_pct,
        memory_bytes: settings.memory_bytes,
        slow_down_pct: slow_pct,
        ..own
    });
    Ok(Ready {
        home: asked.home,
        topology,
        plan: stage.file.run_plan(oltp, slow_pct)?,
        settings,
    })
}

/// A name that says what a configuration differs in from the others.
fn name(
    oltp: &OltpSection,
    (own, axes): (&ConfigurationResult, &Axes),
    before: &[ConfigurationResult],
) -> String {
    let mut words = vec![
        own.configuration
            .clone()
            .unwrap_or_else(|| own.place.clone()),
    ];
    if oltp.topology.len() > 1 {
        words.extend(axes.topology.map(|topology| topology.to_string()));
    }
    words.extend(axes.memory_pct.map(|pct| format!("{pct} % memory")));
    if oltp.slow_down_pct.len() > 1 {
        words.push(if axes.slow_pct > 0.0 {
            format!("slowed by {} %", axes.slow_pct)
        } else {
            "as it is".to_owned()
        });
    }
    let name = words.join(", ");
    // The same configuration may be there on purpose more than once.
    let is_it =
        |c: &&ConfigurationResult| c.name == name || c.name.starts_with(&format!("{name} ("));
    match before.iter().filter(is_it).count() {
        0 => name,
        count => format!("{name} ({})", count + 1),
    }
}
