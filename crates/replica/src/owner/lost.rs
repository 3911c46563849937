//! What is uncertain, and can be read at no copy. The owner serves all else.
//!
//! Copies may differ there, and what could not be read may be readable later. So no read of it is answered, the base stays
//! open and no copy is added, until a host has written it everywhere, or it was read after all and given to all.

use std::time::Duration;

use ashlar_block::{IoError, Moment};

use super::heal::HealOf;
use super::line::Locked;
use super::unreadable::{AGAIN, AGAIN_MOST, is_lost};
use super::{Owner, Work};
use crate::event::{Alarm, Effect, Turn};
use crate::extent::{Extent, ExtentSet};
use crate::ids::Positions;

/// Granules of the base that could not be read.
#[derive(Debug)]
pub(super) struct Lost {
    granules: ExtentSet,
    /// Those of them that are being tried again.
    tried: ExtentSet,
    again: Moment,
    pause: Duration,
}

impl Lost {
    pub(super) const fn new() -> Self {
        Self {
            granules: ExtentSet::new(),
            tried: ExtentSet::new(),
            again: Moment::ORIGIN,
            pause: AGAIN,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.granules.is_empty() && self.tried.is_empty()
    }

    pub(super) const fn granules(&self) -> &ExtentSet {
        &self.granules
    }

    /// Whether it was found to be lost before: reading it may take as long as its drive does.
    pub(super) fn tries(&self, granule: Extent) -> bool {
        self.tried.overlaps(granule)
    }

    fn add(&mut self, granule: Extent, now: Moment) {
        self.tried.remove(granule);
        self.granules.insert(granule);
        self.again = now + self.pause;
    }

    /// All copies in sync have the same there from now on. Whether nothing is lost any more.
    fn written(&mut self, extent: Extent) -> bool {
        let was_empty = self.is_empty();
        self.granules.remove(extent);
        self.tried.remove(extent);
        !was_empty && self.is_empty()
    }

    /// What is to be tried again now.
    fn again(&mut self, now: Moment) -> ExtentSet {
        if self.granules.is_empty() || now < self.again {
            return ExtentSet::new();
        }
        self.pause = (self.pause * 2).min(AGAIN_MOST);
        let again = std::mem::take(&mut self.granules);
        self.tried.add(&again);
        again
    }
}

impl Owner {
    /// A piece of the base could not be read here.
    pub(super) fn base_unread(&mut self, turn: &mut Turn<'_>, range: Locked, error: &IoError) {
        if !is_lost(error) {
            return self.local_failed(turn);
        }
        let Locked { place, extent } = range;
        let fetch = self.fetch(turn, error, extent, HealOf::Base(place));
        if fetch.is_none() {
            self.base_unhealed(turn, range, Positions::NONE);
        }
    }

    /// No copy has given it, and these have lost it, too. Of several granules each is tried alone: this copy may have lost
    /// one, and another copy another one.
    pub(super) fn base_unhealed(&mut self, turn: &mut Turn<'_>, range: Locked, lost: Positions) {
        let Locked { place, extent } = range;
        if extent.count() > 1 {
            self.base_pieces -= 1;
            self.line.leave(place);
            return self.begin_bases(turn, &extent.into());
        }
        if self.hands_errors_over(turn, lost) {
            return;
        }
        self.base_pieces -= 1;
        self.line.leave(place);
        self.lost.add(extent, turn.now);
        turn.alarm(Alarm::Lost {
            position: turn.config.position,
            hosts: self.shape(turn.at()).seen(extent),
        });
        self.run_reads(turn);
        self.start_work(turn);
    }

    fn begin_bases(&mut self, turn: &mut Turn<'_>, these: &ExtentSet) {
        self.uncertain.add(these);
        for granule in these.iter().flat_map(|extent| extent.pieces(1)) {
            self.base_pieces += 1;
            self.line.join(granule, Work::Base);
        }
        self.start_work(turn);
    }

    /// What is lost is tried again, if it is time.
    pub(super) fn try_lost(&mut self, turn: &mut Turn<'_>) {
        let again = self.lost.again(turn.now);
        if !again.is_empty() {
            self.begin_bases(turn, &again);
        }
    }

    /// A change is committed: all copies in sync have it.
    pub(super) fn no_more_lost(&mut self, turn: &mut Turn<'_>, extent: Extent) {
        if self.lost.written(extent) {
            turn.out.push(Effect::InSync(self.stored.key.in_sync));
        }
    }

    /// Whether a read can come to nothing but an error. A change of it that is under way is waited for.
    pub(super) fn is_lost_here(&self, extent: Extent) -> bool {
        let changes = || self.ops.iter().any(|(_, op)| op.extent.overlaps(extent));
        self.lost.granules().overlaps(extent) && !changes()
    }
}
