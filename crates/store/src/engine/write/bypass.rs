//! Whole slots of a write, past the ring: to fresh space, slots side by side as far as there are such,
//! durably; and then their places into the map log, those of a unit in one batch.

use std::ops::Range;

use ashlar_block::{Durability, IoError};

use crate::Canary;
use crate::engine::access::locks::SlotKey;
use crate::engine::class::{Class, Shape};
use crate::engine::invariant::invariant;
use crate::engine::journal::{StagedChange, Then};
use crate::engine::map::Change;
use crate::engine::parity::Slots;
use crate::engine::space::{location, segment_and_slot};
use crate::engine::state::Retired;
use crate::engine::{Engine, Op, Owner, Waiter};
use crate::sizes::{GRANULE, Grain, UNIT_BYTES, UNIT_GRANULES};

/// Neighbouring slots of a write on their way to fresh space.
pub(in crate::engine) struct BypassOp {
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
    /// The write that it is a part of.
    pub(in crate::engine) const fn parent(&self) -> usize {
        self.parent
    }

    fn keys(&self) -> impl Iterator<Item = SlotKey> + use<> {
        let volume = self.volume;
        self.slots.clone().map(move |slot| SlotKey { volume, slot })
    }
}

impl Engine {
    /// Whether homes of this class are free once a write past the ring is through.
    pub(in crate::engine) fn supersedes(&self, bypass: &BypassOp, class: Class) -> bool {
        let homed = |slot| self.map.location(bypass.volume, slot).unwrap_or(0);
        let class_at = |home| self.space.segments.class(segment_and_slot(home).0);
        bypass
            .slots
            .clone()
            .map(homed)
            .any(|home| home != 0 && class_at(home) == Some(class))
    }

    pub(super) fn begin_bypass(
        &mut self,
        parent: usize,
        volume: u32,
        slots: Range<u64>,
        offset: usize,
    ) {
        let Some(class) = self.class_of(volume) else {
            return invariant!(self, "volume {volume} takes whole slots, but has no homes");
        };
        let class = self.hot_class_for(volume, slots.clone()).unwrap_or(class);
        let wanted = (slots.end - slots.start) as usize;
        let mut homes = Vec::with_capacity(wanted);
        while homes.len() < wanted {
            let Some((segment, first, count)) =
                self.space.take_slots(class, (wanted - homes.len()) as u32)
            else {
                return self.fail("a counted slot was not there".into());
            };
            homes.extend((first..first + count).map(|slot| location(segment, slot)));
        }
        self.base.counters.bypassed += wanted as u64;
        let op = self.ops.insert(Op::Bypass(BypassOp {
            parent,
            volume,
            grain: class.grain,
            slots,
            offset,
            homes,
            pending: 0,
            locked: 0,
        }));
        // The locks are for the order of changes; the data may go ahead, nothing else knows its place.
        self.write_bypass(op);
    }

    fn write_bypass(&mut self, op: usize) {
        let Some(Op::Bypass(bypass)) = self.ops.get(op) else {
            return invariant!(self, "write {op} past the ring is not there");
        };
        if !self.are_readable(&bypass.homes) {
            return self.bypass_lost(op);
        }
        let (parent, offset) = (bypass.parent, bypass.offset);
        let slot_bytes = bypass.grain.bytes() as usize;
        let homes = bypass.homes.clone();
        let Some(Op::Write(write)) = self.ops.get_mut(parent) else {
            return invariant!(
                self,
                "write {parent} has ended before its slots were written"
            );
        };
        // Lent for as long as the slots are copied from it.
        let buffer = write.request.buffer.take();
        let bytes = buffer.as_deref().unwrap_or(&[]);
        let slots: Vec<&[u8]> = bytes[offset..]
            .chunks(slot_bytes)
            .take(homes.len())
            .collect();
        let (mut pending, mut spent) = (0, 0);
        for run in self.runs_of_homes(&homes) {
            let (segment, slot) = segment_and_slot(homes[run.start]);
            let owner = Owner::Bypass { op };
            spent += self.slot_cost(segment) * run.len() as u64;
            let slots = Slots {
                segment,
                slot,
                bytes: &slots[run],
            };
            pending += self.write_slots(slots, Durability::Durable, owner);
        }
        if let Some(Op::Write(write)) = self.ops.get_mut(parent) {
            write.request.buffer = buffer;
        }
        if let Some(Op::Bypass(bypass)) = self.ops.get_mut(op) {
            bypass.pending = pending;
            let volume = bypass.volume;
            self.tiers.spent_on(volume, spent);
        }
    }

