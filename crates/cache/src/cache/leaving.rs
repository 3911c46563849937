//! What is to leave the cache before long and is newer than the backing device: it is written back first, so that there
//! is something that may go when room is needed. What hosts change again and again stays newer meanwhile, and is
//! written back once for many changes. So are streams, a MiB at a time: what is absorbed side by side goes to a disk side
//! by side.

use std::collections::BTreeSet;
use std::time::Duration;

use ashlar_block::Moment;

use super::clean::RUN;
use super::{BLOCK, Cache};
use crate::layout::UNIT;

/// Most blocks of each queue that are looked at.
const MOST: usize = 2048;
/// Granules behind which a stream has nothing under way.
const BEHIND: u64 = 4 * UNIT;
/// Between two looks.
const AGAIN: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Default)]
pub(super) struct Leaving {
    /// First granules of blocks.
    blocks: BTreeSet<u64>,
    /// Parts of streams, each as long as a run and written to its end.
    streamed: BTreeSet<u64>,
    /// Blocks that have gone since the last look.
    pub(super) gone: usize,
    /// Nothing could go for want of clean blocks.
    pub(super) is_wanted: bool,
    again_at: Option<Moment>,
}

impl Leaving {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The next from here on, going round.
    fn take(&mut self, from: u64) -> Option<u64> {
        let next = self.blocks.range(from..).next();
        let next = *next.or_else(|| self.blocks.first())?;
        self.blocks.remove(&next);
        Some(next)
    }
}

impl Cache {
    /// Looks for what is to leave, when half of what was found the last time has left.
    pub(super) fn gather(&mut self) {
        let each = (self.policy.capacity() / 8).clamp(1, MOST);
        let leaving = &self.cleaning.leaving;
        let due = leaving.is_wanted || leaving.gone > each / 2;
        let may = leaving.again_at.is_none_or(|at| at <= self.now);
        if !(due && may && leaving.is_empty()) {
            return;
        }
        let first = self.policy.next_to_go(each);
        let first = first.map(|block| u64::from(block.0) * BLOCK);
        let goes = |&first: &u64| (first..first + BLOCK).any(|granule| self.may_go_back(granule));
        let blocks = first.filter(goes).collect();
        let leaving = &mut self.cleaning.leaving;
        leaving.blocks = blocks;
        leaving.gone = 0;
        leaving.again_at = Some(self.now + AGAIN);
    }

    /// A stream has come as far as this: what is well behind it is whole.
    pub(super) fn stream_came_to(&mut self, granule: u64) {
        let behind = granule.saturating_sub(BEHIND) / RUN;
        if granule % RUN / UNIT == BEHIND / UNIT && behind > 0 {
            self.cleaning.leaving.streamed.insert(behind - 1);
        }
    }

    /// The next run of a stream.
    pub(super) fn next_of_stream(&mut self) -> Option<(u64, u64)> {
        loop {
            let &part = self.cleaning.leaving.streamed.first()?;
            let mut all = part * RUN..(part + 1) * RUN;
            let end = all.end;
            let first = all.find(|&granule| self.may_go_back(granule));
            if let Some(first) = first {
                return Some((first, self.end_before(first, end)));
            }
            self.cleaning.leaving.streamed.remove(&part);
        }
    }

    /// The next run of what leaves; what lies beside it and is newer goes with it.
    pub(super) fn next_leaving(&mut self) -> Option<(u64, u64)> {
        loop {
            let block = self.cleaning.leaving.take(self.cleaning.cursor)?;
            let first = (block..block + BLOCK).find(|&granule| self.may_go_back(granule));
            if let Some(first) = first {
                let end = self.end_of_run(first);
                self.cleaning.cursor = end;
                return Some((first, end));
            }
        }
    }
}
