//! What must not outlive this process when a signal ends it: children and files.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

static HELD: Mutex<Held> = Mutex::new(Held {
    children: Vec::new(),
    paths: Vec::new(),
});

struct Held {
    children: Vec<Pid>,
    paths: Vec<PathBuf>,
}

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends children, removes files and exits with 128 + signal from now on when asked to end.
pub(crate) fn clean_up_on_signals() -> Result<(), Failure> {
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(Failure::doing("signals"))?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            let held = held();
            held.children.iter().for_each(|&child| ask_to_end(child));
            // They get a moment for their own files; what is left dies with this process.
            std::thread::sleep(Duration::from_millis(500));
            for path in &held.paths {
                let _ = std::fs::remove_file(path);
            }
            std::process::exit(128 + signal);
        }
    };
    let thread = std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait);
    thread.map(|_| ()).map_err(Failure::doing("a thread"))
}

/// Asks a process to end, also if it is stopped.
pub(crate) fn ask_to_end(child: Pid) {
    let _ = kill_process(child, Signal::TERM);
    let _ = kill_process(child, Signal::CONT);
}

/// Remembers a child until [`forget_child`].
pub(crate) fn remember_child(child: Pid) {
    held().children.push(child);
}

/// The child is about to be reaped: its number may become another's.
pub(crate) fn forget_child(child: Pid) {
    held().children.retain(|&other| other != child);
}

/// A file or socket that is removed when this is dropped, or when a signal ends the process.
pub(crate) struct Temporary(PathBuf);

impl Temporary {
    pub(crate) fn new(path: PathBuf) -> Self {
        held().paths.push(path.clone());
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        held().paths.retain(|path| path != &self.0);
    }
}
