//! The life of `ashlar node` as a process, under a load that knows what it was promised: killed and
//! started again, drives that die, lie, come and go, pools that fill up.
//!
//! Random choices come from a seed that is printed; `ASHLAR_SEED=N` repeats it (as far as the
//! machine's timing does), `ASHLAR_SOAK=1` runs the long rounds.

#![allow(clippy::print_stdout)] // The seed, which cargo shows when a test fails.

mod busy;
mod cache;
mod cache_deletion;
mod cache_devices;
#[path = "../common/mod.rs"]
mod common;
mod drives;
mod full;
mod host;
mod hosts;
mod hung;
mod imports;
mod kill;
mod ledger;
mod load;
mod log;
mod loss;
mod node;
mod random;
mod refusals;
mod restarts;
mod shown;
mod sizes;
mod states;
mod tiers;
mod warm;
#[path = "../common/host.rs"]
mod wire;
