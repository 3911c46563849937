//! What a drive that returns has in use: counted anew by all that names it, a part of the segments in each turn of
//! the core, for there may be a million. What is taken or given back on the drive meanwhile is taken or given
//! back in what has been counted.
//!
//! Segments that could not be read without it take new slots again once it is back, a part in each turn as well.

use std::collections::BTreeMap;

use super::Space;
use crate::engine::base::Base;
use crate::engine::extents::Extents;
use crate::engine::invariant::invariant;
use crate::format::ChunkCopy;

/// Segments that one turn looks at.
const A_TURN: usize = 16;

/// Extents of one drive that segments have, as far as these were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Recount {
    drive: u16,
    /// The segments below this number were looked at.
    next: u32,
    /// First extent and length of each run.
    taken: BTreeMap<u32, u32>,
}

impl Recount {
    /// Nothing was looked at.
    fn of(drive: u16) -> Self {
        Self {
            drive,
            next: 0,
            taken: BTreeMap::new(),
        }
    }

    /// So many extents are in use.
    pub(in crate::engine) fn take(&mut self, copy: ChunkCopy, extents: u32) {
        if copy.drive == self.drive {
            self.taken.insert(copy.extent, extents);
        }
    }

    /// A segment has these columns from now on. One that was not looked at yet will be.
    fn segment_changes(&mut self, id: u32, columns: &[ChunkCopy], extents: u32) {
        if id < self.next {
            columns.iter().for_each(|&copy| self.take(copy, extents));
        }
    }

    /// Extents are free. Of a segment that was not looked at yet, it will not be.
    fn give(&mut self, copy: ChunkCopy) {
        if copy.drive == self.drive {
            self.taken.remove(&copy.extent);
        }
    }

    /// What is free of the drive beside all that has been counted.
    pub(in crate::engine) fn free(self, space: &Space) -> Extents {
        let mut extents = Extents::new(space.drives.extents(usize::from(self.drive)));
        for (first, length) in self.taken {
            extents.claim(first, length);
        }
        extents
    }
}

impl Space {
    /// Counts some segments more for a drive that returns; what they have there, once all are counted.
    pub(in crate::engine) fn recount(&mut self, drive: u16, base: &mut Base) -> Option<Recount> {
        let begun = self.recount.take().filter(|count| count.drive == drive);
        let mut count = begun.unwrap_or_else(|| Recount::of(drive));
        let is_done = self.recount_segments(&mut count, A_TURN);
        if !is_done {
            self.recount = Some(count);
            base.again = true;
            return None;
        }
        if cfg!(debug_assertions) {
            let mut at_once = Recount::of(drive);
            self.recount_segments(&mut at_once, usize::MAX);
            // Those whose free entry is not durable are counted by themselves.
            for (copy, extents) in self.upkeep.release().columns_and_extents() {
                count.take(copy, extents);
                at_once.take(copy, extents);
            }
            invariant!(
                base,
                count.taken == at_once.taken,
                "{:?} were counted on drive {drive}, but {:?} are in use",
                count.taken,
                at_once.taken
            );
        }
        Some(count)
    }

    /// What has been counted is of a drive that has failed since, or of a walk that is over.
    pub(in crate::engine) fn forget_recount(&mut self) {
        self.recount = None;
    }

    /// Counts up to so many segments; whether there are no more.
    fn recount_segments(&self, count: &mut Recount, most: usize) -> bool {
        let mut left = self.segments.iter_from(count.next);
        for (id, _) in left.by_ref().take(most) {
            count.next = id + 1;
            self.recount_segment(count, id);
        }
        left.next().is_none()
    }

    fn recount_segment(&self, count: &mut Recount, id: u32) {
        if let Some(found) = self.segments.get(id) {
            let extents = found.shape.extents(self.sizes());
            count.segment_changes(id, found.columns, extents);
        }
    }

    /// A segment has come into being, or has other columns.
    pub(in crate::engine) fn recount_changes(&mut self, id: u32) {
        if let Some(mut count) = self.recount.take() {
            self.recount_segment(&mut count, id);
            self.recount = Some(count);
        }
    }

    /// Extents are free that may have been counted.
    pub(in crate::engine) fn recount_gives(&mut self, copy: ChunkCopy) {
        if let Some(count) = &mut self.recount {
            count.give(copy);
        }
    }

    /// A drive is back: segments take new slots again that could not be read without it.
    pub(in crate::engine) fn begin_reopening(&mut self) {
        self.reopens_from = Some(0);
    }

    /// Whether segments are about to take new slots again.
    pub(in crate::engine) fn is_reopening(&self) -> bool {
        self.reopens_from.is_some()
    }

    /// Some more of these segments take new slots again; whether there may be others.
    pub(in crate::engine) fn reopen_segments(&mut self) -> bool {
        if let Some(from) = self.reopens_from.take() {
            self.reopen_from(from);
        }
        self.is_reopening()
    }

    fn reopen_from(&mut self, from: u32) {
        let ids = self.segments.iter_from(from).take(A_TURN);
        let ids: Vec<u32> = ids.map(|(id, _)| id).collect();
        if let (Some(last), A_TURN) = (ids.last(), ids.len()) {
            self.reopens_from = Some(last + 1);
        }
        for id in ids {
            if self.is_readable(id) {
                self.segments.reopen(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn copy(drive: u16, extent: u32) -> ChunkCopy {
        ChunkCopy { drive, extent }
    }

    /// What is counted at the end is what is in use then, whatever was taken and given back on the way.
    #[test]
    fn what_changes_on_the_way_is_counted_once() {
        let mut segments: BTreeMap<u32, ChunkCopy> =
            (1..=8).map(|id| (id, copy(1, id * 10))).collect();
        let mut count = Recount::of(1);
        let walk = |count: &mut Recount, segments: &BTreeMap<u32, ChunkCopy>, most: usize| {
            for (&id, &column) in segments.range(count.next..).take(most) {
                count.next = id + 1;
                count.segment_changes(id, &[column, copy(0, 10)], 2);
            }
        };
        walk(&mut count, &segments, 4);
        // Released: one that was walked over, and one that was not.
        for id in [2, 7] {
            let column = segments.remove(&id).expect("there");
            count.give(column);
        }
        // Taken: the number of the former, behind and ahead of the walk.
        for (id, column) in [(2, copy(1, 500)), (3, copy(1, 30)), (9, copy(1, 70))] {
            segments.insert(id, column);
            count.segment_changes(id, &[column], 2);
        }
        // Of another drive.
        count.give(copy(0, 10));
        count.give(copy(2, 30));
        walk(&mut count, &segments, usize::MAX);
        let in_use: BTreeMap<u32, u32> = segments.values().map(|one| (one.extent, 2)).collect();
        assert_eq!(count.taken, in_use);
    }
}
