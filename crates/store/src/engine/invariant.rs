//! What cannot be. A state that the engine's own order of steps rules out is neither passed over nor given a
//! default: tests and the simulator panic, and in production the pool stops with a message that names the
//! state, before anything is written or acknowledged by it.
//!
//! One is a stall: commands wait for what is under way: an I/O, a moment, another turn. When nothing is, no event
//! will ever come, and what still waits would wait for ever.

use super::locks::SlotKey;
use super::map::leaf_id;
use super::segment_table::Missed;
use super::space::location;
use super::state::Retired;
use super::{Engine, Op};

/// Asserts what must hold. Without a condition: this place cannot be reached.
///
/// Its value is `()`, so that it can end a `let ... else`.
macro_rules! invariant {
    ($engine:expr, $what:literal $(, $with:expr)*) => {{
        let what = format!($what $(, $with)*);
        $engine.impossible(&what)
    }};
    ($engine:expr, $holds:expr, $what:literal $(, $with:expr)*) => {
        if !$holds {
            invariant!($engine, $what $(, $with)*);
        }
    };
}
pub(crate) use invariant;

impl Engine {
    /// Stops the pool, for it is in a state that cannot be. One that has stopped already has let go of
    /// much that others looked for.
    #[track_caller]
    pub(super) fn impossible(&mut self, what: &str) {
        if self.failed.is_some() {
            return;
        }
        let at = std::panic::Location::caller();
        let panics = !self.identity.only_stops();
        debug_assert!(!panics, "impossible: {what} ({at})");
        self.stop_as_impossible(&format!("{what} ({at})"));
    }

    /// What production does: stops with a message that names the state.
    #[doc(hidden)]
    pub fn stop_as_impossible(&mut self, what: &str) {
        self.fail(format!(
            "the engine is in a state that cannot be: {what}. Nothing is written any more; import the pool \
             again, and report this"
        ));
    }

    /// A segment was looked for, by a home that is in it or by a list that has it, and is not there.
    pub(super) fn check_segments(&mut self) {
        if let Some(Missed { segment, at }) = self.segments.missed() {
            invariant!(
                self,
                "segment {segment} is not there, and was looked for at {at}"
            );
        }
    }

    /// Whether commands wait although no I/O is on its way and no other turn is due.
    pub(super) fn waits_for_itself(&self) -> bool {
        let idle = self.failed.is_none()
            && !self.again
            && self.drive_io.is_idle()
            && !self.waits_for_its_node();
        idle && !self.waiting.is_empty()
    }

    /// A command that waits although nothing at all is under way has been forgotten.
    pub(super) fn check_stall(&mut self) {
        if !self.waits_for_itself() || self.next_deadline().is_some() {
            return;
        }
        let first = self.waiting.writes().fronts().next();
        let first = first.and_then(|op| self.ops.get(op));
        let first = match first {
            Some(Op::Write(write)) => write.describe(),
            _ => "none".into(),
        };
        let waiting = self.waiting.describe(&first);
        invariant!(self, "nothing is under way, but {waiting}");
    }
}

/// What tests make so: states that the order of steps rules out.
#[doc(hidden)]
impl Engine {
    /// From now on what cannot be stops the pool as in production, and does not panic.
    pub fn only_stop(&mut self) {
        self.identity.only_stop();
    }

    /// As if a home named this segment.
    pub fn look_for_segment(&self, segment: u32) {
        self.segments.get(segment);
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
        self.collect_whole(SlotKey { volume, slot }, (0, 0), false);
    }
}
