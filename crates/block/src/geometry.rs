use std::fmt;

use crate::{BlockRange, ErrorKind, IoError};

/// Size of a logical block: the two that databases, kernels and hypervisors use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockSize {
    /// 512 bytes (what ESXi requires).
    B512,
    /// 4,096 bytes.
    B4096,
}

impl BlockSize {
    /// The size for `bytes`, if it is one of the two.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            512 => Some(Self::B512),
            4096 => Some(Self::B4096),
            _ => None,
        }
    }

    /// log2 of the size, as NVMe's LBADS has it.
    pub const fn shift(self) -> u32 {
        match self {
            Self::B512 => 9,
            Self::B4096 => 12,
        }
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

/// What a device is: its shape, its promises, its preferences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of a logical block.
    pub block_size: BlockSize,
    /// Number of blocks.
    pub blocks: u64,
    /// Largest aligned write, in blocks, that a crash or power loss leaves whole (NVMe's NAWUPF,
    /// but not zero-based). At least 1.
    pub atomic_blocks: u32,
    /// Largest request, in blocks, that a caller may submit. At least 1.
    pub max_blocks: u32,
    /// Requests of a multiple of this many blocks, so aligned, are served best. At least 1.
    pub optimal_blocks: u32,
    /// A completed write may still be in a cache that a power loss empties; `Flush` matters.
    pub volatile_cache: bool,
    /// Deallocate gives space back (otherwise it completes and does nothing).
    pub deallocates: bool,
}

impl Geometry {
    /// A geometry with no promises beyond one block: 1 MiB requests, no cache, no deallocate.
    pub fn plain(block_size: BlockSize, blocks: u64) -> Self {
        Self {
            block_size,
            blocks,
            atomic_blocks: 1,
            max_blocks: (1 << 20) >> block_size.shift(),
            optimal_blocks: 4096 >> block_size.shift(),
            volatile_cache: false,
            deallocates: false,
        }
    }

    /// Capacity in bytes.
    pub const fn bytes(&self) -> u64 {
        self.blocks << self.block_size.shift()
    }

    /// Bytes of a range.
    pub const fn range_bytes(&self, range: BlockRange) -> usize {
        (range.count as usize) << self.block_size.shift()
    }

    /// Byte offset of a range's first block.
    pub const fn range_offset(&self, range: BlockRange) -> u64 {
        range.start.0 << self.block_size.shift()
    }

    /// Refuses a range that leaves the device.
    pub fn check(&self, range: BlockRange) -> Result<(), IoError> {
        match range.end() {
            Some(end) if end <= self.blocks => Ok(()),
            _ => Err(IoError::new(
                ErrorKind::OutOfRange,
                format!("{range} on a device of {} blocks", self.blocks),
            )),
        }
    }
}
