//! A request as the NVMe commands that carry it out: one, or several in turn.

use std::time::Duration;

use ashlar_block::{
    BlockRange, BufferPool, Durability, ErrorKind, Geometry, IoBuffer, IoError, Moment, Operation,
    Request,
};
use ashlar_nvme::Command;
use ashlar_nvme::command::{DsmRange, SglDescriptor};

use crate::queue_pair::Data;

/// Most bytes of zeroes written by one command where Write Zeroes must be emulated.
const ZEROES_BYTES: u32 = 256 << 10;

/// A request on its way.
#[derive(Debug)]
pub(super) struct Pending {
    pub request: Request,
    /// Blocks that earlier parts have dealt with.
    pub done: u32,
    /// Blocks of the part that is out.
    pub part: u32,
    /// A part may have reached the target.
    pub sent: bool,
    /// How often an answer failed to come in time.
    pub timeouts: u32,
    /// How often the target asked for another try.
    pub retries: u32,
    /// Since when paths have refused it.
    pub refused_since: Option<Moment>,
    /// A flush's number, see [`Unflushed`](super::Unflushed).
    pub flush: u64,
}

impl Pending {
    pub(super) fn new(request: Request) -> Self {
        Self {
            request,
            done: 0,
            part: 0,
            sent: false,
            timeouts: 0,
            retries: 0,
            refused_since: None,
            flush: 0,
        }
    }

    /// Whether it may look for another path, after paths have refused it for some time.
    pub(super) fn may_wait(&mut self, now: Moment, limit: Duration) -> bool {
        now < *self.refused_since.get_or_insert(now) + limit
    }

    /// Blocks not yet dealt with.
    pub(super) fn left(&self) -> u32 {
        self.request.range.count - self.done
    }
}

/// What the parts of requests depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub nsid: u32,
    pub geometry: Geometry,
    pub writes_zeroes: bool,
}

impl Shape {
    /// Whether the operation needs no command at all.
    pub(super) fn is_nothing(&self, request: &Request) -> bool {
        match request.op {
            Operation::Flush => !self.geometry.volatile_cache,
            Operation::Deallocate => !self.geometry.deallocates || request.range.count == 0,
            Operation::WriteZeroes { .. } => request.range.count == 0,
            Operation::Read | Operation::Write(_) => false,
        }
    }

    /// The next command of a request; a read's or write's buffer goes with it.
    pub(super) fn next(
        &self,
        pending: &mut Pending,
        pool: &BufferPool,
    ) -> Result<(Command, Data), IoError> {
        let range = pending.request.range;
        let start = range.start.0 + u64::from(pending.done);
        let left = pending.left();
        let no_data = SglDescriptor::transport(0);
        Ok(match pending.request.op {
            Operation::Read => {
                pending.part = left;
                let command = Command::read(self.nsid, start, left, no_data);
                (command, Data::ToHost(own_buffer(&mut pending.request)?))
            }
            Operation::Write(durability) => {
                pending.part = left;
                let command = Command::write(self.nsid, start, left, no_data);
                let data = Data::ToController(own_buffer(&mut pending.request)?);
                (with_durability(command, durability), data)
            }
            Operation::Flush => (Command::flush(self.nsid), Data::None),
            Operation::WriteZeroes {
                durability,
                deallocate,
            } if self.writes_zeroes => {
                pending.part = left.min(self.geometry.max_blocks);
                let command = Command::write_zeroes(self.nsid, start, pending.part, deallocate);
                (with_durability(command, durability), Data::None)
            }
            Operation::WriteZeroes { durability, .. } => {
                let block_size = self.geometry.block_size;
                let most = self
                    .geometry
                    .max_blocks
                    .min(ZEROES_BYTES >> block_size.shift());
                pending.part = left.min(most);
                let bytes = self.geometry.range_bytes(BlockRange::new(0, pending.part));
                let mut zeroes = scratch(pool, bytes)?;
                zeroes.fill(0);
                let command = Command::write(self.nsid, start, pending.part, no_data);
                (
                    with_durability(command, durability),
                    Data::ToController(zeroes),
                )
            }
            Operation::Deallocate => {
                pending.part = left;
                let mut list = scratch(pool, DsmRange::BYTES)?;
                list.copy_from_slice(DsmRange::new(start, left).as_wire());
                (
                    Command::deallocate(self.nsid, 1, no_data),
                    Data::ToController(list),
                )
            }
        })
    }
}

fn with_durability(command: Command, durability: Durability) -> Command {
    match durability {
        Durability::Durable => command.with_fua(),
        Durability::Cached => command,
    }
}

fn own_buffer(request: &mut Request) -> Result<IoBuffer, IoError> {
    let missing = || IoError::new(ErrorKind::InvalidRequest, "a request without its buffer");
    request.buffer.take().ok_or_else(missing)
}

fn scratch(pool: &BufferPool, bytes: usize) -> Result<IoBuffer, IoError> {
    let exhausted = || IoError::new(ErrorKind::Exhausted, "buffers for commands");
    pool.get(bytes).ok_or_else(exhausted)
}
