//! `ashlar attach` and `ashlar detach` for real: root, FUSE and loop devices, a daemon and its volume, and
//! kill -9 for everything in turn.
//!
//! Without root or /dev/fuse the tests say so and pass; not where `CI` is set, which has both.

#![allow(clippy::print_stderr)] // Why tests were skipped, and what was left when one failed.

mod cached;
mod cached_database;
#[path = "../common/mod.rs"]
mod common;
mod crashes;
mod database;
mod faults;
mod fleet;
mod full;
mod honesty;
mod life;
mod owner;
mod parting;
mod paths;
mod refusals;
mod rig;
mod silent;
mod stress;
#[path = "../common/typed.rs"]
mod typed;
