//! Processor time of a process and of the machine, and pinning.

use std::fs::{read_dir, read_to_string};
use std::time::Instant;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, getpid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::Failure;

/// The cores this process may use.
pub(crate) fn usable() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect()
}

/// Pins the calling thread.
pub(crate) fn pin_to(core: usize) -> Result<(), Failure> {
    if core >= CpuSet::MAX_CPU {
        return Err(Failure::usage(format!("core {core}: no such core")));
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(Failure::doing(format!("pinning to core {core}")))
}

/// Processor time of all threads of a process, in nanoseconds, from the scheduler's own count
/// (`schedstat`, proc(5)). Threads that have ended are not in it: servers here keep theirs.
pub(crate) fn of_process(pid: Pid) -> Result<u64, Failure> {
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let mut total = 0;
    for task in read_dir(&tasks).map_err(Failure::doing(&tasks))? {
        let path = task
            .map_err(Failure::doing(&tasks))?
            .path()
            .join("schedstat");
        // A thread may end between being listed and being read.
        let Ok(text) = read_to_string(&path) else {
            continue;
        };
        let first = text.split_whitespace().next();
        total += first.and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    if total == 0 {
        return Err(Failure::environment(format!(
            "{tasks}: no processor times (is CONFIG_SCHED_INFO on, and the process alive?)"
        )));
    }
    Ok(total)
}

/// Processor time in use on all cores since boot, in nanoseconds, in ticks (10 ms): user, nice,
/// system, irq, softirq; not what the hypervisor took.
pub(crate) fn of_machine() -> u64 {
    let text = read_to_string("/proc/stat").unwrap_or_default();
    let tick_ns = 1_000_000_000 / clock_ticks_per_second().max(1);
    busy_ticks(&text).unwrap_or(0) * tick_ns
}

fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else {
        return None;
    };
    Some(user + nice + system + irq + softirq)
}

/// A moment: the server's processor time, and what else is needed to know who else was running.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    /// The server's processor time in nanoseconds.
    pub(crate) server_ns: u64,
    /// That of the load and of this process.
    pub(crate) client_ns: u64,
    /// That of the machine.
    pub(crate) machine_ns: u64,
}

/// Which processes a measurement is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    pub(crate) server: Pid,
    /// The load, if it is not this process.
    pub(crate) client: Option<Pid>,
}

impl Meter {
    /// For a load in this process.
    pub(crate) fn of(server: Pid) -> Self {
        Self {
            server,
            client: None,
        }
    }

    pub(crate) fn sample(&self) -> Result<Sample, Failure> {
        let load = self.client.map_or(Ok(0), of_process)?;
        Ok(Sample {
            server_ns: of_process(self.server)?,
            client_ns: load + of_process(getpid())?,
            machine_ns: of_machine(),
            at: Instant::now(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_neither_idle_nor_stolen() {
        let text = "cpu  1 2 4 1000 1000 8 16 5000 0 0\ncpu0 9 9 9 9 9 9 9\n";
        assert_eq!(busy_ticks(text), Some(31));
        assert_eq!(busy_ticks("cpu 1 2\n"), None);
    }

    #[test]
    fn work_of_any_thread_counts() {
        let before = of_process(getpid()).unwrap();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let start = Instant::now();
        let thread = std::thread::spawn(move || {
            while start.elapsed().as_millis() < 60 {
                std::hint::spin_loop();
            }
            wait.recv().unwrap_err();
        });
        while start.elapsed().as_millis() < 120 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let worked = of_process(getpid()).unwrap() - before;
        drop(done);
        thread.join().unwrap();
        // Loaded machines give a thread less than a core, never nothing for this long.
        assert!(worked > 1_000_000, "{worked} ns");
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        child.wait().unwrap();
        assert!(of_process(pid).is_err());
    }
}
