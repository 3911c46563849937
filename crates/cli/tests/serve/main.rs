//! `ashlar serve` as a process: what it prints, how it ends, and that no host on the network can keep
//! others from it.

mod abuse;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod cores;
mod ends;
#[path = "../common/host.rs"]
mod host;
mod process;
