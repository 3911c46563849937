//! `ashlar lab failover --topology … --fault …`.

use ashlar_failover::Systems;
use ashlar_lab::{ResultFile, check_out_dir};
use ashlar_oltp::faults::{FaultsPlan, FaultsResult, Topology, faults};
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
    let plan = FaultsPlan {
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
    };
    let tunings = arguments.tuning.iter().map(|&word| word.into());
    let topologies = Topology::with(&arguments.topology, &tunings.collect::<Vec<_>>());
    plan.check(&topologies)?;
    let made_of = Systems {
        dir: arguments.dir.clone(),
        standby: arguments.standby.clone(),
        set: arguments.set.clone(),
        faults: arguments.faults.clone(),
        hold: plan.hold,
        hosts: arguments.hosts.agents(),
    };
    made_of.check(&topologies)?;
    check_out_dir(&arguments.out)?;
    let progress = interruptible()?;
    let systems = made_of.of(&topologies, &progress)?;
    let mut keep = |result: &FaultsResult| result.write(&arguments.out);
    let result = faults(&plan, systems, (&progress, &mut keep))?;
    progress.finish();
    ending::end(&result, &arguments.out)
}
