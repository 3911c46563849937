use std::collections::VecDeque;
use std::time::Duration;

use ashlar_block::{
    BlockRange, BufferPool, Completion, Durability, IoBuffer, IoError, Moment, Operation, Request,
};

use super::content::{Outcome, Settled};
use super::pace::Pace;
use super::{Content, Job, Walk, random_fill};
use crate::access::Share;
use crate::measure::{Measured, SeriesShape};
use crate::{Found, LabError, Worker};

/// How long after the end what is still in flight may take.
const DRAIN: Duration = Duration::from_secs(60);
/// A worker gives up after this many failures without a success between.
const MOST_FAILURES: u32 = 1000;
/// An event loop gets a turn at least every so many rounds, however busy the device's `poll` is.
const ROUNDS_PER_TURN: u32 = 32;
/// That a load is to end before its time is noticed at least this often, whatever the device does.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Timers are late by up to this much: an arrival nearer than this is awaited by polling.
const TIMER_SLACK: Duration = Duration::from_micros(50);

/// Told when measuring begins and ends; one worker of a repeat reads the machine's counters then.
pub(crate) trait Watcher {
    fn begins(&mut self) {}
    fn ends(&mut self) {}
}

impl Watcher for () {}

/// What an access does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Read,
    Write,
    Flush,
    Trim,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    since: Moment,
    unit: u64,
    generation: u64,
    kind: Kind,
    /// Which of the sizes.
    size: usize,
    busy: bool,
}

/// A size of accesses, and free buffers of it.
struct Size {
    bytes: u32,
    blocks: u32,
    /// Of a hundred draws, those below this have this size or one before.
    below: u8,
    reads: Vec<IoBuffer>,
    writes: Vec<IoBuffer>,
}

/// One worker's load, while it runs.
pub(crate) struct Load<'a> {
    worker: &'a mut dyn Worker,
    job: &'a Job,
    span: u32,
    durability: Durability,
    walk: Walk,
    mix: fastrand::Rng,
    content: Content,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots whose users think, and until when: the first of them longest.
    thinking: VecDeque<(Moment, u32)>,
    /// Accesses in flight.
    busy: usize,
    /// Writes begun since the last flush.
    unflushed: u32,
    sizes: Vec<Size>,
    pool: BufferPool,
    measured: Measured,
    clock: Clock,
    failures_in_a_row: u32,
}

/// Where measuring begins and ends, and which interval of the series is the current one.
struct Clock {
    from: Moment,
    until: Moment,
    shape: SeriesShape,
    interval: usize,
    interval_ends: Moment,
}

impl Clock {
    fn new(begin: Moment, job: &Job) -> Self {
        let shape = job.shape();
        let from = begin + job.warmup;
        Self {
            from,
            until: from + job.measure,
            shape,
            interval: 0,
            interval_ends: from + shape.interval,
        }
    }

    /// The interval of the series that `now` falls into, if it is measured.
    #[inline]
    fn interval(&mut self, now: Moment) -> Option<usize> {
        if now < self.from || now >= self.until {
            return None;
        }
        while now >= self.interval_ends && self.interval + 1 < self.shape.samples {
            self.interval += 1;
            self.interval_ends = self.interval_ends + self.shape.interval;
        }
        Some(self.interval)
    }
}

impl<'a> Load<'a> {
    /// Makes everything the load needs.
    pub(crate) fn new(
        worker: &'a mut dyn Worker,
        job: &'a Job,
        content: Content,
    ) -> Result<Self, LabError> {
        let depth = job.cell.depth as usize;
        let pool = worker.buffers();
        let take = |wanted: bool, bytes: u32| -> Result<Vec<IoBuffer>, LabError> {
            let many = if wanted { depth } else { 0 };
            let mut buffers = Vec::with_capacity(many);
            for index in 0..many {
                let mut buffer = get(&pool, bytes as usize)?;
                random_fill(&mut buffer, job.seed ^ ((index as u64) << 32));
                buffers.push(buffer);
            }
            Ok(buffers)
        };
        let mut below = 0;
        let size = |share: Share| {
            below += share.pct;
            Ok(Size {
                bytes: share.bytes,
                blocks: share.bytes / job.logical,
                below,
                reads: take(job.cell.read_pct > 0, share.bytes)?,
                writes: take(job.cell.writes(), share.bytes)?,
            })
        };
        let sizes = job.sizes().into_iter().map(size);
        let sizes = sizes.collect::<Result<Vec<_>, LabError>>()?;
        let walk = match job.cell.pattern.is_random() {
            true => Walk::random(job.area, job.access.distribution, job.seed),
            false => Walk::sequential(job.area),
        };
        Ok(Self {
            span: job.span(),
            durability: match job.sync {
                true => Durability::Durable,
                false => Durability::Cached,
            },
            walk,
            mix: fastrand::Rng::with_seed(!job.seed),
            content,
            slots: vec![Slot::default(); depth],
            free: (0..job.cell.depth).rev().collect(),
            thinking: VecDeque::with_capacity(depth),
            busy: 0,
            unflushed: 0,
            sizes,
            pool,
            measured: Measured::new(job.shape())?,
            clock: Clock::new(Moment::ORIGIN, job),
            failures_in_a_row: 0,
            worker,
            job,
        })
    }

