//! Which slots a round of destage takes home: those of the ring's oldest records.
//!
//! Every round takes a batch of the map log, and the map log's tail waits for the ring's. So a round is
//! as large as it can be, or the map log is full before the ring's oldest records are home, and then neither
//! tail ever moves again. For that, a round begins only when the leaves of all its slots are here, and they stay
//! until then, however little memory there is for the map.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::engine::access::locks::SlotKey;

/// A slot whose leaf is being read, and what was pinned for it: its volume may be deleted, and another of another
/// grain be made of its number, before that is here.
pub(super) struct Awaited {
    pub(super) key: SlotKey,
    pub(super) granules: Range<u64>,
}

/// Slots for a round.
#[derive(Default)]
pub(super) struct Chosen {
    /// Of the oldest batch: they get homes first, where those are scarce, for only then does the tail move.
    pub(super) oldest: BTreeSet<SlotKey>,
    /// Of others: neighbours get homes one after the other.
    pub(super) others: BTreeSet<SlotKey>,
}

impl Chosen {
    /// All of them, in the order in which they get homes.
    pub(super) fn keys(&self) -> impl Iterator<Item = SlotKey> + use<'_> {
        self.oldest.iter().chain(&self.others).copied()
    }
}
