use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bytes::{Reader, ensure, zeroes};
use super::features::RawFeature;
use super::page::RawTableEntry;
use super::root::WHAT;
use super::{
    Chunk, ChunkCopy, Feature, Features, FormatError, LogState, MAX_CHUNKS, MAX_COPIES,
    MAX_MEMBERS, MAX_TERMS, Member, MemberState, MetaSegment, RepairReserve, Reserve, Root, Salt,
    ScrubAt, TermStart, TopEntry,
};
use crate::sizes::{GRANULE, ROOT_BYTES};

const MAGIC: [u8; 8] = *b"ASHLROOT";
const VERSION: u16 = 1;
pub(super) const CRC_AT: usize = 12;
const CAPACITY: usize = ROOT_BYTES as usize;

/// How many parts a root has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootParts {
    pub(crate) members: u64,
    /// Chunks of both logs.
    pub(crate) chunks: u64,
    /// Terms of both logs.
    pub(crate) terms: u64,
    /// Metadata segments.
    pub(crate) meta: u64,
    pub(crate) tops: u64,
    /// Copies of each chunk and metadata segment.
    pub(crate) copies: u64,
}

impl Root {
    /// Bytes that a root of these parts and all features takes during a scrub, before it is padded to whole granules.
    pub(crate) const fn bytes_of(parts: RootParts) -> u64 {
        let copies = size_of::<U32>() as u64 + parts.copies * size_of::<RawCopy>() as u64;
        size_of::<RawRoot>() as u64
            + parts.members * size_of::<RawMember>() as u64
            + parts.chunks * copies
            + parts.terms * size_of::<RawTerm>() as u64
            + parts.meta * (size_of::<U32>() as u64 + copies)
            + parts.tops * size_of::<RawTop>() as u64
            + size_of::<RawScrub>() as u64
            + (Feature::ALL.len() * RawFeature::BYTES) as u64
    }

    /// The bytes, a multiple of 4 KiB; an error when they exceed [`crate::sizes::ROOT_BYTES`], or
    /// when [`Root::decode`] would refuse them. Begins with a header of magic, version, length and
    /// checksum of the rest.
    pub fn encode(&self, salt: Salt) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        let mut body = Vec::new();
        for member in &self.members {
            body.extend_from_slice(RawMember::from(member).as_bytes());
        }
        put_log(&mut body, &self.ring);
        put_log(&mut body, &self.map);
        for segment in &self.meta {
            body.extend_from_slice(&segment.id.to_le_bytes());
            put_copies(&mut body, &segment.columns);
        }
        for top in &self.tops {
            body.extend_from_slice(RawTop::from(top).as_bytes());
        }
        if let Some(scrub) = &self.scrub {
            body.extend_from_slice(RawScrub::from(scrub).as_bytes());
        }
        let features = self.features.entries();
        let features = features.as_bytes();
        let parts = size_of::<RawRoot>() + body.len() + features.len();
        let length = parts.next_multiple_of(GRANULE);
        ensure(length <= CAPACITY, WHAT, "it has outgrown its place")?;
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(RawRoot::new(self, length).as_bytes());
        bytes.extend_from_slice(&body);
        bytes.resize(length - features.len(), 0);
        bytes.extend_from_slice(features);
        salt.seal(&mut bytes, CRC_AT);
        Ok(bytes)
    }

    /// Reads a root slot's bytes (may be longer than the root). Every count is bounded before it is
    /// trusted, every chunk and column refers to a member.
    pub fn decode(bytes: &[u8], salt: Salt) -> Result<Self, FormatError> {
        let bytes = verified(bytes, salt)?;
        let (features, bytes) = features(bytes)?;
        let mut reader = Reader::new(WHAT, bytes);
        let raw: &RawRoot = reader.take()?;
        let root = Self {
            features,
            pool: Uuid::from_bytes(raw.pool),
            generation: raw.generation.get(),
            term: raw.term.get(),
            next_sequence: raw.next_sequence.get(),
            map_sequence: raw.map_sequence.get(),
            members: take_members(&mut reader, raw.members.get())?,
            reserve: raw.reserve()?,
            ring: take_log(&mut reader, &raw.ring)?,
            map: take_log(&mut reader, &raw.map)?,
            meta: take_meta(&mut reader, raw.meta.get())?,
            tops: take_tops(&mut reader, raw.tops.get())?,
            scrub: take_scrub(&mut reader)?,
        };
        ensure(
            reader.left() < GRANULE,
            WHAT,
            "its length is not that of its parts",
        )?;
        reader.finish()?;
        root.check()?;
        Ok(root)
    }

    /// Whether these bytes are a whole root that another version has written, or one with features that this one
    /// lacks: then the pool is that program's, whatever older roots say.
    pub(crate) fn is_of_another_version(bytes: &[u8], salt: Salt) -> bool {
        verified(bytes, salt).is_ok_and(|bytes| features(bytes).is_err())
    }
}

