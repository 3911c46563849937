//! Clients in an open loop, which do what clients do: what fails is tried again, what is lost is connected again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress};

use super::FaultsPlan;
use super::trace::{Server, Trace};
use crate::database::{Database, Failure, Session};
use crate::ledger::Ledger;
use crate::postgres::Postgres;
use crate::terminal::{Terminal, TerminalSetting};

/// After a failure a client waits so long before it tries again, and twice as long after the next, up to a limit: each
/// attempt takes processor time from a server that comes up.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
const AGAIN_AT_LAST: Duration = Duration::from_millis(100);
/// Clients that wait for their turn look this often whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// All clients of a round.
pub(super) struct Clients {
    url: String,
    plan: FaultsPlan,
    setting: TerminalSetting,
    /// What was acknowledged.
    pub(super) ledger: Ledger,
    /// What happened to them.
    pub(super) trace: Trace,
    begun: Instant,
    arrivals: AtomicU64,
    over: Arc<AtomicBool>,
}

impl Clients {
    /// Clients of these terminals.
    pub(super) fn new(url: &str, plan: &FaultsPlan, setting: TerminalSetting) -> Self {
        Self {
            url: url.to_owned(),
            plan: plan.clone(),
            setting,
            ledger: Ledger::default(),
            trace: Trace::default(),
            begun: Instant::now(),
            arrivals: AtomicU64::new(0),
            over: Arc::default(),
        }
    }

    /// Tells all of them to end.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// The life of one of them.
    pub(super) fn work(&self, number: usize) {
        // What a silent server owes is not waited for when all is over.
        let progress = Progress::silent().until(Arc::clone(&self.over));
        let Ok(database) = Postgres::new(&self.url, self.plan.logic) else {
            return;
        };
        let mut client = Client {
            all: self,
            number,
            database: database.until(&progress),
            terminal: Terminal::new(&self.setting, number),
            session: None,
        };
        while let Some(due) = self.next_turn() {
            if client.serve() {
                self.trace.waited(due);
            }
        }
        // What was due and never done has waited until now.
        let next = self.due(self.arrivals.load(Ordering::SeqCst));
        self.trace.waited(next);
    }

    fn due(&self, arrival: u64) -> Instant {
        self.begun + Duration::from_secs_f64(arrival as f64 / self.plan.rate)
    }

    /// Waits until the next transaction is due; nothing when it is over.
    fn next_turn(&self) -> Option<Instant> {
        let due = self.due(self.arrivals.fetch_add(1, Ordering::SeqCst));
        loop {
            if self.is_over() {
                return None;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(due);
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

struct Client<'a> {
    all: &'a Clients,
    number: usize,
    database: Postgres,
    terminal: Terminal,
    session: Option<(Box<dyn Session>, Server)>,
}

impl Client<'_> {
    /// Runs transactions until one succeeds; false if it is over before that.
    fn serve(&mut self) -> bool {
        let mut pause = AGAIN_AFTER;
        while !self.all.is_over() {
            match self.attempt() {
                Ok(()) => return true,
                Err(text) => {
                    self.all.trace.failed(&text);
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(AGAIN_AT_LAST);
                }
            }
        }
        false
    }

    fn attempt(&mut self) -> Result<(), String> {
        let (mut session, server) = match self.session.take() {
            Some(open) => open,
            None => self.log_in().map_err(|error| error.to_string())?,
        };
        let transaction = self.terminal.next_transaction();
        let begun = Instant::now();
        loop {
            match session.run(&transaction) {
                Ok(outcome) => {
                    self.all.ledger.add(self.number, &transaction, outcome);
                    self.all.trace.acknowledged(server, begun);
                    self.session = Some((session, server));
                    return Ok(());
                }
                Err(Failure::Retry(_)) if !self.all.is_over() => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Failure::Error(text) | Failure::Retry(text)) => {
                    self.session = Some((session, server));
                    return Err(text);
                }
                Err(Failure::Lost(text)) => return Err(text),
            }
        }
    }

    fn log_in(&self) -> Result<(Box<dyn Session>, Server), LabError> {
        let mut session = self.database.session()?;
        let server = session.server_start().map(Server);
        let server = server.ok_or_else(|| LabError::environment("no server that takes writes"))?;
        Ok((session, server))
    }
}
