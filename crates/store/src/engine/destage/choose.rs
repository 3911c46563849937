//! Which slots a round of destage takes home: those of the ring's oldest records.
//!
//! Every round takes a batch of the map log, and the map log's tail waits for the ring's. So a round is
//! as large as it can be, or the map log is full before the ring's oldest records are home, and then neither
//! tail ever moves again. For that, a round begins only when the leaves of all its slots are here, and they stay
//! until then, however little memory there is for the map.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{Engine, ROUND};
use crate::engine::Waiter;
use crate::engine::locks::SlotKey;
use crate::engine::map::leaf_id;
use crate::ring::{GranuleKey, LogBatch, Span};
use crate::sizes::LEAF_GRANULES;

/// A slot whose leaf is being read, and what was pinned for it: its volume may be deleted, and another of another
/// grain be made of its number, before that is here.
pub(super) struct Awaited {
    key: SlotKey,
    granules: Range<u64>,
}

/// Slots for a round.
#[derive(Default)]
struct Chosen {
    /// Of the oldest batch: they get homes first, where those are scarce, for only then does the tail move.
    oldest: BTreeSet<SlotKey>,
    /// Of others: neighbours get homes one after the other.
    others: BTreeSet<SlotKey>,
}

impl Chosen {
    fn keys(&self) -> impl Iterator<Item = SlotKey> + use<'_> {
        self.oldest.iter().chain(&self.others).copied()
    }
}

impl Engine {
    /// Takes on the slots of the oldest records, once all their leaves are here.
    pub(super) fn collect_jobs(&mut self) {
        let mut chosen = None;
        if self.destage.awaited.is_empty() {
            let first = self.choose_slots();
            self.await_leaves(&first);
            chosen = Some(first);
        }
        if self.lacks_awaited_leaf() {
            return;
        }
        // Records may have been superseded while leaves were read.
        let chosen = chosen.unwrap_or_else(|| self.choose_slots());
        for key in chosen.keys() {
            self.collect_job(key);
        }
        for Awaited { key, granules } in std::mem::take(&mut self.destage.awaited) {
            self.unpin(key.volume, granules.start, granules.end);
        }
    }

    /// Reads the leaves of these slots that are not here, and keeps all of them here.
    fn await_leaves(&mut self, chosen: &Chosen) {
        for key in chosen.keys() {
            let granules = self.granules_of(key);
            self.pin(key.volume, granules.start, granules.end);
            self.destage.awaited.push(Awaited { key, granules });
            if self.map.location(key.volume, key.slot).is_none() {
                self.load_leaf_of(key);
            }
        }
    }

    /// Whether a leaf is still to come.
    fn lacks_awaited_leaf(&self) -> bool {
        let mut awaited = self.destage.awaited.iter();
        awaited.any(|Awaited { key, .. }| self.map.location(key.volume, key.slot).is_none())
    }

    /// Reads the leaf of a slot.
    pub(super) fn load_leaf_of(&mut self, key: SlotKey) {
        let leaf = self.granules_of(key).start / LEAF_GRANULES;
        self.load(leaf_id(key.volume, leaf), Waiter::Destage);
    }

    fn choose_slots(&self) -> Chosen {
        let mut chosen = Chosen::default();
        let mut bytes = 0;
        let live = self.ring.batches.iter().filter(|batch| batch.live > 0);
        for (place, batch) in live.enumerate() {
            for span in &batch.spans {
                for key in self.live_slots(batch, span) {
                    let is_new = match place {
                        0 => chosen.oldest.insert(key),
                        _ => !chosen.oldest.contains(&key) && chosen.others.insert(key),
                    };
                    if is_new {
                        bytes += self.map.grain(key.volume).bytes();
                    }
                }
            }
            if bytes >= ROUND {
                break;
            }
        }
        chosen
    }

    /// Slots of a span of which a batch has the newest record of some granule.
    fn live_slots(&self, batch: &LogBatch, span: &Span) -> impl Iterator<Item = SlotKey> {
        let volume = span.volume;
        let grain = self.map.grain(volume);
        let granules = span.first..span.first + u64::from(span.granules);
        let in_batch = move |granule| {
            let newest = self.index.get(GranuleKey { volume, granule });
            newest.is_some_and(|n| n.at >= batch.at && n.at < batch.at + batch.bytes)
        };
        let slots = grain.slots_of(granules.clone()).filter(move |&slot| {
            let slot = grain.range(slot);
            (granules.start.max(slot.start)..granules.end.min(slot.end)).any(in_batch)
        });
        slots.map(move |slot| SlotKey { volume, slot })
    }
}
