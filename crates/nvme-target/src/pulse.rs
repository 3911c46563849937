//! What proves that a host has not given an association up.
//!
//! A command that arrives may be late: its host may have given the association up since, and gone on by another. An
//! event request behind the end of another is proof that it had not by then, for no more than one is outstanding: the
//! host cannot have sent it before it heard of that end.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// An association's event requests, counted.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Those that have ended.
    ended: AtomicU64,
    /// How many had when the last was received.
    proven: AtomicU64,
}

/// A moment in an association's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat(u64);

impl Pulse {
    /// Now: what the caller has read before this was read before any end that is still to come.
    pub(crate) fn now(&self) -> Beat {
        fence(Ordering::SeqCst);
        Beat(self.ended.load(Ordering::SeqCst))
    }

    /// Whether the host is known to have used the association after `beat`.
    pub(crate) fn is_proven_after(&self, beat: Beat) -> bool {
        self.proven.load(Ordering::SeqCst) > beat.0
    }

    /// An event request ends; its answer has not been sent.
    pub(crate) fn request_ended(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// An event request was received, and is the only one.
    pub(crate) fn request_received(&self) {
        self.proven
            .store(self.ended.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_behind_an_end_that_came_later_is_proof() {
        let pulse = Pulse::default();
        pulse.request_received();
        let first = pulse.now();
        assert!(
            !pulse.is_proven_after(first),
            "it may have been sent before"
        );
        pulse.request_ended();
        let second = pulse.now();
        assert!(!pulse.is_proven_after(first));
        pulse.request_received();
        assert!(pulse.is_proven_after(first) && !pulse.is_proven_after(second));
    }
}
