//! What the ring holds and the homes do not (yet): granule by granule, the newest record.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use crate::sizes::LEAF_GRANULES;

/// A granule of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GranuleKey {
    pub volume: u32,
    /// Its number in the volume.
    pub granule: u64,
}

/// The newest record of a granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    pub sequence: u64,
    /// Position of its data in the ring.
    pub at: u64,
    pub crc: u32,
}

/// Mixes two words; the keys are numbers of our own, they are not chosen to collide. Never iterated,
/// so the order of its buckets decides nothing.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// The index of a ring.
#[derive(Debug, Default)]
pub struct Index {
    newest: HashMap<GranuleKey, Newest, BuildHasherDefault<Mix>>,
    /// Of these leaves of the map it knows something: so many granules, by volume and leaf.
    leaves: HashMap<(u32, u64), u32, BuildHasherDefault<Mix>>,
}

const fn leaf_of(key: GranuleKey) -> (u32, u64) {
    (key.volume, key.granule / LEAF_GRANULES)
}

impl Index {
    /// The granule's newest record.
    pub fn get(&self, key: GranuleKey) -> Option<Newest> {
        self.newest.get(&key).copied()
    }

    /// A record is published; returns the one it supersedes.
    pub fn insert(&mut self, key: GranuleKey, newest: Newest) -> Option<Newest> {
        let before = self.newest.insert(key, newest);
        if before.is_none() {
            *self.leaves.entry(leaf_of(key)).or_default() += 1;
        }
        before
    }

    /// Whether it knows anything of a leaf of the map.
    pub fn knows_leaf(&self, volume: u32, leaf: u64) -> bool {
        self.leaves.contains_key(&(volume, leaf))
    }

    /// Forgets the granule's record if it is older than `sequence`; returns it.
    pub fn remove_older(&mut self, key: GranuleKey, sequence: u64) -> Option<Newest> {
        let newest = self.newest.get(&key)?;
        if newest.sequence >= sequence {
            return None;
        }
        if let Entry::Occupied(mut leaf) = self.leaves.entry(leaf_of(key)) {
            *leaf.get_mut() -= 1;
            if *leaf.get() == 0 {
                leaf.remove();
            }
        }
        self.newest.remove(&key)
    }

    /// How many granules it knows.
    pub fn len(&self) -> usize {
        self.newest.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }
}
