//! Deallocate and write zeroes: both make granules read as zeroes, by a record in the map log, and
//! give slots back that are wholly so. Deleting and shrinking a volume are clears that no host waits for.

use std::collections::VecDeque;
use std::ops::Range;

use ashlar_block::{ErrorKind, IoError, Request};
use slab::Slab;

use super::Waiter;
use super::access::Access;
use super::access::locks::SlotKey;
use super::base::Base;
use super::destage::Destage;
use super::invariant::invariant;
use super::journal::logs::Logs;
use super::journal::{Journal, StagedChange, Then};
use super::map::{Change, LeafView, Map, leaf_id};
use super::reservations::reserving::Reserving;
use super::space::Space;
use super::volumes::VolumeTable;
use super::write::{Piece, Writes};
use crate::ReplicaTag;
use crate::format::{PageId, VolumeEntry, VolumeState};
use crate::ring::GranuleKey;
use crate::sizes::LEAF_GRANULES;

/// Units of one clear whose slots are worked on at a time.
const UNITS: usize = 32;
/// Leaves that a clear looks at in one turn.
const LEAVES: usize = 1024;

/// Clears that are under way.
#[derive(Default)]
pub(super) struct Clears {
    ops: Slab<ClearOp>,
    /// The same in the order in which they came.
    order: Vec<usize>,
    /// What follows from their steps for others.
    next: VecDeque<Next>,
}

/// What is to be done next for a clear.
pub(super) enum Next {
    /// A page of the map is wanted.
    Load { page: PageId, op: usize },
    /// A slot is locked no more.
    Unlock(SlotKey),
    /// Nothing of a volume is left.
    Gone { volume: u32 },
}

/// A clear that is to begin.
pub(super) struct Clear {
    volume: u32,
    /// Whose it is; none for a volume that is deleted or shrunk.
    request: Option<Request>,
    tag: Option<ReplicaTag>,
    granules: Range<u64>,
}

impl Clear {
    pub(super) fn of_host(volume: u32, request: Request, tag: Option<ReplicaTag>) -> Self {
        let first = request.range.start.0;
        let granules = first..first + u64::from(request.range.count);
        Self {
            volume,
            request: Some(request),
            tag,
            granules,
        }
    }

    /// Of what no host can reach any more.
    pub(super) fn behind(volume: u32, granules: Range<u64>) -> Self {
        Self {
            volume,
            request: None,
            tag: None,
            granules,
        }
    }
}

/// What the steps of clears may use.
pub(super) struct Around<'a> {
    pub(super) base: &'a mut Base,
    pub(super) space: &'a mut Space,
    pub(super) volumes: &'a VolumeTable,
    pub(super) journal: &'a mut Journal,
    pub(super) logs: &'a Logs,
    pub(super) map: &'a mut Map,
    pub(super) access: &'a mut Access,
    pub(super) destage: &'a Destage,
    pub(super) writes: &'a Writes,
}

/// A range on its way to reading as zeroes.
struct ClearOp {
    volume: u32,
    serial: u64,
    tag: Option<ReplicaTag>,
    request: Option<Request>,
    start: u64,
    /// Next granule to look at, and the end.
    cursor: u64,
    end: u64,
    /// Slots that are waited for.
    outstanding: usize,
    /// A leaf is being loaded.
    loading: bool,
}