/// The root's own bytes at the front of `bytes`, whose checksum is right.
fn verified(bytes: &[u8], salt: Salt) -> Result<&[u8], FormatError> {
    let header: &RawRoot = Reader::new(WHAT, bytes).take()?;
    ensure(header.magic == MAGIC, WHAT, "there is none")?;
    let length = header.length.get() as usize;
    let bounded = length <= CAPACITY && length.is_multiple_of(GRANULE) && length > 0;
    ensure(bounded, WHAT, "its length is out of bounds")?;
    let bytes = bytes
        .get(..length)
        .ok_or_else(|| FormatError::new(WHAT, "cut short"))?;
    let sound = header.crc == salt.crc_around(bytes, CRC_AT);
    ensure(sound, WHAT, "its checksum does not match")?;
    Ok(bytes)
}

/// What of a root is known whatever else has changed in it: its version and its features, which are its last bytes. And
/// the bytes before those.
fn features(bytes: &[u8]) -> Result<(Features, &[u8]), FormatError> {
    let header: &RawRoot = Reader::new(WHAT, bytes).take()?;
    let version = header.version.get();
    if version != VERSION {
        let why = format!("format version {version}; this program reads version {VERSION}");
        return Err(FormatError::new(WHAT, why));
    }
    let named = usize::from(header.features.get()) * RawFeature::BYTES;
    let room = bytes.len() - size_of::<RawRoot>();
    ensure(named <= room, WHAT, "its list of features is malformed")?;
    let (parts, features) = bytes.split_at(bytes.len() - named);
    let features = Reader::new(WHAT, features).take_all(features.len() / RawFeature::BYTES)?;
    Ok((Features::of_entries(WHAT, features)?, parts))
}

fn put_log(out: &mut Vec<u8>, log: &LogState) {
    for chunk in &log.chunks {
        put_copies(out, &chunk.copies);
    }
    for start in &log.terms {
        out.extend_from_slice(&start.term.to_le_bytes());
        out.extend_from_slice(&start.first_batch.to_le_bytes());
    }
}

fn put_copies(out: &mut Vec<u8>, copies: &[ChunkCopy]) {
    out.extend_from_slice(&(copies.len() as u32).to_le_bytes());
    for copy in copies {
        out.extend_from_slice(RawCopy::from(copy).as_bytes());
    }
}

fn take_members(reader: &mut Reader<'_>, count: u16) -> Result<Vec<Member>, FormatError> {
    let count = usize::from(count);
    ensure(count <= MAX_MEMBERS, WHAT, "too many members")?;
    let members: &[RawMember] = reader.take_all(count)?;
    members.iter().map(RawMember::decode).collect()
}

fn take_log(reader: &mut Reader<'_>, raw: &RawLog) -> Result<LogState, FormatError> {
    let (chunks, terms) = (raw.chunks.get() as usize, raw.terms.get() as usize);
    ensure(chunks <= MAX_CHUNKS, WHAT, "too many chunks")?;
    ensure(terms <= MAX_TERMS, WHAT, "too many terms")?;
    let chunks: Result<Vec<Chunk>, FormatError> = (0..chunks)
        .map(|_| {
            Ok(Chunk {
                copies: take_copies(reader)?,
            })
        })
        .collect();
    let chunks = chunks?;
    let terms: &[RawTerm] = reader.take_all(terms)?;
    Ok(LogState {
        chunks,
        tail_at: raw.tail_at.get(),
        tail_number: raw.tail_number.get(),
        tail_previous: raw.tail_previous.get(),
        terms: terms.iter().map(TermStart::from).collect(),
    })
}

