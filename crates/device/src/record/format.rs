//! The bytes of a trace, versions 1 and 2; `docs/devices.md` has the table. All numbers are little-endian.

use ashlar_block::BlockSize;

use super::TraceError;

/// What a trace begins with.
pub(super) const MAGIC: &[u8; 8] = b"ASHTRACE";
/// Of a trace of changes only, and of one with reads.
const CHANGES: u32 = 1;
const WITH_READS: u32 = 2;
/// Bytes of a trace's header.
pub(super) const HEADER_BYTES: usize = 64;
/// Bytes of an entry without its data.
pub(super) const ENTRY_BYTES: usize = 48;
/// Most data of an entry: more than any device takes at once.
const MOST_DATA: u32 = 64 << 20;

/// What a trace is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHeader {
    /// Block size of the device.
    pub block_size: BlockSize,
    /// Blocks of the device.
    pub blocks: u64,
    /// Whether only a flush, or a durable write, makes its writes durable.
    pub volatile_cache: bool,
    /// Whether reads are recorded, too.
    pub has_reads: bool,
    /// The boot of the machine in which it was recorded: stamps of another do not compare.
    pub boot: [u8; 16],
}

/// What an entry tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Recording began, or began again in another process.
    Opened,
    /// A write was submitted; its data follow.
    Write,
    /// Zeroing was submitted.
    WriteZeroes,
    /// Deallocation was submitted.
    Deallocate,
    /// A flush was submitted.
    Flush,
    /// The request of this id completed.
    Done,
    /// A read was submitted. It has no number, and its completion is not recorded.
    Read,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Opened,
        Self::Write,
        Self::WriteZeroes,
        Self::Deallocate,
        Self::Flush,
        Self::Done,
        Self::Read,
    ];

    fn code(self) -> u8 {
        Self::ALL
            .iter()
            .position(|&k| k == self)
            .map_or(0, |at| at as u8 + 1)
    }

    fn of(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Whether it changes the medium.
    pub const fn modifies(self) -> bool {
        matches!(self, Self::Write | Self::WriteZeroes | Self::Deallocate)
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it tells.
    pub kind: Kind,
    /// Of a write or zeroing: complete means durable (FUA). Of a completion: it failed.
    pub flag: bool,
    /// When: nanoseconds of CLOCK_MONOTONIC, made strictly increasing over all devices of a process.
    pub at: u64,
    /// The request's number, in the order of submission since recording began.
    pub id: u64,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes on the device.
    pub len: u64,
    /// Bytes of data that follow in the trace.
    pub data_len: u32,
    /// CRC-32C of these.
    pub data_crc: u32,
}

impl Entry {
    /// An entry without data.
    pub(super) fn plain(kind: Kind, id: u64) -> Self {
        Self {
            kind,
            flag: false,
            at: 0,
            id,
            offset: 0,
            len: 0,
            data_len: 0,
            data_crc: 0,
        }
    }
}

pub(super) fn encode_header(header: &TraceHeader) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    let version = if header.has_reads {
        WITH_READS
    } else {
        CHANGES
    };
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].copy_from_slice(&header.block_size.bytes().to_le_bytes());
    bytes[16..24].copy_from_slice(&header.blocks.to_le_bytes());
    bytes[24..40].copy_from_slice(&header.boot);
    bytes[40] = u8::from(header.volatile_cache);
    seal(&mut bytes);
    bytes
}

pub(super) fn decode_header(bytes: &[u8; HEADER_BYTES]) -> Result<TraceHeader, TraceError> {
    if &bytes[..8] != MAGIC {
        return Err(TraceError::new("is no trace"));
    }
    let version = u32_at(bytes, 8);
    if !matches!(version, CHANGES | WITH_READS) {
        let why = format!(
            "is of version {version}; this program reads versions {CHANGES} and {WITH_READS}"
        );
        return Err(TraceError::new(why));
    }
    let damaged = || TraceError::new("its header is damaged");
    if !is_sealed(bytes) {
        return Err(damaged());
    }
    let header = TraceHeader {
        block_size: BlockSize::from_bytes(u32_at(bytes, 12)).ok_or_else(damaged)?,
        blocks: u64_at(bytes, 16),
        volatile_cache: bytes[40] != 0,
        has_reads: version == WITH_READS,
        boot: bytes[24..40].try_into().map_err(|_| damaged())?,
    };
    let fits = header
        .blocks
        .checked_mul(u64::from(header.block_size.bytes()));
    fits.filter(|&bytes| bytes > 0).ok_or_else(damaged)?;
    Ok(header)
}

pub(super) fn encode_entry(entry: &Entry) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[0] = entry.kind.code();
    bytes[1] = u8::from(entry.flag);
    bytes[4..8].copy_from_slice(&entry.data_len.to_le_bytes());
    bytes[8..16].copy_from_slice(&entry.at.to_le_bytes());
    bytes[16..24].copy_from_slice(&entry.id.to_le_bytes());
    bytes[24..32].copy_from_slice(&entry.offset.to_le_bytes());
    bytes[32..40].copy_from_slice(&entry.len.to_le_bytes());
    bytes[40..44].copy_from_slice(&entry.data_crc.to_le_bytes());
    seal(&mut bytes);
    bytes
}

/// Takes an entry apart; `device_bytes` is the size of the device.
pub(super) fn decode_entry(bytes: &[u8; ENTRY_BYTES], device_bytes: u64) -> Option<Entry> {
    let entry = Entry {
        kind: Kind::of(bytes[0])?,
        flag: match bytes[1] {
            0 => false,
            1 => true,
            _ => return None,
        },
        data_len: u32_at(bytes, 4),
        at: u64_at(bytes, 8),
        id: u64_at(bytes, 16),
        offset: u64_at(bytes, 24),
        len: u64_at(bytes, 32),
        data_crc: u32_at(bytes, 40),
    };
    let data = match entry.kind {
        Kind::Write => entry.len,
        _ => 0,
    };
    let inside = entry.offset.checked_add(entry.len)? <= device_bytes;
    let sane = inside && data == u64::from(entry.data_len) && entry.data_len <= MOST_DATA;
    (is_sealed(bytes) && bytes[2..4] == [0, 0] && sane).then_some(entry)
}

/// Puts the checksum of everything before it into the last four bytes.
fn seal(bytes: &mut [u8]) {
    let at = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..at]);
    bytes[at..].copy_from_slice(&crc.to_le_bytes());
}

fn is_sealed(bytes: &[u8]) -> bool {
    let at = bytes.len() - 4;
    crc32c::crc32c(&bytes[..at]) == u32_at(bytes, at)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
