use std::ops::Range;

use ashlar_block::BufferPool;
use ashlar_reactor::{File, RecvFrame, SendBatch};

use crate::core::ConnectionId;

/// Staging memory of a connection until it carries an I/O queue.
pub(super) const GREETING_BYTES: usize = 8 << 10;
/// Staging memory of an I/O queue: room for a batch of reads, or a few 4 KiB writes.
pub(super) const QUEUE_BYTES: usize = 32 << 10;
/// Staging memory of an I/O queue that has filled that: a receive and a send, which are what a small
/// command costs most of, then serve four times as many.
pub(super) const BUSY_QUEUE_BYTES: usize = 128 << 10;

/// A connection's socket, and what is or may be lent to the ring for it.
pub(super) struct Socket {
    pub(super) file: File,
    pub(super) connection: ConnectionId,
    /// Absent while a receive is in flight.
    pub(super) frame: Option<Box<RecvFrame>>,
    /// Bytes in the frame's staging that the connection has not taken yet.
    pub(super) staged: Range<usize>,
    /// The last receive filled its staging: more would have come with more room.
    pub(super) cramped: bool,
    /// Absent while a send is in flight.
    pub(super) batch: Option<Box<SendBatch>>,
    /// The core that this connection is to move to, once no send is in flight.
    pub(super) moving: Option<usize>,
    /// Whether the core it is on counts it as an I/O queue.
    pub(super) placed: bool,
    pub(super) closed: bool,
}

impl Socket {
    /// A socket with `staging_bytes` of staging; `None` when there is no memory for it.
    pub(super) fn new(
        file: File,
        connection: ConnectionId,
        buffers: &BufferPool,
        staging_bytes: usize,
    ) -> Option<Self> {
        Some(Self {
            file,
            connection,
            frame: Some(RecvFrame::new(buffers.get(staging_bytes)?)),
            staged: 0..0,
            cramped: false,
            batch: Some(SendBatch::new()),
            moving: None,
            placed: false,
            closed: false,
        })
    }

    /// Whether nothing of it is lent to the ring.
    pub(super) fn is_idle(&self) -> bool {
        self.frame.is_some() && self.batch.is_some()
    }
}
