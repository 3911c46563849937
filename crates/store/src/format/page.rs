use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bytes::{Reader, append, counter, ensure, zeroes};
use super::{FormatError, Salt};
use crate::sizes::{GRANULE, Grain, LEAF_GRANULES, LEAF_SLOTS, UNIT_GRANULES};

const TABLE: &str = "table page";
const LEAF: &str = "map leaf";
/// Most units of a segment, by the bounds of [`crate::Sizes`].
const SEGMENT_UNITS: u32 = 512;

/// The checksum of a block that is lost: what it held is not known any more, and it reads as an error until it is
/// written. Only in a leaf that says that it has such blocks; nothing but chance makes other bytes verify.
pub const LOST_CRC: u32 = u32::from_le_bytes(*b"LOST");

/// Version of a leaf that has lost blocks; 0 of all others.
const WITH_LOST: u8 = 1;

/// Whether `location` can name a slot: segment 0 is never used, so that 0 can stand for "none".
pub(super) fn is_location(location: u32) -> bool {
    location >> 12 != 0
}

/// The same, of a slot of this grain: no segment has more than 512 units of 64 KiB.
fn is_location_of(grain: Grain, location: u32) -> bool {
    is_location(location) && location & 0xfff < SEGMENT_UNITS * grain.a_unit() as u32
}

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
        let name = RawPageId {
            node: self.node.into(),
            index: self.index.into(),
            level: u32::from(self.level).into(),
        };
        Salt(append(salt.0, name.as_bytes())).crc(page)
    }
}

/// Where a page of the level below is. 24 bytes on disk, 128 a page at fixed offsets (3,072 bytes, the rest zero).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Its place (segment index << 16 | 4 KiB unit in the segment), or [`PLACE_NONE`].
    pub place: u64,
    pub crc: u32,
    /// Map changes below this sequence are in it.
    pub sequence: u64,
    /// Slots that have homes in it, if it is a leaf; otherwise 0.
    pub slots: u16,
    /// Blocks of it that are lost, if it is a leaf; otherwise 0.
    pub lost: u16,
}

impl TableEntry {
    /// An entry without a page.
    pub const NONE: Self = Self {
        place: PLACE_NONE,
        crc: 0,
        sequence: 0,
        slots: 0,
        lost: 0,
    };

    /// The segment of its place, unless it has none.
    pub(super) fn segment(&self) -> Option<u64> {
        (self.place != PLACE_NONE).then_some(self.place >> 16)
    }
}

/// What a page's checksum begins with.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct RawPageId {
    node: U32,
    index: U32,
    level: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawTableEntry {
    place_and_one: U64,
    sequence: U64,
    crc: U32,
    slots: U16,
    lost: U16,
}

const _: () = assert!(size_of::<RawTableEntry>() == 24);

impl From<&TableEntry> for RawTableEntry {
    /// Without a page, the rest of the entry says nothing and is stored as zeroes.
    fn from(entry: &TableEntry) -> Self {
        let entry = if entry.place == PLACE_NONE {
            &TableEntry::NONE
        } else {
            entry
        };
        Self {
            place_and_one: entry.place.wrapping_add(1).into(),
            sequence: entry.sequence.into(),
            crc: entry.crc.into(),
            slots: entry.slots.into(),
            lost: entry.lost.into(),
        }
    }
}

impl RawTableEntry {
    pub(super) fn decode(&self, what: &'static str) -> Result<TableEntry, FormatError> {
        let entry = TableEntry {
            place: self.place_and_one.get().wrapping_sub(1),
            crc: self.crc.get(),
            sequence: self.sequence.get(),
            slots: self.slots.get(),
            lost: self.lost.get(),
        };
        ensure(
            entry.slots <= SLOTS,
            what,
            "a page has more slots than a leaf",
        )?;
        ensure(
            u64::from(entry.lost) <= LEAF_GRANULES,
            what,
            "a page has lost more blocks than a leaf has",
        )?;
        counter(what, "sequence", entry.sequence)?;
        let units = u64::from(SEGMENT_UNITS) * UNIT_GRANULES;
        match entry.segment() {
            None => ensure(
                entry == TableEntry::NONE,
                what,
                "an entry without a page must be zero",
            )?,
            Some(segment) => {
                let bounded = segment <= u64::from(u32::MAX) && entry.place & 0xffff < units;
                ensure(bounded, what, "a page's place is out of bounds")?;
            }
        }
        Ok(entry)
    }
}

