use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes a reactor from any thread.
#[derive(Clone)]
pub struct Waker(Arc<WakerState>);

struct WakerState {
    eventfd: OwnedFd,
    pending: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(WakerState {
            eventfd,
            pending: AtomicBool::new(false),
        })))
    }

    /// Makes the reactor's current or next `turn` return soon.
    pub fn wake(&self) {
        if !self.0.pending.swap(true, Ordering::AcqRel) {
            // Adding 1 to an eventfd fails only when its counter is full, and then the reactor has
            // a wake-up waiting already.
            let _ = rustix::io::write(&self.0.eventfd, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.0.pending.load(Ordering::Acquire)
    }

    /// Called when the eventfd was read: later mail needs a new wake-up.
    pub(crate) fn clear(&self) {
        self.0.pending.store(false, Ordering::Release);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.eventfd.as_fd()
    }
}

/// Messages to a reactor's thread from other threads. Not for the fast path.
pub struct Mailbox<T> {
    queue: Arc<Mutex<VecDeque<T>>>,
    waker: Waker,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            waker: self.waker.clone(),
        }
    }
}

impl<T> Mailbox<T> {
    /// A mailbox whose reader sleeps in the reactor that `waker` wakes.
    pub fn new(waker: Waker) -> Self {
        Self {
            queue: Arc::default(),
            waker,
        }
    }

    /// Puts a message in and wakes the reader.
    pub fn post(&self, message: T) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(message);
        self.waker.wake();
    }

    /// Takes the oldest message out.
    pub fn take(&self) -> Option<T> {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    }
}
