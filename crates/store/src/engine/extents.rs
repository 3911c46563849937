//! Free extents of drives, and columns of segments made of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::ChunkCopy;

/// The extents of one drive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    /// Free runs: first extent and length.
    free: BTreeMap<u32, u32>,
    /// The same by length: their first extents.
    by_len: BTreeMap<u32, BTreeSet<u32>>,
    free_count: u32,
}

impl Extents {
    /// A drive of `count` extents, all free.
    pub(crate) fn new(count: u32) -> Self {
        let mut all = Self::default();
        if count > 0 {
            all.insert(0, count);
            all.free_count = count;
        }
        all
    }

    fn insert(&mut self, first: u32, len: u32) {
        self.free.insert(first, len);
        self.by_len.entry(len).or_default().insert(first);
    }

    fn remove(&mut self, first: u32) -> Option<u32> {
        let len = self.free.remove(&first)?;
        if let Some(same) = self.by_len.get_mut(&len) {
            same.remove(&first);
            if same.is_empty() {
                self.by_len.remove(&len);
            }
        }
        Some(len)
    }

    /// Free extents.
    pub(crate) fn free(&self) -> u32 {
        self.free_count
    }

    /// Free runs: first extent and length.
    pub(crate) fn runs(&self) -> Vec<(u32, u32)> {
        self.free
            .iter()
            .map(|(&first, &len)| (first, len))
            .collect()
    }

    /// Whether so many are free side by side.
    pub(crate) fn has_run(&self, count: u32) -> bool {
        let longest = self.by_len.keys().next_back();
        longest.is_some_and(|&len| len >= count)
    }

    /// Columns of so many extents side by side that [`take`](Self::take) would find, with `kept` extents
    /// left free.
    pub(crate) fn columns(&self, extents: u32, kept: u32) -> u32 {
        self.columns_with_run(extents, kept, 0)
    }

    /// The same once a run of so many is given back; what it makes with its neighbours is left out.
    pub(crate) fn columns_with_run(&self, extents: u32, kept: u32, run: u32) -> u32 {
        let runs = self.by_len.range(extents.max(1)..);
        let there: u32 = runs
            .map(|(len, same)| len / extents * same.len() as u32)
            .sum();
        let there = there + run / extents.max(1);
        there.min((self.free_count + run).saturating_sub(kept) / extents.max(1))
    }

    /// Takes a run of `count`, of the shortest that fits: long ones stay for what needs them.
    pub(crate) fn take(&mut self, count: u32) -> Option<u32> {
        let (_, same) = self.by_len.range(count.max(1)..).next()?;
        let first = *same.first()?;
        let len = self.remove(first)?;
        if len > count {
            self.insert(first + count, len - count);
        }
        self.free_count -= count;
        Some(first)
    }

    /// Takes this very run; false when a part of it is not free.
    pub(crate) fn claim(&mut self, first: u32, count: u32) -> bool {
        let Some((&at, &len)) = self.free.range(..=first).next_back() else {
            return false;
        };
        let (end, wanted) = (at + len, first.saturating_add(count));
        if wanted > end || count == 0 {
            return false;
        }
        self.remove(at);
        if first > at {
            self.insert(at, first - at);
        }
        if end > wanted {
            self.insert(wanted, end - wanted);
        }
        self.free_count -= count;
        true
    }

    /// Gives a run back.
    pub(crate) fn give(&mut self, first: u32, count: u32) {
        let (mut first, mut len) = (first, count);
        self.free_count += count;
        if let Some((&at, &before)) = self.free.range(..first).next_back()
            && at + before == first
        {
            self.remove(at);
            first = at;
            len += before;
        }
        if let Some(after) = self.remove(first + len) {
            len += after;
        }
        self.insert(first, len);
    }
}

