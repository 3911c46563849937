//! Users that are logged in to one database, and what is measured of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress, Tempo};
use serde::{Deserialize, Serialize};

use super::looker::Looker;
use super::measured::{Measured, NewOrders};
use super::plan::{Mode, RunPlan};
use super::span::{Mark, Span};
use super::stage::{Phase, Stage, UserCounts};
use super::user::User;
use crate::database::Database;
use crate::ledger::Ledger;
use crate::remote::GO_ON;
use crate::result::{ClientShare, StepResult};
use crate::terminal::{Terminal, TerminalSetting};
use crate::usage::{DeviceSeries, process_cpu_s};

/// Users that are told to stop get this long to end their transactions.
const GRACE: Duration = Duration::from_secs(30);
/// The same if the run is to end: longer than a server that does not answer is waited for then.
const GRACE_AT_END: Duration = Duration::from_secs(5);
/// A database whose users are asked to have everything counted has done so by then, or only one of them
/// waits for something.
const COUNTING: Duration = Duration::from_secs(1);
/// How often it is looked whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Most of a user's stack is for the database's client library.
const STACK: usize = 1 << 20;

/// The users. They are told to stop when it is dropped.
pub(crate) struct Users<'a> {
    pub(super) stage: Arc<Stage>,
    users: usize,
    /// None beside users whom another process looks at.
    looker: Option<Looker<'a>>,
    target: String,
    empty: Measured,
    progress: &'a Progress,
    shown: Shown<'a>,
}

/// Where it is shown what they do at the moment, and as what.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) progress: &'a Progress,
    pub(crate) group: &'a str,
    pub(crate) member: &'a str,
}

/// What was seen of them at a moment.
struct Look {
    at: Instant,
    orders: NewOrders,
}

impl Look {
    fn now(stage: &Stage) -> Self {
        Self {
            at: Instant::now(),
            orders: stage.new_orders(),
        }
    }
}

impl Shown<'_> {
    /// Shows new orders a minute, of those in the last second.
    fn tell(&self, before: &Look, now: &Look) {
        let orders = now.orders.count.saturating_sub(before.orders.count) as f64;
        let time = now.at.duration_since(before.at);
        let tempo = Tempo {
            unit: "NOPM",
            figure: orders * 60.0 / time.as_secs_f64().max(1e-9),
            latency_us: (now.orders.ns - before.orders.ns).max(0.0) / orders.max(1.0) / 1000.0,
        };
        self.progress.tempo(self.group, self.member, tempo);
    }
}

/// Which of a step's users are here: from number `index` on, every `of`-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) index: usize,
    pub(crate) of: usize,
}

impl Part {
    pub(crate) const ALL: Self = Self { index: 0, of: 1 };

    /// The numbers of those.
    pub(crate) fn numbers(self, users: usize) -> impl Iterator<Item = usize> {
        (self.index..users).step_by(self.of.max(1))
    }
}

/// What users did whom another process looks at.
pub(crate) struct Worked {
    pub(crate) measured: Measured,
    pub(crate) elapsed: Duration,
    /// Open loop: arrivals that no user had begun at the end.
    pub(crate) missed: u64,
    /// Processor seconds of this process.
    pub(crate) cpu_s: f64,
}

/// What was measured of a time.
pub(crate) struct Window {
    pub(super) measured: Measured,
    pub(super) span: Span,
    /// What the device read and wrote in each whole second.
    pub(super) device_series: Vec<(u64, u64)>,
    /// Open loop: arrivals that no user had begun.
    pub(super) missed: u64,
    /// It was interrupted before its time.
    pub(super) interrupted: bool,
    /// That the database did not answer at its end.
    pub(super) unanswered: Option<LabError>,
    /// What each agent had of it, if users were at agents, and what went wrong there.
    pub(super) clients: Vec<ClientShare>,
    pub(super) problems: Vec<String>,
}

