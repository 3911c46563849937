use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::FormatError;
use super::bytes::{counter, ensure, zeroes};
use super::entry::VOLUME_GRANULES;
use super::page::is_location;
use crate::replica::ReplicaTag;
use crate::sizes::UNIT_GRANULES;

const WHAT: &str = "record";
/// Nodes below this are system tables.
const FIRST_VOLUME: u32 = 16;

/// What a record says. Numbers on disk: 1 to 5 in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Granules of data, in the batch. One checksum and one data block a granule.
    Data = 1,
    /// These granules of *one slot* now live in the slot at `new_location` with these checksums;
    /// one checksum a granule, no data. Frees `old_location` if that is not 0.
    Place = 2,
    /// These granules read as zeroes. Frees `old_location` if that is not 0. No checksums.
    Deallocate = 3,
    /// Entry `first_granule` of the system table `node` is now this: one checksum, one data block
    /// that begins with the entry's bytes.
    Entry = 4,
    /// As [`Place`](Self::Place), for granules that are on their way there from the ring: their home
    /// may not be durable yet, so records of the ring about them stay valid.
    Move = 5,
}

/// One record of a batch. 48 bytes on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// What it says.
    pub kind: Kind,
    /// Granules it is about, 1 to 65,535 (1 for an entry).
    pub granules: u16,
    /// The volume (0 for an entry).
    pub volume: u32,
    /// First granule in the volume (index of the entry in its table for an entry).
    pub first_granule: u64,
    /// The volume's node (1 until there are snapshots), or the system table of an entry.
    pub node: u32,
    /// Index of its first checksum in the batch's list.
    pub first_crc: u32,
    /// Data, entry: index of its first data block (0 is the first 4 KiB after the metadata).
    /// Place, move: the new location. Otherwise 0.
    pub block_or_location: u32,
    /// Place, move, deallocate: the slot that this frees, or 0.
    pub old_location: u32,
    /// Data, place, deallocate: what makes it a record of a replicated volume.
    pub replica: Option<ReplicaTag>,
}

impl Descriptor {
    /// Checksums of the batch's list that it refers to.
    pub(super) fn crcs(&self) -> usize {
        match self.kind {
            Kind::Data | Kind::Place | Kind::Move | Kind::Entry => usize::from(self.granules),
            Kind::Deallocate => 0,
        }
    }

    /// Data blocks of the batch that belong to it.
    pub fn data_blocks(&self) -> usize {
        match self.kind {
            Kind::Data | Kind::Entry => usize::from(self.granules),
            Kind::Place | Kind::Move | Kind::Deallocate => 0,
        }
    }

    /// Its first data block, if it has any.
    pub(super) fn first_block(&self) -> Option<usize> {
        (self.data_blocks() > 0).then_some(self.block_or_location as usize)
    }

    /// The part of the batch's list that it refers to.
    pub(super) fn crcs_of<'a>(&self, list: &'a [u32]) -> Option<&'a [u32]> {
        list.get(self.first_crc as usize..)?.get(..self.crcs())
    }

    /// The rules that need no more than the record itself.
    pub(super) fn check(&self) -> Result<(), FormatError> {
        ensure(self.granules > 0, WHAT, "it is about no granules")?;
        let granules = u64::from(self.granules);
        let end = self.first_granule.checked_add(granules);
        let bounded = end.is_some_and(|end| end <= VOLUME_GRANULES);
        ensure(bounded, WHAT, "its granules are out of bounds")?;
        let tagged = matches!(self.kind, Kind::Data | Kind::Place | Kind::Deallocate);
        ensure(
            tagged || self.replica.is_none(),
            WHAT,
            "it is no change of content, but is one of a replica",
        )?;
        match self.kind {
            Kind::Data => self.check_frees_nothing(),
            Kind::Place | Kind::Move => {
                let within = self.first_granule % UNIT_GRANULES + granules <= UNIT_GRANULES;
                ensure(within, WHAT, "it places more than one slot")?;
                let placed = is_location(self.block_or_location);
                ensure(placed, WHAT, "its new location is out of bounds")?;
                self.check_old_location()
            }
            Kind::Deallocate => {
                ensure(
                    self.block_or_location == 0,
                    WHAT,
                    "a new location of nothing",
                )?;
                self.check_old_location()
            }
            Kind::Entry => {
                ensure(self.granules == 1, WHAT, "more than one entry")?;
                let system = self.volume == 0 && self.node < FIRST_VOLUME;
                ensure(system, WHAT, "an entry of no system table")?;
                self.check_frees_nothing()
            }
        }
    }

    fn check_frees_nothing(&self) -> Result<(), FormatError> {
        ensure(
            self.old_location == 0,
            WHAT,
            "it frees a slot that it does not replace",
        )
    }

    fn check_old_location(&self) -> Result<(), FormatError> {
        let known = self.old_location == 0 || is_location(self.old_location);
        ensure(known, WHAT, "its old location is out of bounds")
    }
}

