//! One step: all databases' streams begin together, are measured for the same time, and end.

use std::collections::BTreeMap;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Instant;

use ashlar_lab::{CpuTicks, Interval, LabError, LatencyLog, Progress};

use super::elsewhere;
use super::file::FleetScenario;
use super::members::{Member, Members};
use super::nodes::Nodes;
use super::result::{FleetNode, FleetShare, FleetStep};
use super::storage::{Done, Looked, Storage, VolumeAccesses};
use crate::inputs::Kind;
use crate::remote::RemoteUsers;
use crate::result::{ClientShare, StepResult};
use crate::run::{Measured, RunPlan, Shown, Users, Window, examine, setting};
use crate::usage::process_cpu_s;

/// What came of a database.
pub(super) struct Home {
    pub(super) step: StepResult,
    pub(super) measured: Measured,
    /// What was measured is of so many seconds.
    pub(super) seconds: f64,
}

impl Home {
    pub(super) fn of(window: Window, repeat: u32) -> Self {
        let measured = window.measured().clone();
        let mut step = window.step();
        // They are in what was measured, of which all databases' go into the log together.
        step.latencies.clear();
        step.repeat = repeat;
        Self {
            seconds: step.elapsed_s,
            step,
            measured,
        }
    }

    fn tps(&self) -> f64 {
        self.measured.transactions() as f64 / self.seconds.max(1e-9)
    }
}

/// A fleet that is there, and what it is on.
pub(super) struct Fleet<'a> {
    pub(super) file: &'a FleetScenario,
    pub(super) members: &'a Members,
    pub(super) nodes: &'a Nodes,
    pub(super) storage: Storage<'a>,
    /// Agents that have the streams; without, they are in this process.
    pub(super) clients: Option<&'a RemoteUsers<'a>>,
    pub(super) log: LatencyLog,
}

/// Which step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepAt {
    /// Of the streams.
    pub(super) percent: u32,
    /// From 1.
    pub(super) repeat: u32,
}

/// What each database is to do in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned<'a> {
    pub(super) plans: &'a [RunPlan],
    /// From 1.
    pub(super) repeat: u32,
}

/// Measures a step.
pub(super) fn step(
    fleet: &Fleet<'_>,
    at: StepAt,
    progress: &Progress,
) -> Result<FleetStep, LabError> {
    let StepAt { percent, repeat } = at;
    let Fleet { file, members, .. } = *fleet;
    let streams = file.streams(percent);
    let plans = streams.iter().map(|&streams| file.plan(streams));
    let plans = plans.collect::<Result<Vec<RunPlan>, LabError>>()?;
    let planned = Planned {
        plans: &plans,
        repeat,
    };
    let (homes, watch) = match fleet.clients {
        None => here(fleet, planned, progress)?,
        Some(agents) => elsewhere::drive(fleet, agents, planned, progress)?,
    };
    let mut step = FleetStep {
        percent,
        repeat,
        streams: mean(&streams),
        offered_tps: streams
            .iter()
            .map(|&of| f64::from(of) * file.fleet.rate)
            .sum(),
        machine_cpu_pct: watch.cpu_pct,
        client_cpu_s: watch.client_cpu_s,
        accesses: watch.done.devices,
        ..FleetStep::default()
    };
    let all = step.add(&homes)?;
    let at = Interval {
        began_unix_s: homes.first().map_or(0.0, |home| home.step.began_unix_s),
        seconds: step.elapsed_s,
    };
    let name = format!("{percent}pct.r{repeat}");
    fleet.log.add(&name, at, &all.latencies())?;
    step.clients = clients(&homes);
    if !step.clients.is_empty() {
        step.client_cpu_s = step.clients.iter().map(|of| of.cpu_s).sum();
    }
    step.nodes = fleet.by_node(&homes, &watch.done.volumes);
    step.volumes = watch.done.volumes.into_iter().flatten().collect();
    // Of one agent, many may have the same.
    let mut problems: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for ((member, home), streams) in members.all.iter().zip(homes).zip(streams) {
        let tps = home.tps();
        let mut own = home.step;
        member.lift_limit()?;
        examine(&member.database, &member.marker, &mut own, progress);
        step.databases.push(FleetShare {
            streams,
            ..FleetShare::of(&member.name, tps, &own)
        });
        for problem in &own.problems {
            let whose = problems.entry(problem.clone()).or_default();
            whose.push(member.name.as_str());
        }
        step.partial |= own.partial;
        let complaint = own.consistency.complaint();
        step.complaints
            .extend(complaint.map(|text| format!("{}: {text}", member.name)));
    }
    let told = |(problem, whose): (String, Vec<&str>)| format!("{}: {problem}", whose.join(", "));
    step.problems = problems.into_iter().map(told).collect();
    Ok(step)
}

