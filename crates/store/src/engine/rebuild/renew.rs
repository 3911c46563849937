//! Pages of the map that lie where they shall not stay are written elsewhere: in metadata segments that lack
//! a copy, and for a scrub all of them. A part at a time ([`Map::look_through`](crate::engine::map::Map::look_through)):
//! its pages are loaded, counted as changed before anything else that is in no page yet, and written by a checkpoint
//! that need not write more than those. Among hosts it rests after each, as other walks do.

use std::collections::BTreeSet;

use ashlar_block::Moment;

use super::pace::rested;
use crate::engine::{Engine, Waiter};
use crate::format::PageId;

/// The part that is being written elsewhere.
#[derive(Default)]
pub(in crate::engine) struct Renewal {
    /// Pages of it wait for a checkpoint of what is below this sequence.
    until: Option<u64>,
    /// Pages of it that are on their way here.
    loading: usize,
    began: Moment,
    rests_until: Moment,
}

impl Engine {
    /// Pages of the map may lie where they shall not stay.
    pub(in crate::engine) fn want_renewal(&mut self) {
        self.map.begin_renewal();
        self.base.again = true;
    }

    /// Takes up the next part when the one before is elsewhere.
    pub(in crate::engine) fn advance_renewal(&mut self) {
        let busy = self.is_renewing_pages() || self.checkpoint.is_under_way();
        if !self.map.is_renewing() || busy || self.renewal_rests() {
            return;
        }
        self.close_short_segments();
        let closed: BTreeSet<u32> = self.space.metadata.closed().collect();
        let found = self.map.look_through(&closed);
        // There is more to look at, or who waits for the end may go on.
        self.base.again = true;
        if found.is_empty() {
            return;
        }
        let renewal = &mut self.rebuild.renewal;
        (renewal.until, renewal.began) = (Some(0), self.now);
        for id in found {
            if id.level > 0 {
                self.map.touch_table(id);
            } else if self.map.is_loaded(id) {
                self.touch_page(id);
            } else {
                self.rebuild.renewal.loading += 1;
                self.load(id, Waiter::Renew);
            }
        }
    }

    /// What has lost a copy of its segment is to move to healthy ones.
    fn close_short_segments(&mut self) {
        let wanted = self.space.meta_copies(self.log_copies());
        let short = self.space.metadata.segments().iter();
        let short =
            short.filter(|segment| self.space.drives.staying(&segment.columns).len() < wanted);
        let short: Vec<u32> = short.map(|segment| segment.id).collect();
        for segment in short {
            // What lies in it must find room elsewhere, or it stays, and pages are still put there.
            if self.space.metadata.is_open(segment)
                && self.space.can_spare_places(&self.map, self.log_copies())
            {
                self.space.metadata.close(segment);
                self.checkpoint.look_for_emptied();
            }
        }
    }

    /// A page that was loaded in order to be written elsewhere.
    pub(in crate::engine) fn renew_page(&mut self, id: PageId) {
        let renewal = &mut self.rebuild.renewal;
        renewal.loading = renewal.loading.saturating_sub(1);
        self.touch_page(id);
        self.base.again = true;
    }

    fn touch_page(&mut self, id: PageId) {
        let sequence = self.tails().map_sequence();
        self.map.touch(id, sequence);
        let until = &mut self.rebuild.renewal.until;
        *until = (*until).max(Some(sequence + 1));
    }

    /// Whether pages are on their way elsewhere.
    pub(in crate::engine) fn is_renewing_pages(&self) -> bool {
        self.rebuild.renewal.until.is_some()
    }

    /// Below which sequence pages are to be written, once all of the part are here.
    pub(in crate::engine) fn renewal_due(&self) -> Option<u64> {
        let renewal = &self.rebuild.renewal;
        renewal.until.filter(|_| renewal.loading == 0)
    }

    /// A checkpoint is done. What was loaded too late for it is found again the next time through.
    pub(in crate::engine) fn part_renewed(&mut self) {
        if self.renewal_due().is_none() {
            return;
        }
        let renewal = &self.rebuild.renewal;
        let rests_until = rested(self.now, renewal.began, !self.map.leaves_places());
        let renewal = &mut self.rebuild.renewal;
        (renewal.until, renewal.rests_until) = (None, rests_until);
    }

    fn renewal_rests(&self) -> bool {
        self.now < self.rebuild.renewal.rests_until && self.hosts_are_here()
    }

    /// When a renewal that rests goes on.
    pub(in crate::engine) fn renewal_deadline(&self) -> Option<Moment> {
        let at = self.rebuild.renewal.rests_until;
        (self.map.is_renewing() && at > self.now).then_some(at)
    }
}
