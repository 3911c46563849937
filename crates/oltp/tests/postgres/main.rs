//! PostgreSQL from end to end, both ways, and what is refused.

mod cluster;
mod damage;
#[path = "../damages/mod.rs"]
mod damages;
mod refusals;
mod work;