/// What each agent had of all databases.
fn clients(homes: &[Home]) -> Vec<ClientShare> {
    let mut all: Vec<ClientShare> = Vec::new();
    for part in homes.iter().flat_map(|home| &home.step.clients) {
        match all.iter_mut().find(|of| of.client == part.client) {
            Some(of) => of.add(part),
            None => all.push(part.clone()),
        }
    }
    all
}

/// All databases' streams in this process.
fn here(
    fleet: &Fleet<'_>,
    planned: Planned<'_>,
    progress: &Progress,
) -> Result<(Vec<Home>, Watch), LabError> {
    let Planned { plans, repeat } = planned;
    let members = fleet.members;
    let count = members.all.len();
    // Login takes turns of its own length; all begin together.
    let together = Barrier::new(count);
    let refused: Mutex<Option<LabError>> = Mutex::new(None);
    let watch = Mutex::new(Watch::default());
    let homes: Vec<Result<Home, LabError>> = std::thread::scope(|scope| {
        let drive = |(index, (member, plan))| {
            let part = Part {
                plan,
                member,
                repeat,
                together: &together,
                refused: &refused,
                watch: (index == 0).then_some((&watch, &fleet.storage)),
                progress,
            };
            scope.spawn(move || part.drive())
        };
        let parts: Vec<_> = members
            .all
            .iter()
            .zip(plans)
            .enumerate()
            .map(drive)
            .collect();
        let home = |part: std::thread::ScopedJoinHandle<'_, Result<Home, LabError>>| {
            let lost = |_| Err(LabError::environment("a thread panicked"));
            part.join().unwrap_or_else(lost)
        };
        parts.into_iter().map(home).collect()
    });
    let homes = homes.into_iter().collect::<Result<Vec<Home>, LabError>>()?;
    let watch = watch.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((homes, watch))
}

/// Streams of a database on average.
fn mean(streams: &[u32]) -> u32 {
    let all: f64 = streams.iter().copied().map(f64::from).sum();
    (all / streams.len().max(1) as f64).round() as u32
}

impl Fleet<'_> {
    /// What the databases of each node have together.
    fn by_node(&self, homes: &[Home], volumes: &[Option<VolumeAccesses>]) -> Vec<FleetNode> {
        let of_node = |node| {
            let members = self.members.all.iter().zip(homes);
            let own = members.filter(|(member, _)| member.node == node);
            let own: Vec<&Home> = own.map(|(_, home)| home).collect();
            let cpu: Option<Vec<f64>> = own.iter().map(|home| home.step.server_cpu_s).collect();
            let elapsed = own.iter().map(|home| home.step.elapsed_s);
            let daemons = volumes.iter().enumerate();
            let daemons = daemons.filter(|(place, _)| self.nodes.of_place(*place) == node);
            let daemons: Option<Vec<f64>> = daemons
                .map(|(_, volume)| volume.as_ref()?.daemon_cpu_s)
                .collect();
            FleetNode {
                name: Nodes::name(node),
                databases: own.len(),
                tps: own.iter().map(|home| home.tps()).sum(),
                elapsed_s: elapsed.fold(0.0, f64::max),
                server_cpu_s: cpu.map(|all| all.iter().sum()),
                // Volumes of one node have one daemon.
                daemon_cpu_s: daemons.and_then(|all| all.into_iter().reduce(f64::max)),
            }
        };
        (0..self.nodes.count()).map(of_node).collect()
    }
}

