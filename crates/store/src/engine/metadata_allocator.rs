//! Places for the map's pages. A leaf of the map, and its tables, may be needed for a single granule, so
//! the map of a large volume that is written here and there takes about as much as its data. Were
//! its room found only when pages are written, data could have taken it all by then, and what has
//! been acknowledged could not be kept. So there are always as many places as the pages that there are or will
//! be (`map/page_reservations`) take, with those that a checkpoint leaves and that come back when its root is
//! durable; and a write that would have the map outgrow them is let in when a segment of places more was
//! found, or refused: the pool is full.

use super::Engine;
use super::Op;
use super::checkpoint::MOST_PAGES;
use super::state::Retired;

/// Places for pages of system tables, which no write is let in for: a few segments' or a volume's.
const SYSTEM_PAGES: u64 = 64;

impl Engine {
    /// Places that the map takes with so many pages more.
    fn places_needed(&self, more: u64) -> u64 {
        let pages = self.map.pages_in_all() + more;
        // What one checkpoint writes, it writes elsewhere.
        let rewritten = pages.min(MOST_PAGES as u64 + self.map.table_pages() + more);
        pages + rewritten + SYSTEM_PAGES
    }

    /// Whether the map has places for so many pages more; finds them if it has not.
    pub(super) fn has_places_for(&mut self, pages: u64) -> bool {
        let needed = self.places_needed(pages);
        while pages > 0 && self.metadata.open_places() < needed {
            if !self.add_meta_segment(true) {
                return false;
            }
        }
        true
    }

    /// Finds the places that those who were let in count on: all but new are what a crash has lost, and what
    /// system tables take.
    pub(super) fn keep_places(&mut self) {
        while self.metadata.open_places() < self.places_needed(0) && self.add_meta_segment(true) {}
    }

    /// Gives places back that the map has had for pages that are gone: what is left in the emptiest segments
    /// moves to others.
    pub(super) fn give_places_back(&mut self) {
        let needed = self.places_needed(0);
        let enough = needed + needed / 4 + 2 * self.metadata.places_each();
        if self.metadata.open_places() < enough || self.map.is_renewing() || self.is_checkpointing()
        {
            return;
        }
        while self.metadata.open_places() >= enough {
            if !self.metadata.close_emptiest() {
                break;
            }
        }
        self.look_for_emptied();
        self.want_renewal();
    }

    /// Whether the map may do with one segment of places less; finds another if it has to.
    pub(super) fn can_spare_places(&mut self) -> bool {
        let needed = self.places_needed(0) + self.metadata.places_each();
        while self.metadata.open_places() < needed {
            if !self.add_meta_segment(false) {
                return false;
            }
        }
        true
    }

    /// Whether places may be found that are not there yet.
    pub(super) fn more_places_may_come(&mut self) -> bool {
        if self.map.has_emptied_leaves() {
            // They have their places until a checkpoint leaves them out.
            self.clear_remains();
            return true;
        }
        let clears = |(op, what): (usize, &Op)| matches!(what, Op::Clear(_)) && self.may_begin(op);
        self.is_checkpointing()
            || self.upkeep.is_giving_back()
            || self.access.retires(|what| matches!(what, Retired::Slot(_)))
            || self.ops.iter().any(clears)
    }

    /// Whether a checkpoint has to wait for places that are still read.
    pub(super) fn lacks_places(&self) -> bool {
        let dirty = self.map.dirty_pages().min(MOST_PAGES) as u64;
        let most = dirty + self.map.table_pages().max(2 * dirty);
        self.metadata.free_places() < most
            && self
                .access
                .retires(|what| matches!(what, Retired::Place(_)))
    }

    /// Copies that pages of the map should have.
    pub(super) fn meta_copies(&self) -> usize {
        let staying = self.usable().into_iter().filter(|&stays| stays).count();
        self.log_copies().min(staying)
    }

    /// A segment of places more; unless it `leaves` what users' homes leave it may take whatever is free.
    pub(super) fn add_meta_segment(&mut self, leaves: bool) -> bool {
        let extents = self.identity.sizes().segment_extents();
        let copies = self.meta_copies();
        let kept = |drive: usize| match leaves {
            true => self.least_map_extents() + self.reserved_extents(drive),
            false => 0,
        };
        let rooms = self.column_rooms(extents, kept);
        let Some(columns) = self.take_fastest(&rooms, copies, extents) else {
            return false;
        };
        self.metadata.add(columns);
        true
    }
}
