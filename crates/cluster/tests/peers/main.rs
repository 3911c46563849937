//! Clusters of one process on loopback, over a quorum in memory: who is let in, who is not and why, what is answered.

#[path = "../common/mod.rs"]
mod common;
mod incarnations;
mod orders;
mod quorum;
mod refusals;
mod rig;
mod streams;
