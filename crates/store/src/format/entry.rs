use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bytes::{Reader, ensure, zeroes};
use super::{DriveClass, FormatError, MAX_MEMBERS};
use crate::sizes::Grain;
use crate::{HotTier, Layout, Share};

const SEGMENT: &str = "segment entry";
const VOLUME: &str = "volume entry";
/// Most columns of a segment.
const COLUMNS: usize = 8;
/// Numbers below are those of system tables.
const FIRST_VOLUME: u32 = 16;
/// Segments have numbers below: a location keeps them in 20 bits.
pub const MAX_SEGMENTS: u32 = 1 << 20;
/// Most granules of a volume: 32 TiB.
pub(super) const VOLUME_GRANULES: u64 = 1 << 33;

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// Nothing: the entry is free.
    Free = 0,
    /// Slots of mirrored volumes, a copy on every column.
    Mirror = 1,
    /// Part of a pass-through `stripe` volume.
    Raw = 2,
    /// Slots of `parity` volumes, each cut over the columns.
    Parity = 3,
}

/// An entry of the segment table: 128 bytes, 32 a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// What it holds.
    pub kind: SegmentKind,
    /// Copies that its slots should have: it may have fewer columns, made or left while drives
    /// were missing. 1 to 8; 0 for a free entry. A raw segment has as many as it has columns.
    /// A parity segment: the columns of data and parity that it should have.
    pub copies: u8,
    /// Of a parity segment, how many of `copies` are data; 0 for others.
    pub data: u8,
    /// Of a parity segment, how many of the columns it does have, its last ones, are parity: `copies
    /// - data`, or fewer when drives were missing; 0 for others.
    pub parity: u8,
    /// Size of its slots; 64 KiB for a free entry and a raw segment.
    pub grain: Grain,
    /// Drives of this class hold its columns; of any, without one. None for a free entry and a raw segment.
    pub class: Option<DriveClass>,
    /// The volume that a raw segment is a part of, or whose hot home a mirror segment is; 0 for others.
    pub volume: u32,
    /// Which part of that volume, from 0; 0 for others.
    pub ordinal: u32,
    /// Its columns: member and first extent; at most 8.
    pub columns: Vec<(u16, u32)>,
}

impl SegmentEntry {
    /// Bytes of an entry.
    pub const BYTES: usize = 128;

    /// A free entry.
    pub fn free() -> Self {
        Self {
            kind: SegmentKind::Free,
            copies: 0,
            data: 0,
            parity: 0,
            grain: Grain::K64,
            class: None,
            volume: 0,
            ordinal: 0,
            columns: Vec::new(),
        }
    }

    /// The 128 bytes.
    ///
    /// # Panics
    /// If `out` is shorter, or there are more than 8 columns.
    pub fn encode(&self, out: &mut [u8]) {
        let mut raw = RawSegment::new_zeroed();
        if self.kind != SegmentKind::Free {
            raw.kind = self.kind as u8;
            raw.count = self.columns.len() as u8;
            raw.copies = self.copies;
            raw.data = self.data;
            raw.parity = self.parity;
            raw.grain = self.grain.code();
            raw.class = DriveClass::code(self.class);
            raw.volume = self.volume.into();
            raw.ordinal = self.ordinal.into();
            for (raw, (member, extent)) in raw.columns[..self.columns.len()]
                .iter_mut()
                .zip(&self.columns)
            {
                raw.member = (*member).into();
                raw.extent = (*extent).into();
            }
        }
        out[..Self::BYTES].copy_from_slice(raw.as_bytes());
    }

