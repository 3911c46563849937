//! What a drive that returns has in use: counted anew by all that names it, a part of the segments in each turn of
//! the core, for there may be a million. What is taken or given back on the drive meanwhile is taken or given
//! back in what has been counted.

use std::collections::BTreeMap;

use super::Engine;
use super::extents::Extents;
use super::invariant::invariant;
use crate::format::ChunkCopy;

/// Segments that one turn looks at.
const A_TURN: usize = 16;

/// Extents of one drive that segments have, as far as these were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recount {
    drive: u16,
    /// The segments below this number were looked at.
    next: u32,
    /// First extent and length of each run.
    taken: BTreeMap<u32, u32>,
}

impl Recount {
    fn of(drive: u16) -> Self {
        Self {
            drive,
            next: 0,
            taken: BTreeMap::new(),
        }
    }

    /// So many extents are in use.
    fn take(&mut self, copy: ChunkCopy, extents: u32) {
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
}

impl Engine {
    /// Counts some segments more for a drive that returns; what they have there, once all are counted.
    pub(super) fn recount(&mut self, drive: u16) -> Option<Recount> {
        let begun = self.rebuild.returns.recount.take();
        let begun = begun.filter(|count| count.drive == drive);
        let mut count = begun.unwrap_or_else(|| Recount::of(drive));
        let is_done = self.recount_segments(&mut count, A_TURN);
        if !is_done {
            self.rebuild.returns.recount = Some(count);
            self.again = true;
            return None;
        }
        if cfg!(debug_assertions) {
            let mut at_once = Recount::of(drive);
            self.recount_segments(&mut at_once, usize::MAX);
            // Those whose free entry is not durable are counted by themselves.
            for (copy, extents) in self.release.columns_and_extents() {
                count.take(copy, extents);
                at_once.take(copy, extents);
            }
            invariant!(
                self,
                count.taken == at_once.taken,
                "{:?} were counted on drive {drive}, but {:?} are in use",
                count.taken,
                at_once.taken
            );
        }
        Some(count)
    }

    /// Counts up to so many segments; whether there are no more.
    fn recount_segments(&self, count: &mut Recount, most: usize) -> bool {
        let mut left = self.segment_classes.range(count.next..);
        for (&id, _) in left.by_ref().take(most) {
            let extents = self.shape(id).extents(&self.sizes);
            count.next = id + 1;
            count.segment_changes(id, self.segment_columns(id), extents);
        }
        left.next().is_none()
    }

    /// A segment has come into being, or has other columns.
    pub(super) fn recount_changes(&mut self, id: u32) {
        if let Some(mut count) = self.rebuild.returns.recount.take() {
            let extents = self.shape(id).extents(&self.sizes);
            count.segment_changes(id, self.segment_columns(id), extents);
            self.rebuild.returns.recount = Some(count);
        }
    }

    /// Extents are free that may have been counted.
    pub(super) fn recount_gives(&mut self, copy: ChunkCopy) {
        if let Some(count) = &mut self.rebuild.returns.recount {
            count.give(copy);
        }
    }

    /// The free extents of a drive, by what its segments have and by all else that names it: that is little.
    pub(super) fn free_extents(&self, mut count: Recount) -> Extents {
        let sizes = &self.sizes;
        let root = self.roots.durable();
        let logs = [&self.ring, &self.map_log].into_iter();
        let chunks = logs.flat_map(|side| &side.log.shape.chunks);
        let chunks = chunks.chain(&root.ring.chunks).chain(&root.map.chunks);
        let chunks = chunks.flat_map(|chunk| &chunk.copies);
        let chunks = chunks.map(|&copy| (copy, sizes.chunk_extents));
        let meta = self.metadata.segments().iter().chain(&root.meta);
        let meta = meta.flat_map(|segment| &segment.columns);
        let raw = self.raw.all_columns();
        let whole = meta.copied().chain(raw);
        let whole = whole.map(|copy| (copy, sizes.segment_extents()));
        let made = self.provisioning.iter().flat_map(|(class, columns)| {
            let extents = class.shape_of(columns.len()).extents(sizes);
            columns.iter().map(move |&copy| (copy, extents))
        });
        let freed = self.release.columns_and_extents();
        for (copy, extents) in chunks.chain(whole).chain(made).chain(freed) {
            count.take(copy, extents);
        }
        let mut extents = Extents::new(self.members[usize::from(count.drive)].extents);
        for (first, length) in count.taken {
            extents.claim(first, length);
        }
        extents
    }

    /// Some more of the segments that could not be read without the drive that is back take new slots again.
    pub(super) fn reopen_segments(&mut self) {
        let Some(from) = self.rebuild.returns.reopens_from.take() else {
            return;
        };
        let ids = self.segment_classes.range(from..).take(A_TURN);
        let ids: Vec<u32> = ids.map(|(&id, _)| id).collect();
        if let (Some(last), A_TURN) = (ids.last(), ids.len()) {
            self.rebuild.returns.reopens_from = Some(last + 1);
            self.again = true;
        }
        for id in ids {
            if !self.is_readable(id) {
                continue;
            }
            let class = self.segment_classes.get(&id);
            if let Some(segments) = class.and_then(|class| self.homes.get_mut(class)) {
                segments.reopen(id);
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
