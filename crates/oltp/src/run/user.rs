//! A virtual user: a thread, a session, an endless stream of transactions.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ashlar_lab::LabError;

use super::measured::Measured;
use super::plan::RunPlan;
use crate::database::{Failure, Outcome, Session};
use crate::inputs::{Kind, Transaction};
use crate::ledger::Ledger;
use crate::terminal::Terminal;

/// A transaction is tried again this often before it counts as failed.
const MOST_RETRIES: u32 = 50;
/// A user whose transactions fail this often in a row gives up.
const MOST_FAILURES: u32 = 100;
/// Waiting users look this often whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A run that is slowed down stands still once in this time.
const SLOW_PERIOD: Duration = Duration::from_millis(500);
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
    /// Keying and thinking times.
    Terminal,
}

/// What all users of a step share.
pub(crate) struct Stage {
    pub(crate) pacing: Pacing,
    /// Share of the time in which nobody begins a transaction.
    slow_down: f64,
    /// Where acknowledged orders are written down.
    ledger: Option<Arc<Ledger>>,
    phase: AtomicU8,
    /// When the ramp began, and when measuring did.
    ramp: OnceLock<Instant>,
    measure: OnceLock<Instant>,
    shards: Vec<Mutex<Measured>>,
    /// Open loop: the next arrival.
    arrival: AtomicU64,
    crew: Mutex<Crew>,
    changed: Condvar,
}

/// How many users are where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crew {
    pub(crate) logged_in: usize,
    /// Those that do not work any more, or never did.
    pub(crate) ended: usize,
    /// Why the first of them could not log in.
    pub(crate) refused: Option<LabError>,
}

