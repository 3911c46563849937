//! `ashlar pool` and `ashlar volume` against an API over pools that exist by name only.

#[path = "../common/mod.rs"]
mod common;
mod node;
mod pool;
mod refusals;
mod volume;
