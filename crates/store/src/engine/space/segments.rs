//! Free space inside of segments: slots of homes, places of metadata segments. Extents of drives are in
//! [`extents`](crate::engine::extents).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use crate::Sizes;
use crate::format::{ChunkCopy, MAX_SEGMENTS, MetaSegment};

/// A mirror or metadata segment as the engine uses it.
#[derive(Clone, Debug)]
struct Segment {
    /// Member and first extent of each copy, or of each column.
    columns: Vec<ChunkCopy>,
    /// How many of the columns, the last ones, hold parity.
    parity: u8,
    /// One bit a unit (slot, place), set while in use.
    used: Vec<u64>,
    units: u32,
    free: u32,
    /// Nothing more is taken from it.
    closed: bool,
}

impl Segment {
    fn new(columns: Vec<ChunkCopy>, parity: u8, units: u32) -> Self {
        Self {
            columns,
            parity,
            used: vec![0; units.div_ceil(64) as usize],
            units,
            free: units,
            closed: false,
        }
    }

    /// Takes a free unit.
    fn take(&mut self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        for (word_index, word) in self.used.iter_mut().enumerate() {
            let bit = word.trailing_ones();
            let unit = word_index as u32 * 64 + bit;
            if bit < 64 && unit < self.units {
                *word |= 1 << bit;
                self.free -= 1;
                return Some(unit);
            }
        }
        None
    }

    /// The first run of `wanted` free units, else the longest there is: first unit and length.
    fn run(&self, wanted: u32) -> Option<(u32, u32)> {
        let (mut best, mut unit) = ((0, 0), 0);
        while unit < self.units && best.1 < wanted {
            let first = self.next(unit, false);
            let end = self.next(first, true).min(first.saturating_add(wanted));
            if end - first > best.1 {
                best = (first, end - first);
            }
            unit = end;
        }
        (best.1 > 0).then_some(best)
    }

    /// The first unit from `unit` on that is in use, or that is free; `units` if there is none.
    fn next(&self, unit: u32, used: bool) -> u32 {
        let mut at = unit;
        while at < self.units {
            let word = self.used[at as usize / 64] >> (at % 64);
            let run = match used {
                true => word.trailing_zeros(),
                false => word.trailing_ones(),
            };
            let left = 64 - at % 64;
            if run < left {
                return (at + run).min(self.units);
            }
            at += left;
        }
        self.units
    }

    /// Marks a unit as in use; false when it was already, or does not exist.
    fn mark(&mut self, unit: u32) -> bool {
        let Some(word) = self.used.get_mut(unit as usize / 64) else {
            return false;
        };
        let bit = 1 << (unit % 64);
        if unit >= self.units || *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.free -= 1;
        true
    }

    /// Marks 64 units from `first`, a multiple of 64, on as in use; how many were not.
    fn mark_word(&mut self, first: u32, bits: u64) -> u32 {
        let left = self.units.saturating_sub(first);
        let there = match left {
            0..64 => (1 << left) - 1,
            _ => u64::MAX,
        };
        let Some(word) = self.used.get_mut(first as usize / 64) else {
            return 0;
        };
        let new = bits & there & !*word;
        *word |= new;
        self.free -= new.count_ones();
        new.count_ones()
    }

    fn release(&mut self, unit: u32) -> bool {
        let Some(word) = self.used.get_mut(unit as usize / 64) else {
            return false;
        };
        let bit = 1 << (unit % 64);
        let was = *word & bit != 0;
        *word &= !bit;
        self.free += u32::from(was);
        was
    }
}

/// Segments in which a run of units is looked for.
const LOOKED_THROUGH: usize = 16;

/// Columns that segments of one kind should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// In a pool without a loss.
    pub(crate) columns: usize,
    /// Of these, with parity; none in mirrors, whose segments are never narrower for good.
    pub(crate) parity: Option<usize>,
}

impl Wanted {
    /// Columns that a segment should have; one with parity may have been made narrower.
    fn of(self, segment: &Segment) -> usize {
        let data = segment.columns.len() - usize::from(segment.parity);
        self.parity.map_or(self.columns, |parity| data + parity)
    }
}

