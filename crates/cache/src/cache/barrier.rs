//! What is done alone, while nothing else is under way: the mark is put on the backing device or taken away, and
//! ranges are zeroed, in parts between which hosts come in.
//!
//! The mark is put before the first write is acknowledged that only the cache has, and stays until a flush. What
//! belongs there is in the cache before, recorded as newer, and the header says that the mark may be there: so a
//! crash at any moment finds it again. So does a backing device that fails meanwhile: who waits for the task is told,
//! and it is tried again after a while, and when something waits for it. Writes wait for it, and reads need it not.

use std::ops::Range;
use std::time::Duration;

use ashlar_block::{Durability, IoBuffer, IoError, Moment, Operation, Request};

use super::flush::For;
use super::io::Target;
use super::open::{check_marked, check_unmarked};
use super::pages::State;
use super::space::is_about_room;
use super::{BLOCK, Cache, Owner, Side};
use crate::layout::{HEAD, Header, Mark, PAGE};
use crate::mark::{self, MarkSums};

/// What is to be done alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// The mark is put.
    Arm,
    /// It is taken away; for the flush with this number.
    Restore(u64),
    /// Granules become zeroes, for a host's request.
    Zero(usize, Range<u64>),
}

/// The task under way.
pub(super) struct Barrier {
    task: Task,
    step: Step,
    /// What belongs at the head of the backing device.
    head: Vec<u8>,
    /// Granules that are zeroed now.
    part: Range<u64>,
    /// When the header is written again for which there was no room.
    again_at: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// What is under way ends first.
    Quiet,
    ReadBacking,
    KeepHead,
    RecordHead,
    SayArming,
    PutMark,
    FlushMark,
    SayOn,
    SayRestoring,
    ReadHead,
    LookAtMark,
    PutBack,
    FlushBack,
    RecordBack,
    SayOff,
    /// There is no room for what the mark replaces: what it took is given back, and writes go around, to the head, too.
    GivingHeadBack,
    SayAside,
    ForgetClean,
    Zeroing,
    ForgetNewer,
    GivingBack,
}

impl Step {
    /// Whether the backing device is asked for the mark, or for its end; all that it replaces is in the cache then.
    fn is_at_the_backing_device(self) -> bool {
        matches!(
            self,
            Self::PutMark | Self::FlushMark | Self::LookAtMark | Self::PutBack | Self::FlushBack
        )
    }
}

/// Granules that the backing device is to zero at a time: a request counts its blocks, of 512 bytes at least, in 32 bits.
const MOST_ZEROED: u64 = 1 << 28;
const LEAST_ZEROED: u64 = 256;
const _: () = assert!(MOST_ZEROED * 8 <= u32::MAX as u64);
/// How long a part is to take at most: hosts wait meanwhile. What takes less than a fifth of it becomes larger.
const PART_TAKES: Duration = Duration::from_millis(50);
/// How long a header for which there was no room is left alone.
const SAY_AGAIN: Duration = Duration::from_secs(1);

/// How much is zeroed at a time, which is what the backing device does soon; between two parts hosts come in.
pub(super) struct ZeroParts {
    granules: u64,
    since: Moment,
}

impl ZeroParts {
    pub(super) const fn new(now: Moment) -> Self {
        Self {
            granules: LEAST_ZEROED,
            since: now,
        }
    }

    /// A part was done in this time.
    fn took(&mut self, time: Duration) {
        if time > PART_TAKES {
            self.granules = (self.granules / 2).max(LEAST_ZEROED);
        } else if time < PART_TAKES / 5 {
            self.granules = (self.granules * 2).min(MOST_ZEROED);
        }
    }
}

/// The number of a flush that has not been asked for.
const UNASKED: u64 = u64::MAX;

/// The same error, for one more who waits.
pub(super) fn again(error: &IoError) -> IoError {
    IoError::new(error.kind(), error.context().to_owned())
}

impl Cache {
    fn head_granules(&self) -> u64 {
        HEAD.min(self.layout.granules)
    }

