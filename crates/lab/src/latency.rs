//! Figures of latency, of accesses as of transactions.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::stats::median;

/// Figures of latency in microseconds. What results of earlier versions do not tell is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyUs {
    pub mean: f64,
    pub p50: f64,
    #[serde(default)]
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    #[serde(default)]
    pub p9999: f64,
    #[serde(default)]
    pub p99999: f64,
    #[serde(default)]
    pub max: f64,
}

impl LatencyUs {
    /// Of a histogram of nanoseconds.
    pub fn of(ns: &Histogram<u64>) -> Self {
        let at = |quantile| ns.value_at_quantile(quantile) as f64 / 1000.0;
        Self {
            mean: ns.mean() / 1000.0,
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            p99999: at(0.99999),
            max: ns.max() as f64 / 1000.0,
        }
    }

    /// The median of each figure.
    pub fn middle<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let all: Vec<&Self> = all.collect();
        let of = |figure: fn(&Self) -> f64| {
            let values: Vec<f64> = all.iter().map(|one| figure(one)).collect();
            median(&values)
        };
        Self {
            mean: of(|l| l.mean),
            p50: of(|l| l.p50),
            p90: of(|l| l.p90),
            p95: of(|l| l.p95),
            p99: of(|l| l.p99),
            p999: of(|l| l.p999),
            p9999: of(|l| l.p9999),
            p99999: of(|l| l.p99999),
            max: of(|l| l.max),
        }
    }
}
