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
        let started = Stat::of(pid)?.started;
        Some(Self { pid, started })
    }

    /// Whether it runs, or is at least stopped; not a zombie.
    pub(crate) fn is_alive(&self) -> bool {
        self.stat().is_some_and(|stat| !stat.has_ended())
    }

    /// Whether it runs, or is stopped and may go on. One that was killed does neither, though it may be alive for long:
    /// what it is to clean up at its end may wait for a device.
    pub(crate) fn may_go_on(&self) -> bool {
        self.stat()
            .is_some_and(|stat| !stat.has_ended() && !stat.is_exiting())
    }

    /// Whether it was stopped by a signal.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stat()
            .is_some_and(|stat| matches!(stat.state, 'T' | 't'))
    }

    fn stat(&self) -> Option<Stat> {
        Stat::of(self.pid).filter(|stat| stat.started == self.started)
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

/// The kernel's `PF_EXITING`, among a process's flags.
const EXITING: u64 = 0x4;

/// Of a process (proc(5), fields 3, 9 and 22).
struct Stat {
    state: char,
    flags: u64,
    started: u64,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold anything, brackets too.
        let mut rest = text[text.rfind(')')? + 1..].split_whitespace();
        Some(Self {
            state: rest.next()?.chars().next()?,
            flags: rest.nth(5)?.parse().ok()?,
            started: rest.nth(12)?.parse().ok()?,
        })
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    fn is_exiting(&self) -> bool {
        self.flags & EXITING != 0
    }
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
