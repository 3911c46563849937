//! Readers, and what must outlive them.
//!
//! A read holds a guard from its plan to its completion. Space that is given up (a slot, a page's
//! place, a stretch of a log) is *retired* with the number that the next guard will get, and may be
//! used again once every older guard is gone.

use std::collections::VecDeque;

/// A reader's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Guard(u64);

/// Active readers, and the queue of what waits for them.
pub(crate) struct Guards<R> {
    /// The number of the oldest reader that is active, or of the next one.
    oldest: u64,
    /// Whether that one and those after it are active: numbers come and go nearly in order.
    active: VecDeque<bool>,
    retired: VecDeque<(u64, R)>,
}

impl<R> Default for Guards<R> {
    fn default() -> Self {
        Self {
            oldest: 0,
            active: VecDeque::new(),
            retired: VecDeque::new(),
        }
    }
}

impl<R> Guards<R> {
    /// A new reader.
    pub(crate) fn enter(&mut self) -> Guard {
        let guard = self.next();
        self.active.push_back(true);
        Guard(guard)
    }

    /// The number that the next reader gets.
    fn next(&self) -> u64 {
        self.oldest + self.active.len() as u64
    }

    /// The reader is done.
    pub(crate) fn leave(&mut self, guard: Guard) {
        let place = guard.0.checked_sub(self.oldest);
        if let Some(active) = place.and_then(|at| self.active.get_mut(at as usize)) {
            *active = false;
        }
        while self.active.front() == Some(&false) {
            self.active.pop_front();
            self.oldest += 1;
        }
    }

    /// Gives something up; it comes out of [`next_free`](Self::next_free) when no reader that is
    /// active now is left.
    pub(crate) fn retire(&mut self, what: R) {
        self.retired.push_back((self.next(), what));
    }

    /// Something that is not read any more.
    pub(crate) fn next_free(&mut self) -> Option<R> {
        if self.retired.front()?.0 > self.oldest {
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
    #[test]
    fn readers_that_leave_out_of_turn_are_not_waited_for_twice() {
        let mut guards = Guards::default();
        let readers = [guards.enter(), guards.enter(), guards.enter()];
        guards.retire('a');
        guards.leave(readers[1]);
        guards.leave(readers[2]);
        assert_eq!(guards.next_free(), None, "the oldest is still there");
        guards.leave(readers[1]);
        let young = guards.enter();
        guards.leave(readers[0]);
        assert_eq!(guards.next_free(), Some('a'));
        guards.retire('b');
        assert_eq!(guards.next_free(), None);
        guards.leave(young);
        assert_eq!(guards.next_free(), Some('b'));
    }
}
