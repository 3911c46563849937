//! Memory for whoever serves a file system: what it needs must not wait for dirty pages that it would have to
//! write itself.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;
use rustix::thread::{CapabilitySet, capabilities};
use tracing::warn;

/// Tells what could not be had, and what is missing for it. Wishes all: without them it works, but for machines
/// that are short of memory.
fn wish(result: rustix::io::Result<()>, what: &str) {
    if let Err(error) = result {
        warn!("may hang when memory is short: {what}: {error}");
    }
}

/// Keeps the process in memory.
pub(crate) fn stay() {
    let unlimited =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    // A process with a limit would be refused memory that it needs later.
    let future = match unlimited {
        true => MlockAllFlags::FUTURE,
        false => MlockAllFlags::empty(),
    };
    wish(
        mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT | future),
        "it cannot be kept in memory (mlockall), which takes CAP_IPC_LOCK or a larger limit of locked \
         memory (RLIMIT_MEMLOCK)",
    );
}

/// The calling thread is part of the I/O path: the kernel gives it memory without waiting for I/O.
pub(crate) fn join_io_path() {
    wish(
        configure_io_flusher_behavior(true),
        "the kernel cannot be told that it is part of the I/O path (PR_SET_IO_FLUSHER), which takes \
         CAP_SYS_RESOURCE",
    );
}
