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
//! A write that goes around: first the page forgets what it had, all of it clean; then the backing device. One for which the
//! fast device has no room goes around, too; what of it is newer is written on both, for nothing else may go back there. What
//! a write has taken of the fast device, and no page says so, is given back.

mod no_room;
mod shared;

use std::ops::Range;

use ashlar_block::{Durability, ErrorKind, IoBuffer, IoError, Operation, Request};

use super::io::Target;
use super::pages::State;
use super::room::Try;
use super::{BLOCK, Cache, Defect, News, Op, Owner, Side};
use crate::layout::{GRANULE, Mode, PAGE, UNIT};
use crate::locks::Hold;
use crate::policy::{Admission, Asked, BlockIndex};
use shared::Shared;

/// Pieces that are brought in at a time: when the fast device does not keep up, what is read is not kept.
const MOST_FILLING: usize = 64;
const _: () = assert!(UNIT <= 16, "a bit a granule of a piece");

/// One piece.
pub(super) struct Piece {
    /// The request that it is a part of; none once that has its answer.
    whole: Option<usize>,
    first: u64,
    end: u64,
    is_read: bool,
    /// A read that passes what waits for the backing device: it brings nothing in, for what it has read may be zeroes by then.
    passes: bool,
    durability: Durability,
    is_stream: bool,
    /// As what the policy hears of it; of what is kept out by hand it does not, nor of a stream that is written.
    asked: Option<Asked>,
    hold: Hold,
    /// Granules that were not here when it asked for them, a bit each: another read may have brought them since.
    absent: u16,
    step: Step,
    pending: u8,
    fast: Option<IoBuffer>,
    backing: Option<IoBuffer>,
    /// What its granules hold, of a write of less.
    patched: Option<IoBuffer>,
    error: Option<(Side, IoError)>,
    /// The fast device may have some of it that no page says is there.
    takes_space: bool,
    /// Losses of the backing device before it was asked.
    losses: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Waiting,
    /// A write of a part of a granule: what the rest holds is read.
    Patching,
    /// The same after it failed on the fast device, of which nothing is newer there.
    PatchingAgain,
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
    /// A write that failed is recorded as not there.
    Refusing,
    /// Of a write for which there is no room, that which is newer is written.
    Rewriting,
    /// What was cached is recorded as not so.
    Dropping,
    /// And deallocated.
    Deallocating,
    WritingAround,
    /// What it took and did not use is deallocated; then it is over.
    GivingBack,
}

impl Step {
    /// Whether a cache that has failed must end it here. What comes next may find the page as it wants it and take that
    /// for durable, while the change was another's whose page could not be written.
    fn may_not_go_on(self) -> bool {
        matches!(
            self,
            Self::Waiting | Self::Patching | Self::PatchingAgain | Self::Deallocating
        )
    }
}

impl Piece {
    fn granules(&self) -> Range<u64> {
        self.first..self.end
    }

    fn page(&self) -> u64 {
        self.first / PAGE
    }

    /// Whether it waits for a page to be recorded.
    pub(super) fn awaits_page(&self) -> bool {
        matches!(
            self.step,
            Step::Marking | Step::Recording | Step::Refusing | Step::Dropping
        )
    }
}

impl Cache {
    pub(super) fn begin_piece(&mut self, whole: usize, granules: Range<u64>, is_stream: bool) {
        let one = self.wholes.get(whole);
        let passes = one.is_some_and(|one| one.passes);
        let (is_read, durability) = match one.map(|one| one.op) {
            Some(Operation::Read) => (true, Durability::Cached),
            Some(Operation::Write(durability)) => (false, durability),
            _ => (false, Durability::Durable),
        };
        let excluded = self.rules.exclude(&granules, is_read);
        // A log that begins again at its start is written, not asked for.
        let asked = match (is_read, is_stream) {
            (true, false) => Some(Asked::Read),
            (true, true) => Some(Asked::ReadByStream),
            (false, false) => Some(Asked::Written),
            (false, true) => None,
        };
        let asked = asked.filter(|_| !excluded);
        let is_stream =
            excluded || is_stream && !(is_read && self.was_read_before(granules.clone()));
        // Reads that bring the same in do so with the same data, and need not wait for each other.
        let hold = match is_read {
            true => Hold::Shared,
            false => Hold::Alone,
        };
        let unit = granules.start / UNIT;
        let piece = Piece {
            whole: Some(whole),
            first: granules.start,
            end: granules.end,
            is_read,
            passes,
            durability,
            is_stream,
            asked,
            hold,
            absent: 0,
            step: Step::Waiting,
            pending: 0,
            fast: None,
            backing: None,
            patched: None,
            error: None,
            takes_space: false,
            losses: 0,
        };
        *self.count_of(passes) += 1;
        let op = self.ops.insert(Op::Piece(piece));
        if self.goes_unlocked(is_read) || self.locks.take(unit, op, hold) {
            self.granted.push(op);
        }
    }

