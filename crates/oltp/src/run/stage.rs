//! What all users of a load share: what it is doing, at which pace, and what they have seen.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ashlar_lab::LabError;

use super::measured::{Measured, NewOrders};
use super::plan::{Mode, RunPlan};
use super::streams::{Pace, Streams};
use crate::inputs::Pauses;
use crate::ledger::Ledger;
use crate::terminal::TerminalSetting;

/// Waiting users look this often whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Users whose turn it is not look this often whether it is.
const LOOK_FOR_TURN_EVERY: Duration = Duration::from_millis(10);
/// A run that is slowed down stands still once in this time. Transactions that have begun go on: a pause must
/// be long beside them, or it costs less than its share.
const SLOW_PERIOD: Duration = Duration::from_secs(1);
/// Users share this many collections of measurements at most.
const SHARDS: usize = 16;

/// What the run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Users log in.
    Login,
    /// They work, and nothing counts.
    Ramp,
    /// They work, and it counts.
    Measure,
    /// They stop.
    Stop,
}

/// How a user paces itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pacing {
    /// One transaction after the other.
    Closed,
    /// This many transactions, and no more.
    Fixed(u64),
    /// Together, all users begin this many a second.
    Rate(f64),
    /// Whatever of the stage's streams is due.
    Streams,
    /// Keying and thinking times.
    Terminal(Pauses),
}

/// What all users of a step share.
pub(crate) struct Stage {
    pub(crate) pacing: Pacing,
    /// What users run, if there are more streams than users.
    pub(super) streams: Option<Streams>,
    /// Where what is acknowledged is written down.
    pub(crate) ledger: Option<Arc<Ledger>>,
    /// Share of the time in which no user begins a transaction, as bits of a float; 1: it is others' turn.
    slow_down: AtomicU64,
    phase: AtomicU8,
    began: Instant,
    /// When the ramp, or this turn, began; and when measuring did.
    ramp: Since,
    measure: Since,
    shards: Vec<Mutex<Measured>>,
    /// Open loop: the next arrival.
    pub(super) arrival: AtomicU64,
    /// How often users were asked to have the database count what they did.
    asked: AtomicU64,
    counts: Mutex<UserCounts>,
    changed: Condvar,
}

/// How many users are where.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserCounts {
    pub(crate) logged_in: usize,
    /// Those that do not work any more, or never did.
    pub(crate) ended: usize,
    /// Those that had everything counted that they did before they were asked last.
    counted: usize,
    /// Why the first of them could not log in.
    pub(crate) refused: Option<LabError>,
}

/// A moment, once it has come.
#[derive(Default)]
struct Since(AtomicU64);

impl Since {
    fn set(&self, began: Instant) {
        // Never 0, which is "not yet".
        let nanos = (began.elapsed().as_nanos() as u64).max(1);
        self.0.store(nanos, Ordering::SeqCst);
    }

    fn get(&self, began: Instant) -> Option<Instant> {
        let nanos = self.0.load(Ordering::SeqCst);
        (nanos > 0).then(|| began + Duration::from_nanos(nanos))
    }
}

