//! What space there still is: slots that nothing counts on, and segments that can be made.

use std::collections::BTreeSet;

use super::Space;
use crate::engine::class::Class;
use crate::engine::extents::{Extents, most_segments};
use crate::engine::journal::{StagedChange, Then};
use crate::engine::manage::segment_change;
use crate::engine::volumes::VolumeTable;

/// Units of a class whose slots only destage may take, so that it never meets a full pool.
const DESTAGE_UNITS: usize = 4;

/// Free slots that only destage takes.
fn kept_slots(class: Class) -> u64 {
    (DESTAGE_UNITS * class.grain.a_unit()) as u64
}

impl Space {
    /// Free slots that nothing counts on.
    pub(in crate::engine) fn spare_slots(&self, class: Class) -> u64 {
        let free = self.segments.free_slots(class);
        let reserved = self.reservations.of_class(class);
        free.saturating_sub(reserved + kept_slots(class))
    }

    /// Slots that those who count on them do not find yet.
    pub(in crate::engine) fn owed_slots(&self, class: Class) -> u64 {
        let free = self.segments.free_slots(class);
        let reserved = self.reservations.of_class(class);
        (reserved + kept_slots(class)).saturating_sub(free)
    }

    /// A free slot, on as many drives as it should be if there is such a one.
    pub(in crate::engine) fn take_slot(&mut self, class: Class) -> Option<(u32, u32)> {
        let (segment, slot, _) = self.take_slots(class, 1)?;
        Some((segment, slot))
    }

    /// The same, up to `wanted` of them side by side: segment, first slot, and how many.
    pub(in crate::engine) fn take_slots(
        &mut self,
        class: Class,
        wanted: u32,
    ) -> Option<(u32, u32, u32)> {
        self.segments.take_run(class, wanted)
    }

    /// Columns of a new segment: with fewer drives in service than it should have, the pool goes on
    /// with what there is, and a rebuild adds what redundancy lacks when there is a drive for it.
    pub(in crate::engine) fn columns_for(&self, class: Class) -> usize {
        class.columns().min(self.drives.staying_of(class.media))
    }

    /// Segments of a class that can be made now.
    pub(in crate::engine) fn growth(&self, class: Class) -> u64 {
        self.growth_with(class, |_| 0)
    }

    /// Segments of a class that can still be made: those as well for which the extents are being discarded.
    pub(in crate::engine) fn growth_in_all(&self, class: Class) -> u64 {
        self.growth_with(class, |drive| self.upkeep.discards().taken(drive))
    }

    /// Makes segments of every class in use of which there are few free slots, and of those that are short of them: the
    /// records that make them.
    pub(in crate::engine) fn provision(
        &mut self,
        volumes: &VolumeTable,
        short: BTreeSet<Class>,
    ) -> Vec<StagedChange> {
        let low = |class: Class| u64::from(self.sizes.slots(class.grain)) / 2;
        let is_low =
            |class: &Class| class.hot_of.is_none() && self.spare_slots(*class) < low(*class);
        let known = self.segments.home_classes().filter(is_low);
        let wanted: Vec<Class> = known.chain(short).collect();
        let mut made = Vec::new();
        for class in wanted {
            // There may be thousands of volumes: they are not looked through in every turn.
            if !self.segments.is_coming(class) && volumes.have_one_of(class) {
                made.extend(self.add_segment(class));
            }
        }
        made
    }

    fn growth_with(&self, class: Class, run: impl Fn(usize) -> u32) -> u64 {
        let columns = self.columns_for(class);
        let extents = class.shape_of(columns).extents(&self.sizes);
        let rooms = self.room_of_drives(|drive, free| {
            free.columns_with_run(extents, self.kept_extents(drive), run(drive))
        });
        let rooms = self.drives.only(rooms, class.media);
        most_segments(&rooms, columns).min(self.segments.ids_left())
    }

    /// Columns of so many extents that each drive can give, beside what it keeps.
    pub(in crate::engine) fn column_rooms(
        &self,
        extents: u32,
        kept: impl Fn(usize) -> u32,
    ) -> Vec<u32> {
        self.room_of_drives(|drive, free| free.columns(extents, kept(drive)))
    }

    fn room_of_drives(&self, columns: impl Fn(usize, &Extents) -> u32) -> Vec<u32> {
        let drives = self.drives.all_free().iter().enumerate();
        let room = drives.map(|(drive, free)| match self.drives.stays(drive as u16) {
            true => columns(drive, free),
            false => 0,
        });
        room.collect()
    }

    /// Columns that each drive has room for.
    pub(in crate::engine) fn raw_rooms(&self) -> Vec<u32> {
        self.column_rooms(self.sizes.segment_extents(), |drive| {
            self.kept_extents(drive)
        })
    }

    /// Segments of so many columns that there is room for.
    pub(in crate::engine) fn raw_room(&self, columns: usize) -> u64 {
        most_segments(&self.raw_rooms(), columns).min(self.segments.ids_left())
    }

    /// Takes what another segment of a class is made of; returns the record that makes it. None if there is nothing to
    /// take.
    #[must_use]
    pub(in crate::engine) fn add_segment(&mut self, class: Class) -> Option<StagedChange> {
        let columns = self.columns_for(class);
        let extents = class.shape_of(columns).extents(&self.sizes);
        let rooms = self.column_rooms(extents, |drive| self.kept_extents(drive));
        let rooms = self.drives.only(rooms, class.media);
        if columns == 0 {
            return None;
        }
        let id = self.segments.take_id()?;
        let Some(columns) = self.drives.take_columns(&rooms, columns, extents) else {
            self.segments.give_id(id);
            return None;
        };
        let entry = class.entry(&columns, class.shape_of(columns.len()));
        self.segments.begin(class, columns);
        Some(segment_change(id, &entry, Then::Segment(id, class)))
    }
}
