//! PostgreSQL from end to end, both ways, and what is refused.

mod cluster;
mod damage;
mod refusals;
mod work;
