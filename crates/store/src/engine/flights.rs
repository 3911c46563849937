//! Requests that drives have: whose they are, and how long the drive has had them.
//!
//! A request's tag is its slot and the slot's *generation*. Once a drive has had a request for longer
//! than its time, the request is given up: its owner gets an error, the slot a new generation, and an answer
//! that comes after all finds nothing. The drive, or the kernel, keeps the buffer until then.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::{BlockRange, Moment, Operation};

use super::Owner;

/// How long a request takes until it counts as slow, and a read goes to another copy.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// The engine was woken so much later than it asked to be: the process stood still, and the drives' answers
/// may wait to be taken.
const LATE_WAKE: Duration = Duration::from_secs(1);
/// How often it is looked again whether the pool can do without a drive that does not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// End of a list.
const NONE: u32 = u32::MAX;
/// Generations are below this: the driver marks tags in the highest bit.
const GENERATIONS: u32 = 1 << 31;

/// What a drive is asked for, and for whom: enough to ask again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) owner: Owner,
    pub(super) op: Operation,
    pub(super) range: BlockRange,
    /// Bytes of the engine's memory that it holds.
    pub(super) bytes: usize,
    /// Since when it is asked for again and again.
    pub(super) since: Option<Moment>,
}

/// A request that a drive has.
struct Flight {
    asked: Asked,
    /// Its owner has gone elsewhere.
    is_disowned: bool,
    generation: u32,
    drive: usize,
    /// In time in which the process ran.
    sent: Moment,
    is_slow: bool,
    before: u32,
    after: u32,
}

enum Slot {
    Free { next: u32, generation: u32 },
    Taken(Flight),
}

/// Slots in the order in which their requests were sent.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl List {
    const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };
}

/// What a drive has been like.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    in_flight: u64,
    /// Requests that took longer than `SLOW_AFTER`.
    slow: u64,
    /// Has had a request for so long, and has answered nothing since.
    is_slow: bool,
    /// Requests that were given up, and that it may answer yet.
    late: u64,
    /// It is waited for, whatever its time: when to look at that again.
    awaited: Option<Moment>,
}

/// How a drive answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveReplies {
    /// Requests that took longer than a second, since the import.
    pub slow: u64,
    /// How long it has had the oldest request that it has not answered.
    pub oldest: Option<Duration>,
    /// Requests that were given up and that it has not answered yet.
    pub given_up: u64,
    /// It has had a request for longer than its time, and the pool cannot do without it.
    pub is_awaited: bool,
}

/// Whom an answer is for.
#[derive(Debug)]
pub(super) enum Answered {
    Owner(Asked),
    /// Its owner had given it up.
    Late,
    /// There was no such request.
    Unknown,
}

/// A request that has become slow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slow {
    pub(super) tag: u64,
    pub(super) drive: usize,
    pub(super) asked: Option<Asked>,
}

pub(super) struct Flights {
    slots: Vec<Slot>,
    free: u32,
    /// Requests that are not slow, and those that are.
    fresh: List,
    slow: List,
    /// Requests that were given up, and their drives and bytes.
    late: BTreeMap<u64, (usize, usize)>,
    late_bytes: usize,
    /// By drive.
    drives: Vec<Record>,
    timeout: Duration,
    slow_after: Duration,
    /// Time in which the process did not run.
    stood_still: Duration,
    /// Tags are slots alone (a canary).
    forgets_generations: bool,
}

fn tag_of(slot: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(slot)
}