fn take_copies(reader: &mut Reader<'_>) -> Result<Vec<ChunkCopy>, FormatError> {
    let count = reader.take::<U32>()?.get() as usize;
    ensure(count <= MAX_COPIES, WHAT, "too many copies")?;
    let copies: &[RawCopy] = reader.take_all(count)?;
    copies.iter().map(RawCopy::decode).collect()
}

/// Each segment is read before the next is made room for, so a false count costs nothing.
fn take_meta(reader: &mut Reader<'_>, count: u32) -> Result<Vec<MetaSegment>, FormatError> {
    let mut meta = Vec::new();
    for _ in 0..count {
        let id = reader.take::<U32>()?.get();
        meta.push(MetaSegment {
            id,
            columns: take_copies(reader)?,
        });
    }
    Ok(meta)
}

fn take_tops(reader: &mut Reader<'_>, count: u32) -> Result<Vec<TopEntry>, FormatError> {
    let tops: &[RawTop] = reader.take_all(count as usize)?;
    tops.iter().map(RawTop::decode).collect()
}

/// Zeroes, or nothing: there is none.
fn take_scrub(reader: &mut Reader<'_>) -> Result<Option<ScrubAt>, FormatError> {
    if reader.left() < size_of::<RawScrub>() {
        return Ok(None);
    }
    reader.take::<RawScrub>()?.decode()
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRoot {
    magic: [u8; 8],
    version: U16,
    features: U16,
    crc: U32,
    length: U32,
    members: U16,
    reserve: U16,
    pool: [u8; 16],
    generation: U64,
    term: U64,
    next_sequence: U64,
    map_sequence: U64,
    meta: U32,
    tops: U32,
    ring: RawLog,
    reserve_value: U32,
    map: RawLog,
    reserve_spent: U32,
}

const _: () = assert!(size_of::<RawRoot>() == 144);
const _: () = assert!(std::mem::offset_of!(RawRoot, crc) == CRC_AT);

impl RawRoot {
    fn new(root: &Root, length: usize) -> Self {
        let (kind, value): (u16, u32) = match root.reserve.wish {
            Reserve::None => (0, 0),
            Reserve::Auto => (1, 0),
            Reserve::Drives(drives) => (2, drives),
            Reserve::Extents(extents) => (3, extents),
        };
        Self {
            magic: MAGIC,
            version: VERSION.into(),
            features: (root.features.count() as u16).into(),
            crc: 0.into(),
            length: (length as u32).into(),
            members: (root.members.len() as u16).into(),
            reserve: kind.into(),
            pool: *root.pool.as_bytes(),
            generation: root.generation.into(),
            term: root.term.into(),
            next_sequence: root.next_sequence.into(),
            map_sequence: root.map_sequence.into(),
            meta: (root.meta.len() as u32).into(),
            tops: (root.tops.len() as u32).into(),
            ring: RawLog::from(&root.ring),
            reserve_value: value.into(),
            map: RawLog::from(&root.map),
            reserve_spent: root.reserve.spent.into(),
        }
    }

    fn reserve(&self) -> Result<RepairReserve, FormatError> {
        let wish = match (self.reserve.get(), self.reserve_value.get()) {
            (0, 0) => Reserve::None,
            (1, 0) => Reserve::Auto,
            (2, drives) => Reserve::Drives(drives),
            (3, extents) => Reserve::Extents(extents),
            (kind, value) => {
                let why = format!("unknown reserve {kind} of {value}");
                return Err(FormatError::new(WHAT, why));
            }
        };
        let spent = self.reserve_spent.get();
        Ok(RepairReserve { wish, spent })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLog {
    chunks: U32,
    terms: U32,
    tail_at: U64,
    tail_number: U64,
    tail_previous: U32,
}

const _: () = assert!(size_of::<RawLog>() == 28);

impl From<&LogState> for RawLog {
    fn from(log: &LogState) -> Self {
        Self {
            chunks: (log.chunks.len() as u32).into(),
            terms: (log.terms.len() as u32).into(),
            tail_at: log.tail_at.into(),
            tail_number: log.tail_number.into(),
            tail_previous: log.tail_previous.into(),
        }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMember {
    drive: [u8; 16],
    extents: U32,
    state: u8,
    zero: [u8; 3],
}

const _: () = assert!(size_of::<RawMember>() == 24);

impl From<&Member> for RawMember {
    fn from(member: &Member) -> Self {
        Self {
            drive: *member.drive.as_bytes(),
            extents: member.extents.into(),
            state: member.state as u8,
            zero: [0; 3],
        }
    }
}

impl RawMember {
    fn decode(&self) -> Result<Member, FormatError> {
        zeroes(WHAT, "padding", &self.zero)?;
        let state = match self.state {
            1 => MemberState::Active,
            2 => MemberState::Excluded,
            3 => MemberState::Leaving,
            state => {
                return Err(FormatError::new(
                    WHAT,
                    format!("unknown state {state} of a member"),
                ));
            }
        };
        Ok(Member {
            drive: Uuid::from_bytes(self.drive),
            state,
            extents: self.extents.get(),
        })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCopy {
    extent: U32,
    drive: U16,
    zero: [u8; 2],
}

const _: () = assert!(size_of::<RawCopy>() == 8);

impl From<&ChunkCopy> for RawCopy {
    fn from(copy: &ChunkCopy) -> Self {
        Self {
            extent: copy.extent.into(),
            drive: copy.drive.into(),
            zero: [0; 2],
        }
    }
}

impl RawCopy {
    fn decode(&self) -> Result<ChunkCopy, FormatError> {
        zeroes(WHAT, "padding", &self.zero)?;
        Ok(ChunkCopy {
            drive: self.drive.get(),
            extent: self.extent.get(),
        })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTerm {
    term: U64,
    first_batch: U64,
}

const _: () = assert!(size_of::<RawTerm>() == 16);

impl From<&RawTerm> for TermStart {
    fn from(raw: &RawTerm) -> Self {
        Self {
            term: raw.term.get(),
            first_batch: raw.first_batch.get(),
        }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTop {
    node: U32,
    index: U32,
    entry: RawTableEntry,
}

const _: () = assert!(size_of::<RawTop>() == 32);

impl From<&TopEntry> for RawTop {
    fn from(top: &TopEntry) -> Self {
        Self {
            node: top.node.into(),
            index: top.index.into(),
            entry: RawTableEntry::from(&top.entry),
        }
    }
}

impl RawTop {
    fn decode(&self) -> Result<TopEntry, FormatError> {
        let entry = self.entry.decode(WHAT)?;
        Ok(TopEntry {
            node: self.node.get(),
            index: self.index.get(),
            entry,
        })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawScrub {
    there: U32,
    volume: U32,
    granule: U64,
}

const _: () = assert!(size_of::<RawScrub>() == 16);

impl From<&ScrubAt> for RawScrub {
    fn from(scrub: &ScrubAt) -> Self {
        Self {
            there: 1.into(),
            volume: scrub.volume.into(),
            granule: scrub.granule.into(),
        }
    }
}

impl RawScrub {
    fn decode(&self) -> Result<Option<ScrubAt>, FormatError> {
        let scrub = ScrubAt {
            volume: self.volume.get(),
            granule: self.granule.get(),
        };
        match self.there.get() {
            0 => zeroes(WHAT, "padding", self.as_bytes()).map(|()| None),
            1 => Ok(Some(scrub)),
            what => {
                let why = format!("unknown work {what} under way");
                Err(FormatError::new(WHAT, why))
            }
        }
    }
}