    fn count_of(&mut self, passes: bool) -> &mut usize {
        match passes {
            true => &mut self.passing,
            false => &mut self.pieces,
        }
    }

    /// Whether a part of a stream that is not here was read not long ago. Its name is known from now on.
    fn was_read_before(&mut self, granules: Range<u64>) -> bool {
        let mut any = false;
        for block in Self::blocks(granules.start, granules.end) {
            if !self.policy.has(block) {
                any |= self.policy.admits(block, Admission::Stream);
            }
        }
        any
    }

    fn piece(&mut self, op: usize) -> Option<&mut Piece> {
        match self.ops.get_mut(op) {
            Some(Op::Piece(piece)) => Some(piece),
            _ => None,
        }
    }

    pub(super) fn piece_news(&mut self, op: usize, news: News) {
        if let News::NoRoom { is_new } = news {
            return self.has_no_page(op, is_new);
        }
        let Some(piece) = self.piece(op) else {
            return;
        };
        if let News::Done(side, buffer, result) = news {
            piece.pending -= 1;
            match (side, result) {
                // Space that does not come back is not lost; the piece ends as it was to.
                (_, Err(_)) if piece.step == Step::GivingBack => {}
                (side, Err(error)) => piece.error = Some((side, error)),
                (Side::Fast, Ok(())) => piece.fast = buffer,
                (Side::Backing, Ok(())) => piece.backing = buffer,
            }
            if piece.pending > 0 {
                return;
            }
        }
        let error = piece.error.take();
        if let (true, Some(error)) = (piece.step.may_not_go_on(), self.failure_error()) {
            return self.end_piece(op, Err(error));
        }
        let Some(piece) = self.piece(op) else {
            return;
        };
        match (piece.step, error) {
            (Step::Waiting, _) if piece.is_read => self.start_read(op),
            (Step::Waiting, _) if self.is_partial(op) => self.read_sides(op, Step::Patching),
            (Step::Waiting, _) => self.start_write(op, Try::First),
            (Step::Patching | Step::PatchingAgain, error) => self.was_read_to_patch(op, error),
            (Step::Reading | Step::ReadingAgain, error) => self.was_read(op, error),
            (Step::Filling, error) => {
                self.filling -= 1;
                match error {
                    None => self.was_filled(op),
                    Some((_, error)) => self.was_not_filled(op, &error),
                }
            }
            (Step::Marking, _) => self.write_data(op),
            (Step::Writing, None) => self.was_written(op),
            (Step::Writing, Some((_, error))) => self.was_not_written(op, error),
            (Step::Recording, _) => self.was_recorded(op),
            (Step::Refusing | Step::Rewriting, Some((_, error))) => self.was_refused(op, error),
            (Step::Refusing, None) => {
                let error = IoError::new(ErrorKind::Media, "the cache did not take it");
                self.was_refused(op, error);
            }
            (Step::Rewriting, None) => self.drop_cached(op),
            (Step::Dropping, _) => self.deallocate(op),
            // Space that does not come back is not lost: the block is written again some time.
            (Step::Deallocating, _) => self.write_around(op),
            (Step::WritingAround, None) => self.was_written_around(op),
            (Step::WritingAround, Some((_, error))) => self.end_piece(op, Err(error)),
            (Step::GivingBack, error) => {
                self.end_piece(op, error.map_or(Ok(()), |(_, error)| Err(error)))
            }
        }
    }

    fn step(&mut self, op: usize, step: Step, pending: u8) {
        if let Some(piece) = self.piece(op) {
            piece.step = step;
            piece.pending = pending;
        }
    }

    pub(super) fn range_of(&mut self, op: usize) -> Range<u64> {
        self.piece(op).map_or(0..0, |piece| piece.granules())
    }