    /// Runs of homes side by side that are written together: as far as a column gets no more than
    /// 64 KiB at a time.
    pub(in crate::engine) fn runs_of_homes(&self, homes: &[u32]) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (i, &home) in homes.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if self.continues(&homes[run.clone()], home) => run.end = i + 1,
                _ => runs.push(i..i + 1),
            }
        }
        runs
    }

    fn continues(&self, run: &[u32], next: u32) -> bool {
        let (segment, slot) = segment_and_slot(next);
        let follows = run.last().is_some_and(|last| last + 1 == next);
        let fits = |shape: Shape| (run.len() + 1) * shape.strip_bytes() <= UNIT_BYTES as usize;
        follows && slot > 0 && self.space.shape(segment).is_some_and(fits)
    }

    fn are_readable(&self, homes: &[u32]) -> bool {
        let mut segments = homes.iter().map(|&home| segment_and_slot(home).0);
        segments.all(|segment| self.space.is_readable(segment))
    }

    pub(in crate::engine) fn bypass_written(
        &mut self,
        op: usize,
        drive: usize,
        result: Result<(), IoError>,
    ) {
        if let Err(error) = result {
            self.drive_failed(drive, &error);
        }
        let Some(Op::Bypass(bypass)) = self.ops.get_mut(op) else {
            return invariant!(self, "a slot of write {op} is written, but it is not there");
        };
        bypass.pending -= 1;
        if bypass.pending > 0 {
            return;
        }
        let Some(Op::Bypass(bypass)) = self.ops.get(op) else {
            return invariant!(self, "write {op} has gone while it was looked at");
        };
        if !self.are_readable(&bypass.homes) {
            return self.bypass_lost(op);
        }
        if self.identity.sings(Canary::BypassWithoutLock) {
            return self.place_bypass(op);
        }
        self.lock_bypass(op);
    }

    /// The drives under a slot have gone before the data was on them.
    fn bypass_lost(&mut self, op: usize) {
        if let Some(Op::Bypass(bypass)) = self.ops.try_remove(op) {
            for home in bypass.homes {
                self.access.retire(Retired::Slot(home));
            }
            if let Some(Op::Write(write)) = self.ops.get_mut(bypass.parent) {
                write.failed = true;
            }
            self.write_part_done(bypass.parent);
        }
    }

    /// The next of its slots is locked.
    pub(super) fn bypass_locked(&mut self, op: usize) {
        if let Some(Op::Bypass(bypass)) = self.ops.get_mut(op) {
            bypass.locked += 1;
        }
        self.lock_bypass(op);
    }

    fn lock_bypass(&mut self, op: usize) {
        while let Some(Op::Bypass(bypass)) = self.ops.get_mut(op) {
            let slot = bypass.slots.start + bypass.locked;
            if slot == bypass.slots.end {
                return self.place_bypass(op);
            }
            let volume = bypass.volume;
            if !self
                .access
                .lock_or_wait(SlotKey { volume, slot }, Waiter::Bypass(op))
            {
                return;
            }
            bypass.locked += 1;
        }
    }

    /// The data is durable and the slots are ours: journal their places.
    fn place_bypass(&mut self, op: usize) {
        let Some(Op::Bypass(bypass)) = self.ops.get_mut(op) else {
            return invariant!(self, "write {op} past the ring is not there to be placed");
        };
        bypass.pending = bypass.homes.len();
        let (parent, volume, grain) = (bypass.parent, bypass.volume, bypass.grain);
        let (slots, homes, offset) = (bypass.slots.clone(), bypass.homes.clone(), bypass.offset);
        let slot_bytes = grain.bytes() as usize;
        for ((i, slot), new) in slots.clone().enumerate().zip(homes) {
            let mut crcs = [0; UNIT_GRANULES as usize];
            let Some(Op::Write(write)) = self.ops.get(parent) else {
                return invariant!(
                    self,
                    "write {parent} has ended before its slots were placed"
                );
            };
            let bytes = write.bytes(offset + i * slot_bytes, slot_bytes);
            for (crc, granule) in crcs.iter_mut().zip(bytes.chunks(GRANULE)) {
                *crc = self.identity.salt().crc(granule);
            }
            let Some(old) = self.map.location(volume, slot) else {
                return invariant!(
                    self,
                    "slot {slot} of volume {volume} is placed, but its leaf is not here"
                );
            };
            let ends_unit = grain.first(slot + 1) % UNIT_GRANULES == 0;
            self.journal.stage(StagedChange {
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
                more: !ends_unit && slot + 1 < slots.end,
            });
        }
    }

    /// One of its places is published.
    pub(in crate::engine) fn bypass_published(&mut self, op: usize) {
        let Some(Op::Bypass(bypass)) = self.ops.get_mut(op) else {
            return invariant!(
                self,
                "a place of write {op} is published, but it is not there"
            );
        };
        bypass.pending -= 1;
        if bypass.pending > 0 {
            return;
        }
        let Some(Op::Bypass(bypass)) = self.ops.try_remove(op) else {
            return invariant!(self, "write {op} has ended twice");
        };
        for key in bypass.keys() {
            self.reserving().unreserve_if_homed(key);
            self.unlock(key);
        }
        self.write_part_done(bypass.parent);
    }
}
