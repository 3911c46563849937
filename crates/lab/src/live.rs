//! What a load is doing right now: counted by its threads, looked at every second, shown by [`Progress`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Progress;
use crate::units::{grouped, human_us};

/// The load is looked at so often.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// More groups than these are shown as one.
const MOST_GROUPS: usize = 8;

/// What a load does at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tempo {
    /// Of what: `IOPS`, `NOPM`.
    pub unit: &'static str,
    /// How many.
    pub figure: f64,
    /// Their mean latency in microseconds.
    pub latency_us: f64,
}

/// A thread's accesses, counted from its beginning. Each has a line of the processor's cache for itself.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counter {
    done: AtomicU64,
    ns: AtomicU64,
}

/// Accesses, and the sum of their latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    done: u64,
    ns: u64,
}

/// What a count is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Accesses of a device.
    Accesses,
    /// New orders of a database's users.
    NewOrders,
}

impl Counted {
    /// What is shown of so many a second.
    pub(crate) fn tempo(self, each_second: Tempo) -> Tempo {
        match self {
            Self::Accesses => each_second,
            Self::NewOrders => Tempo {
                unit: "NOPM",
                figure: each_second.figure * 60.0,
                ..each_second
            },
        }
    }
}

impl Counter {
    pub(crate) fn add(&self, done: u64, ns: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Count {
    pub(crate) fn of(counters: &[Arc<Counter>]) -> Self {
        let sum = |of: fn(&Counter) -> &AtomicU64| {
            let all = counters.iter();
            all.map(|one| of(one).load(Ordering::Relaxed)).sum()
        };
        Self {
            done: sum(|of| &of.done),
            ns: sum(|of| &of.ns),
        }
    }

    /// What was done since an earlier look.
    pub(crate) fn since(self, earlier: Self, time: Duration) -> Tempo {
        let done = self.done.saturating_sub(earlier.done) as f64;
        let ns = self.ns.saturating_sub(earlier.ns) as f64;
        Tempo {
            unit: "IOPS",
            figure: done / time.as_secs_f64().max(1e-9),
            latency_us: ns / done.max(1.0) / 1000.0,
        }
    }
}

/// Does `work`, and shows meanwhile what the counters say.
pub(crate) fn watched<T>(
    progress: &Progress,
    counters: &[Arc<Counter>],
    work: impl FnOnce() -> T,
) -> T {
    if counters.is_empty() {
        return work();
    }
    std::thread::scope(|scope| {
        let (going, ended) = channel::<()>();
        scope.spawn(move || {
            let mut before = (Instant::now(), Count::default());
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
                let now = (Instant::now(), Count::of(counters));
                progress.tempo("", "", now.1.since(before.1, now.0 - before.0));
                before = now;
            }
        });
        let done = work();
        drop(going);
        done
    })
}

/// The tempo of each part of a load: of clients, of databases on nodes.
#[derive(Debug, Default)]
pub(crate) struct Board(BTreeMap<String, BTreeMap<String, Tempo>>);

impl Board {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(crate) fn put(&mut self, group: &str, member: &str, tempo: Tempo) {
        let group = self.0.entry(group.to_owned()).or_default();
        group.insert(member.to_owned(), tempo);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// All together in the first line; then a line for each group, if there are several.
    pub(crate) fn lines(&self) -> Vec<String> {
        let all = self.0.values().flat_map(BTreeMap::values);
        let Some(total) = together(all) else {
            return Vec::new();
        };
        let mut lines = vec![total];
        if (2..=MOST_GROUPS).contains(&self.0.len()) {
            let of = |(name, group): (&String, &BTreeMap<String, Tempo>)| {
                Some(format!("{name}: {}", together(group.values())?))
            };
            lines.extend(self.0.iter().filter_map(of));
        }
        lines
    }
}

/// What several do together; their latency is weighed by how much each does.
fn together<'a>(all: impl Iterator<Item = &'a Tempo>) -> Option<String> {
    let all: Vec<&Tempo> = all.collect();
    let figure: f64 = all.iter().map(|one| one.figure).sum();
    let weighed: f64 = all.iter().map(|one| one.figure * one.latency_us).sum();
    let unit = all.first()?.unit;
    let latency = human_us(weighed / figure.max(1e-9));
    Some(format!("{} {unit}, {latency}", grouped(figure)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_has_the_whole_and_its_groups() {
        let mut board = Board::default();
        assert!(board.lines().is_empty());
        let tempo = |figure, latency_us| Tempo {
            unit: "IOPS",
            figure,
            latency_us,
        };
        board.put("a", "x", tempo(3000.0, 100.0));
        assert_eq!(board.lines().len(), 1, "one group is the whole");
        board.put("b", "y", tempo(1000.0, 500.0));
        board.put("a", "x", tempo(1000.0, 100.0));
        let lines = board.lines();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].starts_with("2,000 IOPS, ") && lines[0].contains("300"),
            "{lines:?}"
        );
        assert!(lines[2].starts_with("b: 1,000 IOPS, "), "{lines:?}");
        board.clear();
        assert!(board.lines().is_empty());
    }

    #[test]
    fn counts_are_of_the_time_between_two_looks() {
        let counters = [Arc::new(Counter::default()), Arc::new(Counter::default())];
        counters[0].add(10, 1_000_000);
        let first = Count::of(&counters);
        counters[0].add(10, 1_000_000);
        counters[1].add(30, 7_000_000);
        let tempo = Count::of(&counters).since(first, Duration::from_secs(2));
        assert_eq!((tempo.figure, tempo.latency_us), (20.0, 200.0));
    }
}