    /// Reads 128 bytes (the first, if there are more); all zero is a free entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let raw: &RawSegment = Reader::new(SEGMENT, bytes).take()?;
        let kind = match raw.kind {
            0 => SegmentKind::Free,
            1 => SegmentKind::Mirror,
            2 => SegmentKind::Raw,
            3 => SegmentKind::Parity,
            kind => return Err(FormatError::new(SEGMENT, format!("unknown kind {kind}"))),
        };
        let count = usize::from(raw.count);
        let counted = if kind == SegmentKind::Free {
            count == 0 && raw.copies == 0
        } else {
            count > 0 && count <= usize::from(raw.copies) && usize::from(raw.copies) <= COLUMNS
        };
        let columns = raw.columns.split_at_checked(count).filter(|_| counted);
        let Some((columns, unused)) = columns else {
            return Err(FormatError::new(
                SEGMENT,
                format!("{count} columns for {} copies", raw.copies),
            ));
        };
        zeroes(SEGMENT, "padding", unused.as_bytes())?;
        for column in columns {
            zeroes(SEGMENT, "padding", &column.zero)?;
        }
        zeroes(SEGMENT, "padding", &[raw.zero])?;
        zeroes(SEGMENT, "padding", &raw.padding)?;
        let columns: Vec<(u16, u32)> = columns
            .iter()
            .map(|column| (column.member.get(), column.extent.get()))
            .collect();
        let bounded = columns
            .iter()
            .all(|(member, _)| usize::from(*member) < MAX_MEMBERS);
        ensure(bounded, SEGMENT, "a column's member is out of bounds")?;
        let entry = Self {
            kind,
            copies: raw.copies,
            data: raw.data,
            parity: raw.parity,
            grain: grain(SEGMENT, raw.grain)?,
            class: DriveClass::of_code(SEGMENT, raw.class)?,
            volume: raw.volume.get(),
            ordinal: raw.ordinal.get(),
            columns,
        };
        entry.check_part()?;
        entry.check_parity()?;
        let sized = matches!(kind, SegmentKind::Mirror | SegmentKind::Parity);
        let fits = sized || entry.grain == Grain::K64;
        ensure(fits, SEGMENT, "it has no slots, but a grain")?;
        let classed = sized || entry.class.is_none();
        ensure(classed, SEGMENT, "it has no slots, but a drive class")?;
        Ok(entry)
    }

    /// What the entry says about parity.
    fn check_parity(&self) -> Result<(), FormatError> {
        if self.kind != SegmentKind::Parity {
            let none = self.data == 0 && self.parity == 0;
            return ensure(none, SEGMENT, "it has no parity, but counts it");
        }
        let layout = Layout::Parity {
            data: self.data,
            parity: self.copies.saturating_sub(self.data),
        };
        ensure(layout.is_possible(), SEGMENT, "its parity is out of bounds")?;
        let columns = self.columns.len();
        let parity = usize::from(self.parity);
        let data = columns.saturating_sub(parity);
        let fits = (1..=usize::from(self.data)).contains(&data)
            && parity <= usize::from(self.copies - self.data);
        ensure(fits, SEGMENT, "its columns do not fit its parity")
    }

    /// What the entry says about a volume.
    fn check_part(&self) -> Result<(), FormatError> {
        if self.kind != SegmentKind::Raw {
            let is_hot = self.kind == SegmentKind::Mirror && self.volume >= FIRST_VOLUME;
            let none = (self.volume == 0 || is_hot) && self.ordinal == 0;
            return ensure(none, SEGMENT, "it is no part of a volume, but names one");
        }
        let whole = usize::from(self.copies) == self.columns.len();
        ensure(whole, SEGMENT, "a raw segment lacks columns")?;
        let named = self.volume >= FIRST_VOLUME && self.ordinal < MAX_SEGMENTS;
        ensure(named, SEGMENT, "its part of a volume is out of bounds")
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSegment {
    kind: u8,
    count: u8,
    copies: u8,
    data: u8,
    parity: u8,
    grain: u8,
    class: u8,
    zero: u8,
    columns: [RawColumn; COLUMNS],
    volume: U32,
    ordinal: U32,
    padding: [u8; SegmentEntry::BYTES - 80],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawColumn {
    extent: U32,
    member: U16,
    zero: [u8; 2],
}

const _: () = assert!(size_of::<RawSegment>() == SegmentEntry::BYTES);

/// How far a volume's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeState {
    /// The entry is free, and its number may be used.
    Free = 0,
    /// In service.
    Live = 1,
    /// Being deleted: its space is still being given back.
    Deleting = 2,
    /// Gone; the number is never used again (old records may name it).
    Gone = 3,
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
    /// Size of its slots; 64 KiB for a pass-through volume.
    pub grain: Grain,
    /// It takes no writes while a copy is missing that no drive can take.
    pub stops: bool,
    /// Drives of this class hold its homes; of any, without one.
    pub class: Option<DriveClass>,
    /// It holds what a cache keeps of another device: no host is to see it as it is.
    pub is_cache: bool,
    /// What is small and hot of it lies there, and `layout` is for all else.
    pub hot: Option<HotTier>,
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
            grain: Grain::K64,
            stops: false,
            class: None,
            is_cache: false,
            hot: None,
        }
    }

    /// The 256 bytes.
    ///
    /// # Panics
    /// If `out` is shorter, or the name is longer than 64 bytes.
    pub fn encode(&self, out: &mut [u8]) {
        let mut raw = RawVolume::new_zeroed();
        if self.state != VolumeState::Free {
            let (layout, columns) = match self.layout {
                Layout::Mirror { copies } => (MIRROR, copies),
                Layout::Stripe { columns } => (STRIPE, columns),
                Layout::Parity { data, parity } => {
                    raw.parity = parity;
                    (PARITY, data)
                }
            };
            raw.state = self.state as u8;
            raw.layout = layout;
            raw.columns = columns;
            raw.grain = self.grain.code();
            raw.name_length = self.name.len() as u8;
            raw.stops = u8::from(self.stops);
            raw.class = DriveClass::code(self.class);
            raw.is_cache = u8::from(self.is_cache);
            if let Some(hot) = self.hot {
                raw.hot_copies = hot.copies;
                raw.hot_class = DriveClass::code(hot.class);
                raw.hot_share = hot.share.percent();
            }
            raw.granules = self.granules.into();
            raw.uuid = *self.uuid.as_bytes();
            raw.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        }
        out[..Self::BYTES].copy_from_slice(raw.as_bytes());
    }

    /// Reads 256 bytes (the first, if there are more); all zero is a free entry.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let raw: &RawVolume = Reader::new(VOLUME, bytes).take()?;
        let state = match raw.state {
            0 => {
                zeroes(VOLUME, "free entry", raw.as_bytes())?;
                return Ok(Self::free());
            }
            1 => VolumeState::Live,
            2 => VolumeState::Deleting,
            3 => VolumeState::Gone,
            state => return Err(FormatError::new(VOLUME, format!("unknown state {state}"))),
        };
        zeroes(VOLUME, "padding", &raw.padding)?;
        ensure(raw.stops <= 1, VOLUME, "unknown rule of stopping")?;
        ensure(raw.is_cache <= 1, VOLUME, "unknown use")?;
        let granules = raw.granules.get();
        ensure(
            granules <= VOLUME_GRANULES,
            VOLUME,
            "its size is out of bounds",
        )?;
        let name = raw.name()?;
        let named = !name.is_empty() || state == VolumeState::Gone;
        ensure(named, VOLUME, "it has no name")?;
        let uuid = Uuid::from_bytes(raw.uuid);
        let (layout, grain) = (raw.layout()?, grain(VOLUME, raw.grain)?);
        ensure(layout.takes(grain), VOLUME, "its grain is out of bounds")?;
        Ok(Self {
            state,
            name,
            uuid,
            granules,
            layout,
            grain,
            stops: raw.stops == 1,
            class: DriveClass::of_code(VOLUME, raw.class)?,
            is_cache: raw.is_cache == 1,
            hot: raw.hot(layout)?,
        })
    }
}

