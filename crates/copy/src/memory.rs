//! Memory for a copy's commands: that of its core, and a little of its own for when hosts' commands have all of that.

use ashlar_block::{BufferPool, IoBuffer, REGION_BYTES};
use bytes::Bytes;

use crate::lent::Lent;

/// Memory for commands of one copy.
///
/// Hosts' commands wait in the core's memory until the copy has done its part, and a region there takes buffers of
/// another size only when it is wholly idle: without memory of its own a copy could wait for ever for commands that wait
/// for it. What is taken of its own memory comes back when a command ends, whatever others do.
#[derive(Debug)]
pub(crate) struct Memory {
    core: BufferPool,
    /// All its buffers are of the largest command's size: whichever is free is fit for any.
    own: BufferPool,
    /// Bytes of the largest command.
    largest: usize,
    lent: Lent,
}

impl Memory {
    pub(crate) fn new(core: BufferPool, largest: usize) -> Self {
        Self {
            core,
            own: BufferPool::new(REGION_BYTES),
            largest,
            lent: Lent::default(),
        }
    }

    /// A buffer of `bytes`, if there is one.
    pub(crate) fn get(&self, bytes: usize) -> Option<IoBuffer> {
        let own = || {
            let mut buffer = self.own.get(self.largest)?;
            buffer.truncate(bytes);
            Some(buffer)
        };
        self.core.get(bytes).or_else(own)
    }

    /// What was read, for those who keep it as long as they like.
    pub(crate) fn pass_on(&mut self, buffer: IoBuffer) -> Bytes {
        let (pool, _) = buffer.registration();
        match pool == self.own.id() {
            true => Bytes::copy_from_slice(&buffer),
            false => self.lent.lend(buffer),
        }
    }

    /// The buffer that `bytes` are, if they are all of one that was passed on.
    ///
    /// # Errors
    /// The bytes, if they are not, or still shared.
    pub(crate) fn take_back(&mut self, bytes: Bytes) -> Result<IoBuffer, Bytes> {
        self.lent.take_back(bytes)
    }
}
