//! A simulated drive: it answers in any order and late, has a volatile cache, loses power, dies,
//! stalls, and, within what the world allows, lies.
//!
//! The medium outlives the processes that use it; [`Handle`] is what an engine gets to see.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ashlar_block::{
    BlockDevice, BlockRange, BlockSize, Completion, Description, Durability, ErrorKind, Geometry,
    IoError, Moment, Operation, Request,
};

use super::pages::{Covered, PAGE, Pages, UNIT};
use super::rig::{Cut, Rig};
use crate::chance::Chance;

/// How long things take on a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Longest usual service time.
    pub(crate) time: Duration,
    /// Longest of the slow ones.
    pub(crate) slow: Duration,
    /// How many of a thousand are slow.
    pub(crate) slow_per_mille: u32,
    /// Whether requests take effect in two pieces, at different times.
    pub(crate) pieces: bool,
}

/// How many of a thousand writes a drive lies about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lies {
    /// Written to another place.
    pub(crate) misdirected: u32,
    /// Not written at all.
    pub(crate) phantom: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Honest,
    Elsewhere(u64),
    None,
}

struct Pending {
    request: Request,
    /// The first blocks take effect here, the others at `done_at`.
    first_at: Moment,
    first: u32,
    started: bool,
    done_at: Moment,
    cached: Option<u64>,
    covered: Option<Covered>,
    effect: Effect,
    failed: bool,
    /// What of it was done by then is lost.
    lost: bool,
}

impl Pending {
    fn due(&self) -> Moment {
        if self.started {
            self.done_at
        } else {
            self.first_at
        }
    }
}

pub(crate) struct Drive {
    rig: Rc<Rig>,
    index: usize,
    geometry: Geometry,
    pub(crate) pages: Pages,
    chance: Chance,
    pace: Pace,
    pub(crate) lies: Lies,
    dead: bool,
    stalled_until: Moment,
    /// Until then most requests find no space, or no memory.
    short_until: Moment,
    /// It takes requests and does nothing with them, until then or for ever.
    hung: Option<Hang>,
    /// While it is short, a flush may fail, and then what it was to make durable is lost.
    pub(crate) loses_at_flush: bool,
    /// What that has done since it was last asked.
    loss: Loss,
    /// Of a thousand answers, those that come late, and so behind others.
    pub(crate) late_per_mille: u32,
    late: Vec<Late>,
    pending: Vec<Pending>,
    handles: usize,
}

/// What a drive has lost of its cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loss {
    /// Something may be lost.
    pub(crate) any: bool,
    /// Something that was acknowledged, or is now.
    pub(crate) acknowledged: bool,
}

/// What is done, and not answered yet.
struct Late {
    at: Moment,
    cached: Option<u64>,
    lost: bool,
    completion: Completion,
}

/// How long a drive hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hang {
    Until(Moment),
    Forever,
}

/// How large a drive is, and its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriveSize {
    pub(crate) block_size: BlockSize,
    pub(crate) bytes: u64,
}

/// A drive that its handles and the world share.
pub(crate) type Shared = Rc<RefCell<Drive>>;

impl Drive {
    pub(crate) fn new(
        rig: &Rc<Rig>,
        index: usize,
        size: DriveSize,
        pace: Pace,
        mut chance: Chance,
    ) -> Shared {
        let DriveSize { block_size, bytes } = size;
        let mut geometry = Geometry::plain(block_size, bytes >> block_size.shift());
        geometry.volatile_cache = true;
        geometry.deallocates = chance.happens(500);
        geometry.max_blocks = (1 << 20) >> block_size.shift();
        Rc::new(RefCell::new(Self {
            rig: rig.clone(),
            index,
            geometry,
            pages: Pages::new(bytes),
            chance,
            pace,
            lies: Lies::default(),
            dead: false,
            stalled_until: Moment::ORIGIN,
            short_until: Moment::ORIGIN,
            hung: None,
            loses_at_flush: false,
            loss: Loss::default(),
            late_per_mille: 0,
            late: Vec::new(),
            pending: Vec::new(),
            handles: 0,
        }))
    }

