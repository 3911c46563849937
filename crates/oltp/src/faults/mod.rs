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

use ashlar_lab::result::Check;
use ashlar_lab::{Journal, LabError, Machine, Progress, Turn};
use serde::{Deserialize, Serialize};

pub use epochs::Epoch;
pub use kinds::{Fault, Limit, Topology};
pub use result::{Cell, Described, FaultsResult, Round};
pub use system::{GroupDrives, GroupSystem, StandaloneSystem, System};

use crate::database::Database;
use crate::load::{BuildPlan, build};
use crate::postgres::{Logic, Postgres};
use crate::run::at_most_a_day;
use crate::schema::Shape;
use crate::server::DATABASE;

/// What is to be done to each system.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

/// Makes a system: once it is its turn, and anew after a round that it has not recovered from.
pub type Make<'a> = Box<dyn Fn() -> Result<Box<dyn System>, LabError> + 'a>;

/// A system that faults are done to.
pub struct Wanted<'a> {
    pub topology: Topology,
    pub make: Make<'a>,
}

/// What keeps rounds, and who hears of them.
pub struct Means<'a> {
    pub progress: &'a Progress,
    /// Has each round as soon as it has ended.
    pub journal: &'a mut Journal,
    /// Keeps what there is of the result.
    pub keep: &'a dyn Fn(&FaultsResult) -> Result<(), LabError>,
}

/// A round that is to be done, or was.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// Which system, in the order in which they are made.
    at: usize,
    topology: Topology,
    fault: Fault,
    /// From 1.
    number: u32,
}

impl Due {
    fn turn(&self) -> Turn {
        Turn {
            configuration: self.at,
            cell: self.fault.word().to_owned(),
            repeat: self.number,
        }
    }
}

/// What a journal has of a round.
#[derive(Serialize, Deserialize)]
struct Kept {
    system: Described,
    round: Round,
}

/// What came of reading all blocks of a system in the end.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Read {
    /// So many match their checksums.
    Good(u64),
    /// One does not.
    Bad(String),
}

/// What the journal has of that, by each that was made of a system.
fn verified(at: usize, number: usize) -> Turn {
    Turn {
        configuration: at,
        cell: "verified".to_owned(),
        repeat: number as u32,
    }
}

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
        at_most_a_day("--before", self.before)?;
        at_most_a_day("--hold", self.hold)?;
        at_most_a_day("--after", self.after)?;
        let check = |topology: &Topology| topology.check(&self.faults);
        topologies.iter().try_for_each(check)
    }
}

/// Does every fault to every system in turn, or those that the journal does not have. A system is ended before the next
/// one is made. What goes wrong ends it and is told in the result.
///
/// # Errors
/// What is kept cannot be written.
pub fn faults(
    plan: &FaultsPlan,
    systems: &[Wanted<'_>],
    means: Means<'_>,
) -> Result<FaultsResult, LabError> {
    let topologies: Vec<Topology> = systems.iter().map(|wanted| wanted.topology).collect();
    plan.check(&topologies)?;
    let mut run = Run {
        plan,
        result: FaultsResult::begun(plan),
        means,
        reads: 0,
    };
    run.keep()?;
    for (at, wanted) in systems.iter().enumerate() {
        if let Err(error) = run.in_turn(at, wanted) {
            let progress = run.means.progress;
            progress.finish();
            let topology = wanted.topology;
            run.result.head.broke_off(format!("{topology}: {error}"));
            if progress.go_on().is_err() {
                break;
            }
        }
    }
    Ok(run.result)
}

/// All that is done, and what came of it so far.
struct Run<'a> {
    plan: &'a FaultsPlan,
    result: FaultsResult,
    means: Means<'a>,
    /// How often all blocks of this kind of system were read.
    reads: usize,
}

