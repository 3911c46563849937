//! What happened to clients, and when.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::database::ServerStart;

/// A life of a server as a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Server(pub(super) ServerStart);

/// A write that a server has acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub(super) server: Server,
    pub(super) begun: Instant,
    pub(super) at: Instant,
}

/// A transaction that was due and is done, or is given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) due: Instant,
    pub(super) done: Instant,
}

impl Wait {
    /// The part of it after a moment.
    fn since(&self, moment: Instant) -> Duration {
        self.done.saturating_duration_since(self.due.max(moment))
    }
}

/// What happened to all clients of a round.
#[derive(Debug, Default)]
pub(super) struct Trace(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    acks: Vec<Ack>,
    /// When something failed.
    failures: Vec<Instant>,
    /// The texts of failures, and when each was heard.
    texts: BTreeMap<String, Vec<Instant>>,
    waits: Vec<Wait>,
}

/// Different texts of failures that are kept.
const MOST_TEXTS: usize = 20;

/// Clients that hear nothing for longer are not served, whether anything fails or not, if two transactions are due in
/// it.
const HANG: Duration = Duration::from_secs(1);

/// What a round came to, from a fault on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// From the first failure to the first transaction that was begun after it and succeeded, or the end; the silence
    /// if that is longer, and a hang.
    pub(super) gap: Option<Duration>,
    /// The longest time without any acknowledgement, up to the end of the load.
    pub(super) silence: Duration,
    /// Of a transaction, from when it was due or, if that was before the fault, from the fault.
    pub(super) longest_wait: Duration,
    pub(super) failures: usize,
    pub(super) texts: BTreeMap<String, u64>,
}

impl Trace {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn acknowledged(&self, server: Server, begun: Instant) {
        let at = Instant::now();
        self.lock().acks.push(Ack { server, begun, at });
    }

    pub(super) fn failed(&self, text: &str) {
        let mut inner = self.lock();
        let now = Instant::now();
        inner.failures.push(now);
        if inner.texts.len() < MOST_TEXTS || inner.texts.contains_key(text) {
            inner.texts.entry(text.to_owned()).or_default().push(now);
        }
    }

    /// What was due then is done now, or given up.
    pub(super) fn waited(&self, due: Instant) {
        let done = Instant::now();
        self.lock().waits.push(Wait { due, done });
    }

    /// Acknowledgements of transactions that were begun after `since`.
    pub(super) fn begun_since(&self, since: Instant) -> usize {
        let inner = self.lock();
        // They are in the order of their ends: what ended before did not begin after.
        let late = inner.acks.iter().rev().take_while(|ack| ack.at > since);
        late.filter(|ack| ack.begun > since).count()
    }

    /// All that was acknowledged.
    pub(super) fn acks(&self) -> Vec<Ack> {
        self.lock().acks.clone()
    }

    /// When something failed last.
    pub(super) fn last_failure(&self) -> Option<Instant> {
        self.lock().failures.last().copied()
    }

    /// What it came to, with a fault at this time, for clients that were told to end at `end`, and of which one is due
    /// in each `due`.
    pub(super) fn seen(&self, fault: Instant, end: Instant, due: Duration) -> Seen {
        let hang = HANG.max(due * 2);
        let inner = self.lock();
        let failures: Vec<Instant> = inner
            .failures
            .iter()
            .copied()
            .filter(|at| *at >= fault)
            .collect();
        let first_failure = failures.iter().min().copied();
        let mut ends: Vec<Instant> = inner.acks.iter().map(|ack| ack.at).collect();
        if ends.iter().all(|at| *at > fault) {
            ends.push(fault);
        }
        ends.push(end);
        ends.sort_unstable();
        let gap = first_failure.map(|first| {
            let later = inner.acks.iter().filter(|ack| ack.begun >= first);
            let served = later.map(|ack| ack.at).min().unwrap_or(end);
            served.saturating_duration_since(first)
        });
        let silence = ends
            .windows(2)
            .filter(|pair| pair[1] >= fault)
            .map(|pair| pair[1] - pair[0])
            .max()
            .unwrap_or_default();
        Seen {
            gap: gap.max(Some(silence).filter(|silence| *silence > hang)),
            silence,
            longest_wait: longest(&inner.waits, fault),
            failures: failures.len(),
            texts: since(&inner.texts, fault),
        }
    }
}

fn longest(waits: &[Wait], fault: Instant) -> Duration {
    let waits = waits.iter().map(|wait| wait.since(fault));
    waits.max().unwrap_or_default()
}

/// Texts that were heard from a moment on, and how often.
fn since(texts: &BTreeMap<String, Vec<Instant>>, moment: Instant) -> BTreeMap<String, u64> {
    let counted = texts.iter().map(|(text, heard)| {
        let count = heard.iter().filter(|at| **at >= moment).count();
        (text.clone(), count as u64)
    });
    counted.filter(|(_, count)| *count > 0).collect()
}

