//! Pages of the map that lie where they shall not stay are written elsewhere: in metadata segments that lack
//! a copy, and for a scrub all of them. A part at a time ([`Map::look_through`](crate::engine::map::Map::look_through)):
//! its pages are loaded, counted as changed before anything else that is in no page yet, and written by a checkpoint
//! that need not write more than those. Among hosts it rests after each, as other walks do.

use ashlar_block::Moment;

use super::pace::rested;
use crate::engine::map::Map;
use crate::engine::space::Space;

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

impl Renewal {
    /// Whether pages are on their way elsewhere.
    pub(in crate::engine) fn is_under_way(&self) -> bool {
        self.until.is_some()
    }

    /// Below which sequence pages are to be written, once all of the part are here.
    pub(in crate::engine) fn due(&self) -> Option<u64> {
        self.until.filter(|_| self.loading == 0)
    }

    /// Whether the next part is to wait a little longer, while hosts use the pool.
    pub(in crate::engine) fn rests(&self, now: Moment) -> bool {
        now < self.rests_until
    }

    /// When one that rests goes on.
    pub(in crate::engine) fn deadline(&self, now: Moment) -> Option<Moment> {
        self.rests(now).then_some(self.rests_until)
    }

    /// The next part is begun.
    pub(in crate::engine) fn begin_part(&mut self, now: Moment) {
        (self.until, self.began) = (Some(0), now);
    }

    /// A page of it is on its way here.
    pub(in crate::engine) fn awaits_page(&mut self) {
        self.loading += 1;
    }

    /// It is here.
    pub(in crate::engine) fn page_is_here(&mut self) {
        self.loading = self.loading.saturating_sub(1);
    }

    /// A page of it counts as changed by this sequence.
    pub(in crate::engine) fn touched(&mut self, sequence: u64) {
        self.until = self.until.max(Some(sequence + 1));
    }

    /// A checkpoint is done. What was loaded too late for it is found again the next time through.
    pub(in crate::engine) fn part_is_done(&mut self, now: Moment, map: &Map) {
        if self.due().is_some() {
            self.until = None;
            self.rests_until = rested(now, self.began, !map.leaves_places());
        }
    }
}

impl Space {
    /// What has lost a copy of its segment is to move to healthy ones. Whether any was closed.
    pub(in crate::engine) fn close_short_metadata(&mut self, map: &Map, copies: usize) -> bool {
        let wanted = self.meta_copies(copies);
        let short = self.metadata.segments().iter();
        let short = short.filter(|segment| self.drives.staying(&segment.columns).len() < wanted);
        let short: Vec<u32> = short.map(|segment| segment.id).collect();
        let mut any = false;
        for segment in short {
            // What lies in it must find room elsewhere, or it stays, and pages are still put there.
            if self.metadata.is_open(segment) && self.can_spare_places(map, copies) {
                self.metadata.close(segment);
                any = true;
            }
        }
        any
    }
}
