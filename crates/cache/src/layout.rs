//! What lies on the fast device: the cached blocks where they are on the backing device, then a page of bits for
//! each 32 MiB of it, then a header. docs/cache.md has the tables.

use std::ops::Range;

use ashlar_block::{BlockSize, ErrorKind, IoError};
use uuid::Uuid;

use crate::bits::{Bits, WORDS};
use crate::identity::{IDENTITY_BYTES, Identity};
use crate::lately::{LATELY_BYTES, Lately};
use crate::mark::{MarkSums, SECTORS};

/// Bytes of a granule, the unit of what is cached and what is dirty.
pub const GRANULE: usize = 4096;
/// Bytes of the smallest blocks that a device has.
const SECTOR: u64 = 512;
/// Granules of a unit: what one lock covers, and what one request of the cache touches at most, but for
/// write-back.
pub(crate) const UNIT: u64 = 16;
/// Granules that one page of bits describes.
pub(crate) const PAGE: u64 = 8192;
/// Granules at the beginning of the backing device that the mark replaces: where file systems, partition tables
/// and volume managers say what a device is.
pub(crate) const HEAD: u64 = 32;
/// The same in bytes.
pub const HEAD_BYTES: usize = HEAD as usize * GRANULE;

const PAGE_MAGIC: [u8; 8] = *b"ASHCPAGE";
const HEADER_MAGIC: [u8; 8] = *b"ASHCACHE";
const VERSION: u32 = 1;
/// Most granules of a backing device: a volume of a pool has no more.
const MOST_GRANULES: u64 = 1 << 33;
/// Most bytes of the text that names the backing device.
pub(crate) const NAME_BYTES: usize = 1024;
/// Where a header has the sums of the mark's sectors.
const SUMS_AT: usize = 2048;
/// Where it says what tells its backing device from others: bytes, length of the name, the name.
const IDENTITY_AT: usize = SUMS_AT + 4 * SECTORS;
/// Where a page says what was written lately, and where its bits are.
const LATELY_AT: usize = 24;
const BITS_AT: usize = LATELY_AT + LATELY_BYTES;
const _: () = assert!(BITS_AT == 64 && PAGE <= u16::MAX as u64);
const _: () = assert!(64 + NAME_BYTES <= SUMS_AT && IDENTITY_AT + 12 + IDENTITY_BYTES <= GRANULE);

/// Where what is, in granules of the fast device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Granules of the backing device; the last may be there in part.
    pub granules: u64,
    /// Sectors of 512 bytes that the device lacks of that.
    lacks: u8,
}

impl Layout {
    /// Of a backing device of so many granules.
    pub const fn of_granules(granules: u64) -> Self {
        Self { granules, lacks: 0 }
    }

    /// Of one of so many bytes, whole sectors of 512.
    pub const fn of_bytes(bytes: u64) -> Self {
        let granules = bytes.div_ceil(GRANULE as u64);
        let lacks = (granules * GRANULE as u64 - bytes) / SECTOR;
        Self {
            granules,
            lacks: lacks as u8,
        }
    }

    /// Bytes of the backing device.
    pub const fn bytes(self) -> u64 {
        self.granules * GRANULE as u64 - self.lacks as u64 * SECTOR
    }

    /// Whether the device ends within a granule: hosts see blocks of 512 bytes then.
    pub const fn has_part(self) -> bool {
        self.lacks > 0
    }

    /// Ranges of bytes, in order of address, as far as the device has them.
    pub fn clip(self, mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        if let Some((from, bytes)) = ranges.last_mut() {
            *bytes = (*bytes).min(self.bytes().saturating_sub(*from));
        }
        ranges
    }

    /// Granules that the fast device must have, thin.
    pub fn fast_granules(self) -> u64 {
        self.header_at() + UNIT
    }

    /// Pages of bits.
    pub(crate) fn pages(self) -> u64 {
        self.granules.div_ceil(PAGE)
    }

