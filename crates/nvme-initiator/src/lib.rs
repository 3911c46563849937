//! The host's side of NVMe/TCP: a remote namespace as a block device.
//!
//! # Where it stands
//!
//! A write that leaves this machine enters here as a [`Request`](ashlar_block::Request) and goes
//! down four layers, each a state machine that knows only the one below:
//!
//! ```text
//! RemoteDevice (driver)   sockets of a reactor              ◀── the only part that does I/O
//!   └─ Session (reconnect)    requests, parts, replay, flush rules, giving up
//!        └─ Association (controller)  Connect … Identify … queues, keep-alive, events, shutdown
//!             └─ QueuePair (queue_pair)  capsules, R2T, data, digests, one time-out a command
//!                  └─ nvme::stream, nvme::pdu  words
//! ```
//!
//! # Invariants
//!
//! * Everything but [`driver`] takes bytes, completions and time as parameters ([`Streams`]), so
//!   the simulator runs what ships. There is no randomness: attempts are spaced by a fixed backoff.
//! * A request completes exactly once, with its buffer, whatever the controller does. Memory that
//!   a send or a receive still uses is waited for before its request completes.
//! * What a controller sends is checked against the command it names before it is believed;
//!   violations end the association and are answered with a terminate request.
//! * No silent loss: what may not be replayed fails with
//!   [`Disconnected`](ashlar_block::ErrorKind::Disconnected), and a flush that covers writes which
//!   a lost association may have taken along fails. See [`reconnect`].
//! * No request goes out on a new association before the target has ended the lost one, where it has
//!   Cross-Controller Reset: no old write lands on a new one. See [`Replay`].
//! * With several paths, nothing that writes goes over one while a write of another's lost association may
//!   still be under way.
//! * A portal is let go only if the discovery service of a target that reaches the namespace no longer names it, and
//!   nothing is reached by it.
//! * A reservation is taken by who was asked to take it, and never again by a session that has lost it.
//! * Nothing is allocated a command in the steady state.
//!
//! # What it survives
//!
//! Loss of any connection at any byte, silence, corrupted headers and (with digests) data, a target
//! that restarts, a namespace that grows (of which only the old size is used). It does not survive another namespace under the same name: then everything fails.
//!
//! # Deliberately not here
//!
//! Spreading load over paths, authentication, TLS, fused commands, metadata.

mod config;
pub mod controller;
pub mod driver;
mod failure;
pub mod queue_pair;
pub mod reconnect;
#[cfg(test)]
mod scripted;
mod status;
mod streams;
pub mod url;

pub use config::{Config, Host, Replay};
pub use driver::{
    Acquire, PathBoard, Remote, RemoteDevice, ReservationDesk, discover, identify, local_host,
    machine_host, recorded_portals,
};
pub use failure::Failure;
pub use reconnect::PathReport;
pub use streams::{Streams, Wish};
