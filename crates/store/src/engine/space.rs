//! Free space inside of segments: slots of homes, places of metadata segments. Extents of drives are in
//! [`extents`](super::extents).

use std::collections::{BTreeMap, BTreeSet};

use crate::Sizes;
use crate::format::{ChunkCopy, MAX_SEGMENTS};

/// A mirror or metadata segment as the engine uses it.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Member and first extent of each copy, or of each column.
    pub(crate) columns: Vec<ChunkCopy>,
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

/// Segments of one kind, and which of them have room.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    by_id: BTreeMap<u32, Segment>,
    with_room: BTreeSet<u32>,
    units: u32,
    free: u64,
    /// Units, free or not, of segments of which some are still taken.
    open: u64,
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
        self.by_id
            .insert(id, Segment::new(columns, parity, self.units));
        self.with_room.insert(id);
        self.free += u64::from(self.units);
        self.open += u64::from(self.units);
    }

    /// The segment's columns.
    pub(crate) fn columns(&self, id: u32) -> Option<&[ChunkCopy]> {
        self.by_id.get(&id).map(|segment| &segment.columns[..])
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
        if segment.free == 0 {
            self.with_room.remove(&id);
        }
        Some((id, unit))
    }

    /// Takes up to `wanted` neighbouring units: segment, first unit and how many; as many as there
    /// are side by side in one of the first few segments with room, of those that are `good` if
    /// there is one.
    pub(crate) fn take_run(
        &mut self,
        wanted: u32,
        good: impl Fn(&[ChunkCopy]) -> bool,
    ) -> Option<(u32, u32, u32)> {
        let is_good = |id: &&u32| self.columns(**id).is_some_and(&good);
        let any_good = self.with_room.iter().any(|id| is_good(&id));
        let mut best = (0, 0, 0);
        let some = self.with_room.iter().filter(|id| !any_good || is_good(id));
        for &id in some.take(LOOKED_THROUGH) {
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
        self.free -= u64::from(claimed && !segment.closed);
        if segment.free == 0 {
            self.with_room.remove(&id);
        }
        claimed
    }

    /// Gives a unit back.
    pub(crate) fn release(&mut self, id: u32, unit: u32) {
        if let Some(segment) = self.by_id.get_mut(&id)
            && segment.release(unit)
            && !segment.closed
        {
            self.free += 1;
            self.with_room.insert(id);
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
            self.with_room.remove(&id);
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

    /// Units of a segment that are in use.
    pub(crate) fn used_of(&self, id: u32) -> u32 {
        let segment = self.by_id.get(&id);
        segment.map_or(0, |segment| segment.units - segment.free)
    }

    /// Whether units are still taken from a segment.
    pub(crate) fn is_open(&self, id: u32) -> bool {
        self.by_id.get(&id).is_some_and(|segment| !segment.closed)
    }

    /// Forgets a segment of which nothing is in use; returns its columns.
    pub(crate) fn remove(&mut self, id: u32) -> Option<Vec<ChunkCopy>> {
        self.close(id);
        Some(self.by_id.remove(&id)?.columns)
    }

    /// Units of each segment.
    pub(crate) fn units(&self) -> u32 {
        self.units
    }

    /// A segment has other columns.
    pub(crate) fn set_columns(&mut self, id: u32, columns: Vec<ChunkCopy>, parity: u8) {
        if let Some(segment) = self.by_id.get_mut(&id) {
            segment.columns = columns;
            segment.parity = parity;
        }
    }

    /// Units, free or not, of segments of which some are still taken.
    pub(crate) fn open(&self) -> u64 {
        self.open
    }

    /// Free units.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Units in use.
    pub(crate) fn used(&self) -> u64 {
        self.by_id.len() as u64 * u64::from(self.units) - self.free
    }
}

/// Numbers of segments.
#[derive(Clone, Debug)]
pub(crate) struct SegmentIds {
    /// Numbers below `next` that are free.
    free: BTreeSet<u32>,
    next: u32,
}

impl SegmentIds {
    /// All but those in use. There is no segment 0: location 0 means "none".
    pub(crate) fn all_but(used: &BTreeSet<u32>) -> Self {
        let next = used.last().map_or(1, |last| last + 1);
        let free = (1..next).filter(|id| !used.contains(id)).collect();
        Self { free, next }
    }

    /// A number that no segment has; `None` when all are in use.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let fresh = self.next;
        self.free.pop_first().or_else(|| {
            self.next += u32::from(fresh < MAX_SEGMENTS);
            (fresh < MAX_SEGMENTS).then_some(fresh)
        })
    }

    /// How many numbers are left.
    pub(crate) fn left(&self) -> u64 {
        self.free.len() as u64 + u64::from(MAX_SEGMENTS.saturating_sub(self.next))
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
    fn neighbours_are_taken_together() {
        let mut segments = Segments::new(130);
        segments.add(1, Vec::new());
        segments.add(2, Vec::new());
        for unit in (0..130).filter(|unit| !(60..67).contains(unit) && *unit != 9) {
            assert!(segments.claim(1, unit));
        }
        let mut take = |wanted| segments.take_run(wanted, |_| true);
        assert_eq!(take(4), Some((1, 60, 4)));
        // Segment 1 has only three left side by side.
        assert_eq!(take(4), Some((2, 0, 4)));
        assert_eq!(take(200), Some((2, 4, 126)));
        assert_eq!(take(4), Some((1, 64, 3)));
        assert_eq!((take(4), take(1)), (Some((1, 9, 1)), None));
        assert_eq!(segments.free(), 0);
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
        assert_eq!(ids.take(), None);
    }
}
