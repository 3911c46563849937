use std::fmt;

use ashlar_block::IoError;

use crate::format::{FormatError, PageId};

/// Why a pool cannot be made or imported.
#[derive(Debug)]
#[non_exhaustive]
pub enum PoolError {
    /// The plan makes no sense.
    Plan(String),
    /// What the drives hold does not add up to a pool: what, and what to do.
    Refused(String),
    /// What the drives hold is damaged beyond what the pool's redundancy covers; nothing was
    /// changed.
    Damaged(String),
    /// A drive's label was written by another version: the drive may be in order, so the pool does not go
    /// on without it.
    Version(String),
    /// A drive failed.
    Io(IoError),
}

impl PoolError {
    pub(crate) fn plan(why: String) -> Self {
        Self::Plan(why)
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(why) | Self::Refused(why) | Self::Version(why) => write!(f, "{why}"),
            Self::Damaged(why) => write!(f, "damaged: {why}"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for PoolError {}

impl From<IoError> for PoolError {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

impl From<FormatError> for PoolError {
    fn from(error: FormatError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// A page of the map of which no copy is left, and where there should be one.
pub(crate) fn lost_page(id: PageId, places: impl Iterator<Item = String>) -> String {
    let places: Vec<String> = places.collect();
    let PageId { node, level, index } = id;
    format!(
        "page {index} of node {node}, level {level}, of the pool's map cannot be read on {}",
        places.join(", nor on ")
    )
}
