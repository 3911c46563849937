//! The table of segments of homes: the class, columns and free slots of each, numbers that are free, and segments
//! that are being made.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::Location;

use super::class::{Class, Redundancy, Shape};
use super::space::{DriveStates, SegmentIds, Segments};
use crate::Sizes;
use crate::format::ChunkCopy;

/// A segment as the table has it.
#[derive(Clone, Copy)]
pub(super) struct HomeSegment<'a> {
    pub(super) class: Class,
    /// Also those on drives that are out.
    pub(super) columns: &'a [ChunkCopy],
    /// How slots lie in it.
    pub(super) shape: Shape,
}

impl HomeSegment<'_> {
    /// Columns that it should have.
    pub(super) fn wanted_columns(&self) -> usize {
        match self.class.redundancy {
            Redundancy::Parity(_, parity) => usize::from(self.shape.data + parity),
            Redundancy::Mirror(copies) => usize::from(copies),
        }
    }
}

/// A segment that was looked up but is not there, and where.
#[derive(Clone, Copy)]
pub(super) struct Missed {
    pub(super) segment: u32,
    pub(super) at: &'static Location<'static>,
}

/// Segments by number.
pub(super) struct SegmentTable {
    homes: BTreeMap<Class, Segments>,
    classes: BTreeMap<u32, Class>,
    ids: SegmentIds,
    /// Classes that a segment is being made for, and its columns: its record is on its way.
    coming: BTreeMap<Class, Vec<ChunkCopy>>,
    missed: Cell<Option<Missed>>,
}

impl SegmentTable {
    /// As an import has found it.
    pub(super) fn new(
        homes: BTreeMap<Class, Segments>,
        classes: BTreeMap<u32, Class>,
        ids: SegmentIds,
    ) -> Self {
        Self {
            homes,
            classes,
            ids,
            coming: BTreeMap::new(),
            missed: Cell::new(None),
        }
    }

