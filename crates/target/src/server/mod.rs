//! The driver: sockets, threads and placement. The only part of this room that knows the reactor.
//!
//! One thread a core runs a [`Core`](crate::Core) on its own reactor. The first also listens. A
//! connection is accepted and greeted there; when its Connect arrives, an admin queue stays and an
//! I/O queue goes to the core with the fewest, socket and state together.

mod placement;
mod run;
mod socket;
mod worker;

pub use run::{Export, ServeError, Server, ServerConfig};