/// The 48 bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawDescriptor {
    kind: u8,
    flags: u8,
    granules: U16,
    volume: U32,
    first_granule: U64,
    node: U32,
    first_crc: U32,
    replica_sequence: U64,
    replica_epoch: U32,
    block_or_location: U32,
    old_location: U32,
    /// What the replica sequence is more than the lowest that is not committed; as much as it is itself while the epoch's
    /// base is open.
    replica_ahead: U32,
}

const _: () = assert!(size_of::<RawDescriptor>() == 48);
const _: () = assert!(std::mem::offset_of!(RawDescriptor, block_or_location) == 36);

impl From<&Descriptor> for RawDescriptor {
    fn from(record: &Descriptor) -> Self {
        let (sequence, epoch, ahead) = record.replica.map_or((0, 0, 0), raw_tag);
        Self {
            kind: record.kind as u8,
            flags: 0,
            granules: record.granules.into(),
            volume: record.volume.into(),
            first_granule: record.first_granule.into(),
            node: record.node.into(),
            first_crc: record.first_crc.into(),
            replica_sequence: sequence.into(),
            replica_epoch: epoch.into(),
            block_or_location: record.block_or_location.into(),
            old_location: record.old_location.into(),
            replica_ahead: ahead.into(),
        }
    }
}

/// A tag's sequence, epoch, and how much the sequence is ahead of what is not committed. What cannot be said is said as an
/// open base: that nothing more is committed.
fn raw_tag(tag: ReplicaTag) -> (u64, u32, u32) {
    let ahead = tag.sequence - tag.low.min(tag.sequence);
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    (tag.sequence, tag.epoch, ahead)
}

impl RawDescriptor {
    fn tag(&self) -> Result<Option<ReplicaTag>, FormatError> {
        let (sequence, epoch) = (self.replica_sequence.get(), self.replica_epoch.get());
        let ahead = u64::from(self.replica_ahead.get());
        if sequence == 0 && epoch == 0 && ahead == 0 {
            return Ok(None);
        }
        counter(WHAT, "replica sequence", sequence)?;
        ensure(
            sequence > 0 && epoch > 0,
            WHAT,
            "a replica's record without number or epoch",
        )?;
        ensure(
            ahead <= sequence,
            WHAT,
            "its replica sequence is too far ahead",
        )?;
        let low = match u32::MAX {
            unknown if u64::from(unknown) == ahead => 0,
            _ => sequence - ahead,
        };
        Ok(Some(ReplicaTag {
            epoch,
            sequence,
            low,
        }))
    }

    pub(super) fn decode(&self) -> Result<Descriptor, FormatError> {
        let kind = match self.kind {
            1 => Kind::Data,
            2 => Kind::Place,
            3 => Kind::Deallocate,
            4 => Kind::Entry,
            5 => Kind::Move,
            kind => return Err(FormatError::new(WHAT, format!("unknown kind {kind}"))),
        };
        zeroes(WHAT, "flags", &[self.flags])?;
        let record = Descriptor {
            kind,
            granules: self.granules.get(),
            volume: self.volume.get(),
            first_granule: self.first_granule.get(),
            node: self.node.get(),
            first_crc: self.first_crc.get(),
            block_or_location: self.block_or_location.get(),
            old_location: self.old_location.get(),
            replica: self.tag()?,
        };
        record.check()?;
        Ok(record)
    }
}
