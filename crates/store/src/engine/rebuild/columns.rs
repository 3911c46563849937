//! Columns of segments beside those that are read: which ones are being filled, which lie on drives that return, and
//! where a segment that lacks one could have another.

use super::Rebuild;
use crate::engine::class::Shape;
use crate::engine::drives::Drives;
use crate::engine::segment_table::HomeSegment;
use crate::engine::space::Space;
use crate::engine::state::Joining;
use crate::format::ChunkCopy;

/// Segments that one walk fills columns of, at least; and which part of all that lack one. What a walk has
/// filled and recorded stays when the engine ends, and what it has not is done again.
const SEGMENTS_AT_A_TIME: usize = 8;
const WALKS: usize = 8;

impl Rebuild {
    /// Whether what is written to columns goes to this drive, too.
    pub(in crate::engine) fn is_written(&self, drive: u16, drives: &Drives) -> bool {
        drives.in_service(drive) || self.returns.is(usize::from(drive))
    }

    /// Columns of a mirror segment that must be written: those, and one that is being filled, or whose drive returns.
    pub(in crate::engine) fn written_columns(&self, segment: u32, space: &Space) -> Vec<ChunkCopy> {
        let columns = space.segment_columns(segment).iter().copied();
        let written = columns.filter(|copy| self.is_written(copy.drive, &space.drives));
        let mut columns: Vec<ChunkCopy> = written.collect();
        let joining = self.joining(segment);
        let joining = joining.map(|joining| joining.column);
        columns.extend(joining.filter(|column| space.drives.in_service(column.drive)));
        columns
    }

    /// Bytes that writing a slot of a segment takes of drives.
    pub(in crate::engine) fn slot_cost(&self, segment: u32, space: &Space) -> u64 {
        let columns = self.written_columns(segment, space).len() as u64;
        let strip = space.shape(segment).map_or(0, Shape::strip_bytes);
        columns * strip as u64
    }

    /// Columns of a segment that are written, and which of the shape's each is: those in service,
    /// and one that is being filled, or whose drive returns.
    pub(in crate::engine) fn columns_to_write(
        &self,
        segment: u32,
        space: &Space,
    ) -> Vec<(ChunkCopy, usize)> {
        let columns = space.segment_columns(segment).iter().copied().zip(0..);
        let joining = self.joining(segment);
        let joining = joining.map(|joining| (joining.column, joining.at));
        columns
            .chain(joining)
            .filter(|(column, _)| self.is_written(column.drive, &space.drives))
            .collect()
    }

    /// Columns of a mirror segment that a walk reads: what a drive that returns has may be good.
    pub(in crate::engine) fn walked_columns(&self, segment: u32, space: &Space) -> Vec<ChunkCopy> {
        let columns = space.segment_columns(segment).iter().copied();
        columns
            .filter(|copy| self.is_written(copy.drive, &space.drives))
            .collect()
    }

    /// Whether a segment has a column on the drive that a walk is for.
    pub(in crate::engine) fn has_returning_column(&self, segment: u32, space: &Space) -> bool {
        let mut columns = space.segment_columns(segment).iter();
        columns.any(|copy| self.returns.is(usize::from(copy.drive)))
    }

    /// Whether a segment has a column on a drive that is on its way back, or waits for that.
    pub(in crate::engine) fn has_coming_column(&self, segment: u32, space: &Space) -> bool {
        let returns = &self.returns;
        let mut columns = space.segment_columns(segment).iter();
        columns.any(|copy| returns.knows(usize::from(copy.drive)))
    }

    /// Whether a segment cannot be read now, and may be once a drive is back that is on its way, or waits for that.
    pub(in crate::engine) fn may_be_readable_again(&self, segment: u32, space: &Space) -> bool {
        self.has_coming_column(segment, space) && !space.is_readable(segment)
    }

