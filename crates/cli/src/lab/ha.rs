//! `ashlar lab ha`.

use std::path::Path;

use ashlar_device::parse_size;
use ashlar_failover::{HaPlan, ha};
use ashlar_lab::{Command, Journal, Origin};

use super::ending;
use super::interrupt::interruptible;
use crate::args::HaArguments;
use crate::exit::Failure;
use crate::stack;

pub(super) fn run(arguments: &HaArguments) -> Result<(), Failure> {
    let plan = plan(arguments)?;
    plan.check()?;
    let mut journal = Journal::begin(&plan.out, &Origin::asked(Command::Ha, &plan)?)?;
    let out = plan.out.clone();
    carry_out(plan, &out, &mut journal)
}

/// All of it, or what the journal does not have.
pub(super) fn carry_out(plan: HaPlan, out: &Path, journal: &mut Journal) -> Result<(), Failure> {
    let out = out.to_owned();
    let plan = HaPlan { out, ..plan };
    let result = ha(&plan, stack::open, journal, &interruptible()?)?;
    ending::end_resumable(&result, &plan.out, journal)
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
