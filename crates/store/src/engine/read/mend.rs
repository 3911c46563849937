//! A copy that did not verify is written again from a good one.

use ashlar_block::{Durability, IoError, Request};

use super::{Part, Repair, Source};
use crate::engine::access::locks::SlotKey;
use crate::engine::invariant::invariant;
use crate::engine::{Engine, Op, Owner};
use crate::sizes::GRANULE;

impl Engine {
    /// Writes a good granule over the copies that were bad, if it is still what it was.
    pub(super) fn mend(&mut self, op: usize, at: u32, part: &Part) {
        let (Some(Op::Read(read)), [wanted]) = (self.ops.get(op), &part.wanted[..]) else {
            return;
        };
        let Source::Home(..) = wanted.source else {
            return;
        };
        if part.tried == 0 || self.base.failed.is_some() {
            return;
        }
        let granule = read.request.range.start.0 + u64::from(at);
        let key = SlotKey {
            volume: read.volume,
            slot: self.map.grain(read.volume).slot_of(granule),
        };
        let volume = read.volume;
        if !self.access.try_lock(key) {
            return;
        }
        // A third look, now that nothing can move it: mending from a read that raced would destroy
        // acknowledged data.
        if self.look_up(volume, granule) != Some(*wanted) {
            return self.unlock(key);
        }
        let bad = |&(drive, _): &(usize, u64)| part.tried & 1 << drive != 0;
        let places: Vec<_> = self.copies(wanted.source).into_iter().filter(bad).collect();
        if places.is_empty() {
            return self.unlock(key);
        }
        let repair = self.mending.begin_repair(Repair {
            key,
            pending: places.len(),
        });
        for (drive, byte) in places {
            let Some(mut copy) = self.buffer(GRANULE) else {
                return;
            };
            copy.copy_from_slice(&part.buffer);
            let range = self.space.drives.range(drive, byte, GRANULE);
            self.send(drive, Owner::Repair { repair }, |tag| {
                Request::write(tag, range, copy, Durability::Durable)
            });
        }
    }

    pub(in crate::engine) fn repair_written(
        &mut self,
        repair: usize,
        drive: usize,
        result: Result<(), IoError>,
    ) {
        match result {
            Ok(()) => self.base.counters.repaired += 1,
            Err(error) => self.drive_failed(drive, &error),
        }
        let Some(state) = self.mending.repair_mut(repair) else {
            return invariant!(self, "copy {repair} was mended, but was not to be");
        };
        state.pending -= 1;
        if state.pending == 0 {
            let key = state.key;
            self.mending.end_repair(repair);
            self.unlock(key);
        }
    }
}
