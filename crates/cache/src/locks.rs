//! Locks of units: readers together, a writer alone, in the order in which they came.

use std::collections::{HashMap, VecDeque};

/// Whether a lock is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Shared,
    Alone,
}

#[derive(Debug, Default)]
struct Lock {
    readers: u32,
    writer: bool,
    waiting: VecDeque<(usize, Hold)>,
}

/// The locks that are held or waited for.
#[derive(Debug, Default)]
pub(crate) struct Locks(HashMap<u64, Lock>);

impl Locks {
    /// Takes the lock of a unit; false if `who` has to wait: then [`release`](Self::release) names it.
    pub(crate) fn take(&mut self, unit: u64, who: usize, hold: Hold) -> bool {
        let lock = self.0.entry(unit).or_default();
        let free = match hold {
            Hold::Shared => !lock.writer && lock.waiting.is_empty(),
            Hold::Alone => !lock.writer && lock.readers == 0 && lock.waiting.is_empty(),
        };
        if !free {
            lock.waiting.push_back((who, hold));
            return false;
        }
        match hold {
            Hold::Shared => lock.readers += 1,
            Hold::Alone => lock.writer = true,
        }
        true
    }

    /// Whether the unit is not being changed at this moment.
    pub(crate) fn is_still(&self, unit: u64) -> bool {
        self.0.get(&unit).is_none_or(|lock| !lock.writer)
    }

    /// Whether no command holds the unit or waits for it.
    pub(crate) fn is_free(&self, unit: u64) -> bool {
        !self.0.contains_key(&unit)
    }

    /// Lets go; those who hold it now.
    pub(crate) fn release(&mut self, unit: u64, hold: Hold) -> Vec<usize> {
        let Some(lock) = self.0.get_mut(&unit) else {
            return Vec::new();
        };
        match hold {
            Hold::Shared => lock.readers -= 1,
            Hold::Alone => lock.writer = false,
        }
        let mut next = Vec::new();
        while let Some(&(who, hold)) = lock.waiting.front() {
            match hold {
                Hold::Shared if !lock.writer => lock.readers += 1,
                Hold::Alone if !lock.writer && lock.readers == 0 => lock.writer = true,
                _ => break,
            }
            lock.waiting.pop_front();
            next.push(who);
        }
        if !lock.writer && lock.readers == 0 && lock.waiting.is_empty() {
            self.0.remove(&unit);
        }
        next
    }
}
