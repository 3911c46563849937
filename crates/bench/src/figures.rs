//! Figures of rounds: medians with their range, and ratios of pairs.

use ashlar_lab::stats::median;
use serde::Serialize;

use crate::cpu::Sample;

/// A median and its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The middle value.
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of `values`; all 0 for none.
    pub(crate) fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        Self {
            median: median(values),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// Of `ours / base`, pair by pair; pairs without a base are left out.
    pub(crate) fn of_ratios(ours: &[f64], base: &[f64]) -> Self {
        let pairs = ours.iter().zip(base).filter(|&(_, &base)| base > 0.0);
        let ratios: Vec<f64> = pairs.map(|(ours, base)| ours / base).collect();
        Self::of(&ratios)
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Round {
    /// Commands a second.
    pub(crate) iops: f64,
    /// The server's processor time, in percent of one core.
    pub(crate) cpu_pct: f64,
    /// Commands for each second of the server's processor time.
    pub(crate) iops_per_cpu_s: f64,
    /// Processor time of all other processes on this machine, in percent of one core, in ticks of 10 ms.
    pub(crate) others_pct: f64,
}

impl Round {
    /// A load of `iops` between two samples.
    pub(crate) fn of(iops: f64, from: &Sample, to: &Sample) -> Self {
        let wall = to.at.duration_since(from.at).as_secs_f64().max(1e-9);
        let share = |ns: u64| ns as f64 / 1e9 / wall;
        let server = share(to.server_ns.saturating_sub(from.server_ns));
        let client = share(to.client_ns.saturating_sub(from.client_ns));
        let machine = share(to.machine_ns.saturating_sub(from.machine_ns));
        Self {
            iops,
            cpu_pct: 100.0 * server,
            iops_per_cpu_s: if server > 0.0 { iops / server } else { 0.0 },
            others_pct: 100.0 * (machine - server - client).max(0.0),
        }
    }
}

/// One side of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Side {
    /// Commands a second.
    pub(crate) iops: Spread,
    /// The server's processor time, in percent of one core.
    pub(crate) cpu_pct: Spread,
    /// Commands for each second of the server's processor time.
    pub(crate) iops_per_cpu_s: Spread,
    /// The rounds, in order.
    pub(crate) rounds: Vec<Round>,
}

impl Side {
    pub(crate) fn of(rounds: Vec<Round>) -> Self {
        let figure = |of: fn(&Round) -> f64| Spread::of(&rounds.iter().map(of).collect::<Vec<_>>());
        Self {
            iops: figure(|round| round.iops),
            cpu_pct: figure(|round| round.cpu_pct),
            iops_per_cpu_s: figure(|round| round.iops_per_cpu_s),
            rounds,
        }
    }

    fn each(&self, of: fn(&Round) -> f64) -> Vec<f64> {
        self.rounds.iter().map(of).collect()
    }

    /// Nanoseconds of the server's processor time for a command, round by round.
    pub(crate) fn ns_per_command(&self) -> Vec<f64> {
        self.each(|round| match round.iops_per_cpu_s {
            rate if rate > 0.0 => 1e9 / rate,
            _ => 0.0,
        })
    }

    /// The most that others took in a round, in percent of one core.
    pub(crate) fn others_most(&self) -> f64 {
        self.each(|round| round.others_pct)
            .into_iter()
            .fold(0.0, f64::max)
    }
}

/// The load of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Case {
    /// `randread` or `randwrite`.
    pub(crate) pattern: &'static str,
    /// Bytes of an access.
    pub(crate) block_bytes: u32,
    /// Accesses in flight on each connection.
    pub(crate) depth: u32,
}

impl Case {
    pub(crate) const fn new(pattern: &'static str, block_bytes: u32, depth: u32) -> Self {
        Self {
            pattern,
            block_bytes,
            depth,
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        self.pattern == "randwrite"
    }
}

/// Ours against something else, under one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) case: Case,
    /// Ours / base, pair by pair.
    pub(crate) iops_ratio: Spread,
    /// The same of `iops_per_cpu_s`.
    pub(crate) iops_per_cpu_s_ratio: Spread,
    /// What `iops_ratio` is hoped to reach.
    pub(crate) goal_iops: Option<f64>,
    /// What `iops_per_cpu_s_ratio` is hoped to reach.
    pub(crate) goal_iops_per_cpu_s: Option<f64>,
    pub(crate) ours: Side,
    pub(crate) base: Side,
}

impl Row {
    /// Without goals.
    pub(crate) fn of(case: Case, ours: Vec<Round>, base: Vec<Round>) -> Self {
        let (ours, base) = (Side::of(ours), Side::of(base));
        let ratio = |of: fn(&Round) -> f64| Spread::of_ratios(&ours.each(of), &base.each(of));
        Self {
            case,
            iops_ratio: ratio(|round| round.iops),
            iops_per_cpu_s_ratio: ratio(|round| round.iops_per_cpu_s),
            goal_iops: None,
            goal_iops_per_cpu_s: None,
            ours,
            base,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_ratio_is_of_pairs_and_keeps_its_range() {
        let spread = Spread::of_ratios(&[2.0, 3.0, 9.0, 1.0], &[1.0, 1.0, 3.0, 0.0]);
        let expected = Spread {
            median: 3.0,
            min: 2.0,
            max: 3.0,
        };
        assert_eq!(spread, expected);
        assert_eq!(Spread::of_ratios(&[1.0], &[0.0]), Spread::default());
    }

    #[test]
    fn a_round_divides_by_the_servers_time_and_names_the_others() {
        let from = Sample {
            at: Instant::now(),
            server_ns: 1_000,
            client_ns: 0,
            machine_ns: 0,
        };
        let to = Sample {
            at: from.at + Duration::from_secs(2),
            server_ns: 1_000 + 1_000_000_000,
            client_ns: 2_000_000_000,
            machine_ns: 3_200_000_000,
        };
        let round = Round::of(1000.0, &from, &to);
        assert!((round.cpu_pct - 50.0).abs() < 1e-6);
        assert!((round.iops_per_cpu_s - 2000.0).abs() < 1e-6);
        assert!((round.others_pct - 10.0).abs() < 1e-6);
        let side = Side::of(vec![round]);
        assert!((side.ns_per_command()[0] - 500_000.0).abs() < 1e-3);
    }
}
