use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::FormatError;
use super::bytes::{Reader, counter, ensure, zeroes};
use super::entry::VOLUME_GRANULES;
use crate::replica::{
    Committed, POSITIONS, ReplicaIdentity, ReplicaMark, ReplicaPromise, ReplicaSize, Till,
};
use crate::sizes::GRANULE;

const WHAT: &str = "replica page";
const ENTRY: u8 = 1;
const PLANE: u8 = 2;
/// The first volume's number.
const FIRST_VOLUME: u32 = 16;

/// Words of a plane's page.
pub const PLANE_WORDS: usize = 504;
/// Bits of a plane's page: 63 leaves' granules.
pub const PLANE_BITS: u64 = 64 * PLANE_WORDS as u64;
/// Most pages of a plane: beyond 1 TiB a bit is for more than a granule.
const MOST_PAGES: u64 = 8_324;

/// How a volume's granules are on its planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneShape {
    /// Granules of the volume.
    pub granules: u64,
    /// A bit is for so many granules, as a power of two.
    pub shift: u8,
}

impl PlaneShape {
    /// That of a volume of so many granules.
    pub fn of(granules: u64) -> Self {
        let pages = |shift: u8| (granules >> shift).div_ceil(PLANE_BITS);
        let shift = (0..32).find(|&shift| pages(shift) < MOST_PAGES);
        let shift = shift.unwrap_or(32);
        Self { granules, shift }
    }

    /// Pages of a plane.
    pub const fn pages(self) -> u32 {
        let bits = (self.granules + (1 << self.shift) - 1) >> self.shift;
        bits.div_ceil(PLANE_BITS) as u32
    }
}

/// What a copy of a replicated volume has to remember, apart from content and planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaEntry {
    pub volume: u32,
    /// How its planes are cut. They follow this page, each of the same length, by position.
    pub shape: PlaneShape,
    /// Who this copy is.
    pub identity: ReplicaIdentity,
    /// What it has promised.
    pub promise: ReplicaPromise,
    /// A plane's page counts if it has its position's number: a plane is void when that grows.
    pub numbers: [u32; POSITIONS],
    /// How long the own plane counts.
    pub till: Till,
    /// What was known to be committed.
    pub committed: Committed,
    /// What records below this sequence have to say is in here and in the planes.
    pub saved: u64,
    /// How large the volume was said to be, if it ever was.
    pub size: Option<ReplicaSize>,
    /// How far other copies' pools had come, by position.
    pub marks: [ReplicaMark; POSITIONS],
}

/// A page of a plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanePage {
    pub volume: u32,
    /// Whose plane.
    pub position: u8,
    /// The number that the position must have for it to count.
    pub number: u32,
    /// Which page of the plane.
    pub page: u32,
    pub words: Box<[u64; PLANE_WORDS]>,
}

/// A page of the table of replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaPage {
    Free,
    /// What a copy has to remember.
    Entry(ReplicaEntry),
    /// A part of a plane.
    Plane(PlanePage),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    kind: u8,
    shift: u8,
    position: u8,
    absent: u8,
    volume: U32,
    granules: U64,
    uuid: [u8; 16],
    promised: U32,
    session: U32,
    numbers: [U32; POSITIONS],
    committed_epoch: U32,
    committed_low: U64,
    till: u8,
    zero: [u8; 3],
    till_epoch: U32,
    till_low: U64,
    saved: U64,
    said_granules: U64,
    said_register: U64,
    marks: [RawMark; POSITIONS],
    padding: [u8; GRANULE - 176],
}