impl Window {
    /// Adds a later one.
    ///
    /// # Errors
    /// What was seen cannot be put together.
    pub(crate) fn follow(&mut self, later: Self) -> Result<(), LabError> {
        let seconds = [self.span.elapsed_s, later.span.elapsed_s];
        self.measured.follow(later.measured, seconds)?;
        self.span.add(later.span);
        self.device_series.extend(later.device_series);
        self.missed = later.missed;
        self.interrupted |= later.interrupted;
        for (own, later) in self.clients.iter_mut().zip(&later.clients) {
            own.follow(later);
        }
        self.problems.extend(later.problems);
        self.unanswered = self.unanswered.take().or(later.unanswered);
        Ok(())
    }

    /// Whether not all users have reached its end.
    pub(crate) fn has_lost_users(&self) -> bool {
        self.measured.lost_users > 0
    }

    /// What users saw, whole.
    pub(crate) fn measured(&self) -> &Measured {
        &self.measured
    }

    pub(crate) fn step(self) -> StepResult {
        let mut step = self.span.step(&self.measured);
        step.missed = self.missed;
        step.device_series = self.device_series;
        step.problems.extend(self.problems);
        match self.unanswered {
            Some(error) => step.problems.push(error.to_string()),
            None if self.interrupted => step.problems.push("interrupted".to_owned()),
            None => {}
        }
        let is_missing = self.clients.iter().any(|part| part.lost);
        step.partial =
            self.interrupted || is_missing || step.lost_users > 0 || step.nopm_source == "client";
        step.clients = self.clients;
        step
    }
}

impl Drop for Users<'_> {
    fn drop(&mut self) {
        self.stage.enter(Phase::Stop);
    }
}

impl<'a> Users<'a> {
    /// Logs all users in. They wait until the ramp, or measuring, begins.
    ///
    /// # Errors
    /// Not all of them can log in, or the run is interrupted.
    pub(crate) fn log_in(
        database: &Arc<dyn Database>,
        of: (&RunPlan, &TerminalSetting),
        ledger: Option<Arc<Ledger>>,
        progress: &'a Progress,
    ) -> Result<Self, LabError> {
        let looker = Looker::new(database, progress)?;
        let mut all_users = Self::enter(database, of, (Part::ALL, ledger), progress)?;
        all_users.looker = Some(looker);
        Ok(all_users)
    }

    /// Logs a part of the users in, whom another process looks at.
    ///
    /// # Errors
    /// As [`Self::log_in`]'s.
    pub(crate) fn log_in_part(
        database: &Arc<dyn Database>,
        of: (&RunPlan, &TerminalSetting),
        part: Part,
        progress: &'a Progress,
    ) -> Result<Self, LabError> {
        Self::enter(database, of, (part, None), progress)
    }

    fn enter(
        database: &Arc<dyn Database>,
        (plan, setting): (&RunPlan, &TerminalSetting),
        (part, ledger): (Part, Option<Arc<Ledger>>),
        progress: &'a Progress,
    ) -> Result<Self, LabError> {
        let empty = Measured::new()?;
        let users = part.numbers(setting.users).count();
        let stage = Stage::new((plan, setting), &empty, ledger);
        let all_users = Self {
            stage: Arc::new(stage),
            users,
            looker: None,
            target: database.target(),
            empty,
            progress,
            shown: Shown {
                progress,
                group: "",
                member: "",
            },
        };
        for number in part.numbers(setting.users) {
            spawn(database, setting, &all_users.stage, number)?;
        }
        let all = |counts: &UserCounts| counts.logged_in == users || counts.refused.is_some();
        loop {
            let counts = all_users.stage.wait(LOOK_EVERY, all);
            if let Some(error) = counts.refused {
                return Err(LabError::caused("a user could not log in", error));
            }
            if counts.logged_in == users {
                return Ok(all_users);
            }
            // Users that hang in a call are left there.
            progress.go_on()?;
        }
    }

    /// Has what they do at the moment shown as this.
    pub(crate) const fn show(&mut self, shown: Shown<'a>) {
        self.shown = shown;
    }

    fn all_ended(&self) -> impl Fn(&UserCounts) -> bool + use<> {
        let users = self.users;
        move |counts| counts.ended == users
    }

