//! A copy that did not verify is written again from a good one.

use ashlar_block::{Durability, Request};

use super::{Around, Next, Part, Reads, Source};
use crate::engine::Owner;
use crate::engine::access::locks::SlotKey;
use crate::sizes::GRANULE;

impl Reads {
    /// Writes a good granule over the copies that were bad, if it is still what it was.
    pub(super) fn mend(&mut self, op: usize, at: u32, part: &Part, around: &mut Around<'_>) {
        let (Some(read), [wanted]) = (self.ops.get(op), &part.wanted[..]) else {
            return;
        };
        let Source::Home(..) = wanted.source else {
            return;
        };
        if part.tried == 0 || around.base.failed.is_some() {
            return;
        }
        let granule = read.request.range.start.0 + u64::from(at);
        let key = SlotKey {
            volume: read.volume,
            slot: around.map.grain(read.volume).slot_of(granule),
        };
        let volume = read.volume;
        if !around.access.try_lock(key) {
            return;
        }
        // A third look, now that nothing can move it: mending from a read that raced would destroy
        // acknowledged data.
        if around.look_up(volume, granule) != Some(*wanted) {
            return self.next.push_back(Next::Unlock(key));
        }
        let bad = |&(drive, _): &(usize, u64)| part.tried & 1 << drive != 0;
        let places: Vec<_> = around
            .copies(wanted.source)
            .into_iter()
            .filter(bad)
            .collect();
        if places.is_empty() {
            return self.next.push_back(Next::Unlock(key));
        }
        let repair = around.mending.begin_repair(key, places.len());
        for (drive, byte) in places {
            let Some(mut copy) = around.base.buffer(around.logs, GRANULE) else {
                return;
            };
            copy.copy_from_slice(&part.buffer);
            let range = around.space.drives.range(drive, byte, GRANULE);
            around.send(drive, Owner::Repair { repair }, |tag| {
                Request::write(tag, range, copy, Durability::Durable)
            });
        }
    }
}