/// Segments of one kind, and which of them have room. What is asked of all of them is counted as they
/// change: there may be a million.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    by_id: BTreeMap<u32, Segment>,
    with_room: BTreeSet<u32>,
    /// Those with room that have all columns on drives that stay.
    whole: BTreeSet<u32>,
    /// Those with fewer columns in service than they should have.
    short: BTreeSet<u32>,
    on_drive: DriveCounts,
    wanted: Wanted,
    drives: DriveStates,
    units: u32,
    free: u64,
    /// Units in use, also of segments of which none are taken any more.
    taken: u64,
    /// Units, free or not, of segments of which some are still taken.
    open: u64,
    /// Segments that were looked at, for tests.
    steps: Cell<u64>,
}

/// Which drives are in service, and which of them stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriveStates {
    pub(crate) serving: Vec<bool>,
    pub(crate) staying: Vec<bool>,
}

/// Copies on drives of which this is so.
fn on(columns: &[ChunkCopy], drives: &[bool]) -> usize {
    let is_on = |copy: &&ChunkCopy| drives.get(usize::from(copy.drive)) == Some(&true);
    columns.iter().filter(is_on).count()
}

impl Segments {
    /// No segments yet; each will have `units`.
    pub(crate) fn new(units: u32) -> Self {
        Self {
            units,
            ..Self::default()
        }
    }

    /// Adds a segment of free units.
    pub(crate) fn add(&mut self, id: u32, columns: Vec<ChunkCopy>) {
        self.add_with_parity(id, columns, 0);
    }

    /// Adds a segment of free units whose last columns hold parity.
    pub(crate) fn add_with_parity(&mut self, id: u32, columns: Vec<ChunkCopy>, parity: u8) {
        if self.by_id.contains_key(&id) {
            return;
        }
        self.on_drive.add(&columns);
        self.by_id
            .insert(id, Segment::new(columns, parity, self.units));
        self.sort_in(id);
        self.free += u64::from(self.units);
        self.open += u64::from(self.units);
    }

    /// The same, of a class whose segments should have these columns.
    pub(crate) fn wanting(units: u32, wanted: Wanted) -> Self {
        Self {
            wanted,
            ..Self::new(units)
        }
    }

    /// Drives have come, gone, or are to leave.
    pub(crate) fn set_drives(&mut self, drives: &DriveStates) {
        if self.drives == *drives {
            return;
        }
        self.drives = drives.clone();
        for id in self.by_id.keys().copied().collect::<Vec<_>>() {
            self.sort_in(id);
        }
    }

    /// A segment has come, gone or changed: whether it has room, and whether it lacks columns.
    fn sort_in(&mut self, id: u32) {
        self.steps.set(self.steps.get() + 1);
        let segment = self.by_id.get(&id);
        let has_room = segment.is_some_and(|one| one.free > 0 && !one.closed);
        let is_whole = segment
            .is_some_and(|one| on(&one.columns, &self.drives.staying) >= self.wanted.columns);
        let is_short =
            segment.is_some_and(|one| on(&one.columns, &self.drives.serving) < self.wanted.of(one));
        let put = |set: &mut BTreeSet<u32>, there: bool| match there {
            true => set.insert(id),
            false => set.remove(&id),
        };
        put(&mut self.with_room, has_room);
        put(&mut self.whole, has_room && is_whole);
        put(&mut self.short, is_short);
    }

    /// Whether some segment has fewer columns in service than it should have.
    pub(crate) fn are_short(&self) -> bool {
        !self.short.is_empty()
    }

    /// Drives that have columns.
    pub(crate) fn drives(&self) -> impl Iterator<Item = u16> {
        self.on_drive.drives()
    }

    /// Segments that were looked at since the beginning.
    #[cfg(feature = "canary")]
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// The segment's columns.
    pub(crate) fn columns(&self, id: u32) -> Option<&[ChunkCopy]> {
        self.steps.set(self.steps.get() + 1);
        self.by_id.get(&id).map(|segment| &segment.columns[..])
    }

