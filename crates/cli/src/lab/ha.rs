//! `ashlar lab ha`.

use ashlar_device::parse_size;
use ashlar_failover::{HaPlan, ha};
use ashlar_lab::{ResultFile, check_out_dir};

use super::interrupt::interruptible;
use crate::args::HaArguments;
use crate::exit::Failure;
use crate::output::print;
use crate::stack;

pub(super) fn run(arguments: &HaArguments) -> Result<(), Failure> {
    let plan = plan(arguments)?;
    plan.check()?;
    check_out_dir(&plan.out)?;
    let result = ha(&plan, stack::open, &interruptible()?)?;
    result.write(&plan.out)?;
    result.write_report(&plan.out)?;
    print(&result.text())?;
    match result.complaint() {
        Some(text) => Err(Failure::check(format!(
            "{text}; the nodes' logs are in {}",
            plan.out.display()
        ))),
        None => Ok(()),
    }
}

fn plan(arguments: &HaArguments) -> Result<HaPlan, Failure> {
    Ok(HaPlan {
        dir: arguments.dir.clone(),
        kinds: arguments.kinds.clone(),
        rounds: arguments.rounds,
        soak: arguments.soak,
        faults: arguments.faults,
        nodes: arguments.nodes,
        replicas: arguments.replicas,
        etcd: arguments.etcd,
        bytes: parse_size(&arguments.size)?,
        upgrade_to: arguments.upgrade_to.clone(),
        loopback: arguments.loopback,
        seed: arguments.seed,
        out: arguments.out.clone(),
    })
}