impl Clears {
    /// A clear comes; commands that came before have smaller serial numbers.
    pub(super) fn begin(&mut self, serial: u64, clear: Clear) {
        let op = self.ops.insert(ClearOp {
            volume: clear.volume,
            serial,
            tag: clear.tag,
            request: clear.request,
            start: clear.granules.start,
            cursor: clear.granules.start,
            end: clear.granules.end,
            outstanding: 0,
            loading: false,
        });
        self.order.push(op);
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// What is to be done next.
    pub(super) fn take_next(&mut self) -> Option<Next> {
        self.next.pop_front()
    }

    /// What makes a clear a record of a replicated volume.
    pub(super) fn tag(&self, op: usize) -> Option<ReplicaTag> {
        self.ops.get(op)?.tag
    }

    /// Whether what lies behind a volume's end is being cleared.
    pub(super) fn are_behind(&self, volume: u32) -> bool {
        let mut clears = self.ops.iter();
        clears.any(|(_, clear)| clear.volume == volume && clear.request.is_none())
    }

    /// Whether a clear of such a volume is under way that waits for no command that came before it.
    pub(super) fn may_begin_any(&self, writes: &Writes, is_of: impl Fn(u32) -> bool) -> bool {
        let mut clears = self.ops.iter();
        clears.any(|(_, clear)| is_of(clear.volume) && self.may_begin(clear, writes))
    }

    /// Whether a clear behind a volume's end may begin: commands that came before it are through.
    fn may_begin(&self, clear: &ClearOp, writes: &Writes) -> bool {
        if clear.request.is_some() {
            return true;
        }
        let older = |old: &ClearOp| old.volume == clear.volume && old.serial < clear.serial;
        !writes.has_older(clear.volume, clear.serial) && !self.ops.iter().any(|(_, old)| older(old))
    }

    pub(super) fn advance(&mut self, around: &mut Around<'_>) {
        for op in self.order.clone() {
            self.advance_one(op, around);
        }
    }

    fn advance_one(&mut self, op: usize, around: &mut Around<'_>) {
        let clear = self.ops.get(op);
        if !clear.is_some_and(|clear| self.may_begin(clear, around.writes)) {
            return;
        }
        let mut leaves = 0;
        while let Some(clear) = self.ops.get(op) {
            let full = around.logs.is_map_busy();
            let most = UNITS * around.map.grain(clear.volume).a_unit();
            if clear.loading || clear.outstanding >= most || clear.cursor >= clear.end || full {
                break;
            }
            leaves += 1;
            if !self.clear_next(op, around) {
                break;
            }
            if leaves > LEAVES {
                around.base.again = true;
                break;
            }
        }
        self.end_if_done(op, around);
    }

    /// Looks at the next slot or skips a leaf of nothing; false when it must wait.
    fn clear_next(&mut self, op: usize, around: &mut Around<'_>) -> bool {
        let Some(clear) = self.ops.get_mut(op) else {
            return false;
        };
        let (volume, cursor, end) = (clear.volume, clear.cursor, clear.end);
        let leaf = cursor / LEAF_GRANULES;
        let leaf_end = ((leaf + 1) * LEAF_GRANULES).min(end);
        let grain = around.map.grain(volume);
        let slot = grain.slot_of(cursor);
        let (key, slot_end) = (SlotKey { volume, slot }, grain.first(slot + 1).min(end));
        match around.map.leaf(volume, leaf) {
            LeafView::OnDisk => {
                clear.loading = true;
                let page = leaf_id(volume, leaf);
                self.next.push_back(Next::Load { page, op });
                return false;
            }
            LeafView::Absent if !around.holds_records(volume, cursor, leaf_end) => {
                clear.cursor = leaf_end;
            }
            LeafView::Loaded(_) if around.is_empty_slot(key) => clear.cursor = slot_end,
            _ => {
                clear.cursor = slot_end;
                clear.outstanding += 1;
                around.map.pin_slot(key);
                let waiter = Waiter::ClearSlot(op, slot);
                if around.access.lock_or_wait(key, waiter) {
                    self.slot_locked(op, slot, around);
                }
            }
        }
        true
    }

    /// A page is here that a clear has waited for.
    pub(super) fn page_is_here(&mut self, op: usize) {
        if let Some(clear) = self.ops.get_mut(op) {
            clear.loading = false;
        }
    }

    /// The granules of a slot that a clear covers.
    fn piece(&self, op: usize, slot: u64, map: &Map) -> Option<(u32, Piece)> {
        let clear = self.ops.get(op)?;
        let slot = map.grain(clear.volume).range(slot);
        let (first, end) = (slot.start.max(clear.start), slot.end.min(clear.end));
        let granules = end.checked_sub(first)? as u16;
        Some((clear.volume, Piece { first, granules }))
    }

    /// The slot is locked: journal that these granules of it are zero.
    pub(super) fn slot_locked(&mut self, op: usize, slot: u64, around: &mut Around<'_>) {
        let Some((volume, piece)) = self.piece(op, slot, around.map) else {
            return invariant!(
                around.base,
                "clear {op} has a slot locked, but is not there"
            );
        };
        let home = around.map.location(volume, slot).unwrap_or(0);
        let cleared = piece.range();
        let recorded = |granule: u64| around.logs.has(GranuleKey { volume, granule });
        let grain = around.map.grain(volume);
        let stays = |granule: &u64| {
            let known = around.map.granule(volume, *granule);
            let mapped = known.is_some_and(|(_, crc)| crc != 0);
            !cleared.contains(granule) && (mapped || recorded(*granule))
        };
        // A write that was let in counts on the home, as long as it is not in the index.
        let key = SlotKey { volume, slot };
        let frees = home != 0
            && !grain.range(slot).any(|granule| stays(&granule))
            && !around.journal.has_pieces_of(grain, key);
        if frees {
            around.space.reservations.home_goes(key);
        }
        let change = Change::Clear {
            volume,
            first: piece.first,
            granules: piece.granules,
            old: if frees { home } else { 0 },
        };
        around.journal.stage(StagedChange {
            change,
            then: Then::Clear(op, slot),
            more: false,
        });
    }

    /// A slot's granules read as zeroes.
    pub(super) fn published(&mut self, op: usize, slot: u64, around: &mut Around<'_>) {
        let Some(clear) = self.ops.get_mut(op) else {
            return invariant!(
                around.base,
                "a slot of clear {op} is published, but it is not there"
            );
        };
        clear.outstanding -= 1;
        let volume = clear.volume;
        let key = SlotKey { volume, slot };
        let destage = around.destage;
        let mut reserving = around.reserving();
        reserving.home_went(key);
        reserving.check(key, destage);
        self.next.push_back(Next::Unlock(key));
        around.map.unpin_slot(key);
        self.end_if_done(op, around);
    }

    fn end_if_done(&mut self, op: usize, around: &mut Around<'_>) {
        let is_done =
            |clear: &ClearOp| clear.cursor >= clear.end && clear.outstanding == 0 && !clear.loading;
        if !self.ops.get(op).is_some_and(is_done) {
            return;
        }
        self.order.retain(|&other| other != op);
        let clear = self.ops.remove(op);
        match clear.request {
            Some(request) => around.base.complete(request, Ok(())),
            // One of what was behind a volume's end does not say so: it may end when the deletion has only been
            // asked for.
            None if clear.start == 0 => {
                let volume = clear.volume;
                self.next.push_back(Next::Gone { volume });
            }
            None => {}
        }
    }

    /// The engine has stopped: hosts are told.
    pub(super) fn fail(&mut self, why: &str, base: &mut Base) {
        for op in std::mem::take(&mut self.order) {
            if let Some(clear) = self.ops.try_remove(op)
                && let Some(request) = clear.request
            {
                let error = IoError::new(ErrorKind::Latched, why.to_owned());
                base.complete(request, Err(error));
            }
        }
    }
}

impl Around<'_> {
    fn reserving(&mut self) -> Reserving<'_> {
        Reserving {
            base: self.base,
            space: self.space,
            volumes: self.volumes,
            journal: self.journal,
            logs: self.logs,
            map: self.map,
        }
    }

    /// Whether a slot has neither a home nor records that wait for one, and nothing of it is lost.
    fn is_empty_slot(&self, key: SlotKey) -> bool {
        let home = self.map.location(key.volume, key.slot);
        let waits = self.space.reservations.has(key) || self.access.is_locked(key);
        home == Some(0) && !waits && self.map.lost_in(key) == 0
    }

    /// Whether ring records may wait for homes in a range without leaves. Slots without homes are
    /// reserved, or destage has just taken one for them, so this needs no look at each granule.
    fn holds_records(&self, volume: u32, first: u64, end: u64) -> bool {
        let slots = self.map.grain(volume).slots_of(first..end);
        let key = |slot| SlotKey { volume, slot };
        let (from, to) = (key(slots.start), key(slots.end));
        self.space.reservations.has_any_in(from..to) || self.destage.has_any_of(from..to)
    }
}

