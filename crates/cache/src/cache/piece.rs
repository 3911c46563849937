//! A part of a host's read or write, inside one unit and under its lock.
//!
//! The order of a write that is cached, by what the page says of its granules:
//!
//! * not cached: data, then the page, then the answer. The other way round a crash would leave what was never
//!   written as the newest there is.
//! * cached and clean: the page, then data. The other way round a crash would leave data that the cache takes for
//!   what the backing device has, and drops.
//! * cached and newer: data, and nothing else.
//!
//! A write that goes around: first the page forgets what it had, all of it clean; then the backing device.

use std::ops::Range;

use ashlar_block::{Durability, IoBuffer, IoError, Operation, Request};

use super::{BLOCK, Cache, Defect, News, Op, Owner, Side};
use crate::layout::{GRANULE, Mode, PAGE, UNIT};
use crate::locks::Hold;
use crate::policy::Admission;

/// One piece.
pub(super) struct Piece {
    /// The request that it is a part of; none once that has its answer.
    whole: Option<usize>,
    first: u64,
    end: u64,
    is_read: bool,
    durability: Durability,
    is_stream: bool,
    hold: Hold,
    step: Step,
    pending: u8,
    fast: Option<IoBuffer>,
    backing: Option<IoBuffer>,
    error: Option<(Side, IoError)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Waiting,
    /// A read: both devices.
    Reading,
    /// A read that failed on the fast device, of which nothing is newer there.
    ReadingAgain,
    /// What was read is put on the fast device.
    Filling,
    /// What was clean is recorded as newer.
    Marking,
    Writing,
    /// What was written is recorded.
    Recording,
    /// What was cached is recorded as not so.
    Dropping,
    /// And deallocated.
    Deallocating,
    WritingAround,
}

impl Piece {
    fn granules(&self) -> Range<u64> {
        self.first..self.end
    }

    fn page(&self) -> u64 {
        self.first / PAGE
    }
}

impl Cache {
    pub(super) fn begin_piece(&mut self, whole: usize, granules: Range<u64>, is_stream: bool) {
        let op = self.wholes.get(whole).map(|whole| whole.op);
        let (is_read, durability) = match op {
            Some(Operation::Read) => (true, Durability::Cached),
            Some(Operation::Write(durability)) => (false, durability),
            _ => (false, Durability::Durable),
        };
        let all = granules.clone().all(|granule| self.is_present(granule));
        let hold = match is_read && (all || is_stream) {
            true => Hold::Shared,
            false => Hold::Alone,
        };
        let unit = granules.start / UNIT;
        let piece = Piece {
            whole: Some(whole),
            first: granules.start,
            end: granules.end,
            is_read,
            durability,
            is_stream,
            hold,
            step: Step::Waiting,
            pending: 0,
            fast: None,
            backing: None,
            error: None,
        };
        self.pieces += 1;
        let op = self.ops.insert(Op::Piece(piece));
        if self.locks.take(unit, op, hold) {
            self.granted.push(op);
        }
    }

    fn piece(&mut self, op: usize) -> Option<&mut Piece> {
        match self.ops.get_mut(op) {
            Some(Op::Piece(piece)) => Some(piece),
            _ => None,
        }
    }

    pub(super) fn piece_news(&mut self, op: usize, news: News) {
        let Some(piece) = self.piece(op) else {
            return;
        };
        if let News::Done(side, buffer, result) = news {
            piece.pending -= 1;
            match (side, result) {
                (side, Err(error)) => piece.error = Some((side, error)),
                (Side::Fast, Ok(())) => piece.fast = buffer,
                (Side::Backing, Ok(())) => piece.backing = buffer,
            }
            if piece.pending > 0 {
                return;
            }
        }
        let error = piece.error.take();
        match (piece.step, error) {
            (Step::Waiting, _) if piece.is_read => self.start_read(op),
            (Step::Waiting, _) => self.start_write(op),
            (Step::Reading | Step::ReadingAgain, error) => self.was_read(op, error),
            (Step::Filling, None) => self.was_filled(op),
            // What is on the fast device is not read: nothing says that it is there.
            (Step::Filling, Some(_)) => self.end_piece(op, Ok(())),
            (Step::Marking, _) => self.write_data(op),
            (Step::Writing, None) => self.was_written(op),
            (Step::Writing, Some((_, error))) => self.was_not_written(op, error),
            (Step::Recording, _) => self.was_recorded(op),
            (Step::Dropping, _) => self.deallocate(op),
            // Space that does not come back is not lost: the block is written again some time.
            (Step::Deallocating, _) => self.write_around(op),
            (Step::WritingAround, None) => self.was_written_around(op),
            (Step::WritingAround, Some((_, error))) => self.end_piece(op, Err(error)),
        }
    }

