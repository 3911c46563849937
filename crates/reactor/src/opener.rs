use ashlar_block::{BlockDevice, Description, Geometry, IoError};

use crate::Handle;

/// A device that every core opens for itself.
///
/// The opener is shared among threads and holds what they have in common (a path, a size, the
/// memory of a memory device); what [`open`](Self::open) gives belongs to the calling thread.
pub trait Opener: Send + Sync {
    /// The shape and promises that every opened object will have.
    fn geometry(&self) -> Geometry;

    /// Opens the device on the calling thread's reactor.
    fn open(&self, reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError>;

    /// What the device is made of.
    fn describe(&self) -> Description;

    /// What names it in all the world, of each device below it that says so itself: a remote namespace does. What has a path
    /// on this machine is named by that.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}
