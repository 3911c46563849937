//! What a scenario of databases claims of its configurations.

use ashlar_lab::result::Check;
use ashlar_lab::scenario::{Bounds, Claimed};
use serde::{Deserialize, Serialize};

use super::compared::{Compared, RUN_TIME};
use super::file::OltpScenario;
use super::result::ScenarioResult;
use crate::compare::users_cell;

/// `[[claim]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSection {
    /// Of which configuration.
    pub configuration: String,
    /// To which one; the first if absent.
    #[serde(default)]
    pub beside: Option<String>,
    pub figure: ClaimedFigure,
    /// At least so much.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// At most so much.
    #[serde(default)]
    pub at_most: Option<f64>,
}

/// What is claimed, as a ratio, at every number of users or readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimedFigure {
    /// New orders a minute.
    Nopm,
    /// How long fixed work or a scan took.
    RunTime,
}

impl OltpScenario {
    /// Which configuration a claim's ratios are to.
    fn base<'a>(&'a self, claim: &'a ClaimSection) -> &'a str {
        let first = || self.configuration.first().map_or("", |of| &of.name);
        claim.beside.as_deref().unwrap_or_else(first)
    }

    /// Refuses claims of what is not compared.
    pub(super) fn check_claims(&self) -> Result<(), String> {
        let timed = match &self.oltp {
            None => ClaimedFigure::RunTime,
            Some(oltp) if oltp.transactions.is_some() => ClaimedFigure::RunTime,
            Some(_) => ClaimedFigure::Nopm,
        };
        for claim in &self.claim {
            let (base, ours) = (self.base(claim), &*claim.configuration);
            if !self.asked_pairs().contains(&[base, ours]) {
                return Err(format!(
                    "claim of {ours:?} beside {base:?}: these two [[configuration]]s are not compared"
                ));
            }
            if claim.figure != timed {
                return Err(format!(
                    "claim of {ours:?}: figure: nopm, or run_time of fixed work and scans"
                ));
            }
        }
        Ok(())
    }

    /// Whether each claim holds.
    pub(super) fn judge(&self, result: &ScenarioResult) -> Vec<Check> {
        let of = |claim: &ClaimSection| {
            let (base, ours) = (self.base(claim), &*claim.configuration);
            let is_meant = |of: &&Compared| {
                let is = |name: &str, wanted: &str| {
                    let mut all = result.configurations.iter();
                    all.any(|of| of.name == name && of.configuration.as_deref() == Some(wanted))
                };
                is(&of.base, base) && is(&of.ours, ours)
            };
            let cell = |of: &Compared| Claimed {
                cell: match (&*of.figure, &self.oltp) {
                    (RUN_TIME, None) => format!("{} readers", of.users),
                    _ => users_cell(of.users),
                },
                ratio: of.ratio.clone(),
            };
            let all: Vec<Claimed> = result
                .comparisons
                .iter()
                .filter(is_meant)
                .map(cell)
                .collect();
            let what = match claim.figure {
                ClaimedFigure::Nopm => "NOPM",
                ClaimedFigure::RunTime => "run time",
            };
            let bounds = Bounds {
                at_least: claim.at_least,
                at_most: claim.at_most,
            };
            bounds.judge(format!("{what} of {ours}"), base, &all)
        };
        self.claim.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use ashlar_lab::ResultFile;
    use ashlar_lab::result::ScenarioNote;

    use super::*;
    use crate::result::OltpResult;
    use crate::scenario::{ConfigurationResult, SHIPPED};

    fn shipped() -> OltpScenario {
        let text = SHIPPED.iter().find(|(name, _)| *name == "flash-cache");
        OltpScenario::parse(text.expect("ships").1).expect("sound")
    }

    /// A run of the disk, the cache and the one with rules.
    fn ran(nopm: [f64; 3], repeats: usize) -> ScenarioResult {
        let note = ScenarioNote {
            name: "flash-cache".into(),
            about: String::new(),
            scale: 1.0,
            scaled: String::new(),
            source: String::new(),
            changed: Vec::new(),
        };
        let mut result = ScenarioResult::new("t", note);
        let of = |(name, nopm): (&str, f64)| {
            let all: Vec<f64> = (0..repeats).map(|repeat| nopm + repeat as f64).collect();
            ConfigurationResult {
                name: format!("{name}, 4 % memory"),
                configuration: Some(name.into()),
                memory_pct: Some(4.0),
                oltp: Some(OltpResult::sample(100, &all)),
                ..ConfigurationResult::default()
            }
        };
        let names = ["disk", "cached", "ruled"];
        result.configurations = names.into_iter().zip(nopm).map(of).collect();
        result.sum_up(&shipped(), &[100]).expect("summed up");
        result
    }

    #[test]
    fn what_a_cache_is_to_reach_has_a_verdict() {
        let passed = |result: &ScenarioResult| -> Vec<bool> {
            result
                .head
                .checks
                .iter()
                .map(|check| check.passed)
                .collect()
        };
        let reached = ran([1000.0, 6500.0, 6600.0], 3);
        assert_eq!(
            (passed(&reached), reached.complaint()),
            (vec![true, true], None)
        );
        let slow = ran([1000.0, 5000.0, 5000.0], 3);
        assert_eq!(passed(&slow), [false, true]);
        let complaint = slow.complaint().expect("a failed check");
        assert!(complaint.contains("100 users 5.00 MISSED"), "{complaint}");
        let told = ran([1000.0, 6500.0, 7500.0], 3);
        assert_eq!(passed(&told), [true, false]);
        // Nothing is missed by one repeat, and that is told.
        let once = ran([1000.0, 2000.0, 7000.0], 1);
        assert_eq!(passed(&once), [true, true]);
        assert!(once.head.checks[0].text.contains("one repeat cannot judge"));
    }

    #[test]
    fn a_claim_of_what_is_not_compared_is_refused() {
        let text = SHIPPED.iter().find(|(name, _)| *name == "flash-cache");
        let text = text.expect("ships").1;
        for (was, is, named) in [
            ("beside = \"ruled\"", "beside = \"unknown\"", "unknown"),
            (
                "[\"ruled\", \"cached\"]",
                "[\"cached\", \"ruled\"]",
                "not compared",
            ),
            (
                "figure = \"nopm\"",
                "figure = \"run_time\"",
                "run_time of fixed work",
            ),
            ("figure = \"nopm\"", "figure = \"tpm\"", "tpm"),
        ] {
            let error = OltpScenario::parse(&text.replace(was, is)).expect_err(is);
            assert!(
                error.exit_code() == 2 && error.to_string().contains(named),
                "{error}"
            );
        }
    }
}
