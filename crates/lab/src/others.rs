//! Processor time of processes that are neither the load nor the storage: what the machine did besides.
//!
//! The storage is this process and its children, whatever is called as a server of storage is, and the kernel's own
//! threads. What was begun and had ended between two looks is not seen.

use std::collections::HashMap;
use std::time::Duration;

/// Programs that serve storage, however they were started.
const STORAGE: [&str; 3] = ["ashlar", "nvmf_tgt", "spdk_tgt"];
/// A flag of the kernel's own threads (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;
/// Whether the load has ended is asked so often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A process, of what proc(5) says in `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    name: String,
    flags: u64,
    ticks: u64,
}

impl Process {
    fn parse(text: &str) -> Option<Self> {
        let (pid, rest) = text.split_once(" (")?;
        // A name may have anything in it.
        let (name, rest) = rest.rsplit_once(") ")?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            parent: words.get(1)?.parse().ok()?,
            name: name.to_owned(),
            flags: number(6)?,
            ticks: number(11)? + number(12)?,
        })
    }
}

/// Ticks of the others, each by its number.
pub(crate) struct Others(HashMap<u32, u64>);

impl Others {
    pub(crate) fn now() -> Self {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = entries.filter_map(|entry| {
            entry.file_name().to_str()?.parse::<u32>().ok()?;
            let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            Process::parse(&text)
        });
        Self::among(&all.collect::<Vec<_>>(), std::process::id())
    }

    fn among(all: &[Process], own: u32) -> Self {
        let parents: HashMap<u32, u32> = all.iter().map(|of| (of.pid, of.parent)).collect();
        let is_own = |pid: u32| {
            let mut line = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
            // Longer lines there are not; numbers may have been used again between two looks.
            line.by_ref()
                .take(64)
                .take_while(|&pid| pid > 1)
                .any(|pid| pid == own)
        };
        let is_other = |of: &&Process| {
            of.flags & KERNEL_THREAD == 0 && !STORAGE.contains(&&*of.name) && !is_own(of.pid)
        };
        let others = all.iter().filter(is_other);
        Self(others.map(|of| (of.pid, of.ticks)).collect())
    }

    /// Processor seconds that they have used since an earlier look.
    pub(crate) fn seconds_since(&self, earlier: &Self) -> f64 {
        let used = |(pid, ticks): (&u32, &u64)| {
            let before = earlier.0.get(pid).copied().unwrap_or(0);
            ticks.saturating_sub(before)
        };
        let ticks: u64 = self.0.iter().map(used).sum();
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    /// What they use from the end of a warm-up on; none if the load ends long before it was to.
    pub(crate) fn watch(
        warmup: Duration,
        measure: Duration,
        is_done: &dyn Fn() -> bool,
    ) -> Option<f64> {
        if wait(warmup, is_done) < warmup {
            return None;
        }
        let before = Self::now();
        // The load ends with its time, and may be a little ahead of us.
        let waited = wait(measure, is_done);
        (2 * waited >= measure).then(|| Self::now().seconds_since(&before))
    }
}

/// Waits for a time, or until it is done; how long.
fn wait(time: Duration, is_done: &dyn Fn() -> bool) -> Duration {
    let begun = std::time::Instant::now();
    loop {
        let waited = begun.elapsed();
        if waited >= time || is_done() {
            return waited;
        }
        std::thread::sleep((time - waited).min(LOOK_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_neither_ours_nor_storage_nor_the_kernel() {
        let of = |pid, parent, name: &str, flags, ticks| {
            let text =
                format!("{pid} ({name}) S {parent} 1 1 0 -1 {flags} 1 2 3 4 {ticks} 7 0 0 20");
            Process::parse(&text).expect("a process")
        };
        let at = |more: u64| {
            let all = [
                of(1, 0, "init", 0, 1),
                of(2, 0, "kthreadd", KERNEL_THREAD, 50 + more),
                of(10, 1, "lab", 0, 100 + more),
                of(11, 10, "child (of) it", 0, 100 + more),
                of(20, 1, "ashlar", 0, 100 + more),
                of(30, 1, "make", 0, 100 + 2 * more),
                of(31, 30, "cc) x", 0, more),
            ];
            Others::among(&all, 10)
        };
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let seconds = at(100).seconds_since(&at(0));
        assert_eq!(seconds, 300.0 / per_second);
        assert_eq!(Process::parse("x"), None);
        let here = Others::now();
        assert!(!here.0.contains_key(&std::process::id()));
    }

    #[test]
    fn a_load_that_ends_early_is_not_waited_for() {
        let hour = Duration::from_secs(3600);
        assert_eq!(Others::watch(hour, hour, &|| true), None);
        let none = Others::watch(Duration::ZERO, Duration::ZERO, &|| true);
        assert!(none.is_some_and(|seconds| seconds >= 0.0));
    }
}
