//! Leaves of which no copy can be read. In the place of one comes a leaf in which every block is lost: an error until
//! it is written. Nothing changes on the drives before something in it does, so what cannot be read for a while only is
//! found again; then it is written soon, for an import cannot apply changes to a page that it cannot read. A walk, and
//! what writes the map elsewhere, read such leaves once more, and do not take the word of what is here for them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Changed, Content, Map, leaf_id};
use crate::engine::access::locks::SlotKey;
use crate::format::{Leaf, PLACE_NONE, PageId};
use crate::ring::GranuleKey;
use crate::sizes::LEAF_GRANULES;

/// What is lost of the map.
#[derive(Default)]
pub(super) struct Losses {
    /// Lost blocks of each leaf that has some, as its table says, or as they were when it was found.
    blocks: BTreeMap<PageId, u16>,
    /// Leaves that are here, or were, for others that cannot be read.
    unread: BTreeSet<PageId>,
}

/// Blocks of a volume of which some are lost: what one leaf describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostBlocks {
    /// The volume's number.
    pub volume: u32,
    /// The first block, of 4 KiB.
    pub first: u64,
    /// Blocks among which the lost ones are.
    pub blocks: u64,
    /// How many of them are lost.
    pub lost: u64,
}

impl LostBlocks {
    /// All that a leaf describes.
    fn of_leaf(id: PageId) -> Self {
        Self {
            volume: id.node,
            first: u64::from(id.index) * LEAF_GRANULES,
            blocks: LEAF_GRANULES,
            lost: LEAF_GRANULES,
        }
    }

    /// One granule.
    pub(crate) fn of(key: &GranuleKey) -> Self {
        Self {
            volume: key.volume,
            first: key.granule,
            blocks: 1,
            lost: 1,
        }
    }

    /// The same, with neighbours of one volume together.
    pub(crate) fn merged(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_unstable_by_key(|one| (one.volume, one.first));
        let mut merged: Vec<Self> = Vec::new();
        for one in all {
            match merged.last_mut() {
                Some(last) if last.volume == one.volume && last.end() == one.first => {
                    last.blocks += one.blocks;
                    last.lost += one.lost;
                }
                _ => merged.push(one),
            }
        }
        merged
    }

    /// The block behind the last.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.blocks
    }
}

impl Losses {
    /// What a table says of a leaf.
    pub(super) fn learn(&mut self, id: PageId, lost: u16) {
        match lost {
            0 => self.blocks.remove(&id),
            lost => self.blocks.insert(id, lost),
        };
    }

    /// A leaf that could not be read before can be read now.
    pub(super) fn found(&mut self, id: PageId, lost: u16) {
        if !self.blocks.is_empty() {
            self.learn(id, lost);
        }
    }

    /// A leaf is written, or has gone from here; says whether it had come for one that cannot be read.
    pub(super) fn left(&mut self, id: PageId) -> bool {
        self.unread.remove(&id)
    }
}

impl Map {
    /// No copy of a leaf can be read: all its blocks are lost.
    pub(crate) fn lose(&mut self, id: PageId) {
        if self.is_loaded(id) || self.entry(id).place == PLACE_NONE {
            return;
        }
        self.loaded(id, Content::Leaf(Leaf::lost(self.grain(id.node))));
        if let Some(page) = self.pages.get_mut(&id) {
            page.changed = Changed::all();
        }
        self.losses.blocks.insert(id, LEAF_GRANULES as u16);
        self.losses.unread.insert(id);
        let (slots, granules) = self.homes_said_of(id);
        let mapped = self.mapped.entry(id.node).or_default();
        *mapped = mapped.saturating_sub(slots);
        self.mapped_granules = self.mapped_granules.saturating_sub(granules);
    }

    /// A leaf that came for one that cannot be read goes again, unchanged: the next look reads it once more.
    pub(super) fn unlose(&mut self, id: PageId) {
        if self.losses.left(id) {
            let (slots, granules) = self.homes_said_of(id);
            *self.mapped.entry(id.node).or_default() += slots;
            self.mapped_granules += granules;
        }
    }

    /// Leaves that came for others that cannot be read go, as far as nothing has changed in them and nothing uses them.
    pub(crate) fn look_again(&mut self) {
        let unread: Vec<PageId> = self.losses.unread.iter().copied().collect();
        for id in unread {
            if self.is_unread(id) && self.forget_leaf(id) {
                self.unlose(id);
            }
        }
    }

    /// Whether a leaf is here for one that cannot be read, and nothing has changed in it: that one may be found again.
    pub(crate) fn is_unread(&self, id: PageId) -> bool {
        self.losses.unread.contains(&id) && !self.is_changed(id)
    }

    fn is_changed(&self, id: PageId) -> bool {
        let page = self.pages.get(&id);
        page.is_some_and(|page| page.first_dirty.is_some())
    }

    /// Whether a leaf that cannot be read has slots with homes, which may be anywhere.
    pub(crate) fn hides_slots(&self, id: PageId) -> bool {
        self.is_unread(id) && self.entry(id).slots > 0
    }

    /// Slots of a leaf that have homes, by its table, and their granules.
    fn homes_said_of(&self, id: PageId) -> (u64, u64) {
        let slots = u64::from(self.entry(id).slots);
        (slots, slots * self.grain(id.node).granules())
    }

    /// Whether a leaf that came for one that cannot be read has changed since: it is to be written soon.
    pub(crate) fn has_changed_losses(&self) -> bool {
        self.losses.unread.iter().any(|&id| self.is_changed(id))
    }

