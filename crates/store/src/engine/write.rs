//! A write's way in, unit by unit of 64 KiB. Where it covers whole slots of a unit and nothing else, it
//! goes to fresh space past the ring; the rest goes into the ring. So whatever a write does in a
//! unit is in one record, or in records of one batch, and happens as a whole.

mod bypass;

use std::ops::Range;

use ashlar_block::{ErrorKind, IoError, Request};

use super::access::locks::SlotKey;
use super::invariant::invariant;
use super::journal::Staged;
use super::map::leaf_id;
use super::waiting::admission::Wanting;
use super::{Engine, Op, Waiter};
use crate::ReplicaTag;
use crate::format::{LogId, PageId};
use crate::sizes::{GRANULE, Grain, LEAF_GRANULES, UNIT_GRANULES};
pub(super) use bypass::BypassOp;

/// From so many writes under way on, and with the ring so full, small whole slots go past the ring.
const BUSY_WRITES: usize = 4;
const BUSY_RING: f64 = 0.5;

/// Writes behind the first of a volume whose leaves are loaded together with its own.
const AHEAD: usize = 64;

/// A host's write.
pub(super) struct WriteOp {
    pub(super) volume: u32,
    pub(super) serial: u64,
    pub(super) tag: Option<ReplicaTag>,
    request: Request,
    /// Parts that are not published yet.
    parts: usize,
    /// A part found no drive to be written to.
    failed: bool,
    /// Its leaves are pinned: it waits for some of them, or is on its way.
    pinned: bool,
    /// Leaves that were not there when it came, and that it counts on.
    held: Vec<PageId>,
}

impl WriteOp {
    /// What it is, in words.
    pub(super) fn describe(&self) -> String {
        let Self {
            volume, request, ..
        } = self;
        format!(
            "volume {volume} granules {}+{}",
            request.range.start.0, request.range.count
        )
    }

    /// Its first granule.
    fn first(&self) -> u64 {
        self.request.range.start.0
    }

    /// The granule behind its last.
    fn end(&self) -> u64 {
        self.first() + u64::from(self.request.range.count)
    }

    /// Most slots that it may need, if they have this grain.
    pub(super) fn slots(&self, grain: Grain) -> u64 {
        let slots = grain.slots_of(self.first()..self.end());
        slots.end - slots.start
    }

    pub(super) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let buffer = self.request.buffer.as_deref().unwrap_or(&[]);
        &buffer[offset..offset + len]
    }
}

/// Granules of one unit, or of one slot, that a request covers.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) first: u64,
    pub(super) granules: u16,
}

impl Piece {
    pub(super) fn range(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.granules)
    }
}

/// A range of granules, unit by unit.
fn pieces(range: Range<u64>) -> impl Iterator<Item = Piece> {
    let units = Grain::K64.slots_of(range.clone());
    units.map(move |unit| {
        let first = range.start.max(unit * UNIT_GRANULES);
        let end = range.end.min((unit + 1) * UNIT_GRANULES);
        Piece {
            first,
            granules: (end - first) as u16,
        }
    })
}

/// What becomes of a volume's first write that waits.
enum Verdict {
    Go {
        bypass: bool,
    },
    Wait,
    Load,
    NoSpace,
    /// A copy is missing, and the volume is set to stop then.
    Stopped(IoError),
    /// The volume was deleted, or made smaller, since it came.
    OutOfRange,
}

impl Engine {
    pub(super) fn begin_write(&mut self, volume: u32, request: Request) {
        let serial = self.waiting.next_serial();
        let op = self.ops.insert(Op::Write(WriteOp {
            volume,
            serial,
            tag: self.replicas.tag(),
            request,
            parts: 0,
            failed: false,
            pinned: false,
            held: Vec::new(),
        }));
        self.waiting.push_write(volume, serial, op);
    }

    /// Lets in what may come in: of each volume in order, and of all, who waits longest first.
    pub(super) fn admit(&mut self) {
        let mut wanting = Wanting::default();
        for volume in self.waiting.writes().volumes() {
            self.admit_volume(volume, &mut wanting);
        }
    }

