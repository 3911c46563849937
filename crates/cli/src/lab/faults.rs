//! `ashlar lab failover --topology … --fault …`.

use ashlar_failover::{FciPlan, FciSystem, check_lengths, check_standby, group_for};
use ashlar_lab::{LabError, Progress, ResultFile, check_out_dir};
use ashlar_oltp::faults::{
    FaultsPlan, FaultsResult, Make, StandaloneSystem, System, Topology, faults,
};
use ashlar_oltp::group::GroupPlan;
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
    let standby = arguments.standby.as_deref();
    check_standby(&plan.faults, standby)?;
    let tunings = arguments.tuning.iter().map(|&word| word.into());
    let topologies = Topology::with(&arguments.topology, &tunings.collect::<Vec<_>>());
    plan.check(&topologies)?;
    check_lengths(&topologies, &arguments.dir, standby)?;
    check_out_dir(&arguments.out)?;
    let progress = interruptible()?;
    let systems = topologies
        .into_iter()
        .map(|topology| (topology, system(arguments, topology, &progress)))
        .collect();
    let mut keep = |result: &FaultsResult| result.write(&arguments.out);
    let result = faults(&plan, systems, (&progress, &mut keep))?;
    progress.finish();
    ending::end(&result, &arguments.out)
}

fn system<'a>(
    arguments: &'a FailoverArguments,
    topology: Topology,
    progress: &'a Progress,
) -> Make<'a> {
    Box::new(move || -> Result<Box<dyn System>, LabError> {
        progress.say(&format!("{topology} is made"));
        Ok(match topology {
            Topology::Standalone => {
                Box::new(StandaloneSystem::make(&arguments.dir, &arguments.set)?)
            }
            Topology::Group | Topology::GroupFast => {
                let plan = GroupPlan {
                    place_a: None,
                    place_b: arguments.standby.clone(),
                    tuning: topology.tuning(),
                    set: arguments.set.clone(),
                    loopback: false,
                };
                let (faults, dir) = (&arguments.faults, &arguments.dir);
                Box::new(group_for(faults, (dir, &plan), progress)?)
            }
            Topology::Fci => {
                let plan = FciPlan::of(&arguments.faults, &arguments.set);
                Box::new(FciSystem::make(&arguments.dir, &plan, progress)?)
            }
        })
    })
}
