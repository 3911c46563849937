//! Disks behind a controller: striped mirrors, or striped with parity that goes round. A small write with parity reads
//! what it replaces, data and parity, before it writes both; one of a whole row only writes.

use std::fmt;

use ashlar_block::{Durability, Moment};
use slab::Slab;

use super::disk::{Disk, DiskModel};
use super::{Command, Id, Model, Work};

/// Bytes that lie together on a disk.
const CHUNK: u64 = 64 << 10;

/// How the disks of an array are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Parity of each row on one of them, in turn.
    Raid5,
    Raid10,
}

/// Equal disks behind a controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrayModel {
    /// Each of them.
    pub disk: DiskModel,
    /// How they are laid out.
    pub level: Level,
    /// How many there are.
    pub disks: usize,
}

impl ArrayModel {
    /// The fewest disks of a level.
    pub fn fewest(level: Level) -> usize {
        match level {
            Level::Raid5 => 3,
            Level::Raid10 => 2,
        }
    }

    /// Disks whose worth of data there is.
    fn of_data(&self) -> u64 {
        match self.level {
            Level::Raid5 => self.disks as u64 - 1,
            Level::Raid10 => self.disks as u64 / 2,
        }
    }
}

impl fmt::Display for ArrayModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Raid5 => "RAID-5",
            Level::Raid10 => "RAID-10",
        };
        write!(f, "{level} of {} x {}", self.disks, self.disk)
    }
}

/// What one disk does for a command.
#[derive(Clone, Copy)]
struct Part {
    disk: usize,
    work: Work,
    offset: u64,
    len: u64,
}

/// A command whose parts are under way.
struct Flight {
    id: Id,
    left: usize,
    /// What follows when they are done.
    then: Vec<Part>,
}

/// The bytes of a command that lie in one row.
struct Row {
    number: u64,
    /// From the row's first data byte on.
    from: u64,
    to: u64,
}

pub(super) struct Array {
    model: ArrayModel,
    disks: Vec<Disk>,
    flights: Slab<Flight>,
    /// Which half of a pair reads next.
    turn: usize,
    ended: Vec<Id>,
}

impl Array {
    pub(super) fn new(model: ArrayModel, capacity: u64) -> Self {
        let each = capacity.div_ceil(model.of_data().max(1));
        let disk = || Disk::new(model.disk, each);
        Self {
            disks: (0..model.disks).map(|_| disk()).collect(),
            model,
            flights: Slab::new(),
            turn: 0,
            ended: Vec::new(),
        }
    }

    fn rows(&self, command: &Command) -> Vec<Row> {
        let bytes = self.model.of_data() * CHUNK;
        let (mut at, end) = (command.offset, command.offset + command.len);
        let mut rows = Vec::new();
        while at < end {
            let number = at / bytes;
            let to = end.min((number + 1) * bytes);
            rows.push(Row {
                number,
                from: at - number * bytes,
                to: to - number * bytes,
            });
            at = to;
        }
        rows
    }

    /// The pieces of a row, by the place of their chunk in it.
    fn chunks(row: &Row) -> impl Iterator<Item = (u64, u64, u64)> + Clone + use<> {
        let (number, from, to) = (row.number, row.from, row.to);
        (from / CHUNK..to.div_ceil(CHUNK)).map(move |chunk| {
            let first = from.max(chunk * CHUNK);
            let last = to.min((chunk + 1) * CHUNK);
            (chunk, number * CHUNK + first - chunk * CHUNK, last - first)
        })
    }

    /// What is done at once, and what after that.
    fn parts(&mut self, command: &Command) -> (Vec<Part>, Vec<Part>) {
        let (mut first, mut then) = (Vec::new(), Vec::new());
        for row in self.rows(command) {
            match (self.model.level, command.work) {
                (Level::Raid10, Work::Read) => self.read_pairs(&row, &mut first),
                (Level::Raid10, work) => Self::write_pairs(&row, work, &mut first),
                (Level::Raid5, Work::Read) => self.with_parity(&row, Work::Read, &mut first),
                (Level::Raid5, work) => {
                    let is_whole = row.to - row.from == self.model.of_data() * CHUNK;
                    if !is_whole {
                        self.with_parity(&row, Work::Read, &mut first);
                        self.parity_of(&row, Work::Read, &mut first);
                    }
                    let writes = if is_whole { &mut first } else { &mut then };
                    self.with_parity(&row, work, writes);
                    self.parity_of(&row, work, writes);
                }
            }
        }
        (first, then)
    }

