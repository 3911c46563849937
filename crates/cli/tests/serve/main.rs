//! `ashlar serve` as a process: what it says, how it ends, and that nobody on the network can take
//! it from the others.

mod abuse;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod cores;
mod ends;
#[path = "../common/host.rs"]
mod host;
mod process;
