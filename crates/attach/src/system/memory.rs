//! Memory of a process that serves a file system: what it needs must not wait for dirty pages that it would have to
//! write itself.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;
use rustix::thread::{CapabilitySet, capabilities};
use tracing::warn;

/// Tells what could not be had, and what is missing for it. Wishes all: without them it works, but for machines
/// that are short of memory.
fn wish(result: rustix::io::Result<()>, what: &str) {
    if let Some(missing) = missing(result, what) {
        warn!("{missing}");
    }
}

fn missing(result: rustix::io::Result<()>, what: &str) -> Option<String> {
    let error = result.err()?;
    Some(format!("may hang when memory is short: {what}: {error}"))
}

const NO_IO_PATH: &str = "the kernel cannot be told that it is part of the I/O path (PR_SET_IO_FLUSHER), which takes \
                          CAP_SYS_RESOURCE";

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
    wish(configure_io_flusher_behavior(true), NO_IO_PATH);
}

#[cfg(test)]
mod tests {
    use rustix::thread::set_capabilities;

    use super::*;

    /// Of this thread alone.
    fn without(missing: CapabilitySet) {
        let mut sets = capabilities(None).expect("known");
        sets.effective.remove(missing);
        set_capabilities(None, sets).expect("given up");
    }

    #[test]
    fn the_privilege_that_the_kernel_misses_is_named() {
        let told = std::thread::spawn(|| {
            without(CapabilitySet::SYS_RESOURCE);
            missing(configure_io_flusher_behavior(true), NO_IO_PATH)
        });
        let told = told.join().expect("an end").expect("it is refused");
        for part in ["memory is short", "PR_SET_IO_FLUSHER", "CAP_SYS_RESOURCE"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert_eq!(missing(Ok(()), NO_IO_PATH), None);
    }
}
