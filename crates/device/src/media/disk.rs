//! A rotating disk: one arm, one platter, a queue from which the nearest command is picked, and a
//! write cache that the arm empties.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::time::Duration;

use ashlar_block::{Durability, Moment};

use super::{Command, Id, Model, Work};

/// A command that has waited this long goes first, however far it is.
const STARVED: Duration = Duration::from_secs(1);
/// A contiguous command that starts within this time of the last one's end meets its sector.
const ADJACENT: Duration = Duration::from_micros(5);
/// Bytes that the drive reads on behind a read.
const READ_AHEAD: u64 = 256 << 10;

/// Parameters of a rotating disk, as data sheets have them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskModel {
    /// Its name in descriptions.
    pub name: &'static str,
    /// Revolutions a minute.
    pub rpm: u32,
    /// Seek to the next track.
    pub single_track: Duration,
    /// Average seek over all pairs of tracks.
    pub average_seek: Duration,
    /// Transfer rate of the outermost (first) zone, bytes a second.
    pub outer_rate: u64,
    /// Transfer rate of the innermost (last) zone, bytes a second.
    pub inner_rate: u64,
    /// Rate of the interface, bytes a second.
    pub link_rate: u64,
    /// Time that each command costs the controller.
    pub overhead: Duration,
    /// Commands among which the nearest is picked (NCQ).
    pub queue_depth: usize,
    /// Writes that the cache holds; 0 switches it off.
    pub cached_writes: usize,
}

impl DiskModel {
    /// A 7,200 rpm nearline SATA drive, after the Ultrastar DC HC310.
    pub const NEARLINE: Self = Self {
        name: "7,200 rpm disk",
        rpm: 7200,
        single_track: Duration::from_micros(230),
        average_seek: Duration::from_micros(7400),
        outer_rate: 255_000_000,
        inner_rate: 115_000_000,
        link_rate: 550_000_000,
        overhead: Duration::from_micros(50),
        queue_depth: 32,
        cached_writes: 128,
    };

    /// A 15,000 rpm SAS drive, after the Ultrastar C15K600.
    pub const FAST: Self = Self {
        name: "15,000 rpm disk",
        rpm: 15_000,
        single_track: Duration::from_micros(200),
        average_seek: Duration::from_micros(2900),
        outer_rate: 250_000_000,
        inner_rate: 170_000_000,
        link_rate: 1_100_000_000,
        ..Self::NEARLINE
    };

    /// A 10,000 rpm SAS drive, after the Savvio 10K of 73 GB.
    pub const TEN_K: Self = Self {
        name: "10,000 rpm disk",
        rpm: 10_000,
        single_track: Duration::from_micros(200),
        average_seek: Duration::from_micros(4000),
        outer_rate: 72_000_000,
        inner_rate: 48_000_000,
        link_rate: 300_000_000,
        overhead: Duration::from_micros(200),
        ..Self::NEARLINE
    };

    fn period(&self) -> f64 {
        60e9 / f64::from(self.rpm)
    }

    /// Seek time in nanoseconds over a part of the stroke. It grows with the square root of the
    /// distance, as the arm accelerates and brakes; the factor makes the mean over random pairs,
    /// whose mean root distance is 8/15, the average seek of the data sheet.
    fn seek(&self, distance: f64) -> f64 {
        if distance == 0.0 {
            return 0.0;
        }
        let single = self.single_track.as_nanos() as f64;
        let average = self.average_seek.as_nanos() as f64;
        single + (average - single) * 15.0 / 8.0 * distance.sqrt()
    }

    /// Bytes a nanosecond at a part of the stroke; the outermost track is first.
    fn rate(&self, position: f64) -> f64 {
        let (outer, inner) = (self.outer_rate as f64, self.inner_rate as f64);
        (outer - (outer - inner) * position) / 1e9
    }
}

impl fmt::Display for DiskModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = if self.cached_writes > 0 { "on" } else { "off" };
        write!(f, "{}, write cache {cache}", self.name)
    }
}

#[derive(Clone, Copy)]
struct Job {
    command: Command,
    /// Acknowledged already; the arm does it for the cache.
    cached: bool,
    order: u64,
}

