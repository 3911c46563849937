//! Write-back: runs of what is newer, in order of address, a few at a time; then a flush of the backing device, and
//! only then the pages say that it is clean.
//!
//! Hosts do not wait for a run: what they write meanwhile overtakes it, and goes back once more. Two runs of the same
//! are never under way, for the older could come last.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use ashlar_block::{Durability, IoError, Moment, Request};

use super::flush::For;
use super::io::Target;
use super::leaving::Leaving;
use super::refused::Refused;
use super::{BLOCK, Cache, Defect, IDLE, News, Op, Owner, Side};
use crate::layout::{GRANULE, HEAD, Mark, PAGE, UNIT};

/// Most granules of a run.
pub(super) const RUN: u64 = 256;
/// Granules, and runs, that are written back between two flushes.
const MOST_UNFLUSHED: u64 = 64 * RUN;
const MOST_RUNS_UNFLUSHED: usize = 256;
/// Runs under way at a time.
const RUNS: usize = 32;
/// How long what was written back waits for a flush when something waits for that.
const SETTLE_SOON: Duration = Duration::from_millis(200);
/// And when nothing does: a flush keeps a disk from what hosts ask of it.
const SETTLE: Duration = Duration::from_secs(2);
/// How long a backing device that has failed is left alone.
const RETRY: Duration = Duration::from_secs(1);

/// How long after hosts were on the backing device they are expected again.
const EXPECTED: Duration = Duration::from_millis(100);
/// Between runs meanwhile that no write of the hosts asks for: an arm that goes there and back takes 30 ms of it.
const PACE: Duration = Duration::from_secs(1);
/// Most granules that write-back may owe: what it is behind by it makes up for when hosts rest.
const MOST_OWED: u64 = 64;

/// All that the mark replaces is in the first word of the first page's bits.
const _: () = assert!(HEAD < 64);

/// A run on its way back.
pub(super) struct Run {
    first: u64,
    end: u64,
    step: Step,
    /// Losses of the backing device before it was written there.
    losses: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reading,
    Writing,
}

/// How far write-back is.
#[derive(Default)]
pub(super) struct Cleaning {
    /// It goes on until less is newer.
    is_running: bool,
    /// What is to go before long.
    pub(super) leaving: Leaving,
    /// Pages with something that is written back, or has come in clean and no page says so.
    unsettled: BTreeSet<u64>,
    /// And those of which that is to be recorded when the flush under way is done.
    settling: BTreeSet<u64>,
    /// A flush has failed: it is tried again.
    flush_again: bool,
    /// The backing device was written since its last flush.
    pub(super) unflushed: bool,
    /// Times that all was gone through since a flush was ordered.
    pub(super) sweeps: u32,
    pub(super) cursor: u64,
    runs: usize,
    /// Since the last flush was ordered: granules, and runs.
    written: u64,
    written_runs: usize,
    flushing: bool,
    /// Flushes that have made something clean, in all lives.
    turn: u64,
    /// Hosts use the backing device until then.
    hosts_until: Option<Moment>,
    /// When the next run may begin beside them.
    next_at: Option<Moment>,
    /// Granules that hosts have written since as many were written back.
    owed: u64,
    /// Since when something waits for a flush.
    unsettled_since: Option<Moment>,
    retry_at: Option<Moment>,
    refused: Refused,
}

impl Cache {
    /// Granules that are newer, but for the head, which goes last.
    pub(super) fn dirty_elsewhere(&self) -> u64 {
        let Some(first) = self.pages.get(&0).filter(|_| self.head() > 0) else {
            return self.dirty;
        };
        // A turn asks several times: the head lies in one word.
        let head = first.dirty.words()[0] & ((1 << self.head()) - 1);
        self.dirty - u64::from(head.count_ones())
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
        let idle = self.is_idle();
        let cleaning = &mut self.cleaning;
        if dirty > capacity / 4 * 3 {
            cleaning.is_running = true;
        } else if dirty < capacity / 8 * 5 {
            cleaning.is_running = false;
        }
        let some = cleaning.is_running || !cleaning.leaving.is_empty();
        dirty > 0 && (some || idle || self.draining)
    }

