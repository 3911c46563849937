//! The driver: sockets, threads and placement. The only part of this room that knows the reactor.
//!
//! One thread a core runs a [`Core`](crate::Core) on its own reactor. The first also listens. A
//! connection is accepted and greeted there; when its Connect arrives, an admin queue stays and an
//! I/O queue goes to the core with the fewest, socket and state together.
//!
//! A [`Control`] changes what a running server serves, by mail to the cores, and settles
//! [`Resident`]s on them: an engine that needs turns beside the connections whose I/O it does.

mod claims;
mod control;
mod error;
mod export;
mod mail;
mod placement;
mod reservations;
mod resident;
mod run;
mod socket;
mod stranger;
mod worker;

pub use control::Control;
pub use error::ServeError;
pub use export::Export;
pub use reservations::ReservationFile;
pub use resident::{MakeResident, Resident};
pub use run::{CoreDeath, Server, ServerConfig};