impl Stage {
    pub(crate) fn new(
        (plan, setting): (&RunPlan, &TerminalSetting),
        empty: &Measured,
        ledger: Option<Arc<Ledger>>,
    ) -> Self {
        let users = setting.users;
        let streams = match plan.mode {
            Mode::Streams(streams, each) => Some(Streams::new(setting, streams, Pace::rate(each))),
            Mode::Thinkers(streams) => {
                let pace = plan.pauses.map(Pace::Think);
                pace.map(|pace| Streams::new(setting, streams, pace))
            }
            _ => None,
        };
        Self {
            pacing: plan.pacing(),
            streams,
            ledger,
            slow_down: AtomicU64::new(plan.slow_down.to_bits()),
            phase: AtomicU8::new(Phase::Login as u8),
            began: Instant::now(),
            ramp: Since::default(),
            measure: Since::default(),
            shards: (0..users.clamp(1, SHARDS))
                .map(|_| Mutex::new(empty.clone()))
                .collect(),
            arrival: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            counts: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        match phase {
            Phase::Ramp => self.ramp.set(self.began),
            Phase::Measure => self.measure.set(self.began),
            Phase::Login | Phase::Stop => {}
        }
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    /// Users work from now on, but for this share of the time; nothing counts yet. With 1 they rest.
    pub(crate) fn turn(&self, slow_down: f64) {
        self.slow_down.store(slow_down.to_bits(), Ordering::SeqCst);
        self.enter(Phase::Ramp);
    }

    /// Tells of a user.
    pub(crate) fn tell(&self, what: impl FnOnce(&mut UserCounts)) {
        what(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, UserCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a time, or until it is `enough`. The thread sleeps meanwhile: it is part of the
    /// processor time that is measured.
    pub(crate) fn wait(&self, time: Duration, enough: impl Fn(&UserCounts) -> bool) -> UserCounts {
        let start = Instant::now();
        let mut counts = self.lock();
        loop {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() || enough(&counts) {
                return counts.clone();
            }
            let waited = self.changed.wait_timeout(counts, left);
            counts = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks all users to have the database count what they did, and waits until those that work have, or
    /// for a time.
    pub(crate) fn have_counted(&self, users: usize, time: Duration) {
        {
            let mut counts = self.lock();
            counts.counted = 0;
            self.asked.fetch_add(1, Ordering::SeqCst);
        }
        self.wait(time, |counts| counts.counted + counts.ended >= users);
    }

    /// How often users were asked.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// A user has done what it was asked for the `asked`-th time.
    pub(super) fn counted(&self, asked: u64) {
        self.tell(|counts| {
            if asked == self.asked.load(Ordering::SeqCst) {
                counts.counted += 1;
            }
        });
    }

    pub(super) fn phase(&self) -> u8 {
        self.phase.load(Ordering::SeqCst)
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase() == Phase::Stop as u8
    }

    pub(super) fn is_measuring(&self) -> bool {
        self.phase() == Phase::Measure as u8
    }

    /// When the ramp began, and when measuring did.
    pub(super) fn ramp(&self) -> Option<Instant> {
        self.ramp.get(self.began)
    }

    pub(super) fn measure(&self) -> Option<Instant> {
        self.measure.get(self.began)
    }

    pub(crate) fn shard(&self, user: usize) -> MutexGuard<'_, Measured> {
        let shard = &self.shards[user % self.shards.len()];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that was seen until now, since the last time it was taken; `empty` is nothing.
    pub(crate) fn take(&self, empty: &Measured) -> Result<Measured, LabError> {
        let mut all = empty.clone();
        for user in 0..self.shards.len() {
            all.merge(&std::mem::replace(&mut *self.shard(user), empty.clone()))?;
        }
        Ok(all)
    }

    /// New orders that were seen until now.
    pub(crate) fn new_orders(&self) -> NewOrders {
        let mut all = NewOrders::default();
        for user in 0..self.shards.len() {
            all.add(self.shard(user).new_orders_so_far());
        }
        all
    }

    /// Arrivals that are due by now and that no user has begun.
    pub(crate) fn missed(&self) -> u64 {
        match (self.pacing, self.ramp()) {
            (Pacing::Rate(rate), Some(start)) => {
                let due = (start.elapsed().as_secs_f64() * rate) as u64;
                due.saturating_sub(self.arrival.load(Ordering::Relaxed))
            }
            (Pacing::Streams, _) => self.streams.as_ref().map_or(0, Streams::missed),
            _ => 0,
        }
    }

    /// Waits while no user may begin; false if it is over before that ends. All users wait at once: a pause
    /// of one alone would leave the others more of the database.
    pub(super) fn hold(&self) -> bool {
        while let Some(left) = self.left_to_hold() {
            if !self.sleep_until(Instant::now() + left) {
                return false;
            }
        }
        true
    }

    fn left_to_hold(&self) -> Option<Duration> {
        let share = f64::from_bits(self.slow_down.load(Ordering::SeqCst));
        if share >= 1.0 {
            return Some(LOOK_FOR_TURN_EVERY);
        }
        let origin = self.measure().or(self.ramp()).filter(|_| share > 0.0)?;
        let period = SLOW_PERIOD.as_secs_f64();
        // In the middle: a measurement of whole seconds that ends a little late has no part of a pause too many.
        let at = origin.elapsed().as_secs_f64() % period - period * (1.0 - share) / 2.0;
        let left = period * share - at;
        (at >= 0.0 && left > 0.0).then(|| Duration::from_secs_f64(left))
    }

    /// Sleeps until `due`, or until it is over: then false.
    pub(super) fn sleep_until(&self, due: Instant) -> bool {
        loop {
            if self.is_over() {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}
