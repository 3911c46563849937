//! Slots that records of the ring will need: each is counted on once, by class and by volume, so that destage finds one
//! for every record. And slots whose homes are being given up: a write there needs another.

pub(super) mod reserving;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::access::locks::SlotKey;
use super::class::Class;

/// What is counted on of the free slots.
#[derive(Default)]
pub(super) struct Reservations {
    slots: BTreeMap<SlotKey, Class>,
    of_class: BTreeMap<Class, u64>,
    of_volume: BTreeMap<u32, u64>,
    losing_homes: BTreeSet<SlotKey>,
}

impl Reservations {
    /// Counts on a free slot of this class; false if one is counted on already.
    pub(super) fn add(&mut self, key: SlotKey, class: Class) -> bool {
        let is_new = self.slots.insert(key, class).is_none();
        if is_new {
            *self.of_class.entry(class).or_default() += 1;
            *self.of_volume.entry(key.volume).or_default() += 1;
        }
        is_new
    }

    /// Counts on it no more; false if nothing did.
    pub(super) fn remove(&mut self, key: SlotKey) -> bool {
        let Some(class) = self.slots.remove(&key) else {
            return false;
        };
        take_one(&mut self.of_class, &class);
        take_one(&mut self.of_volume, &key.volume);
        true
    }

    pub(super) fn has(&self, key: SlotKey) -> bool {
        self.slots.contains_key(&key)
    }

    pub(super) fn has_any_in(&self, slots: Range<SlotKey>) -> bool {
        self.slots.range(slots).next().is_some()
    }

    /// The last slot of a volume that is counted on.
    pub(super) fn last_of(&self, volume: u32) -> Option<SlotKey> {
        self.slots_of(volume).next_back()
    }

    /// Free slots of a class that are counted on.
    pub(super) fn of_class(&self, class: Class) -> u64 {
        self.of_class.get(&class).copied().unwrap_or(0)
    }

    /// The same, for a volume.
    pub(super) fn of_volume(&self, volume: u32) -> u64 {
        self.of_volume.get(&volume).copied().unwrap_or(0)
    }

    /// Slots of a volume for which a free one is counted on.
    pub(super) fn slots_of(&self, volume: u32) -> impl DoubleEndedIterator<Item = SlotKey> {
        let first = |volume| SlotKey { volume, slot: 0 };
        let slots = self.slots.range(first(volume)..first(volume + 1));
        slots.map(|(key, _)| *key)
    }

    /// A clear on its way gives a slot's home up.
    pub(super) fn home_goes(&mut self, key: SlotKey) {
        self.losing_homes.insert(key);
    }

    /// That clear is through.
    pub(super) fn home_went(&mut self, key: SlotKey) {
        self.losing_homes.remove(&key);
    }

    pub(super) fn loses_home(&self, key: SlotKey) -> bool {
        self.losing_homes.contains(&key)
    }
}

/// One less is counted; a count of none is forgotten.
fn take_one<K: Ord>(counts: &mut BTreeMap<K, u64>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::Grain;

    #[test]
    fn a_slot_is_counted_once_and_for_its_class_and_volume() {
        let class = Class::mirror(2);
        let key = |slot| SlotKey { volume: 17, slot };
        let mut reservations = Reservations::default();
        assert!(reservations.add(key(3), class) && !reservations.add(key(3), class));
        assert!(reservations.add(key(8), class));
        assert_eq!(
            (reservations.of_class(class), reservations.of_volume(17)),
            (2, 2)
        );
        assert_eq!(reservations.last_of(17), Some(key(8)));
        assert!(
            reservations.has_any_in(key(4)..key(9)) && !reservations.has_any_in(key(4)..key(8))
        );
        assert!(reservations.remove(key(8)) && !reservations.remove(key(8)));
        assert_eq!(
            (reservations.of_class(class), reservations.of_volume(17)),
            (1, 1)
        );
        assert_eq!(reservations.last_of(16), None);
        assert_eq!(class.grain, Grain::K64);
    }
}