fn grain(what: &'static str, code: u8) -> Result<Grain, FormatError> {
    let unknown = || FormatError::new(what, format!("unknown grain {code}"));
    Grain::of_code(code).ok_or_else(unknown)
}

const MIRROR: u8 = 1;
const STRIPE: u8 = 2;
const PARITY: u8 = 3;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawVolume {
    state: u8,
    layout: u8,
    columns: u8,
    name_length: u8,
    parity: u8,
    grain: u8,
    class: u8,
    stops: u8,
    granules: U64,
    uuid: [u8; 16],
    name: [u8; 64],
    is_cache: u8,
    hot_copies: u8,
    hot_class: u8,
    hot_share: u8,
    padding: [u8; VolumeEntry::BYTES - 100],
}

const _: () = assert!(size_of::<RawVolume>() == VolumeEntry::BYTES);

impl RawVolume {
    fn name(&self) -> Result<String, FormatError> {
        let bad = || FormatError::new(VOLUME, "its name is malformed");
        let length = usize::from(self.name_length);
        let (name, padding) = self.name.split_at_checked(length).ok_or_else(bad)?;
        zeroes(VOLUME, "padding", padding)?;
        std::str::from_utf8(name)
            .map(str::to_owned)
            .map_err(|_| bad())
    }

    fn hot(&self, layout: Layout) -> Result<Option<HotTier>, FormatError> {
        if self.hot_copies == 0 {
            zeroes(VOLUME, "hot home", &[self.hot_class, self.hot_share])?;
            return Ok(None);
        }
        let share = Share::of_percent(self.hot_share);
        let share = share.ok_or_else(|| FormatError::new(VOLUME, "its share is out of bounds"))?;
        let hot = HotTier {
            copies: self.hot_copies,
            class: DriveClass::of_code(VOLUME, self.hot_class)?,
            share,
        };
        let fits = hot.layout().is_possible() && !matches!(layout, Layout::Stripe { .. });
        ensure(fits, VOLUME, "its hot home is out of bounds")?;
        Ok(Some(hot))
    }

    fn layout(&self) -> Result<Layout, FormatError> {
        let columns = self.columns;
        let layout = match (self.layout, self.parity) {
            (MIRROR, 0) => Some(Layout::Mirror { copies: columns }),
            (STRIPE, 0) => Some(Layout::Stripe { columns }),
            (PARITY, parity) => Some(Layout::Parity {
                data: columns,
                parity,
            }),
            _ => None,
        };
        layout.filter(|layout| layout.is_possible()).ok_or_else(|| {
            let (layout, parity) = (self.layout, self.parity);
            let why =
                format!("unknown layout {layout} of {columns} columns and {parity} of parity");
            FormatError::new(VOLUME, why)
        })
    }
}
