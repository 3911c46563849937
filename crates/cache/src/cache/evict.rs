//! What goes: clean blocks, in the policy's order. First the page forgets them, then the fast device: the other way
//! round a crash would leave nothing where the page says that something is.

use std::time::Duration;

use ashlar_block::Moment;

use super::pages::State;
use super::{BLOCK, Cache, Defect, News, Op, Owner};
use crate::layout::{PAGE, UNIT};
use crate::locks::Hold;

/// Evictions under way at a time.
const MOST: usize = 64;

/// How long nothing is looked for after nothing was found: a cache that is full of what is not written back would spend
/// its time on that.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Blocks that are looked at in a turn: what has gone by then brings the next one about.
const STEPS: u64 = 1024;

/// When something that may go is looked for again.
pub(super) struct Look {
    at: Moment,
    /// A device has answered since: what could not go then may now.
    pub(super) has_news: bool,
}

impl Look {
    pub(super) const fn new(now: Moment) -> Self {
        Self {
            at: now,
            has_news: false,
        }
    }
}

/// A block on its way out.
pub(super) struct Eviction {
    first: u64,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Recording,
    Deallocating,
}

impl Eviction {
    /// Whether it waits for a page to be recorded.
    pub(super) fn awaits_page(&self) -> bool {
        self.step == Step::Recording
    }
}

impl Cache {
    /// Blocks that are kept free, so that what comes in need not wait.
    fn kept_free(&self) -> usize {
        (self.policy.capacity() / 64).clamp(1, 4096)
    }

    /// Whether more is here than is to be.
    fn has_more(&self) -> bool {
        let most = self.policy.capacity() - self.kept_free();
        self.policy.len() > most || self.space.wanted > 0
    }

    pub(super) fn evict(&mut self) {
        if self.now < self.look.at {
            return;
        }
        self.look.has_news = false;
        let from = self.policy.steps();
        let is_over = |cache: &Self| cache.policy.steps() - from >= STEPS;
        while self.has_more() && self.evicting < MOST && self.barrier.is_none() && !is_over(self) {
            let pages = &self.pages;
            let locks = &self.locks;
            let goes = self.policy.victim(|block| {
                let first = u64::from(block.0) * BLOCK;
                let dirty = pages.get(&(first / PAGE)).is_some_and(|page| {
                    let at = (first % PAGE) as usize;
                    (at..at + BLOCK as usize).any(|at| page.dirty.get(at))
                });
                !dirty && locks.is_free(first / UNIT)
            });
            let Some(block) = goes else {
                self.cleaning.leaving.is_wanted = true;
                self.space.wanted = 0;
                self.look.at = self.now + LOOK_AGAIN;
                return;
            };
            self.begin_eviction(u64::from(block.0) * BLOCK);
        }
    }

    /// When it is looked again for what may go.
    pub(super) fn look_deadline(&self) -> Option<Moment> {
        let waits = self.look.has_news && self.look.at > self.now && self.has_more();
        waits.then_some(self.look.at)
    }

    fn begin_eviction(&mut self, first: u64) {
        let op = self.ops.insert(Op::Evict(Eviction {
            first,
            step: Step::Recording,
        }));
        self.evicting += 1;
        self.space.wanted = self.space.wanted.saturating_sub(1);
        self.cleaning.leaving.gone += 1;
        // It was free a moment ago.
        self.locks.take(first / UNIT, op, Hold::Alone);
        let mut changed = false;
        for granule in first..first + BLOCK {
            changed |= self.record(granule, State::Absent);
            self.put(granule, State::Absent);
        }
        let waits = changed && self.forgets_later(first / PAGE);
        if waits {
            self.wait_for_page(first / PAGE, op);
        }
        if !waits || self.sings(Defect::DropBeforeRecord) {
            self.deallocate_block(op, first);
        }
    }

    fn deallocate_block(&mut self, op: usize, first: u64) {
        if let Some(Op::Evict(one)) = self.ops.get_mut(op)
            && one.step == Step::Recording
        {
            one.step = Step::Deallocating;
            self.give_back(Owner::Op(op), first, BLOCK);
        }
    }

    pub(super) fn eviction_news(&mut self, op: usize, news: News) {
        let Some(Op::Evict(Eviction { first, .. })) = self.ops.get(op) else {
            return;
        };
        let first = *first;
        match news {
            News::Granted => {}
            News::NoRoom { is_new: false } => self.wait_for_page(first / PAGE, op),
            News::Recorded | News::NoRoom { is_new: true } => self.deallocate_block(op, first),
            News::Done(..) => self.end_eviction(op),
        }
    }

    pub(super) fn end_eviction(&mut self, op: usize) {
        let Some(Op::Evict(Eviction { first, .. })) = self.ops.try_remove(op) else {
            return;
        };
        self.evicting -= 1;
        let next = self.locks.release(first / UNIT, Hold::Alone);
        self.granted.extend(next);
    }
}
