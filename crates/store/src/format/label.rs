use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bytes::{ensure, zeroes};
use super::features::RawFeature;
use super::{Features, FormatError, MAX_MEMBERS, Salt};
use crate::Sizes;
pub use crate::layout::DriveClass;
use crate::sizes::HEAD_BYTES;

const WHAT: &str = "label";
const MAGIC: [u8; 8] = *b"ASHLABEL";
const VERSION: u32 = 1;
/// Most features: a bit each.
const FEATURES: usize = 64;
/// Where their names lie, at the label's end.
const FEATURES_AT: usize = Label::BYTES - FEATURES * RawFeature::BYTES;
/// Where the checksum lies; magic, version, checksum and feature bits stay there in every version.
pub(super) const CRC_AT: usize = 12;
/// The salt is inside the label, so its own checksum cannot be seeded with it.
pub(super) const UNSALTED: Salt = Salt(0);

/// Who a drive is: written twice when it joins a pool, and never changed but for a pool's rename, and for features that
/// the pool uses since. A copy that has rotted is written again by the next import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Features that a program must know to read the pool: all that its roots named when this was written.
    pub features: Features,
    pub pool: Uuid,
    /// The pool's name, 1 to 64 bytes of letters, digits, `-`, `_`, `.`.
    pub pool_name: String,
    pub drive: Uuid,
    /// Its place among the pool's members.
    pub index: u16,
    pub class: DriveClass,
    /// Bytes of it that the pool uses.
    pub bytes: u64,
    /// Seed of every checksum in the pool: users write bytes of the rings, and must not be able to
    /// forge a batch.
    pub salt: Salt,
    /// The pool's units.
    pub sizes: Sizes,
}

impl Label {
    /// Bytes of a label.
    pub const BYTES: usize = 4096;

    /// Whether `name` can name a pool: 1 to 64 bytes of letters, digits, `-`, `_`, `.`.
    pub fn is_pool_name(name: &str) -> bool {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=64).contains(&name.len()) && name.bytes().all(allowed)
    }

    /// 4,096 bytes.
    ///
    /// # Panics
    /// If the pool's name is longer than 64 bytes; see [`Label::is_pool_name`].
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = RawLabel {
            magic: MAGIC,
            version: VERSION.into(),
            crc: 0.into(),
            incompatible: self.features.bits().into(),
            pool: *self.pool.as_bytes(),
            drive: *self.drive.as_bytes(),
            bytes: self.bytes.into(),
            salt: self.salt.0.into(),
            index: self.index.into(),
            class: self.class as u8,
            name_length: self.pool_name.len() as u8,
            name: [0; 64],
            sizes: RawSizes::from(&self.sizes),
            padding: [0; FEATURES_AT - 160],
            features: raw_features(self.features),
        };
        raw.name[..self.pool_name.len()].copy_from_slice(self.pool_name.as_bytes());
        let mut bytes = raw.as_bytes().to_vec();
        UNSALTED.seal(&mut bytes, CRC_AT);
        bytes
    }

    /// Whether these bytes are a label of any version, as it was written: if not, they have rotted.
    pub(crate) fn is_sound(bytes: &[u8]) -> bool {
        let Ok((raw, _)) = RawLabel::ref_from_prefix(bytes) else {
            return false;
        };
        raw.magic == MAGIC && raw.crc == UNSALTED.crc_around(raw.as_bytes(), CRC_AT)
    }

    /// Reads a label; `Ok(None)` when the bytes are no label of ours at all (another magic). Of
    /// longer bytes, the first 4,096 count.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        if !bytes.starts_with(&MAGIC) {
            return Ok(None);
        }
        let (raw, _) =
            RawLabel::ref_from_prefix(bytes).map_err(|_| FormatError::new(WHAT, "too short"))?;
        let crc = UNSALTED.crc_around(raw.as_bytes(), CRC_AT);
        ensure(raw.crc == crc, WHAT, "its checksum does not match")?;
        let features = raw.features()?;
        zeroes(WHAT, "padding", &raw.padding)?;
        zeroes(WHAT, "padding", &raw.sizes.zero)?;
        let label = Self {
            features,
            pool: Uuid::from_bytes(raw.pool),
            pool_name: raw.pool_name()?,
            drive: Uuid::from_bytes(raw.drive),
            index: raw.index.get(),
            class: DriveClass::from_byte(raw.class)?,
            bytes: raw.bytes.get(),
            salt: Salt(raw.salt.get()),
            sizes: Sizes::from(&raw.sizes),
        };
        label.check()?;
        Ok(Some(label))
    }

    /// Whether these bytes are a whole label that another version has written, or one with features that
    /// this one lacks: of a drive that may be in order.
    pub fn is_of_another_version(bytes: &[u8]) -> bool {
        let Ok((raw, _)) = RawLabel::ref_from_prefix(bytes) else {
            return false;
        };
        let whole = raw.crc == UNSALTED.crc_around(raw.as_bytes(), CRC_AT);
        raw.magic == MAGIC && whole && raw.features().is_err()
    }

    fn check(&self) -> Result<(), FormatError> {
        self.sizes
            .check()
            .map_err(|bad| FormatError::new(WHAT, bad.to_string()))?;
        ensure(
            usize::from(self.index) < MAX_MEMBERS,
            WHAT,
            "its member number is out of bounds",
        )?;
        let extents = self.bytes.saturating_sub(HEAD_BYTES) >> self.sizes.extent_shift;
        let fits = (1..=u64::from(u32::MAX)).contains(&extents);
        ensure(fits, WHAT, "the drive's size is out of bounds")
    }
}

