//! Who may change a slot's place in the map. Reads take no lock, and small writes neither: they only
//! add to the index. What moves, fills or frees a slot holds its lock from before it looks at
//! the map until its record is published, so that records about a slot are in the order in which
//! they were decided.

use std::collections::{BTreeMap, VecDeque};

/// A slot of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotKey {
    pub(crate) volume: u32,
    pub(crate) slot: u64,
}

/// Locks by slot; `T` is who waits.
pub(crate) struct Locks<T> {
    held: BTreeMap<SlotKey, VecDeque<T>>,
}

impl<T> Default for Locks<T> {
    fn default() -> Self {
        Self {
            held: BTreeMap::new(),
        }
    }
}

impl<T> Locks<T> {
    /// Takes the lock, or says that it is held.
    pub(crate) fn try_lock(&mut self, key: SlotKey) -> bool {
        match self.held.entry(key) {
            std::collections::btree_map::Entry::Occupied(_) => false,
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(VecDeque::new());
                true
            }
        }
    }

    /// Takes the lock (true), or waits for it in line (false): `unlock` will hand it over.
    pub(crate) fn lock_or_wait(&mut self, key: SlotKey, who: T) -> bool {
        match self.held.get_mut(&key) {
            Some(waiters) => {
                waiters.push_back(who);
                false
            }
            None => {
                self.held.insert(key, VecDeque::new());
                true
            }
        }
    }

    /// Whether the lock is held.
    pub(crate) fn is_held(&self, key: SlotKey) -> bool {
        self.held.contains_key(&key)
    }

    /// Gives the lock up; returns who has it now.
    pub(crate) fn unlock(&mut self, key: SlotKey) -> Option<T> {
        let waiters = self.held.get_mut(&key)?;
        let next = waiters.pop_front();
        if next.is_none() {
            self.held.remove(&key);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_handed_on_in_line() {
        let mut locks = Locks::default();
        let key = SlotKey {
            volume: 16,
            slot: 3,
        };
        assert!(locks.lock_or_wait(key, 'a'));
        assert!(!locks.lock_or_wait(key, 'b') && !locks.lock_or_wait(key, 'c'));
        assert!(!locks.try_lock(key));
        assert_eq!(locks.unlock(key), Some('b'));
        assert_eq!(locks.unlock(key), Some('c'));
        assert_eq!(locks.unlock(key), None);
        assert!(locks.try_lock(key));
    }
}
