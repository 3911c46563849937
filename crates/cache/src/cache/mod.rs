//! The cache as a state machine: requests, completions and time in; requests for both devices out.

mod barrier;
mod clean;
mod compare;
mod evict;
mod flush;
mod io;
mod leaving;
mod loss;
mod open;
mod pages;
mod piece;
mod refused;
mod room;
mod space;
mod sweep;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use ashlar_block::{
    BlockSize, BufferPool, Completion, ErrorKind, Geometry, IoBuffer, IoError, Moment, Operation,
    Request,
};
use slab::Slab;

use crate::layout::{GRANULE, HEAD, Header, Layout, Mark, PAGE, UNIT, append_granule};
use crate::locks::Locks;
use crate::policy::{BlockIndex, S3Fifo, Streams};
use crate::rules::{RuleId, RuleStatus, Rules};
use barrier::{Barrier, Task, ZeroParts};
use clean::Cleaning;
use io::{Sent, joined};
use open::Opening;
use pages::{DuePages, Page};
use piece::Piece;
use room::Starved;
use space::Space;
use sweep::{Sweep, Sweeping};

/// Granules of a block, the unit of what stays and what goes: a slot of the fast volume.
const BLOCK: u64 = 2;
/// Pieces of hosts' requests under way at a time; and of reads that pass those, as many more.
const MOST_PIECES: usize = 512;
/// Memory for requests.
const MEMORY: usize = 128 << 20;

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The one that caches.
    Fast,
    /// The one that is cached.
    Backing,
}

/// What can be broken on purpose, to show that tests notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A granule is recorded as newer than the backing device before its data is written.
    DirtyBeforeData,
    /// What a host has written while it was on its way back is taken for written back.
    OvertakenIsClean,
    /// The same is on its way back twice: the older may come last.
    TwoRunsOfTheSame,
    /// A granule is recorded as clean before the backing device was flushed.
    CleanBeforeFlush,
    /// A write is acknowledged before what it cached is recorded.
    AcknowledgeBeforeRecord,
    /// A clean granule is written before it is recorded as newer than the backing device.
    DataBeforeDirty,
    /// What goes is deallocated before that is recorded.
    DropBeforeRecord,
    /// A write goes around before what is cached there is recorded as gone: a crash revives it.
    AroundBeforeRecord,
    /// What is clean is dropped when a cache is taken up after a crash.
    ColdAfterCrash,
    /// What was read is put on the fast device without the lock of its unit: over what was written there since.
    FillOverNewer,
    /// What a killed life has written past the cache counts as flushed, and what is read of it as clean.
    KilledLifeWasFlushed,
    /// A flush of the backing device is sent while another is under way.
    FlushesCross,
    /// What goes around and was on its way when a flush failed counts as there.
    LostOnItsWay,
    /// What was lost, and no host was told of, is known in memory alone.
    LossIsForgotten,
    /// Space that a crash has left behind stays taken.
    NothingIsSwept,
    /// It is given back without the locks of its units: also of what is being put there.
    SweptWithoutLock,
}

/// How a cache is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it knows of itself; `None` until it has read that.
    pub header: Option<Header>,
    /// Why it cannot be used.
    pub failure: Option<String>,
    /// It has been read and serves.
    pub is_open: bool,
    /// Bytes that are cached.
    pub cached_bytes: u64,
    /// Bytes that are newer than the backing device.
    pub dirty_bytes: u64,
    /// Pieces of reads that came from the fast device alone, and others.
    pub read_hits: u64,
    /// See there.
    pub read_misses: u64,
    /// Pieces of writes that went past the cache.
    pub written_around: u64,
    /// Bytes written back.
    pub written_back_bytes: u64,
    /// Writes to the backing device, or flushes of it, that failed.
    pub backing_errors: u64,
    /// What the backing device has failed last, of flushes of it and of its mark, until it has done it: it is tried again.
    pub trouble: Option<String>,
    /// What the fast device has said when it had no room, until it takes something new: writes go around meanwhile.
    pub no_room: Option<String>,
    /// A flush has failed over writes that went around, and no host was told yet.
    pub is_untold: bool,
    /// Nor was an operator: [`Cache::flush`] fails for that, once.
    pub is_unsaid: bool,
    /// Bytes of the device of which it was not looked yet whether a crash has left space behind.
    pub unswept_bytes: u64,
    /// Bytes of memory that the policy takes, and the pages of bits.
    pub policy_bytes: usize,
    /// See there.
    pub page_bytes: usize,
    /// What is kept out by hand.
    pub rules: Vec<RuleStatus>,
}