    /// Whether no host has asked for anything for a while.
    pub(super) fn is_idle(&self) -> bool {
        self.now >= self.asked + IDLE
    }

    /// Whether write-back gets on.
    pub(super) fn gets_on(&self) -> bool {
        self.cleaning.retry_at.is_none_or(|at| at <= self.now)
    }

    pub(super) fn write_back(&mut self) {
        self.gather();
        let full = self.cleaning.flushing && self.is_much();
        if self.barrier.is_some() || !self.gets_on() || full {
            return;
        }
        // One arm's way for a MiB: whether hosts are there does not count.
        while self.cleaning.runs < RUNS
            && let Some((first, end)) = self.next_of_stream()
        {
            if !self.begin_run(first, end) {
                return;
            }
        }
        if !self.may_clean() {
            return;
        }
        while self.cleaning.runs < RUNS && !self.yields_to_hosts() {
            let Some((first, end)) = self.next_run() else {
                return;
            };
            if !self.begin_run(first, end) {
                return;
            }
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
        let some = self.cleaning.is_running || !self.cleaning.leaving.is_empty();
        let wants = some && self.dirty_elsewhere() > 0;
        let until = self.cleaning.hosts_until.filter(|_| wants);
        let until = [until, self.cleaning.next_at].into_iter().flatten().min();
        until.filter(|&at| wants && at > self.now)
    }

    /// The next run behind the last one, going round: what leaves first.
    fn next_run(&mut self) -> Option<(u64, u64)> {
        let all = self.cleaning.is_running || self.is_idle() || self.draining;
        let leaving = (!self.draining).then(|| self.next_leaving()).flatten();
        if leaving.is_some() || !all {
            return leaving;
        }
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
                return Some((first, self.end_of_run(first)));
            }
        }
        None
    }

    /// Where a run ends that begins there.
    pub(super) fn end_of_run(&self, first: u64) -> u64 {
        self.end_before(first, ((first / PAGE + 1) * PAGE).min(first + RUN))
    }

    pub(super) fn end_before(&self, first: u64, last: u64) -> u64 {
        let last = last.min(first + self.cleaning.refused.longest());
        let end = (first..last).find(|&granule| !self.may_go_back(granule));
        end.unwrap_or(last)
    }

    /// What the mark replaces goes back with the mark alone, whatever has found that it is newer, and when.
    pub(super) fn may_go_back(&self, granule: u64) -> bool {
        self.is_dirty(granule)
            && granule >= self.head()
            && !self.cleaning.refused.has(granule, self.now)
            && !self.looked_up(granule, |page| &page.written)
            && (self.sings(Defect::TwoRunsOfTheSame)
                || !self.looked_up(granule, |page| &page.returning))
            && self.locks.is_still(granule / UNIT)
    }

    /// Begins a run, of less if there is no memory for all of it; false if there is none.
    fn begin_run(&mut self, first: u64, end: u64) -> bool {
        let halves = std::iter::successors(Some(end - first), |&all| Some(all / 2));
        let mut halves = halves.take_while(|&granules| granules > 0);
        let Some(buffer) = halves.find_map(|granules| self.buffer(granules).ok()) else {
            return false;
        };
        let end = first + (buffer.len() / GRANULE) as u64;
        let step = Step::Reading;
        let losses = self.around.losses();
        let op = self.ops.insert(Op::Clean(Run {
            first,
            end,
            step,
            losses,
        }));
        self.cleaning.runs += 1;
        self.cleaning.owed = self.cleaning.owed.saturating_sub(end - first);
        for granule in first..end {
            let (page, at) = self.page_of(granule);
            page.returning.set(at, true);
        }
        let range = self.range(Side::Fast, first, end - first);
        self.send(Side::Fast, Owner::Op(op), Request::read(0, range, buffer));
        true
    }

    pub(super) fn run_news(&mut self, op: usize, news: News) {
        let (Some(Op::Clean(run)), News::Done(_, buffer, result)) = (self.ops.get_mut(op), news)
        else {
            return;
        };
        let (first, end) = (run.first, run.end);
        let losses = self.around.losses();
        match (run.step, result, buffer) {
            (Step::Reading, ..) if self.failure.is_some() => self.end_run(op),
            (Step::Reading, Ok(()), Some(buffer)) => {
                run.step = Step::Writing;
                run.losses = losses;
                let to = Target::backing(Durability::Cached);
                self.write_buffer(to, Owner::Op(op), first, buffer);
            }
            // The device may have had it before a flush failed, and not have it any more: it goes once more.
            (Step::Writing, Ok(()), _) if run.losses != losses => self.end_run(op),
            (Step::Writing, Ok(()), _) => {
                let all = self.sings(Defect::OvertakenIsClean);
                for granule in first..end {
                    let (page, at) = self.page_of(granule);
                    page.written.set(at, all || !page.overtaken.get(at));
                }
                self.comes_to_be_clean(first..end);
                // A flush that began before does not count for it.
                self.cleaning.unflushed = true;
                self.cleaning.written += end - first;
                self.cleaning.written_runs += 1;
                self.cleaning.refused.took();
                self.counters.written_back += end - first;
                self.end_run(op);
            }
            (_, result, _) => {
                self.counters.backing_errors += 1;
                if self.cleaning.refused.refused(first, end, self.now) {
                    self.cleaning.retry_at = Some(self.now + RETRY);
                }
                self.end_run(op);
                if let Err(error) = result {
                    self.flush_fails(&error);
                }
            }
        }
    }

    /// Something of these is clean once the backing device is flushed.
    pub(super) fn comes_to_be_clean(&mut self, granules: Range<u64>) {
        let pages = granules.start / PAGE..granules.end.div_ceil(PAGE);
        self.cleaning.unsettled.extend(pages);
    }

    fn end_run(&mut self, op: usize) {
        let Some(Op::Clean(run)) = self.ops.try_remove(op) else {
            return;
        };
        self.cleaning.runs -= 1;
        for granule in run.first..run.end {
            let (page, at) = self.page_of(granule);
            page.returning.set(at, false);
            page.overtaken.set(at, false);
        }
        // A run lies in one page.
        let (page, _) = self.page_of(run.first);
        page.shrink();
    }

    /// When what was written back is to be flushed, or a device is to be tried again.
    pub(super) fn settle_deadline(&self) -> Option<Moment> {
        let cleaning = &self.cleaning;
        let retry = cleaning.retry_at.filter(|&at| at > self.now);
        let again = cleaning.refused.next_deadline(self.now);
        let since = self.cleaning.unsettled_since;
        // What it waits for says when it goes on.
        let waits = self.cleaning.flushing || self.barrier.is_some() || !self.gets_on();
        let settle = since.filter(|_| !waits);
        let settle = settle.map(|since| since + self.settles_after());
        retry.into_iter().chain(again).chain(settle).min()
    }

    /// Whether as much was written back as a flush is to take: until one has ended, little becomes clean.
    fn is_much(&self) -> bool {
        let part = self.policy.capacity() as u64 * BLOCK / 16;
        let much = part.min(MOST_UNFLUSHED);
        self.cleaning.written >= much || self.cleaning.written_runs >= MOST_RUNS_UNFLUSHED
    }

    /// How long what can be recorded as clean after a flush waits for it.
    fn settles_after(&self) -> Duration {
        let soon = self.cleaning.leaving.is_wanted || self.draining || self.is_idle();
        match soon || !self.starved.is_empty() {
            true => SETTLE_SOON,
            false => SETTLE,
        }
    }

    /// Flushes the backing device when there is enough that can be recorded as clean then.
    pub(super) fn settle(&mut self) {
        let cleaning = &self.cleaning;
        let waits = cleaning.written > 0 || cleaning.flush_again || !cleaning.unsettled.is_empty();
        if self.cleaning.flushing || !waits || self.barrier.is_some() || !self.gets_on() {
            return;
        }
        let since = *self.cleaning.unsettled_since.get_or_insert(self.now);
        let at = since + self.settles_after();
        let enough = self.is_much();
        let hurry = self.draining && self.cleaning.runs == 0;
        if self.now < at && !enough && !hurry {
            return;
        }
        self.cleaning.unsettled_since = None;
        self.cleaning.leaving.is_wanted = false;
        self.cleaning.flush_again = false;
        self.cleaning.settling = std::mem::take(&mut self.cleaning.unsettled);
        for number in &self.cleaning.settling {
            if let Some(page) = self.pages.get_mut(number) {
                page.settle();
            }
        }
        self.cleaning.written = 0;
        self.cleaning.written_runs = 0;
        self.cleaning.flushing = true;
        let nothing = !std::mem::take(&mut self.cleaning.unflushed);
        if nothing || self.sings(Defect::CleanBeforeFlush) {
            return self.settled(Ok(()));
        }
        self.flush_backing(For::Settle);
    }

    /// The flush that [`settle`](Self::settle) has asked for is over: what the backing device has had before can be recorded
    /// as clean. Nothing is, if the one before it has failed meanwhile.
    pub(super) fn settled(&mut self, result: Result<(), IoError>) {
        self.cleaning.flushing = false;
        if let Err(error) = result {
            return self.flush_fails(&error);
        }
        let turn = self.next_flush();
        for number in std::mem::take(&mut self.cleaning.settling) {
            let page = self.pages.get_mut(&number);
            if let Some(newer) = page.and_then(|page| page.settled(turn)) {
                self.dirty -= newer;
                self.changed(number);
            }
        }
    }

    /// The number of a flush that makes something clean. A page may say any of one before.
    pub(super) fn next_flush(&mut self) -> u64 {
        self.cleaning.turn = self.cleaning.turn.saturating_add(1);
        self.cleaning.turn
    }

    /// In lives before there were at least so many flushes that have made something clean.
    pub(super) fn flushes_were(&mut self, turns: u64) {
        self.cleaning.turn = self.cleaning.turn.max(turns);
    }

    /// The backing device does what it is asked for.
    pub(super) fn was_flushed(&mut self) {
        let mark = self.header.as_ref().map(|header| header.mark);
        if matches!(mark, Some(Mark::Off | Mark::On)) {
            self.trouble = None;
        }
    }

    /// The backing device does not do what it is asked: it is asked again after a while.
    pub(super) fn in_trouble(&mut self, error: &IoError) {
        self.trouble = Some(error.to_string());
        self.counters.backing_errors += 1;
        self.cleaning.retry_at = Some(self.now + RETRY);
    }

    /// A flush of the backing device has failed, a host's or ours: what it had may be gone, and all of it is written
    /// again. What came in from there, and no page says so yet, may not be what it has. One of ours that waits for its turn
    /// has nothing to record then.
    pub(super) fn flush_failed(&mut self, error: &IoError) {
        self.in_trouble(error);
        let some_is_lost = self.around.may_be_lost();
        self.cleaning.unflushed = true;
        self.cleaning.unsettled_since = None;
        self.cleaning.flush_again = true;
        self.cleaning.written = 0;
        self.cleaning.written_runs = 0;
        let settling = std::mem::take(&mut self.cleaning.settling);
        self.cleaning.unsettled.extend(settling);
        let mut forgotten = 0;
        for number in &self.cleaning.unsettled {
            if let Some(page) = self.pages.get_mut(number) {
                page.written = Default::default();
                page.settling = Default::default();
                if some_is_lost {
                    forgotten += page.forget_unrecorded();
                }
            }
        }
        self.cached -= forgotten;
        if forgotten > 0 || self.is_filling() {
            // What is on its way here is not known when it has come, either.
            self.sweep_again();
        }
    }
}
