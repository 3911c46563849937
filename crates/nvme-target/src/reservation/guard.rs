use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ashlar_block::Registrant;
use ashlar_nvme::Status;
use ashlar_nvme::reservation::{Ask, ReservationStatus};

use super::Reservations;
use super::decide::{Answer, Judgement, Petition, ReservationDecider, Verdict};
use super::keep::{KeptReservations, Receipt, Ticket};
use super::table::{HostId, News, Rights, Table};
use crate::controller::Controller;

/// What is reserved, as all cores see it.
pub(crate) struct Book {
    /// Changes with the table; 0 while nothing was ever reserved.
    version: AtomicU64,
    table: Mutex<Table>,
}

impl Book {
    pub(super) fn new(table: Table) -> Self {
        Self {
            version: AtomicU64::new(u64::from(table != Table::default())),
            table: Mutex::new(table),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lets(&self, host: Registrant) -> bool {
        self.lock().lets(host, true)
    }

    pub(super) fn is_blank(&self) -> bool {
        *self.lock() == Table::default()
    }

    /// Another table counts from now on.
    pub(super) fn replace(&self, table: Table) {
        let mut place = self.lock();
        if *place != table {
            *place = table;
            self.version.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// A namespace's reservations, and who changes them.
pub(crate) struct Guard {
    book: Arc<Book>,
    by: By,
}

enum By {
    /// This target, which has them kept.
    Us(KeptReservations),
    /// Another decides for all targets of the namespace.
    All(Arc<dyn ReservationDecider>),
}

/// What a controller may do, and at which version of the table that was found out.
#[derive(Debug, Default)]
pub(crate) struct Known(AtomicU64);

const READS: u64 = 1;
const WRITES: u64 = 2;
const FLAGS: u32 = 2;

/// What the answer to a reservation command waits for.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// The state that the command has made is to be durable.
    kept: Vec<Receipt>,
    /// It is decided elsewhere.
    judged: Vec<Judgement>,
    /// What was decided.
    status: Option<Status>,
    /// The command asks for this of what was reported.
    asks: Option<fn(&ReservationStatus) -> u64>,
    /// What was reported of it.
    told: Option<u64>,
    /// Associations of which nothing may be left.
    pub(crate) ends: Vec<Weak<Controller>>,
}

impl Waits {
    /// For the end of an association.
    pub(crate) fn for_end(of: Weak<Controller>) -> Self {
        Self {
            ends: vec![of],
            ..Self::default()
        }
    }

    /// For the verdict of who decides.
    fn for_verdict(of: Judgement) -> Self {
        Self {
            judged: vec![of],
            ..Self::default()
        }
    }

    /// The verdicts that have come; their statuses are noted.
    pub(crate) fn take_verdicts(&mut self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        self.judged.retain(|judged| {
            let verdict = judged.take();
            let waits = verdict.is_none();
            verdicts.extend(verdict);
            waits
        });
        let bad = verdicts.iter().map(|verdict| verdict.status);
        let bad = bad.filter(|status| !status.is_success());
        self.status = self.status.or(bad.into_iter().next());
        if let Some(asks) = self.asks {
            let good = verdicts.iter().filter(|one| one.status.is_success());
            let mut told = good.filter_map(|one| ReservationStatus::parse(&one.report));
            let newest = told.next_back().map(|status| asks(&status));
            self.told = newest.or(self.told);
            if self.told.is_none() && !verdicts.is_empty() {
                // One that is no report.
                self.status = self.status.or(Some(Status::INTERNAL_ERROR));
            }
        }
        verdicts
    }

    /// The command is answered with this of what is reported.
    pub(crate) fn asking(self, asks: fn(&ReservationStatus) -> u64) -> Self {
        Self {
            asks: Some(asks),
            ..self
        }
    }

    /// What was reported of what the command asks for.
    pub(crate) const fn told(&self) -> Option<u64> {
        self.told
    }

    /// Whether there is nothing to wait for any more, and what has come of it.
    pub(crate) fn outcome(&self) -> Option<Status> {
        if !self.judged.is_empty() || self.ends.iter().any(|one| one.strong_count() > 0) {
            return None;
        }
        let kept: Option<Vec<bool>> = self.kept.iter().map(Receipt::outcome).collect();
        match kept?.into_iter().all(|kept| kept) {
            true => Some(self.status.unwrap_or(Status::SUCCESS)),
            false => Some(Status::INTERNAL_ERROR),
        }
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.kept.extend(other.kept);
        self.ends.extend(other.ends);
        self.judged.extend(other.judged);
        self.status = self.status.or(other.status);
        self
    }
}

impl Guard {
    pub(crate) fn new(reservations: Reservations) -> Self {
        match reservations {
            Reservations::Kept(keeper) => {
                // What is no table was refused before.
                let kept = keeper.kept.as_deref();
                let table = kept.and_then(|kept| Table::decode(kept).ok());
                Self {
                    book: Arc::new(Book::new(table.unwrap_or_default())),
                    by: By::Us(keeper),
                }
            }
            Reservations::Decided(decided) => Self {
                book: decided.book,
                by: By::All(decided.decider),
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.book.lock()
    }

    /// Whether the host may send this command now.
    pub(crate) fn admits(&self, host: &HostId, known: &Known, opcode: u8) -> bool {
        let version = self.book.version.load(Ordering::Acquire);
        if version == 0 {
            return true;
        }
        let cached = known.0.load(Ordering::Relaxed);
        let cached = match cached >> FLAGS == version {
            true => cached,
            false => self.find_out(host, known),
        };
        let rights = Rights {
            reads: cached & READS != 0,
            writes: cached & WRITES != 0,
        };
        rights.allow(opcode)
    }

    fn find_out(&self, host: &HostId, known: &Known) -> u64 {
        let table = self.lock();
        let rights = table.rights(host);
        // Under the lock: the version of this very table.
        let version = self.book.version.load(Ordering::Acquire);
        let (reads, writes) = (u64::from(rights.reads), u64::from(rights.writes));
        let flags = (reads * READS) | (writes * WRITES);
        let found = version << FLAGS | flags;
        known.0.store(found, Ordering::Relaxed);
        found
    }

    /// What Reservation Report tells.
    pub(crate) fn status(&self) -> ReservationStatus {
        self.lock().status()
    }

    /// Whether the table outlives a loss of power.
    pub(crate) fn is_persistent(&self) -> bool {
        self.lock().is_persistent()
    }

    /// Has another decide, if that is how it is here: what the answer waits for.
    pub(crate) fn refer(&self, petition: Petition) -> Option<Waits> {
        let By::All(decider) = &self.by else {
            return None;
        };
        let (answer, judgement) = Answer::new();
        decider.decide(petition, answer);
        Some(Waits::for_verdict(judgement))
    }

    /// Whether it does from now on.
    pub(crate) fn persist(&self, persists: bool) -> Waits {
        let mut table = self.lock();
        match table.persist(persists) {
            true => self.keep(&table, true),
            false => Waits::default(),
        }
    }

    /// Does what the host asks for: who is to be told, and what the answer waits for. Commands that come from
    /// now on are judged by the new state, on every core.
    pub(crate) fn execute(&self, host: HostId, ask: Ask) -> Result<(News, Waits), Status> {
        let mut table = self.lock();
        let was_persistent = table.is_persistent();
        let news = table.execute(host, ask)?;
        // Even if nothing has changed: an earlier command that changed it may not have been kept.
        self.book.version.fetch_add(1, Ordering::AcqRel);
        let waits = self.keep(&table, was_persistent);
        Ok((news, waits))
    }

    /// Has the table kept, if it is to outlive a loss of power or what was kept is not to any more. Under the
    /// lock, so that states come in their order.
    fn keep(&self, table: &Table, was_persistent: bool) -> Waits {
        let state = match (table.is_persistent(), was_persistent) {
            (true, _) => table.encode(),
            (false, true) => Table::default().encode(),
            (false, false) => return Waits::default(),
        };
        let By::Us(keeper) = &self.by else {
            return Waits::default();
        };
        let (ticket, receipt) = Ticket::new();
        keeper.keeper.keep(state, ticket);
        Waits {
            kept: vec![receipt],
            ..Waits::default()
        }
    }
}
