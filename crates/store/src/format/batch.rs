use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bytes::{Reader, counter, ensure, zeroes};
use super::record::RawDescriptor;
use super::{Descriptor, FormatError, Salt};
use crate::sizes::GRANULE;

const WHAT: &str = "batch";
/// The last byte is the version: a reader that knows another one refuses the label before.
const MAGIC: [u8; 4] = *b"ALB\x01";
pub(super) const CRC_AT: usize = 4;
const HEADER_BYTES: usize = 64;
const DESCRIPTOR_BYTES: usize = 48;

/// Which of a shard's two logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogId {
    /// Small writes with their data.
    Ring = 0,
    /// Changes of the map.
    Map = 1,
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
    pub records: Vec<Descriptor>,
    /// Checksums of granules, by `Descriptor::first_crc`.
    pub crcs: Vec<u32>,
}

/// Most records of a batch.
pub const MAX_RECORDS: usize = 4096;
/// Most checksums of a batch's list: their count has 16 bits.
pub const MAX_CRCS: usize = 65_535;

/// Bytes of a batch's metadata (header, descriptors, checksums, padded to 4 KiB).
pub const fn metadata_bytes(records: usize, crcs: usize) -> usize {
    verified_bytes(records, crcs).next_multiple_of(GRANULE)
}

