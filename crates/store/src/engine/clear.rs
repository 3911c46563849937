//! Deallocate and write zeroes: both make granules read as zeroes, by a record in the map log, and
//! give slots back that are wholly so. Deleting and shrinking a volume are clears that no host waits for.

use ashlar_block::{ErrorKind, IoError, Request};

use super::access::locks::SlotKey;
use super::invariant::invariant;
use super::journal::{StagedChange, Then};
use super::map::{Change, LeafView, leaf_id};
use super::write::Piece;
use super::{Engine, Op, Waiter};
use crate::ReplicaTag;
use crate::format::{VolumeEntry, VolumeState};
use crate::ring::GranuleKey;
use crate::sizes::LEAF_GRANULES;

/// Units of one clear whose slots are worked on at a time.
const UNITS: usize = 32;
/// Leaves that a clear looks at in one turn.
const LEAVES: usize = 1024;

/// A range on its way to reading as zeroes.
pub(super) struct ClearOp {
    pub(super) volume: u32,
    pub(super) serial: u64,
    pub(super) tag: Option<ReplicaTag>,
    /// Whose it is; none for a volume that is deleted or shrunk.
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

impl ClearOp {
    /// Whether it clears what lies behind a volume's end.
    pub(super) fn is_behind(&self) -> bool {
        self.request.is_none()
    }
}

impl Engine {
    pub(super) fn begin_clear(&mut self, volume: u32, request: Request) {
        let range = request.range;
        let first = range.start.0;
        let end = first + u64::from(range.count);
        self.insert_clear(volume, Some(request), first, end);
    }

    /// Clears what no host can reach any more.
    pub(super) fn clear_behind(&mut self, volume: u32, first: u64, end: u64) {
        self.insert_clear(volume, None, first, end);
    }

    fn insert_clear(&mut self, volume: u32, request: Option<Request>, first: u64, end: u64) {
        let serial = self.waiting.next_serial();
        let op = self.ops.insert(Op::Clear(ClearOp {
            volume,
            serial,
            tag: self.replicas.tag(),
            request,
            start: first,
            cursor: first,
            end,
            outstanding: 0,
            loading: false,
        }));
        self.waiting.push_clear(op);
    }

    pub(super) fn advance_clears(&mut self) {
        for op in self.waiting.clears().to_vec() {
            self.advance_clear(op);
        }
    }

    /// Whether a clear behind a volume's end may begin: commands that came before it are through.
    pub(super) fn may_begin(&self, op: usize) -> bool {
        let Some(Op::Clear(clear)) = self.ops.get(op) else {
            return false;
        };
        if clear.request.is_some() {
            return true;
        }
        !self.ops.iter().any(|(_, other)| match other {
            Op::Write(write) => write.volume == clear.volume && write.serial < clear.serial,
            Op::Clear(old) => old.volume == clear.volume && old.serial < clear.serial,
            _ => false,
        })
    }

    fn advance_clear(&mut self, op: usize) {
        if !self.may_begin(op) {
            return;
        }
        let mut leaves = 0;
        while let Some(Op::Clear(clear)) = self.ops.get(op) {
            let full = self.logs.is_map_busy();
            let most = UNITS * self.map.grain(clear.volume).a_unit();
            if clear.loading || clear.outstanding >= most || clear.cursor >= clear.end || full {
                break;
            }
            leaves += 1;
            if !self.clear_next(op) {
                break;
            }
            if leaves > LEAVES {
                self.base.again = true;
                break;
            }
        }
        self.end_clear_if_done(op);
    }