/// A page of 128 places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePage(pub Box<[TableEntry; 128]>);

impl TablePage {
    /// The 4,096 bytes. A place of `PLACE_NONE` is stored as zeroes (so a fresh page is all zero):
    /// store place + 1.
    ///
    /// # Panics
    /// If `out` is shorter.
    pub fn encode(&self, out: &mut [u8]) {
        let (entries, padding) = out[..GRANULE].split_at_mut(ENTRIES_BYTES);
        for (entry, out) in self.0.iter().zip(entries.chunks_exact_mut(ENTRY_BYTES)) {
            out.copy_from_slice(RawTableEntry::from(entry).as_bytes());
        }
        padding.fill(0);
    }

    /// Reads 4,096 bytes that verified (the first, if there are more).
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let raw: &RawTable = Reader::new(TABLE, bytes).take()?;
        zeroes(TABLE, "padding", &raw.padding)?;
        let mut entries = Box::new([TableEntry::NONE; 128]);
        for (entry, raw) in entries.iter_mut().zip(&raw.entries) {
            *entry = raw.decode(TABLE)?;
        }
        Ok(Self(entries))
    }
}

/// Most slots of a leaf.
const SLOTS: u16 = LEAF_SLOTS as u16;
const ENTRY_BYTES: usize = size_of::<RawTableEntry>();
const ENTRIES_BYTES: usize = 128 * ENTRY_BYTES;

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTable {
    entries: [RawTableEntry; 128],
    padding: [u8; GRANULE - ENTRIES_BYTES],
}

const _: () = assert!(size_of::<RawTable>() == GRANULE);

/// The map of 2 MiB of a volume: where each slot lives, and each granule's checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Size of the volume's slots.
    grain: Grain,
    /// Location of each slot (segment << 12 | slot in the segment), 0 for none.
    locations: Box<[u32]>,
    /// Checksum of each granule, 0 for "reads as zeroes", and [`LOST_CRC`] for what is lost.
    pub crcs: [u32; LEAF_GRANULES as usize],
    /// [`LOST_CRC`] says that a granule is lost; in other leaves it is a checksum like any other.
    has_lost: bool,
}

impl Leaf {
    /// A leaf of nothing.
    pub fn empty(grain: Grain) -> Box<Self> {
        Box::new(Self {
            grain,
            locations: vec![0; grain.slots_a_leaf()].into_boxed_slice(),
            crcs: [0; LEAF_GRANULES as usize],
            has_lost: false,
        })
    }

    /// A leaf in which every granule is lost.
    pub fn lost(grain: Grain) -> Box<Self> {
        let mut leaf = Self::empty(grain);
        leaf.crcs.fill(LOST_CRC);
        leaf.has_lost = true;
        leaf
    }

    /// From here on [`LOST_CRC`] says that a granule is lost.
    pub fn expect_lost(&mut self) {
        self.has_lost = true;
    }

    /// How many of these granules of the leaf are lost.
    ///
    /// # Panics
    /// If the leaf has no such granules.
    pub fn lost_among(&self, granules: std::ops::Range<usize>) -> u16 {
        let among = self.crcs[granules].iter();
        let lost = |crc: &&u32| **crc == LOST_CRC;
        match self.has_lost {
            true => among.filter(lost).count() as u16,
            false => 0,
        }
    }

    /// How many of its granules are lost.
    pub fn lost_granules(&self) -> u16 {
        self.lost_among(0..self.crcs.len())
    }

    /// Whether nothing is in it: no slot has a home, and nothing is lost.
    pub fn is_blank(&self) -> bool {
        self.locations.iter().all(|&location| location == 0) && self.lost_granules() == 0
    }