/// Bytes of header, descriptors and checksums: what the header's checksum covers.
pub(super) const fn verified_bytes(records: usize, crcs: usize) -> usize {
    HEADER_BYTES + records * DESCRIPTOR_BYTES + crcs * 4
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
        self.records.iter().map(Descriptor::data_blocks).sum()
    }

    /// Bytes of the whole batch.
    pub fn bytes(&self) -> usize {
        metadata_bytes(self.records.len(), self.crcs.len()) + self.data_blocks() * GRANULE
    }

    /// The whole batch's length according to a header's first 64 bytes, if they are a plausible
    /// header (magic, log, reserved fields, bounds: at most `limit` bytes) — so that a reader knows
    /// how much to read. Trusts nothing else; the pool's salt counts only in [`Batch::decode`],
    /// which says [`BatchError::NotABatch`] exactly when this says `None`.
    pub fn peek(bytes: &[u8], _salt: Salt, log: LogId, limit: usize) -> Option<usize> {
        let (header, _) = RawHeader::ref_from_prefix(bytes).ok()?;
        header
            .is_plausible(log, limit)
            .then(|| header.batch_bytes())
    }

    /// The number and the term in a header that [`Batch::peek`] takes for one, not verified: they
    /// tell an old lap's batch, partly overwritten, from the one that should be there.
    pub fn peek_number_and_term(bytes: &[u8]) -> Option<(u64, u64)> {
        let (header, _) = RawHeader::ref_from_prefix(bytes).ok()?;
        Some((header.number.get(), header.term.get()))
    }

    /// Decodes and verifies a whole batch (metadata and data blocks) that begins at `bytes[0]`;
    /// `bytes` may be longer. Checks magic, log, checksum of the metadata, bounds of every field,
    /// padding, then every data block against its checksum. Returns it with its header checksum
    /// (what the next batch's `previous` must be). The caller compares number, term, previous.
    pub fn decode(
        bytes: &[u8],
        salt: Salt,
        log: LogId,
        limit: usize,
    ) -> Result<(Self, u32), BatchError> {
        let Some(length) = Self::peek(bytes, salt, log, limit) else {
            return Err(BatchError::NotABatch);
        };
        let whole = bytes
            .get(..length)
            .ok_or_else(|| FormatError::new(WHAT, "cut short"));
        whole
            .and_then(|whole| Self::verify(whole, salt, log))
            .map_err(BatchError::Torn)
    }

    /// The same without its data: the records of a batch, if its metadata verifies, whatever its blocks hold.
    pub fn decode_records(
        bytes: &[u8],
        salt: Salt,
        log: LogId,
        limit: usize,
    ) -> Result<(Self, u32), BatchError> {
        let Some(length) = Self::peek(bytes, salt, log, limit) else {
            return Err(BatchError::NotABatch);
        };
        let verified = Self::verify_metadata(bytes, salt, log).and_then(|(batch, crc)| {
            batch.check_length(length)?;
            Ok((batch, crc))
        });
        verified.map_err(BatchError::Torn)
    }

    /// Checksums of its data blocks, in their order.
    pub fn block_crcs(&self) -> impl Iterator<Item = u32> {
        let with_data = self
            .records
            .iter()
            .filter(|record| record.data_blocks() > 0);
        let crcs = with_data.filter_map(|record| record.crcs_of(&self.crcs));
        crcs.flatten().copied()
    }

    /// Reads exactly the bytes of a batch whose header is plausible.
    fn verify(whole: &[u8], salt: Salt, log: LogId) -> Result<(Self, u32), FormatError> {
        let (batch, crc) = Self::verify_metadata(whole, salt, log)?;
        batch.check_length(whole.len())?;
        let metadata = metadata_bytes(batch.records.len(), batch.crcs.len());
        batch.verify_data(&whole[metadata..], salt)?;
        Ok((batch, crc))
    }

    fn check_length(&self, bytes: usize) -> Result<(), FormatError> {
        ensure(
            self.bytes() == bytes,
            WHAT,
            "its length is not that of its records",
        )
    }

    /// Reads the metadata that a batch whose header is plausible begins with.
    fn verify_metadata(whole: &[u8], salt: Salt, log: LogId) -> Result<(Self, u32), FormatError> {
        let mut reader = Reader::new(WHAT, whole);
        let header: &RawHeader = reader.take()?;
        let (metadata, _) = whole
            .split_at_checked(header.metadata_bytes())
            .ok_or_else(|| FormatError::new(WHAT, "too short"))?;
        let (verified, padding) = metadata
            .split_at_checked(header.verified_bytes())
            .ok_or_else(|| FormatError::new(WHAT, "too short"))?;
        let crc = salt.crc_around(verified, CRC_AT);
        ensure(header.crc == crc, WHAT, "its checksum does not match")?;
        zeroes(WHAT, "padding", padding)?;

        let records: &[RawDescriptor] = reader.take_all(header.records())?;
        let crcs: &[U32] = reader.take_all(header.crcs())?;
        let batch = Self {
            log,
            term: header.term.get(),
            number: header.number.get(),
            first_sequence: header.first_sequence.get(),
            previous: header.previous.get(),
            records: records
                .iter()
                .map(RawDescriptor::decode)
                .collect::<Result<_, _>>()?,
            crcs: crcs.iter().map(|crc| crc.get()).collect(),
        };
        batch.check()?;
        Ok((batch, crc))
    }

    /// The rules between a batch's fields and records.
    fn check(&self) -> Result<(), FormatError> {
        counter(WHAT, "term", self.term)?;
        counter(WHAT, "number", self.number)?;
        counter(WHAT, "sequence", self.first_sequence)?;
        ensure(self.records.len() <= MAX_RECORDS, WHAT, "too many records")?;
        ensure(self.crcs.len() <= MAX_CRCS, WHAT, "too many checksums")?;
        let mut next_block = 0;
        for record in &self.records {
            record.check()?;
            ensure(
                record.crcs_of(&self.crcs).is_some(),
                WHAT,
                "a checksum out of bounds",
            )?;
            let in_turn = record.first_block().is_none_or(|first| first == next_block);
            ensure(in_turn, WHAT, "a data block out of turn")?;
            next_block += record.data_blocks();
        }
        Ok(())
    }

    /// Compares each data block with its record's checksum. The blocks' order was checked.
    fn verify_data(&self, blocks: &[u8], salt: Salt) -> Result<(), FormatError> {
        let sound = |(block, crc): (&[u8], u32)| salt.crc(block) == crc;
        let all_sound = blocks
            .chunks_exact(GRANULE)
            .zip(self.block_crcs())
            .all(sound);
        ensure(all_sound, WHAT, "a data block does not match its checksum")
    }
}

