//! Readers, and what must outlive them.
//!
//! A read holds a guard from its plan to its completion. Space that is given up (a slot, a page's
//! place, a stretch of a log) is *retired* with the number that the next guard will get, and may be
//! used again once every older guard is gone.

use std::collections::{BTreeSet, VecDeque};

/// A reader's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Guard(u64);

/// Active readers, and the queue of what waits for them.
pub(crate) struct Guards<R> {
    next: u64,
    active: BTreeSet<u64>,
    retired: VecDeque<(u64, R)>,
}

impl<R> Default for Guards<R> {
    fn default() -> Self {
        Self {
            next: 0,
            active: BTreeSet::new(),
            retired: VecDeque::new(),
        }
    }
}

impl<R> Guards<R> {
    /// A new reader.
    pub(crate) fn enter(&mut self) -> Guard {
        let guard = self.next;
        self.next += 1;
        self.active.insert(guard);
        Guard(guard)
    }

    /// The reader is done.
    pub(crate) fn leave(&mut self, guard: Guard) {
        self.active.remove(&guard.0);
    }

    /// Gives something up; it comes out of [`next_free`](Self::next_free) when no reader that is
    /// active now is left.
    pub(crate) fn retire(&mut self, what: R) {
        self.retired.push_back((self.next, what));
    }

    /// Something that nobody reads any more.
    pub(crate) fn next_free(&mut self) -> Option<R> {
        let oldest = self.active.first().copied().unwrap_or(self.next);
        if self.retired.front()?.0 > oldest {
            return None;
        }
        self.retired.pop_front().map(|(_, what)| what)
    }

    /// Whether something of this kind waits.
    pub(crate) fn waits(&self, is: impl Fn(&R) -> bool) -> bool {
        self.retired.iter().any(|(_, what)| is(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_retired_outlives_the_readers_of_its_time() {
        let mut guards = Guards::default();
        let old = guards.enter();
        guards.retire('a');
        let young = guards.enter();
        assert_eq!(guards.next_free(), None);
        guards.leave(old);
        assert_eq!(guards.next_free(), Some('a'));
        guards.retire('b');
        assert_eq!(guards.next_free(), None);
        guards.leave(young);
        assert_eq!(guards.next_free(), Some('b'));
    }
}
