//! Which slots a round of destage takes home: those of the ring's oldest records.
//!
//! Every round takes a batch of the map log, and the map log's tail waits for the ring's. So a round is
//! as large as it can be, or the map log is full before the ring's oldest records are home, and then neither
//! tail ever moves again. For that, a round begins only when the leaves of all its slots are here, and they stay
//! until then, however little memory there is for the map.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{Around, Destage, Next, ROUND};
use crate::engine::Waiter;
use crate::engine::access::locks::SlotKey;
use crate::ring::{GranuleKey, LogBatch, Span};

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

impl Destage {
    /// Takes on the slots of the oldest records, once all their leaves are here.
    pub(super) fn collect_jobs(&mut self, around: &mut Around<'_>) {
        if !around.rebuild.returns().is_busy() {
            self.awaits_drive.clear();
        }
        let mut chosen = None;
        if self.awaited.is_empty() {
            let first = around.choose_slots();
            self.await_leaves(&first, around);
            chosen = Some(first);
        }
        if self.lacks_awaited_leaf(around) {
            return;
        }
        // Records may have been superseded while leaves were read.
        let chosen = chosen.unwrap_or_else(|| around.choose_slots());
        for key in chosen.keys() {
            self.collect_job(key, around);
        }
        for Awaited { key, granules } in std::mem::take(&mut self.awaited) {
            around.map.unpin(key.volume, granules);
        }
    }

    /// Reads the leaves of these slots that are not here, and keeps all of them here.
    fn await_leaves(&mut self, chosen: &Chosen, around: &mut Around<'_>) {
        for key in chosen.keys() {
            let granules = around.map.granules_of(key);
            around.map.pin(key.volume, granules.clone());
            self.awaited.push(Awaited { key, granules });
            if around.map.location(key.volume, key.slot).is_none() {
                self.load_leaf_of(key, around);
            }
        }
    }

    /// Whether a leaf is still to come.
    fn lacks_awaited_leaf(&self, around: &Around<'_>) -> bool {
        let mut awaited = self.awaited.iter();
        awaited.any(|Awaited { key, .. }| around.map.location(key.volume, key.slot).is_none())
    }

    /// Reads the leaf of a slot.
    pub(super) fn load_leaf_of(&mut self, key: SlotKey, around: &Around<'_>) {
        self.next.push_back(Next::Load {
            page: around.map.leaf_of(key),
            waiter: Waiter::Destage,
        });
    }
}

impl Around<'_> {
    fn choose_slots(&self) -> Chosen {
        let mut chosen = Chosen::default();
        let mut bytes = 0;
        for (place, batch) in self.logs.live_batches().enumerate() {
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
            let key = GranuleKey { volume, granule };
            self.logs.is_newest_in(batch, key)
        };
        let slots = grain.slots_of(granules.clone()).filter(move |&slot| {
            let slot = grain.range(slot);
            (granules.start.max(slot.start)..granules.end.min(slot.end)).any(in_batch)
        });
        slots.map(move |slot| SlotKey { volume, slot })
    }

    /// Homes were lost: what the ring has of their slots, or is about to have, counts on others. Where the leaf is not
    /// here, the home may be one of them; a slot counted on in vain is given back when destage has come to it.
    pub(in crate::engine) fn reserve_for_lost_homes(&mut self) {
        let mut slots = BTreeSet::new();
        for batch in self.logs.live_batches() {
            for span in &batch.spans {
                slots.extend(self.live_slots(batch, span));
            }
        }
        slots.extend(self.journal.slots_on_their_way(self.map));
        for key in slots {
            if self.space.lacks_home(self.map, key) != Some(false) {
                self.reserving().reserve(key);
            }
        }
    }
}
