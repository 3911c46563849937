//! The units of the disk format: those that never change, and those that a pool's label chooses.

use std::fmt;

/// Bytes of a granule: the unit of records, checksums and metadata places.
pub const GRANULE: usize = 4096;
/// Granules of a slot, the unit in which mirrors are allocated and destaged: 64 KiB.
pub const SLOT_GRANULES: u64 = 16;
/// Bytes of a slot.
pub const SLOT_BYTES: u64 = SLOT_GRANULES * GRANULE as u64;
/// Granules of a map leaf: 2 MiB of a volume.
pub const LEAF_GRANULES: u64 = 512;
/// Slots of a map leaf.
pub const LEAF_SLOTS: usize = (LEAF_GRANULES / SLOT_GRANULES) as usize;
/// Bytes at the start of every drive that hold its labels and roots.
pub const HEAD_BYTES: u64 = 1 << 20;
/// Bytes of one root slot.
pub const ROOT_BYTES: u64 = 256 << 10;
/// Where the two root slots begin.
pub const ROOT_AT: [u64; 2] = [256 << 10, 512 << 10];
/// Where the label lies, twice.
pub const LABEL_AT: [u64; 2] = [0, 128 << 10];

/// The sizes a pool was made with. They are in its label, so a pool of small drives (and a
/// simulated one) uses small units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// log2 of the bytes of an extent, the unit of a drive's space; 16 (64 KiB) to 26.
    pub extent_shift: u8,
    /// Extents of a log chunk on each of its drives.
    pub chunk_extents: u32,
    /// Chunks of the data ring; at least 3.
    pub ring_chunks: u32,
    /// Chunks of the map log; at least 3.
    pub map_chunks: u32,
    /// Slots of a mirror segment, and the 64 KiB units of a metadata segment; 1 to 512, a whole
    /// number of extents.
    pub segment_slots: u32,
    /// Most bytes of one log batch, a multiple of 4 KiB; at least 128 KiB, at most a quarter of a
    /// chunk and 1 MiB.
    pub batch_bytes: u32,
}

impl Sizes {
    /// Sizes for a pool whose smallest drive has `bytes`, `None` when it is too small (below
    /// 64 MiB) to hold its own logs. The two logs take about a sixteenth of a small drive, 4 GiB
    /// and 1 GiB at most.
    pub fn for_drive(bytes: u64) -> Option<Self> {
        if bytes < 64 << 20 {
            return None;
        }
        let chunk = (bytes / 256).next_power_of_two().clamp(1 << 20, 64 << 20);
        let ring_chunks = (bytes / 16 / chunk).clamp(4, 64) as u32;
        let extent_shift: u8 = if chunk >= 16 << 20 { 22 } else { 20 };
        Some(Self {
            extent_shift,
            chunk_extents: (chunk >> extent_shift) as u32,
            ring_chunks,
            map_chunks: (ring_chunks / 4).max(3),
            segment_slots: if chunk >= 16 << 20 { 512 } else { 64 },
            batch_bytes: (chunk / 4).min(1 << 20) as u32,
        })
    }

    /// Bytes of an extent.
    pub const fn extent_bytes(&self) -> u64 {
        1 << self.extent_shift
    }

    /// Bytes of a log chunk.
    pub const fn chunk_bytes(&self) -> u64 {
        (self.chunk_extents as u64) << self.extent_shift
    }

    /// Bytes of a segment's column on one drive.
    pub const fn segment_bytes(&self) -> u64 {
        self.segment_slots as u64 * SLOT_BYTES
    }

    /// Extents of a segment's column.
    pub const fn segment_extents(&self) -> u32 {
        (self.segment_bytes() >> self.extent_shift) as u32
    }

    /// Extents of a drive of `bytes`, and the first byte they begin at.
    pub const fn drive_extents(&self, bytes: u64) -> u32 {
        (bytes.saturating_sub(HEAD_BYTES) >> self.extent_shift) as u32
    }

    /// The byte at which an extent begins.
    pub const fn extent_at(&self, extent: u32) -> u64 {
        HEAD_BYTES + ((extent as u64) << self.extent_shift)
    }

    /// Refuses sizes that break the rules above, naming the one.
    pub fn check(&self) -> Result<(), BadSizes> {
        let bad = |what| Err(BadSizes(what));
        if !(16..=26).contains(&self.extent_shift) {
            return bad("extent size");
        }
        if self.chunk_extents == 0 || self.chunk_extents > 4096 {
            return bad("chunk size");
        }
        if !(3..=1024).contains(&self.ring_chunks) || !(3..=1024).contains(&self.map_chunks) {
            return bad("number of log chunks");
        }
        let slots = self.segment_slots;
        if !(1..=512).contains(&slots) || !self.segment_bytes().is_multiple_of(self.extent_bytes())
        {
            return bad("segment size");
        }
        let batch = u64::from(self.batch_bytes);
        let aligned = batch.is_multiple_of(GRANULE as u64);
        if !aligned || !(128 << 10..=1 << 20).contains(&batch) || batch * 4 > self.chunk_bytes() {
            return bad("batch size");
        }
        Ok(())
    }
}

/// A size in a label or plan that the engine cannot work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSizes(pub(crate) &'static str);

impl fmt::Display for BadSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool's {} is out of bounds", self.0)
    }
}

impl std::error::Error for BadSizes {}
