//! Metadata segments: where pages of the map have their places, and which drives have columns of them.

use super::rebuild::readmit::without;
use super::space::{DriveCounts, Segments};
use crate::format::{ChunkCopy, MetaSegment};

/// The metadata segments that the pool has. A root names them, and drops those that are closed and empty.
pub(super) struct Metadata {
    places: Segments,
    segments: Vec<MetaSegment>,
    /// Their columns on each drive.
    columns: DriveCounts,
}

impl Metadata {
    /// As an import has found them, with the places in use.
    pub(super) fn new(places: Segments, segments: Vec<MetaSegment>) -> Self {
        Self {
            places,
            columns: DriveCounts::of(&segments),
            segments,
        }
    }

    pub(super) fn segments(&self) -> &[MetaSegment] {
        &self.segments
    }

    /// Those in which nothing new is put.
    pub(super) fn closed(&self) -> impl Iterator<Item = u32> + '_ {
        let ids = self.segments.iter().map(|segment| segment.id);
        ids.filter(|&id| !self.places.is_open(id))
    }

    /// Another segment, with these columns.
    pub(super) fn add(&mut self, columns: Vec<ChunkCopy>) {
        let id = self.places.next_id();
        self.places.add(id, columns.clone());
        self.columns.add(&columns);
        self.segments.push(MetaSegment { id, columns });
    }

    /// Lets go of those that are closed and empty; returns their columns.
    pub(super) fn drop_emptied(&mut self) -> Vec<ChunkCopy> {
        let places = &self.places;
        let emptied = |segment: &mut MetaSegment| places.is_closed_and_empty(segment.id);
        let dropped = self.segments.extract_if(.., emptied);
        let columns: Vec<ChunkCopy> = dropped.flat_map(|segment| segment.columns).collect();
        self.columns.remove(&columns);
        columns
    }

    /// Takes a drive's column out of all segments that have another.
    pub(super) fn leave_drive(&mut self, drive: u16) {
        self.places.leave_drive(drive);
        for segment in &mut self.segments {
            without(&mut segment.columns, drive);
        }
        self.columns = DriveCounts::of(&self.segments);
    }

    pub(super) fn is_emptied(&self, id: u32) -> bool {
        self.places.is_closed_and_empty(id)
    }

    pub(super) fn has_emptied(&self) -> bool {
        self.segments.iter().any(|one| self.is_emptied(one.id))
    }

    /// Whether pages that have moved are still read where they were.
    pub(super) fn is_leaving_pages(&self) -> bool {
        self.closed().any(|id| !self.is_emptied(id))
    }

    pub(super) fn is_open(&self, id: u32) -> bool {
        self.places.is_open(id)
    }

    pub(super) fn close(&mut self, id: u32) {
        self.places.close(id);
    }

    /// Closes the open one with the fewest pages; false if none is open.
    pub(super) fn close_emptiest(&mut self) -> bool {
        let ids = self.segments.iter().map(|segment| segment.id);
        let open = ids.filter(|&id| self.places.is_open(id));
        let emptiest = open.min_by_key(|&id| self.places.used_of(id));
        emptiest.map(|id| self.places.close(id)).is_some()
    }

    /// Columns that a drive has of them.
    pub(super) fn columns_on(&self, drive: usize) -> u32 {
        self.columns.on(drive)
    }

    pub(super) fn columns_of(&self, id: u32) -> &[ChunkCopy] {
        self.places.columns(id).unwrap_or_default()
    }

    /// Places of a segment.
    pub(super) fn places_each(&self) -> u64 {
        self.places.units().into()
    }

    /// Places of open segments, free or not.
    pub(super) fn open_places(&self) -> u64 {
        self.places.open()
    }

    pub(super) fn free_places(&self) -> u64 {
        self.places.free()
    }

    /// A free place, in a segment with such columns if there is one.
    pub(super) fn take(&mut self, good: impl Fn(&[ChunkCopy]) -> bool) -> Option<(u32, u32)> {
        self.places.take_preferring(good)
    }

    /// A place is free again.
    pub(super) fn release(&mut self, id: u32, unit: u32) {
        self.places.release(id, unit);
    }
}