    /// The same, and how many of them, the last ones, hold parity.
    pub(crate) fn columns_and_parity(&self, id: u32) -> Option<(&[ChunkCopy], u8)> {
        self.steps.set(self.steps.get() + 1);
        let segment = self.by_id.get(&id)?;
        Some((&segment.columns, segment.parity))
    }

    /// How many of a segment's columns hold parity.
    pub(crate) fn parity(&self, id: u32) -> u8 {
        self.by_id.get(&id).map_or(0, |segment| segment.parity)
    }

    /// Takes a unit, segment and unit, of a segment whose columns are `good` if there is one.
    pub(crate) fn take_preferring(
        &mut self,
        good: impl Fn(&[ChunkCopy]) -> bool,
    ) -> Option<(u32, u32)> {
        let is_good = |id: &&u32| self.columns(**id).is_some_and(&good);
        let found = self.with_room.iter().find(is_good);
        let id = *found.or_else(|| self.with_room.first())?;
        let segment = self.by_id.get_mut(&id)?;
        let unit = segment.take()?;
        self.free -= 1;
        self.taken += 1;
        if segment.free == 0 {
            self.is_full(id);
        }
        Some((id, unit))
    }

    /// Takes up to `wanted` neighbouring units: segment, first unit and how many; as many as there
    /// are side by side in one of the first few segments with room, of those that have all their columns
    /// if there is one.
    pub(crate) fn take_run(&mut self, wanted: u32) -> Option<(u32, u32, u32)> {
        let mut best = (0, 0, 0);
        let some = match self.whole.is_empty() {
            true => &self.with_room,
            false => &self.whole,
        };
        for &id in some.iter().take(LOOKED_THROUGH) {
            self.steps.set(self.steps.get() + 1);
            let run = self.by_id.get(&id).and_then(|segment| segment.run(wanted));
            if let Some((first, count)) = run
                && count > best.2
            {
                best = (id, first, count);
            }
            if best.2 == wanted {
                break;
            }
        }
        let (id, first, count) = best;
        let taken = (first..first + count).all(|unit| self.claim(id, unit));
        (count > 0 && taken).then_some(best)
    }

    /// Takes this very unit; false when it is in use or does not exist.
    pub(crate) fn claim(&mut self, id: u32, unit: u32) -> bool {
        let Some(segment) = self.by_id.get_mut(&id) else {
            return false;
        };
        let claimed = segment.mark(unit);
        self.taken += u64::from(claimed);
        self.free -= u64::from(claimed && !segment.closed);
        if segment.free == 0 {
            self.is_full(id);
        }
        claimed
    }

    /// Takes the units from `first`, a multiple of 64, on whose bits are set; false if there is no such segment.
    #[must_use]
    pub(crate) fn claim_bits(&mut self, id: u32, first: u32, bits: &[u8]) -> bool {
        let Some(segment) = self.by_id.get_mut(&id) else {
            return false;
        };
        let (words, _) = bits.as_chunks::<8>();
        for (at, word) in (first..).step_by(64).zip(words) {
            let claimed = segment.mark_word(at, u64::from_le_bytes(*word));
            self.taken += u64::from(claimed);
            if !segment.closed {
                self.free -= u64::from(claimed);
            }
        }
        if segment.free == 0 {
            self.is_full(id);
        }
        true
    }

    fn is_full(&mut self, id: u32) {
        self.with_room.remove(&id);
        self.whole.remove(&id);
    }

    /// Gives a unit back.
    pub(crate) fn release(&mut self, id: u32, unit: u32) {
        if let Some(segment) = self.by_id.get_mut(&id)
            && segment.release(unit)
        {
            self.taken -= 1;
            self.free += u64::from(!segment.closed);
            if segment.free == 1 && !segment.closed {
                self.sort_in(id);
            }
        }
    }

    /// A number that no segment has had.
    pub(crate) fn next_id(&self) -> u32 {
        self.by_id.keys().next_back().map_or(0, |last| last + 1)
    }

    /// Takes nothing more from a segment.
    pub(crate) fn close(&mut self, id: u32) {
        if let Some(segment) = self.by_id.get_mut(&id).filter(|segment| !segment.closed) {
            segment.closed = true;
            self.free -= u64::from(segment.free);
            self.open -= u64::from(segment.units);
            self.is_full(id);
        }
    }

