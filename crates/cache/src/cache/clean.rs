//! Write-back: runs of what is newer, in order of address, a few at a time; then a flush of the backing device, and
//! only then the pages say that it is clean.

use std::time::Duration;

use ashlar_block::{Durability, IoError, Moment, Request};

use super::{BLOCK, Cache, Defect, IDLE, News, Op, Owner, Side};
use crate::layout::{PAGE, UNIT};
use crate::locks::Hold;

/// Most granules of a run.
const RUN: u64 = 256;
/// Runs under way at a time.
const RUNS: usize = 8;
/// How long what was written back waits for a flush.
const SETTLE: Duration = Duration::from_millis(200);
/// How long a backing device that has failed is left alone.
const RETRY: Duration = Duration::from_secs(1);

/// How long after hosts were on the backing device they are expected again.
const EXPECTED: Duration = Duration::from_millis(100);
/// Between runs meanwhile that no write of the hosts asks for: an arm that goes there and back takes 20 ms of it.
const PACE: Duration = Duration::from_millis(400);
/// Most granules that write-back may owe: what it is behind by it makes up for when hosts rest.
const MOST_OWED: u64 = 64;

/// A run on its way back.
pub(super) struct Run {
    first: u64,
    end: u64,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reading,
    Writing,
}

/// How far write-back is.
#[derive(Default)]
pub(super) struct Cleaning {
    /// It goes on until little is dirty.
    is_running: bool,
    /// Nothing could go for want of clean blocks.
    pub(super) is_wanted: bool,
    /// Something clean has come in that no page says.
    pub(super) fresh: bool,
    /// The backing device was written since its last flush.
    pub(super) unflushed: bool,
    /// Times that all was gone through since a flush was ordered.
    pub(super) sweeps: u32,
    cursor: u64,
    runs: usize,
    written: u64,
    flushing: bool,
    /// Hosts use the backing device until then.
    hosts_until: Option<Moment>,
    /// When the next run may begin beside them.
    next_at: Option<Moment>,
    /// Granules that hosts have written since as many were written back.
    owed: u64,
    settle_at: Option<Moment>,
    retry_at: Option<Moment>,
}

impl Cache {
    /// Granules that are newer, but for the head, which goes last.
    pub(super) fn dirty_elsewhere(&self) -> u64 {
        let head = (0..self.head()).filter(|&granule| self.is_dirty(granule));
        self.dirty - head.count() as u64
    }

    /// Whether nothing is on its way back.
    pub(super) fn is_settled(&self) -> bool {
        self.cleaning.runs == 0 && !self.cleaning.flushing && self.cleaning.written == 0
    }

    /// Whether the backing device is being flushed.
    pub(super) fn is_flushing(&self) -> bool {
        self.cleaning.flushing
    }

    /// Whether hosts' writes wait, so that a flush comes to its end.
    pub(super) fn holds_writes(&self) -> bool {
        self.draining && (self.cleaning.sweeps >= 3 || self.dirty_elsewhere() < RUN)
    }

    fn may_clean(&mut self) -> bool {
        let capacity = self.policy.capacity() as u64 * BLOCK;
        let dirty = self.dirty_elsewhere() - self.cleaning.written.min(self.dirty_elsewhere());
        let idle = self.now >= self.asked + IDLE;
        let cleaning = &mut self.cleaning;
        if dirty > capacity / 4 || cleaning.is_wanted {
            cleaning.is_running = true;
        } else if dirty < capacity / 8 {
            cleaning.is_running = false;
        }
        cleaning.is_wanted = false;
        let may = cleaning.retry_at.is_none_or(|at| at <= self.now);
        may && dirty > 0 && (cleaning.is_running || idle || self.draining)
    }

    pub(super) fn write_back(&mut self) {
        if self.barrier.is_some() || !self.may_clean() {
            return;
        }
        while self.cleaning.runs < RUNS && !self.yields_to_hosts() {
            let Some((first, end)) = self.next_run() else {
                return;
            };
            self.begin_run(first, end);
        }
    }

    /// Hosts use the backing device.
    pub(super) fn hosts_go_by(&mut self) {
        self.cleaning.hosts_until = Some(self.now + EXPECTED);
    }

    /// Hosts have written something that the disk alone would have had to write, too.
    pub(super) fn owe(&mut self, granules: u64) {
        self.cleaning.owed = (self.cleaning.owed + granules).min(MOST_OWED);
    }

    /// Whether hosts have the backing device, but for a run now and then. Write-back keeps pace with what they write, and
    /// a flush that is asked for does not wait.
    fn yields_to_hosts(&mut self) -> bool {
        let (now, cleaning) = (self.now, &mut self.cleaning);
        let hosts = cleaning.hosts_until.is_some_and(|until| now < until);
        if !hosts || self.draining || cleaning.owed > 0 {
            return false;
        }
        let waits = cleaning.runs > 0 || cleaning.next_at.is_some_and(|at| now < at);
        if !waits {
            cleaning.next_at = Some(now + PACE);
        }
        waits
    }

    /// When write-back may go on that has made way for hosts.
    pub(super) fn yield_deadline(&self) -> Option<Moment> {
        let wants = self.cleaning.is_running && self.dirty_elsewhere() > 0;
        let until = self.cleaning.hosts_until.filter(|_| wants);
        let until = [until, self.cleaning.next_at].into_iter().flatten().min();
        until.filter(|&at| wants && at > self.now)
    }

    /// The next run behind the last one, going round.
    fn next_run(&mut self) -> Option<(u64, u64)> {
        let from = self.cleaning.cursor;
        let found = self.run_from(from, u64::MAX);
        let found = found.or_else(|| {
            self.cleaning.sweeps += 1;
            self.run_from(0, from)
        })?;
        self.cleaning.cursor = found.1;
        Some(found)
    }