    /// Runs the load to its end. What was measured is given back even if the worker failed, with
    /// the reason.
    pub(crate) fn run(
        mut self,
        watcher: &mut dyn Watcher,
    ) -> (Measured, Content, Option<LabError>) {
        let result = self.steps(watcher);
        if result.is_err() {
            self.abandon();
        }
        (self.measured, self.content, result.err())
    }

    /// What is still in flight will not be waited for: the effect of those writes is unknown.
    fn abandon(&mut self) {
        let written = |slot: &&Slot| slot.busy && slot.kind == Kind::Write;
        for slot in self.slots.iter().filter(written) {
            let range = self.range(slot);
            let what = Settled::WriteFailed {
                generation: slot.generation,
            };
            self.content.settle(Outcome {
                unit: slot.unit,
                range,
                what,
            });
        }
    }

    fn steps(&mut self, watcher: &mut dyn Watcher) -> Result<(), LabError> {
        let begin = self.worker.now();
        self.clock = Clock::new(begin, self.job);
        let phase = f64::from(self.job.thread) / f64::from(self.job.cell.threads);
        let mut pace = self.job.rate.map(|rate| Pace::new(begin, rate, phase));
        let mut done: Vec<Completion> = Vec::with_capacity(self.slots.len());
        let (mut rounds, mut begun, mut ended) = (0, false, false);
        loop {
            let now = self.worker.now();
            if now < self.clock.until && self.job.is_stopped() {
                self.clock.until = now;
            }
            if !begun && now >= self.clock.from {
                begun = true;
                watcher.begins();
            }
            if now < self.clock.until {
                self.fill(now, pace.as_mut())?;
            } else {
                if !ended {
                    ended = true;
                    watcher.ends();
                    let stuck = pace.as_ref().filter(|_| self.free.is_empty());
                    self.measured.missed += stuck.map_or(0, |pace| pace.waiting(now));
                }
                if self.busy == 0 {
                    return Ok(());
                }
                if now > self.clock.until + DRAIN {
                    return Err(self.never_completed());
                }
            }
            self.worker.device().poll(now, &mut done);
            rounds += 1;
            if done.is_empty() {
                let deadline = self.wake_at(now, pace.as_ref());
                self.worker.turn(Some(deadline))?;
                let now = self.worker.now();
                self.worker.device().poll(now, &mut done);
            } else if rounds >= ROUNDS_PER_TURN {
                rounds = 0;
                self.worker.turn(Some(now))?;
            }
            self.settle(&mut done)?;
        }
    }

    fn never_completed(&self) -> LabError {
        let many = self.busy;
        let waited = DRAIN.as_secs();
        LabError::environment(format!(
            "{many} accesses never completed ({waited} s after the end)"
        ))
    }

    /// Where an access goes.
    fn range(&self, slot: &Slot) -> BlockRange {
        let first = slot.unit * u64::from(self.span);
        BlockRange::new(first, self.sizes[slot.size].blocks)
    }

    /// Starts what may start now.
    fn fill(&mut self, now: Moment, pace: Option<&mut Pace>) -> Result<(), LabError> {
        while let Some(&(_, slot)) = self.thinking.front().filter(|(until, _)| *until <= now) {
            self.thinking.pop_front();
            self.free.push(slot);
        }
        let Some(pace) = pace else {
            while let Some(slot) = self.free.pop() {
                self.start(slot, now)?;
            }
            return Ok(());
        };
        while let Some(slot) = self.free.pop() {
            // A flush uses up no arrival.
            if self.owes_flush() {
                self.start(slot, now)?;
                continue;
            }
            match pace.take(now) {
                Some(due) => self.start(slot, due)?,
                None => {
                    self.free.push(slot);
                    break;
                }
            }
        }
        if now >= self.clock.from {
            self.measured.backlog_max = self.measured.backlog_max.max(pace.waiting(now));
            self.measured.missed += pace.give_up(now);
        } else {
            pace.give_up(now);
        }
        Ok(())
    }