pub(super) struct Disk {
    model: DiskModel,
    capacity: u64,
    /// Where the last transfer ended, and when.
    head: u64,
    free_at: Moment,
    last_read: bool,
    active: Option<(Moment, Job)>,
    waiting: Vec<Job>,
    cache: Vec<Job>,
    /// Writes for which the cache has no room.
    blocked: VecDeque<Command>,
    /// Flushes, and the order below which nothing may be left in the cache.
    flushes: Vec<(Id, u64)>,
    acknowledged: BinaryHeap<Reverse<(Moment, Id)>>,
    orders: u64,
    cache_turn: bool,
    /// Times that the arm had to move to where a command begins.
    seeks: u64,
}

impl Disk {
    pub(super) fn new(model: DiskModel, capacity: u64) -> Self {
        Self {
            model,
            capacity: capacity.max(1),
            head: 0,
            free_at: Moment::ORIGIN,
            last_read: false,
            active: None,
            waiting: Vec::new(),
            cache: Vec::new(),
            blocked: VecDeque::new(),
            flushes: Vec::new(),
            acknowledged: BinaryHeap::new(),
            orders: 0,
            cache_turn: false,
            seeks: 0,
        }
    }

    fn part(&self, offset: u64) -> f64 {
        (offset.min(self.capacity) as f64) / self.capacity as f64
    }

    /// Whether the drive, which reads on behind the last read, has this or comes to it.
    fn reads_on(&self, command: &Command) -> bool {
        self.last_read
            && command.work == Work::Read
            && (self.head..self.head + READ_AHEAD).contains(&command.offset)
    }

    /// When the head reaches the job's first sector if it sets out at `start`.
    fn reach(&self, start: Moment, job: &Job) -> Moment {
        let command = &job.command;
        if command.offset == self.head {
            // The drive read on after the last read; and a write right behind one just goes on.
            if self.reads_on(command) || start.since(self.free_at) <= ADJACENT {
                return self.free_at;
            }
        }
        if self.reads_on(command) {
            let rate = self.model.rate(self.part(self.head));
            let between = (command.offset - self.head) as f64 / rate;
            return self.free_at + Duration::from_nanos(between as u64);
        }
        let target = self.part(command.offset);
        let seek = self.model.seek((target - self.part(self.head)).abs());
        let period = self.model.period();
        let track = (self.model.rate(target) * period).max(1.0);
        let sector = (command.offset as f64 / track).fract();
        let at = start.as_nanos() as f64 + seek;
        let wait = (sector - (at / period).fract()).rem_euclid(1.0) * period;
        start + Duration::from_nanos((seek + wait) as u64)
    }

    fn finish_time(&self, start: Moment, job: &Job) -> Moment {
        let rate = self.model.rate(self.part(job.command.offset));
        let transfer = Duration::from_nanos((job.command.len as f64 / rate) as u64);
        let link = self.link_time(job.command.len);
        (self.reach(start, job) + transfer).max(start + link)
    }

    fn link_time(&self, len: u64) -> Duration {
        let nanos = len as f64 * 1e9 / self.model.link_rate as f64;
        self.model.overhead + Duration::from_nanos(nanos as u64)
    }

    /// Acknowledges a write into the cache, or makes it wait for room.
    fn cache_write(&mut self, command: Command, now: Moment) {
        if self.cache.len() >= self.model.cached_writes {
            return self.blocked.push_back(command);
        }
        let acknowledged = now + self.link_time(command.len);
        self.acknowledged.push(Reverse((acknowledged, command.id)));
        let order = self.next_order();
        let command = Command {
            arrival: now,
            ..command
        };
        self.cache.push(Job {
            command,
            cached: true,
            order,
        });
    }

    fn next_order(&mut self) -> u64 {
        self.orders += 1;
        self.orders
    }