    fn step(&mut self, op: usize, step: Step, pending: u8) {
        if let Some(piece) = self.piece(op) {
            piece.step = step;
            piece.pending = pending;
        }
    }

    fn range_of(&mut self, op: usize) -> Range<u64> {
        self.piece(op).map_or(0..0, |piece| piece.granules())
    }

    fn start_read(&mut self, op: usize) {
        let range = self.range_of(op);
        for block in Self::blocks(range.start, range.end) {
            self.policy.touch(block);
        }
        let here = range.clone().filter(|&one| self.is_present(one)).count() as u64;
        let all = range.end - range.start;
        match here == all {
            true => self.counters.read_hits += 1,
            false => self.counters.read_misses += 1,
        }
        let sides = [(Side::Fast, here > 0), (Side::Backing, here < all)];
        let sides = sides.into_iter().filter(|(_, wanted)| *wanted);
        let sides: Vec<Side> = sides.map(|(side, _)| side).collect();
        self.step(op, Step::Reading, sides.len() as u8);
        for side in sides {
            if let Err(error) = self.read(side, Owner::Op(op), range.start, all) {
                return self.end_piece(op, Err(error));
            }
        }
    }

    fn was_read(&mut self, op: usize, error: Option<(Side, IoError)>) {
        let range = self.range_of(op);
        let Some(step) = self.piece(op).map(|piece| piece.step) else {
            return;
        };
        if let Some((side, error)) = error {
            let clean = !range.clone().any(|granule| self.is_dirty(granule));
            if side == Side::Fast && clean && step == Step::Reading {
                self.step(op, Step::ReadingAgain, 1);
                let all = range.end - range.start;
                if let Err(error) = self.read(Side::Backing, Owner::Op(op), range.start, all) {
                    self.end_piece(op, Err(error));
                }
                return;
            }
            return self.end_piece(op, Err(error));
        }
        let from_backing =
            |cache: &Self, granule: u64| step == Step::ReadingAgain || !cache.is_present(granule);
        let absent: Vec<bool> = range
            .clone()
            .map(|granule| from_backing(self, granule))
            .collect();
        let Some(piece) = self.piece(op) else {
            return;
        };
        let (fast, backing) = (piece.fast.take(), piece.backing.take());
        let may_fill = piece.hold == Hold::Alone && !piece.is_stream && step == Step::Reading;
        let whole = piece.whole.take();
        let mut data = match (fast, backing) {
            (Some(mut fast), Some(backing)) => {
                for (granule, absent) in absent.iter().enumerate() {
                    let bytes = granule * GRANULE..(granule + 1) * GRANULE;
                    if *absent {
                        fast[bytes.clone()].copy_from_slice(&backing[bytes]);
                    }
                }
                fast
            }
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return self.end_piece(op, Ok(())),
        };
        self.hand_over(whole, range.start, &mut data);
        let missing = absent.iter().any(|absent| *absent);
        if !(may_fill && missing && self.let_in(range, Admission::Ordinary)) {
            return self.end_piece(op, Ok(()));
        }
        self.step(op, Step::Filling, 1);
        let first = self.range_of(op).start;
        let how = (Side::Fast, Durability::Cached);
        self.write_buffer(how, Owner::Op(op), first, data);
    }

    /// Gives a host what was read for it.
    fn hand_over(&mut self, whole: Option<usize>, first: u64, data: &mut IoBuffer) {
        let Some(whole) = whole else { return };
        if let Some(one) = self.wholes.get_mut(whole) {
            let at = (first - one.first) as usize * GRANULE;
            if let Some(buffer) = &mut one.buffer {
                buffer[at..at + data.len()].copy_from_slice(data);
            }
        }
        self.piece_over(whole, Ok(()));
    }

    fn was_filled(&mut self, op: usize) {
        for granule in self.range_of(op) {
            if !self.is_present(granule) {
                self.put(granule, (true, false));
            }
        }
        self.cleaning.fresh = true;
        self.end_piece(op, Ok(()));
    }

