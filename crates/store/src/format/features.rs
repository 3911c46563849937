//! What a pool uses that an older program would misread: a bit and a name each, in its labels and its roots.

use std::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::FormatError;

/// Most of a name.
const NAME_BYTES: usize = 15;

/// Something that a program must know to read a pool that uses it. A number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Copies of replicated volumes: their table, what records say of them, their register of reservations.
    Replicas = 0,
    /// Volumes with a hot home beside their others.
    Tiers = 1,
    /// Volumes that hold what a cache keeps of another device.
    Caches = 2,
}

impl Feature {
    /// Those that this program knows, by their numbers.
    pub const ALL: [Self; 3] = [Self::Replicas, Self::Tiers, Self::Caches];

    /// How people know it: 1 to 15 small letters, digits and `-`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replicas => "replicas",
            Self::Tiers => "tiers",
            Self::Caches => "caches",
        }
    }
}

/// The features that a pool uses, or has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(u64);

impl Features {
    /// A pool that every program can read.
    pub const NONE: Self = Self(0);

    /// These, by their bits. Bits that this program does not know have no name.
    pub const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// A bit each.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// These and another.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature as u64)
    }

    /// All of both.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether none of these is missing.
    pub const fn has(self, others: Self) -> bool {
        others.0 & !self.0 == 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their names, in the order of their bits.
    pub fn names(self) -> Vec<String> {
        let entries = self.entries().into_iter();
        entries.map(|entry| entry.shown()).collect()
    }

    pub(super) const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// An entry for each, in the order of their bits.
    pub(super) fn entries(self) -> Vec<RawFeature> {
        let bits = (0..64u8).filter(|bit| self.0 >> bit & 1 == 1);
        bits.map(RawFeature::of).collect()
    }

    /// The same without names.
    pub(super) fn nameless(self) -> Vec<RawFeature> {
        let entries = self.entries().into_iter();
        let nameless = |RawFeature { bit, .. }| RawFeature {
            bit,
            ..RawFeature::ZERO
        };
        entries.map(nameless).collect()
    }

    /// The features of such entries.
    ///
    /// # Errors
    /// Some that this program lacks, by the names that the entries give them; entries that make no sense.
    pub(super) fn of_entries(
        what: &'static str,
        entries: &[RawFeature],
    ) -> Result<Self, FormatError> {
        let ascend = entries.windows(2).all(|pair| pair[0].bit < pair[1].bit);
        if !ascend || entries.iter().any(|entry| entry.bit >= 64) {
            return Err(FormatError::new(what, "its list of features is malformed"));
        }
        let lacking = entries.iter().filter(|entry| !entry.is_known());
        let lacking: Vec<String> = lacking.map(RawFeature::shown).collect();
        if !lacking.is_empty() {
            let lacking = lacking.join(", ");
            let why = format!("it needs features that this program lacks: {lacking}");
            return Err(FormatError::new(what, why));
        }
        let bits = entries.iter().map(|entry| 1 << entry.bit);
        Ok(Self(bits.fold(0, |bits: u64, bit: u64| bits | bit)))
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<T: IntoIterator<Item = Feature>>(features: T) -> Self {
        features.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&self.names().join(", ")),
        }
    }
}

/// A feature in a label or a root: with its name, for a program that does not know it.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawFeature {
    bit: u8,
    name: [u8; NAME_BYTES],
}

const _: () = assert!(size_of::<RawFeature>() == 16);

impl RawFeature {
    /// Bytes of an entry.
    pub(super) const BYTES: usize = size_of::<Self>();
    /// No entry.
    pub(super) const ZERO: Self = Self {
        bit: 0,
        name: [0; NAME_BYTES],
    };

    fn of(bit: u8) -> Self {
        let mut known = Feature::ALL.into_iter();
        let name = known.find(|feature| *feature as u8 == bit);
        let name = name.map_or("", Feature::name).as_bytes();
        let mut raw = Self { bit, ..Self::ZERO };
        raw.name[..name.len()].copy_from_slice(name);
        raw
    }

    /// Whether both are of one bit.
    pub(super) const fn is_of(&self, other: &Self) -> bool {
        self.bit == other.bit
    }

    /// Whether it is a feature of this program, with the name that it has here.
    fn is_known(&self) -> bool {
        let known = Feature::ALL.into_iter();
        let mut known = known.map(|feature| Self::of(feature as u8));
        known.any(|one| one.as_bytes() == self.as_bytes())
    }

    /// What people are told: only a name that is one gets to a terminal.
    fn shown(&self) -> String {
        let length = self.name.iter().position(|byte| *byte == 0);
        let (name, rest) = self.name.split_at(length.unwrap_or(NAME_BYTES));
        let plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_name = !name.is_empty() && name.iter().all(plain) && rest.iter().all(|&b| b == 0);
        match (self.is_known(), std::str::from_utf8(name)) {
            (true, Ok(name)) => name.to_owned(),
            (false, Ok(name)) if is_name => format!("{name} (bit {})", self.bit),
            _ => format!("bit {}", self.bit),
        }
    }
}

impl PartialEq for RawFeature {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}
