//! A file or block device: `options` say which and how, `open` makes sure of it, `lock` keeps others
//! out, `limits` finds out what the kernel demands, `queue` does the I/O, through io_uring or, where
//! that is a copy in memory, at once; `zero` the part of it that has several steps, `fault` turns the
//! system's errors into the contract's.

mod fault;
mod limits;
mod lock;
mod open;
mod options;
mod queue;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ashlar_block::{BlockDevice, BlockSize, Description, ErrorKind, Geometry, IoError};
use ashlar_reactor::{Handle, Opener};

use crate::{OpenError, SizeText};
pub use options::FileOptions;

/// A file or block device, opened and locked; each core gets a queue of its own.
///
/// A file has a volatile cache; a block device has one if the kernel says so. After a flush or a
/// durable write has failed, all queues refuse everything: the kernel reports such a failure once,
/// and what it dropped it will not write again.
pub struct FileDevice(Arc<Medium>);

/// What all queues share.
struct Medium {
    fd: OwnedFd,
    name: String,
    geometry: Geometry,
    /// What a buffer's address must be a multiple of; 1 for buffered I/O.
    memory_align: usize,
    direct: bool,
    block_device: bool,
    /// A file of tmpfs.
    in_memory: bool,
    latched: AtomicBool,
    /// The kernel has refused to zero or to punch; do not ask it again.
    no_zero_range: AtomicBool,
    no_punch_hole: AtomicBool,
}

impl FileDevice {
    /// Opens `options.path`, creating and allocating it when a size is given and it does not
    /// exist; takes the lock that keeps other processes out.
    ///
    /// # Errors
    /// Whatever is wrong with the path, its size, its space, its alignment, or its users; the text
    /// names the path.
    pub fn open(options: &FileOptions, block_size: BlockSize) -> Result<Arc<Self>, OpenError> {
        Ok(Arc::new(Self(Arc::new(open::open(options, block_size)?))))
    }
}

impl Medium {
    fn is_latched(&self) -> bool {
        self.latched.load(Ordering::Acquire)
    }

    fn latch(&self) {
        self.latched.store(true, Ordering::Release);
    }

    fn latched_error(&self) -> IoError {
        let context = format!("{}: an earlier flush or durable write failed", self.name);
        IoError::new(ErrorKind::Latched, context)
    }

    fn describe(&self) -> Description {
        let kind = if self.block_device {
            "block device"
        } else {
            "file"
        };
        let how = if self.direct { "direct" } else { "buffered" };
        Description::leaf(format!(
            "{kind} {}, {}, {}-byte blocks, {how}",
            self.name,
            SizeText(self.geometry.bytes()),
            self.geometry.block_size
        ))
    }
}

impl Opener for FileDevice {
    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    fn open(&self, reactor: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
        Ok(Box::new(queue::FileQueue::new(self.0.clone(), reactor)?))
    }

    fn describe(&self) -> Description {
        self.0.describe()
    }
}