const _: () = assert!(size_of::<RawEntry>() == GRANULE);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawMark {
    uuid: [u8; 16],
    head: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPlane {
    kind: u8,
    position: u8,
    zero: [u8; 2],
    volume: U32,
    number: U32,
    page: U32,
    padding: [u8; 48],
    words: [U64; PLANE_WORDS],
}

const _: () = assert!(size_of::<RawPlane>() == GRANULE);

impl ReplicaEntry {
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = RawEntry::new_zeroed();
        raw.kind = ENTRY;
        raw.shift = self.shape.shift;
        raw.granules = self.shape.granules.into();
        raw.position = self.identity.position;
        raw.uuid = *self.identity.uuid.as_bytes();
        raw.volume = self.volume.into();
        raw.absent = self.promise.absent;
        raw.promised = self.promise.epoch.into();
        raw.session = self.promise.session.into();
        raw.numbers = self.numbers.map(U32::from);
        raw.committed_epoch = self.committed.epoch.into();
        raw.committed_low = self.committed.low.into();
        let (Till::Committed(till) | Till::Added(till)) = self.till;
        raw.till = u8::from(matches!(self.till, Till::Added(_)));
        raw.till_epoch = till.epoch.into();
        raw.till_low = till.low.into();
        raw.saved = self.saved.into();
        if let Some(size) = self.size {
            raw.said_granules = size.granules.into();
            raw.said_register = size.register.into();
        }
        raw.marks = self.marks.map(|mark| RawMark {
            uuid: mark.uuid,
            head: mark.head.into(),
        });
        raw.as_bytes().to_vec()
    }

    fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let raw: &RawEntry = Reader::new(WHAT, bytes).take()?;
        zeroes(WHAT, "padding", &raw.zero)?;
        zeroes(WHAT, "padding", &raw.padding)?;
        let shape = PlaneShape::of(raw.granules.get());
        let bounded = (1..=VOLUME_GRANULES).contains(&shape.granules);
        ensure(bounded, WHAT, "its size is out of bounds")?;
        ensure(
            shape.shift == raw.shift,
            WHAT,
            "its planes are not cut as they should be",
        )?;
        let known = usize::from(raw.position) < POSITIONS && raw.absent >> POSITIONS == 0;
        ensure(known, WHAT, "its positions are out of bounds")?;
        let volume = raw.volume.get();
        ensure(volume >= FIRST_VOLUME, WHAT, "it is of no volume")?;
        ensure(raw.till <= 1, WHAT, "unknown end of its own plane")?;
        let (epoch, low) = (raw.till_epoch.get(), raw.till_low.get());
        let till = Committed { epoch, low };
        counter(WHAT, "saved sequence", raw.saved.get())?;
        let said = ReplicaSize {
            granules: raw.said_granules.get(),
            register: raw.said_register.get(),
        };
        let is_said = (said.granules, said.register) != (0, 0);
        let is_sound = said.register < said.granules && said.granules <= shape.granules;
        ensure(
            is_sound || !is_said,
            WHAT,
            "the volume was said to be of a size that it cannot have",
        )?;
        Ok(Self {
            volume,
            shape,
            identity: ReplicaIdentity {
                position: raw.position,
                uuid: Uuid::from_bytes(raw.uuid),
            },
            promise: ReplicaPromise {
                epoch: raw.promised.get(),
                session: raw.session.get(),
                absent: raw.absent,
            },
            numbers: raw.numbers.map(U32::get),
            till: match raw.till {
                0 => Till::Committed(till),
                _ => Till::Added(till),
            },
            committed: Committed {
                epoch: raw.committed_epoch.get(),
                low: raw.committed_low.get(),
            },
            saved: raw.saved.get(),
            size: is_said.then_some(said),
            marks: raw.marks.map(|mark| ReplicaMark {
                uuid: mark.uuid,
                head: mark.head.get(),
            }),
        })
    }
}

impl PlanePage {
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = RawPlane::new_zeroed();
        raw.kind = PLANE;
        raw.position = self.position;
        raw.volume = self.volume.into();
        raw.number = self.number.into();
        raw.page = self.page.into();
        for (to, &word) in raw.words.iter_mut().zip(self.words.iter()) {
            *to = word.into();
        }
        raw.as_bytes().to_vec()
    }

    fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let raw: &RawPlane = Reader::new(WHAT, bytes).take()?;
        zeroes(WHAT, "padding", &raw.zero)?;
        zeroes(WHAT, "padding", &raw.padding)?;
        let known = usize::from(raw.position) < POSITIONS;
        ensure(known, WHAT, "its position is out of bounds")?;
        let volume = raw.volume.get();
        ensure(volume >= FIRST_VOLUME, WHAT, "it is of no volume")?;
        let mut words = Box::new([0; PLANE_WORDS]);
        for (to, word) in words.iter_mut().zip(&raw.words) {
            *to = word.get();
        }
        Ok(Self {
            volume,
            position: raw.position,
            number: raw.number.get(),
            page: raw.page.get(),
            words,
        })
    }
}

impl ReplicaPage {
    /// Reads 4,096 bytes; all zero is a free page.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        match bytes.first() {
            Some(&ENTRY) => ReplicaEntry::decode(bytes).map(Self::Entry),
            Some(&PLANE) => PlanePage::decode(bytes).map(Self::Plane),
            Some(0) => {
                zeroes(WHAT, "free page", bytes)?;
                Ok(Self::Free)
            }
            Some(kind) => Err(FormatError::new(WHAT, format!("unknown kind {kind}"))),
            None => Err(FormatError::new(WHAT, "too short")),
        }
    }
}
