//! Nodes of a cluster as processes: what fails under a load that checks everything, what is refused, what is left.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod refusals;
mod rig;
mod starter;