    /// Tells the policy that a piece's blocks are asked for.
    fn ask_for(&mut self, op: usize) {
        let range = self.range_of(op);
        let Some(how) = self.piece(op).and_then(|piece| piece.asked) else {
            return;
        };
        let how = match how == Asked::Written && self.goes_around(&range) {
            true => Asked::WrittenAround,
            false => how,
        };
        for block in Self::blocks(range.start, range.end) {
            self.policy.touch(block, how);
        }
    }

    fn start_read(&mut self, op: usize) {
        let range = self.range_of(op);
        self.ask_for(op);
        match range.clone().all(|granule| self.is_present(granule)) {
            true => self.counters.read_hits += 1,
            false => self.counters.read_misses += 1,
        }
        self.read_sides(op, Step::Reading);
    }

    /// Reads all of a piece, from where it is.
    fn read_sides(&mut self, op: usize, step: Step) {
        let range = self.range_of(op);
        let all = range.end - range.start;
        let absent = (range.clone().enumerate())
            .filter(|&(_, granule)| !self.is_present(granule))
            .fold(0_u16, |absent, (at, _)| absent | 1 << at);
        let losses = self.around.losses();
        if let Some(piece) = self.piece(op) {
            piece.absent = absent;
            piece.losses = losses;
        }
        let missing = u64::from(absent.count_ones());
        let sides = [(Side::Fast, missing < all), (Side::Backing, missing > 0)];
        let sides = sides.into_iter().filter(|(_, wanted)| *wanted);
        let sides: Vec<Side> = sides.map(|(side, _)| side).collect();
        if missing > 0 {
            self.hosts_go_by();
        }
        // Both or none: what waits for memory has nothing under way.
        let buffers: Result<Vec<IoBuffer>, IoError> =
            sides.iter().map(|_| self.buffer(all)).collect();
        let Ok(buffers) = buffers else {
            return self.waits_for_memory(op, step);
        };
        self.step(op, step, sides.len() as u8);
        for (side, buffer) in sides.into_iter().zip(buffers) {
            let range = self.range(side, range.start, all);
            self.send(side, Owner::Op(op), Request::read(0, range, buffer));
        }
    }

    /// There is no memory for what a piece does next, which is to begin with `step`: it waits, under its lock.
    fn waits_for_memory(&mut self, op: usize, step: Step) {
        self.step(op, step, 0);
        self.without_memory.push_back(op);
    }

    /// Those that wait for memory try again, in their order, until one finds none.
    pub(super) fn go_on_with_memory(&mut self) {
        for op in std::mem::take(&mut self.without_memory) {
            if let Some(error) = self.failure_error() {
                self.end_piece(op, Err(error));
                continue;
            }
            if !self.without_memory.is_empty() {
                self.without_memory.push_back(op);
                continue;
            }
            match self.piece(op).map(|piece| piece.step) {
                Some(step @ (Step::Patching | Step::Reading)) => self.read_sides(op, step),
                Some(step @ (Step::PatchingAgain | Step::ReadingAgain)) => {
                    self.read_again(op, step)
                }
                Some(Step::Writing) => self.write_data(op),
                Some(Step::WritingAround) => self.write_around(op),
                Some(Step::Rewriting) => self.rewrite_newer(op),
                _ => {}
            }
        }
    }

    /// Whether a write is of less than its granules.
    fn is_partial(&mut self, op: usize) -> bool {
        let range = self.range_of(op);
        let whole = self.piece(op).and_then(|piece| piece.whole);
        let whole = whole.and_then(|whole| self.wholes.get(whole));
        let granule = GRANULE as u64;
        whole.is_some_and(|whole| {
            whole.bytes.start > range.start * granule || whole.bytes.end < range.end * granule
        })
    }

    fn was_read_to_patch(&mut self, op: usize, error: Option<(Side, IoError)>) {
        if let Some((side, error)) = error {
            return match self.may_read_again(op, side) {
                true => self.read_again(op, Step::PatchingAgain),
                false => self.end_piece(op, Err(error)),
            };
        }
        let patched = self.merged(op);
        if let Some(piece) = self.piece(op) {
            piece.patched = patched;
        }
        self.start_write(op, Try::First);
    }