    /// New columns for segments that have lost one, on drives that have none of it: of as many as one walk
    /// fills.
    pub(in crate::engine) fn choose_columns(&mut self, space: &mut Space) {
        let mut segments = space.segments.ids();
        let lacking = segments
            .iter()
            .filter(|&&id| lacks_column(id, space))
            .count();
        segments.retain(|&id| self.could_have_column(id, space));
        self.wanted = self.filled + lacking;
        let most = SEGMENTS_AT_A_TIME.max(segments.len().div_ceil(WALKS));
        for segment in segments.into_iter().take(most) {
            let shape = space.segments.get(segment).map(|found| found.shape);
            if let Some((drive, at)) = self.drive_for_column(segment, space)
                && let Some(shape) = shape
                && let Some(extent) = space.drives.take(drive, shape.extents(space.sizes()))
            {
                let drive = drive as u16;
                let column = ChunkCopy { drive, extent };
                let joining = Joining {
                    column,
                    at,
                    is_filled: false,
                };
                self.joining.insert(segment, joining);
            }
        }
    }

    /// Where a segment that lacks a column could have another, and which one that is; `None` when it
    /// lacks none, when one is being filled, when nothing could be read for it, or when no drive has
    /// room.
    pub(in crate::engine) fn drive_for_column(
        &self,
        segment: u32,
        space: &Space,
    ) -> Option<(usize, usize)> {
        self.drive_with_room(segment, space, |_| 0)
    }

    /// Whether a segment that lacks a column could have one, if not before a discard has ended.
    pub(in crate::engine) fn could_have_column(&self, segment: u32, space: &Space) -> bool {
        let returns = |drive| space.upkeep.discards().taken(drive);
        self.drive_with_room(segment, space, returns).is_some()
    }

    /// The same once a run of so many extents is given back to each drive.
    pub(in crate::engine) fn drive_with_room(
        &self,
        segment: u32,
        space: &Space,
        returns: impl Fn(usize) -> u32,
    ) -> Option<(usize, usize)> {
        if !lacks_column(segment, space) || self.joining.contains_key(&segment) {
            return None;
        }
        let found = space.segments.get(segment)?;
        let (columns, media) = (found.columns, found.class.media);
        let leaves = |copy: &ChunkCopy| !space.drives.stays(copy.drive);
        let at = columns.iter().position(leaves).unwrap_or(columns.len());
        let extents = found.shape.extents(space.sizes());
        let fits = |&drive: &usize| {
            space.drives.stays(drive as u16)
                && space.drives.is_of(drive, media)
                && space.drives.free(drive).free() + returns(drive)
                    >= space.map_extents(drive) + extents
                && (space.drives.free(drive).has_run(extents) || returns(drive) >= extents)
                && !columns.iter().any(|copy| usize::from(copy.drive) == drive)
        };
        let drives = space.drives.active().into_iter().filter(fits);
        let drive = drives.max_by_key(|&drive| space.drives.free(drive).free())?;
        Some((drive, at))
    }
}

/// Whether a segment lacks a column that could be made of the others.
pub(super) fn lacks_column(segment: u32, space: &Space) -> bool {
    let found = space.segments.get(segment);
    let enough = |found: HomeSegment<'_>| {
        space.drives.staying(found.columns).len() >= found.wanted_columns()
    };
    space.is_readable(segment) && !found.is_some_and(enough)
}

/// Whether a segment's new column comes for one that can be read, on a drive that leaves.
pub(super) fn gives_up_column(segment: u32, space: &Space) -> bool {
    let serving = space.drives.serving(space.segment_columns(segment));
    serving.iter().any(|copy| !space.drives.stays(copy.drive))
}

/// The columns that can be read and a new one, less those on leaving drives that are now one too
/// many.
pub(super) fn columns_with(
    found: HomeSegment<'_>,
    joining: Joining,
    space: &Space,
) -> Vec<ChunkCopy> {
    let wanted = found.wanted_columns();
    let mut columns = space.drives.serving(found.columns);
    columns.push(joining.column);
    while columns.len() > wanted {
        let Some(leaving) = columns
            .iter()
            .position(|copy| !space.drives.stays(copy.drive))
        else {
            break;
        };
        columns.remove(leaving);
    }
    columns
}
