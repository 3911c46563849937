//! The daemon's control plane: what `ashlar node` is apart from its data plane.
//!
//! # Where it stands
//!
//! ```text
//! ashlar pool …, curl ─ HTTP ─▶ api ─▶ Control (a trait) ─▶ pools, volumes, target
//! Prometheus ─────────────────▶  │
//! SIGTERM ────▶ Daemon ──────────┘          DIR/state.toml ◀─ StateFile
//! ```
//!
//! No byte of a host's data passes here: a write goes from the target to the engine. This room
//! knows how one asks and orders ([`model`]), who may ([`Token`]), what is remembered across
//! restarts ([`StateFile`]), and in which order a daemon starts and ends ([`Daemon`]). It runs on
//! one tokio thread and a few blocking ones, apart from the cores that serve hosts.
//!
//! # Invariants
//!
//! 1. One daemon a directory: the lock is taken before anything else is looked at, and `ready` is
//!    said only when everything listens.
//! 2. No client without the socket's file permission or the token reaches a [`Control`].
//! 3. A file of the directory is replaced as a whole, durably, or not at all; one that is damaged
//!    is never overwritten.
//! 4. A request reaches [`Control`] only if it makes sense by itself, and is carried out to its end
//!    even if its caller goes away. [`Control::stop`] runs alone.
//! 5. The death of any part ends the daemon, in order, with exit code 1.
//!
//! # Deliberately not here
//!
//! Devices, pools and volumes themselves: [`Control`] is implemented where they are assembled. TLS:
//! on a network that is not trusted, put a proxy in front.

// What is to be said is a trace event: `eprintln` panics when nothing reads it.
#![warn(clippy::print_stderr)]

mod access;
mod alarm;
pub mod api;
mod cache;
pub mod client;
mod config;
mod control;
mod daemon;
mod dir;
mod events;
mod files;
mod manager;
pub mod model;
pub mod pool;
mod replica;
pub mod rules;
pub mod service;
mod state;
mod token;

pub mod testing;

pub use access::VolumeAccess;
pub use alarm::Alarm;
pub use cache::MarkedDevice;
pub use config::{Config, ConfigPool};
pub use control::Control;
pub use daemon::{AttachSocket, Daemon, Ready};
pub use dir::{ATTACH_SOCKET, NodeDir};
pub use events::Events;
pub use manager::{
    Dismissal, LocalRefusal, LocalUser, LocalWish, MakeLocal, OpenDevice, PoolManager,
};
pub use state::{DriveEntry, PoolEntry, ReplicaEntry, RuleEntry, State, StateFile};
pub use token::Token;

/// The target of the trace events that record orders and who gave them.
pub const ORDERS: &str = "ashlar_node::orders";