    /// Begins the next task that may, and goes on with one that waits for pages.
    pub(super) fn advance_barrier(&mut self) {
        if self.failure.is_some() {
            return self.give_up_tasks();
        }
        if self.barrier.is_none() && self.opening.is_none() {
            self.resume_mark();
            let ready = |task: &Task| match task {
                Task::Restore(_) => self.dirty_elsewhere() == 0 && self.is_settled(),
                Task::Arm | Task::Zero(..) => true,
            };
            if let Some(at) = self.tasks.iter().position(ready)
                && let Some(task) = self.tasks.remove(at)
            {
                self.barrier = Some(Barrier {
                    task,
                    step: Step::Quiet,
                    head: Vec::new(),
                    part: 0..0,
                    again_at: None,
                });
            }
        }
        let Some(barrier) = &self.barrier else { return };
        let quiet = self.pieces == 0 && self.evicting == 0 && self.is_settled_for_tasks();
        let durable = self.pages_are_durable();
        if barrier.again_at.is_some_and(|at| at <= self.now) {
            let step = barrier.step;
            return self.say_again(step);
        }
        match (barrier.step, &barrier.task) {
            // Hosts' last writes may have come in between.
            (Step::Quiet, Task::Restore(_)) if quiet && self.dirty_elsewhere() > 0 => {
                if let Some(barrier) = self.barrier.take() {
                    self.tasks.push_back(barrier.task);
                }
            }
            (Step::Quiet, task) if quiet => {
                let task = task.clone();
                self.begin_task(task);
            }
            (Step::RecordHead, _) if self.lacks_page(0) => self.forget_head(),
            (Step::RecordHead, _) if durable => self.say(Step::SayArming, Mark::Arming),
            (Step::RecordBack, _) if durable => self.say(Step::SayOff, Mark::Off),
            (Step::ForgetClean, Task::Zero(..)) if durable => self.zero_backing(),
            (Step::ForgetNewer, Task::Zero(..)) if durable => {
                let range = self.with_blocks_of(barrier.part.clone());
                self.at(Step::GivingBack);
                self.give_back(Owner::Barrier, range.start, range.end - range.start);
            }
            _ => {}
        }
    }

    fn is_settled_for_tasks(&self) -> bool {
        let none = self.ops.len() == self.passing;
        none && !self.is_flushing() && !self.loss.is_on_its_way()
    }

    /// Whether a task is far enough to write the header, or has that written. Zeroes, which a device may take its time with,
    /// need none.
    pub(super) fn has_header(&self) -> bool {
        let writes = |barrier: &Barrier| !matches!(barrier.task, Task::Zero(..));
        let barrier = self.barrier.as_ref().filter(|barrier| writes(barrier));
        barrier.is_some_and(|barrier| barrier.step != Step::Quiet)
    }

    fn give_up_tasks(&mut self) {
        let running = self.barrier.take().map(|barrier| barrier.task);
        let tasks: Vec<Task> = running.into_iter().chain(self.tasks.drain(..)).collect();
        for task in tasks {
            let Some(error) = self.failure_error() else {
                return;
            };
            match task {
                Task::Arm => {}
                Task::Restore(id) => self.answers.push((id, Err(error))),
                Task::Zero(whole, _) => self.piece_over(whole, Err(error)),
            }
        }
    }

    /// What is newer cannot be written back now: who waits for that is told, and hosts' writes go on.
    pub(super) fn flush_fails(&mut self, error: &IoError) {
        for task in std::mem::take(&mut self.tasks) {
            let Task::Restore(id) = task else {
                self.tasks.push_back(task);
                continue;
            };
            let why = format!("not all could be written back: {}", error.context());
            let error = IoError::new(error.kind(), why);
            self.answers.push((id, Err(error)));
        }
        self.draining = false;
    }

    fn at(&mut self, step: Step) {
        if let Some(barrier) = &mut self.barrier {
            barrier.step = step;
        }
    }

