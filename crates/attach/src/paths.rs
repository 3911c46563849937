//! By which paths a volume is reached, as its server tells.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

/// A path to an attached volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathStatus {
    /// `host:port`.
    pub address: String,
    /// `optimized`, `non-optimized`, `inaccessible`, `changing`, …, by its target's word; `down` without a
    /// connection.
    pub state: String,
    /// Requests go this way.
    pub in_use: bool,
    /// Why there is no connection.
    #[serde(default)]
    pub failure: Option<String>,
}

/// Knows by which paths a volume is reached.
pub trait Paths: Debug + Send + Sync {
    /// The paths, as they are now.
    fn paths(&self) -> Vec<PathStatus>;

    /// Why all I/O fails, if another host has taken the volume over.
    fn fenced(&self) -> Option<String>;
}
