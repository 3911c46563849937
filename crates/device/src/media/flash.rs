//! A SATA SSD: a link that everything crosses one after the other, channels that reads occupy, and
//! a protected write buffer that programs and garbage collection empty at a bounded rate.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::time::Duration;

use ashlar_block::Moment;

use super::{Command, Id, Model, Work};

/// Bytes that one channel delivers at a time.
const STRIPE_BYTES: u64 = 16 << 10;

/// Parameters of a SATA SSD, as data sheets have them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashModel {
    /// Its name in descriptions.
    pub name: &'static str,
    /// Commands that the interface holds (NCQ); more wait.
    pub queue_depth: usize,
    /// Payload rate of the link, bytes a second.
    pub link_rate: u64,
    /// Time that each command occupies the link besides its data.
    pub link_overhead: Duration,
    /// Independent channels.
    pub channels: usize,
    /// Time from a read's start on its channel to its data.
    pub read: Duration,
    /// Time from a write's data to its acknowledgement.
    pub write: Duration,
    /// Time for which a program can hold up a read of the same channel.
    pub program: Duration,
    /// Steady random 4 KiB writes a second, garbage collection included.
    pub random_writes: u64,
    /// Steady sequential write rate, bytes a second.
    pub sequential_writes: u64,
    /// How far acknowledged writes may run ahead of the programs.
    pub buffer: Duration,
}

impl FlashModel {
    /// A data-centre drive of the 6 Gb/s generation, after the Intel SSD DC S3700 of 800 GB.
    pub const DATA_CENTRE: Self = Self {
        name: "SATA SSD",
        queue_depth: 32,
        link_rate: 550_000_000,
        link_overhead: Duration::from_nanos(5_500),
        channels: 8,
        read: Duration::from_micros(37),
        write: Duration::from_micros(45),
        program: Duration::from_micros(200),
        random_writes: 36_000,
        sequential_writes: 460_000_000,
        buffer: Duration::from_millis(5),
    };

    /// What a write costs the programs behind the buffer.
    fn program_time(&self, len: u64, sequential: bool) -> Duration {
        let nanos = match sequential {
            true => len as f64 * 1e9 / self.sequential_writes as f64,
            false => {
                let pages = len.div_ceil(4096) as f64;
                // Large random writes fill whole blocks and approach the sequential rate.
                let least = len as f64 * 1e9 / self.sequential_writes as f64;
                let first = 1e9 / self.random_writes as f64;
                (first * pages.sqrt()).max(least)
            }
        };
        Duration::from_nanos(nanos as u64)
    }
}

impl fmt::Display for FlashModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} channels", self.name, self.channels)
    }
}

pub(super) struct Flash {
    model: FlashModel,
    link_free: Moment,
    channel_free: Vec<Moment>,
    /// When the programs will have emptied the buffer.
    programs_end: Moment,
    last_write_end: u64,
    /// Ends of the commands that hold the queue's slots.
    slots: BinaryHeap<Reverse<Moment>>,
    ends: BinaryHeap<Reverse<(Moment, Id)>>,
}

impl Flash {
    pub(super) fn new(model: FlashModel) -> Self {
        Self {
            channel_free: vec![Moment::ORIGIN; model.channels.max(1)],
            model,
            link_free: Moment::ORIGIN,
            programs_end: Moment::ORIGIN,
            last_write_end: 0,
            slots: BinaryHeap::new(),
            ends: BinaryHeap::new(),
        }
    }

    /// Occupies the link from `ready` on; returns when the transfer is over.
    fn transfer(&mut self, ready: Moment, len: u64) -> Moment {
        let nanos = len as f64 * 1e9 / self.model.link_rate as f64;
        let time = self.model.link_overhead + Duration::from_nanos(nanos as u64);
        self.link_free = self.link_free.max(ready) + time;
        self.link_free
    }

    fn read(&mut self, start: Moment, offset: u64, len: u64) -> Moment {
        let first = offset / STRIPE_BYTES;
        let last = (offset + len.max(1) - 1) / STRIPE_BYTES;
        let mut ready = start;
        for stripe in first..=last {
            let channel = spread(stripe) as usize % self.channel_free.len();
            let begin = self.channel_free[channel].max(start);
            let end = begin + self.program_in_the_way(begin, channel) + self.model.read;
            self.channel_free[channel] = end;
            ready = ready.max(end);
        }
        self.transfer(ready, len)
    }

    /// What is left of the program that occupies the channel while the buffer is being emptied;
    /// channels take turns.
    fn program_in_the_way(&self, at: Moment, channel: usize) -> Duration {
        let left = self.programs_end.since(at).as_nanos() as u64;
        let program = self.model.program.as_nanos() as u64;
        if left == 0 || program == 0 {
            return Duration::ZERO;
        }
        let turns = self.channel_free.len() as u64;
        let phase = channel as u64 * program / turns;
        Duration::from_nanos((left + phase) % program).min(Duration::from_nanos(left))
    }

    fn write(&mut self, start: Moment, offset: u64, len: u64) -> Moment {
        let received = self.transfer(start, len);
        let sequential = offset == self.last_write_end;
        self.last_write_end = offset + len;
        let cost = self.model.program_time(len, sequential);
        self.programs_end = self.programs_end.max(received) + cost;
        let ahead = self.programs_end.since(received);
        received
            + self
                .model
                .write
                .max(ahead.saturating_sub(self.model.buffer))
    }
}

/// Spreads neighbouring numbers, as a translation layer spreads neighbouring addresses.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

impl Model for Flash {
    fn admit(&mut self, command: Command) {
        let mut start = command.arrival;
        while self.slots.len() >= self.model.queue_depth.max(1) {
            if let Some(Reverse(free)) = self.slots.pop() {
                start = start.max(free);
            }
        }
        let end = match command.work {
            Work::Read => self.read(start, command.offset, command.len),
            Work::Write(_) => self.write(start, command.offset, command.len),
            // Capacitors protect the buffer, so there is nothing to wait for.
            Work::Flush | Work::Deallocate => self.transfer(start, 0),
        };
        self.slots.push(Reverse(end));
        self.ends.push(Reverse((end, command.id)));
    }

    fn advance(&mut self, now: Moment, finished: &mut Vec<Id>) {
        while let Some(&Reverse((end, id))) = self.ends.peek() {
            if end > now {
                break;
            }
            self.ends.pop();
            finished.push(id);
        }
    }

    fn next_event(&self) -> Option<Moment> {
        self.ends.peek().map(|&Reverse((end, _))| end)
    }
}
