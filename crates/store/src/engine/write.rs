//! A write's way in. Whole slots go to fresh space past the ring; the rest goes into the ring.

use ashlar_block::{Durability, ErrorKind, IoError, Request};

use super::append::{Staged, StagedChange, Then};
use super::class::Class;
use super::locks::SlotKey;
use super::map::Change;
use super::space::{location, segment_and_slot, slot_at};
use super::{Engine, Op, Owner, Waiter};
use crate::Canary;
use crate::format::ChunkCopy;
use crate::sizes::{GRANULE, SLOT_BYTES, SLOT_GRANULES};

/// Slots of a class that only destage may take, so that it never meets a full pool.
pub(super) const DESTAGE_SLOTS: u64 = 4;
/// How full the map log may be for changes that can wait: the rest is destage's.
pub(super) const MAP_LIMIT: f64 = 0.8;

/// Writes behind the first of the queue whose leaves are loaded together with its own.
const AHEAD: usize = 64;

/// A host's write.
pub(super) struct WriteOp {
    pub(super) volume: u32,
    pub(super) serial: u64,
    request: Request,
    /// Parts that are not published yet.
    parts: usize,
    /// A part found no drive to be written to.
    failed: bool,
    /// Its leaves are pinned: it waits for some of them, or is on its way.
    pinned: bool,
}

/// A slot's worth of a write, past the ring.
pub(super) struct BypassOp {
    parent: usize,
    pub(super) key: SlotKey,
    offset: usize,
    new: u32,
    pending: usize,
}

impl WriteOp {
    /// Its first granule.
    fn first(&self) -> u64 {
        self.request.range.start.0
    }

    /// The granule behind its last.
    fn end(&self) -> u64 {
        self.first() + u64::from(self.request.range.count)
    }

    /// Most slots that it may need.
    pub(super) fn slots(&self) -> u64 {
        let range = self.request.range;
        let end = range.start.0 + u64::from(range.count);
        end.div_ceil(SLOT_GRANULES) - range.start.0 / SLOT_GRANULES
    }

    pub(super) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let buffer = self.request.buffer.as_deref().unwrap_or(&[]);
        &buffer[offset..offset + len]
    }
}

/// Granules of one slot that a request covers.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) slot: u64,
    pub(super) first: u64,
    pub(super) granules: u16,
}

impl Piece {
    fn is_whole(&self) -> bool {
        u64::from(self.granules) == SLOT_GRANULES
    }
}

/// A range of granules, slot by slot.
pub(super) fn pieces(first: u64, end: u64) -> impl Iterator<Item = Piece> {
    let slots = first / SLOT_GRANULES..end.div_ceil(SLOT_GRANULES);
    slots.map(move |slot| {
        let from = first.max(slot * SLOT_GRANULES);
        let to = end.min((slot + 1) * SLOT_GRANULES);
        Piece {
            slot,
            first: from,
            granules: (to - from) as u16,
        }
    })
}

/// What becomes of the write at the front of the queue.
enum Verdict {
    Go {
        bypass: bool,
    },
    Wait,
    Load,
    NoSpace,
    /// A copy is missing, and the volume is set to stop then.
    Stopped,
    /// The volume was deleted, or made smaller, since it came.
    OutOfRange,
}

impl Engine {
    pub(super) fn begin_write(&mut self, volume: u32, request: Request) {
        let serial = self.next_serial();
        let op = self.ops.insert(Op::Write(WriteOp {
            volume,
            serial,
            request,
            parts: 0,
            failed: false,
            pinned: false,
        }));
        self.admission.push_back(op);
    }

    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Lets in what may come in, in order.
    pub(super) fn admit(&mut self) {
        while let Some(&op) = self.admission.front() {
            let Some(Op::Write(write)) = self.ops.get(op) else {
                self.admission.pop_front();
                continue;
            };
            let range = write.request.range;
            let (volume, first) = (write.volume, range.start.0);
            let end = first + u64::from(range.count);
            match self.judge(volume, first, end) {
                Verdict::Wait => return,
                Verdict::Load => return self.load_for_waiting(),
                Verdict::NoSpace => {
                    self.admission.pop_front();
                    let why = format!("volume {volume}: the pool is full");
                    self.end_write(op, Err(IoError::new(ErrorKind::NoSpace, why)));
                }
                Verdict::Stopped => {
                    self.admission.pop_front();
                    let why = self.stop_error(volume);
                    self.end_write(op, why.map_or(Ok(()), Err));
                }
                Verdict::OutOfRange => {
                    self.admission.pop_front();
                    let why = format!("volume {volume} was deleted or made smaller");
                    self.end_write(op, Err(IoError::new(ErrorKind::OutOfRange, why)));
                }
                Verdict::Go { bypass } => {
                    self.admission.pop_front();
                    self.start_write(op, bypass);
                }
            }
        }
    }

