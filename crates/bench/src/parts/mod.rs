//! What is measured, part by part; results are written after each.

mod bare;
mod cores;
mod hoarders;
mod idle;
mod local;
mod peer;
mod peer_config;
mod perf;
mod replicas;
mod sweep;

use std::time::Duration;

pub(crate) use cores::Scaling;
pub(crate) use hoarders::Hoarders;
pub(crate) use idle::Idle;
pub(crate) use local::Remote;
pub(crate) use replicas::{Copies, WriteCost};

use crate::args::{Options, Part};
use crate::cpu::{self, Meter, Sample};
use crate::engine;
use crate::failure::Failure;
use crate::figures::{Case, Round};
use crate::raw::load::Plan;
use crate::raw::{Load, Wait};
use crate::report::Report;
use crate::signals;

/// The device of everything that is not about files: as large as the peer's.
const MEMORY: &str = "memory:128MiB";
const MEMORY_BYTES: u64 = 128 << 20;

/// What every part needs to know.
pub(crate) struct Bench<'a> {
    pub(crate) options: &'a Options,
    /// Measured time of a round.
    pub(crate) length: Duration,
    /// Where servers run.
    pub(crate) server_core: usize,
    /// Where the load runs.
    pub(crate) client_core: usize,
    /// All cores.
    pub(crate) cores: Vec<usize>,
}

/// Measures what was asked for, prints tables, writes `bench.json`.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let length = options.length()?;
    let cores = cpu::usable();
    let &[server_core, client_core, ..] = cores.as_slice() else {
        return Err(Failure::environment(
            "two cores are needed, one for the server and one for the load",
        ));
    };
    if options.wants_the_binary() && !options.ashlar.is_file() {
        let path = options.ashlar.display();
        return Err(Failure::environment(format!("{path}: no such program")));
    }
    std::fs::create_dir_all(&options.out).map_err(Failure::doing(options.out.display()))?;
    signals::clean_up_on_signals()?;
    let bench = Bench {
        options,
        length,
        server_core,
        client_core,
        cores,
    };
    let mut report = Report::new(&bench)?;
    if options.wants(Part::Bare) {
        report.bare(bare::measure(&bench)?)?;
    }
    if options.wants(Part::Local) {
        let (cells, notes) = local::measure(&bench)?;
        report.local(cells, notes)?;
    }
    if options.wants(Part::Idle) {
        report.idle(idle::measure(&bench)?)?;
    }
    if options.wants(Part::Cores) {
        report.cores(cores::of_memory(&bench)?)?;
        // It takes a daemon and more room: without it the rest is still worth something.
        report.cores_of_a_volume(cores::of_a_volume(&bench))?;
    }
    if options.wants(Part::Hoarders) {
        report.hoarders(hoarders::measure(&bench)?)?;
    }
    if options.wants(Part::Replicas) {
        let (cells, notes) = replicas::measure(&bench)?;
        report.replicas(cells, notes)?;
    }
    if options.wants(Part::ReplicaCost) {
        let (cells, notes) = replicas::measure_writes(&bench)?;
        report.replica_cost(cells, notes)?;
    }
    if options.wants(Part::Peer) {
        report.peer(peer::measure(&bench)?)?;
    }
    if options.wants(Part::Cost) {
        let cells = engine::cost(&options.cost(), |cell| report.cost_cell(cell))?;
        report.cost(cells)?;
    }
    if options.wants(Part::Tiers) {
        report.tiers(engine::tiers()?)?;
    }
    if options.wants(Part::Disks) {
        report.disks(engine::disks()?)?;
    }
    if options.wants(Part::WriteCache) {
        report.write_cache(engine::write_cache(options.write_cache_seconds)?)?;
    }
    if options.wants(Part::Recovery) {
        let (imports, memory) = engine::recovery()?;
        report.recovery(imports, memory)?;
    }
    if options.wants(Part::Reads) {
        let (out, bytes) = (&options.out, options.file_mib << 20);
        let out = out.canonicalize().map_err(Failure::doing(out.display()))?;
        report.reads(on_core(bench.server_core, || {
            engine::reads(&out, bytes, options.rounds, length)
        })?)?;
    }
    if options.wants(Part::Policy) {
        let cells = crate::policy::policy(&options.policy(), |cell| report.policy_cell(cell))?;
        report.policy(cells)?;
    }
    if options.wants(Part::Slow) {
        let all = crate::slow::slow(|one| report.slow_one(one))?;
        report.slow(all)?;
        let runs = crate::slow::databases(|run| report.slow_database(run))?;
        report.slow_databases(runs)?;
    }
    report.finish()
}

impl Bench<'_> {
    /// How a load in this process is to run.
    fn plan(&self, wait: Wait) -> Plan {
        Plan {
            warmup: (self.length / 4).clamp(Duration::from_millis(50), Duration::from_secs(1)),
            measure: self.length,
            wait,
        }
    }

    /// Rounds of two things in turn: first `ours`, then `base`.
    fn in_turn(
        &self,
        mut ours: impl FnMut() -> Result<Round, Failure>,
        mut base: impl FnMut() -> Result<Round, Failure>,
    ) -> Result<(Vec<Round>, Vec<Round>), Failure> {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..self.options.rounds {
            a.push(ours()?);
            b.push(base()?);
        }
        Ok((a, b))
    }
}

/// One round of a load in this process against the server that `meter` reads.
fn round(load: &mut Load, case: &Case, plan: &Plan, meter: Meter) -> Result<Round, Failure> {
    let mut samples: Vec<Sample> = Vec::with_capacity(2);
    let iops = load.run(case, plan, || {
        samples.push(meter.sample()?);
        Ok(())
    })?;
    match samples[..] {
        [from, to] => Ok(Round::of(iops, &from, &to)),
        _ => Err(Failure::environment("a round without its samples")),
    }
}

/// Runs `work` on a thread of its own that is pinned; children are never started there.
fn on_core<T: Send>(
    core: usize,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    std::thread::scope(|scope| {
        let pinned = move || {
            cpu::pin_to(core)?;
            work()
        };
        let thread = scope.spawn(pinned);
        thread
            .join()
            .unwrap_or_else(|_| Err(Failure::environment("a load thread panicked")))
    })
}
