//! The engine on drives in memory, step by step; what is random, the simulator does.
//!
//! One program: what all of them share is compiled once.
#![allow(clippy::unwrap_used)]

mod classes;
mod common;
mod discard;
mod engine;
mod evict;
mod features;
mod full;
mod grain;
mod half;
mod import;
mod impossible;
mod leave;
mod leaving;
mod leaving_blind;
mod lost;
mod pace;
mod parity;
mod raise;
mod readmit;
mod release;
mod replica;
mod reserve;
mod resume;
mod room;
mod rot;
mod salvage;
mod short;
mod sparse;
mod stop;
mod strangers;
mod stripe;
mod tiers;
mod volumes;
