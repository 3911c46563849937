use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ashlar_block::IoError;

const PENDING: u8 = 0;
const KEPT: u8 = 1;
const FAILED: u8 = 2;

/// Keeps the reservations of a namespace through a loss of power.
pub trait ReservationKeeper: Send + Sync {
    /// Makes `state` durable in place of what was kept before, then says so to the ticket. States come in
    /// their order, from any thread of the target, which must not be kept waiting.
    fn keep(&self, state: Vec<u8>, ticket: Ticket);
}

/// Reservations that outlive a loss of power: what was kept, and who keeps what comes.
#[derive(Clone)]
pub struct KeptReservations {
    /// What was given to the keeper last, if ever.
    pub kept: Option<Vec<u8>>,
    /// Who keeps it.
    pub keeper: Arc<dyn ReservationKeeper>,
}

impl fmt::Debug for KeptReservations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.kept.as_ref().map_or(0, Vec::len);
        write!(f, "KeptReservations({bytes} bytes)")
    }
}

/// A state that is being made durable. Dropped without a word it has failed.
#[derive(Debug)]
pub struct Ticket(Arc<AtomicU8>);

impl Ticket {
    pub(crate) fn new() -> (Self, Receipt) {
        let state = Arc::new(AtomicU8::new(PENDING));
        (Self(state.clone()), Receipt(state))
    }

    /// The state is durable, or could not be made so.
    pub fn done(self, result: Result<(), IoError>) {
        let state = match result {
            Ok(()) => KEPT,
            Err(error) => {
                tracing::error!("reservations could not be kept: {error}");
                FAILED
            }
        };
        self.0.store(state, Ordering::Release);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let _ = self
            .0
            .compare_exchange(PENDING, FAILED, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The other end of a ticket.
#[derive(Debug)]
pub(crate) struct Receipt(Arc<AtomicU8>);

impl Receipt {
    /// Whether the state is durable; `None` while that is open.
    pub(crate) fn outcome(&self) -> Option<bool> {
        match self.0.load(Ordering::Acquire) {
            PENDING => None,
            state => Some(state == KEPT),
        }
    }
}
