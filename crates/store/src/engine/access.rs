//! Who may read and change what: pages that are being loaded and who waits for them, locks of slots, and
//! readers with what must outlive them.

pub(crate) mod guard;
pub(crate) mod locks;

use std::collections::BTreeMap;

use super::Waiter;
use super::state::Retired;
use crate::format::PageId;
use guard::{Guard, Guards};
use locks::{Locks, SlotKey};

#[derive(Default)]
pub(super) struct Access {
    loading: BTreeMap<PageId, Vec<Waiter>>,
    locks: Locks<Waiter>,
    guards: Guards<Retired>,
}

impl Access {
    /// A page is wanted that is not here; true if it was not before, so that it is to be read now.
    pub(super) fn want_page(&mut self, id: PageId, waiter: Waiter) -> bool {
        let is_coming = self.loading.contains_key(&id);
        let waiters = self.loading.entry(id).or_default();
        if !waiters.contains(&waiter) {
            waiters.push(waiter);
        }
        !is_coming
    }

    /// A page waits no more: who waited for it.
    pub(super) fn take_waiters(&mut self, id: PageId) -> Vec<Waiter> {
        self.loading.remove(&id).unwrap_or_default()
    }

    /// No page comes any more: who waited for any.
    pub(super) fn take_all_waiters(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        let loading = std::mem::take(&mut self.loading);
        loading.into_values().flatten()
    }

    /// Takes a slot's lock, or says that it is held.
    pub(super) fn try_lock(&mut self, key: SlotKey) -> bool {
        self.locks.try_lock(key)
    }

    /// Takes a slot's lock (true), or waits for it in line (false).
    pub(super) fn lock_or_wait(&mut self, key: SlotKey, who: Waiter) -> bool {
        self.locks.lock_or_wait(key, who)
    }

    pub(super) fn is_locked(&self, key: SlotKey) -> bool {
        self.locks.is_held(key)
    }

    /// Gives a slot's lock up; returns who has it now.
    pub(super) fn unlock(&mut self, key: SlotKey) -> Option<Waiter> {
        self.locks.unlock(key)
    }

    /// A new reader.
    pub(super) fn enter(&mut self) -> Guard {
        self.guards.enter()
    }

    /// The reader is done.
    pub(super) fn leave(&mut self, guard: Guard) {
        self.guards.leave(guard);
    }

    /// Gives something up, once no reader that is active now is left.
    pub(super) fn retire(&mut self, what: Retired) {
        self.guards.retire(what);
    }

    /// Something that is not read any more.
    pub(super) fn next_free(&mut self) -> Option<Retired> {
        self.guards.next_free()
    }

    /// Whether something of this kind waits for its readers.
    pub(super) fn retires(&self, is: impl Fn(&Retired) -> bool) -> bool {
        self.guards.waits(is)
    }
}
