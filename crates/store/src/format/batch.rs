use super::{FormatError, Salt};

/// Which of a shard's two logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogId {
    /// Small writes with their data.
    Ring,
    /// Changes of the map.
    Map,
}

/// What a record says. Numbers on disk: 1 to 4 in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Granules of data, in the batch. One checksum and one data block a granule.
    Data,
    /// These granules of *one slot* now live in the slot at `new_location` with these checksums;
    /// one checksum a granule, no data. Frees `old_location` if that is not 0.
    Place,
    /// These granules read as zeroes. Frees `old_location` if that is not 0. No checksums.
    Deallocate,
    /// Entry `first_granule` of the system table `node` is now this: one checksum, one data block
    /// that begins with the entry's bytes.
    Entry,
}

/// One record of a batch. 48 bytes on disk, as in the design's table; `replica_sequence` (u64) and
/// `replica_epoch` (u32) are reserved there as zeroes and must be zero.
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
    /// Place: the new location. Otherwise 0.
    pub block_or_location: u32,
    /// Place, deallocate: the slot that this frees, or 0.
    pub old_location: u32,
}

/// A decoded batch without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which log.
    pub log: LogId,
    /// The term it was written in.
    pub term: u64,
    /// Its number in this log.
    pub number: u64,
    /// Sequence of its first record; the others follow.
    pub first_sequence: u64,
    /// The header checksum of the batch before it in this log (0 for a log's first).
    pub previous: u32,
    /// Its records.
    pub records: Vec<Descriptor>,
    /// Checksums of granules, by `Descriptor::first_crc`.
    pub crcs: Vec<u32>,
}

/// Most records of a batch.
pub const MAX_RECORDS: usize = 4096;

/// Bytes of a batch's metadata (header, descriptors, checksums, padded to 4 KiB).
pub const fn metadata_bytes(records: usize, crcs: usize) -> usize {
    (64 + records * 48 + crcs * 4).next_multiple_of(crate::sizes::GRANULE)
}

/// Why the bytes at some place are not the batch that was expected there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// No header of this pool and log: end of the log, or an old lap's data.
    NotABatch,
    /// A header, with another number, term, or predecessor: an old lap, or a lost one.
    NotTheNext,
    /// A header that should be the one, but its records, checksums or data do not verify.
    Torn(FormatError),
}

impl Batch {
    /// Data blocks (4 KiB each) that follow the metadata.
    pub fn data_blocks(&self) -> usize {
        unimplemented!()
    }

    /// Bytes of the whole batch.
    pub fn bytes(&self) -> usize {
        metadata_bytes(self.records.len(), self.crcs.len()) + self.data_blocks() * crate::sizes::GRANULE
    }

    /// The whole batch's length according to a header's first 64 bytes, if they are a plausible
    /// header (magic, pool, log, bounds: at most `limit` bytes) — so that a reader knows how much
    /// to read. Trusts nothing else.
    pub fn peek(bytes: &[u8], salt: Salt, log: LogId, limit: usize) -> Option<usize> {
        unimplemented!()
    }

    /// Decodes and verifies a whole batch (metadata and data blocks) that begins at `bytes[0]`;
    /// `bytes` may be longer. Checks magic, log, checksum of the metadata, bounds of every field,
    /// padding, then every data block against its checksum. Returns it with its header checksum
    /// (what the next batch's `previous` must be). The caller compares number, term, previous.
    pub fn decode(bytes: &[u8], salt: Salt, log: LogId, limit: usize) -> Result<(Self, u32), BatchError> {
        unimplemented!()
    }
}

/// Writes the metadata of `batch` to the front of `out`, whose first `metadata_bytes` bytes are
/// overwritten (padding zeroed); the data blocks behind them are the caller's. Returns the header
/// checksum.
///
/// # Panics
/// If `out` is too short for the metadata.
pub fn encode_batch(batch: &Batch, salt: Salt, out: &mut [u8]) -> u32 {
    unimplemented!()
}
