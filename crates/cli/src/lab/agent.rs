//! `ashlar lab agent`: makes load for a run of another machine.

use ashlar_testbed::agent::Agent;

use super::interrupt::interruptible;
use crate::args::AgentArguments;
use crate::exit::Failure;
use crate::output::print;
use crate::stack;

/// Serves one coordinator after the other, until a signal ends it.
pub(super) fn run(arguments: &AgentArguments) -> Result<(), Failure> {
    let agent = Agent::listen(arguments.listen, &arguments.token_file, &arguments.dir)?;
    let progress = interruptible()?;
    print(&format!("ready {}\n", agent.address()))?;
    agent.run(stack::open, &progress);
    Ok(())
}
