use uuid::Uuid;

use super::FormatError;
use crate::Layout;

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// Nothing: the entry is free.
    Free,
    /// Slots of mirrored volumes, a copy on every column.
    Mirror,
    /// Part of a pass-through `stripe` volume.
    Raw,
}

/// An entry of the segment table: 128 bytes, 32 a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// What it holds.
    pub kind: SegmentKind,
    /// Its columns: member and first extent; at most 8.
    pub columns: Vec<(u16, u32)>,
}

impl SegmentEntry {
    /// Bytes of an entry.
    pub const BYTES: usize = 128;

    /// The 128 bytes.
    pub fn encode(&self, out: &mut [u8]) {
        unimplemented!()
    }

    /// Reads 128 bytes; all zero is a free entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        unimplemented!()
    }
}

/// How far a volume's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeState {
    /// The entry is free, and its number may be used.
    Free,
    /// In service.
    Live,
    /// Being deleted: its space is still being given back.
    Deleting,
    /// Gone; the number is never used again (old records may name it).
    Gone,
}

/// An entry of the volume table: 256 bytes, 16 a page. Entry `i` is volume number `i + 16`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeEntry {
    /// How far its life has come.
    pub state: VolumeState,
    /// Its name within the pool, at most 64 bytes.
    pub name: String,
    /// Its identity for hosts.
    pub uuid: Uuid,
    /// Size in granules, at most 2³³.
    pub granules: u64,
    /// How it is laid out.
    pub layout: Layout,
}

impl VolumeEntry {
    /// Bytes of an entry.
    pub const BYTES: usize = 256;

    /// A free entry.
    pub fn free() -> Self {
        Self {
            state: VolumeState::Free,
            name: String::new(),
            uuid: Uuid::nil(),
            granules: 0,
            layout: Layout::Mirror { copies: 1 },
        }
    }

    /// The 256 bytes.
    pub fn encode(&self, out: &mut [u8]) {
        unimplemented!()
    }

    /// Reads 256 bytes; all zero is a free entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        unimplemented!()
    }
}
