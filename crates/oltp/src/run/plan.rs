//! What is to be run.

use std::fmt;
use std::time::Duration;

use ashlar_lab::LabError;

use super::stage::Pacing;
use crate::inputs::{Mix, Pauses};

/// When a step ends, and how users pace themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// After a time; closed loop.
    Timed,
    /// After this many transactions of each user, without a ramp; what counts is how long it takes.
    Fixed(u64),
    /// After a time; open loop, this many transactions a second by all users together.
    Rate(f64),
    /// After a time; open loop, so many streams with this many transactions a second each. Users are the sessions that
    /// run them.
    Streams(u32, f64),
    /// After a time; so many streams, each of a user that thinks between its transactions. Users are as above.
    Thinkers(u32),
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timed => f.write_str("timed"),
            Self::Fixed(count) => write!(f, "fixed:{count}"),
            Self::Rate(rate) => write!(f, "rate:{rate}"),
            Self::Streams(streams, each) => write!(f, "streams:{streams}@{each}"),
            Self::Thinkers(streams) => write!(f, "streams:{streams}"),
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let mode = match text.split_once(':') {
            None if text == "timed" => Some(Self::Timed),
            Some(("fixed", count)) => count.parse().ok().filter(|&n| n > 0).map(Self::Fixed),
            Some(("rate", rate)) => rate
                .parse()
                .ok()
                .filter(|rate: &f64| RATES.contains(rate))
                .map(Self::Rate),
            Some(("streams", of)) => {
                let number = |of: &str| of.parse().ok().filter(|n| STREAMS.contains(n));
                let rate = |of: &str| of.parse().ok().filter(|rate| RATES.contains(rate));
                match of.split_once('@') {
                    Some((streams, each)) => {
                        let both = number(streams).zip(rate(each));
                        both.map(|(streams, each)| Self::Streams(streams, each))
                    }
                    None => number(of).map(Self::Thinkers),
                }
            }
            _ => None,
        };
        mode.ok_or_else(|| {
            LabError::usage(format!(
                "--mode {text}: must be timed, fixed:N (transactions a user), rate:R (a second), \
                 streams:N@R (so many streams, R transactions a second each) or streams:N (which --think)"
            ))
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RunPlan {
    /// Numbers of users, a step each.
    pub users: Vec<usize>,
    /// Load before measuring, from the last login on.
    pub ramp: Duration,
    /// Measured time of a step.
    pub measure: Duration,
    /// When a step ends.
    pub mode: Mode,
    /// Which transaction comes how often.
    pub mix: Mix,
    /// All warehouses are split over the users, instead of a home warehouse for each.
    pub all_warehouses: bool,
    /// Users key in and think, as clause 5.2.5 has it or for times of their own.
    pub pauses: Option<Pauses>,
    /// How often every step is measured.
    pub repeats: u32,
    /// Seed of the inputs.
    pub seed: u64,
    /// Share of the time, 0 to 0.9, in which no user begins a transaction: a configuration that is slower
    /// on purpose, to see whether the statistics find it.
    pub slow_down: f64,
}

/// Rates that can be kept, a second.
const RATES: std::ops::RangeInclusive<f64> = 0.001..=1e7;
/// Streams of a step.
const STREAMS: std::ops::RangeInclusive<u32> = 1..=10_000_000;
/// More users than this are a mistake: each is a thread.
const MOST_USERS: usize = 10_000;
const LONGEST: Duration = Duration::from_secs(86_400);

/// What an option may say, so that sums of times are times.
pub(crate) fn at_most_a_day(option: &str, time: Duration) -> Result<(), LabError> {
    match time > LONGEST {
        true => Err(LabError::usage(format!("{option} {time:?}: at most a day"))),
        false => Ok(()),
    }
}

impl RunPlan {
    /// # Errors
    /// A usage error that names what cannot be.
    pub fn check(&self) -> Result<(), LabError> {
        let wrong = |text: String| Err(LabError::usage(text));
        if self.users.is_empty() {
            return wrong("--users: at least one number".into());
        }
        if let Some(users) = self
            .users
            .iter()
            .find(|users| !(1..=MOST_USERS).contains(*users))
        {
            return wrong(format!("--users {users}: must be 1 to {MOST_USERS}"));
        }
        if self.measure.is_zero() || self.measure > LONGEST {
            let seconds = self.measure.as_secs_f64();
            return wrong(format!(
                "--seconds {seconds}: must be above 0 and at most a day"
            ));
        }
        at_most_a_day("--ramp", self.ramp)?;
        if self.repeats == 0 {
            return wrong("--repeat 0: must be at least 1".into());
        }
        if !(0.0..=0.9).contains(&self.slow_down) {
            let percent = self.slow_down * 100.0;
            return wrong(format!("--slow-down {percent}%: must be 0 to 90 %"));
        }
        let paced = self.pauses.is_some() || matches!(self.mode, Mode::Rate(_) | Mode::Streams(..));
        if self.slow_down > 0.0 && paced {
            return wrong(
                "--slow-down: not with --think or --mode rate, which have their own pace".into(),
            );
        }
        let may_think = matches!(self.mode, Mode::Timed | Mode::Thinkers(_));
        if self.pauses.is_some() && !may_think {
            return wrong(format!("--think: not with --mode {}", self.mode));
        }
        if let (Mode::Thinkers(_), None) = (self.mode, self.pauses) {
            return wrong(format!(
                "--mode {0}: with --think, or {0}@R, R transactions a second each",
                self.mode
            ));
        }
        Ok(())
    }

    pub(super) fn pacing(&self) -> Pacing {
        match self.mode {
            Mode::Timed => self.pauses.map_or(Pacing::Closed, Pacing::Terminal),
            Mode::Fixed(count) => Pacing::Fixed(count),
            Mode::Rate(rate) => Pacing::Rate(rate),
            Mode::Streams(..) | Mode::Thinkers(_) => Pacing::Streams,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_parse_and_print() {
        for text in [
            "timed",
            "fixed:50000",
            "rate:12.5",
            "streams:28800@1",
            "streams:5",
        ] {
            assert_eq!(text.parse::<Mode>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "fixed",
            "fixed:0",
            "fixed:-1",
            "rate:0",
            "rate:1e-300",
            "rate:inf",
            "rate:x",
            "timed:1",
            "streams:",
            "streams:0",
            "streams:0@1",
            "streams:5@0",
        ] {
            assert_eq!(
                text.parse::<Mode>().map_err(|e| e.exit_code()),
                Err(2),
                "{text}"
            );
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let plan = RunPlan {
            users: vec![1, 2],
            ramp: Duration::ZERO,
            measure: Duration::from_secs(1),
            mode: Mode::Timed,
            mix: Mix::TprocC,
            all_warehouses: false,
            pauses: None,
            slow_down: 0.0,
            repeats: 1,
            seed: 0,
        };
        assert!(plan.check().is_ok());
        let wrong = |change: fn(&mut RunPlan), name: &str| {
            let mut plan = plan.clone();
            change(&mut plan);
            let text = plan.check().expect_err(name).to_string();
            assert!(text.starts_with(name), "{text}");
        };
        wrong(|plan| plan.users.clear(), "--users");
        wrong(|plan| plan.users.push(0), "--users 0");
        wrong(|plan| plan.users.push(1_000_000), "--users 1000000");
        wrong(|plan| plan.measure = Duration::ZERO, "--seconds");
        wrong(|plan| plan.repeats = 0, "--repeat");
        wrong(|plan| plan.slow_down = 0.95, "--slow-down 95%");
        wrong(|plan| plan.slow_down = f64::NAN, "--slow-down");
        wrong(
            |plan| {
                plan.slow_down = 0.1;
                plan.mode = Mode::Rate(1.0);
            },
            "--slow-down",
        );
        wrong(
            |plan| {
                plan.pauses = Some(Pauses::of_tpc_c());
                plan.mode = Mode::Rate(1.0);
            },
            "--think",
        );
        wrong(|plan| plan.mode = Mode::Thinkers(5), "--mode streams:5");
    }
}