    /// What both devices have sent, each where it has the newest.
    fn merged(&mut self, op: usize) -> Option<IoBuffer> {
        let piece = self.piece(op)?;
        let absent = piece.absent;
        match (piece.fast.take(), piece.backing.take()) {
            (Some(mut fast), Some(backing)) => {
                let places = fast.chunks_mut(GRANULE).zip(backing.chunks(GRANULE));
                for (at, (place, newest)) in places.enumerate() {
                    if absent >> at & 1 == 1 {
                        place.copy_from_slice(newest);
                    }
                }
                Some(fast)
            }
            (one, other) => one.or(other),
        }
    }

    fn was_read(&mut self, op: usize, error: Option<(Side, IoError)>) {
        let range = self.range_of(op);
        let Some(step) = self.piece(op).map(|piece| piece.step) else {
            return;
        };
        if let Some((side, error)) = error {
            return match self.may_read_again(op, side) {
                true => self.read_again(op, Step::ReadingAgain),
                false => self.end_piece(op, Err(error)),
            };
        }
        let data = self.merged(op);
        let steps_aside = self.filling >= MOST_FILLING || !self.fills_the_same(op);
        let Some(piece) = self.piece(op) else {
            return;
        };
        let missing = piece.absent > 0;
        let may_fill = !(piece.is_stream || piece.passes || steps_aside) && step == Step::Reading;
        let whole = piece.whole.take();
        let Some(data) = data else {
            return self.end_piece(op, Ok(()));
        };
        self.hand_over(whole, range.start, &data);
        if !(may_fill && missing && self.let_in(range, Admission::Ordinary)) {
            return self.end_piece(op, Ok(()));
        }
        let first = self.range_of(op).start;
        self.fill(op, first, data);
    }

    /// What the fast device cannot read, and has nothing newer of, the backing device does.
    fn may_read_again(&mut self, op: usize, failed: Side) -> bool {
        let is_clean = !self.range_of(op).any(|granule| self.is_dirty(granule));
        let step = self.piece(op).map(|piece| piece.step);
        failed == Side::Fast && is_clean && matches!(step, Some(Step::Reading | Step::Patching))
    }

    fn read_again(&mut self, op: usize, step: Step) {
        let range = self.range_of(op);
        let all = range.end - range.start;
        self.step(op, step, 1);
        let read = self.read(Side::Backing, Owner::Op(op), range.start, all);
        if read.is_err() {
            self.waits_for_memory(op, step);
        }
    }

    /// Gives a host what was read for it.
    fn hand_over(&mut self, whole: Option<usize>, first: u64, data: &IoBuffer) {
        let Some(whole) = whole else { return };
        if let Some(one) = self.wholes.get_mut(whole) {
            let shared = Shared::of(&one.bytes, first, data.len());
            if let Some(buffer) = &mut one.buffer {
                buffer[shared.in_request].copy_from_slice(&data[shared.in_piece]);
            }
        }
        self.piece_over(whole, Ok(()));
    }

    fn was_filled(&mut self, op: usize) {
        self.has_room_again();
        let losses = self.around.losses();
        if self.piece(op).is_some_and(|piece| piece.losses != losses) {
            return self.end_in_order(op, Ok(()));
        }
        let range = self.range_of(op);
        let is_written = self.piece(op).is_some_and(|piece| !piece.is_read);
        for granule in range.clone() {
            if !self.is_present(granule) {
                self.put(granule, State::Clean);
                let (page, at) = self.page_of(granule);
                page.written.set(at, is_written);
            }
        }
        self.comes_to_be_clean(range);
        self.end_piece(op, Ok(()));
    }

    /// Makes room for the blocks of a range that are not there; false if there is none.
    fn let_in(&mut self, range: Range<u64>, how: Admission) -> bool {
        let new = self.new_blocks(&range).count();
        let fits = self.policy.len() + self.evicting + new <= self.policy.capacity();
        if fits {
            self.come_in(range, how);
        }
        fits
    }

    /// The blocks of a range count as there from now on: the policy has them go when it is their turn.
    fn come_in(&mut self, range: Range<u64>, how: Admission) {
        for block in self.new_blocks(&range).collect::<Vec<_>>() {
            self.policy.insert(block, how);
        }
    }

    /// Blocks of a range that the policy does not have; of the head it has none while the mark is there.
    fn new_blocks(&self, range: &Range<u64>) -> impl Iterator<Item = BlockIndex> {
        let head = self.head();
        Self::blocks(range.start, range.end)
            .filter(|&block| !self.policy.has(block))
            .filter(move |block| u64::from(block.0) * BLOCK >= head)
    }

