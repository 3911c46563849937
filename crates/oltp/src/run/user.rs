//! A virtual user: a thread, a session, an endless stream of transactions.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::stage::{Pacing, Phase, Stage};
use crate::database::{Failure, Outcome, Session};
use crate::inputs::{Kind, Transaction};
use crate::terminal::Terminal;

/// A transaction is tried again this often before it counts as failed.
const MOST_RETRIES: u32 = 50;
/// A user whose transactions fail this often in a row gives up.
const MOST_FAILURES: u32 = 100;

pub(crate) struct User<'a> {
    pub(crate) number: usize,
    pub(crate) stage: &'a Stage,
    pub(crate) terminal: Terminal,
    pub(crate) session: Box<dyn Session>,
    /// How often it has had the database count what it did, because it was asked to.
    pub(crate) counted: u64,
}

impl User<'_> {
    /// Works until it is over; an error is why it could not.
    pub(crate) fn work(&mut self) -> Result<(), String> {
        while self.stage.phase() == Phase::Login as u8 {
            self.have_counted();
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.stage.pacing == Pacing::Streams {
            return self.serve_streams();
        }
        let (mut begun, mut failed_in_a_row) = (0u64, 0);
        while !self.stage.is_over() && self.stage.pacing != Pacing::Fixed(begun) {
            self.have_counted();
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
        // The session cannot be asked any more.
        self.session.have_counted();
        Ok(())
    }

    /// Runs whatever stream is due.
    fn serve_streams(&mut self) -> Result<(), String> {
        let stage = self.stage;
        let Some(streams) = &stage.streams else {
            return Ok(());
        };
        let mut failed_in_a_row = 0;
        while let Some(due) = streams.next(|| stage.is_over()) {
            self.have_counted();
            self.is_late(due.since.elapsed());
            let went_well = self.attempt(&due.transaction, due.since);
            streams.done(due);
            failed_in_a_row = if went_well? { 0 } else { failed_in_a_row + 1 };
            if failed_in_a_row == MOST_FAILURES {
                return Err(format!("{MOST_FAILURES} transactions in a row failed"));
            }
        }
        self.session.have_counted();
        Ok(())
    }

    /// A transaction began so long after it was due.
    fn is_late(&self, late: Duration) {
        if self.stage.is_measuring() {
            self.stage.shard(self.number).late(late);
        }
    }

    /// Has the database count what it did, if it was asked to since the last time.
    fn have_counted(&mut self) {
        let asked = self.stage.asked();
        if self.counted < asked {
            self.session.have_counted();
            self.counted = asked;
            self.stage.counted(asked);
        }
    }

    /// Waits until the next transaction is to begin: since when its latency counts. `None` if it is
    /// over before that.
    fn await_turn(&self, kind: Kind) -> Option<Instant> {
        let due = match self.stage.pacing {
            Pacing::Closed | Pacing::Fixed(_) | Pacing::Streams => {
                return self.stage.hold().then(Instant::now);
            }
            Pacing::Rate(rate) => {
                let arrival = self.stage.arrival.fetch_add(1, Ordering::Relaxed);
                self.stage.ramp()? + Duration::from_secs_f64(arrival as f64 / rate)
            }
            Pacing::Terminal(pauses) => {
                Instant::now() + Duration::from_secs_f64(pauses.of(kind).keying_s)
            }
        };
        let is_on = self.stage.sleep_until(due);
        if is_on && matches!(self.stage.pacing, Pacing::Rate(_)) {
            self.is_late(due.elapsed());
        }
        is_on.then_some(due)
    }

    fn think(&mut self, kind: Kind) {
        if let Pacing::Terminal(pauses) = self.stage.pacing {
            let thinking = self.terminal.think_seconds(pauses.of(kind).thinking_s);
            let thinking = Duration::from_secs_f64(thinking);
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
                    // What ends while users are told to stop is no loss.
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
        if let Some(ledger) = &self.stage.ledger {
            ledger.add(self.number, transaction, outcome);
        }
    }

    fn count(&self, kind: Kind, start: Instant, outcome: Outcome) {
        if !self.stage.is_measuring() {
            return;
        }
        let now = Instant::now();
        let since = self
            .stage
            .measure()
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let rolled_back = outcome == Outcome::RolledBack;
        self.stage
            .shard(self.number)
            .done(kind, now - start, since, rolled_back);
    }
}
