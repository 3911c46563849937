//! What users saw, on its way from the machine on which they were.

use ashlar_lab::{LabError, Packed};
use serde::{Deserialize, Serialize};

use super::{Measured, OfKind};
use crate::inputs::Kind;

/// What users saw: histograms whole, so that they can be added up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PackedMeasured {
    /// In the order of [`Kind::ALL`].
    kinds: Vec<PackedKind>,
    late: Packed,
    series: Vec<u64>,
    problems: Vec<String>,
    lost_users: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct PackedKind {
    latency: Packed,
    rolled_back: u64,
    errors: u64,
    retries: u64,
}

impl PackedMeasured {
    /// # Errors
    /// A histogram cannot be encoded.
    pub(crate) fn of(measured: &Measured) -> Result<Self, LabError> {
        let pack = |of: &OfKind| {
            Ok(PackedKind {
                latency: Packed::new(&of.latency_ns)?,
                rolled_back: of.rolled_back,
                errors: of.errors,
                retries: of.retries,
            })
        };
        let kinds: Result<_, LabError> = measured.kinds.iter().map(pack).collect();
        Ok(Self {
            kinds: kinds?,
            late: Packed::new(&measured.late_ns)?,
            series: measured.series.clone(),
            problems: measured.problems.clone(),
            lost_users: measured.lost_users,
        })
    }

    /// # Errors
    /// A histogram is damaged, or one is missing.
    pub(crate) fn measured(self) -> Result<Measured, LabError> {
        let (many, all) = (self.kinds.len(), Kind::ALL.len());
        let wrong = || {
            LabError::environment(format!(
                "{many} kinds of transactions, where there are {all}"
            ))
        };
        // Each is large once it is unpacked.
        if many != all {
            return Err(wrong());
        }
        let unpack = |of: PackedKind| {
            Ok(OfKind {
                latency_ns: of.latency.unpack()?,
                rolled_back: of.rolled_back,
                errors: of.errors,
                retries: of.retries,
            })
        };
        let kinds: Result<Vec<OfKind>, LabError> = self.kinds.into_iter().map(unpack).collect();
        Ok(Measured {
            kinds: kinds?.try_into().map_err(|_| wrong())?,
            late_ns: self.late.unpack()?,
            series: self.series,
            problems: self.problems,
            lost_users: self.lost_users,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_users_saw_elsewhere_is_added_up_whole() {
        let us = Duration::from_micros;
        let mut here = Measured::new().expect("new");
        let mut there = here.clone();
        here.done(Kind::NewOrder, us(100), us(5), false);
        there.done(Kind::NewOrder, us(900), Duration::from_secs(1), true);
        there.failed(Kind::Payment, "no");
        there.lost("gone");
        let text = serde_json::to_string(&PackedMeasured::of(&there).expect("packs"));
        let packed: PackedMeasured = serde_json::from_str(&text.expect("text")).expect("a home");
        let mut short = packed.clone();
        here.merge(&packed.measured().expect("whole"))
            .expect("same bounds");
        assert_eq!(
            (here.transactions(), here.new_orders(), here.lost_users),
            (2, 1, 1)
        );
        assert_eq!(
            (here.series(), here.problems()),
            (&[1, 1][..], &["payment: no".into(), "gone".into()][..])
        );
        // Of both together, no mean of what each has.
        let latency = here.of(Kind::NewOrder).latency_us;
        assert!(
            (latency.p50 - 100.0).abs() < 1.0 && (latency.p99 - 900.0).abs() < 1.0,
            "{latency:?}"
        );
        let mut long = short.clone();
        long.kinds.resize(2000, long.kinds[0].clone());
        // Their number is told before any is unpacked.
        long.late = serde_json::from_str("\"AAAA\"").expect("no histogram");
        long.kinds[0].latency = long.late.clone();
        let error = long.measured().expect_err("too many").to_string();
        assert!(error.contains("2000 kinds"), "{error}");
        short.kinds.pop();
        let error = short.measured().expect_err("one is missing").to_string();
        assert!(error.contains("4 kinds"), "{error}");
    }
}
