//! Whole slots of a write, past the ring: to fresh space, slots side by side as far as there are such,
//! durably; and then their places into the map log, those of a unit in one batch.

use std::ops::Range;

use ashlar_block::Durability;

use super::{Around, Next, Writes};
use crate::engine::access::locks::SlotKey;
use crate::engine::class::Class;
use crate::engine::invariant::invariant;
use crate::engine::journal::{StagedChange, Then};
use crate::engine::map::Change;
use crate::engine::parity::Slots;
use crate::engine::space::{location, segment_and_slot};
use crate::engine::state::Retired;
use crate::engine::{Owner, Waiter};
use crate::sizes::{GRANULE, Grain, UNIT_GRANULES};
use crate::{Canary, ReplicaTag};

/// Neighbouring slots of a write on their way to fresh space.
pub(super) struct BypassOp {
    parent: usize,
    volume: u32,
    grain: Grain,
    slots: Range<u64>,
    /// Where their bytes begin in the write's buffer.
    offset: usize,
    /// Their fresh homes, in order.
    homes: Vec<u32>,
    /// Writes on their way, and later places that are not published.
    pending: usize,
    /// How many of the slots, from the first, are locked: in order, so that no two wait for each other.
    locked: u64,
}

impl BypassOp {
    fn keys(&self) -> impl Iterator<Item = SlotKey> + use<> {
        let volume = self.volume;
        self.slots.clone().map(move |slot| SlotKey { volume, slot })
    }
}

impl Writes {
    /// Whether homes of this class are free once writes past the ring are through.
    pub(super) fn supersede_any_of(&self, class: Class, around: &Around<'_>) -> bool {
        let is_of = |key: SlotKey| {
            let home = around.map.location(key.volume, key.slot).unwrap_or(0);
            let segment = segment_and_slot(home).0;
            home != 0 && around.space.segments.class(segment) == Some(class)
        };
        let mut keys = self.bypasses.iter().flat_map(|(_, bypass)| bypass.keys());
        keys.any(is_of)
    }

    /// Whether writes that came before this one go past the ring.
    pub(in crate::engine) fn pass_ring_before(&self, serial: u64) -> bool {
        let older = |parent: usize| {
            self.ops
                .get(parent)
                .is_some_and(|write| write.serial < serial)
        };
        self.bypasses.iter().any(|(_, bypass)| older(bypass.parent))
    }

    /// As [`tag`](Self::tag), of the write that these slots are a part of.
    pub(in crate::engine) fn tag_of_bypass(&self, op: usize) -> Option<ReplicaTag> {
        self.tag(self.bypasses.get(op)?.parent)
    }

    pub(super) fn begin_bypass(
        &mut self,
        parent: usize,
        slots: Range<u64>,
        offset: usize,
        around: &mut Around<'_>,
    ) {
        let Some(volume) = self.ops.get(parent).map(|write| write.volume) else {
            return invariant!(around.base, "write {parent} has gone as it was let in");
        };
        let Some(class) = around.volumes.class_of(volume) else {
            return invariant!(
                around.base,
                "volume {volume} takes whole slots, but has no homes"
            );
        };
        let (tiers, of_tiers) = around.tiers();
        let class = tiers
            .hot_class_for(volume, slots.clone(), &of_tiers)
            .unwrap_or(class);
        let wanted = (slots.end - slots.start) as usize;
        let mut homes = Vec::with_capacity(wanted);
        while homes.len() < wanted {
            let left = (wanted - homes.len()) as u32;
            let Some((segment, first, count)) = around.space.take_slots(class, left) else {
                return around.base.fail("a counted slot was not there".into());
            };
            homes.extend((first..first + count).map(|slot| location(segment, slot)));
        }
        around.base.counters.bypassed += wanted as u64;
        let op = self.bypasses.insert(BypassOp {
            parent,
            volume,
            grain: class.grain,
            slots,
            offset,
            homes,
            pending: 0,
            locked: 0,
        });
        // The locks are for the order of changes; the data may go ahead, nothing else knows its place.
        self.write_bypass(op, around);
    }

    fn write_bypass(&mut self, op: usize, around: &mut Around<'_>) {
        let Some(bypass) = self.bypasses.get_mut(op) else {
            return invariant!(around.base, "write {op} past the ring is not there");
        };
        if !around.space.are_readable(&bypass.homes) {
            return self.bypass_lost(op, around);
        }
        let Some(write) = self.ops.get(bypass.parent) else {
            return invariant!(
                around.base,
                "write {} has ended before its slots were written",
                bypass.parent
            );
        };
        let slots: Vec<&[u8]> = write.bytes()[bypass.offset..]
            .chunks(bypass.grain.bytes() as usize)
            .take(bypass.homes.len())
            .collect();
        let mut spent = 0;
        for run in around.space.runs_of_homes(&bypass.homes) {
            let (segment, slot) = segment_and_slot(bypass.homes[run.start]);
            spent += around.rebuild.slot_cost(segment, around.space) * run.len() as u64;
            let slots = Slots {
                segment,
                slot,
                bytes: &slots[run],
            };
            let owner = Owner::Bypass { op };
            bypass.pending += slots.write(Durability::Durable, owner, &mut around.mending());
        }
        around.tiers.spent_on(bypass.volume, spent);
    }

