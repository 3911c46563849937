//! What of a leaf has changed since it was written, and the same as records that say it again.

use super::{Change, Content, FIRST_VOLUME, Map, leaf_id};
use crate::format::PageId;
use crate::sizes::{LEAF_GRANULES, LEAF_SLOTS, UNIT_GRANULES};

/// Slots of a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed([u64; LEAF_SLOTS.div_ceil(64)]);

impl Changed {
    /// All of them.
    pub(super) const fn all() -> Self {
        Self([u64::MAX; LEAF_SLOTS.div_ceil(64)])
    }

    /// Counts a slot, by its number in the leaf, as changed.
    pub(super) fn insert(&mut self, slot: u64) {
        if let Some(word) = self.0.get_mut(slot as usize / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    /// Whether none has.
    pub(super) fn is_none(self) -> bool {
        self.len() == 0
    }

    fn len(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn slots(self) -> impl Iterator<Item = u64> {
        let is_in = move |slot: &u64| self.0[*slot as usize / 64] >> (slot % 64) & 1 == 1;
        (0..LEAF_SLOTS as u64).filter(is_in)
    }
}

/// A leaf's changes, said again.
#[derive(Debug)]
pub(crate) struct Relogged {
    pub(crate) leaf: PageId,
    /// Sequence of the first of the records.
    pub(crate) sequence: u64,
    /// Where each slot that has changed since the leaf was written is.
    pub(crate) places: Vec<Change>,
}

impl Change {
    /// The leaf that it changes, if it changes one.
    pub(crate) fn leaf(&self) -> Option<PageId> {
        match self {
            Self::Place { volume, first, .. } | Self::Clear { volume, first, .. } => {
                Some(leaf_id(*volume, first / LEAF_GRANULES))
            }
            Self::Entry { .. } => None,
        }
    }
}

impl Map {
    /// Leaves with changes below this sequence that are in no written page, oldest first.
    pub(crate) fn leaves_older_than(&self, sequence: u64) -> impl Iterator<Item = PageId> {
        let older = self
            .dirty
            .iter()
            .take_while(move |(first, _)| *first < sequence);
        let leaves = older.filter(|(_, id)| id.node >= FIRST_VOLUME);
        leaves.map(|&(_, id)| id)
    }

    /// How many records, of how many granules each, say a leaf's changes again.
    pub(crate) fn relog_weight(&self, leaf: PageId) -> (usize, usize) {
        let changed = self.pages.get(&leaf).map_or(0, |page| page.changed.len());
        (changed, self.grain(leaf.node).granules() as usize)
    }

    /// The same records; `None` if there is nothing to say, or a slot has no home any more: only clearing
    /// says that, and clearing would void what the ring has got since.
    pub(crate) fn places_of(&self, id: PageId) -> Option<Vec<Change>> {
        let page = self.pages.get(&id)?;
        let Content::Leaf(leaf) = &page.content else {
            return None;
        };
        let grain = leaf.grain();
        let granules = grain.granules() as usize;
        let start = u64::from(id.index) * LEAF_GRANULES;
        let place = |slot: u64| {
            let at = grain.first(slot) as usize;
            let new = leaf.locations().get(slot as usize).copied()?;
            let mut crcs = [0; UNIT_GRANULES as usize];
            crcs[..granules].copy_from_slice(leaf.crcs.get(at..at + granules)?);
            (new != 0).then_some(Change::Place {
                moved: true,
                volume: id.node,
                first: start + at as u64,
                granules: granules as u16,
                new,
                old: 0,
                crcs,
            })
        };
        let places: Vec<Change> = page.changed.slots().map(place).collect::<Option<_>>()?;
        (!places.is_empty()).then_some(places)
    }

    /// Records that say a leaf's changes again are durable: the older ones are not needed for it.
    pub(crate) fn relogged(&mut self, one: &Relogged) {
        let Some(page) = self.pages.get_mut(&one.leaf) else {
            return;
        };
        // It may have been written meanwhile.
        if let Some(first) = page.first_dirty {
            self.dirty.remove(&(first, one.leaf));
            page.first_dirty = Some(one.sequence);
            self.dirty.insert((one.sequence, one.leaf));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(slot: u64, new: u32) -> Change {
        Change::Place {
            moved: false,
            volume: FIRST_VOLUME,
            first: slot * UNIT_GRANULES,
            granules: UNIT_GRANULES as u16,
            new,
            old: 0,
            crcs: [new; UNIT_GRANULES as usize],
        }
    }

    fn changed_places(map: &Map, leaf: PageId) -> Option<Vec<(u64, u32)>> {
        let place = |change: &Change| match change {
            Change::Place {
                first, new, crcs, ..
            } => {
                assert!(crcs.iter().all(|crc| crc == new), "{change:?}");
                (first / UNIT_GRANULES, *new)
            }
            other => panic!("{other:?}"),
        };
        Some(map.places_of(leaf)?.iter().map(place).collect())
    }

    #[test]
    fn what_has_changed_since_a_leaf_was_written_is_said_again_as_it_is_now() {
        let leaf = leaf_id(FIRST_VOLUME, 1);
        let mut map = Map::default();
        map.apply(&place(33, 0x1001), 10);
        map.apply(&place(40, 0x1002), 11);
        map.apply(&place(33, 0x1003), 12);
        let now = vec![(33, 0x1003), (40, 0x1002)];
        assert_eq!(changed_places(&map, leaf), Some(now.clone()));
        let one = Relogged {
            leaf,
            sequence: 20,
            places: Vec::new(),
        };
        map.relogged(&one);
        let old: Vec<PageId> = map.leaves_older_than(20).collect();
        assert_eq!(old, [], "its changes are no older than the records");
        assert_eq!(map.leaves_older_than(21).count(), 1);
        // They are in no page for all that.
        assert_eq!(changed_places(&map, leaf), Some(now));
        while map.take_dirty().is_some() {}
        assert_eq!(changed_places(&map, leaf), None);
        map.relogged(&one);
        assert_eq!(map.dirty_pages(), 0, "a written page stays clean");
        map.apply(&place(41, 0x1004), 30);
        assert_eq!(changed_places(&map, leaf), Some(vec![(41, 0x1004)]));
    }

    #[test]
    fn a_leaf_with_a_slot_that_was_cleared_is_left_to_its_page() {
        let mut map = Map::default();
        map.apply(&place(1, 0x1001), 10);
        let clear = Change::Clear {
            volume: FIRST_VOLUME,
            first: UNIT_GRANULES,
            granules: UNIT_GRANULES as u16,
            old: 0x1001,
        };
        map.apply(&clear, 11);
        assert_eq!(changed_places(&map, leaf_id(FIRST_VOLUME, 0)), None);
    }
}