/// Chooses drives for `copies` columns of `extents` each, distinct: those that can give most columns,
/// by `rooms`, so that as many segments can be made as [`most_segments`] says. Takes them.
pub(crate) fn take_columns(
    drives: &mut [Extents],
    rooms: &[u32],
    copies: usize,
    extents: u32,
) -> Option<Vec<ChunkCopy>> {
    let mut order: Vec<usize> = (0..drives.len()).filter(|&i| rooms[i] > 0).collect();
    if order.len() < copies {
        return None;
    }
    order.sort_by_key(|&i| (u32::MAX - rooms[i], u32::MAX - drives[i].free(), i));
    let mut taken: Vec<ChunkCopy> = Vec::with_capacity(copies);
    for drive in order {
        if taken.len() == copies {
            break;
        }
        if let Some(extent) = drives[drive].take(extents) {
            taken.push(ChunkCopy {
                drive: drive as u16,
                extent,
            });
        }
    }
    if taken.len() == copies {
        return Some(taken);
    }
    for copy in taken {
        drives[usize::from(copy.drive)].give(copy.extent, extents);
    }
    None
}

/// Segments of so many columns on distinct drives, when each drive has room for so many columns.
pub(crate) fn most_segments(rooms: &[u32], columns: usize) -> u64 {
    let all: u64 = rooms.iter().map(|&room| u64::from(room)).sum();
    let columns = columns as u64;
    let fits = |segments: u64| {
        let of_each = rooms.iter().map(|&room| u64::from(room).min(segments));
        of_each.sum::<u64>() >= segments * columns
    };
    let (mut low, mut high) = (0, all + 1);
    while columns > 0 && high - low > 1 {
        let middle = low + (high - low) / 2;
        match fits(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_split_and_merge() {
        let mut extents = Extents::new(10);
        assert!(extents.claim(3, 2) && !extents.claim(4, 1) && !extents.claim(9, 2));
        assert_eq!(extents.take(4), Some(5));
        assert_eq!(extents.take(4), None);
        assert_eq!((extents.take(3), extents.free()), (Some(0), 1));
        extents.give(0, 3);
        extents.give(5, 4);
        extents.give(3, 2);
        assert_eq!((extents.free(), extents.take(10)), (10, Some(0)));
    }

    #[test]
    fn the_shortest_run_that_fits_is_taken() {
        let mut extents = Extents::new(20);
        assert!(extents.claim(6, 1) && extents.claim(10, 1));
        assert_eq!([extents.take(3), extents.take(6)], [Some(7), Some(0)]);
        assert_eq!((extents.columns(3, 0), extents.columns(3, 7)), (3, 0));
    }

    #[test]
    fn columns_are_on_distinct_drives_or_nowhere() {
        let mut drives = vec![Extents::new(4), Extents::new(8), Extents::new(1)];
        let rooms = |drives: &[Extents]| -> Vec<u32> {
            drives.iter().map(|drive| drive.columns(4, 0)).collect()
        };
        let now = rooms(&drives);
        let columns = take_columns(&mut drives, &now, 2, 4).expect("room");
        assert_eq!((columns[0].drive, columns[1].drive), (1, 0));
        let now = rooms(&drives);
        assert!(take_columns(&mut drives, &now, 2, 4).is_none());
        assert_eq!(drives[1].free(), 4);
    }

    /// Whatever is free where: what is promised can be taken, and no more.
    #[test]
    fn as_many_segments_can_be_made_as_are_promised() {
        let mut chance = 7_u64;
        let mut draw = |below: u64| {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (chance >> 33) % below
        };
        let mut promised_in_all = 0;
        for _ in 0..500 {
            let mut drives: Vec<Extents> = (0..=draw(5)).map(|_| Extents::new(60)).collect();
            for drive in &mut drives {
                for _ in 0..draw(30) {
                    drive.claim(draw(60) as u32, 1 + draw(3) as u32);
                }
            }
            let (extents, kept) = (1 + draw(4) as u32, draw(20) as u32);
            let copies = 1 + draw(drives.len() as u64) as usize;
            let rooms = |drives: &[Extents]| -> Vec<u32> {
                drives
                    .iter()
                    .map(|one| one.columns(extents, kept))
                    .collect()
            };
            let promised = most_segments(&rooms(&drives), copies);
            let mut made = 0;
            loop {
                let now = rooms(&drives);
                if take_columns(&mut drives, &now, copies, extents).is_none() {
                    break;
                }
                made += 1;
            }
            assert_eq!(made, promised, "{extents} extents, {copies} columns");
            promised_in_all += promised;
        }
        assert!(promised_in_all > 500);
    }
}