    /// Loads what the next writes in the queue will need, so that they do not wait one after another.
    /// What is here of it stays until they are done.
    fn load_for_waiting(&mut self) {
        let ahead: Vec<usize> = self.admission.iter().take(AHEAD).copied().collect();
        for op in ahead {
            let Some(Op::Write(write)) = self.ops.get_mut(op) else {
                continue;
            };
            if std::mem::replace(&mut write.pinned, true) {
                continue;
            }
            let (volume, first, end) = (write.volume, write.first(), write.end());
            self.pin(volume, first, end);
            for page in self.missing_leaves(volume, first, end) {
                self.load(page, Waiter::Admission);
            }
        }
    }

    /// Lets a write's leaves go.
    fn unpin_write(&mut self, op: usize) {
        if let Some(Op::Write(write)) = self.ops.get_mut(op)
            && std::mem::take(&mut write.pinned)
        {
            let (volume, first, end) = (write.volume, write.first(), write.end());
            self.unpin(volume, first, end);
        }
    }

    fn judge(&mut self, volume: u32, first: u64, end: u64) -> Verdict {
        if self
            .geometry(volume)
            .is_none_or(|geometry| geometry.blocks < end)
        {
            return Verdict::OutOfRange;
        }
        if self.stopped.contains(&volume) {
            return Verdict::Stopped;
        }
        let class = self.class_of(volume);
        let (mut fresh, mut whole) = (0, 0);
        for piece in pieces(first, end) {
            let key = SlotKey {
                volume,
                slot: piece.slot,
            };
            match self.map.location(volume, piece.slot) {
                None => return Verdict::Load,
                Some(_) if piece.is_whole() => whole += 1,
                Some(0) if !self.reserved.contains_key(&key) => fresh += 1,
                Some(_) => {}
            }
        }
        let room = self.spare_slots(class);
        if fresh + whole <= room {
            // A map log that is filling up is destage's until a checkpoint has emptied it.
            if whole > 0 && (self.map_log.log.fill() > MAP_LIMIT || self.is_short_of_memory()) {
                return Verdict::Wait;
            }
            return Verdict::Go { bypass: true };
        }
        if self.more_slots_may_come(class) {
            return Verdict::Wait;
        }
        // No room to write whole slots elsewhere: what has a home can still go through the ring.
        let unhomed = pieces(first, end).filter(|piece| {
            let key = SlotKey {
                volume,
                slot: piece.slot,
            };
            self.map.location(volume, piece.slot) == Some(0) && !self.reserved.contains_key(&key)
        });
        if unhomed.count() as u64 <= room {
            Verdict::Go { bypass: false }
        } else {
            Verdict::NoSpace
        }
    }

    /// Copies of whole slots wait for their turn once half of the memory is on its way to drives.
    fn is_short_of_memory(&self) -> bool {
        // What is remembered of the ring goes when memory is needed.
        let busy = self
            .buffers
            .outstanding_bytes()
            .saturating_sub(self.recent_bytes);
        busy > self.buffer_bytes / 2
    }

    /// Free slots that nobody counts on.
    pub(super) fn spare_slots(&self, class: Class) -> u64 {
        let free = self.homes.get(&class).map_or(0, |segments| segments.free());
        let reserved = self.reserved_count.get(&class).copied().unwrap_or(0);
        free.saturating_sub(reserved + DESTAGE_SLOTS)
    }

    /// Slots that those who count on them do not find yet.
    pub(super) fn owed_slots(&self, class: Class) -> u64 {
        let free = self.homes.get(&class).map_or(0, |segments| segments.free());
        let reserved = self.reserved_count.get(&class).copied().unwrap_or(0);
        (reserved + DESTAGE_SLOTS).saturating_sub(free)
    }

    fn start_write(&mut self, op: usize, bypass: bool) {
        let Some(Op::Write(write)) = self.ops.get_mut(op) else {
            return;
        };
        let (volume, range) = (write.volume, write.request.range);
        let first = range.start.0;
        let parts: Vec<Piece> = pieces(first, first + u64::from(range.count)).collect();
        write.parts = parts.len();
        if !std::mem::replace(&mut write.pinned, true) {
            self.pin(volume, first, first + u64::from(range.count));
        }
        for piece in parts {
            let offset = (piece.first - first) as usize * GRANULE;
            let key = SlotKey {
                volume,
                slot: piece.slot,
            };
            if bypass && piece.is_whole() {
                self.begin_bypass(op, key, offset);
                continue;
            }
            if self.map.location(volume, piece.slot) == Some(0) {
                self.reserve(key);
            }
            self.staged.push_back(Staged {
                op,
                volume,
                first: piece.first,
                granules: piece.granules,
                offset,
            });
        }
    }

