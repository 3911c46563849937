//! Users that are logged in to one database, and what is measured of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress, Tempo};

use super::measured::Measured;
use super::plan::RunPlan;
use super::span::{Mark, Span};
use super::stage::{Crew, Phase, Stage};
use super::user::User;
use crate::aside;
use crate::database::{Database, ServerPlace, Watcher};
use crate::ledger::Ledger;
use crate::result::StepResult;
use crate::terminal::{Terminal, TerminalSetting};
use crate::usage::Usage;

/// Users that are told to stop get this long to end their transactions.
const GRACE: Duration = Duration::from_secs(30);
/// The same if somebody wants it to end: longer than a server that does not answer is waited for then.
const GRACE_AT_END: Duration = Duration::from_secs(5);
/// A database whose users are asked to have everything counted has done so by then, or only one of them
/// waits for something.
const COUNTING: Duration = Duration::from_secs(1);
/// Whether somebody wants it to end is asked so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Most of a user's stack is for the database's client library.
const STACK: usize = 1 << 20;

/// The users. They are told to stop when it is dropped.
pub(crate) struct Crowd<'a> {
    pub(super) stage: Arc<Stage>,
    users: usize,
    /// Shared with a thread that asks. Nothing once this ends.
    watcher: Option<SharedWatcher>,
    target: String,
    place: ServerPlace,
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

impl Shown<'_> {
    /// Shows new orders a minute, of those in the last second.
    fn tell(&self, (before, now): ((u64, f64), (u64, f64)), time: Duration) {
        let orders = now.0.saturating_sub(before.0) as f64;
        let tempo = Tempo {
            unit: "NOPM",
            figure: orders * 60.0 / time.as_secs_f64().max(1e-9),
            latency_us: (now.1 - before.1).max(0.0) / orders.max(1.0) / 1000.0,
        };
        self.progress.tempo(self.group, self.member, tempo);
    }
}

type SharedWatcher = Arc<Mutex<Box<dyn Watcher>>>;

/// What was measured of a time.
pub(crate) struct Window {
    measured: Measured,
    span: Span,
    /// What the device read and wrote in each whole second.
    device_series: Vec<(u64, u64)>,
    /// Open loop: arrivals that nobody had begun.
    missed: u64,
    /// Somebody wanted it to end before its time.
    interrupted: bool,
    /// That the database did not answer at its end.
    unanswered: Option<LabError>,
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
        self.unanswered = self.unanswered.take().or(later.unanswered);
        Ok(())
    }

    /// What users saw, whole.
    pub(crate) fn measured(&self) -> &Measured {
        &self.measured
    }

    /// Its figures.
    pub(crate) fn step(self) -> StepResult {
        let mut step = self.span.step(&self.measured);
        step.missed = self.missed;
        step.device_series = self.device_series;
        match self.unanswered {
            Some(error) => step.problems.push(error.to_string()),
            None if self.interrupted => step.problems.push("interrupted".to_owned()),
            None => {}
        }
        step.partial = self.interrupted || step.lost_users > 0 || step.nopm_source == "client";
        step
    }
}

impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        self.stage.enter(Phase::Stop);
        // To log out may be to wait for storage, too.
        let watcher = self.watcher.take();
        let _ = aside::ask(&self.target, self.progress, move || drop(watcher));
    }
}

impl<'a> Crowd<'a> {
    /// Logs all users in. They wait until the ramp, or measuring, begins.
    ///
    /// # Errors
    /// Not all of them can log in, or somebody wants this to end.
    pub(crate) fn log_in(
        database: &Arc<dyn Database>,
        (plan, setting): (&RunPlan, &TerminalSetting),
        ledger: Option<Arc<Ledger>>,
        progress: &'a Progress,
    ) -> Result<Self, LabError> {
        let mut watcher = database.watcher()?;
        let place = watcher.place();
        let empty = Measured::new()?;
        let users = setting.users;
        let stage = Stage::new((plan, setting), &empty, ledger);
        let crowd = Self {
            stage: Arc::new(stage),
            users,
            watcher: Some(Arc::new(Mutex::new(watcher))),
            target: database.target(),
            place,
            empty,
            progress,
            shown: Shown {
                progress,
                group: "",
                member: "",
            },
        };
        for number in 0..users {
            spawn(database, setting, &crowd.stage, number)?;
        }
        let all = |crew: &Crew| crew.logged_in == users || crew.refused.is_some();
        loop {
            let crew = crowd.stage.wait(LOOK_EVERY, all);
            if let Some(error) = crew.refused {
                return Err(LabError::caused("a user could not log in", error));
            }
            if crew.logged_in == users {
                return Ok(crowd);
            }
            // Users that hang in a call are left there.
            progress.go_on()?;
        }
    }