    /// Takes units from a segment again that was closed.
    pub(crate) fn reopen(&mut self, id: u32) {
        if let Some(segment) = self.by_id.get_mut(&id).filter(|segment| segment.closed) {
            segment.closed = false;
            self.free += u64::from(segment.free);
            self.open += u64::from(segment.units);
            self.sort_in(id);
        }
    }

    /// Whether a segment holds nothing and will hold nothing more.
    pub(crate) fn is_closed_and_empty(&self, id: u32) -> bool {
        let segment = self.by_id.get(&id);
        segment.is_some_and(|segment| segment.closed && segment.free == segment.units)
    }

    /// Whether nothing of a segment is in use.
    pub(crate) fn is_empty(&self, id: u32) -> bool {
        let segment = self.by_id.get(&id);
        segment.is_some_and(|segment| segment.free == segment.units)
    }

    /// Whether there is no segment.
    pub(crate) fn are_none(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Units of a segment that are in use.
    pub(crate) fn used_of(&self, id: u32) -> u32 {
        let segment = self.by_id.get(&id);
        segment.map_or(0, |segment| segment.units - segment.free)
    }

    /// Whether there are segments from which no units are taken.
    pub(crate) fn has_closed(&self) -> bool {
        self.open < self.by_id.len() as u64 * u64::from(self.units)
    }

    /// Whether units are still taken from a segment.
    pub(crate) fn is_open(&self, id: u32) -> bool {
        self.by_id.get(&id).is_some_and(|segment| !segment.closed)
    }

    /// Takes a drive's column out of all segments that have another.
    pub(crate) fn leave_drive(&mut self, drive: u16) {
        for (id, columns, parity) in self.columns_beside(drive) {
            let is_there = self.set_columns(id, columns, parity);
            debug_assert!(is_there, "segment {id} was there just now");
        }
    }

    fn columns_beside(&self, drive: u16) -> Vec<(u32, Vec<ChunkCopy>, u8)> {
        let mut beside = Vec::new();
        for (&id, segment) in &self.by_id {
            let mut columns = segment.columns.clone();
            crate::engine::rebuild::readmit::without(&mut columns, drive);
            if columns.len() < segment.columns.len() {
                beside.push((id, columns, segment.parity));
            }
        }
        beside
    }

    /// Forgets a segment of which nothing is in use; returns its columns.
    pub(crate) fn remove(&mut self, id: u32) -> Option<Vec<ChunkCopy>> {
        self.close(id);
        let segment = self.by_id.remove(&id)?;
        self.taken -= u64::from(segment.units - segment.free);
        let columns = segment.columns;
        self.on_drive.remove(&columns);
        self.sort_in(id);
        Some(columns)
    }

    /// Units of each segment.
    pub(crate) fn units(&self) -> u32 {
        self.units
    }

    /// A segment has other columns; false if it is not there.
    #[must_use]
    pub(crate) fn set_columns(&mut self, id: u32, columns: Vec<ChunkCopy>, parity: u8) -> bool {
        let Some(segment) = self.by_id.get_mut(&id) else {
            return false;
        };
        self.on_drive.add(&columns);
        let before = std::mem::replace(&mut segment.columns, columns);
        segment.parity = parity;
        self.on_drive.remove(&before);
        self.sort_in(id);
        true
    }

    /// Units, free or not, of segments of which some are still taken.
    pub(crate) fn open(&self) -> u64 {
        self.open
    }

    /// Free units.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Units in use, also of segments of which none are taken any more.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Units in use.
    pub(crate) fn used(&self) -> u64 {
        self.by_id.len() as u64 * u64::from(self.units) - self.free
    }
}

/// How many columns each drive has of something.
#[derive(Debug, Default)]
pub(crate) struct DriveCounts(Vec<u32>);

impl DriveCounts {
    /// Those of metadata segments.
    pub(crate) fn of(segments: &[MetaSegment]) -> Self {
        let mut counts = Self::default();
        for segment in segments {
            counts.add(&segment.columns);
        }
        counts
    }

