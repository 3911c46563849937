//! How many pages the map has, or will have once everything is written that is counted on. Who is
//! let in counts on the leaves that it will change, until they are changed; so does a slot that waits
//! for a home; and a page that has changed counts on a place until it is written. Who counts on a leaf
//! counts on the tables above it. So what the map may come to need is known before it is needed
//! ([`places`](crate::engine::space::places)), and never more than once, however many changes a page waits for.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Range;

use super::{FANOUT, Map, Table, leaf_id, parent};
use crate::format::{PLACE_NONE, PageId, TableEntry, TablePage};
use crate::ring::Mix;

/// Pages that there are, and that there will be.
#[derive(Default)]
pub(crate) struct PageReservations {
    /// How many count on a page; on a table, how many pages below it that are counted on.
    holders: HashMap<PageId, u32, BuildHasherDefault<Mix>>,
    /// Pages that are counted on and are not there.
    fresh: u64,
    /// Pages that are there.
    there: u64,
}

impl PageReservations {
    /// Pages that are there or will be.
    fn pages(&self) -> u64 {
        self.there + self.fresh
    }

    /// Whether a page is counted on.
    fn is_held(&self, id: PageId) -> bool {
        self.holders.contains_key(&id)
    }

    /// One more counts on a page that is counted on; false if it is not.
    fn hold_again(&mut self, id: PageId) -> bool {
        let count = self.holders.get_mut(&id);
        count.map(|count| *count += 1).is_some()
    }

    /// The first counts on a page.
    fn hold_first(&mut self, id: PageId, is_there: bool) {
        self.holders.insert(id, 1);
        self.fresh += u64::from(!is_there);
    }

    /// One counts on a page no more; says whether it was the last.
    fn let_go(&mut self, id: PageId) -> bool {
        let Some(count) = self.holders.get_mut(&id) else {
            return false;
        };
        *count -= 1;
        *count == 0 && self.holders.remove(&id).is_some()
    }

    /// A page that is not there was only counted on.
    fn none_comes(&mut self) {
        self.fresh -= 1;
    }

    /// A page is there.
    pub(super) fn came(&mut self, id: PageId) {
        self.there += 1;
        self.fresh -= u64::from(self.is_held(id));
    }

    /// A page is there no more.
    pub(super) fn went(&mut self, id: PageId) {
        self.there -= 1;
        self.fresh += u64::from(self.is_held(id));
    }
}

impl Map {
    /// A table, and the one that is to name it, if there are none yet.
    pub(super) fn make_table(&mut self, id: PageId) {
        if self.tables.contains_key(&id) {
            return;
        }
        let page = TablePage(Box::new([TableEntry::NONE; FANOUT as usize]));
        self.tables.insert(id, Table { page, dirty: true });
        self.reserved.came(id);
        if id.level < 2 {
            self.make_table(parent(id));
        }
    }

    /// Whether a page has a place; of a table, whether it is here, for all of them are.
    fn is_there(&self, id: PageId) -> bool {
        match id.level {
            0 => self.has_page(id),
            _ => self.tables.contains_key(&id),
        }
    }

    /// Whether a page of level 0 has a place.
    pub(crate) fn has_page(&self, id: PageId) -> bool {
        self.entry(id).place != PLACE_NONE
    }

    /// One more counts on a page of level 0, and so on the tables above it.
    pub(crate) fn hold(&mut self, page: PageId) {
        let mut id = page;
        while !self.reserved.hold_again(id) {
            self.reserved.hold_first(id, self.is_there(id));
            if id.level == 2 {
                return;
            }
            id = parent(id);
        }
    }

    /// Takes back what [`hold`](Self::hold) did.
    pub(crate) fn let_go(&mut self, page: PageId) {
        let mut id = page;
        while self.reserved.let_go(id) {
            if !self.is_there(id) {
                self.reserved.none_comes();
            }
            if id.level == 2 {
                return;
            }
            id = parent(id);
        }
    }

