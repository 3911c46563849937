//! Private databases as a script sees them: `ashlar lab server`, scenarios, the loss of a primary, and Ctrl-C
//! in the middle of each.

#![allow(clippy::print_stderr)] // Why tests were skipped.

mod failover;
mod interrupted;
mod rig;
mod scenarios;
mod server;
