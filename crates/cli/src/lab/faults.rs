//! `ashlar lab failover --topology … --fault …`.

use std::path::Path;

use ashlar_failover::{FaultsRun, ReadyRun};
use ashlar_lab::{Command, Journal, Origin};
use ashlar_oltp::faults::{FaultsPlan, Topology};
use ashlar_oltp::schema::Shape;

use super::ending;
use super::interrupt::interruptible;
use super::oltp::{logic, time};
use crate::args::{CommitWord, FailoverArguments};
use crate::exit::Failure;

pub(super) fn run(arguments: &FailoverArguments) -> Result<(), Failure> {
    if arguments.cut_off.is_some() || arguments.commit != CommitWord::On {
        return Err(Failure::usage(
            "--cut-off, --commit: are of the failover without --topology; --fault cut-network cuts a node off",
        ));
    }
    let tunings = arguments.tuning.iter().map(|&word| word.into());
    let asked = FaultsRun {
        topologies: Topology::with(&arguments.topology, &tunings.collect::<Vec<_>>()),
        dir: arguments.dir.clone(),
        standby: arguments.standby.clone(),
        set: arguments.set.clone(),
        plan: FaultsPlan {
            faults: arguments.faults.clone(),
            rounds: arguments.rounds,
            shape: Shape::tpcc(arguments.warehouses),
            users: arguments.users,
            rate: arguments.rate,
            before: time("--before", &arguments.before)?,
            hold: time("--hold", &arguments.hold)?,
            after: time("--after", &arguments.after)?,
            limits: arguments.at_most.clone(),
            logic: logic(arguments.sql),
            seed: arguments.seed,
        },
        hosts: arguments.hosts.agents(),
    };
    let ready = asked.ready()?;
    let out = &arguments.out;
    let mut journal = Journal::begin(out, &Origin::asked(Command::Failover, &asked)?)?;
    carry_out(&ready, out, &mut journal)
}

/// All of it, or what the journal does not have.
pub(super) fn carry_out(
    asked: &ReadyRun<'_>,
    out: &Path,
    journal: &mut Journal,
) -> Result<(), Failure> {
    let progress = interruptible()?;
    let result = asked.carry_out(out, &progress, journal)?;
    progress.finish();
    ending::end_resumable(&result, out, journal)
}
