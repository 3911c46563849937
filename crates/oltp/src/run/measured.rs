//! What users saw. Users share a few of these, so that memory does not grow with their number, and
//! all of them are merged at the end; those of several databases, or machines, merge the same way.

mod packed;

use std::time::Duration;

pub(crate) use self::packed::PackedMeasured;

use ashlar_lab::{LabError, Latencies};
use hdrhistogram::Histogram;

use crate::inputs::Kind;
use crate::result::{KindResult, LatencyUs};

const MOST_PROBLEMS: usize = 5;

/// Counts and latencies of one kind of transaction.
#[derive(Clone, Debug)]
struct OfKind {
    latency_ns: Histogram<u64>,
    rolled_back: u64,
    errors: u64,
    retries: u64,
}

/// Everything that was seen.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    kinds: [OfKind; Kind::ALL.len()],
    /// Open loop: how long after it was due a transaction began.
    late_ns: Histogram<u64>,
    /// Transactions completed in each second.
    series: Vec<u64>,
    problems: Vec<String>,
    pub(crate) lost_users: usize,
}

/// New orders, and the sum of their latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct NewOrders {
    pub(crate) count: u64,
    pub(crate) ns: f64,
}

impl NewOrders {
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.ns += other.ns;
    }
}

impl Measured {
    pub(crate) fn new() -> Result<Self, LabError> {
        let histogram =
            Histogram::new(3).map_err(|error| LabError::caused("latency histogram", error))?;
        let late_ns = histogram.clone();
        let kind = OfKind {
            latency_ns: histogram,
            rolled_back: 0,
            errors: 0,
            retries: 0,
        };
        Ok(Self {
            kinds: std::array::from_fn(|_| kind.clone()),
            late_ns,
            series: Vec::new(),
            problems: Vec::new(),
            lost_users: 0,
        })
    }

    /// A transaction that ended as it should, `at` into the measurement.
    pub(crate) fn done(&mut self, kind: Kind, latency: Duration, at: Duration, rolled_back: bool) {
        let of = &mut self.kinds[kind as usize];
        // It grows as needed; a latency that is too long for it does not exist.
        let _ = of.latency_ns.record(latency.as_nanos() as u64);
        of.rolled_back += u64::from(rolled_back);
        let second = at.as_secs() as usize;
        if self.series.len() <= second {
            self.series.resize(second + 1, 0);
        }
        self.series[second] += 1;
    }

    pub(crate) fn late(&mut self, late: Duration) {
        let _ = self.late_ns.record(late.as_nanos() as u64);
    }

    /// How late transactions began; none if no pace was set.
    pub(crate) fn lateness(&self) -> Option<LatencyUs> {
        (!self.late_ns.is_empty()).then(|| LatencyUs::of(&self.late_ns))
    }

    pub(crate) fn retried(&mut self, kind: Kind) {
        self.kinds[kind as usize].retries += 1;
    }

    pub(crate) fn failed(&mut self, kind: Kind, text: &str) {
        self.kinds[kind as usize].errors += 1;
        self.problem(&format!("{}: {text}", kind.name()));
    }

    pub(crate) fn lost(&mut self, text: &str) {
        self.lost_users += 1;
        self.problem(text);
    }

    pub(crate) fn problem(&mut self, text: &str) {
        if self.problems.len() < MOST_PROBLEMS && !self.problems.iter().any(|p| p == text) {
            self.problems.push(text.to_owned());
        }
    }