    #[inline]
    fn owes_flush(&self) -> bool {
        let every = self.job.access.flush_every;
        every > 0 && self.unflushed >= every
    }

    #[inline]
    fn draw(&mut self) -> Kind {
        if self.owes_flush() {
            return Kind::Flush;
        }
        let trims = self.job.access.trim_pct;
        if trims > 0 && self.mix.u8(0..100) < trims {
            return Kind::Trim;
        }
        match self.job.cell.read_pct {
            100 => Kind::Read,
            0 => Kind::Write,
            pct if self.mix.u8(0..100) >= pct => Kind::Write,
            _ => Kind::Read,
        }
    }

    #[inline]
    fn draw_size(&mut self) -> usize {
        match self.sizes.len() {
            1 => 0,
            _ => {
                let drawn = self.mix.u8(0..100);
                let found = self.sizes.iter().position(|size| drawn < size.below);
                found.unwrap_or(0)
            }
        }
    }

    #[inline]
    fn start(&mut self, index: u32, since: Moment) -> Result<(), LabError> {
        let kind = self.draw();
        let tag = u64::from(index);
        let mut slot = Slot {
            since,
            kind,
            busy: true,
            ..Slot::default()
        };
        let request = if kind == Kind::Flush {
            self.unflushed = 0;
            Request::flush(tag)
        } else {
            slot.size = self.draw_size();
            slot.unit = self.content.claim(self.walk.next(), self.walk.area());
            let range = self.range(&slot);
            match kind {
                Kind::Trim => Request {
                    tag,
                    op: Operation::Deallocate,
                    range,
                    buffer: None,
                },
                Kind::Write => {
                    let mut buffer = self.buffer(&slot)?;
                    slot.generation = self.content.stamp(&mut buffer, range);
                    self.unflushed += 1;
                    Request::write(tag, range, buffer, self.durability)
                }
                _ => Request::read(tag, range, self.buffer(&slot)?),
            }
        };
        self.slots[index as usize] = slot;
        self.busy += 1;
        self.worker.device().submit(request);
        Ok(())
    }

    #[inline]
    fn buffer(&mut self, slot: &Slot) -> Result<IoBuffer, LabError> {
        let size = &mut self.sizes[slot.size];
        let buffers = match slot.kind {
            Kind::Write => &mut size.writes,
            _ => &mut size.reads,
        };
        match buffers.pop() {
            Some(buffer) => Ok(buffer),
            // A failed access kept its buffer.
            None => get(&self.pool, size.bytes as usize),
        }
    }

    /// When the event loop must give control back even if nothing completes.
    fn wake_at(&mut self, now: Moment, pace: Option<&Pace>) -> Moment {
        let bound = if now < self.clock.from {
            self.clock.from
        } else if now < self.clock.until {
            self.clock.until
        } else {
            self.clock.until + DRAIN + Duration::from_millis(1)
        };
        let mut wake = match self.job.stop {
            Some(_) => bound.min(now + LOOK_EVERY),
            None => bound,
        };
        if let Some(deadline) = self.worker.device().next_deadline() {
            wake = wake.min(deadline);
        }
        if let Some(&(until, _)) = self.thinking.front() {
            wake = wake.min(until);
        }
        // With no free slot an arrival cannot start anyway; a completion will wake us.
        if let Some(pace) = pace.filter(|_| !self.free.is_empty() && now < self.clock.until) {
            let until_due = pace.due().since(now);
            wake = wake.min(now + until_due.saturating_sub(TIMER_SLACK));
        }
        wake
    }

    fn settle(&mut self, done: &mut Vec<Completion>) -> Result<(), LabError> {
        if done.is_empty() {
            return Ok(());
        }
        let now = self.worker.now();
        if let Some(pulse) = &self.job.pulse {
            let well = done.iter().filter(|completion| completion.result.is_ok());
            pulse.answered(self.job.thread, well.count() as u64);
        }
        if let Some(live) = &self.job.live {
            let since = |completion: &Completion| {
                let slot = self.slots.get(completion.tag as usize);
                slot.map_or(0, |slot| now.since(slot.since).as_nanos() as u64)
            };
            live.add(done.len() as u64, done.iter().map(since).sum());
        }
        let interval = self.clock.interval(now);
        for completion in done.drain(..) {
            self.complete(completion, now, interval)?;
        }
        if let Some(pulse) = &self.job.pulse {
            let found = Found::of(&self.content.failures(), self.measured.errors);
            pulse.found_so_far(self.job.thread, found);
        }
        Ok(())
    }