/// A host's request, cut into pieces.
struct Whole {
    tag: u64,
    op: Operation,
    /// The bytes of the device that it is about.
    bytes: Range<u64>,
    buffer: Option<IoBuffer>,
    /// A read of what is cached, which passes what waits for the backing device.
    passes: bool,
    left: usize,
    error: Option<IoError>,
}

/// Something that waits for devices, locks or pages.
enum Op {
    Piece(Piece),
    Clean(clean::Run),
    Evict(evict::Eviction),
    Sweep(Sweep),
}

/// Whom a device's answer is for.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Op(usize),
    Page(u64),
    Barrier,
    Open,
    /// What is compared, by its place.
    Compare(usize),
    /// A flush of the backing device.
    Flush(usize),
    /// The header that says whether something is lost.
    Loss,
}

/// Events for an operation that waits.
enum News {
    Granted,
    Recorded,
    /// There is no room for the page that it waits for, of which nothing is durable if it is new.
    NoRoom {
        is_new: bool,
    },
    Done(Side, Option<IoBuffer>, Result<(), IoError>),
}

/// A cache. See the crate.
pub struct Cache {
    now: Moment,
    layout: Layout,
    header: Option<Header>,
    /// Size of the blocks that hosts see.
    blocks: BlockSize,
    backing: Geometry,
    failure: Option<String>,
    /// See [`Status::trouble`].
    trouble: Option<String>,
    opening: Option<Opening>,
    pages: BTreeMap<u64, Page>,
    due: DuePages,
    locks: Locks,
    policy: S3Fifo,
    reads: Streams,
    writes: Streams,
    rules: Rules,
    ops: Slab<Op>,
    sent: Slab<Sent>,
    wholes: Slab<Whole>,
    waiting: VecDeque<Request>,
    /// Of hosts' requests, writes that may not begin yet, oldest first: what only reads passes them.
    held: VecDeque<Request>,
    /// And others that wait, while reads of what is cached pass them.
    passed: VecDeque<Request>,
    pieces: usize,
    /// Pieces of reads that pass: nothing waits for those.
    passing: usize,
    /// Of these, what is being put on the fast device.
    filling: usize,
    /// Losses of the backing device before the first of that.
    filling_since: u64,
    /// Writes that wait for room.
    starved: Starved,
    space: Space,
    barrier: Option<Barrier>,
    tasks: VecDeque<Task>,
    zero_parts: ZeroParts,
    draining: bool,
    cleaning: Cleaning,
    evicting: usize,
    around: flush::Around,
    flushes: flush::Flushes,
    loss: loss::LossRecord,
    sweeping: Sweeping,
    look: evict::Look,
    dirty: u64,
    cached: u64,
    /// When a host last asked for something.
    asked: Moment,
    buffers: BufferPool,
    /// Of [`MEMORY`], what tests do without.
    memory_left_out: usize,
    /// Pieces that wait for memory, oldest first.
    without_memory: VecDeque<usize>,
    granted: Vec<usize>,
    io: Vec<(Side, Request)>,
    done: Vec<Completion>,
    answers: Vec<(u64, Result<(), IoError>)>,
    counters: Counters,
    defect: Option<Defect>,
}