    /// Waits for a time, until all users have ended, or until the run is interrupted; whether it did end.
    fn wait(&self, time: Duration) -> bool {
        let start = Instant::now();
        loop {
            let left = time.saturating_sub(start.elapsed());
            let counts = self.stage.wait(left.min(LOOK_EVERY), self.all_ended());
            if counts.ended == self.users || self.progress.go_on().is_err() {
                return true;
            }
            if start.elapsed() >= time {
                return false;
            }
        }
    }

    /// Lets them work for a time, and nothing counts.
    pub(crate) fn ramp(&self, time: Duration) {
        self.stage.enter(Phase::Ramp);
        self.wait(time);
    }

    /// Measures for a time, or until all users have ended.
    ///
    /// # Errors
    /// What they have seen cannot be put together; or the run is interrupted, and the database does not
    /// answer when it begins.
    pub(crate) fn measure(&mut self, time: Duration) -> Result<Window, LabError> {
        let first = self.mark()?;
        self.stage.enter(Phase::Measure);
        let device_series = self.watch_device(time);
        self.stage.have_counted(self.users, COUNTING);
        let (last, unanswered) = self.looker()?.last_mark();
        let span = Span::between(&first, last);
        // Only now: what users do while the database is asked is done in the time that is told.
        let measured = self.stage.take(&self.empty)?;
        let missed = self.stage.missed();
        Ok(Window {
            measured,
            span,
            device_series,
            missed,
            interrupted: self.progress.go_on().is_err(),
            unanswered,
            clients: Vec::new(),
            problems: Vec::new(),
        })
    }

    /// The same of users that rest before and after: they work, after `settle` it is measured, they rest.
    ///
    /// # Errors
    /// As [`Self::measure`]'s.
    pub(crate) fn measure_turn(
        &mut self,
        slow_down: f64,
        settle: Duration,
        time: Duration,
    ) -> Result<Window, LabError> {
        self.stage.turn(slow_down);
        self.wait(settle);
        // What a user saw that was about to rest when it was measured last; but who was lost meanwhile is.
        let before = self.stage.take(&self.empty)?;
        let mut window = self.measure(time)?;
        window.measured.add_losses(&before);
        self.rest();
        Ok(window)
    }

    /// No user begins a transaction from now on.
    pub(crate) fn rest(&self) {
        self.stage.turn(1.0);
    }

    /// Tells them to stop; how many did not in time, and what that is to be told as.
    pub(crate) fn stop(&self) -> Option<(usize, String)> {
        self.stage.enter(Phase::Stop);
        let begun = Instant::now();
        let stuck = loop {
            let counts = self.stage.wait(LOOK_EVERY, self.all_ended());
            let grace = match self.progress.go_on() {
                Ok(()) => GRACE,
                Err(_) => GRACE_AT_END,
            };
            if counts.ended == self.users || begun.elapsed() >= grace {
                break self.users - counts.ended;
            }
        };
        let told = || {
            let waited = begun.elapsed().as_secs();
            format!(
                "{stuck} users did not stop within {waited} s: their threads still wait for {} or its storage",
                self.target
            )
        };
        (stuck > 0).then(|| (stuck, told()))
    }

    fn mark(&self) -> Result<Mark, LabError> {
        self.stage.have_counted(self.users, COUNTING);
        self.looker()?.mark()
    }