    #[inline]
    fn complete(
        &mut self,
        completion: Completion,
        now: Moment,
        interval: Option<usize>,
    ) -> Result<(), LabError> {
        let index = completion.tag as usize;
        let Some(&slot) = self.slots.get(index).filter(|slot| slot.busy) else {
            return Err(LabError::environment(format!(
                "the device completed access {index}, which was not in flight"
            )));
        };
        self.slots[index].busy = false;
        self.busy -= 1;
        let range = self.range(&slot);
        if slot.kind != Kind::Flush {
            let bytes = completion.buffer.as_deref().unwrap_or_default();
            self.content.settle(Outcome {
                unit: slot.unit,
                range,
                what: settled(&completion, &slot, bytes),
            });
        }
        match completion.result {
            Ok(()) => {
                self.failures_in_a_row = 0;
                if let Some(interval) = interval {
                    self.count(slot, interval);
                }
                if interval.is_some() || self.is_late(&slot, now) {
                    self.record(slot, now);
                }
            }
            Err(error) => self.failed(slot, range, &error)?,
        }
        if let Some(buffer) = completion.buffer {
            let size = &mut self.sizes[slot.size];
            match slot.kind {
                Kind::Write => size.writes.push(buffer),
                _ => size.reads.push(buffer),
            }
        }
        match self.job.access.think.is_zero() || slot.kind == Kind::Flush {
            true => self.free.push(index as u32),
            false => {
                let until = now + self.job.access.think;
                self.thinking.push_back((until, index as u32));
            }
        }
        Ok(())
    }

    /// Whether it was due in the time that is measured and has ended after it: how long that took tells of a stall at
    /// the end, which had no other trace.
    fn is_late(&self, slot: &Slot, now: Moment) -> bool {
        let Clock { from, until, .. } = self.clock;
        self.job.rate.is_some() && slot.since >= from && now >= until
    }

    #[inline]
    fn count(&mut self, slot: Slot, interval: usize) {
        let measured = &mut self.measured;
        let sample = &mut measured.series[interval];
        match slot.kind {
            Kind::Read => sample.reads += 1,
            Kind::Write => sample.writes += 1,
            Kind::Flush | Kind::Trim => return,
        }
        measured.bytes += u64::from(self.sizes[slot.size].bytes);
    }

    #[inline]
    fn record(&mut self, slot: Slot, now: Moment) {
        let measured = &mut self.measured;
        let latencies = match slot.kind {
            Kind::Read => &mut measured.reads,
            Kind::Write => &mut measured.writes,
            Kind::Flush => &mut measured.flushes,
            Kind::Trim => &mut measured.trims,
        };
        latencies.saturating_record(now.since(slot.since).as_nanos() as u64);
    }

    #[cold]
    fn failed(&mut self, slot: Slot, range: BlockRange, error: &IoError) -> Result<(), LabError> {
        self.measured.errors += 1;
        self.failures_in_a_row += 1;
        let op = match slot.kind {
            Kind::Read => Operation::Read,
            Kind::Write => Operation::Write(self.durability),
            Kind::Flush => Operation::Flush,
            Kind::Trim => Operation::Deallocate,
        };
        self.measured
            .example(|| format!("{op:?} of {range}: {error}"));
        if self.failures_in_a_row >= MOST_FAILURES {
            return Err(LabError::environment(format!(
                "{MOST_FAILURES} accesses in a row failed, the last with: {error}"
            )));
        }
        Ok(())
    }
}

fn settled<'b>(completion: &Completion, slot: &Slot, bytes: &'b [u8]) -> Settled<'b> {
    let generation = slot.generation;
    match (completion.result.is_ok(), slot.kind) {
        (true, Kind::Read) => Settled::Read(bytes),
        (true, Kind::Write) => Settled::Written { generation },
        (false, Kind::Write) => Settled::WriteFailed { generation },
        // What is stamped is not trimmed.
        _ => Settled::ReadFailed,
    }
}

fn get(pool: &BufferPool, bytes: usize) -> Result<IoBuffer, LabError> {
    pool.get(bytes).ok_or_else(|| {
        LabError::environment(format!("no memory left for a buffer of {bytes} bytes"))
    })
}