#[derive(Default)]
struct Counters {
    read_hits: u64,
    read_misses: u64,
    around: u64,
    written_back: u64,
    backing_errors: u64,
}

/// How long a cache without commands waits until it writes back.
const IDLE: Duration = Duration::from_secs(2);

impl Cache {
    fn new(layout: Layout, backing: Geometry, now: Moment) -> Self {
        Self {
            now,
            layout,
            header: None,
            blocks: BlockSize::B4096,
            backing,
            failure: None,
            trouble: None,
            opening: None,
            pages: BTreeMap::new(),
            due: DuePages::default(),
            locks: Locks::default(),
            policy: S3Fifo::new(1),
            reads: Streams::of_reads(),
            writes: Streams::of_writes(),
            rules: Rules::default(),
            ops: Slab::new(),
            sent: Slab::new(),
            wholes: Slab::new(),
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            passed: VecDeque::new(),
            pieces: 0,
            passing: 0,
            filling: 0,
            filling_since: 0,
            starved: Starved::default(),
            space: Space::default(),
            barrier: None,
            tasks: VecDeque::new(),
            zero_parts: ZeroParts::new(now),
            draining: false,
            cleaning: Cleaning::default(),
            evicting: 0,
            around: flush::Around::default(),
            flushes: flush::Flushes::default(),
            loss: loss::LossRecord::default(),
            sweeping: Sweeping::new(now),
            look: evict::Look::new(now),
            dirty: 0,
            cached: 0,
            asked: now,
            buffers: BufferPool::new(MEMORY),
            memory_left_out: 0,
            without_memory: VecDeque::new(),
            granted: Vec::new(),
            io: Vec::new(),
            done: Vec::new(),
            answers: Vec::new(),
            counters: Counters::default(),
            defect: None,
        }
    }

    /// Breaks the cache. Does nothing in builds without the feature `canary`.
    pub fn break_on_purpose(&mut self, defect: Defect) {
        if cfg!(feature = "canary") {
            self.defect = Some(defect);
        }
    }

    /// Has so little memory for requests. Does nothing in builds without the feature `canary`.
    #[must_use]
    pub fn in_memory_of(mut self, bytes: usize) -> Self {
        if cfg!(feature = "canary") {
            self.memory_left_out = MEMORY.saturating_sub(bytes);
        }
        self
    }

    fn sings(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// What hosts see: the backing device's bytes in blocks.
    pub fn geometry(&self) -> Geometry {
        let more = 12 - self.blocks.shift();
        Geometry {
            atomic_blocks: 1,
            max_blocks: 256 << more,
            optimal_blocks: (UNIT as u32) << more,
            volatile_cache: true,
            deallocates: self.backing.deallocates,
            ..Geometry::plain(self.blocks, self.layout.bytes() >> self.blocks.shift())
        }
    }

    /// How it is.
    pub fn status(&self) -> Status {
        Status {
            header: self.header.clone(),
            failure: self.failure.clone(),
            is_open: self.is_open(),
            cached_bytes: self.cached * GRANULE as u64,
            dirty_bytes: self.dirty * GRANULE as u64,
            read_hits: self.counters.read_hits,
            read_misses: self.counters.read_misses,
            written_around: self.counters.around,
            written_back_bytes: self.counters.written_back * GRANULE as u64,
            backing_errors: self.counters.backing_errors,
            trouble: self.trouble.clone(),
            no_room: self.space.refusal.clone(),
            is_untold: self.around.is_untold(),
            is_unsaid: self.around.is_unsaid(),
            unswept_bytes: self.unswept_bytes(),
            policy_bytes: self.policy.bytes(),
            page_bytes: self.pages.values().map(Page::bytes).sum(),
            rules: self.rules.status(),
        }
    }

    /// See [`Status::unswept_bytes`].
    pub fn unswept_bytes(&self) -> u64 {
        self.sweeping.bytes_left()
    }

    /// Blocks of the fast device that are to hold something: what is cached, and what counts as if it was until it goes.
    pub fn held_blocks(&self) -> u64 {
        let all = self
            .pages
            .iter()
            .flat_map(|(&page, bits)| bits.blocks(page));
        let others = all.filter(|&block| !self.policy.has(block)).count();
        (self.policy.len() + others) as u64
    }

    /// See [`Status::trouble`].
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// See [`Status::failure`].
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether it serves.
    pub fn is_open(&self) -> bool {
        self.opening.is_none() && self.failure.is_none()
    }

    /// What is newer than the backing device: bytes from, bytes.
    pub fn dirty_ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (&page, bits) in &self.pages {
            for at in bits.dirty.iter() {
                append_granule(&mut ranges, page * PAGE + at as u64);
            }
        }
        self.layout.clip(ranges)
    }

