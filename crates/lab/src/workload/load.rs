use std::time::Duration;

use ashlar_block::{
    BlockRange, BufferPool, Completion, IoBuffer, IoError, Moment, Operation, Request,
};

use super::content::{Outcome, Settled};
use super::pace::Pace;
use super::{Content, Job, Walk, random_fill};
use crate::measure::{Measured, SeriesShape};
use crate::{LabError, Worker};

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

#[derive(Clone, Copy, Default)]
struct Slot {
    since: Moment,
    unit: u64,
    generation: u64,
    write: bool,
    busy: bool,
}

/// One worker's load, while it runs.
pub(crate) struct Load<'a> {
    worker: &'a mut dyn Worker,
    job: &'a Job,
    span: u32,
    walk: Walk,
    mix: fastrand::Rng,
    content: Content,
    slots: Vec<Slot>,
    free: Vec<u32>,
    read_buffers: Vec<IoBuffer>,
    write_buffers: Vec<IoBuffer>,
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
        let bytes = job.cell.block_bytes as usize;
        let pool = worker.buffers();
        let take = |wanted: bool| -> Result<Vec<IoBuffer>, LabError> {
            let many = if wanted { depth } else { 0 };
            let mut buffers = Vec::with_capacity(many);
            for index in 0..many {
                let mut buffer = get(&pool, bytes)?;
                random_fill(&mut buffer, job.seed ^ ((index as u64) << 32));
                buffers.push(buffer);
            }
            Ok(buffers)
        };
        Ok(Self {
            span: job.span(),
            walk: Walk::new(job.area, job.cell.pattern.is_random(), job.seed),
            mix: fastrand::Rng::with_seed(!job.seed),
            content,
            slots: vec![Slot::default(); depth],
            free: (0..job.cell.depth).rev().collect(),
            read_buffers: take(job.cell.read_pct > 0)?,
            write_buffers: take(job.cell.writes())?,
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
        for slot in self.slots.iter().filter(|slot| slot.busy && slot.write) {
            let range = BlockRange::new(slot.unit * u64::from(self.span), self.span);
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
                if self.free.len() == self.slots.len() {
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
        let many = self.slots.len() - self.free.len();
        let waited = DRAIN.as_secs();
        LabError::environment(format!(
            "{many} accesses never completed ({waited} s after the end)"
        ))
    }

    /// Starts what may start now.
    fn fill(&mut self, now: Moment, pace: Option<&mut Pace>) -> Result<(), LabError> {
        let Some(pace) = pace else {
            while let Some(slot) = self.free.pop() {
                self.start(slot, now)?;
            }
            return Ok(());
        };
        while let Some(slot) = self.free.pop() {
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
    fn start(&mut self, index: u32, since: Moment) -> Result<(), LabError> {
        let read_pct = self.job.cell.read_pct;
        let write = match read_pct {
            100 => false,
            0 => true,
            pct => self.mix.u8(0..100) >= pct,
        };
        let unit = self.content.claim(self.walk.next(), self.walk.area());
        let range = BlockRange::new(unit * u64::from(self.span), self.span);
        let tag = u64::from(index);
        let buffers = if write {
            &mut self.write_buffers
        } else {
            &mut self.read_buffers
        };
        let mut buffer = match buffers.pop() {
            Some(buffer) => buffer,
            // A failed access kept its buffer.
            None => get(&self.pool, self.job.cell.block_bytes as usize)?,
        };
        let mut generation = 0;
        let request = if write {
            generation = self.content.stamp(&mut buffer, range);
            Request::write(tag, range, buffer, self.job.durability)
        } else {
            Request::read(tag, range, buffer)
        };
        self.slots[index as usize] = Slot {
            since,
            unit,
            generation,
            write,
            busy: true,
        };
        self.worker.device().submit(request);
        Ok(())
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
        let interval = self.clock.interval(now);
        for completion in done.drain(..) {
            self.complete(completion, now, interval)?;
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
        let range = BlockRange::new(slot.unit * u64::from(self.span), self.span);
        let bytes = completion.buffer.as_deref().unwrap_or_default();
        let what = match (&completion.result, slot.write) {
            (Ok(()), false) => Settled::Read(bytes),
            (Ok(()), true) => Settled::Written {
                generation: slot.generation,
            },
            (Err(_), false) => Settled::ReadFailed,
            (Err(_), true) => Settled::WriteFailed {
                generation: slot.generation,
            },
        };
        self.content.settle(Outcome {
            unit: slot.unit,
            range,
            what,
        });
        match completion.result {
            Ok(()) => {
                self.failures_in_a_row = 0;
                if let Some(interval) = interval {
                    self.count(slot, now, interval);
                }
            }
            Err(error) => self.failed(slot, range, &error)?,
        }
        if let Some(buffer) = completion.buffer {
            let buffers = if slot.write {
                &mut self.write_buffers
            } else {
                &mut self.read_buffers
            };
            buffers.push(buffer);
        }
        self.free.push(index as u32);
        Ok(())
    }

    #[inline]
    fn count(&mut self, slot: Slot, now: Moment, interval: usize) {
        let latency_ns = now.since(slot.since).as_nanos() as u64;
        let sample = &mut self.measured.series[interval];
        if slot.write {
            sample.writes += 1;
            self.measured.writes.saturating_record(latency_ns);
        } else {
            sample.reads += 1;
            self.measured.reads.saturating_record(latency_ns);
        }
    }

    #[cold]
    fn failed(&mut self, slot: Slot, range: BlockRange, error: &IoError) -> Result<(), LabError> {
        self.measured.errors += 1;
        self.failures_in_a_row += 1;
        let op = if slot.write {
            Operation::Write(self.job.durability)
        } else {
            Operation::Read
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

fn get(pool: &BufferPool, bytes: usize) -> Result<IoBuffer, LabError> {
    pool.get(bytes).ok_or_else(|| {
        LabError::environment(format!("no memory left for a buffer of {bytes} bytes"))
    })
}