    fn looker(&self) -> Result<&Looker<'a>, LabError> {
        let none = || LabError::environment(format!("{}: not looked at from here", self.target));
        self.looker.as_ref().ok_or_else(none)
    }

    /// Lets them work as planned from now on, until the time is over or all have done their share; `tell` hears of new
    /// orders every second.
    ///
    /// # Errors
    /// What they have seen cannot be put together.
    pub(crate) fn work(
        &mut self,
        plan: &RunPlan,
        tell: &dyn Fn(NewOrders),
    ) -> Result<Worked, LabError> {
        let time = match plan.mode {
            Mode::Fixed(_) => Duration::MAX,
            Mode::Timed | Mode::Rate(_) | Mode::Streams(..) | Mode::Thinkers(_) => {
                self.ramp(plan.ramp);
                plan.measure
            }
        };
        self.work_for(time, tell)
    }

    /// The same of users that rest before and after: they work, after `settle` it counts, they rest.
    ///
    /// # Errors
    /// As [`Self::work`]'s.
    pub(crate) fn work_turn(
        &mut self,
        slow_down: f64,
        settle: Duration,
        time: Duration,
    ) -> Result<Worked, LabError> {
        self.stage.turn(slow_down);
        self.wait(settle);
        let before = self.stage.take(&self.empty)?;
        let mut worked = self.work_for(time, &|_| {})?;
        worked.measured.add_losses(&before);
        self.rest();
        Ok(worked)
    }

    fn work_for(&mut self, time: Duration, tell: &dyn Fn(NewOrders)) -> Result<Worked, LabError> {
        // The other process does not wait for it, and asks the database a little later.
        self.stage.have_counted(self.users, Duration::ZERO);
        let cpu_s = process_cpu_s();
        self.stage.enter(Phase::Measure);
        let begun = Instant::now();
        for second in 1.. {
            let next = time.min(Duration::from_secs(second));
            let ends = self.wait(next.saturating_sub(begun.elapsed())) || begun.elapsed() >= time;
            tell(self.stage.new_orders());
            if ends {
                break;
            }
        }
        let worked = Worked {
            measured: self.stage.take(&self.empty)?,
            elapsed: begun.elapsed(),
            missed: self.stage.missed(),
            cpu_s: process_cpu_s() - cpu_s,
        };
        self.stage.have_counted(self.users, Duration::ZERO);
        // The time that is told there ends later: it must not end with users that do nothing.
        self.wait(GO_ON);
        Ok(worked)
    }

    /// Waits for a time, or until all users have ended; what the device did in each whole second of it.
    fn watch_device(&self, time: Duration) -> Vec<(u64, u64)> {
        let start = Instant::now();
        let mut device = DeviceSeries::new(self.looker.as_ref().map(Looker::place));
        let mut seen = Look::now(&self.stage);
        for second in 1.. {
            let next = time.min(Duration::from_secs(second));
            let left = next.saturating_sub(start.elapsed());
            let ends = self.wait(left) || start.elapsed() >= time;
            if start.elapsed() >= Duration::from_secs(second) {
                device.second_has_passed();
                if self.shown.progress.shows_tempo() {
                    let look = Look::now(&self.stage);
                    self.shown.tell(&seen, &look);
                    seen = look;
                }
            }
            if ends {
                break;
            }
        }
        device.seconds
    }
}

fn spawn(
    database: &Arc<dyn Database>,
    setting: &TerminalSetting,
    stage: &Arc<Stage>,
    number: usize,
) -> Result<(), LabError> {
    let (database, stage) = (Arc::clone(database), Arc::clone(stage));
    let setting = *setting;
    // Not scoped: a user that hangs in a call must not keep the result from being written.
    let spawned = std::thread::Builder::new()
        .name(format!("user-{number}"))
        .stack_size(STACK)
        .spawn(move || {
            live(database.as_ref(), &setting, &stage, number);
            stage.tell(|counts| counts.ended += 1);
        });
    spawned
        .map(drop)
        .map_err(|error| LabError::caused(format!("thread of user {number}"), error))
}

/// A user's life: login, work.
fn live(database: &dyn Database, setting: &TerminalSetting, stage: &Stage, number: usize) {
    let session = match database.session() {
        Ok(session) => session,
        Err(error) => {
            return stage.tell(|counts| {
                counts.refused.get_or_insert(error);
            });
        }
    };
    stage.tell(|counts| counts.logged_in += 1);
    let terminal = Terminal::new(setting, number);
    let mut user = User {
        number,
        stage,
        terminal,
        session,
        counted: 0,
    };
    if let Err(text) = user.work() {
        stage.shard(number).lost(&text);
    }
}