    /// Takes a request; [`advance`](Self::advance) must follow.
    pub fn submit(&mut self, request: Request) {
        self.asked = self.now;
        if request.op == Operation::Flush && self.opening.is_none() {
            // It waits for nothing but the device, and has to tell what hosts were not told of by now.
            return self.begin(request);
        }
        self.waiting.push_back(request);
    }

    /// From now on these granules are kept out: reads of them do not enter, and what is written there is absorbed and
    /// leaves soon. What is cached of them stays until it is its turn. The rule's ranges before are forgotten.
    pub fn set_rule(&mut self, id: RuleId, granules: Vec<Range<u64>>) {
        self.rules.set(id, granules);
    }

    /// The rule keeps nothing out any more.
    pub fn remove_rule(&mut self, id: RuleId) {
        self.rules.remove(id);
    }

    /// Writes everything back and puts the backing device's head back; the answer has this number.
    pub fn flush(&mut self, id: u64) {
        self.draining = true;
        self.cleaning.sweeps = 0;
        self.tasks.push_back(Task::Restore(id));
    }

    /// What devices answer from here on, they have answered by this moment.
    pub fn it_is(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    /// Takes a device's answer; [`advance`](Self::advance) must follow.
    pub fn completed(&mut self, side: Side, completion: Completion) {
        let Completion {
            tag,
            buffer,
            result,
        } = completion;
        let Some(sent) = self.sent.try_remove(tag as usize) else {
            return;
        };
        if sent.side != side {
            return self.fail("a device has answered for the other".to_owned());
        }
        self.look.has_news = true;
        let owner = sent.owner;
        let Ok(buffer) = joined(buffer, sent.beyond) else {
            return self.fail("a device has answered with another buffer".to_owned());
        };
        match owner {
            Owner::Op(op) => self.tell(op, News::Done(side, buffer, result)),
            Owner::Page(page) => self.page_written(page, result),
            Owner::Barrier => self.barrier_done(buffer, result),
            Owner::Open => self.opened(buffer, result),
            Owner::Compare(at) => {
                let done = self.read_to_compare(at, buffer, result);
                self.or_fail(done);
            }
            Owner::Flush(flush) => self.flush_is_over(flush, &result),
            Owner::Loss => self.loss_is_recorded(&result),
        }
    }

    /// Does what can be done now.
    pub fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
        loop {
            let had_failed = self.failure.is_some();
            // In order: what a host asks for in one request lies one behind the other on the backing device.
            for op in std::mem::take(&mut self.granted) {
                self.tell(op, News::Granted);
            }
            self.go_on_with_memory();
            self.admit();
            if self.failure.is_some() {
                self.advance_barrier();
                self.let_go();
            } else if self.opening.is_none() {
                self.evict();
                self.feed();
                self.write_back();
                self.settle();
                self.record_loss();
                self.sweep();
                // Behind those: a barrier that follows another at once would leave them no turn.
                self.advance_barrier();
            }
            self.write_pages();
            let fails_now = self.failure.is_some() && !had_failed;
            if self.granted.is_empty() && !fails_now {
                break;
            }
        }
    }

