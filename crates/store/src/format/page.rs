use super::{FormatError, Salt};
use crate::sizes::{LEAF_GRANULES, LEAF_SLOTS};

/// "No page": the place of a page that was never written.
pub const PLACE_NONE: u64 = u64::MAX;

/// The name of a 4 KiB metadata page. `level` 0: a leaf of the volume `node`'s map, or a page of a
/// system table; level 1: a table of 128 places of level 0; level 2: of 128 of level 1. Level 2's
/// own places are in the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId {
    /// Whose: a system table (below 16), or a volume's node.
    pub node: u32,
    /// Height in the tree.
    pub level: u8,
    /// Place among its level's pages.
    pub index: u32,
}

impl PageId {
    /// The checksum under which a page with this name is kept: seeded with the name, so that
    /// another page in its place does not verify.
    pub fn crc(self, salt: Salt, page: &[u8]) -> u32 {
        unimplemented!()
    }
}

/// Where a page of the level below is. 24 bytes on disk, 128 a page at fixed offsets (3,072 bytes, the rest zero).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Its place (segment index << 16 | 4 KiB unit in the segment), or [`PLACE_NONE`].
    pub place: u64,
    /// Its checksum.
    pub crc: u32,
    /// Map changes below this sequence are in it.
    pub sequence: u64,
}

impl TableEntry {
    /// An entry without a page.
    pub const NONE: Self = Self { place: PLACE_NONE, crc: 0, sequence: 0 };
}

/// A page of 128 places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePage(pub Box<[TableEntry; 128]>);

impl TablePage {
    /// The 4,096 bytes. A place of `PLACE_NONE` is stored as zeroes (so a fresh page is all zero):
    /// store place + 1.
    pub fn encode(&self, out: &mut [u8]) {
        unimplemented!()
    }

    /// Reads 4,096 bytes that verified.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        unimplemented!()
    }
}

/// The map of 2 MiB of a mirrored volume: where each slot lives, and each granule's checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Location of each slot (segment << 12 | slot in the segment), 0 for none.
    pub locations: [u32; LEAF_SLOTS],
    /// Checksum of each granule, 0 for "reads as zeroes".
    pub crcs: [u32; LEAF_GRANULES as usize],
}

impl Leaf {
    /// A leaf of nothing.
    pub fn empty() -> Box<Self> {
        Box::new(Self { locations: [0; LEAF_SLOTS], crcs: [0; LEAF_GRANULES as usize] })
    }

    /// 4,096 bytes: the checksums (2,048), the locations (128), zeroes.
    pub fn encode(&self, out: &mut [u8]) {
        unimplemented!()
    }

    /// Reads 4,096 bytes that verified. A checksum without a location is refused.
    pub fn decode(bytes: &[u8]) -> Result<Box<Self>, FormatError> {
        unimplemented!()
    }
}
