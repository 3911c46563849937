//! In process: the daemon that has the volume serves the attachment itself, on the volume's core.
//!
//! ```text
//! guardian ── wish, /dev/fuse (SCM_RIGHTS) ──▶ Listener ─▶ an Owner, which settles a LocalSession on a core
//!          ◀─ yes ─────────────── over ─────── a thread                                     │ Exchange
//! ```
//!
//! The guardian keeps its /dev/fuse. When the daemon ends, in whatever way, the connection does: then it
//! hands the same descriptor to the next one, which has the kernel send again what was not answered.

mod client;
mod listen;
mod local_session;
mod session;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use client::{Connection, Heard, count, may};
pub use listen::{Listener, Owner};
pub use local_session::LocalSession;
pub use session::Session;
pub use words::{Over, Refusal, Wish};