    /// Counts on a free slot for ring records that have no home yet.
    pub(super) fn reserve(&mut self, key: SlotKey) {
        let class = self.class_of(key.volume);
        if self.reserved.insert(key, class).is_none() {
            *self.reserved_count.entry(class).or_default() += 1;
        }
    }

    /// The slot has a home, or needs none any more.
    pub(super) fn unreserve(&mut self, key: SlotKey) {
        if let Some(class) = self.reserved.remove(&key)
            && let Some(count) = self.reserved_count.get_mut(&class)
        {
            *count -= 1;
        }
    }

    fn begin_bypass(&mut self, parent: usize, key: SlotKey, offset: usize) {
        let class = self.class_of(key.volume);
        let Some((segment, slot)) = self.take_slot(class) else {
            return self.fail("a counted slot was not there".into());
        };
        self.counters.bypassed += 1;
        let op = self.ops.insert(Op::Bypass(BypassOp {
            parent,
            key,
            offset,
            new: location(segment, slot),
            pending: 0,
        }));
        // The lock is for the order of changes; the data may go ahead, nobody else knows its place.
        self.write_bypass(op);
    }

    /// Whether a slot's present home is free once a write past the ring is through.
    pub(super) fn supersedes(&self, bypass: &BypassOp) -> bool {
        let home = self.map.location(bypass.key.volume, bypass.key.slot);
        home.is_some_and(|home| home != 0)
    }

    /// A free slot, on as many drives as it should be if there is such a one.
    pub(super) fn take_slot(&mut self, class: Class) -> Option<(u32, u32)> {
        let stays = self.usable();
        let staying = |copy: &&ChunkCopy| stays.get(usize::from(copy.drive)) == Some(&true);
        let wanted = class.columns();
        let good = |columns: &[ChunkCopy]| columns.iter().filter(staying).count() >= wanted;
        self.homes.get_mut(&class)?.take_preferring(good)
    }

    fn write_bypass(&mut self, op: usize) {
        let Some(Op::Bypass(bypass)) = self.ops.get(op) else {
            return;
        };
        let (parent, offset, (segment, slot)) =
            (bypass.parent, bypass.offset, segment_and_slot(bypass.new));
        if !self.is_readable(segment) {
            return self.bypass_lost(op);
        }
        if let Class::Parity(..) = self.class_of(bypass.key.volume) {
            return self.cut_bypass(op);
        }
        let columns = self.written_columns(segment);
        for &copy in &columns {
            let drive = usize::from(copy.drive);
            let Some(mut buffer) = self.buffer(SLOT_BYTES as usize) else {
                return;
            };
            if let Some(Op::Write(write)) = self.ops.get(parent) {
                buffer.copy_from_slice(write.bytes(offset, SLOT_BYTES as usize));
            }
            let range = self.range(drive, slot_at(&self.sizes, copy, slot), buffer.len());
            self.send(drive, Owner::Bypass { op }, |tag| {
                Request::write(tag, range, buffer, Durability::Durable)
            });
        }
        if let Some(Op::Bypass(bypass)) = self.ops.get_mut(op) {
            bypass.pending = columns.len();
        }
    }

    fn cut_bypass(&mut self, op: usize) {
        let Some(Op::Bypass(bypass)) = self.ops.get(op) else {
            return;
        };
        let (parent, offset) = (bypass.parent, bypass.offset);
        let place = segment_and_slot(bypass.new);
        let Some(Op::Write(write)) = self.ops.get_mut(parent) else {
            return;
        };
        // Lent for as long as the strips are cut from it.
        let buffer = write.request.buffer.take();
        let bytes = buffer.as_deref().unwrap_or(&[]);
        let bytes = &bytes[offset..offset + SLOT_BYTES as usize];
        let owner = Owner::Bypass { op };
        let pending = self.write_strips(place, bytes, Durability::Durable, owner);
        if let Some(Op::Write(write)) = self.ops.get_mut(parent) {
            write.request.buffer = buffer;
        }
        if let Some(Op::Bypass(bypass)) = self.ops.get_mut(op) {
            bypass.pending = pending;
        }
    }

