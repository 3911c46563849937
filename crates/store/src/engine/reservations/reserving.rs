//! Which slots need a reservation: those of which the ring has something, or is about to, while they have no home.

use crate::engine::access::locks::SlotKey;
use crate::engine::base::Base;
use crate::engine::destage::Destage;
use crate::engine::invariant::invariant;
use crate::engine::journal::Journal;
use crate::engine::journal::logs::Logs;
use crate::engine::map::Map;
use crate::engine::space::Space;
use crate::engine::volumes::VolumeTable;
use crate::ring::GranuleKey;

impl Space {
    /// Whether a slot has no home that can be read; none if its leaf is not here.
    pub(in crate::engine) fn lacks_home(&self, map: &Map, key: SlotKey) -> Option<bool> {
        let home = map.location(key.volume, key.slot)?;
        Some(home == 0 || self.is_lost_home(home))
    }

    /// Slots of a volume that have a home and are counted on, too: destage has just given one its first home, and it was
    /// written meanwhile, or a clear is giving it up. Goes through all that are counted on.
    pub(in crate::engine) fn counted_twice(&self, map: &Map, volume: u32) -> u64 {
        let slots = self.reservations.slots_of(volume);
        let home = |key: &SlotKey| map.location(key.volume, key.slot);
        let homed = slots.filter(|key| home(key).is_some_and(|home| home != 0));
        homed.count() as u64
    }

    /// Whether a slot has no home, or will soon have none. Its leaf is here.
    pub(in crate::engine) fn needs_home(&self, map: &Map, key: SlotKey) -> bool {
        self.lacks_home(map, key) == Some(true) || self.reservations.loses_home(key)
    }
}

/// What it takes to know, and to reserve.
pub(in crate::engine) struct Reserving<'a> {
    pub(in crate::engine) base: &'a mut Base,
    pub(in crate::engine) space: &'a mut Space,
    pub(in crate::engine) volumes: &'a VolumeTable,
    pub(in crate::engine) journal: &'a Journal,
    pub(in crate::engine) logs: &'a Logs,
    pub(in crate::engine) map: &'a mut Map,
}

impl Reserving<'_> {
    /// Counts on a free slot for ring records that have no home yet, and on its leaf.
    pub(in crate::engine) fn reserve(&mut self, key: SlotKey) {
        let Some(class) = self.volumes.class_of(key.volume) else {
            return invariant!(self.base, "a slot of volume {} has no class", key.volume);
        };
        if self.space.reservations.add(key, class) {
            self.map.hold(self.map.leaf_of(key));
        }
    }

    /// The same, if a slot needs a home. Its leaf is here.
    pub(in crate::engine) fn reserve_if_needed(&mut self, key: SlotKey) {
        if self.space.needs_home(self.map, key) {
            self.reserve(key);
        }
    }

    /// A slot stays where it was: what the ring has of it, if anything, counts on a home again.
    pub(in crate::engine) fn reserve_if_kept(&mut self, key: SlotKey) {
        if self.space.needs_home(self.map, key) && self.has_records(key) {
            self.reserve(key);
        }
    }

    /// The slot has a home, or needs none any more.
    pub(in crate::engine) fn unreserve(&mut self, key: SlotKey) {
        if self.space.reservations.remove(key) {
            self.map.let_go(self.map.leaf_of(key));
        }
    }

    /// Drops a reservation that a home has made needless.
    pub(in crate::engine) fn unreserve_if_homed(&mut self, key: SlotKey) {
        let is_needless = match self.space.lacks_home(self.map, key) {
            Some(true) => !self.has_records(key),
            lacks => lacks.is_some(),
        };
        if is_needless {
            self.unreserve(key);
        }
    }

    /// A clear has given a slot's home up. Records of it that are still on their way count on the reservation.
    pub(in crate::engine) fn home_went(&mut self, key: SlotKey) {
        self.space.reservations.home_went(key);
        if !self.has_records(key) {
            self.unreserve(key);
        }
    }

    /// What the ring has of a slot counts on a home: the one it has, or a reserved one. Space that nothing
    /// counts on was given to another write, so neither may be missing.
    pub(in crate::engine) fn check(&mut self, key: SlotKey, destage: &Destage) {
        if self.space.lacks_home(self.map, key) != Some(true)
            || self.space.reservations.has(key)
            || !self.is_recorded(key)
        {
            return;
        }
        // Its drives have gone since it was let in.
        if self.map.location(key.volume, key.slot) != Some(0) {
            return self.reserve(key);
        }
        // Destage has taken a slot for it that the map does not name yet.
        let next = SlotKey {
            slot: key.slot + 1,
            ..key
        };
        invariant!(
            self.base,
            destage.has_any_of(key..next),
            "slot {} of volume {} has records, but neither a home nor the promise of one",
            key.slot,
            key.volume
        );
        self.reserve(key);
    }

    /// Whether the ring has anything of a slot, or is about to.
    fn has_records(&self, key: SlotKey) -> bool {
        self.is_recorded(key) || self.journal.has_pieces_of(self.map.grain(key.volume), key)
    }

    fn is_recorded(&self, key: SlotKey) -> bool {
        let volume = key.volume;
        let recorded = |granule| self.logs.has(GranuleKey { volume, granule });
        self.map.granules_of(key).any(recorded)
    }
}
