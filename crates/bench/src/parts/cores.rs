//! Whether a command costs more on two cores than on one: of a device that every core has for itself, with a
//! connection for each, and of one volume, whose pool lives on one of them.
//!
//! The clients sleep while they wait, since on a machine of two cores they share them with the
//! target; a client that spins would take the very time that is being counted.

use std::sync::Barrier;

use serde::Serialize;

use super::{Bench, MEMORY, on_core, round};
use crate::cpu::Meter;
use crate::failure::Failure;
use crate::figures::{Case, Round, Side, Spread};
use crate::raw::load::Plan;
use crate::raw::{Host, Load, Wait};
use crate::serve::{self, NQN, Running};
use crate::volume::{self, LAYOUT, Volume};

const CASES: &[Case] = &[
    Case::new("randread", 4096, 32),
    Case::new("randwrite", 4096, 32),
];
/// What the ratio is hoped not to exceed.
const GOAL_AT_MOST: f64 = 1.0;

/// Bytes of the volume.
const VOLUME: &str = "128MiB";

/// One core, against two.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Scaling {
    /// What is served: `memory`, or the layout of a volume.
    pub(crate) served: &'static str,
    #[serde(flatten)]
    pub(crate) case: Case,
    /// Commands a second of all connections, two / one, pair by pair.
    pub(crate) iops_ratio: Spread,
    /// Nanoseconds of the target's processor time a command, two / one, pair by pair.
    pub(crate) cpu_ns_per_command_ratio: Spread,
    /// What the ratio is hoped not to exceed.
    pub(crate) goal_at_most: f64,
    /// Nanoseconds of the target's processor time a command.
    pub(crate) one_cpu_ns_per_command: Spread,
    pub(crate) two_cpu_ns_per_command: Spread,
    /// Clients have cores of their own.
    pub(crate) clients_apart: bool,
    pub(crate) one: Side,
    pub(crate) two: Side,
}

/// A target with its loaded connections, each with the core its client runs on.
struct Setup {
    target: Target,
    loads: Vec<(usize, Load)>,
    /// Their admin queues, without which the controllers end.
    _hosts: Vec<Host>,
}

enum Target {
    Memory(Running),
    Volume(Volume),
}

impl Target {
    fn server(&self) -> (&Running, &str) {
        match self {
            Self::Memory(server) => (server, NQN),
            Self::Volume(volume) => (&volume.server, &volume.nqn),
        }
    }
}

impl Setup {
    fn new(target: Target, clients: &[usize]) -> Result<Self, Failure> {
        let (server, nqn) = target.server();
        let (mut loads, mut hosts) = (Vec::new(), Vec::new());
        for (number, &core) in clients.iter().enumerate() {
            let mut host = Host::connect(server.address, nqn, number as u8, None)?;
            loads.push((core, host.load()?));
            hosts.push(host);
        }
        if let Some((_, load)) = loads.first_mut() {
            load.fill()?;
        }
        Ok(Self {
            target,
            loads,
            _hosts: hosts,
        })
    }

    fn round(&mut self, case: &Case, plan: &Plan) -> Result<Round, Failure> {
        let meter = Meter::of(self.target.server().0.pid());
        let together = Barrier::new(self.loads.len());
        let rounds = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (core, load) in &mut self.loads {
                let together = &together;
                let work = move || {
                    on_core(*core, || {
                        together.wait();
                        round(load, case, plan, meter)
                    })
                };
                threads.push(scope.spawn(work));
            }
            let panicked = |_| Err(Failure::environment("a load thread panicked"));
            let rounds = threads.into_iter();
            rounds
                .map(|thread| thread.join().unwrap_or_else(panicked))
                .collect::<Result<Vec<_>, _>>()
        })?;
        // All loads see the same target at the same time: its time is counted once, commands added.
        let first = rounds[0];
        let iops: f64 = rounds.iter().map(|round| round.iops).sum();
        Ok(Round {
            iops,
            iops_per_cpu_s: first.iops_per_cpu_s * iops / first.iops.max(1.0),
            ..first
        })
    }
}

/// Which core each of two clients is on, and whether they have cores of their own.
fn clients(bench: &Bench<'_>) -> ([usize; 2], bool) {
    let apart = bench.cores.len() >= 4;
    // The target gives its last core to the first connection: crossed, each client is on the core
    // that its own connection does not use.
    let clients = match bench.cores[..] {
        [_, _, third, fourth, ..] => [third, fourth],
        _ => [bench.server_core, bench.client_core],
    };
    (clients, apart)
}

/// Of memory: a connection a core.
pub(super) fn of_memory(bench: &Bench<'_>) -> Result<Vec<Scaling>, Failure> {
    let (clients, apart) = clients(bench);
    let alone = if apart { clients[0] } else { bench.client_core };
    let (one_core, two_cores) = (&bench.cores[..1], &bench.cores[..2]);
    let memory = |name, cores, clients: &[usize]| {
        let target = serve::ashlar(bench.options, name, MEMORY, cores)?;
        Setup::new(Target::Memory(target), clients)
    };
    let mut one = memory("cores-1", one_core, &[alone])?;
    let mut two = memory("cores-2", two_cores, &clients)?;
    compare(bench, "memory", apart, [&mut one, &mut two])
}

/// Of a volume, and what to know before quoting it. Two connections on both sides: what differs is the
/// cores.
pub(super) fn of_a_volume(bench: &Bench<'_>) -> Result<(Vec<Scaling>, Option<String>), Failure> {
    let (clients, apart) = clients(bench);
    let place = volume::place(bench.options, 2)?;
    let volume = |name, cores: &[usize]| {
        let target = volume::start(bench.options, &place, name, VOLUME, cores)?;
        Setup::new(Target::Volume(target), &clients)
    };
    let mut one = volume("cores-volume-1", &bench.cores[..1])?;
    let mut two = volume("cores-volume-2", &bench.cores[..2])?;
    let results = compare(bench, LAYOUT, apart, [&mut one, &mut two])?;
    Ok((results, place.note))
}

/// One and two cores in turn.
fn compare(
    bench: &Bench<'_>,
    served: &'static str,
    clients_apart: bool,
    [one, two]: [&mut Setup; 2],
) -> Result<Vec<Scaling>, Failure> {
    let plan = bench.plan(Wait::Sleep);
    let mut results = Vec::new();
    for case in CASES {
        let (a, b) = bench.in_turn(|| two.round(case, &plan), || one.round(case, &plan))?;
        let iops = |rounds: &[Round]| rounds.iter().map(|round| round.iops).collect::<Vec<_>>();
        let iops_ratio = Spread::of_ratios(&iops(&a), &iops(&b));
        let (two, one) = (Side::of(a), Side::of(b));
        let (ns_two, ns_one) = (two.ns_per_command(), one.ns_per_command());
        results.push(Scaling {
            served,
            case: *case,
            iops_ratio,
            cpu_ns_per_command_ratio: Spread::of_ratios(&ns_two, &ns_one),
            goal_at_most: GOAL_AT_MOST,
            one_cpu_ns_per_command: Spread::of(&ns_one),
            two_cpu_ns_per_command: Spread::of(&ns_two),
            clients_apart,
            one,
            two,
        });
    }
    Ok(results)
}