    /// The next job for an arm that is free at `self.free_at`, and when it sets out.
    fn pick(&mut self) -> Option<(Moment, Job)> {
        let pressed = !self.flushes.is_empty() || self.cache.len() * 2 > self.model.cached_writes;
        let arrivals = self.waiting.iter().chain(&self.cache);
        let first = arrivals.map(|job| job.command.arrival).min()?;
        let start = self.free_at.max(first);
        let here = |job: &Job| job.command.arrival <= start;
        let some_waiting = self.waiting.iter().any(here);
        let some_cached = self.cache.iter().any(here);
        self.cache_turn = some_cached && (!some_waiting || (pressed && !self.cache_turn));
        let index = match self.cache_turn {
            true => self.nearest(&self.cache, self.cache.len(), start),
            false => self.nearest(&self.waiting, self.model.queue_depth, start),
        }?;
        let job = match self.cache_turn {
            true => self.cache.swap_remove(index),
            // Keeps arrival order, by which the drive's queue is filled.
            false => self.waiting.remove(index),
        };
        Some((start, job))
    }

    fn nearest(&self, jobs: &[Job], depth: usize, start: Moment) -> Option<usize> {
        let here = jobs
            .iter()
            .enumerate()
            .filter(|(_, job)| job.command.arrival <= start)
            .take(depth.max(1));
        let cost = |job: &Job| match start.since(job.command.arrival) > STARVED && !job.cached {
            true => (Moment::ORIGIN, job.order),
            false => (self.reach(start, job), job.order),
        };
        here.min_by_key(|(_, job)| cost(job))
            .map(|(index, _)| index)
    }

    /// Books the end of the active job.
    fn complete(&mut self, at: Moment, job: Job) {
        self.free_at = at;
        self.head = job.command.offset + job.command.len;
        self.last_read = job.command.work == Work::Read;
        if !job.cached {
            return self.acknowledged.push(Reverse((at, job.command.id)));
        }
        if let Some(command) = self.blocked.pop_front() {
            self.cache_write(command, at);
        }
        self.end_flushes(at);
    }

    fn end_flushes(&mut self, at: Moment) {
        let active = self.active.iter().map(|(_, job)| job);
        let cached = self.cache.iter().chain(active).filter(|job| job.cached);
        let oldest = cached.map(|job| job.order).min().unwrap_or(u64::MAX);
        let end = at + self.model.overhead;
        let acknowledged = &mut self.acknowledged;
        self.flushes.retain(|&(id, order)| {
            let open = oldest <= order;
            if !open {
                acknowledged.push(Reverse((end, id)));
            }
            open
        });
    }
}

impl Model for Disk {
    fn admit(&mut self, command: Command) {
        let now = command.arrival;
        match command.work {
            Work::Write(Durability::Cached) if self.model.cached_writes > 0 => {
                self.cache_write(command, now);
            }
            Work::Read | Work::Write(_) => {
                let order = self.next_order();
                self.waiting.push(Job {
                    command,
                    cached: false,
                    order,
                });
            }
            Work::Flush => {
                self.flushes.push((command.id, self.orders));
                self.end_flushes(now);
            }
            Work::Deallocate => {
                let end = now + self.model.overhead;
                self.acknowledged.push(Reverse((end, command.id)));
            }
        }
    }

    fn advance(&mut self, now: Moment, finished: &mut Vec<Id>) {
        loop {
            match self.active {
                Some((end, job)) if end <= now => {
                    self.active = None;
                    self.complete(end, job);
                }
                Some(_) => break,
                None => match self.pick() {
                    Some((start, job)) => {
                        let stays = job.command.offset == self.head || self.reads_on(&job.command);
                        self.seeks += u64::from(!stays);
                        self.active = Some((self.finish_time(start, &job), job));
                    }
                    None => break,
                },
            }
        }
        while let Some(&Reverse((at, id))) = self.acknowledged.peek() {
            if at > now {
                break;
            }
            self.acknowledged.pop();
            finished.push(id);
        }
    }

    fn next_event(&self) -> Option<Moment> {
        let arm = self.active.as_ref().map(|&(end, _)| end);
        let acknowledged = self.acknowledged.peek().map(|&Reverse((at, _))| at);
        [arm, acknowledged].into_iter().flatten().min()
    }

    fn seeks(&self) -> u64 {
        self.seeks
    }
}