    /// Makes room for the blocks of a range that are not there; false if there is none.
    fn let_in(&mut self, range: Range<u64>, how: Admission) -> bool {
        let new: Vec<_> = Self::blocks(range.start, range.end)
            .filter(|&block| !self.policy.has(block))
            .filter(|block| u64::from(block.0) * BLOCK >= self.head())
            .collect();
        if self.policy.len() + self.evicting + new.len() > self.policy.capacity() {
            return false;
        }
        for block in new {
            self.policy.insert(block, how);
        }
        true
    }

    fn start_write(&mut self, op: usize) {
        let range = self.range_of(op);
        for block in Self::blocks(range.start, range.end) {
            self.policy.touch(block);
        }
        let is_stream = self.piece(op).is_some_and(|piece| piece.is_stream);
        let how = match is_stream {
            true => Admission::Stream,
            false => Admission::Ordinary,
        };
        let any_dirty = range.clone().any(|granule| self.is_dirty(granule));
        let in_head = range.start < self.head();
        let mode = self.header.as_ref().map(|header| header.mode);
        let back = mode == Some(Mode::WriteBack) && !self.draining;
        let room = (back || any_dirty) && self.let_in(range.clone(), how);
        if !(any_dirty || in_head || room) {
            return self.drop_cached(op);
        }
        // Nothing that was on its way to be clean is so any more.
        let mut changed = false;
        for granule in range {
            let (page, at) = self.page_of(granule);
            page.written.set(at, false);
            page.settling.set(at, false);
            let clean = page.cached.get(at) && !page.newer.get(at);
            let only_here = page.present.get(at) && !page.dirty.get(at);
            if only_here {
                // From now on the fast device has some of each.
                self.put(granule, (false, false));
            }
            if clean && !self.sings(Defect::DataBeforeDirty) {
                changed |= self.record(granule, (true, true));
            }
            if self.sings(Defect::DirtyBeforeData) {
                changed |= self.record(granule, (true, true));
            }
        }
        match changed {
            true => self.wait_recorded(op, Step::Marking),
            false => self.write_data(op),
        }
    }

    /// The page has changed: the piece waits for it.
    fn wait_recorded(&mut self, op: usize, step: Step) {
        self.step(op, step, 0);
        if let Some(page) = self.piece(op).map(|piece| piece.page()) {
            self.changed(page);
            self.wait_for_page(page, op);
        }
    }

    /// What the host writes here.
    fn data_of(&mut self, op: usize) -> Vec<u8> {
        let range = self.range_of(op);
        let whole = self.piece(op).and_then(|piece| piece.whole);
        let bytes = (range.end - range.start) as usize * GRANULE;
        let whole = whole.and_then(|whole| self.wholes.get(whole));
        let data = whole.and_then(|whole| {
            let at = (range.start - whole.first) as usize * GRANULE;
            Some(whole.buffer.as_ref()?[at..at + bytes].to_vec())
        });
        // What has no data is to read as zeroes.
        data.unwrap_or_else(|| vec![0; bytes])
    }

    fn write_data(&mut self, op: usize) {
        let data = self.data_of(op);
        let first = self.range_of(op).start;
        self.step(op, Step::Writing, 1);
        let how = (Side::Fast, Durability::Durable);
        if let Err(error) = self.write(how, Owner::Op(op), first, &data) {
            self.end_piece(op, Err(error));
        }
    }

    fn was_written(&mut self, op: usize) {
        let mut changed = false;
        for granule in self.range_of(op) {
            changed |= self.record(granule, (true, true));
        }
        match changed {
            true => {
                self.wait_recorded(op, Step::Recording);
                if self.sings(Defect::AcknowledgeBeforeRecord)
                    && let Some(whole) = self.piece(op).and_then(|piece| piece.whole.take())
                {
                    self.piece_over(whole, Ok(()));
                }
            }
            false => self.was_recorded(op),
        }
    }

    fn was_recorded(&mut self, op: usize) {
        for granule in self.range_of(op) {
            self.put(granule, (true, true));
        }
        self.end_piece(op, Ok(()));
    }