    fn begin_task(&mut self, task: Task) {
        let head = self.head_granules();
        let mark = self.header.as_ref().map(|header| header.mark);
        match task {
            // A backing device has failed, or a crash has come, in between.
            Task::Arm if matches!(mark, Some(Mark::Arming | Mark::Restoring)) => self.read_head(),
            Task::Arm => {
                self.at(Step::ReadBacking);
                self.try_barrier(|cache| cache.read(Side::Backing, Owner::Barrier, 0, head));
            }
            Task::Restore(_) if mark == Some(Mark::Off) => {
                self.at(Step::FlushBack);
                self.flush_backing(For::Barrier);
            }
            Task::Restore(_) => self.say(Step::SayRestoring, Mark::Restoring),
            Task::Zero(_, range) => {
                debug_assert!(range.start >= self.head(), "zeroes over the mark");
                let range = range.start..range.end.min(range.start + self.zero_parts.granules);
                for granule in self.known_in(&range) {
                    if !self.is_dirty(granule) && self.looked_up(granule, |page| &page.cached) {
                        self.record(granule, State::Absent);
                        self.changed(granule / PAGE);
                    }
                    if self.is_present(granule) && !self.is_dirty(granule) {
                        self.put(granule, State::Absent);
                    }
                }
                if let Some(barrier) = &mut self.barrier {
                    barrier.part = range;
                }
                self.at(Step::ForgetClean);
                if self.pages_are_durable() {
                    self.zero_backing();
                }
            }
        }
    }

    /// Has the backing device zero the part.
    fn zero_backing(&mut self) {
        let part = self.part();
        self.zero_parts.since = self.now;
        self.at(Step::Zeroing);
        let request = Request {
            tag: 0,
            op: Operation::WriteZeroes {
                durability: Durability::Durable,
                deallocate: true,
            },
            range: self.range(Side::Backing, part.start, part.end - part.start),
            buffer: None,
        };
        self.send(Side::Backing, Owner::Barrier, request);
    }

    fn part(&self) -> Range<u64> {
        let barrier = self.barrier.as_ref();
        barrier.map_or(0..0, |barrier| barrier.part.clone())
    }

    /// A range of which nothing is known, and of the blocks at its ends all, if nothing is known of the rest of them, either:
    /// the fast device gives back whole blocks.
    fn with_blocks_of(&self, range: Range<u64>) -> Range<u64> {
        let knows = |first: u64| {
            let page = self.pages.get(&(first / PAGE));
            page.is_some_and(|page| page.knows_block((first % PAGE) as usize))
        };
        let (first, last) = (
            range.start / BLOCK * BLOCK,
            range.end.next_multiple_of(BLOCK),
        );
        let start = if knows(first) { range.start } else { first };
        let end = if knows(last - BLOCK) { range.end } else { last };
        start..end
    }

    fn part_is_zeroed(&mut self) {
        let took = self.now.since(self.zero_parts.since);
        self.zero_parts.took(took);
        self.forget_newer();
    }

    fn try_barrier(&mut self, what: impl FnOnce(&mut Self) -> Result<(), IoError>) {
        if let Err(error) = what(self) {
            self.barrier_failed(&error);
        }
    }

    /// The header says this from now on.
    fn say(&mut self, step: Step, mark: Mark) {
        self.at(step);
        let Some(header) = &mut self.header else {
            return;
        };
        header.mark = mark;
        let bytes = header.encode();
        let at = self.layout.header_at();
        self.try_barrier(|cache| cache.write(Target::FAST, Owner::Barrier, at, &bytes));
    }

    /// Says once more what there was no room for.
    fn say_again(&mut self, step: Step) {
        if let Some(barrier) = &mut self.barrier {
            barrier.again_at = None;
        }
        if let Some(mark) = self.header.as_ref().map(|header| header.mark) {
            self.say(step, mark);
        }
    }

    /// When a task goes on that has found no room.
    pub(super) fn barrier_deadline(&self) -> Option<Moment> {
        self.barrier.as_ref().and_then(|barrier| barrier.again_at)
    }

    fn forget_what_is_kept(&mut self) {
        for granule in 0..self.head_granules() {
            self.record(granule, State::Absent);
            self.put(granule, State::Absent);
        }
        self.changed(0);
    }