    /// Puts it on the fast device, waits for room there, or goes around.
    pub(super) fn start_write(&mut self, op: usize, which: Try) {
        let range = self.range_of(op);
        if which == Try::First {
            self.ask_for(op);
        }
        let is_stream = self.piece(op).is_some_and(|piece| piece.is_stream);
        let how = match is_stream {
            true => Admission::Stream,
            false => Admission::Ordinary,
        };
        let any_dirty = range.clone().any(|granule| self.is_dirty(granule));
        let in_head = range.start < self.head();
        let unkept = self.lacks_page(range.start / PAGE);
        let takes = any_dirty || self.may_be_newer() && self.takes(how) && !unkept;
        let room = takes && self.let_in(range.clone(), how);
        if !(any_dirty || in_head || room) {
            return match which != Try::Last && !unkept && self.waits_for_room() {
                true => self.wait_for_room(op, how),
                false => self.drop_cached(op),
            };
        }
        if !room {
            // What is newer there stays, and what is beside it comes in with it; others go for that.
            self.come_in(range.clone(), how);
        }
        // Nothing that was on its way to be clean is so any more.
        let mut changed = false;
        for granule in range {
            let (page, at) = self.page_of(granule);
            page.written.set(at, false);
            page.settling.set(at, false);
            if page.returning.get(at) {
                page.overtaken.set(at, true);
            }
            let clean = page.cached.get(at) && !page.newer.get(at);
            let only_here = page.present.get(at) && !page.dirty.get(at);
            if only_here {
                // From now on the fast device has some of each.
                self.put(granule, State::Absent);
            }
            if clean && !self.sings(Defect::DataBeforeDirty) {
                changed |= self.record(granule, State::Dirty);
            }
            if self.sings(Defect::DirtyBeforeData) {
                changed |= self.record(granule, State::Dirty);
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

    /// What its granules are to hold: what the host writes here, over what they held.
    fn data_of(&mut self, op: usize) -> Vec<u8> {
        let range = self.range_of(op);
        let bytes = (range.end - range.start) as usize * GRANULE;
        let Some(Op::Piece(piece)) = self.ops.get(op) else {
            return vec![0; bytes];
        };
        let mut data = match &piece.patched {
            Some(patched) => patched.to_vec(),
            None => vec![0; bytes],
        };
        if let Some(whole) = piece.whole.and_then(|whole| self.wholes.get(whole)) {
            let shared = Shared::of(&whole.bytes, range.start, bytes);
            match &whole.buffer {
                Some(buffer) => data[shared.in_piece].copy_from_slice(&buffer[shared.in_request]),
                // What has no data is to read as zeroes.
                None => data[shared.in_piece].fill(0),
            }
        }
        data
    }

    fn write_data(&mut self, op: usize) {
        let data = self.data_of(op);
        let range = self.range_of(op);
        let first = range.start;
        self.takes_space(op, range.clone().any(|granule| !self.is_dirty(granule)));
        self.step(op, Step::Writing, 1);
        if self
            .write(Target::FAST, Owner::Op(op), first, &data)
            .is_err()
        {
            self.waits_for_memory(op, Step::Writing);
        }
    }

    fn was_written(&mut self, op: usize) {
        if self.piece(op).is_some_and(|piece| piece.takes_space) {
            self.has_room_again();
        }
        let mut changed = false;
        for granule in self.range_of(op) {
            changed |= self.record(granule, State::Dirty);
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
        let before = self.dirty;
        for granule in self.range_of(op) {
            self.put(granule, State::Dirty);
        }
        match self.piece(op).is_some_and(|piece| piece.is_stream) {
            // It goes back by itself.
            true => {
                let end = self.range_of(op).end;
                self.stream_came_to(end - 1);
            }
            false => self.owe(self.dirty - before),
        }
        self.end_piece(op, Ok(()));
    }

    /// Goes around: what is cached of it and clean is forgotten first. What is newer was written here, too.
    fn drop_cached(&mut self, op: usize) {
        self.counters.around += 1;
        let (mut changed, mut any) = (false, false);
        let range = self.range_of(op);
        for granule in range
            .clone()
            .filter(|&granule| !self.is_dirty(granule))
            .collect::<Vec<_>>()
        {
            any |= self.is_present(granule);
            if self.looked_up(granule, |page| &page.cached) {
                changed |= self.record(granule, State::Absent);
            }
            if self.is_present(granule) {
                self.put(granule, State::Absent);
            }
        }
        any |= self.piece(op).is_some_and(|piece| piece.takes_space);
        let waits = changed && self.forgets_later(range.start / PAGE);
        match (waits, any) {
            (true, _) if self.sings(Defect::AroundBeforeRecord) => self.write_around(op),
            (true, _) => self.wait_recorded(op, Step::Dropping),
            (false, true) => self.deallocate(op),
            (false, false) => self.write_around(op),
        }
    }

    /// Blocks of which nothing is left are given back.
    fn deallocate(&mut self, op: usize) {
        if !self.gives_back(op, Step::Deallocating) {
            self.write_around(op);
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
        let (data, losses) = (self.data_of(op), self.around.losses());
        let Some(piece) = self.piece(op) else { return };
        piece.losses = losses;
        let (first, durability) = (piece.first, piece.durability);
        self.hosts_go_by();
        self.step(op, Step::WritingAround, 1);
        let to = Target::backing(durability);
        if self.write(to, Owner::Op(op), first, &data).is_err() {
            self.waits_for_memory(op, Step::WritingAround);
        }
    }

    /// Written through: the host has its answer, and a copy may be kept.
    fn was_written_around(&mut self, op: usize) {
        self.cleaning.unflushed = true;
        let now = self.around.losses();
        let is_there = self.sings(Defect::LostOnItsWay);
        if let Some(Op::Piece(piece)) = self.ops.get(op) {
            let losses = if is_there { now } else { piece.losses };
            self.around.wrote(piece.durability, losses);
        }
        let mode = self.header.as_ref().map(|header| header.mode);
        let range = self.range_of(op);
        let is_stream = self.piece(op).is_none_or(|piece| piece.is_stream);
        let keeps = mode == Some(Mode::WriteThrough) && !is_stream && self.fills_the_same(op);
        if !keeps || !self.let_in(range.clone(), Admission::Ordinary) {
            return self.end_piece(op, Ok(()));
        }
        let data = self.data_of(op);
        if let Some(whole) = self.piece(op).and_then(|piece| piece.whole.take()) {
            self.piece_over(whole, Ok(()));
        }
        let granules = range.end - range.start;
        match self.buffer(granules) {
            Ok(mut buffer) => {
                buffer.copy_from_slice(&data);
                self.fill(op, range.start, buffer);
            }
            // It is on the backing device, and may be cached another time.
            Err(_) => self.end_piece(op, Ok(())),
        }
    }

    /// Whether the backing device has lost nothing since a piece asked it, nor since what is being put on the fast device was
    /// asked of it: reads that share a lock may put the same there in any order.
    fn fills_the_same(&mut self, op: usize) -> bool {
        let (now, fills) = (self.around.losses(), self.filling_since);
        let asked = self.piece(op).map(|piece| piece.losses);
        asked == Some(now) && (self.filling == 0 || fills == now)
    }

    /// Puts on the fast device what the backing device has.
    fn fill(&mut self, op: usize, first: u64, data: IoBuffer) {
        if self.filling == 0 {
            self.filling_since = self.around.losses();
        }
        self.filling += 1;
        self.takes_space(op, true);
        self.step(op, Step::Filling, 1);
        let to = Target {
            durability: Durability::Cached,
            ..Target::FAST
        };
        self.write_buffer(to, Owner::Op(op), first, data);
    }

    pub(super) fn is_filling(&self) -> bool {
        self.filling > 0
    }

    pub(super) fn end_piece(&mut self, op: usize, result: Result<(), IoError>) {
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
        *self.count_of(piece.passes) -= 1;
        if !self.goes_unlocked(piece.is_read) {
            let next = self.locks.release(piece.first / UNIT, piece.hold);
            self.granted.extend(next);
        }
        if let Some(whole) = piece.whole {
            self.piece_over(whole, result);
        }
    }

    fn goes_unlocked(&self, is_read: bool) -> bool {
        is_read && self.sings(Defect::FillOverNewer)
    }

    /// Whether nothing else can be putting something into a block: the piece has its lock alone.
    fn locks_block_alone(&self, piece: &Piece, _first: u64) -> bool {
        piece.hold == Hold::Alone
    }
}
