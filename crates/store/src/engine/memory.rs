//! Memory for I/O, and the bound that an owner has set.

use ashlar_block::{BufferPool, IoBuffer};

/// What the engine may take of memory.
pub(super) struct Memory {
    buffers: BufferPool,
    /// Bytes of I/O that the engine counts on.
    io_bytes: usize,
}

impl Memory {
    /// So many bytes for I/O, of the owner's memory if it is given.
    pub(super) fn new(io_bytes: usize, buffers: Option<BufferPool>) -> Self {
        Self {
            // What drives keep that do not answer comes on top.
            buffers: buffers.unwrap_or_else(|| BufferPool::new(2 * io_bytes)),
            io_bytes,
        }
    }

    pub(super) fn get(&self, bytes: usize) -> Option<IoBuffer> {
        self.buffers.get(bytes)
    }

    /// Bytes that are handed out.
    pub(super) fn outstanding_bytes(&self) -> usize {
        self.buffers.outstanding_bytes()
    }

    /// Bytes of I/O that the engine counts on.
    pub(super) const fn io_bytes(&self) -> usize {
        self.io_bytes
    }
}
