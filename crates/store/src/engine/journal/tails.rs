//! What the logs may forget: where each would begin by a root of this moment.

use super::Journal;
use super::logs::{Logs, Positions};
use crate::Canary;
use crate::engine::identity::Identity;
use crate::engine::map::Map;
use crate::format::LogId;

/// How full the map log may get before its oldest changes are brought to pages: the longer they wait,
/// the more of them a page takes with it.
const MAP_HIGH: f64 = 0.75;
/// Chunks of it that are kept free for changes that come while pages are written, if that is more.
const MAP_FREE: f64 = 1.25;
/// The part of the map log that one checkpoint lets go of; at least a chunk.
const MAP_STEP: f64 = 0.125;

/// What tells it.
pub(in crate::engine) struct Tails<'a> {
    pub(in crate::engine) identity: &'a Identity,
    pub(in crate::engine) journal: &'a Journal,
    pub(in crate::engine) logs: &'a Logs,
    pub(in crate::engine) map: &'a Map,
    /// Replicas need what has this sequence.
    pub(in crate::engine) hold: u64,
}

impl Tails<'_> {
    /// Where the logs would begin.
    pub(in crate::engine) fn now(&self) -> Positions {
        Positions {
            ring: self.logs.ring_tail(),
            map: self.logs.map_tail(self.map_sequence()),
        }
    }

    /// Map records below this sequence are in pages that are written (or being written in this
    /// round), and no ring record that recovery would replay is older.
    pub(in crate::engine) fn map_sequence(&self) -> u64 {
        let dirty = self.map.oldest_dirty().unwrap_or(u64::MAX);
        let kept = self.ring_sequence().min(self.hold);
        self.journal.published().min(kept).min(dirty)
    }

    /// Sequence of the oldest record that recovery would find in the ring.
    pub(in crate::engine) fn ring_sequence(&self) -> u64 {
        let ring = self.logs.oldest_in_ring();
        let ring = ring.filter(|_| !self.identity.sings(Canary::MapPastRing));
        ring.unwrap_or(u64::MAX)
    }

    /// Whether the map log is so full that changes are to be brought to pages.
    pub(in crate::engine) fn is_map_high(&self) -> bool {
        self.logs.fill(LogId::Map) > self.map_high()
    }

    fn map_high(&self) -> f64 {
        let chunks = self.logs.map_chunks() as f64;
        MAP_HIGH.min(1.0 - MAP_FREE / chunks)
    }

    /// The map log is to let go of what is older than this sequence when it is too full.
    pub(in crate::engine) fn map_cut(&self) -> u64 {
        let step = MAP_STEP.max(1.0 / self.logs.map_chunks() as f64);
        let kept = (self.logs.map_bytes() as f64 * (self.map_high() - step)) as u64;
        let published = self.journal.published();
        let first = self.logs.map_sequence_within(kept);
        first.map_or(published, |first| first.min(published))
    }

    /// Whether records of the ring keep the map log from letting go of what it soon should.
    pub(in crate::engine) fn ring_holds_map(&self) -> bool {
        self.logs.fill(LogId::Map) > self.map_high() - MAP_STEP
            && self.ring_sequence() < self.map_cut()
    }
}
