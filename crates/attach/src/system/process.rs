//! Processes that outlive their parents: named so that another one with the same number is not
//! taken for them.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// A process of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// When it started, in clock ticks since the machine did: numbers are used again.
    pub started: u64,
}

impl Process {
    /// The process that has this number now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let (_, started) = stat(pid)?;
        Some(Self { pid, started })
    }

    /// Whether it runs, or is at least stopped; not a zombie.
    pub(crate) fn is_alive(&self) -> bool {
        let alive = |(state, started)| started == self.started && !matches!(state, 'Z' | 'X');
        stat(self.pid).is_some_and(alive)
    }

    /// Whether it was stopped by a signal.
    pub(crate) fn is_stopped(&self) -> bool {
        stat(self.pid)
            .is_some_and(|(state, started)| started == self.started && matches!(state, 'T' | 't'))
    }

    /// Sends it a signal, if it is alive.
    pub(crate) fn signal(&self, signal: Signal) {
        if let (true, Some(pid)) = (self.is_alive(), Pid::from_raw(self.pid)) {
            // It may have ended by itself in this moment.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for its end; false if it is alive after `limit`.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.is_alive() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// State and start of a process (proc(5), fields 3 and 22).
fn stat(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, brackets too.
    let mut rest = text[text.rfind(')')? + 1..].split_whitespace();
    let state = rest.next()?.chars().next()?;
    Some((state, rest.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_known_by_its_start_too() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
        let process = Process::of(child.id() as i32).expect("it runs");
        assert!(process.is_alive() && !process.is_stopped());
        let other = Process {
            started: process.started + 1,
            ..process
        };
        assert!(!other.is_alive());
        other.signal(Signal::KILL);
        assert!(process.is_alive());
        process.signal(Signal::STOP);
        while !process.is_stopped() {
            std::thread::yield_now();
        }
        process.signal(Signal::KILL);
        assert!(process.ends_within(Duration::from_secs(10)));
        child.wait().expect("our child");
    }
}