    /// Looks at the next slot or skips a leaf of nothing; false when it must wait.
    fn clear_next(&mut self, op: usize) -> bool {
        let Some(Op::Clear(clear)) = self.ops.get(op) else {
            return false;
        };
        let (volume, cursor, end) = (clear.volume, clear.cursor, clear.end);
        let leaf = cursor / LEAF_GRANULES;
        let leaf_end = ((leaf + 1) * LEAF_GRANULES).min(end);
        let grain = self.map.grain(volume);
        let slot = grain.slot_of(cursor);
        let (key, slot_end) = (SlotKey { volume, slot }, grain.first(slot + 1).min(end));
        let next = match self.map.leaf(volume, leaf) {
            LeafView::OnDisk => {
                if let Some(Op::Clear(clear)) = self.ops.get_mut(op) {
                    clear.loading = true;
                }
                self.load(leaf_id(volume, leaf), Waiter::ClearPage(op));
                return false;
            }
            LeafView::Absent if !self.holds_records(volume, cursor, leaf_end) => leaf_end,
            LeafView::Loaded(_) if self.is_empty_slot(key) => slot_end,
            _ => {
                if let Some(Op::Clear(clear)) = self.ops.get_mut(op) {
                    clear.outstanding += 1;
                }
                self.map.pin_slot(key);
                if self.access.lock_or_wait(key, Waiter::ClearSlot(op, slot)) {
                    self.clear_slot(op, slot);
                }
                slot_end
            }
        };
        if let Some(Op::Clear(clear)) = self.ops.get_mut(op) {
            clear.cursor = next;
        }
        true
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

    pub(super) fn clear_page_loaded(&mut self, op: usize) {
        if let Some(Op::Clear(clear)) = self.ops.get_mut(op) {
            clear.loading = false;
        }
    }

    fn clear_piece(&self, op: usize, slot: u64) -> Option<(u32, Piece)> {
        let Some(Op::Clear(clear)) = self.ops.get(op) else {
            return None;
        };
        let slot = self.map.grain(clear.volume).range(slot);
        let (first, end) = (slot.start.max(clear.start), slot.end.min(clear.end));
        let granules = end.checked_sub(first)? as u16;
        Some((clear.volume, Piece { first, granules }))
    }

    /// The slot is locked: journal that these granules of it are zero.
    pub(super) fn clear_slot(&mut self, op: usize, slot: u64) {
        let Some((volume, piece)) = self.clear_piece(op, slot) else {
            return invariant!(self, "clear {op} has a slot locked, but is not there");
        };
        let home = self.map.location(volume, slot).unwrap_or(0);
        let cleared = piece.range();
        let recorded = |granule: u64| self.logs.has(GranuleKey { volume, granule });
        let mut all = self.map.grain(volume).range(slot);
        let stays = |granule: &u64| {
            let mapped = self
                .map
                .granule(volume, *granule)
                .is_some_and(|(_, crc)| crc != 0);
            !cleared.contains(granule) && (mapped || recorded(*granule))
        };
        // A write that was let in counts on the home, as long as it is not in the index.
        let key = SlotKey { volume, slot };
        let frees = home != 0
            && !all.any(|granule| stays(&granule))
            && !self.journal.has_pieces_of(self.map.grain(volume), key);
        if frees {
            self.space.reservations.home_goes(key);
        }
        let change = Change::Clear {
            volume,
            first: piece.first,
            granules: piece.granules,
            old: if frees { home } else { 0 },
        };
        self.journal.stage(StagedChange {
            change,
            then: Then::Clear(op, slot),
            more: false,
        });
    }

    pub(super) fn clear_published(&mut self, op: usize, slot: u64) {
        let Some(Op::Clear(clear)) = self.ops.get_mut(op) else {
            return invariant!(
                self,
                "a slot of clear {op} is published, but it is not there"
            );
        };
        clear.outstanding -= 1;
        let volume = clear.volume;
        let key = SlotKey { volume, slot };
        self.reserving().home_went(key);
        self.check_reserved(key);
        self.unlock(key);
        self.map.unpin_slot(key);
        self.end_clear_if_done(op);
    }

    fn end_clear_if_done(&mut self, op: usize) {
        let Some(Op::Clear(clear)) = self.ops.get(op) else {
            return;
        };
        if clear.cursor < clear.end || clear.outstanding > 0 || clear.loading {
            return;
        }
        self.waiting.clear_is_over(op);
        let Some(Op::Clear(clear)) = self.ops.try_remove(op) else {
            return invariant!(self, "clear {op} has gone while it was looked at");
        };
        match clear.request {
            Some(request) => self.base.complete(request, Ok(())),
            None if clear.start == 0 => self.deleted(clear.volume),
            None => {}
        }
    }

    /// Nothing of a volume is left. A clear of what was behind its end does not say so: it may end
    /// when the deletion has only been asked for.
    fn deleted(&mut self, volume: u32) {
        let deleting = |entry: &VolumeEntry| entry.state == VolumeState::Deleting;
        if self.volumes.get(&volume).is_some_and(deleting) {
            self.set_volume_state(volume, VolumeState::Gone, None);
        }
    }

    /// Shrinking that a crash has interrupted: nothing may lie behind a volume's end, or it would be
    /// there again when the volume grows.
    pub(super) fn resume_shrinks(&mut self) {
        let live = self
            .volumes
            .iter()
            .filter(|(_, entry)| entry.state == VolumeState::Live);
        let found: Vec<(u32, u64)> = live.map(|(&n, entry)| (n, entry.granules)).collect();
        for (volume, granules) in found {
            let end = self.reach(volume);
            if end > granules {
                self.clear_behind(volume, granules, end);
            }
        }
    }

    /// Volumes whose deletion a crash has interrupted.
    pub(super) fn resume_deletions(&mut self) {
        let deleting = self.volumes.iter().filter(|(volume, entry)| {
            entry.state == VolumeState::Deleting && !self.volumes.is_raw(**volume)
        });
        let found: Vec<(u32, u64)> = deleting.map(|(&n, entry)| (n, entry.granules)).collect();
        for (volume, granules) in found {
            // It may have been made smaller just before.
            let end = self.reach(volume).max(granules);
            self.clear_behind(volume, 0, end);
        }
    }

    /// Behind this granule nothing is of a volume, neither in the map nor in the ring.
    fn reach(&self, volume: u32) -> u64 {
        // What has no home yet has counted on one.
        let last = self.space.reservations.last_of(volume);
        let recorded = last.map_or(0, |key| self.map.granules_of(key).end);
        self.map.end(volume).max(recorded)
    }

    /// The engine has stopped: hosts are told.
    pub(super) fn fail_clears(&mut self, why: &str) {
        for op in self.waiting.take_clears() {
            if let Some(Op::Clear(clear)) = self.ops.try_remove(op)
                && let Some(request) = clear.request
            {
                let error = IoError::new(ErrorKind::Latched, why.to_owned());
                self.base.complete(request, Err(error));
            }
        }
    }
}
