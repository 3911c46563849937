//! An NVMe/TCP target: what a host connects to.
//!
//! # Where it stands
//!
//! Bytes of a host's TCP connection come in at [`Core::receive`]; a connection cuts them into
//! commands, a command becomes a [`block::Request`](ashlar_block::Request) on the core's own
//! [`BlockDevice`](ashlar_block::BlockDevice), and its completion goes back as bytes. The first
//! half of a write's way: `server` → `connection` → `io` → device.
//!
//! ```text
//! server (sockets, threads)        the only part that knows the reactor
//!   └ core          one a thread: its connections and its opened devices
//!       └ connection    NVMe/TCP: PDUs, R2T, digests, backpressure   ← another transport goes here
//!           ├ io            Read, Write, Flush, Write Zeroes, DSM, Compare, Verify
//!           ├ admin         Identify, Get Log Page, features, events, abort, keep-alive, resets
//!           └ fabrics       Connect, properties
//! target ─ roster ─ subsystem ─ controller    what all cores share, off the fast path
//! ```
//!
//! # Invariants
//!
//! * Everything outside `server` is a state machine: bytes, completions, buffers and time are
//!   parameters, so that the simulator runs the code that ships.
//! * A queue lives on one core. What cores share is locked only by Connect, admin commands and
//!   teardown.
//! * Memory is bounded by the core's buffer pool: a command without a buffer waits, a connection
//!   that may not take its next capsule stops reading, and so does one whose responses pile up
//!   untaken. One connection may hold only a share, and so may a host, and all hosts together that no
//!   list names (`shares`). Those that wait are served in turns, a command each, the host that holds
//!   least first. Staging memory for sockets is the server's.
//! * No command waits for a buffer while it holds one, and some of the pool and of every share is
//!   never lent to data that a host has yet to send: whatever waits for memory waits for something
//!   that ends by itself, or for a host that the stall timer ends.
//! * A connection that owes bytes and sends few a second, or takes none, is closed after
//!   [`Timeouts::stall`], and within a second when another waits for what it holds; nothing that a
//!   host does can hold a buffer for ever. Time that a device takes does not count.
//! * A completed command has been executed once. A connection that ends leaves its commands to
//!   finish, and a host's next Connect waits for them: an old write cannot land after a new one. Of
//!   an end that the target cannot see, the host tells it by Cross-Controller Reset, answered when
//!   nothing of the old association is left.
//! * A status is never success unless the device said so.
//! * A command is refused while its namespace's path is not usable, when it comes and again when its data
//!   is there. The ANA log page says what a path is before any host is told that it has changed, and a
//!   path's status never carries Do Not Retry.
//! * A command is let in by its host's rights under the namespace's reservation, when it comes and again
//!   when its data is there. A reservation command is answered when what it has changed is kept, where
//!   it is to outlive a loss of power, and hosts are offered reservations only where something keeps them.
//! * Subsystems come, change and go while hosts are connected. One is listed when every core has
//!   its devices, and its devices go when no core has a connection to it: a command that was begun
//!   finds its device. What a resize changes is in the devices before hosts are told.
//!
//! # Deliberately not here
//!
//! Where blocks go, authentication, TLS, RDMA; which of several targets owns a volume
//! (it is told by [`Target::set_path`]). The namespaces of a subsystem are fixed for its life, as are
//! their block sizes.

mod admin;
mod config;
mod connection;
mod controller;
mod core;
mod devices;
mod discovery;
mod fabrics;
mod io;
mod namespace;
mod path;
mod pulse;
mod reservation;
mod roster;
pub mod server;
mod shares;
mod slot;
mod status;
mod subsystem;
mod target;

pub use config::{HostAccess, NamespaceConfig, Shared, SubsystemConfig, Timeouts};
pub use connection::Ends;
pub use core::{Action, ConnectionId, Core, Handoff, Notice, Placing};
pub use reservation::{
    Answer, DecidedReservations, KeptReservations, News, Petition, ReservationDecider,
    ReservationKeeper, Reservations, Table, TableError, Ticket, Verdict, Wants, answer_to,
};
pub use roster::Listing;
pub use target::{ConfigError, Target};