    /// A life before may have ended when the head was recorded as kept, and no header said yet that there may be a mark.
    /// Without one nothing is newer than the backing device: that is forgotten, else hosts would write there.
    pub(super) fn forget_unmarked(&mut self) {
        let mark = self.header.as_ref().map(|header| header.mark);
        if mark == Some(Mark::Off) && self.dirty > 0 {
            self.forget_what_is_kept();
        }
    }

    /// There is no room for the page that says that the head is kept, so a crash finds neither: as if it was not.
    fn forget_head(&mut self) {
        self.forget_what_is_kept();
        if let Some(header) = self.header_mut() {
            header.marked = None;
        }
        self.at(Step::GivingHeadBack);
        self.give_back(Owner::Barrier, 0, self.head_granules());
    }

    /// No mark is put for a while. What begins the device may be written meanwhile, so it is not known from now on.
    fn go_without_mark(&mut self) {
        self.step_aside();
        let knows = |header: &mut Header| header.head_crc.take().is_some();
        match self.header_mut().is_some_and(knows) {
            true => self.say(Step::SayAside, Mark::Off),
            false => self.end_task(),
        }
    }

    /// The fast device has no room for what a task needs; whether the task sees to that.
    fn makes_do(&mut self, error: &IoError) -> bool {
        let step = self.barrier.as_ref().map(|barrier| barrier.step);
        match step.filter(|_| is_about_room(error)) {
            Some(Step::KeepHead) => {
                self.has_no_room(error);
                self.go_without_mark();
            }
            Some(
                Step::SayArming | Step::SayOn | Step::SayRestoring | Step::SayOff | Step::SayAside,
            ) => {
                self.has_no_room(error);
                let at = self.now + SAY_AGAIN;
                if let Some(barrier) = &mut self.barrier {
                    barrier.again_at = Some(at);
                }
            }
            _ => return false,
        }
        true
    }

    fn header_mut(&mut self) -> Option<&mut Header> {
        self.header.as_mut()
    }

    pub(super) fn barrier_done(&mut self, buffer: Option<IoBuffer>, result: Result<(), IoError>) {
        let Some(barrier) = &mut self.barrier else {
            return;
        };
        let step = barrier.step;
        if step == Step::GivingHeadBack {
            // Space that does not come back is not lost.
            return self.go_without_mark();
        }
        // Nor is that of what became zeroes.
        let result = result.or_else(|error| match step {
            Step::GivingBack => Ok(()),
            _ => Err(error),
        });
        if let Err(error) = result {
            return self.barrier_failed(&error);
        }
        let read = buffer.map(|buffer| buffer.to_vec()).unwrap_or_default();
        if step == Step::LookAtMark {
            return self.mark_was_looked_at(&read);
        }
        if matches!(step, Step::ReadBacking | Step::ReadHead) {
            barrier.head = read;
        }
        let head = barrier.head.clone();
        let cache_id = self
            .header
            .as_ref()
            .map(|header| header.cache)
            .unwrap_or_default();
        match step {
            Step::ReadBacking => self.keep_head(&head),
            Step::KeepHead => {
                self.has_room_again();
                for granule in 0..self.head_granules() {
                    self.record(granule, State::Dirty);
                    self.put(granule, State::Dirty);
                }
                for block in Self::blocks(0, self.head_granules()) {
                    self.policy.forget(block);
                }
                if let Some(header) = self.header_mut() {
                    header.head_crc = Some(crc32c::crc32c(&head));
                    header.marked = Some(MarkSums::of(&mark::put(&head, cache_id)));
                }
                self.changed(0);
                self.at(Step::RecordHead);
            }
            Step::SayArming => self.put_mark(&head, cache_id),
            Step::PutMark => {
                self.at(Step::FlushMark);
                self.flush_backing(For::Barrier);
            }
            Step::FlushMark => self.say(Step::SayOn, Mark::On),
            Step::SayRestoring => self.read_head(),
            Step::ReadHead => {
                self.at(Step::LookAtMark);
                let head = self.head_granules();
                self.try_barrier(|cache| cache.read(Side::Backing, Owner::Barrier, 0, head));
            }
            Step::PutBack => {
                self.at(Step::FlushBack);
                self.flush_backing(For::Barrier);
            }
            Step::FlushBack => self.head_is_back(&head),
            Step::Zeroing => self.part_is_zeroed(),
            Step::SayOn | Step::SayOff | Step::SayAside | Step::GivingBack => self.end_task(),
            Step::GivingHeadBack
            | Step::Quiet
            | Step::RecordHead
            | Step::RecordBack
            | Step::LookAtMark => {}
            Step::ForgetClean | Step::ForgetNewer => {}
        }
    }

