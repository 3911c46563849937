//! What came of a database's users at agents, put together.

use std::time::Duration;

use ashlar_lab::LabError;

use super::eyes::Seen;
use crate::remote::HomeWords;
use crate::result::ClientShare;
use crate::run::measured::Measured;
use crate::run::plan::{Mode, RunPlan};
use crate::run::users::{Window, Worked};

/// A part that has measured less than this share of its time was ended.
const WHOLE: f64 = 0.98;

/// What came of a database's users that were elsewhere.
pub(crate) struct Driven {
    pub(crate) window: Window,
    /// What they saw is of so many seconds, where they were.
    pub(crate) seconds: f64,
}

/// What an agent has sent of a share, and how long after the common moment it began.
pub(super) struct Sent {
    pub(super) words: HomeWords,
    pub(super) late: Duration,
}

/// What agents bring home of a database's users.
pub(super) struct Home<'a> {
    plan: &'a RunPlan,
    all: Measured,
    parts: Vec<ClientShare>,
    problems: Vec<String>,
    /// Until the last user had done its share.
    longest: Duration,
    /// The longest time that an agent measured.
    measured: Duration,
    missed: u64,
    cpu_s: f64,
}

impl<'a> Home<'a> {
    pub(super) fn new(plan: &'a RunPlan) -> Result<Self, LabError> {
        Ok(Self {
            plan,
            all: Measured::new()?,
            parts: Vec::new(),
            problems: Vec::new(),
            longest: Duration::ZERO,
            measured: Duration::ZERO,
            missed: 0,
            cpu_s: 0.0,
        })
    }

    fn is_fixed(&self) -> bool {
        matches!(self.plan.mode, Mode::Fixed(_))
    }

    /// Adds what an agent measured, or marks that it is missing; `part` says who it is, and how many users it has.
    pub(super) fn add(&mut self, mut part: ClientShare, sent: Result<Sent, LabError>) {
        let (name, users) = (part.client.clone(), part.users);
        let named = |error| LabError::caused(format!("client {name}"), error);
        let added = sent.and_then(|sent| self.take(sent, &mut part).map_err(named));
        let problem = match added {
            Ok(None) => None,
            Ok(Some(ended)) => {
                let seconds = ended.as_secs_f64();
                Some(format!(
                    "client {name}: its {users} users ended after {seconds:.1} s"
                ))
            }
            Err(error) => {
                self.all.lost_users = self.all.lost_users.saturating_add(users);
                Some(format!("{error}; its {users} users are missing"))
            }
        };
        part.lost = problem.is_some();
        self.problems.extend(problem);
        self.parts.push(part);
    }

    /// Adds what can be read, whole or not at all; after which time its users ended, if that was before it was over.
    fn take(&mut self, sent: Sent, part: &mut ClientShare) -> Result<Option<Duration>, LabError> {
        let Worked {
            measured,
            elapsed,
            missed,
            cpu_s,
        } = sent.words.worked()?;
        let mut all = self.all.clone();
        all.merge(&measured)?;
        self.all = all;
        self.cpu_s += cpu_s;
        self.missed = self.missed.saturating_add(missed);
        self.measured = self.measured.max(elapsed);
        self.longest = self.longest.max(sent.late.saturating_add(elapsed));
        part.transactions = measured.transactions();
        part.new_orders = measured.new_orders();
        part.cpu_s = cpu_s;
        part.late_us = sent.late.as_secs_f64() * 1e6;
        let is_short = elapsed.as_secs_f64() < WHOLE * self.plan.measure.as_secs_f64();
        Ok((is_short && !self.is_fixed()).then_some(elapsed))
    }

    /// All of it, with what this process saw.
    pub(super) fn driven(self, seen: Seen, interrupted: bool) -> Driven {
        let mut span = seen.span;
        span.loaded_from_elsewhere(self.cpu_s);
        if self.is_fixed() {
            span.elapsed_s = self.longest.as_secs_f64();
        }
        let seconds = self.measured.as_secs_f64();
        let window = Window {
            measured: self.all,
            span,
            device_series: seen.device_series,
            missed: self.missed,
            interrupted,
            unanswered: seen.unanswered,
            clients: self.parts,
            problems: self.problems,
        };
        Driven { window, seconds }
    }
}
