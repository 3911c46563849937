//! What a drive that returns has in use: counted anew by all that names it, a part of the segments in each turn of
//! the core, for there may be a million. What is taken or given back on the drive meanwhile is taken or given
//! back in what has been counted.

use std::collections::BTreeMap;

use crate::format::ChunkCopy;

/// Segments that one turn looks at.
pub(in crate::engine) const A_TURN: usize = 16;

/// Extents of one drive that segments have, as far as these were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Recount {
    pub(in crate::engine) drive: u16,
    /// The segments below this number were looked at.
    pub(in crate::engine) next: u32,
    /// First extent and length of each run.
    pub(in crate::engine) taken: BTreeMap<u32, u32>,
}

impl Recount {
    /// Nothing was looked at.
    pub(in crate::engine) fn of(drive: u16) -> Self {
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
    pub(in crate::engine) fn segment_changes(
        &mut self,
        id: u32,
        columns: &[ChunkCopy],
        extents: u32,
    ) {
        if id < self.next {
            columns.iter().for_each(|&copy| self.take(copy, extents));
        }
    }

    /// Extents are free. Of a segment that was not looked at yet, it will not be.
    pub(in crate::engine) fn give(&mut self, copy: ChunkCopy) {
        if copy.drive == self.drive {
            self.taken.remove(&copy.extent);
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
