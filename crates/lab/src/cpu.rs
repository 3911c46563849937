//! Processor time of the whole machine, and pinning.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Ticks of all processors together since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTicks {
    busy: u64,
    total: u64,
}

impl CpuTicks {
    /// Now, from `/proc/stat`; `None` where there is none.
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// From the text of proc(5)'s `/proc/stat`: user nice system idle iowait irq softirq steal.
    /// Guest time is part of user time there. Idle and iowait are idle; steal was used by others
    /// and is neither.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map_while(|n| n.parse().ok())
            .collect();
        let [user, nice, system, idle, iowait, irq, softirq, ..] = ticks[..] else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        Some(Self {
            busy,
            total: busy + idle + iowait,
        })
    }

    /// Processor seconds that there were since `earlier`, used or not; `None` if no tick has passed.
    pub(crate) fn seconds_since(self, earlier: Self) -> Option<f64> {
        let total = self.total.checked_sub(earlier.total);
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        total
            .filter(|&ticks| ticks > 0)
            .map(|ticks| ticks as f64 / per_second)
    }

    /// Share of the machine in use since `earlier`, 0 to 100; `None` if no tick has passed.
    pub fn pct_since(self, earlier: Self) -> Option<f64> {
        let total = self
            .total
            .checked_sub(earlier.total)
            .filter(|&ticks| ticks > 0)?;
        let busy = self.busy.checked_sub(earlier.busy)?;
        Some(100.0 * busy as f64 / total as f64)
    }
}

/// Processor seconds that the calling thread has used.
pub(crate) fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The processors this process may use.
pub(crate) fn usable_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

/// Pins the calling thread to the `index`-th usable processor (going round); gives the
/// processor, or `None` if pinning is not possible.
pub(crate) fn pin(index: usize, usable: &[usize]) -> Option<usize> {
    let cpu = *usable.get(index % usable.len().max(1))?;
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).ok().map(|()| cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_of_the_whole_machine_and_leaves_steal_out() {
        let at = |text: &str| CpuTicks::parse(text).expect("a cpu line");
        let a = at("cpu  100 0 100 800 0 0 0 50 7 0\ncpu0 1 2 3 4 5 6 7 8\n");
        let b = at("cpu  130 0 120 840 0 5 5 90 9 0\n");
        assert_eq!(b.pct_since(a), Some(60.0));
        assert!(b.seconds_since(a) > Some(0.0) && a.seconds_since(b).is_none());
        assert_eq!(a.pct_since(a), None);
        assert_eq!(a.pct_since(b), None);
        assert_eq!(CpuTicks::parse("cpu 1 2\n"), None);
        assert_eq!(CpuTicks::parse("intr 5\n"), None);
    }

    #[test]
    fn this_machine_has_a_processor_and_pins() {
        assert!(CpuTicks::now().is_some());
        let usable = usable_cpus();
        assert!(!usable.is_empty());
        std::thread::spawn(move || assert!(pin(usable.len() + 1, &usable).is_some()))
            .join()
            .expect("pinned");
        assert_eq!(pin(0, &[]), None);
    }
}
