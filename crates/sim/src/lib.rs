//! A seeded world in which target and initiator meet over a stream that splits, delays and breaks.
//!
//! # Where it stands
//!
//! Beside a write's way, not on it: it takes the state machines that ship (the target's
//! [`Core`](ashlar_nvme_target::Core), the initiator's [`Session`](ashlar_nvme_initiator::reconnect::Session))
//! and plays everything around them: sockets, devices, threads, time, and the users' requests.
//!
//! ```text
//! load ─▶ Session ─▶ sockets ═▶ net (pipes) ═▶ cores ─▶ Core ─▶ SimDevice ─▶ medium
//!   ╰──────────────── model: what may every block hold? ◀───────────────────────╯
//! ```
//!
//! # Invariants
//!
//! * A seed and a profile determine everything that happens: a failure replays.
//! * What is broken on purpose ([`Canary`]) is broken here, never in the code that ships.
//! * What the world promises is what real networks and devices do: bytes of a connection arrive in
//!   order or not at all, connections are independent, an end may never learn of the other's; a
//!   device answers in any order and late, and applies overlapping writes block by block.
//!
//! # What is checked
//!
//! Every read against the set of values that its blocks may hold, every request answered exactly
//! once and in the end, only failures that the faults excuse, flushes that fail when acknowledged
//! writes were lost, and at the end: the medium's content, no buffer and no connection left.
//!
//! # Deliberately not here
//!
//! The reactor and the real drivers: tests over loopback have them. Threads: cores take turns.

mod bench;
mod chance;
pub mod cluster;
mod content;
mod cores;
pub mod engine;
mod env;
mod faults;
pub mod fuzzing;
mod host;
mod hosts;
mod load;
mod medium;
mod model;
mod net;
mod pipe;
mod profile;
mod report;
mod world;

pub use bench::Bench;
pub use profile::{Canary, DeviceShape, Profile};
pub use report::{Failure, Listener, Summary};
pub use world::{run, run_traced};
