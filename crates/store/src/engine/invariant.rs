//! What cannot be. A state that the engine's own order of steps rules out is neither passed over nor given a
//! default: tests and the simulator panic, and in production the pool stops with a message that names the
//! state, before anything is written or acknowledged by it.

use super::Engine;

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
        debug_assert!(false, "impossible: {what} ({at})");
        self.fail(format!(
            "the engine is in a state that cannot be: {what} ({at}). Nothing is written any more; import \
             the pool again, and report this"
        ));
    }
}