    pub(crate) fn page_at(self, page: u64) -> u64 {
        self.granules.next_multiple_of(UNIT) + page
    }

    /// Where the header is: the last unit, so that the size of the fast device finds it.
    pub(crate) fn header_at(self) -> u64 {
        (self.granules.next_multiple_of(UNIT) + self.pages()).next_multiple_of(UNIT)
    }

    /// Where the header is on a fast device of so many granules.
    pub fn header_of(fast_granules: u64) -> u64 {
        fast_granules.saturating_sub(UNIT)
    }

    /// Where the pages of bits are.
    pub fn page_granules(self) -> Range<u64> {
        self.page_at(0)..self.page_at(0) + self.pages()
    }

    /// What a page of bits says is newer than the backing device: bytes from, bytes.
    ///
    /// # Errors
    /// One that does not verify.
    pub fn newer_in(page: u64, bytes: &[u8]) -> Result<Vec<(u64, u64)>, IoError> {
        let mut ranges = Vec::new();
        if let Some(found) = decode_page(page, bytes)? {
            for at in found.newer.iter() {
                append_granule(&mut ranges, page * PAGE + at as u64);
            }
        }
        Ok(ranges)
    }
}

/// Adds a granule to ranges of bytes in order of address.
pub(crate) fn append_granule(ranges: &mut Vec<(u64, u64)>, granule: u64) {
    let (from, bytes) = (granule * GRANULE as u64, GRANULE as u64);
    match ranges.last_mut() {
        Some((first, length)) if *first + *length == from => *length += bytes,
        _ => ranges.push((from, bytes)),
    }
}

/// How writes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// To the fast device, and later to the backing device.
    #[default]
    WriteBack,
    /// To both.
    WriteThrough,
    /// To the backing device only.
    WriteAround,
}

/// What stands at the head of the backing device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// What belongs there.
    #[default]
    Off = 0,
    /// That, or the mark, or some of each: a crash may have come in between.
    Arming = 1,
    On = 2,
    /// What belongs there is being put back.
    Restoring = 3,
}

/// What a cache must know of itself before it can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The cache: its volume.
    pub cache: Uuid,
    /// How large the backing device is.
    pub layout: Layout,
    /// Bytes that may be cached.
    pub cache_bytes: u64,
    /// Size of the blocks that hosts see.
    pub blocks: BlockSize,
    /// How writes go.
    pub mode: Mode,
    /// What stands at the head of the backing device.
    pub mark: Mark,
    /// Checksum of what belongs there, as it was when the mark was put or taken away; `None` when others may
    /// have written it since, with our knowledge.
    pub head_crc: Option<u32>,
    /// The mark as it was put; `None` while there is none.
    pub marked: Option<MarkSums>,
    /// A flush of the backing device has failed over writes that went around, and no host was told yet.
    pub is_untold: bool,
    /// What tells the backing device from others; `None` in the header of an older program.
    pub identity: Option<Identity>,
    /// The backing device, as an operator named it.
    pub backing: String,
}

