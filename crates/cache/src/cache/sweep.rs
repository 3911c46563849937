//! Space that a crash has left behind: what was put on the fast device just before, and no page says so. Nothing leads there
//! any more, so it would stay taken until its block is cached again.
//!
//! After a cache was taken up, blocks of which nothing is known are given back, from the first to the last, a part at a time.
//! The fast device is not asked what it has: giving back what is not there changes nothing, and costs it a look. A part has
//! its units alone, as what is put there has: so nothing of it is on its way there, and no page is about to forget it. It
//! waits for no unit, for hosts would wait behind it: one that is in use comes later, and so does one that the fast device
//! has not given back.
//!
//! So it is done with what came in and is not known any more because a flush of the backing device has failed.
//!
//! Parts make way for hosts: they take a tenth of the time, and all of it only when no host asks for anything, or the fast
//! device has no room. How far it has come is not kept: the next life begins anew.

use std::ops::Range;
use std::time::Duration;

use ashlar_block::Moment;

use super::{BLOCK, Cache, Defect, News, Op, Owner};
use crate::layout::{GRANULE, PAGE, UNIT};
use crate::locks::Hold;

/// Most units that a part has alone where something is cached: a host may wait for them.
const MOST_UNITS: usize = 64;
/// Ranges that are given back at a time.
const MOST_GAPS: usize = 64;
/// Most pages that are looked at in a turn, when all that they describe is cached.
const MOST_PAGES: usize = 16;
/// Most units that are in use and come later.
const MOST_SKIPPED: usize = 1024;
/// The time between two parts while hosts ask for something: so many times what the last has taken, and at least so much.
const PAUSES: u32 = 9;
const PAUSE: Duration = Duration::from_millis(2);
/// At most so much; and so long the units that are in use are left alone.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How far it is.
pub(super) struct Sweeping {
    /// The next granule, and the end.
    cursor: u64,
    end: u64,
    /// Units before that which were in use, or did not come back.
    skipped: Vec<u64>,
    /// Units of the part that is under way.
    under_way: u64,
    /// It begins anew when it has come to the end.
    is_asked_again: bool,
    since: Moment,
    next_at: Moment,
}

/// A part: what it has alone, and what it gives back; how much of that is on its way.
#[derive(Default)]
pub(super) struct Sweep {
    units: Vec<u64>,
    gaps: Vec<Range<u64>>,
    left: usize,
    /// The fast device has not given back some of it.
    has_failed: bool,
}

impl Sweep {
    fn add(&mut self, unit: u64, blocks: Vec<u64>) {
        self.units.push(unit);
        for first in blocks {
            match self.gaps.last_mut() {
                Some(gap) if gap.end == first => gap.end += BLOCK,
                _ => self.gaps.push(first..first + BLOCK),
            }
        }
    }

    fn is_full(&self, most_units: usize) -> bool {
        // At most every second block of a unit begins a gap.
        let gaps = self.gaps.len() + (UNIT / BLOCK / 2) as usize;
        self.units.len() >= most_units || gaps > MOST_GAPS
    }
}

impl Sweeping {
    pub(super) const fn new(now: Moment) -> Self {
        Self {
            cursor: 0,
            end: 0,
            skipped: Vec::new(),
            under_way: 0,
            is_asked_again: false,
            since: now,
            next_at: now,
        }
    }

    /// Bytes of the device that were not looked at yet, or did not come back.
    pub(super) fn bytes_left(&self) -> u64 {
        let units = self.skipped.len() as u64 + self.under_way;
        let again = if self.is_asked_again { self.end } else { 0 };
        let all = self.end.saturating_sub(self.cursor) + units * UNIT + again;
        all.min(self.end) * GRANULE as u64
    }

    fn has_come_to_the_end(&self) -> bool {
        self.cursor >= self.end
    }

    fn is_over(&self) -> bool {
        let none_waits = self.skipped.is_empty() && !self.is_asked_again;
        self.has_come_to_the_end() && none_waits && !self.is_under_way()
    }

    const fn is_under_way(&self) -> bool {
        self.under_way > 0
    }

    fn may_skip(&self) -> bool {
        self.skipped.len() < MOST_SKIPPED
    }
}

impl Cache {
    /// What came in is forgotten, and is to be given back. What is on its way to the end comes there first: a device that
    /// fails again and again would keep it from that.
    pub(super) fn sweep_again(&mut self) {
        self.sweeping.is_asked_again = true;
    }

    /// What the life before may have left is to be given back.
    pub(super) fn begin_sweeping(&mut self) {
        self.sweeping.is_asked_again = false;
        self.sweeping.cursor = 0;
        self.sweeping.skipped.clear();
        let is_left = self.sings(Defect::NothingIsSwept);
        self.sweeping.end = if is_left { 0 } else { self.layout.granules };
        self.sweeping.next_at = self.now + PAUSE;
    }