    /// These are there, too.
    pub(crate) fn add(&mut self, columns: &[ChunkCopy]) {
        for copy in columns {
            let drive = usize::from(copy.drive);
            if self.0.len() <= drive {
                self.0.resize(drive + 1, 0);
            }
            self.0[drive] += 1;
        }
    }

    /// These are there no more.
    pub(crate) fn remove(&mut self, columns: &[ChunkCopy]) {
        for copy in columns {
            if let Some(count) = self.0.get_mut(usize::from(copy.drive)) {
                *count -= 1;
            }
        }
    }

    /// Those of a drive.
    pub(crate) fn on(&self, drive: usize) -> u32 {
        self.0.get(drive).copied().unwrap_or(0)
    }

    /// Drives that have some.
    pub(crate) fn drives(&self) -> impl Iterator<Item = u16> {
        let counts = self.0.iter().enumerate();
        counts.filter_map(|(drive, &count)| (count > 0).then_some(drive as u16))
    }
}

/// Numbers of segments.
#[derive(Clone, Debug)]
pub(crate) struct SegmentIds {
    /// Numbers below `next` that are free.
    free: BTreeSet<u32>,
    next: u32,
    /// There are none from here on.
    end: u32,
}

impl SegmentIds {
    /// All but those in use. There is no segment 0: location 0 means "none".
    pub(crate) fn all_but(used: &BTreeSet<u32>) -> Self {
        let next = used.last().map_or(1, |last| last + 1);
        let free = (1..next).filter(|id| !used.contains(id)).collect();
        let end = MAX_SEGMENTS;
        Self { free, next, end }
    }

    /// A number that no segment has; `None` when all are in use.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let fresh = self.next;
        self.free.pop_first().or_else(|| {
            self.next += u32::from(fresh < self.end);
            (fresh < self.end).then_some(fresh)
        })
    }

    /// How many numbers are left.
    pub(crate) fn left(&self) -> u64 {
        self.free.len() as u64 + u64::from(self.end.saturating_sub(self.next))
    }

    /// As if there were no numbers from `end` on.
    pub(crate) fn end_at(&mut self, end: u32) {
        self.end = end;
    }

    /// No segment has this number any more.
    pub(crate) fn give(&mut self, id: u32) {
        self.free.insert(id);
    }
}

/// The location of a slot: what leaves hold.
pub(crate) const fn location(segment: u32, slot: u32) -> u32 {
    segment << 12 | slot
}

/// Segment and slot of a location.
pub(crate) const fn segment_and_slot(location: u32) -> (u32, u32) {
    (location >> 12, location & 0xFFF)
}

/// The place of a page: what tables hold.
pub(crate) const fn place(segment: u32, unit: u32) -> u64 {
    (segment as u64) << 16 | unit as u64
}

/// Metadata segment and unit of a place.
pub(crate) const fn segment_and_unit(place: u64) -> (u32, u32) {
    ((place >> 16) as u32, (place & 0xFFFF) as u32)
}

