//! An image of a Ceph cluster, by its library. Built with the feature `rbd` only; the text is known always.

#[cfg(feature = "rbd")]
mod ffi;
#[cfg(feature = "rbd")]
mod image;
#[cfg(feature = "rbd")]
mod queue;
#[cfg(all(test, feature = "rbd"))]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ashlar_block::BlockSize;
use ashlar_reactor::Opener;

use crate::OpenError;

/// Which image, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbdName {
    pub pool: String,
    /// The image in it.
    pub image: String,
    /// The cluster's configuration; where Ceph's tools look for it, without one.
    pub conf: Option<PathBuf>,
    /// Whose key is used: `client.ID`.
    pub id: Option<String>,
}

impl fmt::Display for RbdName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rbd:{}/{}", self.pool, self.image)
    }
}

/// Opens an image.
#[cfg(feature = "rbd")]
pub(crate) fn open(name: &RbdName, block_size: BlockSize) -> Result<Arc<dyn Opener>, OpenError> {
    Ok(queue::Rbd::open(name, block_size)?)
}

/// Says that this program cannot.
#[cfg(not(feature = "rbd"))]
pub(crate) fn open(name: &RbdName, _: BlockSize) -> Result<Arc<dyn Opener>, OpenError> {
    Err(OpenError::environment(
        format!("`{name}`"),
        "this program was built without Ceph: build it with --features rbd",
    ))
}