    /// Begins the next part, if it is time.
    pub(super) fn sweep(&mut self) {
        let sweeping = &self.sweeping;
        let waits = sweeping.is_under_way() || self.now < sweeping.next_at;
        if sweeping.is_over() || waits || self.barrier.is_some() {
            return;
        }
        if sweeping.is_asked_again && sweeping.has_come_to_the_end() {
            return self.begin_sweeping();
        }
        self.sweeping.since = self.now;
        for _ in 0..MOST_PAGES {
            let comes_later = self.sweeping.has_come_to_the_end() || !self.sweeping.may_skip();
            let part = match comes_later {
                true => self.part_of_skipped(),
                false => self.next_part(),
            };
            if !part.units.is_empty() {
                return self.begin_part(part);
            }
            if comes_later {
                self.sweeping.next_at = self.now + LONGEST_PAUSE;
                return;
            }
        }
        self.sweep_later();
    }

    /// Blocks of which nothing is known, from the cursor to the end of a page at most.
    fn next_part(&mut self) -> Sweep {
        let from = self.sweeping.cursor;
        let end = ((from / PAGE + 1) * PAGE).min(self.sweeping.end);
        let most = match self.pages.contains_key(&(from / PAGE)) {
            true => MOST_UNITS,
            false => (PAGE / UNIT) as usize,
        };
        let mut part = Sweep::default();
        self.sweeping.cursor = end;
        for unit in from / UNIT..end.div_ceil(UNIT) {
            if part.is_full(most) || !self.sweeping.may_skip() {
                self.sweeping.cursor = unit * UNIT;
                break;
            }
            let unknown = self.unknown_in(unit);
            if unknown.is_empty() {
                continue;
            }
            match self.is_free_to_sweep(unit) {
                true => part.add(unit, unknown),
                false => self.sweeping.skipped.push(unit),
            }
        }
        part
    }

    /// The same of units that were in use, or did not come back.
    fn part_of_skipped(&mut self) -> Sweep {
        let mut part = Sweep::default();
        let mut skipped = std::mem::take(&mut self.sweeping.skipped);
        // What did not come back may have been come to once more since.
        skipped.sort_unstable();
        skipped.dedup();
        for unit in skipped {
            let unknown = self.unknown_in(unit);
            if unknown.is_empty() {
                continue;
            }
            match self.is_free_to_sweep(unit) && !part.is_full(MOST_UNITS) {
                true => part.add(unit, unknown),
                false => self.sweeping.skipped.push(unit),
            }
        }
        part
    }

    fn is_free_to_sweep(&self, unit: u64) -> bool {
        self.locks.is_free(unit) || self.sings(Defect::SweptWithoutLock)
    }

    /// First granules of a unit's blocks of which nothing is known.
    fn unknown_in(&self, unit: u64) -> Vec<u64> {
        let first = unit * UNIT;
        let page = self.pages.get(&(first / PAGE));
        let blocks = (first..first + UNIT).step_by(BLOCK as usize);
        let blocks = blocks.filter(|&first| first < self.sweeping.end);
        let is_known =
            |first: u64| page.is_some_and(|page| page.knows_block((first % PAGE) as usize));
        blocks.filter(|&first| !is_known(first)).collect()
    }

    fn begin_part(&mut self, mut part: Sweep) {
        let (units, gaps) = (part.units.clone(), std::mem::take(&mut part.gaps));
        part.left = gaps.len();
        let op = self.ops.insert(Op::Sweep(part));
        self.sweeping.under_way = units.len() as u64;
        if !self.sings(Defect::SweptWithoutLock) {
            // They were free a moment ago.
            for unit in units {
                self.locks.take(unit, op, Hold::Alone);
            }
        }
        for gap in gaps {
            self.give_back(Owner::Op(op), gap.start, gap.end - gap.start);
        }
    }

    pub(super) fn sweep_news(&mut self, op: usize, news: News) {
        let (Some(Op::Sweep(part)), News::Done(_, _, result)) = (self.ops.get_mut(op), news) else {
            return;
        };
        part.has_failed |= result.is_err();
        part.left = part.left.saturating_sub(1);
        if part.left == 0 {
            self.end_part(op);
        }
    }

    fn end_part(&mut self, op: usize) {
        let Some(Op::Sweep(part)) = self.ops.try_remove(op) else {
            return;
        };
        if !self.sings(Defect::SweptWithoutLock) {
            for &unit in &part.units {
                let next = self.locks.release(unit, Hold::Alone);
                self.granted.extend(next);
            }
        }
        self.sweeping.under_way = 0;
        self.sweep_later();
        if part.has_failed {
            // The fast device may be able to some time: it has no room for its map, or is stopped.
            self.sweeping.skipped.extend(part.units);
            self.sweeping.next_at = self.now + LONGEST_PAUSE;
        }
    }

    /// The next part has its turn after a pause, unless no host is there, or the space is needed.
    fn sweep_later(&mut self) {
        let goes_on = self.is_idle() || self.space.refusal.is_some();
        let took = self.now.since(self.sweeping.since);
        let pause = match goes_on {
            true => Duration::ZERO,
            false => (took * PAUSES).clamp(PAUSE, LONGEST_PAUSE),
        };
        self.sweeping.next_at = self.now + pause;
    }

    /// When the next part begins.
    pub(super) fn sweep_deadline(&self) -> Option<Moment> {
        let sweeping = &self.sweeping;
        let waits = sweeping.is_under_way() || self.barrier.is_some();
        (!sweeping.is_over() && !waits).then_some(sweeping.next_at)
    }
}
