//! How often slots of volumes with a tier were lately read and written: a byte a slot, kept with the leaf in
//! memory and nowhere else. It goes when the leaf goes, and in a crash: then everything is cold, and warms up
//! again.

use super::{Map, leaf_id};
use crate::engine::access::locks::SlotKey;
use crate::format::PageId;
use crate::sizes::LEAF_GRANULES;

/// Reads in the low four bits, writes in the high ones. Both stop at 15, and are halved now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heat(u8);

/// What is done to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
}

const MOST: u8 = 15;

impl Heat {
    /// Reads, 0 to 15.
    pub(crate) const fn reads(self) -> u8 {
        self.0 & MOST
    }

    /// Writes, 0 to 15.
    pub(crate) const fn writes(self) -> u8 {
        self.0 >> 4
    }

    /// Nothing is known of it.
    pub(crate) const fn is_cold(self) -> bool {
        self.0 == 0
    }

    fn touched(self, touch: Touch) -> Self {
        match touch {
            Touch::Read => Self(self.0 + u8::from(self.reads() < MOST)),
            Touch::Write => Self(self.0 + (u8::from(self.writes() < MOST) << 4)),
        }
    }

    /// Half of it.
    const fn halved(self) -> Self {
        Self((self.reads() / 2) | ((self.writes() / 2) << 4))
    }
}

impl Map {
    /// The leaf of a slot, and which of its slots it is.
    fn place_of(&self, key: SlotKey) -> (PageId, usize) {
        let grain = self.grain(key.volume);
        let leaf = grain.first(key.slot) / LEAF_GRANULES;
        (leaf_id(key.volume, leaf), grain.in_leaf(key.slot))
    }

    /// How hot a slot is; cold if its leaf is not here.
    pub(crate) fn heat(&self, key: SlotKey) -> Heat {
        let (id, at) = self.place_of(key);
        let heat = self.pages.get(&id).and_then(|page| page.heat.get(at));
        heat.copied().unwrap_or_default()
    }

    /// A slot was read or written.
    pub(crate) fn warm(&mut self, key: SlotKey, touch: Touch) {
        let slots = self.grain(key.volume).slots_a_leaf();
        let (id, at) = self.place_of(key);
        if let Some(page) = self.pages.get_mut(&id) {
            page.heat.resize(slots, Heat::default());
            page.heat[at] = page.heat[at].touched(touch);
        }
    }

    /// Halves the heat of a slot.
    pub(crate) fn cool(&mut self, key: SlotKey) {
        let (id, at) = self.place_of(key);
        let page = self.pages.get_mut(&id);
        if let Some(heat) = page.and_then(|page| page.heat.get_mut(at)) {
            *heat = heat.halved();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Change, FIRST_VOLUME};
    use super::*;
    use crate::sizes::UNIT_GRANULES;

    #[test]
    fn heat_is_counted_up_to_a_most_and_halved() {
        let mut heat = Heat::default();
        for _ in 0..100 {
            heat = heat.touched(Touch::Read);
        }
        assert_eq!((heat.reads(), heat.writes()), (15, 0));
        for _ in 0..3 {
            heat = heat.touched(Touch::Write);
        }
        assert_eq!((heat.reads(), heat.writes()), (15, 3));
        let halves: Vec<(u8, u8)> = (0..4)
            .map(|_| {
                heat = heat.halved();
                (heat.reads(), heat.writes())
            })
            .collect();
        assert_eq!(halves, [(7, 1), (3, 0), (1, 0), (0, 0)]);
        assert!(heat.is_cold());
    }

    #[test]
    fn it_is_with_the_leaf_and_nowhere_else() {
        let mut map = Map::default();
        let key = SlotKey {
            volume: FIRST_VOLUME,
            slot: 33,
        };
        map.warm(key, Touch::Write);
        assert!(map.heat(key).is_cold(), "its leaf is not here");
        let change = Change::Place {
            moved: false,
            volume: key.volume,
            first: key.slot * UNIT_GRANULES,
            granules: UNIT_GRANULES as u16,
            new: 0x1001,
            old: 0,
            crcs: [1; 16],
        };
        map.apply(&change, 1);
        map.warm(key, Touch::Write);
        map.warm(key, Touch::Write);
        assert_eq!(map.heat(key).writes(), 2);
        map.cool(key);
        assert_eq!(map.heat(key).writes(), 1);
        assert!(map.heat(SlotKey { slot: 34, ..key }).is_cold());
    }
}