    pub(super) fn bypass_written(&mut self, op: usize, drive: usize, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.drive_failed(drive, &error);
        }
        let Some(Op::Bypass(bypass)) = self.ops.get_mut(op) else {
            return;
        };
        bypass.pending -= 1;
        if bypass.pending > 0 {
            return;
        }
        let (key, segment) = (bypass.key, segment_and_slot(bypass.new).0);
        if !self.is_readable(segment) {
            return self.bypass_lost(op);
        }
        let reckless = self.cage.sings(Canary::BypassWithoutLock);
        if reckless || self.locks.lock_or_wait(key, Waiter::Bypass(op)) {
            self.place_bypass(op);
        }
    }

    /// The drives under a slot have gone before the data was on them.
    fn bypass_lost(&mut self, op: usize) {
        if let Some(Op::Bypass(bypass)) = self.ops.try_remove(op) {
            if let Some(Op::Write(write)) = self.ops.get_mut(bypass.parent) {
                write.failed = true;
            }
            self.write_part_done(bypass.parent);
        }
    }

    /// The data is durable and the slot is ours: journal its place.
    pub(super) fn place_bypass(&mut self, op: usize) {
        let Some(Op::Bypass(bypass)) = self.ops.get(op) else {
            return;
        };
        let (key, new) = (bypass.key, bypass.new);
        let mut crcs = [0; SLOT_GRANULES as usize];
        if let Some(Op::Write(write)) = self.ops.get(bypass.parent) {
            let bytes = write.bytes(bypass.offset, SLOT_BYTES as usize);
            for (crc, granule) in crcs.iter_mut().zip(bytes.chunks(GRANULE)) {
                *crc = self.label.salt.crc(granule);
            }
        }
        let old = self.map.location(key.volume, key.slot).unwrap_or(0);
        self.staged_changes.push_back(StagedChange {
            change: Change::Place {
                moved: false,
                volume: key.volume,
                first: key.slot * SLOT_GRANULES,
                granules: SLOT_GRANULES as u16,
                new,
                old,
                crcs,
            },
            then: Then::Bypass(op),
        });
    }

    pub(super) fn bypass_published(&mut self, op: usize) {
        let Some(Op::Bypass(bypass)) = self.ops.try_remove(op) else {
            return;
        };
        self.unreserve_if_homed(bypass.key);
        self.unlock(bypass.key);
        self.write_part_done(bypass.parent);
    }

    /// Drops a reservation that a home has made needless.
    pub(super) fn unreserve_if_homed(&mut self, key: SlotKey) {
        if self
            .map
            .location(key.volume, key.slot)
            .is_some_and(|location| location != 0)
        {
            self.unreserve(key);
        }
    }

    pub(super) fn write_part_done(&mut self, op: usize) {
        let Some(Op::Write(write)) = self.ops.get_mut(op) else {
            return;
        };
        write.parts -= 1;
        if write.parts > 0 {
            return;
        }
        let result = if write.failed {
            let why = format!("volume {}: no drive is left for a slot", write.volume);
            Err(IoError::new(ErrorKind::Media, why))
        } else {
            Ok(())
        };
        self.end_write(op, result);
    }

    fn end_write(&mut self, op: usize, result: Result<(), IoError>) {
        self.unpin_write(op);
        if let Some(Op::Write(write)) = self.ops.try_remove(op) {
            self.out.done.push(write.request.complete(result));
        }
    }

    /// Gives a slot's lock up; who waited for it goes on.
    pub(super) fn unlock(&mut self, key: SlotKey) {
        match self.locks.unlock(key) {
            Some(Waiter::Bypass(op)) => self.place_bypass(op),
            Some(Waiter::ClearSlot(op, slot)) => self.clear_slot(op, slot),
            Some(Waiter::Walk) => self.walk_slot(key),
            _ => {}
        }
    }

    /// Fails what waits to come in: the engine has stopped.
    pub(super) fn fail_waiting(&mut self) {
        let why = self.failed.clone().unwrap_or_default();
        self.admission.clear();
        self.fail_clears(&why);
        self.fail_raw(&why);
        self.fail_raise(&why);
        let writes = self.ops.iter().filter(|(_, op)| matches!(op, Op::Write(_)));
        for op in writes.map(|(op, _)| op).collect::<Vec<_>>() {
            self.end_write(op, Err(IoError::new(ErrorKind::Latched, why.clone())));
        }
        for (_, waiters) in std::mem::take(&mut self.loading) {
            for waiter in waiters {
                if let Waiter::Read(op) = waiter {
                    self.fail_read(op);
                }
            }
        }
        let mut waiting = std::mem::take(&mut self.settling);
        waiting.append(&mut self.rebuild.scrubs);
        waiting.append(&mut self.roots.waiting);
        for id in waiting {
            let error = IoError::new(ErrorKind::Latched, why.clone());
            self.out.managed.push((id, Err(error)));
        }
    }
}
