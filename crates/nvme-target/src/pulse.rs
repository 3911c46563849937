//! What proves that a host has not given an association up.
//!
//! A command that arrives may be late: its host may have given the association up since, and gone on by another. Two
//! things are proof that it had not:
//!
//! * Event requests. A host sends some, and for each that ends another. When there are as many again as there were at
//!   most, it has heard of the end of all others, and has used the association afterwards.
//! * Commands of an I/O queue, of which a host has no more under way than the queue holds. When so many have come behind
//!   an answer's number, one of them was sent after that answer or a later one had been taken ([`Round`]).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// What proves that a host uses an association, counted. A moment's number is larger than that of any before.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    moments: AtomicU64,
    /// When the last event request ended.
    ended: AtomicU64,
    /// After this moment the host has used the association.
    proven: AtomicU64,
    /// Most event requests that were there at once.
    most: AtomicUsize,
}

/// A moment in an association's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat(u64);

impl Pulse {
    /// Now: what the caller has read before this was read before any end, and any answer, that is still to come.
    pub(crate) fn now(&self) -> Beat {
        fence(Ordering::SeqCst);
        Beat(self.moments.fetch_add(1, Ordering::SeqCst))
    }

    /// Whether the host is known to have used the association after `beat`.
    pub(crate) fn is_proven_after(&self, beat: Beat) -> bool {
        self.proven.load(Ordering::SeqCst) > beat.0
    }

    /// An event request ends; its answer has not been sent.
    pub(crate) fn request_ended(&self) {
        self.ended.store(self.now().0, Ordering::SeqCst);
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
            self.used_after(Beat(self.ended.load(Ordering::SeqCst)));
        }
    }

    fn used_after(&self, beat: Beat) {
        self.proven.fetch_max(beat.0, Ordering::SeqCst);
    }
}

/// An I/O queue's commands and answers, in rounds. Each round begins when one has ended, and ends with the proof that the
/// host has used the association after the round's beginning.
#[derive(Debug, Default)]
pub(crate) struct Round {
    received: u64,
    answered: u64,
    began: Option<(Beat, u64)>,
}

impl Round {
    /// A command has come. True if the round is over, or none has begun.
    pub(crate) fn received(&mut self, pulse: &Pulse) -> bool {
        self.received += 1;
        if let Some((began, due)) = self.began {
            if self.received <= due {
                return false;
            }
            pulse.used_after(began);
        }
        true
    }

    /// A round of a queue of so many entries begins.
    pub(crate) fn begin(&mut self, pulse: &Pulse, entries: u16) {
        // Answers up to now are no proof, nor is what they have made room for.
        self.began = Some((pulse.now(), self.answered + u64::from(entries)));
    }

    /// A command was answered, or will never be.
    pub(crate) fn answered(&mut self) {
        self.answered += 1;
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

    #[test]
    fn a_round_ends_when_the_host_must_have_taken_an_answer_of_it() {
        let (pulse, mut round) = (Pulse::default(), Round::default());
        let command = |round: &mut Round| {
            if round.received(&pulse) {
                round.begin(&pulse, 4);
            }
        };
        command(&mut round);
        round.answered();
        command(&mut round);
        let label = pulse.now();
        // This round has begun before.
        for _ in 0..3 {
            command(&mut round);
            round.answered();
        }
        assert!(!pulse.is_proven_after(label));
        // The next round has begun with three answers: up to seven commands may have been sent before it.
        for _ in 0..3 {
            assert!(!pulse.is_proven_after(label));
            command(&mut round);
            round.answered();
        }
        assert!(pulse.is_proven_after(label));
    }
}
