//! Looking through the map for pages that are to lie elsewhere, a part at a time, for a map may be large:
//! of segments that lost a column, and for a scrub all of them, because what is written anew has all its copies.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::Map;
use crate::format::{PLACE_NONE, PageId};

/// Tables that one look looks at, and pages found after which it ends.
const TABLES: usize = 64;
const PAGES: usize = 256;

/// How far that has come.
#[derive(Default)]
pub(super) struct Renewal {
    under_way: bool,
    /// The table to look at next; `None` for the beginning.
    at: Option<PageId>,
    /// Something was found since the beginning, or may be now where nothing was: another time through.
    again: bool,
    /// Places that a scrub leaves, page by page.
    leaving: BTreeSet<u64>,
    /// Places of leaves that cannot be read, and so stay where they are until everything is looked through anew.
    staying: BTreeSet<u64>,
}

impl Renewal {
    /// The page that was here is elsewhere now.
    pub(super) fn left(&mut self, place: u64) {
        self.leaving.remove(&place);
        self.staying.remove(&place);
    }

    /// The page that is here cannot be read: it stays, and with it what the drives have of it.
    fn stays(&mut self, place: u64) {
        self.leaving.remove(&place);
        self.staying.insert(place);
    }
}

impl Map {
    /// Whether pages may still lie where they are to be moved from.
    pub(crate) fn is_renewing(&self) -> bool {
        self.renewal.under_way
    }

    /// Whether all of it is being written anew, for a scrub.
    pub(crate) fn leaves_places(&self) -> bool {
        !self.renewal.leaving.is_empty()
    }

    /// Everything is looked through, or from where a look is to the end and then once more.
    pub(crate) fn begin_renewal(&mut self) {
        self.look_again();
        let renewal = &mut self.renewal;
        renewal.staying.clear();
        renewal.again = std::mem::replace(&mut renewal.under_way, true);
    }

    /// Every page is to be written anew.
    pub(crate) fn leave_places(&mut self) {
        self.renewal.leaving = self.places().collect();
        self.begin_renewal();
    }

    /// Looks at the next part: pages that lie in these segments, or where everything leaves. It is over when
    /// it was looked through from the beginning to the end and nothing was found.
    pub(crate) fn look_through(&mut self, segments: &BTreeSet<u32>) -> Vec<PageId> {
        let (leaving, staying) = (&self.renewal.leaving, &self.renewal.staying);
        let lies_there = |place: u64| {
            let in_segment = segments.contains(&((place >> 16) as u32));
            let is_to_move = in_segment || leaving.contains(&place);
            place != PLACE_NONE && is_to_move && !staying.contains(&place)
        };
        let mut found = Vec::new();
        let from = self.renewal.at.map_or(Bound::Unbounded, Bound::Included);
        if from == Bound::Unbounded {
            let tops = self.tops.iter();
            let tops = tops.filter(|(_, entry)| lies_there(entry.place));
            found.extend(tops.map(|(&id, _)| id));
        }
        let mut tables = self.tables.range((from, Bound::Unbounded));
        let mut next = None;
        for looked in 0.. {
            next = tables.next().map(|(&id, _)| id);
            let Some(id) = next.filter(|_| looked < TABLES && found.len() < PAGES) else {
                break;
            };
            let children = self.children(id).into_iter();
            let children = children.filter(|(_, entry)| lies_there(entry.place));
            found.extend(children.map(|(id, _)| id));
        }
        let renewal = &mut self.renewal;
        renewal.at = next;
        renewal.again |= !found.is_empty();
        if next.is_none() {
            renewal.under_way = std::mem::take(&mut renewal.again);
        }
        found
    }

    /// A table is to be written anew, though nothing in it has changed.
    pub(crate) fn touch_table(&mut self, id: PageId) {
        if let Some(table) = self.tables.get_mut(&id) {
            table.dirty = true;
        }
    }

