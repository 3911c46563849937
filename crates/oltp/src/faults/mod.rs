//! What clients see when something of a database fails that is meant to stay up: the same faults under the same
//! load, in several topologies.
//!
//! A round: clients in an open loop work through the listener; the fault happens; they go on, as clients do, until
//! they are served again; what was broken is mended under them; then every acknowledged order, payment and delivery is
//! looked for, conditions 1 to 12 are checked, and it is told whether two servers took writes.

mod clients;
mod epochs;
mod kinds;
mod result;
mod round;
mod system;
mod trace;
mod watch;

use std::collections::VecDeque;
use std::time::Duration;

use ashlar_lab::{LabError, Machine, Progress};

pub use epochs::Epoch;
pub use kinds::{Fault, Limit, Topology};
pub use result::{Cell, FaultsResult, Round};
pub use system::{GroupDrives, GroupSystem, StandaloneSystem, System};

use crate::database::Database;
use crate::load::{BuildPlan, build};
use crate::postgres::{Logic, Postgres};
use crate::schema::Shape;
use crate::server::DATABASE;

/// What is to be done to each system.
#[derive(Clone, Debug)]
pub struct FaultsPlan {
    /// Faults, in this order.
    pub faults: Vec<Fault>,
    /// How often each.
    pub rounds: u32,
    pub shape: Shape,
    pub users: usize,
    /// Transactions a second that are due, by all clients together.
    pub rate: f64,
    /// Load before the fault.
    pub before: Duration,
    /// How long a fault lasts that nothing may take over for: all of etcd down, and a group's drive, if clients are not
    /// served before.
    pub hold: Duration,
    /// Load after what was broken is mended.
    pub after: Duration,
    /// How long clients may not be served.
    pub limits: Vec<Limit>,
    /// Where the logic runs.
    pub logic: Logic,
    /// Seed of data and inputs.
    pub seed: u64,
}

/// Keeps what there is of a result.
pub type KeepFaults<'a> = &'a mut dyn FnMut(&FaultsResult) -> Result<(), LabError>;

/// Makes a system: once it is its turn, and anew after a round that it has not recovered from.
pub type Make<'a> = Box<dyn Fn() -> Result<Box<dyn System>, LabError> + 'a>;

/// Rounds that are still to be done to a system.
type Left = VecDeque<(Fault, u32)>;

impl FaultsPlan {
    /// # Errors
    /// A usage error for what makes no sense, by its option; a topology that has none of the faults.
    pub fn check(&self, topologies: &[Topology]) -> Result<(), LabError> {
        self.shape.check()?;
        if self.rounds == 0 {
            return Err(LabError::usage("--rounds 0: must be 1 or more"));
        }
        if !(1..=100).contains(&self.users) {
            return Err(LabError::usage(format!(
                "--users {}: must be 1 to 100 with --fault",
                self.users
            )));
        }
        if !(1.0..=100_000.0).contains(&self.rate) {
            return Err(LabError::usage(format!(
                "--rate {}: must be 1 to 100000",
                self.rate
            )));
        }
        let check = |topology: &Topology| topology.check(&self.faults);
        topologies.iter().try_for_each(check)
    }
}

/// Does every fault to every system in turn. A system is ended before the next one is made. What goes wrong
/// ends it and is told in the result.
pub fn faults(
    plan: &FaultsPlan,
    systems: Vec<(Topology, Make<'_>)>,
    (progress, keep): (&Progress, KeepFaults<'_>),
) -> Result<FaultsResult, LabError> {
    let topologies: Vec<Topology> = systems.iter().map(|(topology, _)| *topology).collect();
    plan.check(&topologies)?;
    let mut result = FaultsResult::begun(plan);
    keep(&result.so_far())?;
    for (topology, make) in systems {
        if let Err(error) = in_turn(plan, (topology, make), &mut result, (progress, keep)) {
            progress.finish();
            result.head.broke_off(format!("{topology}: {error}"));
            if progress.go_on().is_err() {
                break;
            }
        }
    }
    Ok(result)
}

fn in_turn(
    plan: &FaultsPlan,
    (topology, make): (Topology, Make<'_>),
    result: &mut FaultsResult,
    (progress, keep): (&Progress, KeepFaults<'_>),
) -> Result<(), LabError> {
    let mut left = rounds_of(plan, topology, progress);
    while !left.is_empty() {
        progress.go_on()?;
        let system = make()?;
        let done = on_system(plan, system.as_ref(), (&mut left, result), (progress, keep));
        let ended = system.end();
        done.and(ended)?;
    }
    Ok(())
}

fn rounds_of(plan: &FaultsPlan, topology: Topology, progress: &Progress) -> Left {
    let mut left = Left::new();
    for &fault in &plan.faults {
        match topology.lacks(fault) {
            Some(why) => progress.say(&format!("{topology}, {fault}: left out, {why}")),
            None => left.extend((1..=plan.rounds).map(|number| (fault, number))),
        }
    }
    left
}

/// Does what is left, until nothing is or the system does not recover.
fn on_system(
    plan: &FaultsPlan,
    system: &dyn System,
    (left, result): (&mut Left, &mut FaultsResult),
    (progress, keep): (&Progress, KeepFaults<'_>),
) -> Result<(), LabError> {
    system.await_ready(progress)?;
    let database = open(&system.url(DATABASE), plan.logic, progress)?;
    let tables = BuildPlan {
        shape: plan.shape,
        seed: plan.seed,
        users: Machine::here().cores as usize,
        destroy_data: false,
    };
    build(&database, &tables, progress)?;
    database.prepare_run()?;
    watch::prepare(&database)?;
    // What a fresh database has to replay would else be the load of its tables, which no fault is to blame for.
    database.execute("CHECKPOINT")?;
    let topology = system.topology();
    result.describe(topology, database.describe()?, system.told());
    while let Some((fault, number)) = left.pop_front() {
        progress.go_on()?;
        progress.say(&format!(
            "{topology}, {fault}: round {number} of {}",
            plan.rounds
        ));
        let round = round::round(plan, system, (fault, number), progress)?;
        progress.say(&round.text());
        let recovered = round.not_ready.is_none();
        result.add((topology, fault), round);
        keep(&result.so_far())?;
        if !recovered {
            return Ok(());
        }
    }
    result.verified_blocks += system.verify()?.unwrap_or(0);
    Ok(())
}

fn open(url: &str, logic: Logic, progress: &Progress) -> Result<Postgres, LabError> {
    Ok(Postgres::new(url, logic)?.until(progress))
}