    /// Has what they do at the moment shown as this.
    pub(crate) const fn show(&mut self, shown: Shown<'a>) {
        self.shown = shown;
    }

    fn all_ended(&self) -> impl Fn(&Crew) -> bool + use<> {
        let users = self.users;
        move |crew| crew.ended == users
    }

    /// Waits for a time, until all users have ended, or until somebody wants it to end; whether it did end.
    fn wait(&self, time: Duration) -> bool {
        let start = Instant::now();
        loop {
            let left = time.saturating_sub(start.elapsed());
            let crew = self.stage.wait(left.min(LOOK_EVERY), self.all_ended());
            if crew.ended == self.users || self.progress.go_on().is_err() {
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
    /// What they have seen cannot be put together; or somebody wants it to end, and the database does not
    /// answer when it begins.
    pub(crate) fn measure(&mut self, time: Duration) -> Result<Window, LabError> {
        let first = self.mark()?;
        self.stage.enter(Phase::Measure);
        let device_series = self.watch_device(time);
        let (last, unanswered) = match self.mark() {
            Ok(mark) => (mark, None),
            Err(error) => (Mark::unanswered(&self.place, &error), Some(error)),
        };
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

    /// Nobody begins a transaction from now on.
    pub(crate) fn rest(&self) {
        self.stage.turn(1.0);
    }

    /// Tells them to stop; how many did not in time, and what that is to be told as.
    pub(crate) fn stop(&self) -> Option<(usize, String)> {
        self.stage.enter(Phase::Stop);
        let begun = Instant::now();
        let stuck = loop {
            let crew = self.stage.wait(LOOK_EVERY, self.all_ended());
            let grace = match self.progress.go_on() {
                Ok(()) => GRACE,
                Err(_) => GRACE_AT_END,
            };
            if crew.ended == self.users || begun.elapsed() >= grace {
                break self.users - crew.ended;
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
        let (watcher, place) = (self.watcher.clone(), self.place.clone());
        let mark = move || {
            let watcher = watcher?;
            let mut watcher = watcher.lock().unwrap_or_else(PoisonError::into_inner);
            Some(Mark::now(watcher.as_mut(), &place))
        };
        let mark = aside::ask(&self.target, self.progress, mark)?;
        mark.ok_or_else(|| LabError::environment(format!("{}: logged out", self.target)))
    }

    /// Waits for a time, or until all users have ended; what the device did in each whole second of it.
    fn watch_device(&self, time: Duration) -> Vec<(u64, u64)> {
        let start = Instant::now();
        let mut series = Vec::new();
        let mut before = Usage::device_now(&self.place);
        let mut seen = (Instant::now(), self.stage.new_orders());
        for second in 1.. {
            let next = time.min(Duration::from_secs(second));
            let left = next.saturating_sub(start.elapsed());
            let ends = self.wait(left) || start.elapsed() >= time;
            if start.elapsed() >= Duration::from_secs(second) {
                let now = Usage::device_now(&self.place);
                let both = before.zip(now);
                series.extend(
                    both.map(|(from, to)| {
                        (to.0.saturating_sub(from.0), to.1.saturating_sub(from.1))
                    }),
                );
                before = now;
                if self.shown.progress.shows_tempo() {
                    let look = (Instant::now(), self.stage.new_orders());
                    self.shown.tell((seen.1, look.1), look.0 - seen.0);
                    seen = look;
                }
            }
            if ends {
                break;
            }
        }
        series
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
            stage.tell(|crew| crew.ended += 1);
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
            return stage.tell(|crew| {
                crew.refused.get_or_insert(error);
            });
        }
    };
    stage.tell(|crew| crew.logged_in += 1);
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