    /// Requests for the devices, and answers to hosts.
    pub fn take(&mut self, io: &mut Vec<(Side, Request)>, done: &mut Vec<Completion>) {
        io.append(&mut self.io);
        done.append(&mut self.done);
    }

    /// Answers to [`flush`](Self::flush).
    pub fn take_answers(&mut self) -> Vec<(u64, Result<(), IoError>)> {
        std::mem::take(&mut self.answers)
    }

    /// When `advance` must be called next even if nothing happens.
    pub fn next_deadline(&self) -> Option<Moment> {
        if !self.is_open() {
            return None;
        }
        let idle = (self.dirty_elsewhere() > 0).then(|| self.asked + IDLE);
        let idle = idle.filter(|&at| at > self.now);
        let waits = [self.yield_deadline(), self.room_deadline()];
        let waits = waits
            .into_iter()
            .chain([self.pages_deadline(), self.barrier_deadline()])
            .chain([self.loss_deadline(), self.sweep_deadline()])
            .chain([self.look_deadline()]);
        let all = idle.into_iter().chain(waits.flatten());
        all.chain(self.settle_deadline()).min()
    }

    /// It can do nothing any more.
    fn fail(&mut self, why: String) {
        if self.failure.is_none() {
            self.failure = Some(why);
        }
        self.opening = None;
    }

    fn failure_error(&self) -> Option<IoError> {
        let why = self.failure.clone()?;
        Some(IoError::new(ErrorKind::Latched, why))
    }

    /// Begins requests, as far as they may.
    fn admit(&mut self) {
        loop {
            let all = self.failure.is_some() || self.has_room_for_requests();
            let busy = self.barrier.is_some() || self.holds_writes() || self.must_arm();
            let holds = self.failure.is_none() && busy;
            if all && let Some(request) = self.passed.pop_front() {
                self.begin(request);
                continue;
            }
            if all
                && !holds
                && let Some(request) = self.held.pop_front()
            {
                self.begin(request);
                continue;
            }
            if !all && self.opening.is_some() {
                break;
            }
            let Some(request) = self.waiting.pop_front() else {
                break;
            };
            if request.op == Operation::Flush && self.opening.is_none() {
                // It came while the cache was taken up.
                self.begin(request);
            } else if request.op.modifies() && (holds || !all) {
                self.held.push_back(request);
            } else if all {
                self.begin(request);
            } else if self.may_pass(&request) {
                self.begin_request(request, true);
            } else {
                self.passed.push_back(request);
            }
        }
        let arming = self.barrier.is_some() || self.tasks.contains(&Task::Arm);
        if !self.held.is_empty() && self.must_arm() && !arming {
            // Last: zeroes that were let in while there was no mark may go where it is put.
            self.tasks.push_back(Task::Arm);
        }
    }

    /// Whether hosts' requests may begin.
    fn has_room_for_requests(&self) -> bool {
        let busy = self.opening.is_some() || !self.lets_reads_pass();
        !busy && self.pieces < MOST_PIECES
    }

    /// Whether a request is a read of what is cached and needs not wait. But for the head, which a mark that finds no room
    /// gives back, what is done alone takes nothing away from one that is under way: of what becomes zeroes it has either.
    fn may_pass(&self, request: &Request) -> bool {
        let mut granules = self.granules_of(request);
        request.op == Operation::Read && self.passing < MOST_PIECES && granules.start >= HEAD && {
            granules
        }
        .all(|granule| self.is_present(granule))
    }

    fn bytes_of(&self, request: &Request) -> Range<u64> {
        let shift = self.blocks.shift();
        let start = request.range.start.0 << shift;
        start..start + (u64::from(request.range.count) << shift)
    }

    fn granules_of(&self, request: &Request) -> Range<u64> {
        let (bytes, granule) = (self.bytes_of(request), GRANULE as u64);
        bytes.start / granule..bytes.end.div_ceil(granule)
    }