    /// A drive has written what it was given of some slots, or is out.
    pub(in crate::engine) fn bypass_written(&mut self, op: usize, around: &mut Around<'_>) {
        let Some(bypass) = self.bypasses.get_mut(op) else {
            return invariant!(
                around.base,
                "a slot of write {op} is written, but it is not there"
            );
        };
        bypass.pending -= 1;
        if bypass.pending > 0 {
            return;
        }
        if !around.space.are_readable(&bypass.homes) {
            return self.bypass_lost(op, around);
        }
        if around.identity.sings(Canary::BypassWithoutLock) {
            return self.place_bypass(op, around);
        }
        self.lock_bypass(op, around);
    }

    /// The drives under a slot have gone before the data was on them.
    fn bypass_lost(&mut self, op: usize, around: &mut Around<'_>) {
        if let Some(bypass) = self.bypasses.try_remove(op) {
            for home in bypass.homes {
                around.access.retire(Retired::Slot(home));
            }
            if let Some(write) = self.ops.get_mut(bypass.parent) {
                write.failed = true;
            }
            self.part_done(bypass.parent, around);
        }
    }

    /// The next of its slots is locked.
    pub(in crate::engine) fn bypass_locked(&mut self, op: usize, around: &mut Around<'_>) {
        if let Some(bypass) = self.bypasses.get_mut(op) {
            bypass.locked += 1;
        }
        self.lock_bypass(op, around);
    }

    fn lock_bypass(&mut self, op: usize, around: &mut Around<'_>) {
        while let Some(bypass) = self.bypasses.get_mut(op) {
            let slot = bypass.slots.start + bypass.locked;
            if slot == bypass.slots.end {
                return self.place_bypass(op, around);
            }
            let volume = bypass.volume;
            let key = SlotKey { volume, slot };
            if !around.access.lock_or_wait(key, Waiter::Bypass(op)) {
                return;
            }
            bypass.locked += 1;
        }
    }

    /// The data is durable and the slots are ours: journal their places.
    fn place_bypass(&mut self, op: usize, around: &mut Around<'_>) {
        let Some(bypass) = self.bypasses.get_mut(op) else {
            return invariant!(
                around.base,
                "write {op} past the ring is not there to be placed"
            );
        };
        bypass.pending = bypass.homes.len();
        let (volume, grain) = (bypass.volume, bypass.grain);
        let Some(write) = self.ops.get(bypass.parent) else {
            return invariant!(
                around.base,
                "write {} has ended before its slots were placed",
                bypass.parent
            );
        };
        let slots = write.bytes()[bypass.offset..].chunks(grain.bytes() as usize);
        for ((slot, &new), bytes) in bypass.slots.clone().zip(&bypass.homes).zip(slots) {
            let mut crcs = [0; UNIT_GRANULES as usize];
            for (crc, granule) in crcs.iter_mut().zip(bytes.chunks(GRANULE)) {
                *crc = around.identity.salt().crc(granule);
            }
            let Some(old) = around.map.location(volume, slot) else {
                return invariant!(
                    around.base,
                    "slot {slot} of volume {volume} is placed, but its leaf is not here"
                );
            };
            let ends_unit = grain.first(slot + 1) % UNIT_GRANULES == 0;
            around.journal.stage(StagedChange {
                change: Change::Place {
                    moved: false,
                    volume,
                    first: grain.first(slot),
                    granules: grain.granules() as u16,
                    new,
                    old,
                    crcs,
                },
                then: Then::Bypass(op),
                more: !ends_unit && slot + 1 < bypass.slots.end,
            });
        }
    }

    /// One of its places is published.
    pub(in crate::engine) fn bypass_published(&mut self, op: usize, around: &mut Around<'_>) {
        let Some(bypass) = self.bypasses.get_mut(op) else {
            return invariant!(
                around.base,
                "a place of write {op} is published, but it is not there"
            );
        };
        bypass.pending -= 1;
        if bypass.pending > 0 {
            return;
        }
        let bypass = self.bypasses.remove(op);
        for key in bypass.keys() {
            around.reserving().unreserve_if_homed(key);
            self.next.push_back(Next::Unlock(key));
        }
        self.part_done(bypass.parent, around);
    }
}
