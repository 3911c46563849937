//! What cannot be. A state that the engine's own order of steps rules out is neither passed over nor given a
//! default: tests and the simulator panic, and in production the pool stops with a message that names the
//! state, before anything is written or acknowledged by it.
//!
//! One is a stall: commands wait for what is under way: an I/O, a moment, another turn. When nothing is, no event
//! will ever come, and what still waits would wait for ever.

use super::Engine;
#[cfg(feature = "canary")]
use super::access::locks::SlotKey;
#[cfg(feature = "canary")]
use super::map::leaf_id;
use super::segment_table::Missed;
#[cfg(feature = "canary")]
use super::space::location;
#[cfg(feature = "canary")]
use super::state::Retired;
#[cfg(feature = "canary")]
use super::tier::walk::Way;

/// Asserts what must hold. Without a condition: this place cannot be reached.
///
/// Its value is `()`, so that it can end a `let ... else`.
macro_rules! invariant {
    ($base:expr, $what:literal $(, $with:expr)*) => {{
        let what = format!($what $(, $with)*);
        $base.impossible(&what)
    }};
    ($base:expr, $holds:expr, $what:literal $(, $with:expr)*) => {
        if !$holds {
            invariant!($base, $what $(, $with)*);
        }
    };
}
pub(crate) use invariant;

impl Engine {
    /// A segment was looked for, by a home that is in it or by a list that has it, and is not there.
    pub(super) fn check_segments(&mut self) {
        if let Some(Missed { segment, at }) = self.space.segments.missed() {
            invariant!(
                self.base,
                "segment {segment} is not there, and was looked for at {at}"
            );
        }
    }

    /// Whether commands wait although no I/O is on its way and no other turn is due.
    pub(super) fn waits_for_itself(&self) -> bool {
        let idle = self.base.failed.is_none()
            && !self.base.again
            && self.base.drive_io.is_idle()
            && !self.waits_for_its_node();
        idle && !self.waiting.is_empty()
    }

    /// A command that waits although nothing at all is under way has been forgotten.
    pub(super) fn check_stall(&mut self) {
        if !self.waits_for_itself() || self.next_deadline().is_some() {
            return;
        }
        let waiting = self.waiting.describe();
        invariant!(self.base, "nothing is under way, but {waiting}");
    }
}

/// What tests make so: states that the order of steps rules out. Like canaries, in no build that serves.
#[cfg(feature = "canary")]
impl Engine {
    /// From now on what cannot be stops the pool as in production, and does not panic.
    pub fn only_stop(&mut self) {
        self.base.failed.only_stop();
    }

    /// As if an invariant had not held.
    pub fn stop_as_impossible(&mut self, what: &str) {
        self.base.stop_as_impossible(what);
    }

    /// Segments that were looked at for whatever there was to do, since the import.
    pub fn segment_steps(&self) -> u64 {
        self.space.segments.steps() + self.raw.steps()
    }

    /// As if a home named this segment.
    pub fn look_for_segment(&self, segment: u32) {
        self.space.segments.get(segment);
    }

    /// As if the last reader of a slot of this segment had left.
    pub fn free_slot_of(&mut self, segment: u32) {
        self.access.retire(Retired::Slot(location(segment, 0)));
    }

    /// As if a leaf of the map had made room although it is needed.
    pub fn drop_leaf(&mut self, volume: u32, leaf: u64) {
        self.map.drop_leaf(leaf_id(volume, leaf));
    }

    /// As if destage took a slot on.
    pub fn take_on(&mut self, volume: u32, slot: u64) {
        let (key, way) = (SlotKey { volume, slot }, Way { from: 0, to: 0 });
        self.destage_step(|destage, around| destage.collect_whole(key, way, false, around));
    }
}