    fn begin(&mut self, request: Request) {
        self.begin_request(request, false);
    }

    fn begin_request(&mut self, request: Request, passes: bool) {
        if let Some(error) = self.failure_error() {
            return self.done.push(request.complete(Err(error)));
        }
        let (bytes, granules) = (self.bytes_of(&request), self.granules_of(&request));
        let Request {
            tag, op, buffer, ..
        } = request;
        let whole = self.wholes.insert(Whole {
            tag,
            op,
            bytes: bytes.clone(),
            buffer,
            passes,
            left: 1,
            error: None,
        });
        let granule = GRANULE as u64;
        match op {
            Operation::Flush => self.begin_hosts_flush(whole),
            Operation::Deallocate if !self.backing.deallocates => self.piece_over(whole, Ok(())),
            Operation::WriteZeroes { .. } | Operation::Deallocate => {
                // What begins the device is never taken out of the cache while the mark is there; and a part of a
                // granule is written.
                let from = bytes.start.div_ceil(granule).max(self.head());
                let zeroed = from..bytes.end / granule;
                if zeroed.is_empty() {
                    self.begin_pieces(whole, granules);
                    return self.piece_over(whole, Ok(()));
                }
                self.begin_pieces(whole, granules.start..zeroed.start);
                self.begin_pieces(whole, zeroed.end..granules.end);
                self.tasks.push_back(Task::Zero(whole, zeroed));
            }
            Operation::Read | Operation::Write(_) => {
                self.begin_pieces(whole, granules);
                self.piece_over(whole, Ok(()));
            }
        }
    }

    /// Granules that the mark replaces.
    fn head(&self) -> u64 {
        let header = self.header.as_ref();
        let marked = header.is_some_and(|header| header.mark != Mark::Off);
        if marked {
            HEAD.min(self.layout.granules)
        } else {
            0
        }
    }

    fn begin_pieces(&mut self, whole: usize, granules: Range<u64>) {
        let Some(Whole { op, .. }) = self.wholes.get(whole) else {
            return;
        };
        if granules.is_empty() {
            return;
        }
        let streams = match op {
            Operation::Read => &mut self.reads,
            _ => &mut self.writes,
        };
        let count = granules.end - granules.start;
        let is_stream = streams.follow(granules.start * GRANULE as u64, count * GRANULE as u64);
        let mut at = granules.start;
        while at < granules.end {
            let to = ((at / UNIT + 1) * UNIT).min(granules.end);
            if let Some(whole) = self.wholes.get_mut(whole) {
                whole.left += 1;
            }
            self.begin_piece(whole, at..to, is_stream);
            at = to;
        }
    }

    /// A part of a request is over.
    fn piece_over(&mut self, whole: usize, result: Result<(), IoError>) {
        let Some(one) = self.wholes.get_mut(whole) else {
            return;
        };
        one.left -= 1;
        if let Err(error) = result {
            one.error.get_or_insert(error);
        }
        if one.left == 0 {
            let one = self.wholes.remove(whole);
            self.done.push(Completion {
                tag: one.tag,
                buffer: one.buffer,
                result: one.error.map_or(Ok(()), Err),
            });
        }
    }

    fn tell(&mut self, op: usize, news: News) {
        match self.ops.get(op) {
            Some(Op::Piece(_)) => self.piece_news(op, news),
            Some(Op::Clean(_)) => self.run_news(op, news),
            Some(Op::Evict(_)) => self.eviction_news(op, news),
            Some(Op::Sweep(_)) => self.sweep_news(op, news),
            None => {}
        }
    }

    /// Blocks that granules lie in.
    fn blocks(first: u64, end: u64) -> impl Iterator<Item = BlockIndex> {
        (first / BLOCK..end.div_ceil(BLOCK)).map(|block| BlockIndex(block as u32))
    }
}
