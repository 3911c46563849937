//! Reservations of a namespace that several targets serve: one of them decides for all, and keeps what it has decided
//! where the others find it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ashlar_block::{Provenance, Registrant};
use ashlar_nvme::Status;
use ashlar_nvme::reservation::Ask;

use super::guard::Book;
use super::table::{News, Table};

/// What a host wants to know, or to have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// One of the commands that change something.
    Change(Ask),
    /// Whether reservations outlive a loss of power.
    Persist(bool),
    /// Reservation Report.
    Report,
    /// What the host has sent by another of its associations, and given up, is not to take effect any more
    /// (Cross-Controller Reset). That association may be another target's.
    Succeed,
}

/// A host's command on reservations.
#[derive(Clone, Copy, Debug)]
pub struct Petition {
    /// Whose it is, by which association it came, and how old it may be.
    pub provenance: Provenance,
    /// What it wants.
    pub wants: Wants,
}

/// What has become of a petition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The command's status.
    pub status: Status,
    /// The structure that a report returns.
    pub report: Vec<u8>,
    /// What other hosts are to be told.
    pub news: News,
}

impl Verdict {
    /// One of nothing but a status.
    pub const fn of(status: Status) -> Self {
        Self {
            status,
            report: Vec::new(),
            news: News {
                told: Vec::new(),
                ended: Vec::new(),
            },
        }
    }
}

/// Where a verdict is put. Dropped without one, the petition has failed on this path.
#[derive(Debug)]
pub struct Answer(Arc<Mutex<Option<Verdict>>>);

impl Answer {
    pub(crate) fn new() -> (Self, Judgement) {
        let place = Arc::<Mutex<Option<Verdict>>>::default();
        (Self(place.clone()), Judgement(place))
    }

    /// The petition is decided, and what that has changed is kept.
    pub fn give(self, verdict: Verdict) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict);
    }
}

/// An answer, and what tells whether it was given: for who decides, in tests.
pub fn answer_to() -> (Answer, impl Fn() -> Option<Verdict>) {
    let (answer, judgement) = Answer::new();
    (answer, move || judgement.take())
}

/// The other end of an answer.
#[derive(Debug)]
pub(crate) struct Judgement(Arc<Mutex<Option<Verdict>>>);

impl Judgement {
    /// The verdict, once there is one.
    pub(crate) fn take(&self) -> Option<Verdict> {
        let is_left_alone = Arc::strong_count(&self.0) == 1;
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = place.take();
        verdict.or_else(|| is_left_alone.then(|| Verdict::of(Status::ANA_TRANSITION)))
    }
}

/// Decides for all targets of a namespace.
pub trait ReservationDecider: Send + Sync {
    /// Decides, here or elsewhere, and gives the answer when what has changed is kept. From any thread of the target,
    /// which must not be kept waiting.
    fn decide(&self, petition: Petition, answer: Answer);
}

/// Reservations that are decided for all targets of a namespace; cloning shares them.
#[derive(Clone)]
pub struct DecidedReservations {
    pub(super) book: Arc<Book>,
    pub(super) decider: Arc<dyn ReservationDecider>,
}

impl DecidedReservations {
    /// Reservations that `decider` decides: none, until [`publish`](Self::publish) says more.
    pub fn new(decider: Arc<dyn ReservationDecider>) -> Self {
        let book = Arc::new(Book::new(Table::default()));
        Self { book, decider }
    }

    /// Commands that come here are judged by this table from now on.
    pub fn publish(&self, table: &Table) {
        self.book.replace(table.clone());
    }

    /// Whether the table is that of a namespace that was never reserved.
    pub fn is_blank(&self) -> bool {
        self.book.is_blank()
    }

    /// Whether a host that is connected here is let write.
    pub fn lets(&self, host: Registrant) -> bool {
        self.book.lets(host)
    }
}

impl fmt::Debug for DecidedReservations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecidedReservations")
    }
}

impl Table {
    /// Whether a host may read, or write.
    pub fn lets(&self, host: Registrant, writes: bool) -> bool {
        let rights = self.rights(&host.0);
        if writes { rights.writes } else { rights.reads }
    }

    /// What becomes of a petition; nothing is changed by what is refused.
    pub fn decide(&mut self, host: Registrant, wants: Wants) -> Verdict {
        let report = match wants {
            Wants::Report => self.status().to_page(),
            // It is who decides that sees to it.
            Wants::Succeed => Vec::new(),
            Wants::Persist(persists) => {
                self.persist(persists);
                Vec::new()
            }
            Wants::Change(ask) => {
                return match self.execute(host.0, ask) {
                    Ok(news) => Verdict {
                        news,
                        ..Verdict::of(Status::SUCCESS)
                    },
                    Err(status) => Verdict::of(super::command::with_finality(status)),
                };
            }
        };
        Verdict {
            report,
            ..Verdict::of(Status::SUCCESS)
        }
    }
}