    /// A page that is here is to be written anew, though nothing in it has changed, and as if it had at this
    /// sequence: before those that have changed since. Not what is here for a leaf that cannot be read.
    pub(crate) fn touch(&mut self, id: PageId, sequence: u64) {
        if self.is_unread(id) {
            let place = self.entry(id).place;
            return self.renewal.stays(place);
        }
        if !self.is_loaded(id) {
            return;
        }
        let page = self.page_mut(id, sequence);
        if let Some(first) = page.first_dirty.filter(|&first| first > sequence) {
            page.first_dirty = Some(sequence);
            self.dirty.remove(&(first, id));
            self.dirty.insert((sequence, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FIRST_VOLUME, leaf_id};
    use super::*;
    use crate::format::TableEntry;

    /// A map with this many leaves in so many tables, all in segment 1.
    fn map(tables: u32, leaves: u32) -> Map {
        let mut map = Map::default();
        for (table, leaf) in
            (0..tables).flat_map(|table| (0..leaves).map(move |leaf| (table, leaf)))
        {
            move_to(&mut map, leaf_of(table, leaf), 1);
        }
        map
    }

    fn leaf_of(table: u32, leaf: u32) -> PageId {
        leaf_id(FIRST_VOLUME, u64::from(table * super::super::FANOUT + leaf))
    }

    fn move_to(map: &mut Map, id: PageId, segment: u64) {
        let unit = u64::from(id.index) & 0xFFFF;
        let entry = TableEntry {
            place: segment << 16 | unit,
            ..TableEntry::NONE
        };
        map.set_entry(id, entry);
    }

    /// Moves what is found out of the way; how many pages that were, and how many looks it took.
    fn renew(map: &mut Map, segments: &BTreeSet<u32>) -> (usize, usize) {
        let (mut pages, mut looks) = (0, 0);
        while map.is_renewing() {
            let found = map.look_through(segments);
            assert!(found.len() < PAGES + super::super::FANOUT as usize);
            looks += 1;
            assert!(looks < 1000, "it never ends");
            pages += found.len();
            for id in found.into_iter().filter(|id| id.level == 0) {
                move_to(map, id, 2);
            }
        }
        (pages, looks)
    }

    #[test]
    fn a_large_map_is_looked_through_in_parts_and_every_page_is_found_once() {
        let mut map = map(300, 7);
        map.begin_renewal();
        let (pages, looks) = renew(&mut map, &BTreeSet::from([1]));
        assert_eq!(pages, 2100);
        // Once with finds, once without.
        assert!((2 * 300 / TABLES..40).contains(&looks), "{looks}");
        map.leave_places();
        assert_eq!(renew(&mut map, &BTreeSet::new()).0, 2100);
        assert!(!map.leaves_places());
        map.begin_renewal();
        assert_eq!(renew(&mut map, &BTreeSet::from([1])).0, 0);
    }

    #[test]
    fn what_is_to_move_behind_a_look_is_found_the_next_time_through() {
        let mut map = map(300, 1);
        map.begin_renewal();
        assert_eq!(map.look_through(&BTreeSet::new()), []);
        let behind = leaf_of(0, 0);
        move_to(&mut map, behind, 3);
        map.begin_renewal();
        assert_eq!(renew(&mut map, &BTreeSet::from([3])).0, 1);
    }

    #[test]
    fn a_page_that_is_renewed_is_written_before_those_that_have_changed() {
        let change = |index| super::super::Change::Place {
            moved: false,
            volume: FIRST_VOLUME,
            first: index * crate::sizes::LEAF_GRANULES,
            granules: 16,
            new: 0x1001,
            old: 0,
            crcs: [7; 16],
        };
        let mut map = Map::default();
        map.apply(&change(0), 10);
        map.apply(&change(1), 20);
        map.touch(leaf_id(FIRST_VOLUME, 1), 9);
        map.touch(leaf_id(FIRST_VOLUME, 5), 1);
        assert_eq!(map.oldest_dirty(), Some(9));
        let first = map.take_dirty().map(|(id, _)| id);
        assert_eq!(first, Some(leaf_id(FIRST_VOLUME, 1)));
        // Touched again it is as old as it was.
        map.touch(leaf_id(FIRST_VOLUME, 0), 15);
        assert_eq!(map.oldest_dirty(), Some(10));
    }
}