impl Run<'_> {
    fn keep(&self) -> Result<(), LabError> {
        (self.means.keep)(&self.result.so_far())
    }

    fn in_turn(&mut self, at: usize, wanted: &Wanted<'_>) -> Result<(), LabError> {
        let mut left = self.left(at, wanted.topology)?;
        while !left.is_empty() {
            self.means.progress.go_on()?;
            let system = (wanted.make)()?;
            let done = self.on_system(system.as_ref(), &mut left);
            let ended = system.end();
            done.and(ended)?;
        }
        Ok(())
    }

    /// Rounds that are still to be done to a system; those of before are taken in.
    fn left(&mut self, at: usize, topology: Topology) -> Result<VecDeque<Due>, LabError> {
        let mut left = VecDeque::new();
        for &fault in &self.plan.faults {
            if let Some(why) = topology.lacks(fault) {
                let text = format!("{topology}, {fault}: left out, {why}");
                self.means.progress.say(&text);
                continue;
            }
            for number in 1..=self.plan.rounds {
                let due = Due {
                    at,
                    topology,
                    fault,
                    number,
                };
                match self.means.journal.outcome(&due.turn())? {
                    Some(kept) => self.take(&due, kept),
                    None => left.push_back(due),
                }
            }
        }
        let reads: Vec<Read> = self.means.journal.outcomes(&verified(at, 1))?;
        self.reads = reads.len();
        let is_read = !reads.is_empty() && left.is_empty();
        reads.into_iter().for_each(|read| self.tell(read));
        // Others' blocks are not read.
        let has = |cell: &Cell| cell.topology == topology && topology == Topology::Fci;
        if !is_read && self.result.cells.iter().any(has) {
            self.result.head.flags.push(format!(
                "{topology}: rounds before an interruption were on a database whose blocks may not have been read in the end"
            ));
        }
        Ok(left)
    }

    fn tell(&mut self, read: Read) {
        match read {
            Read::Good(blocks) => self.result.verified_blocks += blocks,
            Read::Bad(text) => self.result.head.checks.push(Check {
                name: "blocks".to_owned(),
                passed: false,
                text,
            }),
        }
    }

    fn take(&mut self, due: &Due, kept: Kept) {
        self.result.describe(kept.system);
        self.result.add(due.topology, due.fault, kept.round);
    }

    /// Does what is left, until nothing is or the system does not recover.
    fn on_system(&mut self, system: &dyn System, left: &mut VecDeque<Due>) -> Result<(), LabError> {
        let (plan, progress) = (self.plan, self.means.progress);
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
        let described = Described {
            topology: system.topology(),
            told: system.told(),
            database: database.describe()?,
        };
        self.result.describe(described.clone());
        while let Some(due) = left.pop_front() {
            progress.go_on()?;
            progress.say(&format!(
                "{}, {}: round {} of {}",
                due.topology, due.fault, due.number, plan.rounds
            ));
            let round = round::round(plan, system, &due, progress)?;
            progress.say(&round.text());
            let recovered = round.not_ready.is_none() && round.unaudited.is_none();
            let kept = Kept {
                system: described.clone(),
                round,
            };
            self.means.journal.keep(&due.turn(), &kept)?;
            self.take(&due, kept);
            self.keep()?;
            if !recovered {
                return self.verify(system, &due).or_else(|error| {
                    progress.go_on()?;
                    self.result.head.flags.push(format!(
                        "{}, {}, round {}: the blocks of its database were not read: {error}",
                        due.topology, due.fault, due.number
                    ));
                    Ok(())
                });
            }
            if left.is_empty() {
                self.verify(system, &due)?;
            }
        }
        Ok(())
    }

    /// Reads all blocks of a system, after its last round.
    fn verify(&mut self, system: &dyn System, last: &Due) -> Result<(), LabError> {
        let read = match system.verify() {
            Ok(blocks) => Read::Good(blocks.unwrap_or(0)),
            Err(LabError::Check(text)) => Read::Bad(format!("{}: {text}", last.topology)),
            Err(error) => return Err(error),
        };
        self.reads += 1;
        let turn = verified(last.at, self.reads);
        self.means.journal.keep(&turn, &read)?;
        self.tell(read);
        self.keep()
    }
}

fn open(url: &str, logic: Logic, progress: &Progress) -> Result<Postgres, LabError> {
    Ok(Postgres::new(url, logic)?.until(progress))
}

#[cfg(test)]
mod tests;
