use uuid::Uuid;

use super::{FormatError, Salt, TableEntry};

/// Where one copy of a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkCopy {
    /// The member.
    pub drive: u16,
    /// Its first extent.
    pub extent: u32,
}

/// A log chunk: 1 to 4 copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its copies, on distinct members.
    pub copies: Vec<ChunkCopy>,
}

/// From which batch on a term wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermStart {
    /// The term.
    pub term: u64,
    /// The number of its first batch in this log.
    pub first_batch: u64,
}

/// One log as a root knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogState {
    /// Its chunks; position `p` lies in chunk `p / chunk_bytes % chunks.len()`.
    pub chunks: Vec<Chunk>,
    /// Position of the oldest batch that recovery needs (or of the next one).
    pub tail_at: u64,
    /// That batch's number.
    pub tail_number: u64,
    /// The header checksum of the batch before it.
    pub tail_previous: u32,
    /// Terms whose batches recovery may meet, oldest first; at least one.
    pub terms: Vec<TermStart>,
}

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// In service.
    Active,
    /// Left out: what it holds is old.
    Excluded,
}

/// A drive of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The drive.
    pub drive: Uuid,
    /// How it stands.
    pub state: MemberState,
    /// Extents it has.
    pub extents: u32,
}

/// A segment of metadata pages: known to the root, since pages are needed to find the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaSegment {
    /// Its number, as places name it.
    pub id: u32,
    /// Its copies: member and first extent, 1 to 4.
    pub columns: Vec<ChunkCopy>,
}

/// Where a page of level 2 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopEntry {
    /// The page's node.
    pub node: u32,
    /// The page's index on level 2.
    pub index: u32,
    /// Where it is.
    pub entry: TableEntry,
}

/// The state of a pool from which everything else is found. Two alternating slots a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The pool.
    pub pool: Uuid,
    /// Grows by one with every root.
    pub generation: u64,
    /// Grows with every import.
    pub term: u64,
    /// A sequence above every one in use when this root was written.
    pub next_sequence: u64,
    /// Map records below this sequence are in the pages.
    pub map_sequence: u64,
    /// The pool's drives, by index.
    pub members: Vec<Member>,
    /// The data ring.
    pub ring: LogState,
    /// The map log.
    pub map: LogState,
    /// Metadata segments.
    pub meta: Vec<MetaSegment>,
    /// The pages of level 2.
    pub tops: Vec<TopEntry>,
}

impl Root {
    /// The bytes, a multiple of 4 KiB; an error when they exceed [`crate::sizes::ROOT_BYTES`].
    /// Begins with a header of magic, version, length and checksum of the rest.
    pub fn encode(&self, salt: Salt) -> Result<Vec<u8>, FormatError> {
        unimplemented!()
    }

    /// Reads a root slot's bytes (may be longer than the root). Every count is bounded before it is
    /// trusted, every chunk and column refers to a member.
    pub fn decode(bytes: &[u8], salt: Salt) -> Result<Self, FormatError> {
        unimplemented!()
    }
}