impl Flights {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            fresh: List::EMPTY,
            slow: List::EMPTY,
            late: BTreeMap::new(),
            late_bytes: 0,
            drives: Vec::new(),
            timeout,
            slow_after: SLOW_AFTER.min(timeout / 2),
            stood_still: Duration::ZERO,
            forgets_generations: false,
        }
    }

    /// Tags are slots alone from now on (a canary).
    pub(super) fn forget_generations(&mut self) {
        self.forgets_generations = true;
    }

    /// How long a drive may take for a request.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn record(&mut self, drive: usize) -> &mut Record {
        if drive >= self.drives.len() {
            self.drives.resize_with(drive + 1, Record::default);
        }
        &mut self.drives[drive]
    }

    fn flight(&self, slot: u32) -> Option<&Flight> {
        match self.slots.get(slot as usize) {
            Some(Slot::Taken(flight)) => Some(flight),
            _ => None,
        }
    }

    fn flight_mut(&mut self, slot: u32) -> Option<&mut Flight> {
        match self.slots.get_mut(slot as usize) {
            Some(Slot::Taken(flight)) => Some(flight),
            _ => None,
        }
    }

    /// A request for a drive; returns its tag.
    pub(super) fn send(&mut self, drive: usize, asked: Asked, now: Moment) -> u64 {
        let (slot, generation) = match self.slots.get(self.free as usize) {
            Some(&Slot::Free { next, generation }) => {
                let slot = std::mem::replace(&mut self.free, next);
                (slot, generation)
            }
            _ => {
                self.slots.push(Slot::Free {
                    next: NONE,
                    generation: 0,
                });
                (self.slots.len() as u32 - 1, 0)
            }
        };
        self.slots[slot as usize] = Slot::Taken(Flight {
            asked,
            is_disowned: false,
            generation,
            drive,
            sent: self.running(now),
            is_slow: false,
            before: NONE,
            after: NONE,
        });
        self.append(slot, false);
        self.record(drive).in_flight += 1;
        tag_of(slot, generation)
    }

    fn list(&mut self, is_slow: bool) -> &mut List {
        match is_slow {
            true => &mut self.slow,
            false => &mut self.fresh,
        }
    }

    fn append(&mut self, slot: u32, is_slow: bool) {
        let list = self.list(is_slow);
        let last = std::mem::replace(&mut list.last, slot);
        if last == NONE {
            list.first = slot;
        }
        if let Some(flight) = self.flight_mut(slot) {
            (flight.before, flight.after, flight.is_slow) = (last, NONE, is_slow);
        }
        if let Some(before) = self.flight_mut(last) {
            before.after = slot;
        }
    }

    fn unlink(&mut self, slot: u32) {
        if let Some(&Flight {
            before,
            after,
            is_slow,
            ..
        }) = self.flight(slot)
        {
            match self.flight_mut(before) {
                Some(flight) => flight.after = after,
                None => self.list(is_slow).first = after,
            }
            match self.flight_mut(after) {
                Some(flight) => flight.before = before,
                None => self.list(is_slow).last = before,
            }
        }
    }

    /// Takes a request out; its tag will not come again.
    fn take(&mut self, slot: u32) -> Option<Flight> {
        let generation = (self.flight(slot)?.generation + 1) % GENERATIONS;
        self.unlink(slot);
        let next = std::mem::replace(&mut self.free, slot);
        let free = Slot::Free { next, generation };
        let Slot::Taken(flight) = std::mem::replace(&mut self.slots[slot as usize], free) else {
            return None;
        };
        let record = self.record(flight.drive);
        record.in_flight -= 1;
        Some(flight)
    }

    /// A drive has answered.
    pub(super) fn answered(&mut self, drive: usize, tag: u64) -> Answered {
        let record = self.record(drive);
        (record.is_slow, record.awaited) = (false, None);
        let (slot, generation) = (tag as u32, (tag >> 32) as u32);
        let is_it = |flight: &Flight| {
            flight.drive == drive && flight.generation == generation || self.forgets_generations
        };
        if self.flight(slot).is_some_and(is_it) {
            let flight = self.take(slot).filter(|flight| !flight.is_disowned);
            return flight.map_or(Answered::Late, |flight| Answered::Owner(flight.asked));
        }
        match self.late.remove(&tag) {
            Some((drive, bytes)) => {
                self.late_bytes -= bytes;
                self.record(drive).late -= 1;
                Answered::Late
            }
            None => Answered::Unknown,
        }
    }

    /// Its owner has gone elsewhere; the drive must answer in time all the same.
    pub(super) fn disown(&mut self, tag: u64) {
        if let Some(flight) = self.flight_mut(tag as u32) {
            flight.is_disowned = true;
        }
    }

    /// Gives up everything that a drive has, oldest first; returns what has owners.
    pub(super) fn give_up(&mut self, drive: usize) -> Vec<Asked> {
        let mut given_up = Vec::new();
        for list in [self.slow, self.fresh] {
            let mut slot = list.first;
            while let Some(flight) = self.flight(slot) {
                let (next, generation) = (flight.after, flight.generation);
                if flight.drive == drive
                    && let Some(flight) = self.take(slot)
                {
                    let tag = tag_of(slot, generation);
                    self.late.insert(tag, (drive, flight.asked.bytes));
                    self.late_bytes += flight.asked.bytes;
                    self.record(drive).late += 1;
                    given_up.extend((!flight.is_disowned).then_some(flight.asked));
                }
                slot = next;
            }
        }
        given_up
    }

    /// The drive is waited for, however long it takes.
    pub(super) fn wait_for(&mut self, drive: usize, now: Moment) {
        self.record(drive).awaited = Some(now + LOOK_AGAIN);
    }

    /// The next request that has become slow.
    pub(super) fn next_slow(&mut self, now: Moment) -> Option<Slow> {
        let slot = self.fresh.first;
        if self.running(now) < self.flight(slot)?.sent + self.slow_after {
            return None;
        }
        self.unlink(slot);
        self.append(slot, true);
        let flight = self.flight(slot)?;
        let (drive, generation) = (flight.drive, flight.generation);
        let asked = (!flight.is_disowned).then_some(flight.asked);
        let record = self.record(drive);
        record.slow += 1;
        record.is_slow = true;
        Some(Slow {
            tag: tag_of(slot, generation),
            drive,
            asked,
        })
    }

    /// A drive that has had a request for longer than its time.
    pub(super) fn overdue(&self, now: Moment) -> Option<usize> {
        let running = self.running(now);
        let late = self.slow_ones();
        let mut late = late.take_while(|flight| running >= flight.sent + self.timeout);
        late.find(|flight| self.look_at(flight.drive).is_none_or(|at| now >= at))
            .map(|flight| flight.drive)
    }

    /// The time without that in which the process did not run.
    fn running(&self, now: Moment) -> Moment {
        Moment::from_nanos(
            (now.since(Moment::ORIGIN).saturating_sub(self.stood_still)).as_nanos() as u64,
        )
    }

    fn look_at(&self, drive: usize) -> Option<Moment> {
        self.drives.get(drive)?.awaited
    }

    fn slow_ones(&self) -> impl Iterator<Item = &Flight> {
        std::iter::successors(self.flight(self.slow.first), |flight| {
            self.flight(flight.after)
        })
    }

    /// When a request becomes slow, or a drive's time is over.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let slow = self.flight(self.fresh.first);
        let mut next = slow.map(|flight| flight.sent + self.slow_after + self.stood_still);
        // Behind those of a drive that is waited for there may be others'.
        for flight in self.slow_ones() {
            let due = flight.sent + self.timeout + self.stood_still;
            let again = self.look_at(flight.drive);
            let at = again.map_or(due, |again| again.max(due));
            next = Some(next.map_or(at, |next| next.min(at)));
            if again.is_none() {
                break;
            }
        }
        next
    }

    /// Time has passed. Where the process stood still meanwhile, the drives are given as much more.
    pub(super) fn look_at_clock(&mut self, now: Moment) {
        if let Some(due) = self.next_deadline()
            && now > due + LATE_WAKE
        {
            self.stood_still += now.since(due) + LATE_WAKE;
        }
    }

    /// Whether no drive has a request, but those that were given up.
    pub(super) fn is_empty(&self) -> bool {
        self.fresh.first == NONE && self.slow.first == NONE
    }

    /// Whether a drive has requests that it has not answered, those that were given up among them.
    pub(super) fn has_any(&self, drive: usize) -> bool {
        let record = self.drives.get(drive);
        record.is_some_and(|record| record.in_flight + record.late > 0)
    }

    /// Whether a drive has had a request for long and has answered nothing since.
    pub(super) fn is_slow(&self, drive: usize) -> bool {
        self.drives.get(drive).is_some_and(|record| record.is_slow)
    }

    /// Bytes of the engine's memory that requests hold which were given up.
    pub(super) fn late_bytes(&self) -> usize {
        self.late_bytes
    }

    /// How a drive answers.
    pub(super) fn replies(&self, drive: usize, now: Moment) -> DriveReplies {
        let record = self.drives.get(drive).copied().unwrap_or_default();
        let of_drive = |first: u32| {
            let all = std::iter::successors(self.flight(first), |flight| self.flight(flight.after));
            all.filter(move |flight| flight.drive == drive)
                .map(|flight| flight.sent)
                .next()
        };
        let sent = of_drive(self.slow.first).or_else(|| of_drive(self.fresh.first));
        DriveReplies {
            slow: record.slow,
            oldest: sent.map(|sent| self.running(now).since(sent)),
            given_up: record.late,
            is_awaited: record.awaited.is_some(),
        }
    }
}