    /// A segment that is there, for a home names it or a list of segments did. One that is not is remembered:
    /// [`missed`](Self::missed) has it, and the pool stops before it writes a record.
    #[track_caller]
    pub(super) fn get(&self, id: u32) -> Option<HomeSegment<'_>> {
        let found = self.find(id);
        if found.is_none() && self.missed.get().is_none() {
            let at = Location::caller();
            self.missed.set(Some(Missed { segment: id, at }));
        }
        found
    }

    fn find(&self, id: u32) -> Option<HomeSegment<'_>> {
        let class = *self.classes.get(&id)?;
        let (columns, parity) = self.homes.get(&class)?.columns_and_parity(id)?;
        let shape = match class.has_parity() {
            true => Shape {
                data: (columns.len() as u8).saturating_sub(parity),
                parity,
                grain: class.grain,
            },
            false => Shape::mirror(class.grain),
        };
        Some(HomeSegment {
            class,
            columns,
            shape,
        })
    }

    /// The first segment that was looked up but is not there.
    pub(super) fn missed(&self) -> Option<Missed> {
        self.missed.get()
    }

    /// The class of a segment, if there is such a one.
    pub(super) fn class(&self, id: u32) -> Option<Class> {
        self.classes.get(&id).copied()
    }

    /// All segments, and the class of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Class)> {
        self.iter_from(0)
    }

    /// Those from this number on.
    pub(super) fn iter_from(&self, id: u32) -> impl Iterator<Item = (u32, Class)> {
        let from = self.classes.range(id..);
        from.map(|(&id, &class)| (id, class))
    }

    /// The numbers of all segments.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.classes.keys().copied().collect()
    }

    /// Classes that have segments, or had some.
    pub(super) fn home_classes(&self) -> impl Iterator<Item = Class> {
        self.homes.keys().copied()
    }

    /// Classes of segments that are there or being made, some more than once.
    pub(super) fn classes_on_drives(&self) -> impl Iterator<Item = Class> {
        let there = self.classes.values();
        there.chain(self.coming.keys()).copied()
    }

    /// The segments of a class, if it has had any.
    pub(super) fn of_class(&self, class: Class) -> Option<&Segments> {
        self.homes.get(&class)
    }

    /// Free slots of a class.
    pub(super) fn free_slots(&self, class: Class) -> u64 {
        self.of_class(class).map_or(0, Segments::free)
    }

    /// Slots in use of a class, also in segments of which none are taken any more.
    pub(super) fn taken_slots(&self, class: Class) -> u64 {
        self.of_class(class).map_or(0, Segments::taken)
    }

    /// Takes up to `wanted` free slots side by side: segment, first slot, and how many.
    pub(super) fn take_run(&mut self, class: Class, wanted: u32) -> Option<(u32, u32, u32)> {
        self.homes.get_mut(&class)?.take_run(wanted)
    }

    /// A slot is free again; returns the class of its segment, if that is there.
    pub(super) fn release(&mut self, id: u32, slot: u32) -> Option<Class> {
        let class = self.class(id)?;
        self.homes.get_mut(&class)?.release(id, slot);
        Some(class)
    }

    /// Whether no slot of a segment is in use.
    pub(super) fn is_empty(&self, id: u32) -> bool {
        let segments = self.class(id).and_then(|class| self.of_class(class));
        segments.is_some_and(|segments| segments.is_empty(id))
    }

    /// Numbers that are left.
    pub(super) fn ids_left(&self) -> u64 {
        self.ids.left()
    }

    pub(super) fn take_id(&mut self) -> Option<u32> {
        self.ids.take()
    }

    /// No segment has this number any more.
    pub(super) fn give_id(&mut self, id: u32) {
        self.ids.give(id);
    }

    /// As if there were no numbers from `end` on.
    pub(super) fn end_ids_at(&mut self, end: u32) {
        self.ids.end_at(end);
    }

    /// The record of a new segment is on its way.
    pub(super) fn begin(&mut self, class: Class, columns: Vec<ChunkCopy>) {
        self.coming.insert(class, columns);
    }

    /// Whether a segment of this class is being made.
    pub(super) fn is_coming(&self, class: Class) -> bool {
        self.coming.contains_key(&class)
    }

    /// Segments that are being made: their classes and columns.
    pub(super) fn coming(&self) -> impl Iterator<Item = (Class, &[ChunkCopy])> {
        let coming = self.coming.iter();
        coming.map(|(&class, columns)| (class, &columns[..]))
    }

    /// The segment of this class that was being made is not any more.
    pub(super) fn end_coming(&mut self, class: Class) {
        self.coming.remove(&class);
    }

    /// A segment is there, with columns of which the last ones hold parity.
    pub(super) fn add(&mut self, sizes: &Sizes, id: u32, class: Class, entry: Columns) {
        self.classes.insert(id, class);
        let segments = self.homes.entry(class);
        segments
            .or_insert_with(|| Segments::wanting(sizes.slots(class.grain), class.wanted()))
            .add_with_parity(id, entry.columns, entry.parity);
    }

    /// A segment has other columns; false if it is not there.
    #[must_use]
    pub(super) fn set_columns(&mut self, id: u32, entry: Columns) -> bool {
        let class = self.classes.get(&id);
        let segments = class.and_then(|class| self.homes.get_mut(class));
        segments.is_some_and(|all| all.set_columns(id, entry.columns, entry.parity))
    }

    /// Forgets a segment that is empty; returns its columns.
    pub(super) fn remove(&mut self, id: u32) -> Option<Vec<ChunkCopy>> {
        let class = self.classes.remove(&id)?;
        let segments = self.homes.get_mut(&class)?;
        let columns = segments.remove(id);
        // Each volume with a tier has a class of its own.
        if class.hot_of.is_some() && segments.are_none() {
            self.homes.remove(&class);
        }
        columns
    }

    /// Takes nothing more from a segment; whether some was taken until now.
    pub(super) fn close(&mut self, id: u32) -> bool {
        let class = self.classes.get(&id);
        let segments = class.and_then(|class| self.homes.get_mut(class));
        let Some(segments) = segments.filter(|segments| segments.is_open(id)) else {
            return false;
        };
        segments.close(id);
        true
    }

    /// Slots are taken from a segment again.
    pub(super) fn reopen(&mut self, id: u32) {
        let class = self.classes.get(&id);
        if let Some(segments) = class.and_then(|class| self.homes.get_mut(class)) {
            segments.reopen(id);
        }
    }

    /// Drives have come, gone, or are to leave.
    pub(super) fn set_drives(&mut self, drives: &DriveStates) {
        for segments in self.homes.values_mut() {
            segments.set_drives(drives);
        }
    }

    /// Drives that segments have columns on.
    pub(super) fn drives(&self) -> impl Iterator<Item = u16> {
        self.homes.values().flat_map(Segments::drives)
    }

    /// Whether a segment has fewer columns in service than it should have.
    pub(super) fn are_short(&self) -> bool {
        self.homes.values().any(Segments::are_short)
    }

    /// Segments that were looked at since the beginning.
    #[cfg(feature = "canary")]
    pub(super) fn steps(&self) -> u64 {
        self.homes.values().map(Segments::steps).sum()
    }
}

/// The columns of an entry of the table.
pub(super) struct Columns {
    pub(super) columns: Vec<ChunkCopy>,
    /// How many of these, the last ones, hold parity.
    pub(super) parity: u8,
}

impl Columns {
    pub(super) fn of(entry: &crate::format::SegmentEntry) -> Self {
        let columns = entry.columns.iter();
        let columns = columns.map(|&(drive, extent)| ChunkCopy { drive, extent });
        Self {
            columns: columns.collect(),
            parity: entry.parity,
        }
    }
}
