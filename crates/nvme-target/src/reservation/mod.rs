//! Reservations: which hosts may read and write a namespace that several share (Base 2.1, 8.1.22).
//!
//! [`Table`] is the state machine, without I/O and threads, and has a form in bytes: a volume on several
//! nodes can carry it in a log of its own. [`Guard`] is a namespace's: one table for all cores, of which
//! a core's commands see a number that changes with it and what a controller may do since, so that a
//! command that nothing has changed for looks at two numbers and takes no lock.

pub(crate) mod command;
mod decide;
mod guard;
mod keep;
mod table;
#[cfg(test)]
mod tests;

pub use decide::{
    Answer, DecidedReservations, Petition, ReservationDecider, Verdict, Wants, answer_to,
};
pub(crate) use guard::{Guard, Known, Waits};
pub use keep::{KeptReservations, ReservationKeeper, Ticket};
pub(crate) use table::HostId;
pub use table::{News, Table, TableError};

/// How a namespace can be reserved.
#[derive(Clone, Debug)]
pub enum Reservations {
    /// This target decides, and has them kept.
    Kept(KeptReservations),
    /// Several targets serve the namespace: it is decided for all of them.
    Decided(DecidedReservations),
}

impl From<KeptReservations> for Reservations {
    fn from(kept: KeptReservations) -> Self {
        Self::Kept(kept)
    }
}
