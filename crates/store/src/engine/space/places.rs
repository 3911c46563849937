//! Places for the map's pages. A leaf of the map, and its tables, may be needed for a single granule, so
//! the map of a large volume that is written here and there takes about as much as its data. Were
//! its room found only when pages are written, data could have taken it all by then, and what has
//! been acknowledged could not be kept. So there are always as many places as the pages that there are or will
//! be (`map/page_reservations`) take, with those that a checkpoint leaves and that come back when its root is
//! durable; and a write that would have the map outgrow them is let in when a segment of places more was
//! found, or refused: the pool is full.

use super::Space;
use crate::engine::access::Access;
use crate::engine::checkpoint::MOST_PAGES;
use crate::engine::map::Map;
use crate::engine::state::Retired;
use crate::format::ChunkCopy;

/// Places for pages of system tables, which no write is let in for: a few segments' or a volume's.
const SYSTEM_PAGES: u64 = 64;

/// Places that the map takes with so many pages more.
fn places_needed(map: &Map, more: u64) -> u64 {
    let pages = map.pages_in_all() + more;
    // What one checkpoint writes, it writes elsewhere.
    let rewritten = pages.min(MOST_PAGES as u64 + map.table_pages() + more);
    pages + rewritten + SYSTEM_PAGES
}

impl Space {
    /// Whether the map has places for so many pages more; finds them if it has not.
    pub(in crate::engine) fn has_places_for(
        &mut self,
        map: &Map,
        pages: u64,
        copies: usize,
    ) -> bool {
        let needed = places_needed(map, pages);
        while pages > 0 && self.metadata.open_places() < needed {
            if !self.add_meta_segment(true, copies) {
                return false;
            }
        }
        true
    }

    /// Finds the places that those who were let in count on: all but new are what a crash has lost, and what
    /// system tables take.
    pub(in crate::engine) fn keep_places(&mut self, map: &Map, copies: usize) {
        while self.metadata.open_places() < places_needed(map, 0)
            && self.add_meta_segment(true, copies)
        {}
    }

    /// Gives places up that the map has had for pages that are gone: closes the emptiest segments, from which what is
    /// left is to move. Whether there were too many.
    pub(in crate::engine) fn give_places_back(&mut self, map: &Map) -> bool {
        let needed = places_needed(map, 0);
        let enough = needed + needed / 4 + 2 * self.metadata.places_each();
        if self.metadata.open_places() < enough {
            return false;
        }
        while self.metadata.open_places() >= enough {
            if !self.metadata.close_emptiest() {
                break;
            }
        }
        true
    }

    /// Whether the map may do with one segment of places less; finds another if it has to.
    pub(in crate::engine) fn can_spare_places(&mut self, map: &Map, copies: usize) -> bool {
        let needed = places_needed(map, 0) + self.metadata.places_each();
        while self.metadata.open_places() < needed {
            if !self.add_meta_segment(false, copies) {
                return false;
            }
        }
        true
    }

    /// Whether a checkpoint has to wait for places that are still read.
    pub(in crate::engine) fn lacks_places(&self, map: &Map, access: &Access) -> bool {
        let dirty = map.dirty_pages().min(MOST_PAGES) as u64;
        let most = dirty + map.table_pages().max(2 * dirty);
        self.metadata.free_places() < most
            && access.retires(|what| matches!(what, Retired::Place(_)))
    }

    /// Copies that pages of the map should have, when logs should have so many.
    pub(in crate::engine) fn meta_copies(&self, copies: usize) -> usize {
        let staying = self.drives.usable_count();
        copies.min(staying)
    }

    /// A segment of places more; unless it `leaves` what users' homes leave it may take whatever is free.
    pub(in crate::engine) fn add_meta_segment(&mut self, leaves: bool, copies: usize) -> bool {
        let extents = self.sizes.segment_extents();
        let copies = self.meta_copies(copies);
        let kept = |drive: usize| match leaves {
            true => self.least_map_extents() + self.reserved_extents(drive),
            false => 0,
        };
        let rooms = self.column_rooms(extents, kept);
        let Some(columns) = self.drives.take_fastest(&rooms, copies, extents) else {
            return false;
        };
        self.metadata.add(columns);
        true
    }

    /// A free place, in a segment with all its copies if there is one.
    pub(in crate::engine) fn take_place(&mut self, copies: usize) -> Option<(u32, u32)> {
        if self.metadata.free_places() == 0 {
            self.add_meta_segment(false, copies);
        }
        let (usable, wanted) = (self.drives.usable(), self.meta_copies(copies));
        let staying = |copy: &&ChunkCopy| usable.get(usize::from(copy.drive)) == Some(&true);
        let good = |columns: &[ChunkCopy]| columns.iter().filter(staying).count() >= wanted;
        self.metadata.take(good)
    }

    /// Columns of a metadata segment that are in service.
    pub(in crate::engine) fn meta_columns(&self, segment: u32) -> Vec<ChunkCopy> {
        self.drives.serving(self.metadata.columns_of(segment))
    }
}
