use std::fmt;

/// A logical block address: the index of a block, not a byte offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LBA {}", self.0)
    }
}

/// A run of blocks: `count` blocks from `start` on. Empty only for a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockRange {
    /// First block.
    pub start: Lba,
    /// Number of blocks.
    pub count: u32,
}

impl BlockRange {
    /// `count` blocks from `start` on.
    pub const fn new(start: u64, count: u32) -> Self {
        Self {
            start: Lba(start),
            count,
        }
    }

    /// One past the last block; `None` if that is beyond 64 bits.
    pub const fn end(self) -> Option<u64> {
        self.start.0.checked_add(self.count as u64)
    }

    /// Whether the two share a block.
    pub fn overlaps(self, other: BlockRange) -> bool {
        let end = |r: BlockRange| r.end().unwrap_or(u64::MAX);
        self.start.0 < end(other) && other.start.0 < end(self)
    }
}

impl fmt::Display for BlockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blocks {}+{}", self.start.0, self.count)
    }
}
