//! What proves that a host has not given an association up.
//!
//! A command that arrives may be late: its host may have given the association up since, and gone on by another. Event
//! requests are proof that it had not: a host sends some, and for each that ends another. When there are as many again as
//! there were at most, it has heard of the end of all others, and has used the association afterwards.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// An association's event requests, counted.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Those that have ended.
    ended: AtomicU64,
    /// How many had when there were last as many as ever.
    proven: AtomicU64,
    /// Most that were there at once.
    most: AtomicUsize,
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

    /// One ends because the host does not want it any more: there need not be another.
    pub(crate) fn request_withdrawn(&self) {
        // The admin queue alone counts them.
        let most = self.most.load(Ordering::SeqCst);
        self.most.store(most.saturating_sub(1), Ordering::SeqCst);
        self.request_ended();
    }

    /// An event request was received; with it there are so many.
    pub(crate) fn request_received(&self, outstanding: usize) {
        if outstanding >= self.most.fetch_max(outstanding, Ordering::SeqCst) {
            self.proven
                .store(self.ended.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_for_all_that_have_ended_are_proof() {
        let pulse = Pulse::default();
        pulse.request_received(1);
        pulse.request_received(2);
        let first = pulse.now();
        assert!(
            !pulse.is_proven_after(first),
            "they may have been sent before"
        );
        pulse.request_ended();
        let second = pulse.now();
        pulse.request_ended();
        pulse.request_received(1);
        assert!(
            !pulse.is_proven_after(first),
            "it may be for an end of before"
        );
        pulse.request_received(2);
        assert!(pulse.is_proven_after(first) && pulse.is_proven_after(second));
        let third = pulse.now();
        pulse.request_withdrawn();
        pulse.request_ended();
        pulse.request_received(1);
        assert!(
            pulse.is_proven_after(third),
            "one of them is wanted no more"
        );
    }
}