/// Where unit `unit` of `unit_bytes` in a column lies on its drive, in bytes.
pub(crate) fn unit_at(sizes: &Sizes, copy: ChunkCopy, unit: u32, unit_bytes: u64) -> u64 {
    sizes.extent_at(copy.extent) + u64::from(unit) * unit_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_taken_once() {
        let mut segments = Segments::new(70);
        segments.add(4, Vec::new());
        assert!(segments.claim(4, 0) && !segments.claim(4, 0) && !segments.claim(4, 70));
        let take = |segments: &mut Segments| segments.take_preferring(|_| true);
        let taken: BTreeSet<_> = std::iter::from_fn(|| take(&mut segments)).collect();
        assert_eq!((taken.len(), segments.free()), (69, 0));
        segments.release(4, 69);
        segments.release(4, 69);
        assert_eq!(
            (take(&mut segments), take(&mut segments)),
            (Some((4, 69)), None)
        );
        assert_eq!(segments.used(), 70);
    }

    #[test]
    fn units_are_taken_by_their_bits_as_one_by_one() {
        let mut chance = 3_u64;
        for units in [64, 100, 130] {
            let mut segments = [Segments::new(units), Segments::new(units)];
            for all in &mut segments {
                all.add(1, Vec::new());
                assert!(all.claim(1, 5));
            }
            let bits: Vec<u8> = (0..24)
                .map(|_| {
                    chance = chance
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (chance >> 40) as u8
                })
                .collect();
            let [together, single] = &mut segments;
            assert!(together.claim_bits(1, 0, &bits));
            for unit in (0..units).filter(|unit| bits[*unit as usize / 8] >> (unit % 8) & 1 == 1) {
                single.claim(1, unit);
            }
            assert_eq!(together.free(), single.free());
            let rest =
                |all: &mut Segments| std::iter::from_fn(|| all.take_run(1)).collect::<Vec<_>>();
            assert_eq!(rest(together), rest(single));
        }
    }

    #[test]
    fn neighbours_are_taken_together() {
        let mut segments = Segments::new(130);
        segments.add(1, Vec::new());
        segments.add(2, Vec::new());
        for unit in (0..130).filter(|unit| !(60..67).contains(unit) && *unit != 9) {
            assert!(segments.claim(1, unit));
        }
        let mut take = |wanted| segments.take_run(wanted);
        assert_eq!(take(4), Some((1, 60, 4)));
        // Segment 1 has only three left side by side.
        assert_eq!(take(4), Some((2, 0, 4)));
        assert_eq!(take(200), Some((2, 4, 126)));
        assert_eq!(take(4), Some((1, 64, 3)));
        assert_eq!((take(4), take(1)), (Some((1, 9, 1)), None));
        assert_eq!(segments.free(), 0);
    }

    /// A pool of so many segments, of one slot each, that lacks a drive: what the last thousand cost, and the first.
    #[test]
    fn the_last_segment_of_a_hundred_thousand_takes_no_more_steps_than_the_first() {
        let wanted = Wanted {
            columns: 2,
            parity: None,
        };
        for serving in [vec![true; 3], vec![true, true, false]] {
            let (mut segments, mut ids) = (
                Segments::wanting(1, wanted),
                SegmentIds::all_but(&BTreeSet::new()),
            );
            segments.set_drives(&DriveStates {
                staying: serving.clone(),
                serving,
            });
            let mut a_thousand = |from: u32| {
                let before = segments.steps();
                for extent in from..from + 1000 {
                    let id = ids.take().expect("a number");
                    let columns = [extent % 3, (extent + 1) % 3];
                    let columns = columns.map(|drive| ChunkCopy {
                        drive: drive as u16,
                        extent,
                    });
                    segments.add(id, columns.to_vec());
                    assert_eq!(segments.take_run(1), Some((id, 0, 1)));
                    assert_eq!(segments.free(), 0);
                }
                segments.steps() - before
            };
            let first = a_thousand(0);
            let last = (1..100).map(|thousand| a_thousand(thousand * 1000)).last();
            assert_eq!(last, Some(first));
        }
    }

    #[test]
    fn good_segments_come_first() {
        let copy = |drive| ChunkCopy { drive, extent: 0 };
        let mut segments = Segments::new(2);
        segments.add(1, vec![copy(0)]);
        segments.add(2, vec![copy(0), copy(1)]);
        let mut take = || segments.take_preferring(|columns| columns.len() == 2);
        let taken = [take(), take(), take(), take(), take()];
        let expected = [(2, 0), (2, 1), (1, 0), (1, 1)].map(Some);
        assert_eq!((&taken[..4], taken[4]), (&expected[..], None));
    }

    #[test]
    fn numbers_come_back() {
        let mut ids = SegmentIds::all_but(&BTreeSet::from([2, 4]));
        assert_eq!([ids.take(), ids.take(), ids.take()], [1, 3, 5].map(Some));
        ids.give(3);
        assert_eq!([ids.take(), ids.take()], [3, 6].map(Some));
        let mut ids = SegmentIds::all_but(&(1..MAX_SEGMENTS).collect());
        assert_eq!((ids.take(), ids.left()), (None, 0));
        ids.give(7);
        assert_eq!((ids.left(), ids.take(), ids.take()), (1, Some(7), None));
    }
}
