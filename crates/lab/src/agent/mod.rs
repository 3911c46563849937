//! Load from other machines: agents make it, a coordinator (the process that runs a sweep or a scenario) tells them
//! what, and when.
//!
//! ```text
//! coordinator ── hello, clock, prepare, fill ──▶ agent      once a run
//!             ── part (its load threads) ──────▶ agent      each turn: opens, says ready
//!             ── go, at a moment of its clock ─▶ agent      loads; says every second that it lives
//!             ◀─ measured: histograms ────────── agent      merged with those of the others
//! ```
//!
//! Users of a database are the same with other words: `look` (can its server be reached from there?) once a run, and
//! `other` instead of `part`.
//!
//! An agent also runs programs for a coordinator, with `order`: what kinds there are is the business of its [`Seats`]. They
//! end when that coordinator is gone.
//!
//! The threads of a cell are dealt out, so that a cell is the same load from one agent or from ten. Clocks are compared
//! before each turn: the moment at which all begin is told to each agent in its own clock. Histograms travel whole and
//! are added up; a percentile of a part is never looked at. An agent that dies is named, and its part is missing from
//! the turn, which is marked and ends the run.
//!
//! Messages are JSON. How they travel, and who may talk to an agent, is the business of the [`Link`].

mod clients;
mod clock;
mod other;
mod seats;
mod serve;
#[cfg(test)]
mod tests;
mod words;

use std::time::Duration;

pub(crate) use clients::Load;
pub use clients::{Begun, ClientLink, Clients, ORDER_TAKES, Onlooker, OtherHome, OtherMeasured};
pub use other::{NoOtherLoad, OtherLoad, Start};
pub use seats::{NoSeats, Seats};
pub use serve::{Ended, Makes, serve};

use crate::LabError;

/// A way to the other side: whole messages, in order, or none at all.
pub trait Link: Send {
    /// Sends a message.
    ///
    /// # Errors
    /// The other side cannot be reached any more.
    fn send(&mut self, message: &str) -> Result<(), LabError>;

    /// The next message; `None` if none has come within `patience`.
    ///
    /// # Errors
    /// The other side is gone.
    fn receive(&mut self, patience: Duration) -> Result<Option<String>, LabError>;
}
