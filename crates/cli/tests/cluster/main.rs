//! Nodes of a cluster as processes: what fails under a load that checks everything, what is refused, what is left.

#![allow(clippy::print_stdout)] // Gaps, beside what they are meant to be.

mod alone;
mod attach;
#[path = "../common/mod.rs"]
mod common;
mod copies;
mod drain;
mod faults;
#[path = "../common/host.rs"]
mod host;
mod hosts;
mod join;
mod machines;
mod refusals;
mod resync;
mod rig;
mod starter;