impl FleetStep {
    /// What all databases have together: histograms are added up.
    fn add(&mut self, homes: &[Home]) -> Result<Measured, LabError> {
        let mut all = Measured::new()?;
        for home in homes {
            all.merge(&home.measured)?;
            self.elapsed_s = self.elapsed_s.max(home.seconds);
            self.missed = self.missed.saturating_add(home.step.missed);
            self.tps += home.tps();
        }
        let servers: Option<Vec<f64>> = homes.iter().map(|home| home.step.server_cpu_s).collect();
        self.server_cpu_s = servers.map(|all| all.iter().sum());
        self.transactions = Kind::ALL
            .into_iter()
            .map(|kind| (kind.name().to_owned(), all.of(kind)))
            .collect::<BTreeMap<_, _>>();
        self.lateness_us = all.lateness();
        self.series = all.series().to_vec();
        Ok(all)
    }
}

/// A database's part of a step.
struct Part<'a> {
    plan: &'a RunPlan,
    member: &'a Member,
    repeat: u32,
    together: &'a Barrier,
    refused: &'a Mutex<Option<LabError>>,
    /// The first one looks at the machine for all.
    watch: Option<(&'a Mutex<Watch>, &'a Storage<'a>)>,
    progress: &'a Progress,
}

impl Part<'_> {
    fn drive(&self) -> Result<Home, LabError> {
        let sessions = self.plan.users.first().copied().unwrap_or(1);
        let setting = setting(self.plan, &self.member.marker, sessions, self.repeat);
        let (quiet, node) = (self.progress.quiet(), Nodes::name(self.member.node));
        let prepared = self.member.database.prepare_run();
        let all_users = prepared.and_then(|()| {
            Users::log_in(&self.member.database, (self.plan, &setting), None, &quiet)
        });
        let refuse = |error: &LabError| {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            let name = &self.member.name;
            refused.get_or_insert_with(|| LabError::environment(format!("{name}: {error}")));
        };
        let all_users = all_users.inspect_err(refuse);
        self.together.wait();
        let refused = self
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(error) = refused {
            return Err(error);
        }
        let mut all_users = all_users?;
        all_users.show(Shown {
            progress: self.progress,
            group: &node,
            member: &self.member.name,
        });
        all_users.ramp(self.plan.ramp);
        let before = self.watch.map(|(_, storage)| Watch::begin(storage));
        let window = all_users.measure(self.plan.measure)?;
        if let Some(((watch, storage), before)) = self.watch.zip(before) {
            *watch.lock().unwrap_or_else(PoisonError::into_inner) = before.end(storage);
        }
        let stuck = all_users.stop();
        let mut home = Home::of(window, self.repeat);
        if let Some((users, problem)) = stuck {
            home.step.lost_users += users;
            home.step.problems.push(problem);
            home.step.partial = true;
        }
        Ok(home)
    }
}

/// The machine while a step is measured.
#[derive(Default)]
pub(super) struct Watch {
    cpu_pct: Option<f64>,
    client_cpu_s: f64,
    done: Done,
}

/// Counters at its beginning.
pub(super) struct Begun {
    at: Instant,
    ticks: Option<CpuTicks>,
    client_cpu_s: f64,
    looked: Looked,
}

impl Watch {
    pub(super) fn begin(storage: &Storage<'_>) -> Begun {
        Begun {
            at: Instant::now(),
            ticks: CpuTicks::now(),
            client_cpu_s: process_cpu_s(),
            looked: storage.now(),
        }
    }
}

impl Begun {
    pub(super) fn end(self, storage: &Storage<'_>) -> Watch {
        let seconds = self.at.elapsed().as_secs_f64().max(1e-9);
        let ticks = CpuTicks::now().zip(self.ticks);
        Watch {
            cpu_pct: ticks.and_then(|(to, from)| to.pct_since(from)),
            client_cpu_s: process_cpu_s() - self.client_cpu_s,
            done: self.looked.until(storage.now(), seconds),
        }
    }
}
