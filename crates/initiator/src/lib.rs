//! draft
mod config;
pub mod controller;
mod failure;
pub mod queue_pair;
mod streams;
pub mod url;
pub use config::{Config, Host, Replay};
pub use failure::Failure;
pub use streams::{Streams, Wish};