    /// Pages that changes of these leaves would add to those that there are or will be.
    pub(crate) fn pages_for(&self, volume: u32, leaves: Range<u64>) -> u64 {
        let counts = |id: PageId| self.is_there(id) || self.reserved.is_held(id);
        let mut new = BTreeSet::new();
        for leaf in leaves {
            let mut id = leaf_id(volume, leaf);
            while !counts(id) && new.insert(id) && id.level < 2 {
                id = parent(id);
            }
        }
        new.len() as u64
    }

    /// Pages of all levels that there are, or that are counted on.
    pub(crate) fn pages_in_all(&self) -> u64 {
        self.reserved.pages()
    }

    /// Pages of level 1 and 2.
    pub(crate) fn table_pages(&self) -> u64 {
        self.tables.len() as u64
    }

    /// Whether a checkpoint would leave pages out of which nothing is left.
    pub(crate) fn has_emptied_leaves(&self) -> bool {
        !self.emptied.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::map::Change;
    use crate::sizes::LEAF_GRANULES;

    const VOLUME: u32 = 16;

    /// Pages by what is there and who is told, not by what was counted.
    fn counted(map: &Map, held: &[u64]) -> u64 {
        let mut all: BTreeSet<PageId> = map.tables.keys().copied().collect();
        let tables: Vec<PageId> = all.iter().filter(|id| id.level == 1).copied().collect();
        all.extend(
            tables
                .into_iter()
                .flat_map(|id| map.children(id))
                .map(|(id, _)| id),
        );
        let changed = map.dirty.iter().map(|&(_, id)| id);
        for page in changed.chain(held.iter().map(|&leaf| leaf_id(VOLUME, leaf))) {
            all.extend([page, parent(page), parent(parent(page))]);
        }
        all.len() as u64
    }

    /// Writes everything that has changed.
    fn checkpoint(map: &mut Map, next: &mut u64) {
        let mut write = |map: &mut Map, id: PageId, bytes: Option<Vec<u8>>| {
            *next += 1;
            let entry = TableEntry {
                place: *next,
                ..TableEntry::NONE
            };
            map.set_entry(id, bytes.map_or(TableEntry::NONE, |_| entry));
        };
        while let Some((id, bytes)) = map.take_dirty() {
            write(map, id, bytes);
        }
        for level in [1, 2] {
            for (id, bytes) in map.take_dirty_tables(level) {
                write(map, id, bytes);
            }
        }
    }

    #[test]
    fn pages_that_several_count_on_are_counted_once() {
        let (mut map, mut chance, mut next) = (Map::default(), 9u64, 0);
        let mut held: Vec<u64> = Vec::new();
        for sequence in 1..3000 {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let leaf = (chance >> 33) % 40 * 29 + (chance >> 60) % 2 * 16_384;
            let (first, granules) = (leaf * LEAF_GRANULES, 16);
            match (chance >> 50) % 16 {
                0..4 => {
                    let more = map.pages_for(VOLUME, leaf..leaf + 1);
                    let before = map.pages_in_all();
                    map.hold(leaf_id(VOLUME, leaf));
                    held.push(leaf);
                    assert_eq!(map.pages_in_all(), before + more);
                }
                4..8 if !held.is_empty() => {
                    let leaf = held.swap_remove((chance >> 40) as usize % held.len());
                    map.let_go(leaf_id(VOLUME, leaf));
                }
                8..11 => map.apply(
                    &Change::Place {
                        moved: false,
                        volume: VOLUME,
                        first,
                        granules,
                        new: 1 << 12 | (leaf as u32 & 511),
                        old: 0,
                        crcs: [1; 16],
                    },
                    sequence,
                ),
                11..14 => map.apply(
                    &Change::Clear {
                        volume: VOLUME,
                        first,
                        granules,
                        old: 1 << 12 | (leaf as u32 & 511),
                    },
                    sequence,
                ),
                14 => checkpoint(&mut map, &mut next),
                _ => {}
            }
            assert_eq!(map.pages_in_all(), counted(&map, &held), "{sequence}");
        }
        assert!(next > 500 && !held.is_empty());
    }
}