    fn admit_volume(&mut self, volume: u32, wanting: &mut Wanting) {
        while let Some(op) = self.waiting.writes().front(volume) {
            let Some(Op::Write(write)) = self.ops.get(op) else {
                return invariant!(self, "write {op} waits, but is not there");
            };
            let (first, end) = (write.first(), write.end());
            match self.admission_check(volume, first..end, wanting) {
                Verdict::Wait => return,
                Verdict::Load => return self.load_for_waiting(volume),
                Verdict::NoSpace => {
                    self.waiting.pop_write(volume);
                    let media = self.class_of(volume).and_then(|class| class.media);
                    let why = format!("volume {volume}: {}", super::drives::media::full(media));
                    self.end_write(op, Err(IoError::new(ErrorKind::NoSpace, why)));
                }
                Verdict::Stopped(why) => {
                    self.waiting.pop_write(volume);
                    self.end_write(op, Err(why));
                }
                Verdict::OutOfRange => {
                    self.waiting.pop_write(volume);
                    let why = format!("volume {volume} was deleted or made smaller");
                    self.end_write(op, Err(IoError::new(ErrorKind::OutOfRange, why)));
                }
                Verdict::Go { bypass } => {
                    self.waiting.pop_write(volume);
                    self.start_write(op, bypass);
                }
            }
        }
    }

