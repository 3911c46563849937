//! Saying changes again. A commit that is alone pads its batch of the map log to 4 KiB, so a log of such
//! commits holds few changes, and pages would be written for each of them. The padding takes, for nothing,
//! what the oldest batches say and no page holds: the places of all slots of a leaf that have changed since
//! it was written. Then the log may let go of those batches without the page.
//!
//! Such a record is a [`Kind::Move`](crate::format::Kind::Move) that frees nothing: it voids no record of the
//! ring. What the older record said of the ring needs no repeating, for the map log's tail waits for the
//! ring's.

use super::identity::Identity;
use super::journal::{Changes, Journal};
use super::logs::Logs;
use super::map::{Map, Relogged};
use crate::Canary;
use crate::format::{MAX_CRCS, MAX_RECORDS, metadata_bytes};

/// How much of the map log may follow a change before it is said again: well before pages are written for it.
const AFTER: f64 = 0.1;
/// Leaves that one batch looks at.
const LOOKS: usize = 32;

/// What tells which changes are old.
pub(super) struct Relog<'a> {
    pub(super) identity: &'a Identity,
    pub(super) map: &'a Map,
    pub(super) logs: &'a Logs,
    pub(super) journal: &'a Journal,
}

impl Relog<'_> {
    /// Changes that the padding of a batch with these has room for.
    pub(super) fn fill(&self, batch: &Changes) -> Vec<Relogged> {
        let (mut records, mut crcs) = (batch.changes.len(), batch.crcs);
        let room = metadata_bytes(records, crcs);
        let mut relogged = Vec::new();
        let Some(old) = self.old_sequence() else {
            return relogged;
        };
        // What is not published has not changed the map yet: said again, it would be undone.
        let is_changing = |leaf| {
            let mut changing = batch.changes.iter().map(|staged| staged.change.leaf());
            changing.any(|one| one == Some(leaf)) && !self.identity.sings(Canary::RelogTooEarly)
        };
        let leaves = self.map.leaves_older_than(old).take(LOOKS);
        for leaf in leaves {
            let (count, granules) = self.map.relog_weight(leaf);
            let more = (records + count, crcs + count * granules);
            let fits = more.0 <= MAX_RECORDS && more.1 <= MAX_CRCS;
            if !fits || metadata_bytes(more.0, more.1) > room || is_changing(leaf) {
                continue;
            }
            let Some(mut places) = self.map.places_of(leaf) else {
                continue;
            };
            if self.identity.sings(Canary::RelogLess) {
                places.truncate(1);
            }
            let sequence = self.journal.next_sequence() + records as u64;
            (records, crcs) = (records + places.len(), crcs + places.len() * granules);
            relogged.push(Relogged {
                leaf,
                sequence,
                places,
            });
        }
        relogged
    }

    /// Changes below this sequence are old in the map log, if any are.
    fn old_sequence(&self) -> Option<u64> {
        let young = (self.logs.map_bytes() as f64 * AFTER) as u64;
        self.logs.map_sequence_within(young)
    }
}