    /// Dies: every request fails from now on, also those on their way.
    pub(crate) fn die(&mut self) {
        self.lose_pending();
        self.dead = true;
    }

    /// Comes back with what it held; its cache may not have: then true.
    pub(crate) fn revive(&mut self) -> bool {
        self.hung = None;
        let lost = std::mem::take(&mut self.dead) && self.chance.happens(500);
        if lost {
            self.pages.lose_cache(&mut self.chance);
        }
        lost
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// What a flush has lost since this was last asked.
    pub(crate) fn takes_loss(&mut self) -> Loss {
        std::mem::take(&mut self.loss)
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.late.is_empty()
    }

    /// Whether an answer that is late says that something has failed.
    pub(crate) fn has_bad_news(&self) -> bool {
        let mut late = self.late.iter();
        late.any(|one| one.completion.result.is_err())
    }

    /// Whether it is dead.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Answers nothing for a while.
    pub(crate) fn stall(&mut self, until: Moment) {
        self.stalled_until = self.stalled_until.max(until);
    }

    /// Has no space, or no memory, for a while.
    pub(crate) fn run_short(&mut self, until: Moment) {
        self.short_until = self.short_until.max(until);
    }

    /// Has space and memory again.
    pub(crate) fn end_shortage(&mut self) {
        self.short_until = Moment::ORIGIN;
    }

    /// What a request lacks, if it lacks something: it may be done in part then.
    fn shortage(&mut self, op: Operation) -> Option<ErrorKind> {
        if self.rig.now() >= self.short_until || self.chance.happens(300) {
            return None;
        }
        match op {
            Operation::Read => Some(ErrorKind::Exhausted),
            Operation::Write(_) => Some(
                self.chance
                    .pick(&[ErrorKind::NoSpace, ErrorKind::Exhausted]),
            ),
            Operation::Flush if self.loses_at_flush => {
                self.lose_at_flush();
                Some(ErrorKind::Media)
            }
            _ => None,
        }
    }

    fn lose_at_flush(&mut self) {
        self.loss.any = true;
        self.loss.acknowledged |= self.pages.may_lose_acknowledged();
        self.pages.lose_cache(&mut self.chance);
        // What of these was done is lost, and they are answered all the same.
        for one in &mut self.pending {
            one.lost |= one.cached.is_some() && one.started && one.first > 0;
        }
        for one in &mut self.late {
            one.lost |= one.cached.is_some();
        }
    }

    /// Takes requests and does nothing with them.
    pub(crate) fn hang(&mut self, how: Hang) {
        self.hung = Some(how);
    }

    /// Whether it hangs now.
    pub(crate) fn is_hung(&self) -> bool {
        match self.hung {
            Some(Hang::Forever) => true,
            Some(Hang::Until(at)) => self.rig.now() < at,
            None => false,
        }
    }

    /// Whether it answers nothing that is of use.
    pub(crate) fn is_silent(&self) -> bool {
        self.dead || self.is_hung()
    }

    /// When something happens next.
    pub(crate) fn next(&self) -> Option<Moment> {
        if self.dead || self.rig.is_off() {
            return (!self.is_idle()).then(|| self.rig.now());
        }
        let late = self.late.iter().map(|one| one.at);
        let due = self.pending.iter().map(Pending::due).chain(late).min();
        let due = due.map(|due| due.max(self.stalled_until));
        match self.hung {
            Some(Hang::Forever) => None,
            Some(Hang::Until(at)) => due.map(|due| due.max(at)),
            None => due,
        }
    }

    /// The process that used the drive is gone, and what was on its way happened in part; with the
    /// power, what was in the cache goes too.
    pub(crate) fn crash(&mut self, power_lost: bool) {
        self.lose_pending();
        self.pending.clear();
        self.late.clear();
        // Nothing has heard of that.
        self.loss.acknowledged = false;
        self.stalled_until = Moment::ORIGIN;
        self.end_shortage();
        // A drive that hangs may need more than that.
        if self.hung == Some(Hang::Forever) && self.chance.happens(500) {
            self.rig.note(|| format!("drive {} hangs on", self.index));
        } else {
            self.hung = None;
        }
        if power_lost {
            self.pages.lose_cache(&mut self.chance);
        }
    }

    /// What is on its way happens in part, or not at all, and fails.
    fn lose_pending(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        for one in pending.iter_mut().filter(|one| !one.failed) {
            one.failed = true;
            if one.request.op.modifies() {
                self.tear(one);
            }
            if let Some(write) = one.cached {
                self.pages.complete(write);
            }
        }
        self.pending = pending;
        for one in &mut self.late {
            if let Some(write) = one.cached.take() {
                self.pages.complete(write);
            }
        }
    }

    /// Some units of a write happen, in no order.
    fn tear(&mut self, one: &Pending) {
        let bytes = self.geometry.range_bytes(one.request.range);
        let happens = self.chance.pick(&[0, 0, 200, 500, 800, 1000, 1000]);
        if happens == 0 {
            return;
        }
        let upto = if self.chance.happens(300) {
            self.chance.below(bytes as u64 + 1) as usize / UNIT
        } else {
            bytes / UNIT
        };
        for unit in 0..upto {
            if happens == 1000 || self.chance.happens(happens) {
                self.put(one, unit * UNIT, UNIT);
            }
        }
    }

    /// Bytes `from..from + len` of a request take effect on the medium.
    fn put(&mut self, one: &Pending, from: usize, len: usize) {
        let at = match one.effect {
            Effect::Honest => self.geometry.range_offset(one.request.range),
            Effect::Elsewhere(at) => at,
            Effect::None => return,
        };
        let at = at + from as u64;
        match (one.request.op, one.request.buffer.as_deref()) {
            (Operation::Write(_), Some(data)) => {
                if let Some(data) = data.get(from..from + len) {
                    self.pages.write(at, data, one.cached);
                }
            }
            (Operation::WriteZeroes { .. } | Operation::Deallocate, _) => {
                self.pages.zero(at, len, one.cached);
            }
            _ => {}
        }
    }

    fn plan(&mut self, request: Request) -> Pending {
        let now = self.rig.now();
        let slow = self.chance.happens(self.pace.slow_per_mille);
        let most = if slow { self.pace.slow } else { self.pace.time };
        let takes = self.chance.time(most) + Duration::from_nanos(500);
        let share = self.chance.below(takes.as_nanos() as u64);
        let cached = match request.op {
            Operation::Write(Durability::Cached)
            | Operation::WriteZeroes {
                durability: Durability::Cached,
                ..
            }
            | Operation::Deallocate => Some(self.pages.begin_cached()),
            _ => None,
        };
        let first = match self.pace.pieces {
            true => self.chance.below(u64::from(request.range.count) + 1) as u32,
            false => 0,
        };
        Pending {
            first_at: Moment::from_nanos(now.as_nanos() + share),
            first,
            started: first == 0,
            done_at: now + takes,
            cached,
            covered: (request.op == Operation::Flush).then(|| self.pages.begin_flush()),
            effect: self.effect(&request),
            failed: false,
            lost: false,
            request,
        }
    }

    /// Whether the drive will do what it says.
    fn effect(&mut self, request: &Request) -> Effect {
        if !matches!(request.op, Operation::Write(_)) {
            // Deallocated blocks may read as before.
            let skip = request.op == Operation::Deallocate && self.chance.happens(500);
            return if skip { Effect::None } else { Effect::Honest };
        }
        if self.chance.happens(self.lies.phantom) {
            self.rig
                .note(|| format!("drive {} will not write {}", self.index, request.range));
            return Effect::None;
        }
        if self.chance.happens(self.lies.misdirected)
            && let Some(at) = self.pages.used_page(&mut self.chance)
        {
            let bytes = self.geometry.range_bytes(request.range) as u64;
            let at = at.min(self.pages.bytes().saturating_sub(bytes)) / PAGE as u64 * PAGE as u64;
            self.rig.note(|| {
                let index = self.index;
                format!("drive {index} will write {} to byte {at}", request.range)
            });
            return Effect::Elsewhere(at);
        }
        Effect::Honest
    }

    fn submit(&mut self, request: Request) {
        self.rig.note(|| {
            let Request { tag, op, range, .. } = &request;
            format!("  drive {} < {tag:x} {op:?} {range}", self.index)
        });
        if let Err(what) = self.check(&request) {
            self.rig
                .violate(format!("the engine asks drive {} {what}", self.index));
        }
        let mut pending = self.plan(request);
        if self.dead || self.rig.is_off() {
            pending.failed = true;
            pending
                .cached
                .into_iter()
                .for_each(|w| self.pages.complete(w));
        }
        self.pending.push(pending);
    }

    fn check(&self, request: &Request) -> Result<(), String> {
        let Request { op, range, .. } = request;
        let inside = self.geometry.check(*range).is_ok();
        let length = self.geometry.range_bytes(*range);
        let whole = match (&request.buffer, op.has_buffer()) {
            (Some(buffer), true) => buffer.len() == length,
            (None, false) => true,
            _ => false,
        };
        let sized = !op.has_buffer() || (1..=self.geometry.max_blocks).contains(&range.count);
        if inside && whole && sized {
            return Ok(());
        }
        Err(format!("for {op:?} of {range}, which is malformed"))
    }

    /// Lets happen what is due.
    fn poll(&mut self, done: &mut Vec<Completion>) {
        let now = self.rig.now();
        let stands = self.is_hung() || self.stalled_until > now;
        while !self.dead && !self.rig.is_off() && !stands {
            let due = self.pending.iter().enumerate();
            let due = due.filter(|(_, one)| one.due() <= now && !one.failed);
            let Some((at, _)) = due.min_by_key(|(_, one)| one.due()) else {
                break;
            };
            if self.pending[at].started {
                let one = self.pending.remove(at);
                done.extend(self.finish(one));
            } else {
                self.start(at);
            }
        }
        if !stands && !self.is_gone() {
            self.answer_late(done);
        }
        if self.rig.is_off() || self.dead {
            self.lose_pending();
        }
        self.fail(done);
    }

    /// Requests of a process that has let go of the drive while it hung happen, and nothing hears of them.
    pub(crate) fn serve_the_gone(&mut self) {
        if self.handles == 0 && !self.is_silent() && self.next().is_some() {
            self.poll(&mut Vec::new());
        }
    }

    fn start(&mut self, at: usize) {
        let mut one = self.pending.remove(at);
        one.started = true;
        let bytes = (one.first as usize) << self.geometry.block_size.shift();
        if one.request.op.modifies() {
            self.put(&one, 0, bytes);
        } else {
            one.failed |= !self.fetch(&mut one, 0..bytes);
        }
        self.pending.insert(at, one);
    }

    /// Reads part of a request; false if the medium cannot.
    fn fetch(&self, one: &mut Pending, part: std::ops::Range<usize>) -> bool {
        let at = self.geometry.range_offset(one.request.range) + part.start as u64;
        let buffer = one.request.buffer.as_deref_mut();
        let Some(target) = buffer.and_then(|buffer| buffer.get_mut(part)) else {
            return true;
        };
        self.pages.read(at, target)
    }

    /// The rest of a request takes effect, and it is answered, unless the power fails at it.
    fn finish(&mut self, mut one: Pending) -> Option<Completion> {
        let changes = one.request.op.modifies() || one.request.op == Operation::Flush;
        if changes && let Some(cut) = self.rig.change() {
            self.rig.note(|| {
                let (op, range) = (one.request.op, one.request.range);
                format!(
                    "power fails at {op:?} {range} of drive {}: {cut:?}",
                    self.index
                )
            });
            one.failed = true;
            if cut == Cut::Torn && one.request.op.modifies() {
                self.tear(&one);
            }
            // If only the node fails, what has happened of it is in the cache like all else, and later flushes cover it.
            if let Some(write) = one.cached {
                self.pages.complete(write);
            }
            self.pending.push(one);
            return None;
        }
        let bytes = self.geometry.range_bytes(one.request.range);
        let from = (one.first as usize) << self.geometry.block_size.shift();
        let mut result = Ok(());
        if let Some(kind) = self.shortage(one.request.op) {
            result = Err(IoError::new(kind, format!("drive {}: not now", self.index)));
        } else if one.request.op.modifies() {
            self.put(&one, from, bytes - from);
        } else if let Some(covered) = &one.covered {
            self.pages.flush(covered);
        } else if !self.fetch(&mut one, from..bytes) {
            result = Err(self.media_error(one.request.range));
        }
        let late = Late {
            at: self.rig.now(),
            cached: one.cached,
            lost: one.lost,
            completion: one.request.complete(result),
        };
        if self.late_per_mille > 0 && self.chance.happens(self.late_per_mille) {
            let most = match self.chance.happens(300) {
                true => Duration::from_millis(100),
                false => self.pace.slow * 4,
            };
            let at = late.at + self.chance.time(most) + self.pace.time;
            self.late.push(Late { at, ..late });
            return None;
        }
        Some(self.answer(late))
    }

    /// What is done is answered.
    fn answer(&mut self, one: Late) -> Completion {
        let is_done = one.completion.result.is_ok();
        if let Some(write) = one.cached {
            self.pages.complete(write);
            if is_done {
                self.pages.acknowledge(write);
            }
        }
        self.loss.acknowledged |= one.lost && is_done;
        self.rig.note(|| {
            let how = if is_done { "done" } else { "media error" };
            format!("  drive {} > {:x} {how}", self.index, one.completion.tag)
        });
        one.completion
    }

    fn answer_late(&mut self, done: &mut Vec<Completion>) {
        let now = self.rig.now();
        let due: Vec<Late> = self.late.extract_if(.., |one| one.at <= now).collect();
        for one in due {
            done.push(self.answer(one));
        }
    }

    fn is_gone(&self) -> bool {
        self.dead || self.rig.is_off()
    }

    fn media_error(&self, range: BlockRange) -> IoError {
        IoError::new(
            ErrorKind::Media,
            format!("{range} of simulated drive {}", self.index),
        )
    }

    /// Answers what has failed.
    fn fail(&mut self, done: &mut Vec<Completion>) {
        let gone = self.is_gone();
        for mut late in self.late.extract_if(.., |_| gone) {
            let context = format!("simulated drive {} is gone", self.index);
            late.completion.result = Err(IoError::new(ErrorKind::Disconnected, context));
            done.push(late.completion);
        }
        for one in self.pending.extract_if(.., |one| one.failed) {
            let kind = if gone {
                ErrorKind::Disconnected
            } else {
                ErrorKind::Media
            };
            let context = format!("{} of simulated drive {}", one.request.range, self.index);
            self.rig
                .note(|| format!("  drive {} > {:x} {kind:?}", self.index, one.request.tag));
            done.push(one.request.complete(Err(IoError::new(kind, context))));
        }
    }
}

/// A drive as an engine sees it.
pub(crate) struct Handle(Shared);

impl Handle {
    /// A handle of `drive`.
    pub(crate) fn open(drive: &Shared) -> Box<dyn BlockDevice> {
        drive.borrow_mut().handles += 1;
        Box::new(Self(drive.clone()))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.borrow_mut().handles -= 1;
    }
}

impl BlockDevice for Handle {
    fn geometry(&self) -> Geometry {
        self.0.borrow().geometry
    }

    fn submit(&mut self, request: Request) {
        self.0.borrow_mut().submit(request);
    }

    fn poll(&mut self, _: Moment, done: &mut Vec<Completion>) {
        self.0.borrow_mut().poll(done);
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.0.borrow().next()
    }

    fn describe(&self) -> Description {
        Description::leaf(format!("simulated drive {}", self.0.borrow().index))
    }
}
