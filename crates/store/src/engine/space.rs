//! Space: the pool's drives, what is free on them, the segments that are made of it, and what of it is counted on.
//!
//! Its parts own their fields. What needs several of them is here: where a slot can be read, how many segments can still
//! be made, which slots nothing counts on.

mod growth;
pub(super) mod places;
pub(super) mod recount;
mod segments;

use std::ops::Range;

use super::class::{Class, Shape};
use super::drives::Drives;
use super::identity::Identity;
use super::metadata::Metadata;
use super::reservations::Reservations;
use super::segment_table::SegmentTable;
use super::state::Counters;
use super::upkeep::Upkeep;
use crate::Sizes;
use crate::format::ChunkCopy;
use crate::sizes::UNIT_BYTES;
use recount::Recount;
pub(crate) use segments::{
    DriveCounts, DriveStates, SegmentIds, Segments, Wanted, location, place, segment_and_slot,
    segment_and_unit, unit_at,
};

/// A byte of a drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriveByte {
    pub(super) drive: usize,
    pub(super) byte: u64,
}

/// Segments and the drives that they lie on.
pub(super) struct Space {
    sizes: Sizes,
    pub(super) drives: Drives,
    pub(super) segments: SegmentTable,
    pub(super) metadata: Metadata,
    pub(super) reservations: Reservations,
    pub(super) upkeep: Upkeep,
    /// What a drive that returns has in use, while it is counted.
    recount: Option<Recount>,
    /// Segments from this one on may take new slots again that could not be read.
    reopens_from: Option<u32>,
}

/// What an import has found of it.
pub(super) struct Found {
    pub(super) drives: Drives,
    pub(super) segments: SegmentTable,
    pub(super) metadata: Metadata,
    pub(super) upkeep: Upkeep,
}

impl Space {
    pub(super) fn new(identity: &Identity, found: Found) -> Self {
        Self {
            sizes: *identity.sizes(),
            drives: found.drives,
            segments: found.segments,
            metadata: found.metadata,
            reservations: Reservations::default(),
            upkeep: found.upkeep,
            recount: None,
            reopens_from: None,
        }
    }

    pub(super) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Whether enough columns are in service to read a segment.
    #[track_caller]
    pub(in crate::engine) fn is_readable(&self, segment: u32) -> bool {
        let found = self.segments.get(segment);
        found.is_some_and(|found| {
            let columns = found.columns.iter();
            let serving = columns
                .filter(|copy| self.drives.in_service(copy.drive))
                .count();
            serving >= usize::from(found.shape.data)
        })
    }

    /// Whether all of these homes can be read.
    pub(in crate::engine) fn are_readable(&self, homes: &[u32]) -> bool {
        let mut segments = homes.iter().map(|&home| segment_and_slot(home).0);
        segments.all(|segment| self.is_readable(segment))
    }

    /// Runs of homes side by side that are written together: as far as a column gets no more than
    /// 64 KiB at a time.
    pub(in crate::engine) fn runs_of_homes(&self, homes: &[u32]) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (i, &home) in homes.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if self.continues(&homes[run.clone()], home) => run.end = i + 1,
                _ => runs.push(i..i + 1),
            }
        }
        runs
    }

    fn continues(&self, run: &[u32], next: u32) -> bool {
        let (segment, slot) = segment_and_slot(next);
        let follows = run.last().is_some_and(|last| last + 1 == next);
        let fits = |shape: Shape| (run.len() + 1) * shape.strip_bytes() <= UNIT_BYTES as usize;
        follows && slot > 0 && self.shape(segment).is_some_and(fits)
    }

    /// Whether too few drives are left under a home to read it: what the ring has of its slot goes to another.
    pub(in crate::engine) fn is_lost_home(&self, home: u32) -> bool {
        // Mostly there is nothing to look up.
        !self.drives.all_serve() && !self.is_readable(segment_and_slot(home).0)
    }

    /// Columns of a segment, also on drives that are out. Of one that is not there, none: the pool stops.
    #[track_caller]
    pub(in crate::engine) fn segment_columns(&self, segment: u32) -> &[ChunkCopy] {
        let found = self.segments.get(segment);
        found.map_or(&[], |found| found.columns)
    }

    /// How slots lie in a segment.
    #[track_caller]
    pub(in crate::engine) fn shape(&self, segment: u32) -> Option<Shape> {
        self.segments.get(segment).map(|found| found.shape)
    }

    /// Nothing more is put where too few columns are left to read it; whether there is such a place that is new.
    pub(in crate::engine) fn close_lost_segments(&mut self) -> bool {
        let mut any = false;
        for id in self.segments.ids() {
            any |= self.close_if_lost(id);
        }
        any
    }

    /// The same of one segment.
    pub(in crate::engine) fn close_if_lost(&mut self, id: u32) -> bool {
        !self.is_readable(id) && self.segments.close(id)
    }

    /// Whether segments of this class cannot be read, or take no new slots for another reason.
    pub(in crate::engine) fn has_closed_segments(&self, class: Class) -> bool {
        let segments = self.segments.of_class(class);
        segments.is_some_and(|segments| segments.has_closed())
    }

    /// Drives have come, gone, or are to leave: what counts segments by their drives is told.
    pub(in crate::engine) fn drives_changed(&mut self) {
        let all = self.drives.numbers();
        let states = DriveStates {
            serving: all.map(|drive| self.drives.in_service(drive)).collect(),
            staying: self.drives.usable(),
        };
        self.segments.set_drives(&states);
    }

    /// Whether a slot is in a hot home.
    pub(in crate::engine) fn is_hot_home(&self, location: u32) -> bool {
        let class = self.segments.class(segment_and_slot(location).0);
        class.is_some_and(|class| class.hot_of.is_some())
    }

    /// A copy on this drive did not verify, or could not be read.
    pub(super) fn note_bad(&mut self, drive: usize, counters: &mut Counters) {
        if !self.drives.in_service(drive as u16) {
            // What it did not answer says nothing of what it holds.
            return;
        }
        counters.bad_copies += 1;
        self.drives.record_mut().note_bad(drive);
    }

    /// A slot is free again; false if its segment is not there.
    #[must_use]
    pub(super) fn free_slot(&mut self, location: u32) -> bool {
        let (segment, slot) = segment_and_slot(location);
        let class = self.segments.release(segment, slot);
        self.slot_freed(segment);
        class.is_some()
    }
}