    /// The fast device takes nothing: it is full, or worse. What is newer there stays the newest.
    fn was_not_written(&mut self, op: usize, error: IoError) {
        let range = self.range_of(op);
        let any_dirty = range.clone().any(|granule| self.is_dirty(granule));
        match any_dirty || range.start < self.head() {
            true => self.end_piece(op, Err(error)),
            false => self.drop_cached(op),
        }
    }

    /// Goes around: what is cached of it, all of it clean, is forgotten first.
    fn drop_cached(&mut self, op: usize) {
        self.counters.around += 1;
        let (mut changed, mut any) = (false, false);
        for granule in self.range_of(op) {
            any |= self.is_present(granule);
            if self.looked_up(granule, |page| &page.cached) {
                changed |= self.record(granule, (false, false));
            }
            if self.is_present(granule) {
                self.put(granule, (false, false));
            }
        }
        match (changed, any) {
            (true, _) => self.wait_recorded(op, Step::Dropping),
            (false, true) => self.deallocate(op),
            (false, false) => self.write_around(op),
        }
    }

    /// Blocks of which nothing is left are given back.
    fn deallocate(&mut self, op: usize) {
        let range = self.range_of(op);
        let mut empty = Vec::new();
        for block in Self::blocks(range.start, range.end) {
            let first = u64::from(block.0) * BLOCK;
            let used = (first..first + BLOCK).any(|granule| self.is_present(granule));
            if !used && self.policy.has(block) {
                self.policy.forget(block);
                empty.push(first);
            }
        }
        if empty.is_empty() {
            return self.write_around(op);
        }
        self.step(op, Step::Deallocating, empty.len() as u8);
        for first in empty {
            self.give_back(Owner::Op(op), first, BLOCK);
        }
    }

    /// Has the fast device give space back.
    pub(super) fn give_back(&mut self, owner: Owner, first: u64, granules: u64) {
        let range = self.range(Side::Fast, first, granules);
        let request = Request {
            tag: 0,
            op: Operation::Deallocate,
            range,
            buffer: None,
        };
        self.send(Side::Fast, owner, request);
    }

    fn write_around(&mut self, op: usize) {
        let data = self.data_of(op);
        let Some(piece) = self.piece(op) else { return };
        let (first, durability) = (piece.first, piece.durability);
        self.step(op, Step::WritingAround, 1);
        let how = (Side::Backing, durability);
        if let Err(error) = self.write(how, Owner::Op(op), first, &data) {
            self.end_piece(op, Err(error));
        }
    }

    /// Written through: the host has its answer, and a copy may be kept.
    fn was_written_around(&mut self, op: usize) {
        self.cleaning.unflushed = true;
        let mode = self.header.as_ref().map(|header| header.mode);
        let range = self.range_of(op);
        let is_stream = self.piece(op).is_none_or(|piece| piece.is_stream);
        let keeps = mode == Some(Mode::WriteThrough) && !is_stream;
        if !keeps || !self.let_in(range.clone(), Admission::Ordinary) {
            return self.end_piece(op, Ok(()));
        }
        let data = self.data_of(op);
        if let Some(whole) = self.piece(op).and_then(|piece| piece.whole.take()) {
            self.piece_over(whole, Ok(()));
        }
        self.step(op, Step::Filling, 1);
        let how = (Side::Fast, Durability::Cached);
        if let Err(error) = self.write(how, Owner::Op(op), range.start, &data) {
            self.end_piece(op, Err(error));
        }
    }

    fn end_piece(&mut self, op: usize, result: Result<(), IoError>) {
        let Some(Op::Piece(piece)) = self.ops.try_remove(op) else {
            return;
        };
        // Space that was promised to it and not used.
        for block in Self::blocks(piece.first, piece.end) {
            let first = u64::from(block.0) * BLOCK;
            let used = (first..first + BLOCK).any(|granule| self.is_present(granule));
            if !used && self.locks_block_alone(&piece, first) {
                self.policy.forget(block);
            }
        }
        self.pieces -= 1;
        let next = self.locks.release(piece.first / UNIT, piece.hold);
        self.granted.extend(next);
        if let Some(whole) = piece.whole {
            self.piece_over(whole, result);
        }
    }

    /// Whether nothing else can be putting something into a block: the piece has its lock alone.
    fn locks_block_alone(&self, piece: &Piece, _first: u64) -> bool {
        piece.hold == Hold::Alone
    }
}
