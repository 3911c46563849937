//! What a copy's process counts.

use ashlar_replica::{MAX_MEMBERS, Position};

/// Of one copy, since its process began, or since it is this copy's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Bytes that were copied to each other copy, of what it missed.
    copied: [Copied; MAX_MEMBERS],
    /// Bytes that were said to each other copy's node, as they go over its connection.
    sent: [u64; MAX_MEMBERS],
    /// Commands of hosts that came here and were sent on to the owner.
    pub(crate) forwarded: u64,
    /// Commands of hosts that came here and were refused by their labels.
    pub(crate) stale: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Copied {
    ever: u64,
    in_term: u64,
    /// In the resync that is under way, if one is in which something was copied.
    in_resync: Option<u64>,
}

impl Tally {
    /// Something was copied. Whether it is the first of a resync.
    pub(super) fn copied(&mut self, to: Position, bytes: u64) -> bool {
        let count = &mut self.copied[to.index()];
        count.ever += bytes;
        count.in_term += bytes;
        let begins = count.in_resync.is_none();
        *count.in_resync.get_or_insert(0) += bytes;
        begins
    }

    /// Something was said.
    pub(super) fn sent(&mut self, to: Position, bytes: usize) {
        self.sent[to.index()] += bytes as u64;
    }

    /// A copy is in sync: what was copied to it for that, if anything was.
    pub(super) fn in_sync(&mut self, at: Position) -> Option<u64> {
        self.copied[at.index()].in_resync.take()
    }

    /// This node does not own the volume any more.
    pub(super) fn term_ended(&mut self) {
        for count in &mut self.copied {
            count.in_term = 0;
            count.in_resync = None;
        }
    }

    /// Another copy is there from now on.
    pub(super) fn seated(&mut self, at: Position) {
        self.copied[at.index()] = Copied::default();
        self.sent[at.index()] = 0;
    }

    /// Bytes that were copied to a copy since this node owns the volume.
    pub(crate) fn copied_in_term(&self, to: Position) -> u64 {
        self.copied[to.index()].in_term
    }

    /// The same in all its terms.
    pub(crate) fn copied_bytes(&self, to: Position) -> u64 {
        self.copied[to.index()].ever
    }

    /// Bytes that were said to a copy's node.
    pub(crate) fn sent_bytes(&self, to: Position) -> u64 {
        self.sent[to.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_counts_by_term_and_for_good() {
        let mut tally = Tally::default();
        let [at, other] = [1, 2].map(|index| Position::new(index).expect("a position"));
        assert!(tally.copied(at, 5) && !tally.copied(at, 2));
        assert_eq!((tally.in_sync(at), tally.in_sync(at)), (Some(7), None));
        assert_eq!((tally.copied_in_term(at), tally.copied_bytes(at)), (7, 7));
        tally.term_ended();
        assert!(tally.copied(at, 3), "another resync");
        assert_eq!((tally.copied_in_term(at), tally.copied_bytes(at)), (3, 10));
        tally.copied(other, 1);
        tally.sent(at, 6);
        assert_eq!((tally.sent_bytes(at), tally.sent_bytes(other)), (6, 0));
        tally.seated(at);
        assert_eq!((tally.copied_in_term(at), tally.copied_bytes(at)), (0, 0));
        assert_eq!((tally.copied_bytes(other), tally.sent_bytes(at)), (1, 0));
    }
}
