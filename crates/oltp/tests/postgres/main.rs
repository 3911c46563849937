//! PostgreSQL from end to end, both ways, and what is refused.

mod cluster;
mod damage;
#[path = "../damages/mod.rs"]
mod damages;
#[path = "../fingerprint/mod.rs"]
mod fingerprint;
mod refusals;
mod versus;
mod work;
