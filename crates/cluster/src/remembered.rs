use std::path::Path;

use ashlar_replica::Incarnation;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::problem::Problem;

/// What a node remembers of its cluster, in `DIR/incarnation`: so that a quorum that was emptied or restored from a
/// backup is noticed, and a parent knows whose death it certifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remembered {
    /// Which cluster it was.
    pub cluster: Option<Uuid>,
    /// The process that wrote it.
    pub incarnation: Incarnation,
    /// What the parent of that process called it.
    #[serde(default)]
    pub run: Option<Uuid>,
}

impl Remembered {
    /// What the directory of a node holds; nothing is remembered if there is no file.
    ///
    /// # Errors
    /// Environment: there is one, and it cannot be read.
    pub fn read(dir: &Path) -> Result<Self, Problem> {
        let _ = dir;
        Err(Problem::internal("not there yet"))
    }

    /// Replaces it, durably, as a whole.
    ///
    /// # Errors
    /// Environment: it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), Problem> {
        let _ = dir;
        Err(Problem::internal("not there yet"))
    }
}