impl DriveClass {
    /// As entries have it: 0 for any class.
    pub(super) fn code(class: Option<Self>) -> u8 {
        class.map_or(0, |class| class as u8)
    }

    /// The reverse of [`code`](Self::code).
    pub(super) fn of_code(what: &'static str, code: u8) -> Result<Option<Self>, FormatError> {
        match code {
            0 => Ok(None),
            byte => Self::from_byte(byte)
                .map(Some)
                .map_err(|_| FormatError::new(what, format!("unknown drive class {byte}"))),
        }
    }

    fn from_byte(byte: u8) -> Result<Self, FormatError> {
        Self::ALL
            .into_iter()
            .find(|class| *class as u8 == byte)
            .ok_or_else(|| FormatError::new(WHAT, format!("unknown drive class {byte}")))
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLabel {
    magic: [u8; 8],
    version: U32,
    crc: U32,
    incompatible: U64,
    pool: [u8; 16],
    drive: [u8; 16],
    bytes: U64,
    salt: U32,
    index: U16,
    class: u8,
    name_length: u8,
    name: [u8; 64],
    sizes: RawSizes,
    padding: [u8; FEATURES_AT - 160],
    features: [RawFeature; FEATURES],
}

const _: () = assert!(size_of::<RawLabel>() == Label::BYTES);
const _: () = assert!(std::mem::offset_of!(RawLabel, features) == FEATURES_AT);
const _: () = assert!(std::mem::offset_of!(RawLabel, crc) == CRC_AT);
const _: () = assert!(std::mem::offset_of!(RawLabel, sizes) == 136);

impl RawLabel {
    /// Other versions and unknown features mean that nothing else here can be understood.
    fn features(&self) -> Result<Features, FormatError> {
        let version = self.version.get();
        if version != VERSION {
            let why = format!("format version {version}; this program reads version {VERSION}");
            return Err(FormatError::new(WHAT, why));
        }
        let features = Features::of_bits(self.incompatible.get());
        let (named, rest) = self.features.split_at(features.count());
        let is_theirs = named.iter().zip(features.entries());
        let names_all = is_theirs.fold(true, |all, (named, own)| all && named.is_of(&own));
        // Without names, or with others', they are known by their numbers only.
        let nameless = features.nameless();
        let known = Features::of_entries(WHAT, if names_all { named } else { &nameless })?;
        zeroes(WHAT, "padding", rest.as_bytes())?;
        Ok(known)
    }

    fn pool_name(&self) -> Result<String, FormatError> {
        let bad = || FormatError::new(WHAT, "the pool's name is malformed");
        let length = usize::from(self.name_length);
        let (name, padding) = self.name.split_at_checked(length).ok_or_else(bad)?;
        zeroes(WHAT, "padding", padding)?;
        let name = std::str::from_utf8(name).map_err(|_| bad())?;
        if Label::is_pool_name(name) {
            Ok(name.to_owned())
        } else {
            Err(bad())
        }
    }
}

/// The table of features.
fn raw_features(features: Features) -> [RawFeature; FEATURES] {
    let mut raw = [RawFeature::ZERO; FEATURES];
    let entries = features.entries();
    raw[..entries.len()].copy_from_slice(&entries);
    raw
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSizes {
    extent_shift: u8,
    zero: [u8; 3],
    chunk_extents: U32,
    ring_chunks: U32,
    map_chunks: U32,
    segment_slots: U32,
    batch_bytes: U32,
}

const _: () = assert!(size_of::<RawSizes>() == 24);

impl From<&Sizes> for RawSizes {
    fn from(sizes: &Sizes) -> Self {
        Self {
            extent_shift: sizes.extent_shift,
            zero: [0; 3],
            chunk_extents: sizes.chunk_extents.into(),
            ring_chunks: sizes.ring_chunks.into(),
            map_chunks: sizes.map_chunks.into(),
            segment_slots: sizes.segment_slots.into(),
            batch_bytes: sizes.batch_bytes.into(),
        }
    }
}

impl From<&RawSizes> for Sizes {
    fn from(raw: &RawSizes) -> Self {
        Self {
            extent_shift: raw.extent_shift,
            chunk_extents: raw.chunk_extents.get(),
            ring_chunks: raw.ring_chunks.get(),
            map_chunks: raw.map_chunks.get(),
            segment_slots: raw.segment_slots.get(),
            batch_bytes: raw.batch_bytes.get(),
        }
    }
}
