//! draft
mod config;
mod failure;
pub mod queue_pair;
pub mod url;
pub use config::{Config, Host, Replay};
pub use failure::Failure;
