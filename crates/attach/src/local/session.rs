use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ashlar_reactor::Waker;

use super::Over;
use crate::counters::Counters;

/// An attachment that is served in process, as the threads know it that do not serve it.
pub struct Session {
    counters: Counters,
    waker: OnceLock<Waker>,
    /// There is something in `asked`: looked at by the core in every turn.
    ends: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    /// To the guardian, whose end is listened for.
    peer: UnixStream,
}

#[derive(Default)]
struct State {
    /// Why it is to end.
    asked: Option<Over>,
    /// Why it has.
    over: Option<Over>,
}

impl Session {
    pub(super) fn new(peer: UnixStream) -> Self {
        Self {
            counters: Counters::default(),
            waker: OnceLock::new(),
            ends: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            peer,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn set_waker(&self, waker: Waker) {
        // Only one local session has it.
        let _ = self.waker.set(waker);
    }

    /// Has it end: what was read is answered, nothing more is read. The first reason counts.
    pub fn end(&self, why: Over) {
        self.lock().asked.get_or_insert(why);
        self.ends.store(true, Ordering::Release);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Why it is to end, if it is.
    pub(super) fn asked(&self) -> Option<Over> {
        if !self.ends.load(Ordering::Acquire) {
            return None;
        }
        self.lock().asked.clone()
    }

    /// It has ended: the core has nothing of it any more.
    pub(super) fn ended(&self, why: Over) {
        self.lock().over.get_or_insert(why);
        self.changed.notify_all();
        // Wakes the thread that listens to the guardian; it may be gone.
        let _ = self.peer.shutdown(Shutdown::Read);
    }

    pub(super) fn over(&self) -> Option<Over> {
        self.lock().over.clone()
    }

    /// Waits until it has ended; false if it has not within `limit`.
    pub fn has_ended_within(&self, limit: Duration) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), limit, |state| state.over.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.over.is_some()
    }

    pub(super) fn wait(&self) -> Over {
        let waited = self
            .changed
            .wait_while(self.lock(), |state| state.over.is_none());
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        state.over.clone().unwrap_or(Over::Unmounted)
    }
}