/// Writes the metadata of `batch` to the front of `out`, whose first `metadata_bytes` bytes are
/// overwritten (padding zeroed); the data blocks behind them are the caller's. Returns the header
/// checksum.
///
/// # Panics
/// If `out` is too short for the metadata, or there are more than [`MAX_RECORDS`] records or
/// [`MAX_CRCS`] checksums; with debug assertions, if the batch breaks a rule of [`Batch::decode`].
pub fn encode_batch(batch: &Batch, salt: Salt, out: &mut [u8]) -> u32 {
    let (records, crcs) = (batch.records.len(), batch.crcs.len());
    assert!(
        records <= MAX_RECORDS && crcs <= MAX_CRCS,
        "{records} records, {crcs} checksums"
    );
    debug_assert_eq!(batch.check(), Ok(()));
    let metadata = &mut out[..metadata_bytes(records, crcs)];
    let (verified, padding) = metadata.split_at_mut(verified_bytes(records, crcs));
    let (header, rest) = verified.split_at_mut(HEADER_BYTES);
    let (descriptors, list) = rest.split_at_mut(records * DESCRIPTOR_BYTES);
    header.copy_from_slice(RawHeader::new(batch).as_bytes());
    for (record, out) in batch
        .records
        .iter()
        .zip(descriptors.chunks_exact_mut(DESCRIPTOR_BYTES))
    {
        out.copy_from_slice(RawDescriptor::from(record).as_bytes());
    }
    for (crc, out) in batch.crcs.iter().zip(list.chunks_exact_mut(4)) {
        out.copy_from_slice(&crc.to_le_bytes());
    }
    padding.fill(0);
    salt.seal(verified, CRC_AT)
}

/// The 64 bytes that a batch begins with.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    crc: U32,
    pool: [u8; 8],
    shard: [u8; 2],
    records: U16,
    blocks: U32,
    term: U64,
    first_sequence: U64,
    previous: U32,
    copies: u8,
    log: u8,
    crcs: U16,
    tail_sequence: [u8; 8],
    number: U64,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(size_of::<RawDescriptor>() == DESCRIPTOR_BYTES);
const _: () = assert!(std::mem::offset_of!(RawHeader, crc) == CRC_AT);
const _: () = assert!(std::mem::offset_of!(RawHeader, crcs) == 46);

impl RawHeader {
    fn new(batch: &Batch) -> Self {
        Self {
            magic: MAGIC,
            crc: 0.into(),
            pool: [0; 8],
            shard: [0; 2],
            records: (batch.records.len() as u16).into(),
            blocks: ((batch.bytes() / GRANULE) as u32).into(),
            term: batch.term.into(),
            first_sequence: batch.first_sequence.into(),
            previous: batch.previous.into(),
            copies: 0,
            log: batch.log as u8,
            crcs: (batch.crcs.len() as u16).into(),
            tail_sequence: [0; 8],
            number: batch.number.into(),
        }
    }

    fn is_plausible(&self, log: LogId, limit: usize) -> bool {
        let reserved_is_zero = self.pool == [0; 8]
            && self.shard == [0; 2]
            && self.copies == 0
            && self.tail_sequence == [0; 8];
        self.magic == MAGIC
            && reserved_is_zero
            && self.log == log as u8
            && self.records() <= MAX_RECORDS
            && (self.metadata_bytes()..=limit).contains(&self.batch_bytes())
    }

    fn records(&self) -> usize {
        usize::from(self.records.get())
    }

    fn crcs(&self) -> usize {
        usize::from(self.crcs.get())
    }

    fn verified_bytes(&self) -> usize {
        verified_bytes(self.records(), self.crcs())
    }

    fn metadata_bytes(&self) -> usize {
        metadata_bytes(self.records(), self.crcs())
    }

    fn batch_bytes(&self) -> usize {
        self.blocks.get() as usize * GRANULE
    }
}