    /// Size of its slots.
    pub fn grain(&self) -> Grain {
        self.grain
    }

    /// Location of each slot, as many as a leaf of its grain has.
    pub fn locations(&self) -> &[u32] {
        &self.locations
    }

    /// The slot of this granule of the leaf has another location; returns the one it had, and the
    /// leaf's grain.
    ///
    /// # Panics
    /// If the leaf has no such granule.
    pub fn set_location(&mut self, granule: usize, location: u32) -> (u32, Grain) {
        let slot = self.grain.slot_of(granule as u64) as usize;
        let before = std::mem::replace(&mut self.locations[slot], location);
        (before, self.grain)
    }

    /// 4,096 bytes: the checksums (2,048), the locations (128 to 1,024), zeroes; at 3,072 the grain, and behind it
    /// the version.
    ///
    /// # Panics
    /// If `out` is shorter.
    pub fn encode(&self, out: &mut [u8]) {
        let mut raw = RawLeaf {
            crcs: self.crcs.map(U32::new),
            locations: [U32::ZERO; LEAF_SLOTS],
            grain: self.grain.code(),
            version: match self.lost_granules() {
                0 => 0,
                _ => WITH_LOST,
            },
            padding: [0; LEAF_PADDING],
        };
        for (raw, location) in raw.locations.iter_mut().zip(&self.locations) {
            *raw = (*location).into();
        }
        out[..GRANULE].copy_from_slice(raw.as_bytes());
    }

    /// Reads 4,096 bytes that verified (the first, if there are more). A checksum without a
    /// location is refused, unless it says that the granule is lost.
    pub fn decode(bytes: &[u8]) -> Result<Box<Self>, FormatError> {
        let raw: &RawLeaf = Reader::new(LEAF, bytes).take()?;
        let grain = Grain::of_code(raw.grain)
            .ok_or_else(|| FormatError::new(LEAF, format!("unknown grain {}", raw.grain)))?;
        let (locations, unused) = raw.locations.split_at(grain.slots_a_leaf());
        zeroes(LEAF, "padding", unused.as_bytes())?;
        zeroes(LEAF, "padding", &raw.padding)?;
        let mut leaf = Self::empty(grain);
        for (crc, raw) in leaf.crcs.iter_mut().zip(&raw.crcs) {
            *crc = raw.get();
        }
        for (location, raw) in leaf.locations.iter_mut().zip(locations) {
            *location = raw.get();
        }
        leaf.has_lost = match raw.version {
            0 => false,
            WITH_LOST => true,
            other => return Err(FormatError::new(LEAF, format!("unknown version {other}"))),
        };
        leaf.check()?;
        Ok(leaf)
    }

    fn check(&self) -> Result<(), FormatError> {
        let slots = self.crcs.chunks_exact(self.grain.granules() as usize);
        for (location, crcs) in self.locations.iter().zip(slots) {
            let placed = is_location_of(self.grain, *location);
            ensure(
                placed || *location == 0,
                LEAF,
                "a location is out of bounds",
            )?;
            let lost = |crc: u32| self.has_lost && crc == LOST_CRC;
            let empty = crcs.iter().all(|&crc| crc == 0 || lost(crc));
            ensure(placed || empty, LEAF, "a checksum without a location")?;
        }
        ensure(
            !self.has_lost || self.lost_granules() > 0,
            LEAF,
            "it says that granules are lost, but none is",
        )
    }
}

const LEAF_PADDING: usize = GRANULE - 4 * (LEAF_GRANULES as usize + LEAF_SLOTS) - 2;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLeaf {
    crcs: [U32; LEAF_GRANULES as usize],
    locations: [U32; LEAF_SLOTS],
    grain: u8,
    version: u8,
    padding: [u8; LEAF_PADDING],
}

const _: () = assert!(size_of::<RawLeaf>() == GRANULE);
const _: () = assert!(std::mem::offset_of!(RawLeaf, grain) == 3072);