    fn read_pairs(&mut self, row: &Row, into: &mut Vec<Part>) {
        for (chunk, offset, len) in Self::chunks(row) {
            self.turn ^= 1;
            into.push(Part {
                disk: chunk as usize * 2 + self.turn,
                work: Work::Read,
                offset,
                len,
            });
        }
    }

    fn write_pairs(row: &Row, work: Work, into: &mut Vec<Part>) {
        for (chunk, offset, len) in Self::chunks(row) {
            into.extend((0..2).map(|half| Part {
                disk: chunk as usize * 2 + half,
                work,
                offset,
                len,
            }));
        }
    }

    /// Data, of rows that have parity.
    fn with_parity(&self, row: &Row, work: Work, into: &mut Vec<Part>) {
        let parity = self.parity_disk(row);
        for (chunk, offset, len) in Self::chunks(row) {
            let disk = chunk as usize;
            into.push(Part {
                disk: if disk < parity { disk } else { disk + 1 },
                work,
                offset,
                len,
            });
        }
    }

    fn parity_disk(&self, row: &Row) -> usize {
        (row.number % self.model.disks as u64) as usize
    }

    /// As much parity as the pieces of a row cover together.
    fn parity_of(&self, row: &Row, work: Work, into: &mut Vec<Part>) {
        let covered = Self::chunks(row).map(|(_, offset, len)| (offset, offset + len));
        let from = covered.clone().map(|(from, _)| from).min().unwrap_or(0);
        let to = covered.map(|(_, to)| to).max().unwrap_or(0);
        into.push(Part {
            disk: self.parity_disk(row),
            work,
            offset: from,
            len: to - from,
        });
    }

    fn begin(&mut self, flight: usize, parts: &[Part], now: Moment) {
        for part in parts {
            self.disks[part.disk].admit(Command {
                id: Id { queue: 0, flight },
                work: part.work,
                offset: part.offset,
                len: part.len,
                arrival: now,
            });
        }
    }

    /// A part of a command is done.
    fn part_over(&mut self, flight: usize, now: Moment, finished: &mut Vec<Id>) {
        let Some(one) = self.flights.get_mut(flight) else {
            return;
        };
        one.left -= 1;
        if one.left > 0 {
            return;
        }
        let then = std::mem::take(&mut one.then);
        if then.is_empty() {
            finished.push(one.id);
            self.flights.remove(flight);
        } else {
            one.left = then.len();
            self.begin(flight, &then, now);
        }
    }

    fn advance_disks(&mut self, now: Moment, finished: &mut Vec<Id>) {
        let mut ended = std::mem::take(&mut self.ended);
        for disk in &mut self.disks {
            disk.advance(now, &mut ended);
        }
        for id in ended.drain(..) {
            self.part_over(id.flight, now, finished);
        }
        self.ended = ended;
    }
}

impl Model for Array {
    fn admit(&mut self, command: Command) {
        let everywhere = |work: Work| -> Vec<Part> {
            let each = 0..self.model.disks;
            each.map(|disk| Part {
                disk,
                work,
                offset: 0,
                len: 0,
            })
            .collect()
        };
        let (first, then) = match command.work {
            Work::Flush | Work::Deallocate => (everywhere(command.work), Vec::new()),
            Work::Read | Work::Write(Durability::Cached | Durability::Durable) => {
                self.parts(&command)
            }
        };
        let flight = self.flights.insert(Flight {
            id: command.id,
            left: first.len(),
            then,
        });
        self.begin(flight, &first, command.arrival);
    }

    fn advance(&mut self, now: Moment, finished: &mut Vec<Id>) {
        // Step by step: what follows a part begins when that has ended, and not when time is looked at.
        while let Some(next) = self.next_event().filter(|&next| next <= now) {
            self.advance_disks(next, finished);
        }
        self.advance_disks(now, finished);
    }

    fn next_event(&self) -> Option<Moment> {
        self.disks.iter().filter_map(Disk::next_event).min()
    }

    fn seeks(&self) -> u64 {
        self.disks.iter().map(Disk::seeks).sum()
    }
}
