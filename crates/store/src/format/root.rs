use std::collections::BTreeSet;

use uuid::Uuid;

use super::bytes::{counter, ensure};
use super::{Features, FormatError, TableEntry};

pub(super) const WHAT: &str = "root";
/// Most members of a pool.
pub const MAX_MEMBERS: usize = 64;
/// Most copies of a chunk or of a metadata segment.
pub const MAX_COPIES: usize = 4;
/// Most chunks of a log.
pub const MAX_CHUNKS: usize = 1024;
/// Most terms whose batches a log may hold.
pub const MAX_TERMS: usize = 64;

/// Where one copy of a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkCopy {
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
    Active = 1,
    /// Left out: what it holds is old.
    Excluded = 2,
    /// In service, and being emptied: nothing new goes there.
    Leaving = 3,
}

impl MemberState {
    /// Whether what it holds counts.
    pub const fn in_service(self) -> bool {
        matches!(self, Self::Active | Self::Leaving)
    }
}

/// A drive of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub drive: Uuid,
    /// How it stands.
    pub state: MemberState,
    /// Extents it has.
    pub extents: u32,
}

/// How much of a pool is kept for repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reserve {
    #[default]
    None,
    /// The largest drive's worth, as long as there is a drive more than the narrowest volume takes.
    Auto,
    /// So many of the largest drives' worth.
    Drives(u32),
    /// So many extents.
    Extents(u32),
}

/// What a pool keeps for repair, and what of it repairs have used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RepairReserve {
    /// As an operator wished it.
    pub wish: Reserve,
    /// Extents of drives that were lost since, and that none was added for.
    pub spent: u32,
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

/// A scrub that has not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubAt {
    /// The volume that it has come to: everything in those before it was looked at.
    pub volume: u32,
    /// So was every granule of the volume below this one.
    pub granule: u64,
}

/// The state of a pool from which everything else is found. Two alternating slots a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Features that a program must know to read the pool.
    pub features: Features,
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
    /// What is kept for repair.
    pub reserve: RepairReserve,
    /// The data ring.
    pub ring: LogState,
    /// The map log.
    pub map: LogState,
    /// Metadata segments.
    pub meta: Vec<MetaSegment>,
    /// The pages of level 2.
    pub tops: Vec<TopEntry>,
    /// The scrub that is under way, if one is: the next import goes on with it.
    pub scrub: Option<ScrubAt>,
}

/// The rules that both directions hold to: a root that could not be read again is not written.
impl Root {
    pub(super) fn check(&self) -> Result<(), FormatError> {
        counter(WHAT, "generation", self.generation)?;
        counter(WHAT, "term", self.term)?;
        counter(WHAT, "next sequence", self.next_sequence)?;
        let known = self.map_sequence <= self.next_sequence;
        ensure(known, WHAT, "its map sequence is above its next sequence")?;
        self.check_members()?;
        self.check_log(&self.ring)?;
        self.check_log(&self.map)?;
        self.check_meta()
    }

    fn check_members(&self) -> Result<(), FormatError> {
        let count = self.members.len();
        ensure(
            (1..=MAX_MEMBERS).contains(&count),
            WHAT,
            "the number of members is out of bounds",
        )?;
        let drives: BTreeSet<Uuid> = self.members.iter().map(|member| member.drive).collect();
        ensure(drives.len() == count, WHAT, "a drive is two members")
    }

    fn check_log(&self, log: &LogState) -> Result<(), FormatError> {
        let (chunks, terms) = (log.chunks.len(), log.terms.len());
        ensure(
            (1..=MAX_CHUNKS).contains(&chunks),
            WHAT,
            "the number of chunks is out of bounds",
        )?;
        ensure(
            (1..=MAX_TERMS).contains(&terms),
            WHAT,
            "the number of terms is out of bounds",
        )?;
        counter(WHAT, "log position", log.tail_at)?;
        counter(WHAT, "batch number", log.tail_number)?;
        for chunk in &log.chunks {
            self.check_copies(&chunk.copies)?;
        }
        for start in &log.terms {
            counter(WHAT, "batch number", start.first_batch)?;
            ensure(start.term <= self.term, WHAT, "a log of a later term")?;
        }
        let ordered = log
            .terms
            .windows(2)
            .all(|pair| pair[0].term < pair[1].term && pair[0].first_batch <= pair[1].first_batch);
        ensure(ordered, WHAT, "a log's terms are out of order")
    }

    fn check_copies(&self, copies: &[ChunkCopy]) -> Result<(), FormatError> {
        let count = copies.len();
        ensure(
            (1..=MAX_COPIES).contains(&count),
            WHAT,
            "the number of copies is out of bounds",
        )?;
        for copy in copies {
            let member = self.members.get(usize::from(copy.drive));
            let within = member.is_some_and(|member| copy.extent < member.extents);
            ensure(within, WHAT, "a copy is on no member, or behind its end")?;
        }
        let drives: BTreeSet<u16> = copies.iter().map(|copy| copy.drive).collect();
        ensure(drives.len() == count, WHAT, "two copies are on one drive")
    }

    fn check_meta(&self) -> Result<(), FormatError> {
        for segment in &self.meta {
            self.check_copies(&segment.columns)?;
        }
        let segments: BTreeSet<u64> = self.meta.iter().map(|meta| u64::from(meta.id)).collect();
        ensure(
            segments.len() == self.meta.len(),
            WHAT,
            "two metadata segments of one number",
        )?;
        let tops: BTreeSet<(u32, u32)> =
            self.tops.iter().map(|top| (top.node, top.index)).collect();
        ensure(
            tops.len() == self.tops.len(),
            WHAT,
            "two places of one page",
        )?;
        let known = |top: &TopEntry| {
            top.entry
                .segment()
                .is_none_or(|segment| segments.contains(&segment))
        };
        ensure(
            self.tops.iter().all(known),
            WHAT,
            "a page in no metadata segment",
        )
    }
}