/// Where an import looks for what a crash has interrupted.
pub(super) struct Found<'a> {
    pub(super) volumes: &'a VolumeTable,
    pub(super) space: &'a Space,
    pub(super) map: &'a Map,
}

impl Found<'_> {
    /// Deletions, then shrinking: nothing may lie behind a volume's end, or it would be there again when the volume
    /// grows.
    pub(super) fn interrupted(&self) -> Vec<Clear> {
        let of = |state| {
            let volumes = self.volumes.iter();
            volumes.filter(move |(_, entry)| entry.state == state)
        };
        let deleting =
            of(VolumeState::Deleting).filter(|&(&volume, _)| !self.volumes.is_raw(volume));
        // It may have been made smaller just before.
        let whole = |(&volume, entry): (&u32, &VolumeEntry)| {
            Clear::behind(volume, 0..self.reach(volume).max(entry.granules))
        };
        let behind = |(&volume, entry): (&u32, &VolumeEntry)| {
            let granules = entry.granules..self.reach(volume);
            (!granules.is_empty()).then(|| Clear::behind(volume, granules))
        };
        let shrinking = of(VolumeState::Live).filter_map(behind);
        deleting.map(whole).chain(shrinking).collect()
    }

    /// Behind this granule nothing is of a volume, neither in the map nor in the ring.
    fn reach(&self, volume: u32) -> u64 {
        // What has no home yet has counted on one.
        let last = self.space.reservations.last_of(volume);
        let recorded = last.map_or(0, |key| self.map.granules_of(key).end);
        self.map.end(volume).max(recorded)
    }
}