impl Stage {
    pub(crate) fn new(
        plan: &RunPlan,
        users: usize,
        empty: &Measured,
        ledger: Option<Arc<Ledger>>,
    ) -> Self {
        Self {
            pacing: plan.pacing(),
            slow_down: plan.slow_down,
            ledger,
            phase: AtomicU8::new(Phase::Login as u8),
            ramp: OnceLock::new(),
            measure: OnceLock::new(),
            shards: (0..users.clamp(1, SHARDS))
                .map(|_| Mutex::new(empty.clone()))
                .collect(),
            arrival: AtomicU64::new(0),
            crew: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        let now = Instant::now();
        match phase {
            Phase::Ramp => drop(self.ramp.set(now)),
            Phase::Measure => drop(self.measure.set(now)),
            Phase::Login | Phase::Stop => {}
        }
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    /// Tells of a user.
    pub(crate) fn tell(&self, what: impl FnOnce(&mut Crew)) {
        what(&mut self.crew.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits for a time, or until it is `enough`. The thread sleeps meanwhile: it is part of the
    /// processor time that is measured.
    pub(crate) fn wait(&self, time: Duration, enough: impl Fn(&Crew) -> bool) -> Crew {
        let start = Instant::now();
        let mut crew = self.crew.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() || enough(&crew) {
                return crew.clone();
            }
            let waited = self.changed.wait_timeout(crew, left);
            crew = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::SeqCst)
    }

    fn is_over(&self) -> bool {
        self.phase() == Phase::Stop as u8
    }

    fn is_measuring(&self) -> bool {
        self.phase() == Phase::Measure as u8
    }

    pub(crate) fn shard(&self, user: usize) -> MutexGuard<'_, Measured> {
        let shard = &self.shards[user % self.shards.len()];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that was seen until now.
    pub(crate) fn collect(&self, mut into: Measured) -> Result<Measured, LabError> {
        for user in 0..self.shards.len() {
            into.merge(&self.shard(user))?;
        }
        Ok(into)
    }

    /// Arrivals that are due by now and that no user has begun.
    pub(crate) fn missed(&self) -> u64 {
        match (self.pacing, self.ramp.get()) {
            (Pacing::Rate(rate), Some(start)) => {
                let due = (start.elapsed().as_secs_f64() * rate) as u64;
                due.saturating_sub(self.arrival.load(Ordering::Relaxed))
            }
            _ => 0,
        }
    }

    /// Waits while nobody may begin; false if it is over before that ends. All users wait at once: a pause
    /// of one alone would leave the others more of the database.
    fn hold(&self) -> bool {
        let origin = self.ramp.get().or(self.measure.get());
        let Some(origin) = origin.filter(|_| self.slow_down > 0.0) else {
            return true;
        };
        let at = origin.elapsed().as_secs_f64() % SLOW_PERIOD.as_secs_f64();
        let left = SLOW_PERIOD.as_secs_f64() * self.slow_down - at;
        left <= 0.0 || self.sleep_until(Instant::now() + Duration::from_secs_f64(left))
    }

    /// Sleeps until `due`, or until it is over: then false.
    fn sleep_until(&self, due: Instant) -> bool {
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

/// A user.
pub(crate) struct User<'a> {
    pub(crate) number: usize,
    pub(crate) stage: &'a Stage,
    pub(crate) terminal: Terminal,
    pub(crate) session: Box<dyn Session>,
}

impl User<'_> {
    /// Works until it is over; an error is why it could not.
    pub(crate) fn work(&mut self) -> Result<(), String> {
        while self.stage.phase() == Phase::Login as u8 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (mut begun, mut failed_in_a_row) = (0u64, 0);
        while !self.stage.is_over() && self.stage.pacing != Pacing::Fixed(begun) {
            let transaction = self.terminal.next_transaction();
            let kind = transaction.kind();
            let Some(start) = self.await_turn(kind) else {
                return Ok(());
            };
            begun += 1;
            if self.attempt(&transaction, start)? {
                failed_in_a_row = 0;
            } else {
                failed_in_a_row += 1;
            }
            if failed_in_a_row == MOST_FAILURES {
                return Err(format!("{MOST_FAILURES} transactions in a row failed"));
            }
            self.think(kind);
        }
        Ok(())
    }

    /// Waits until the next transaction is to begin: since when its latency counts. `None` if it is
    /// over before that.
    fn await_turn(&self, kind: Kind) -> Option<Instant> {
        let due = match self.stage.pacing {
            Pacing::Closed | Pacing::Fixed(_) => {
                return self.stage.hold().then(Instant::now);
            }
            Pacing::Rate(rate) => {
                let arrival = self.stage.arrival.fetch_add(1, Ordering::Relaxed);
                *self.stage.ramp.get()? + Duration::from_secs_f64(arrival as f64 / rate)
            }
            Pacing::Terminal => {
                let (keying, _) = kind.terminal_seconds();
                Instant::now() + Duration::from_secs_f64(keying)
            }
        };
        self.stage.sleep_until(due).then_some(due)
    }

    fn think(&mut self, kind: Kind) {
        if self.stage.pacing == Pacing::Terminal {
            let thinking = Duration::from_secs_f64(self.terminal.think_seconds(kind));
            self.stage.sleep_until(Instant::now() + thinking);
        }
    }

    /// Runs a transaction until it ends; whether it did as it should.
    fn attempt(&mut self, transaction: &Transaction, start: Instant) -> Result<bool, String> {
        let kind = transaction.kind();
        for retry in 0.. {
            let text = match self.session.run(transaction) {
                Ok(outcome) => {
                    self.write_down(transaction, outcome);
                    self.count(kind, start, outcome);
                    return Ok(true);
                }
                Err(Failure::Lost(text)) => {
                    // What ends while users are told to stop is nobody's loss.
                    return if self.stage.is_over() {
                        Ok(false)
                    } else {
                        Err(text)
                    };
                }
                Err(Failure::Error(text)) => text,
                Err(Failure::Retry(_)) if retry < MOST_RETRIES && !self.stage.is_over() => {
                    if self.stage.is_measuring() {
                        self.stage.shard(self.number).retried(kind);
                    }
                    std::thread::sleep(Duration::from_micros(200) * (retry + 1));
                    continue;
                }
                Err(Failure::Retry(text)) => format!("given up after {retry} retries: {text}"),
            };
            if self.stage.is_measuring() {
                self.stage.shard(self.number).failed(kind, &text);
            } else {
                self.stage.shard(self.number).problem(&text);
            }
            return Ok(false);
        }
        Ok(false)
    }

    fn write_down(&self, transaction: &Transaction, outcome: Outcome) {
        if let (Some(ledger), Transaction::NewOrder(order), Outcome::Ordered(number)) =
            (&self.stage.ledger, transaction, outcome)
        {
            ledger.add(self.number, order, number);
        }
    }

    fn count(&self, kind: Kind, start: Instant, outcome: Outcome) {
        if !self.stage.is_measuring() {
            return;
        }
        let now = Instant::now();
        let since = self
            .stage
            .measure
            .get()
            .map_or(Duration::ZERO, |at| now - *at);
        let rolled_back = outcome == Outcome::RolledBack;
        self.stage
            .shard(self.number)
            .done(kind, now - start, since, rolled_back);
    }
}