    /// A block of a leaf that is here will be said to be lost.
    pub(crate) fn expect_lost(&mut self, id: PageId) {
        if let Some(Content::Leaf(leaf)) = self.pages.get_mut(&id).map(|page| &mut page.content) {
            leaf.expect_lost();
            self.losses.blocks.entry(id).or_default();
        }
    }

    /// Lost blocks of a leaf that is here.
    pub(crate) fn lost_of(&self, id: PageId) -> u16 {
        match self.pages.get(&id).map(|page| &page.content) {
            Some(Content::Leaf(leaf)) => leaf.lost_granules(),
            _ => 0,
        }
    }

    /// Lost blocks of a slot whose leaf is here.
    pub(crate) fn lost_in(&self, key: SlotKey) -> u16 {
        if self.losses.blocks.is_empty() {
            return 0;
        }
        let granules = self.grain(key.volume).range(key.slot);
        let leaf = leaf_id(key.volume, granules.start / LEAF_GRANULES);
        let at = (granules.start % LEAF_GRANULES) as usize;
        match self.pages.get(&leaf).map(|page| &page.content) {
            Some(Content::Leaf(leaf)) => {
                leaf.lost_among(at..at + (granules.end - granules.start) as usize)
            }
            _ => 0,
        }
    }

    /// What is lost of these leaves, wherever it was found before.
    pub(crate) fn lost_of_leaves(&self, leaves: &BTreeSet<PageId>) -> Vec<LostBlocks> {
        let lost = leaves.iter().map(|&id| match self.is_loaded(id) {
            true => LostBlocks {
                lost: self.lost_of(id).into(),
                ..LostBlocks::of_leaf(id)
            },
            false => LostBlocks::of_leaf(id),
        });
        lost.filter(|one| one.lost > 0).collect()
    }

    /// What is lost, in order.
    pub(crate) fn lost_blocks(&self) -> Vec<LostBlocks> {
        let known = self.losses.blocks.iter();
        let of_leaf = |(&id, &lost): (&PageId, &u16)| LostBlocks {
            lost: match self.is_loaded(id) {
                true => self.lost_of(id).into(),
                false => lost.into(),
            },
            ..LostBlocks::of_leaf(id)
        };
        let lost = known.map(of_leaf).filter(|one| one.lost > 0);
        LostBlocks::merged(lost.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Change, FIRST_VOLUME};
    use super::*;
    use crate::format::{LOST_CRC, TableEntry};
    use crate::sizes::UNIT_GRANULES;

    const LEAF: PageId = leaf_id(FIRST_VOLUME, 1);

    fn map() -> Map {
        let mut map = Map::default();
        let entry = TableEntry {
            place: 1 << 16,
            slots: 3,
            ..TableEntry::NONE
        };
        map.set_entry(LEAF, entry);
        (map.mapped_granules, _) = (48, map.mapped.insert(FIRST_VOLUME, 3));
        map.lose(LEAF);
        map
    }

    fn clear(first: u64) -> Change {
        Change::Clear {
            volume: FIRST_VOLUME,
            first,
            granules: UNIT_GRANULES as u16,
            old: 0,
        }
    }

    #[test]
    fn a_lost_leaf_stays_as_it_is_until_something_changes_in_it() {
        let mut map = map();
        assert_eq!(map.granule(FIRST_VOLUME, 700), Some((0, LOST_CRC)));
        assert_eq!((map.dirty_pages(), map.mapped(FIRST_VOLUME)), (0, 0));
        assert!(!map.has_changed_losses());
        let listed = LostBlocks {
            volume: FIRST_VOLUME,
            first: 512,
            blocks: 512,
            lost: 512,
        };
        assert_eq!(map.lost_blocks(), [listed]);
        // The first look at it lets it stay, the second lets it go: it may be readable then.
        map.evict(0, 2);
        assert_eq!((map.leaves(), map.mapped(FIRST_VOLUME)), (0, 3));
        map.loaded(LEAF, Content::Leaf(Leaf::empty(map.grain(FIRST_VOLUME))));
        assert_eq!(map.lost_blocks(), []);
    }

    #[test]
    fn what_is_cleared_of_a_lost_leaf_is_lost_no_more() {
        let mut map = map();
        map.apply(&clear(512), 7);
        assert!(map.has_changed_losses());
        assert_eq!(map.places_of(LEAF), None, "only its page says all of it");
        assert_eq!(map.lost_blocks()[0].lost, 496);
        let (id, bytes) = map.take_dirty().unwrap();
        let written = Leaf::decode(&bytes.unwrap()).unwrap();
        assert_eq!((id, written.lost_granules()), (LEAF, 496));
        assert!(!map.has_changed_losses());
        for slot in 1..32 {
            map.apply(&clear(512 + slot * UNIT_GRANULES), 8 + slot);
        }
        assert_eq!(map.lost_blocks(), []);
        assert_eq!(map.take_dirty(), Some((LEAF, None)), "nothing is in it");
    }

    #[test]
    fn tables_name_leaves_that_have_lost_blocks() {
        let mut map = Map::default();
        let entry = |lost| TableEntry {
            place: 1 << 16,
            lost,
            ..TableEntry::NONE
        };
        map.set_entry(LEAF, entry(5));
        assert_eq!(map.lost_blocks()[0].lost, 5);
        map.set_entry(LEAF, entry(0));
        assert_eq!(map.lost_blocks(), []);
    }
}