fn bad(what: &str) -> IoError {
    IoError::new(ErrorKind::Corrupt, format!("the cache's {what}"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(out)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(out)
}

fn seal(bytes: &mut [u8]) {
    bytes[12..16].fill(0);
    let crc = crc32c::crc32c(bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

fn is_sealed(bytes: &[u8]) -> bool {
    let mut copy = bytes.to_vec();
    seal(&mut copy);
    copy == bytes
}

/// A text in a place of the header, and where its length is.
fn text_at(bytes: &[u8], length_at: usize, place: Range<usize>) -> Result<String, IoError> {
    let text = bytes[place].get(..u32_at(bytes, length_at) as usize);
    let text = text.and_then(|text| std::str::from_utf8(text).ok());
    text.map(str::to_owned)
        .ok_or_else(|| bad("header has a malformed name"))
}

fn decode_identity(bytes: &[u8]) -> Result<Option<Identity>, IoError> {
    let at = IDENTITY_AT;
    let name = match bytes[61] {
        0 => return Ok(None),
        1 => None,
        _ => {
            let place = at + 12..at + 12 + IDENTITY_BYTES;
            Some(text_at(bytes, at + 8, place)?)
        }
    };
    Ok(Some(Identity::new(u64_at(bytes, at), name)))
}

impl Header {
    /// 4,096 bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; GRANULE];
        bytes[..8].copy_from_slice(&HEADER_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(self.cache.as_bytes());
        bytes[32..40].copy_from_slice(&self.layout.granules.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.cache_bytes.to_le_bytes());
        bytes[48] = self.mode as u8;
        bytes[49] = self.mark as u8;
        bytes[50] = u8::from(self.head_crc.is_some());
        bytes[51] = u8::from(self.blocks == BlockSize::B512);
        bytes[52..56].copy_from_slice(&self.head_crc.unwrap_or(0).to_le_bytes());
        let name = &self.backing.as_bytes()[..self.backing.len().min(NAME_BYTES)];
        bytes[56..60].copy_from_slice(&(name.len() as u32).to_le_bytes());
        bytes[64..64 + name.len()].copy_from_slice(name);
        bytes[60] = u8::from(self.marked.is_some());
        if let Some(sums) = &self.marked {
            for (place, sum) in bytes[SUMS_AT..].chunks_mut(4).zip(sums.words()) {
                place.copy_from_slice(&sum.to_le_bytes());
            }
        }
        bytes[62] = u8::from(self.is_untold);
        bytes[63] = self.layout.lacks;
        if let Some(identity) = &self.identity {
            bytes[61] = 1 + u8::from(identity.name.is_some());
            let name = identity.name.as_deref().unwrap_or_default().as_bytes();
            let at = IDENTITY_AT;
            bytes[at..at + 8].copy_from_slice(&identity.bytes.to_le_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&(name.len() as u32).to_le_bytes());
            bytes[at + 12..at + 12 + name.len()].copy_from_slice(name);
        }
        seal(&mut bytes);
        bytes
    }

    /// The header in these bytes.
    ///
    /// # Errors
    /// There is none, or none that this program knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, IoError> {
        if bytes.len() < GRANULE || bytes[..8] != HEADER_MAGIC {
            return Err(bad(
                "header is not there: this volume is no cache, or was never finished",
            ));
        }
        let bytes = &bytes[..GRANULE];
        if !is_sealed(bytes) {
            return Err(bad("header does not verify"));
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            let why = format!("header has version {version}, this program knows {VERSION}");
            return Err(bad(&why));
        }
        let (granules, lacks) = (u64_at(bytes, 32), bytes[63]);
        if granules > MOST_GRANULES {
            return Err(bad(&format!(
                "header names a device of {granules} x {GRANULE} bytes, which no volume can cache"
            )));
        }
        let mode = match bytes[48] {
            0 => Mode::WriteBack,
            1 => Mode::WriteThrough,
            2 => Mode::WriteAround,
            _ => return Err(bad("header names an unknown mode")),
        };
        let mark = match bytes[49] {
            0 => Mark::Off,
            1 => Mark::Arming,
            2 => Mark::On,
            3 => Mark::Restoring,
            _ => return Err(bad("header names an unknown state")),
        };
        let blocks = match bytes[51] {
            0 => BlockSize::B4096,
            1 => BlockSize::B512,
            _ => return Err(bad("header names an unknown size of blocks")),
        };
        if lacks > 0 && (blocks != BlockSize::B512 || lacks > 7 || granules == 0) {
            return Err(bad("header names a device that cannot be so large"));
        }
        let mut cache = [0; 16];
        cache.copy_from_slice(&bytes[16..32]);
        Ok(Self {
            cache: Uuid::from_bytes(cache),
            layout: Layout { granules, lacks },
            cache_bytes: u64_at(bytes, 40),
            blocks,
            mode,
            mark,
            head_crc: (bytes[50] == 1).then(|| u32_at(bytes, 52)),
            marked: (bytes[60] == 1)
                .then(|| MarkSums::from_words(|sector| u32_at(bytes, SUMS_AT + 4 * sector))),
            is_untold: bytes[62] == 1,
            identity: decode_identity(bytes)?,
            backing: text_at(bytes, 56, 64..64 + NAME_BYTES)?,
        })
    }
}

/// What a page says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// Granules that are cached.
    pub(crate) cached: Bits,
    /// Those of them that are newer than the backing device.
    pub(crate) newer: Bits,
    pub(crate) lately: Lately,
}

pub(crate) fn encode_page(page: u64, cached: &Bits, newer: &Bits, lately: &Lately) -> Vec<u8> {
    let mut bytes = vec![0; GRANULE];
    bytes[..8].copy_from_slice(&PAGE_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&page.to_le_bytes());
    lately.encode(&mut bytes[LATELY_AT..BITS_AT]);
    for (half, bits) in [cached, newer].into_iter().enumerate() {
        let from = BITS_AT + half * WORDS * 8;
        for (place, word) in bytes[from..from + WORDS * 8]
            .chunks_mut(8)
            .zip(bits.words())
        {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
    seal(&mut bytes);
    bytes
}

/// The same again; `None` for one that was never written.
pub(crate) fn decode_page(page: u64, bytes: &[u8]) -> Result<Option<Said>, IoError> {
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    if bytes[..8] != PAGE_MAGIC || !is_sealed(bytes) || u64_at(bytes, 16) != page {
        return Err(bad(&format!("page {page} does not verify")));
    }
    let bits = |half: usize| {
        let from = BITS_AT + half * WORDS * 8;
        Bits::from_words(|word| u64_at(bytes, from + word * 8))
    };
    Ok(Some(Said {
        cached: bits(0),
        newer: bits(1),
        lately: Lately::decode(&bytes[LATELY_AT..BITS_AT]),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_pages_are_read_as_they_were_written() {
        let header = Header {
            cache: Uuid::from_u128(7),
            layout: Layout::of_bytes((1 << 32) - 512),
            cache_bytes: 1 << 30,
            blocks: BlockSize::B512,
            mode: Mode::WriteThrough,
            mark: Mark::Restoring,
            head_crc: Some(9),
            marked: Some(MarkSums::of(&[5; HEAD_BYTES])),
            is_untold: true,
            identity: Some(Identity::new(3, Some("ä".repeat(800)))),
            backing: "/dev/sdx".to_owned(),
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes).expect("sound"), header);
        for at in [0, 8, 20, 48, 49, 60, 63, 4095] {
            let mut harmed = bytes.clone();
            harmed[at] ^= 1;
            assert!(Header::decode(&harmed).is_err(), "{at}");
        }
        for granules in [MOST_GRANULES + 1, u64::MAX] {
            let header = Header {
                layout: Layout::of_granules(granules),
                ..header.clone()
            };
            assert!(Header::decode(&header.encode()).is_err(), "{granules}");
        }
        let header = Header {
            blocks: BlockSize::B4096,
            ..header
        };
        assert!(Header::decode(&header.encode()).is_err());
        let mut said = Said::default();
        said.cached.set(8191, true);
        said.newer.set(3, true);
        said.lately.add(7, &said.cached);
        let bytes = encode_page(5, &said.cached, &said.newer, &said.lately);
        assert_eq!(decode_page(5, &bytes).expect("sound"), Some(said));
        assert!(decode_page(6, &bytes).is_err());
        let at = (5 * PAGE + 3) * GRANULE as u64;
        let newer = Layout::newer_in(5, &bytes).expect("sound");
        assert_eq!(newer, [(at, GRANULE as u64)]);
        assert_eq!(decode_page(6, &[0; GRANULE]).expect("none"), None);
    }
}