    fn run_from(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let from = from.max(self.head());
        for (&page, bits) in self.pages.range(from / PAGE..) {
            let mut at = from.saturating_sub(page * PAGE) as usize;
            while let Some(next) = bits.dirty.next(at) {
                let first = page * PAGE + next as u64;
                if first >= to {
                    return None;
                }
                at = next + 1;
                if !self.may_go_back(first) {
                    continue;
                }
                let last = ((page + 1) * PAGE).min(first + RUN);
                let end = (first..last).find(|&granule| !self.may_go_back(granule));
                return Some((first, end.unwrap_or(last)));
            }
        }
        None
    }

    fn may_go_back(&self, granule: u64) -> bool {
        self.is_dirty(granule)
            && !self.looked_up(granule, |page| &page.written)
            && self.locks.is_free(granule / UNIT)
    }

    fn begin_run(&mut self, first: u64, end: u64) {
        let step = Step::Reading;
        let op = self.ops.insert(Op::Clean(Run { first, end, step }));
        self.cleaning.runs += 1;
        self.cleaning.owed = self.cleaning.owed.saturating_sub(end - first);
        for unit in first / UNIT..end.div_ceil(UNIT) {
            self.locks.take(unit, op, Hold::Alone);
        }
        if self
            .read(Side::Fast, Owner::Op(op), first, end - first)
            .is_err()
        {
            self.end_run(op);
        }
    }

    pub(super) fn run_news(&mut self, op: usize, news: News) {
        let (Some(Op::Clean(run)), News::Done(_, buffer, result)) = (self.ops.get_mut(op), news)
        else {
            return;
        };
        let (first, end) = (run.first, run.end);
        match (run.step, result, buffer) {
            (Step::Reading, Ok(()), Some(buffer)) => {
                run.step = Step::Writing;
                let how = (Side::Backing, Durability::Cached);
                self.write_buffer(how, Owner::Op(op), first, buffer);
            }
            (Step::Writing, Ok(()), _) => {
                for granule in first..end {
                    let (page, at) = self.page_of(granule);
                    page.written.set(at, true);
                }
                // A flush that began before does not count for it.
                self.cleaning.unflushed = true;
                self.cleaning.written += end - first;
                self.counters.written_back += end - first;
                self.end_run(op);
            }
            (_, _, _) => {
                self.counters.backing_errors += 1;
                self.cleaning.retry_at = Some(self.now + RETRY);
                self.end_run(op);
            }
        }
    }

    fn end_run(&mut self, op: usize) {
        let Some(Op::Clean(run)) = self.ops.try_remove(op) else {
            return;
        };
        self.cleaning.runs -= 1;
        for unit in run.first / UNIT..run.end.div_ceil(UNIT) {
            let next = self.locks.release(unit, Hold::Alone);
            self.granted.extend(next);
        }
    }

    /// When what was written back is to be flushed, or a device is to be tried again.
    pub(super) fn settle_deadline(&self) -> Option<Moment> {
        let retry = self.cleaning.retry_at.filter(|&at| at > self.now);
        let settle = self.cleaning.settle_at.filter(|_| !self.cleaning.flushing);
        retry.into_iter().chain(settle).min()
    }

    /// Flushes the backing device when there is enough that can be recorded as clean then.
    pub(super) fn settle(&mut self) {
        let waits = self.cleaning.written > 0 || self.cleaning.fresh;
        if self.cleaning.flushing || !waits || self.barrier.is_some() {
            return;
        }
        let at = *self.cleaning.settle_at.get_or_insert(self.now + SETTLE);
        let enough = self.cleaning.written >= 64 * RUN;
        let hurry = self.draining && self.cleaning.runs == 0;
        if self.now < at && !enough && !hurry {
            return;
        }
        self.cleaning.settle_at = None;
        self.cleaning.fresh = false;
        for page in self.pages.values_mut() {
            let unsettled: Vec<usize> = page.unsettled().collect();
            unsettled
                .into_iter()
                .for_each(|at| page.settling.set(at, true));
        }
        self.cleaning.written = 0;
        self.cleaning.flushing = true;
        let nothing = !std::mem::take(&mut self.cleaning.unflushed);
        if nothing || self.sings(Defect::CleanBeforeFlush) {
            return self.settled(Ok(()));
        }
        self.send(Side::Backing, Owner::Settle, Request::flush(0));
    }

    /// The backing device is flushed: what it has had before can be recorded as clean.
    pub(super) fn settled(&mut self, result: Result<(), IoError>) {
        self.cleaning.flushing = false;
        let failed = result.is_err();
        if failed {
            self.counters.backing_errors += 1;
            self.cleaning.retry_at = Some(self.now + RETRY);
            // What it had may be gone: all of it is written again.
            self.cleaning.unflushed = true;
            self.cleaning.written = 0;
        }
        let mut recorded = Vec::new();
        let mut cleaned = 0;
        for (&number, page) in &mut self.pages {
            if failed {
                page.written = Default::default();
                page.settling = Default::default();
                continue;
            }
            let settling = std::mem::take(&mut page.settling);
            for at in settling.iter() {
                cleaned += u64::from(page.dirty.get(at));
                page.dirty.set(at, false);
                page.written.set(at, false);
                page.cached.set(at, true);
                page.newer.set(at, false);
            }
            if !settling.is_empty() {
                recorded.push(number);
            }
        }
        self.dirty -= cleaned;
        recorded.into_iter().for_each(|page| self.changed(page));
    }
}
