//! A step whose users are at agents: this process looks at the database meanwhile, and adds up what they saw.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_lab::agent::{Begun, OtherHome};
use ashlar_lab::{LabError, Progress};

use super::crowd::{Part, Worked};
use super::looker::Looker;
use super::measured::Measured;
use super::plan::{Mode, RunPlan};
use super::span::Span;
use super::{Place, setting};
use crate::database::Database;
use crate::postgres::Logic;
use crate::remote::{HomeWords, RemoteUsers, ShareWords, read, text};
use crate::result::{ClientShare, StepResult};
use crate::schema::Marker;
use crate::terminal::TerminalSetting;
use crate::usage::Usage;

/// Users are asked to have the database count what they did when measuring begins and when it ends, and it is asked so
/// much later, both times.
const COUNTED: Duration = Duration::from_millis(50);
/// Whether it is time is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A part that has measured less than this share of its time was ended.
const WHOLE: f64 = 0.98;

/// Where the users of a step are, and what they work on.
pub(crate) struct Elsewhere<'a> {
    pub(crate) users: &'a RemoteUsers<'a>,
    /// The server's address for them.
    pub(crate) address: SocketAddr,
    pub(crate) logic: Logic,
}

/// One step, unchecked, of users that are elsewhere.
pub(crate) fn drive_elsewhere(
    database: &Arc<dyn Database>,
    (plan, marker): (&RunPlan, &Marker),
    place: &Place,
    (elsewhere, progress): (&Elsewhere<'_>, &Progress),
) -> Result<StepResult, LabError> {
    let setting = setting(plan, marker, place.users, place.repeat);
    let looker = Looker::new(database, progress)?;
    let shares = shares(elsewhere, plan, &setting)?;
    let words: Result<Vec<Option<String>>, LabError> = shares
        .iter()
        .map(|share| share.as_ref().map(text).transpose())
        .collect();
    let mut seen = None;
    let homes = elsewhere
        .users
        .clients()
        .carry_out(&words?, progress, |begun| {
            seen = Some(watch(&looker, plan, begun, progress));
        })?;
    let seen = seen.ok_or_else(|| LabError::environment("the step was not looked at"))??;
    let shares: Vec<&ShareWords> = shares.iter().flatten().collect();
    let mut home = Home::new()?;
    for (of, share) in homes.into_iter().zip(shares) {
        home.add(of, share.part.numbers(place.users).count(), plan)?;
    }
    let mut step = home.step(seen, plan);
    step.users = place.users;
    step.repeat = place.repeat;
    if progress.go_on().is_err() {
        step.problems.push("interrupted".to_owned());
        step.partial = true;
    }
    Ok(step)
}

/// Numbers of users in turn to each agent; one without any is left out.
fn shares(
    elsewhere: &Elsewhere<'_>,
    plan: &RunPlan,
    setting: &TerminalSetting,
) -> Result<Vec<Option<ShareWords>>, LabError> {
    plan.check()?;
    let of = elsewhere.users.clients().count();
    let server = elsewhere.users.server(elsewhere.address, elsewhere.logic);
    let share = |index| {
        let part = Part { index, of };
        let has_any = part.numbers(setting.users).next().is_some();
        has_any.then(|| ShareWords::of(&server, (plan, setting), part))
    };
    Ok((0..of).map(share).collect())
}

/// What this process saw of a step.
struct Seen {
    span: Span,
    device_series: Vec<(u64, u64)>,
    unanswered: Option<LabError>,
}

/// Looks on from when it counts to the end.
fn watch(
    looker: &Looker<'_>,
    plan: &RunPlan,
    begun: &Begun<'_>,
    progress: &Progress,
) -> Result<Seen, LabError> {
    let is_fixed = matches!(plan.mode, Mode::Fixed(_));
    let ends = || begun.has_ended() || (!is_fixed && progress.go_on().is_err());
    let wait_until = |moment: Instant| loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() || ends() {
            return left.is_zero();
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    };
    // Of fixed work everything counts: the mark is before the first transaction.
    let from = match is_fixed {
        true => begun.at,
        false => begun.at + plan.ramp + COUNTED,
    };
    if !is_fixed {
        wait_until(from);
    }
    let first = looker.mark()?;
    let mut device_series = Vec::new();
    let mut before = Usage::device_now(looker.place());
    for second in 1.. {
        let next = match is_fixed {
            true => Duration::from_secs(second),
            false => plan.measure.min(Duration::from_secs(second)),
        };
        let is_whole = wait_until(from + next);
        if is_whole && next == Duration::from_secs(second) {
            let now = Usage::device_now(looker.place());
            let both = before.zip(now);
            let since = |(from, to): ((u64, u64), (u64, u64))| {
                (to.0.saturating_sub(from.0), to.1.saturating_sub(from.1))
            };
            device_series.extend(both.map(since));
            before = now;
        }
        if !is_whole || (!is_fixed && next == plan.measure) {
            break;
        }
    }
    let (last, unanswered) = looker.last_mark();
    Ok(Seen {
        span: Span::between(&first, last),
        device_series,
        unanswered,
    })
}

/// What agents bring home.
struct Home {
    all: Measured,
    parts: Vec<ClientShare>,
    problems: Vec<String>,
    /// Until the last user had done its share.
    longest: Duration,
    cpu_s: f64,
}

impl Home {
    fn new() -> Result<Self, LabError> {
        Ok(Self {
            all: Measured::new()?,
            parts: Vec::new(),
            problems: Vec::new(),
            longest: Duration::ZERO,
            cpu_s: 0.0,
        })
    }

    /// Adds what an agent measured, or marks that it is missing.
    fn add(&mut self, home: OtherHome, users: usize, plan: &RunPlan) -> Result<(), LabError> {
        let mut part = ClientShare {
            client: home.client,
            users,
            ..ClientShare::default()
        };
        match home.measured {
            Ok(home) => {
                let sent = |error| LabError::caused(format!("client {}", part.client), error);
                let worked = read(&home.words).and_then(HomeWords::worked);
                let Worked {
                    measured,
                    elapsed,
                    cpu_s,
                } = worked.map_err(sent)?;
                part.transactions = measured.transactions();
                part.new_orders = measured.new_orders();
                part.cpu_s = cpu_s;
                part.late_us = home.late.as_secs_f64() * 1e6;
                let is_short = elapsed.as_secs_f64() < WHOLE * plan.measure.as_secs_f64();
                if is_short && !matches!(plan.mode, Mode::Fixed(_)) {
                    part.lost = true;
                    let seconds = elapsed.as_secs_f64();
                    self.problems.push(format!(
                        "client {}: its {users} users ended after {seconds:.1} s",
                        part.client
                    ));
                }
                self.cpu_s += cpu_s;
                self.longest = self.longest.max(home.late + elapsed);
                self.all.merge(&measured)?;
            }
            Err(error) => {
                part.lost = true;
                self.all.lost_users += users;
                self.problems
                    .push(format!("{error}; its {users} users are missing"));
            }
        }
        self.parts.push(part);
        Ok(())
    }

    fn step(self, seen: Seen, plan: &RunPlan) -> StepResult {
        let mut span = seen.span;
        span.loaded_from_elsewhere(self.cpu_s);
        if matches!(plan.mode, Mode::Fixed(_)) {
            span.elapsed_s = self.longest.as_secs_f64();
        }
        let mut step = span.step(&self.all);
        step.device_series = seen.device_series;
        step.problems.extend(self.problems);
        step.problems
            .extend(seen.unanswered.map(|error| error.to_string()));
        let is_missing = self.parts.iter().any(|part| part.lost);
        step.partial = is_missing || step.lost_users > 0 || step.nopm_source == "client";
        step.clients = self.parts;
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_is_at_one_agent() {
        for (users, of) in [(7, 3), (2, 5), (1, 1)] {
            let mut all: Vec<usize> = (0..of)
                .flat_map(|index| Part { index, of }.numbers(users))
                .collect();
            all.sort_unstable();
            assert_eq!(all, (0..users).collect::<Vec<_>>());
        }
    }
}