/// Writes that a server began after a newer one had acknowledged something: one of a higher epoch or, of the same, one
/// that has acknowledged its first later.
pub(super) fn stale(acks: &[Ack]) -> usize {
    let mut first: BTreeMap<Server, Instant> = BTreeMap::new();
    for ack in acks {
        let at = first.entry(ack.server).or_insert(ack.at);
        *at = (*at).min(ack.at);
    }
    let age = |server: &Server, first: &Instant| (server.0.epoch, *first);
    let is_stale = |ack: &&Ack| {
        let own = first.get(&ack.server).map(|at| age(&ack.server, at));
        let is_newer = |other: &(&Server, &Instant)| Some(age(other.0, other.1)) > own;
        let newer = first.iter().filter(is_newer).map(|(_, at)| at).min();
        newer.is_some_and(|newer| ack.begun > *newer)
    };
    acks.iter().filter(is_stale).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: Duration = Duration::from_millis(100);

    /// Of a server that was started as the nth of its epoch.
    fn of(epoch: i64, started_us: i64) -> Server {
        Server(ServerStart { epoch, started_us })
    }

    fn ack(epoch: i64, base: Instant, begun: u64, at: u64) -> Ack {
        Ack {
            server: of(epoch, 0),
            begun: base + Duration::from_millis(begun),
            at: base + Duration::from_millis(at),
        }
    }

    #[test]
    fn a_write_of_an_older_primary_is_seen() {
        let base = Instant::now();
        let in_order = [
            ack(1, base, 0, 10),
            ack(1, base, 10, 20),
            ack(2, base, 50, 60),
        ];
        assert_eq!(stale(&in_order), 0);
        // Begun before the newer one took anything, told after: nothing is wrong with that.
        let late = [
            ack(1, base, 0, 10),
            ack(2, base, 50, 60),
            ack(1, base, 40, 70),
        ];
        assert_eq!(stale(&late), 0);
        let both = [
            ack(1, base, 0, 10),
            ack(2, base, 50, 60),
            ack(1, base, 65, 70),
        ];
        assert_eq!(stale(&both), 1);
        // One of the past that was slow: it counts by its epoch, not by when it was heard of first.
        let slow = [ack(2, base, 0, 10), ack(1, base, 20, 30)];
        assert_eq!(stale(&slow), 1);
        let slow = [ack(2, base, 20, 30), ack(1, base, 0, 40)];
        assert_eq!(stale(&slow), 0);
    }

    #[test]
    fn of_one_epoch_the_server_that_was_heard_of_last_is_the_newer() {
        let base = Instant::now();
        let again = Ack {
            server: of(1, 7),
            ..ack(1, base, 20, 30)
        };
        assert_eq!(stale(&[ack(1, base, 0, 10), again]), 0);
        assert_eq!(
            stale(&[ack(1, base, 0, 10), again, ack(1, base, 35, 40)]),
            1
        );
    }

    #[test]
    fn gap_and_silence_are_of_the_time_after_the_fault() {
        let base = Instant::now();
        let at = |ms| base + Duration::from_millis(ms);
        let trace = Trace::default();
        {
            let mut inner = trace.lock();
            inner.acks = vec![
                ack(1, base, 0, 10),
                ack(1, base, 400, 420),
                ack(1, base, 500, 520),
                ack(2, base, 600, 1100),
                ack(2, base, 1050, 1120),
            ];
            inner.failures = vec![at(100), at(530), at(900)];
            let texts = [("before", vec![at(100)]), ("both", vec![at(100), at(530)])];
            inner.texts = texts.map(|(text, heard)| (text.to_owned(), heard)).into();
            let wait = |due, done| Wait {
                due: at(due),
                done: at(done),
            };
            inner.waits = vec![wait(0, 420), wait(300, 800), wait(600, 850)];
        }
        let seen = trace.seen(at(505), at(1200), DUE);
        assert_eq!(seen.failures, 2, "one was before the fault");
        assert_eq!(seen.texts, BTreeMap::from([("both".to_owned(), 1)]));
        // What was due before has waited since the fault because of it; a stall that ended before counts nothing.
        assert_eq!(seen.longest_wait, Duration::from_millis(295));
        assert_eq!(seen.gap, Some(Duration::from_millis(570)));
        assert_eq!(seen.silence, Duration::from_millis(580));
        assert_eq!(stale(&trace.acks()), 0);
        assert_eq!(trace.begun_since(at(550)), 2);
        assert_eq!(trace.seen(at(2000), at(2100), DUE).gap, None);
    }

    #[test]
    fn clients_that_hang_or_are_never_served_have_a_gap() {
        let base = Instant::now();
        let at = |ms| base + Duration::from_millis(ms);
        let of_rate = |due: Duration, acks: &[u64], failures: &[u64]| {
            let trace = Trace::default();
            let mut inner = trace.lock();
            inner.acks = acks.iter().map(|&ms| ack(1, base, ms, ms)).collect();
            inner.failures = failures.iter().map(|&ms| at(ms)).collect();
            drop(inner);
            let Seen { gap, silence, .. } = trace.seen(at(505), at(12_600), due);
            [gap.unwrap_or_default(), silence].map(|time| time.as_millis())
        };
        let of = |acks: &[u64], failures: &[u64]| of_rate(DUE, acks, failures);
        assert_eq!(of(&[400, 500], &[600]), [12_100, 12_100], "never served");
        assert_eq!(of(&[], &[600]), [12_095, 12_095], "nor before");
        assert_eq!(of(&[500, 12_500], &[]), [12_000, 12_000], "nothing fails");
        assert_eq!(
            of(&[500, 12_500], &[11_000]),
            [12_000, 12_000],
            "cut off late"
        );
        let steady: Vec<u64> = (0..126).map(|n| n * 100).collect();
        assert_eq!(of(&steady, &[]), [0, 100], "as it should be");
        let rare: Vec<u64> = (0..13).map(|n| n * 1000 + n % 2 * 5).collect();
        let second = Duration::from_secs(1);
        assert_eq!(of_rate(second, &rare, &[]), [0, 1005], "none is due before");
    }
}
