//! Private databases as a script sees them: `ashlar lab server`, scenarios, the loss of a primary, and Ctrl-C
//! in the middle of each.

mod agents;
#[path = "../common/mod.rs"]
mod common;
mod failover;
mod interrupted;
#[path = "../common/namespace.rs"]
mod namespace;
mod rig;
mod scenarios;
mod server;
#[path = "../common/typed.rs"]
mod typed;