    /// What the mark replaces is kept, if the device begins as it was left: else something has written there, another cache
    /// for instance, and what is cached is of another content.
    fn keep_head(&mut self, head: &[u8]) {
        let header = self.header.as_ref();
        if let Some(Err(error)) = header.map(|header| check_unmarked(header, head)) {
            return self.is_not_as_left(&error);
        }
        self.at(Step::KeepHead);
        self.try_barrier(|cache| cache.write(Target::FAST, Owner::Barrier, 0, head));
    }

    /// The mark is taken away, if it is this cache's.
    fn mark_was_looked_at(&mut self, found: &[u8]) {
        let barrier = self.barrier.as_ref();
        let head = barrier.map(|one| one.head.clone()).unwrap_or_default();
        let header = self.header.as_ref();
        if let Some(Err(error)) = header.map(|header| check_marked(header, found, &head)) {
            return self.is_not_as_left(&error);
        }
        if self.is_arming() {
            // What was put half is put again.
            let cache = self.header.as_ref().map(|header| header.cache);
            return self.put_mark(&head, cache.unwrap_or_default());
        }
        self.at(Step::PutBack);
        let to = Target::backing(Durability::Durable);
        self.try_barrier(|cache| cache.write(to, Owner::Barrier, 0, &head));
    }

    /// Something else writes to the backing device: nothing may go there any more.
    fn is_not_as_left(&mut self, error: &IoError) {
        self.fail(error.context().to_owned());
        self.give_up_tasks();
    }

    fn is_arming(&self) -> bool {
        let header = self.header.as_ref();
        header.is_some_and(|header| header.mark == Mark::Arming)
    }

    fn put_mark(&mut self, head: &[u8], cache: uuid::Uuid) {
        self.at(Step::PutMark);
        let marked = mark::put(head, cache);
        let to = Target::backing(Durability::Durable);
        self.try_barrier(|cache| cache.write(to, Owner::Barrier, 0, &marked));
    }

    fn read_head(&mut self) {
        self.at(Step::ReadHead);
        let head = self.head_granules();
        self.try_barrier(|cache| cache.read(Side::Fast, Owner::Barrier, 0, head));
    }

    fn head_is_back(&mut self, head: &[u8]) {
        if head.is_empty() {
            // There was no mark: everything has been flushed.
            return self.end_task();
        }
        for granule in 0..self.head_granules() {
            self.record(granule, State::Clean);
            self.put(granule, State::Clean);
        }
        for block in Self::blocks(0, self.head_granules()) {
            self.policy
                .insert(block, crate::policy::Admission::Ordinary);
        }
        if let Some(header) = self.header_mut() {
            header.head_crc = Some(crc32c::crc32c(head));
            header.marked = None;
        }
        self.changed(0);
        self.at(Step::RecordBack);
    }

    fn forget_newer(&mut self) {
        let range = self.part();
        self.at(Step::ForgetNewer);
        for granule in self.known_in(&range) {
            if self.is_present(granule) {
                self.record(granule, State::Absent);
                self.put(granule, State::Absent);
                self.changed(granule / PAGE);
            }
        }
        let blocks = (range.start / BLOCK) as u32..range.end.div_ceil(BLOCK) as u32;
        for block in self.policy.known_in(blocks) {
            let first = u64::from(block.0) * BLOCK;
            if !(first..first + BLOCK).any(|granule| self.is_present(granule)) {
                self.policy.erase(block);
            }
        }
    }

