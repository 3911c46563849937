//! A seeded world around the replication protocol: the state machines that ship, on two or three nodes, with
//! simulated stores, wires, clocks, hosts and a quorum.
//!
//! ```text
//! hosts ─▶ Replica ─▶ Store (content by granule, records, planes, entry)
//!            │ ▲
//!       wires: late, lost with their session, cut in one direction
//!            ▼ │
//!          Replica …                     quorum: slow, away, silent about outcomes
//! ```
//!
//! # What is checked, after every event that can break it
//!
//! The invariants of `ashlar_replica`, by number:
//!
//! * 1 and 6: a reader that reads always, from every node that would serve it, sees what an order of the writes
//!   explains, and it stays seen; so does every read of a host. What every stored in-sync member holds is such a value.
//! * 2: one owner an epoch; one serves.
//! * 3 and 4: copies differ only where one is uncertain, absent ones only there or where a plane says so.
//! * 5: while an owner relies on a grant, its grantor does not serve.
//! * Reservations, in some worlds: nothing that a host has sent takes effect once an owner has committed that the host
//!   has lost its rights, or has read so; whichever node reports them, it reports what the register holds.
//! * 7 and 9: when faults have ended, all writes are done, all members in sync, quiet and equal.
//!
//! # What stores do
//!
//! They finish in any order and late, what was given to them in pieces. A crash loses what was on its way, or
//! keeps it in part, and what was learned and not written. In some worlds each store is the engine that ships
//! (`pool`), on drives that answer late and in pieces; a crash tears what was on its way to them and, with the power,
//! loses what was not flushed.

mod asks;
mod backing;
mod check;
mod faults;
mod hosts;
mod model;
mod node;
mod pool;
mod profile;
mod report;
mod run;
mod store;
mod wires;
mod world;

pub use ashlar_replica::Canary;
pub use faults::{Blow, Lure, Occasion};
pub use profile::Profile;
pub use report::Summary;
pub use run::{Strike, run, run_struck, run_traced, steps};
