//! The units of the disk format: those that never change, and those that a pool's label chooses.

use std::fmt;
use std::ops::Range;

/// Bytes of a granule: the unit of records, checksums and metadata places.
pub const GRANULE: usize = 4096;
/// Granules of a unit, 64 KiB aligned: a write inside one is there as a whole or not at all. Also
/// the largest slot.
pub const UNIT_GRANULES: u64 = 16;
/// Bytes of a unit.
pub const UNIT_BYTES: u64 = UNIT_GRANULES * GRANULE as u64;
/// Granules of a map leaf: 2 MiB of a volume.
pub const LEAF_GRANULES: u64 = 512;
/// Most slots of a map leaf.
pub const LEAF_SLOTS: usize = Grain::K8.slots_a_leaf();
/// Bytes at the start of every drive that hold its labels and roots.
pub const HEAD_BYTES: u64 = 1 << 20;
/// Bytes of one root slot.
pub const ROOT_BYTES: u64 = 256 << 10;
/// Where the two root slots begin.
pub const ROOT_AT: [u64; 2] = [256 << 10, 512 << 10];
/// Where the label lies, twice.
pub const LABEL_AT: [u64; 2] = [0, 128 << 10];

/// The size of a volume's slots: what is allocated, and with parity written, as a whole. A slot has
/// its natural alignment, so it is inside one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grain(u8);

impl Grain {
    /// 8 KiB.
    pub const K8: Self = Self(1);
    /// 16 KiB.
    pub const K16: Self = Self(2);
    /// 32 KiB.
    pub const K32: Self = Self(3);
    /// 64 KiB.
    pub const K64: Self = Self(4);
    /// All there are, smallest first.
    pub const ALL: [Self; 4] = [Self::K8, Self::K16, Self::K32, Self::K64];

    /// The grain of so many bytes; `None` if there is no such grain.
    pub fn of_bytes(bytes: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|grain| grain.bytes() == bytes)
    }

    /// What stands for it on drives: 0 for 64 KiB, else log2 of its granules.
    pub const fn code(self) -> u8 {
        self.0 % Self::K64.0
    }

    /// The grain that a byte on a drive stands for.
    pub const fn of_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::K64),
            1..=3 => Some(Self(code)),
            _ => None,
        }
    }

    /// Granules of a slot: 2 to 16.
    pub const fn granules(self) -> u64 {
        1 << self.0
    }

    /// Bytes of a slot.
    pub const fn bytes(self) -> u64 {
        self.granules() * GRANULE as u64
    }

    /// The slot that a granule of a volume is in.
    pub const fn slot_of(self, granule: u64) -> u64 {
        granule >> self.0
    }

    /// Which granule of its slot a granule of a volume is.
    pub const fn inner(self, granule: u64) -> usize {
        (granule & (self.granules() - 1)) as usize
    }

    /// The first granule of a slot.
    pub const fn first(self, slot: u64) -> u64 {
        slot << self.0
    }

    /// The granules of a slot.
    pub const fn range(self, slot: u64) -> Range<u64> {
        self.first(slot)..self.first(slot + 1)
    }

    /// The slots that these granules touch.
    pub const fn slots_of(self, granules: Range<u64>) -> Range<u64> {
        self.slot_of(granules.start)..self.slot_of(granules.end + self.granules() - 1)
    }

    /// Whether a range of granules is whole slots.
    pub const fn divides(self, granules: &Range<u64>) -> bool {
        self.inner(granules.start) == 0 && self.inner(granules.end) == 0
    }

    /// Slots of a unit of 64 KiB: 1 to 8.
    pub const fn a_unit(self) -> usize {
        1 << (Self::K64.0 - self.0)
    }

    /// Slots of a map leaf: 32 to 256.
    pub const fn slots_a_leaf(self) -> usize {
        (LEAF_GRANULES >> self.0) as usize
    }

    /// Which slot of its map leaf a slot of a volume is.
    pub const fn in_leaf(self, slot: u64) -> usize {
        slot as usize % self.slots_a_leaf()
    }
}

impl fmt::Display for Grain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB", self.bytes() >> 10)
    }
}

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
    /// Slots of 64 KiB of a mirror segment, and the 64 KiB units of a metadata segment; 1 to 512, a
    /// whole number of extents. There are as many more of smaller slots.
    pub segment_slots: u32,
    /// Most bytes of one log batch, a multiple of 4 KiB; at least 128 KiB, at most a quarter of a
    /// chunk and 1 MiB.
    pub batch_bytes: u32,
}

impl Sizes {
    /// Sizes for a pool whose smallest drive has `bytes`, `None` when it is too small (below
    /// 64 MiB) to hold its own logs. The data ring takes a sixteenth of a small drive, 4 GiB at most, the map
    /// log a fourth of that and a 512th of a large drive, 4 GiB at most: the more of a drive's map it holds, the
    /// less has to go to pages.
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
            map_chunks: (bytes / 512 / chunk).clamp((ring_chunks / 4).max(3).into(), 64) as u32,
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
        self.segment_slots as u64 * UNIT_BYTES
    }

    /// Slots of a segment whose slots have this grain, at most 4,096.
    pub const fn slots(&self, grain: Grain) -> u32 {
        self.segment_slots * grain.a_unit() as u32
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_grow_with_drives_up_to_4_gib() {
        let map_bytes = |sizes: &Sizes| sizes.chunk_bytes() * u64::from(sizes.map_chunks);
        for shift in 26..46 {
            let drive = 1_u64 << shift;
            let sizes = Sizes::for_drive(drive).expect("large enough");
            assert!(sizes.check().is_ok(), "{sizes:?}");
            let logs = sizes.chunk_bytes() * u64::from(sizes.ring_chunks) + map_bytes(&sizes);
            assert!(logs <= (drive / 8).min(8 << 30), "{shift}: {logs}");
        }
        let map_gib = |drive| Sizes::for_drive(drive).map(|sizes| map_bytes(&sizes) >> 30);
        let drives = [64 << 30, 512 << 30, 1 << 40, 2 << 40, 16 << 40];
        assert_eq!(drives.map(map_gib), [1, 1, 2, 4, 4].map(Some));
        assert_eq!(Sizes::for_drive((64 << 20) - 1), None);
    }
}