    /// Adds what others saw.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), LabError> {
        for (into, from) in self.kinds.iter_mut().zip(&other.kinds) {
            let added = into.latency_ns.add(&from.latency_ns);
            added.map_err(|error| LabError::caused("merging histograms", error))?;
            // Others may be other processes, which can send anything.
            for (into, from) in [
                (&mut into.rolled_back, from.rolled_back),
                (&mut into.errors, from.errors),
                (&mut into.retries, from.retries),
            ] {
                *into = into.saturating_add(from);
            }
        }
        let added = self.late_ns.add(&other.late_ns);
        added.map_err(|error| LabError::caused("merging histograms", error))?;
        let longer = self.series.len().max(other.series.len());
        self.series.resize(longer, 0);
        for (into, from) in self.series.iter_mut().zip(&other.series) {
            *into = into.saturating_add(*from);
        }
        other
            .problems
            .iter()
            .for_each(|problem| self.problem(problem));
        self.lost_users = self.lost_users.saturating_add(other.lost_users);
        Ok(())
    }

    /// Adds what was seen in a later time; both took so many seconds.
    pub(crate) fn follow(&mut self, mut later: Self, seconds: [f64; 2]) -> Result<(), LabError> {
        self.in_whole_seconds(seconds[0]);
        later.in_whole_seconds(seconds[1]);
        self.series.append(&mut later.series);
        self.merge(&later)
    }

    /// Counts what was completed in a last second that was not a whole one to the one before, if there is
    /// one: another time's first second comes next.
    fn in_whole_seconds(&mut self, seconds: f64) {
        let whole = (seconds as usize).max(1);
        let rest = self.series.iter().skip(whole).copied();
        let rest = rest.fold(0, u64::saturating_add);
        self.series.resize(whole, 0);
        let last = &mut self.series[whole - 1];
        *last = last.saturating_add(rest);
    }

    /// Adds the users that were lost elsewhere, and why.
    pub(crate) fn add_losses(&mut self, other: &Self) {
        if other.lost_users > 0 {
            self.lost_users = self.lost_users.saturating_add(other.lost_users);
            other.problems.iter().for_each(|text| self.problem(text));
        }
    }

    /// Transactions that ended as they should.
    pub(crate) fn transactions(&self) -> u64 {
        let each = self.kinds.iter().map(|kind| kind.latency_ns.len());
        each.fold(0, u64::saturating_add)
    }

    /// New orders that were committed.
    pub(crate) fn new_orders(&self) -> u64 {
        let of = &self.kinds[Kind::NewOrder as usize];
        of.latency_ns.len().saturating_sub(of.rolled_back)
    }

    /// New orders that ended as they should.
    pub(crate) fn new_orders_so_far(&self) -> NewOrders {
        let ns = &self.kinds[Kind::NewOrder as usize].latency_ns;
        NewOrders {
            count: ns.len(),
            ns: ns.mean() * ns.len() as f64,
        }
    }

    pub(crate) fn series(&self) -> &[u64] {
        &self.series
    }

    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The histograms, by kind; `late` is how late transactions began.
    pub(crate) fn latencies(&self) -> Latencies {
        let of = |kind: Kind| {
            let latency = self.kinds[kind as usize].latency_ns.clone();
            (kind.name().to_owned(), latency)
        };
        let late = ("late".to_owned(), self.late_ns.clone());
        Kind::ALL.into_iter().map(of).chain([late]).collect()
    }

    pub(crate) fn of(&self, kind: Kind) -> KindResult {
        let of = &self.kinds[kind as usize];
        KindResult {
            rolled_back: of.rolled_back,
            errors: of.errors,
            retries: of.retries,
            latency_us: LatencyUs::of(&of.latency_ns),
            count: of.latency_ns.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_saw_merges() {
        let mut a = Measured::new().expect("new");
        let mut b = a.clone();
        let us = Duration::from_micros;
        a.done(Kind::NewOrder, us(100), us(5), false);
        b.done(Kind::NewOrder, us(300), Duration::from_secs(2), true);
        b.retried(Kind::Payment);
        b.failed(Kind::Payment, "no");
        b.lost("gone");
        b.lost("gone");
        a.merge(&b).expect("merged");
        assert_eq!((a.transactions(), a.new_orders(), a.lost_users), (2, 1, 2));
        assert_eq!(a.series(), [1, 0, 1]);
        assert_eq!(a.problems(), ["payment: no", "gone"]);
        let orders = a.of(Kind::NewOrder);
        assert_eq!((orders.count, orders.rolled_back), (2, 1));
        assert!((orders.latency_us.mean - 200.0).abs() < 1.0);
        assert!((orders.latency_us.max - 300.0).abs() < 1.0);
        let payments = a.of(Kind::Payment);
        assert_eq!(
            (payments.count, payments.errors, payments.retries),
            (0, 1, 1)
        );
    }

    #[test]
    fn a_last_second_of_any_number_is_counted() {
        let mut told = Measured::new().expect("new");
        told.series = vec![u64::MAX, u64::MAX, 1];
        let none = Measured::new().expect("new");
        told.follow(none, [1.0, 1.0]).expect("merged");
        assert_eq!(told.series(), [u64::MAX, 0]);
    }

    #[test]
    fn nothing_is_cut_where_times_follow_each_other() {
        let of = |at_ms: &[u64]| {
            let mut measured = Measured::new().expect("new");
            for &at in at_ms {
                let at = Duration::from_millis(at);
                measured.done(Kind::Payment, Duration::from_micros(1), at, false);
            }
            measured
        };
        let mut short = of(&[100, 200, 300]);
        short.follow(of(&[50, 60]), [0.4, 0.4]).expect("followed");
        assert_eq!(short.series(), [3, 2]);
        let mut long = of(&[100, 1100, 2010]);
        let later = of(&[0, 1, 1050]);
        long.follow(later, [2.02, 1.1]).expect("followed");
        assert_eq!((long.series(), long.transactions()), (&[1, 2, 3][..], 6));
        let mut idle = of(&[100]);
        idle.follow(of(&[1]), [3.0, 1.0]).expect("followed");
        assert_eq!(idle.series(), [1, 0, 0, 1]);
    }
}