    fn end_task(&mut self) {
        let Some(barrier) = self.barrier.take() else {
            return;
        };
        match barrier.task {
            Task::Arm => {}
            Task::Restore(id) => {
                self.draining = self.awaits_flush();
                let result = match id {
                    UNASKED => Ok(()),
                    _ => self.says_what_is_lost(id),
                };
                self.answers.push((id, result));
            }
            // What has waited meanwhile comes first.
            Task::Zero(whole, range) if barrier.part.end < range.end => {
                let left = Task::Zero(whole, barrier.part.end..range.end);
                return self.tasks.push_back(left);
            }
            Task::Zero(whole, _) => return self.piece_over(whole, Ok(())),
        }
        self.was_flushed();
    }

    /// Whether another flush is ordered.
    fn awaits_flush(&self) -> bool {
        let mut tasks = self.tasks.iter();
        tasks.any(|task| matches!(task, Task::Restore(_)))
    }

    /// The mark cannot be put now: the writes that wait for it are told. The next one has it tried again.
    fn fail_held(&mut self, error: &IoError) {
        let why = format!("the backing device cannot be marked: {}", error.context());
        for request in std::mem::take(&mut self.held) {
            let error = IoError::new(error.kind(), why.clone());
            self.done.push(request.complete(Err(error)));
        }
    }

    /// A mark that is half put, or half taken away, because the backing device has failed: when it is time, that is tried
    /// again.
    fn resume_mark(&mut self) {
        let mark = self.header.as_ref().map(|header| header.mark);
        let task = match mark {
            Some(Mark::Arming) => Task::Arm,
            Some(Mark::Restoring) => Task::Restore(UNASKED),
            _ => return,
        };
        if self.tasks.is_empty() && self.gets_on() {
            self.tasks.push_back(task);
        }
    }

    /// Whether a task waits for the backing device in a way that no read has to wait for: what begins that is in the cache.
    pub(super) fn lets_reads_pass(&self) -> bool {
        self.barrier
            .as_ref()
            .is_none_or(|barrier| barrier.step.is_at_the_backing_device())
    }

    /// The backing device has not done what a task needs: who waits for that is told.
    fn mark_failed(&mut self, task: Task, step: Step, error: &IoError) {
        // A flush that has failed has said so.
        if !matches!(step, Step::FlushMark | Step::FlushBack) {
            self.in_trouble(error);
        }
        match task {
            Task::Restore(id) => {
                self.draining = self.awaits_flush();
                self.answers.push((id, Err(again(error))));
            }
            Task::Arm => self.fail_held(error),
            Task::Zero(whole, _) => self.piece_over(whole, Err(again(error))),
        }
    }

    /// A device has not done what a task needs. Of the fast device nothing may go on then; the next start takes it up.
    fn barrier_failed(&mut self, error: &IoError) {
        if self.makes_do(error) {
            return;
        }
        let Some(barrier) = self.barrier.take() else {
            return;
        };
        match barrier.task {
            Task::Zero(whole, _) => {
                self.piece_over(whole, Err(again(error)));
            }
            task if barrier.step.is_at_the_backing_device() => {
                self.mark_failed(task, barrier.step, error)
            }
            Task::Arm if barrier.step == Step::ReadBacking => self.fail_held(error),
            task => {
                self.tasks.push_front(task);
                self.fail(format!("the mark on the backing device: {error}"));
                self.give_up_tasks();
            }
        }
    }

    /// After a crash that may have come while the mark was being put or taken away.
    pub(super) fn take_up_mark(&mut self, mark: Mark, head: Vec<u8>) {
        let cache = self
            .header
            .as_ref()
            .map(|header| header.cache)
            .unwrap_or_default();
        let (task, step) = match mark {
            Mark::Arming => (Task::Arm, Step::PutMark),
            Mark::Restoring => (Task::Restore(UNASKED), Step::ReadHead),
            Mark::Off | Mark::On => return,
        };
        self.barrier = Some(Barrier {
            task,
            step,
            head,
            part: 0..0,
            again_at: None,
        });
        match mark {
            Mark::Arming => {
                let head = self.barrier.as_ref().map(|one| one.head.clone());
                self.put_mark(&head.unwrap_or_default(), cache);
            }
            _ => self.read_head(),
        }
    }
}