    /// Loads what the next writes in the queue will need, so that they do not wait one after another.
    /// What is here of it stays until they are done.
    fn load_for_waiting(&mut self, volume: u32) {
        for op in self.waiting.writes().first(volume, AHEAD) {
            let Some(Op::Write(write)) = self.ops.get_mut(op) else {
                continue;
            };
            if std::mem::replace(&mut write.pinned, true) {
                continue;
            }
            let (volume, first, end) = (write.volume, write.first(), write.end());
            self.map.pin(volume, first..end);
            for page in self.map.missing_leaves(volume, first..end) {
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
            self.map.unpin(volume, first..end);
        }
    }

    fn admission_check(
        &mut self,
        volume: u32,
        range: Range<u64>,
        wanting: &mut Wanting,
    ) -> Verdict {
        let (first, end) = (range.start, range.end);
        if self
            .geometry(volume)
            .is_none_or(|geometry| geometry.blocks < end)
        {
            return Verdict::OutOfRange;
        }
        if let Some(why) = self.volumes.stop_error(volume) {
            return Verdict::Stopped(why);
        }
        let Some(class) = self.class_of(volume) else {
            invariant!(self, "volume {volume} takes writes, but has no homes");
            return Verdict::Wait;
        };
        let bypass = !self.is_better_in_ring(end - first);
        let (mut fresh, mut whole) = (0, 0);
        for piece in pieces(first..end) {
            let slots = class.grain.slots_of(piece.range());
            // A unit is inside one leaf.
            if self.map.location(volume, slots.start).is_none() {
                return Verdict::Load;
            }
            match bypass && class.grain.divides(&piece.range()) {
                true => whole += slots.end - slots.start,
                false => fresh += self.without_homes(volume, slots),
            }
        }
        let leaves = first / LEAF_GRANULES..end.div_ceil(LEAF_GRANULES);
        let pages = self.map.pages_for(volume, leaves);
        // Who came earlier has the first claim on what is free.
        let behind = fresh + whole > 0 && wanting.slots.contains(&class);
        if behind || pages > 0 && wanting.places || whole > 0 && wanting.bypass {
            return Verdict::Wait;
        }
        let room = self.space.spare_slots(class);
        if fresh + whole <= room && !self.has_places_for(pages) {
            if !self.more_places_may_come() {
                return Verdict::NoSpace;
            }
            wanting.places = true;
            return Verdict::Wait;
        }
        if fresh + whole <= room {
            // A map log that is filling up is destage's until a checkpoint has emptied it.
            if whole > 0 && (self.logs.is_map_busy() || self.base.is_short_of_memory(&self.logs)) {
                wanting.bypass = true;
                return Verdict::Wait;
            }
            return Verdict::Go { bypass };
        }
        if self.more_slots_may_come(class) {
            wanting.slots.insert(class);
            return Verdict::Wait;
        }
        // No room to write whole slots elsewhere: what has a home can still go through the ring.
        if self.without_homes(volume, class.grain.slots_of(first..end)) <= room {
            Verdict::Go { bypass: false }
        } else {
            Verdict::NoSpace
        }
    }

    /// Whether a write of so many granules takes the ring although it may cover whole slots. Past the
    /// ring it takes two durable steps, one after the other, and fewer bytes. So a small one goes
    /// into a ring that takes it at once, as long as there are few of them.
    fn is_better_in_ring(&self, granules: u64) -> bool {
        let at_once =
            !self.logs.is_appending(LogId::Ring) && self.logs.fill(LogId::Ring) < BUSY_RING;
        granules < UNIT_GRANULES && at_once && self.waiting.writing() < BUSY_WRITES
    }

    /// How many of these slots have neither a home nor the reservation of one. Their leaves are here.
    fn without_homes(&self, volume: u32, slots: Range<u64>) -> u64 {
        let unhomed = slots.filter(|&slot| {
            let key = SlotKey { volume, slot };
            self.space.needs_home(&self.map, key) && !self.space.reservations.has(key)
        });
        unhomed.count() as u64
    }

    fn start_write(&mut self, op: usize, bypass: bool) {
        let Some(Op::Write(write)) = self.ops.get_mut(op) else {
            return invariant!(self, "write {op} was let in, but is not there");
        };
        let (volume, range) = (write.volume, write.first()..write.end());
        if !std::mem::replace(&mut write.pinned, true) {
            self.map.pin(volume, range.clone());
        }
        self.hold_leaves(op, volume, range.clone());
        self.slots_written(volume, range.clone());
        let grain = self.map.grain(volume);
        // Only at its ends can a write cover a part of a slot: what is whole is in one piece.
        let is_whole = |piece: &Piece| bypass && grain.divides(&piece.range());
        let (whole, rest): (Vec<Piece>, Vec<Piece>) = pieces(range.clone()).partition(is_whole);
        if let Some(Op::Write(write)) = self.ops.get_mut(op) {
            write.parts = rest.len() + usize::from(!whole.is_empty());
        }
        let offset = |first: u64| (first - range.start) as usize * GRANULE;
        for piece in rest {
            for slot in grain.slots_of(piece.range()) {
                let key = SlotKey { volume, slot };
                self.reserving().reserve_if_needed(key);
            }
            self.journal.stage_piece(Staged {
                op,
                volume,
                first: piece.first,
                granules: piece.granules,
                offset: offset(piece.first),
            });
        }
        if let (Some(first), Some(last)) = (whole.first(), whole.last()) {
            let slots = grain.slots_of(first.first..last.range().end);
            self.begin_bypass(op, volume, slots, offset(first.first));
        }
    }

    /// Counts on the leaves of a range of granules that are not there yet, until the write is done.
    fn hold_leaves(&mut self, op: usize, volume: u32, range: Range<u64>) {
        let leaves = range.start / LEAF_GRANULES..range.end.div_ceil(LEAF_GRANULES);
        let leaves = leaves.map(|leaf| leaf_id(volume, leaf));
        let held: Vec<PageId> = leaves.filter(|&leaf| !self.map.has_page(leaf)).collect();
        for &leaf in &held {
            self.map.hold(leaf);
        }
        if let Some(Op::Write(write)) = self.ops.get_mut(op) {
            write.held = held;
        }
    }

    pub(super) fn write_part_done(&mut self, op: usize) {
        let Some(Op::Write(write)) = self.ops.get_mut(op) else {
            return invariant!(self, "a part of write {op} is done, but it is not there");
        };
        let Some(left) = write.parts.checked_sub(1) else {
            return invariant!(self, "write {op} has more parts done than it has");
        };
        write.parts = left;
        if left > 0 {
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
            self.waiting.write_answered();
            for leaf in write.held {
                self.map.let_go(leaf);
            }
            self.base.complete(write.request, result);
        }
    }

    /// Gives a slot's lock up; who waited for it goes on.
    pub(super) fn unlock(&mut self, key: SlotKey) {
        match self.access.unlock(key) {
            Some(Waiter::Bypass(op)) => self.bypass_locked(op),
            Some(Waiter::ClearSlot(op, slot)) => self.clear_slot(op, slot),
            Some(Waiter::Walk) => self.walk_slot(key),
            Some(other) => invariant!(self, "{other:?} has waited for a slot's lock"),
            None => {}
        }
    }

    /// Fails what waits to come in: the engine has stopped.
    pub(super) fn fail_waiting(&mut self) {
        let why = self.base.failed.why().unwrap_or_default().to_owned();
        self.waiting.forget_writes();
        self.fail_clears(&why);
        let writes = self.ops.iter().filter(|(_, op)| matches!(op, Op::Write(_)));
        for op in writes.map(|(op, _)| op).collect::<Vec<_>>() {
            self.end_write(op, Err(IoError::new(ErrorKind::Latched, why.clone())));
        }
        for waiter in self.access.take_all_waiters() {
            if let Waiter::Read(op) = waiter {
                self.read_step(|reads, around| reads.fail_op(op, around));
            }
        }
        let mut waiting = self.raw.take_asked();
        waiting.append(&mut self.roots.add_log_copies.take_asked());
        waiting.append(&mut self.waiting.take_draining());
        waiting.append(&mut self.rebuild.take_asked());
        waiting.append(&mut self.roots.take_asked());
        waiting.append(&mut self.journal.take_asked());
        waiting.append(&mut self.replicas.take_asked());
        waiting.append(&mut self.space.upkeep.discards_mut().take_asked());
        waiting.append(&mut self.roots.features.take_asked());
        for id in waiting {
            let error = IoError::new(ErrorKind::Latched, why.clone());
            self.base.answer(id, Err(error));
        }
    }
}
