//! Classes of drives: what a volume's homes, the logs and the map may lie on.
//!
//! Homes lie where their volume says: a volume with a class never takes a column of another one, not even to
//! be repaired, or a pool's slow drives would become its fast ones unnoticed. Logs and map are in the way of
//! every write: they take the fastest class that has drives enough for all their copies, and where that has no
//! room, whatever has.

use ashlar_block::IoError;

use super::Drives;
use crate::Layout;
use crate::engine::manage::refuse;
use crate::format::{ChunkCopy, DriveClass};

impl Drives {
    /// Whether a drive may hold what is to lie on this class; anything may be anywhere without one.
    pub(in crate::engine) fn is_of(&self, drive: usize, media: Option<DriveClass>) -> bool {
        media.is_none() || self.class(drive) == media
    }

    /// How many drives of a class stay.
    pub(in crate::engine) fn staying_of(&self, media: Option<DriveClass>) -> usize {
        let usable = self.usable().into_iter().enumerate();
        usable
            .filter(|&(drive, stays)| stays && self.is_of(drive, media))
            .count()
    }

    /// Rooms of drives, none on those of other classes.
    pub(in crate::engine) fn only(
        &self,
        mut rooms: Vec<u32>,
        media: Option<DriveClass>,
    ) -> Vec<u32> {
        for (drive, room) in rooms.iter_mut().enumerate() {
            if !self.is_of(drive, media) {
                *room = 0;
            }
        }
        rooms
    }

    /// Where so many copies of the logs, or of the map, are to lie: the fastest class with drives enough.
    fn fastest(&self, copies: usize) -> Option<DriveClass> {
        let mut classes = DriveClass::ALL.into_iter().map(Some);
        classes
            .find(|&class| self.staying_of(class) >= copies)
            .flatten()
    }

    /// Takes columns on the fastest class that can hold them, else on any drives.
    pub(in crate::engine) fn take_fastest(
        &mut self,
        rooms: &[u32],
        copies: usize,
        extents: u32,
    ) -> Option<Vec<ChunkCopy>> {
        for class in DriveClass::ALL {
            let rooms = self.only(rooms.to_vec(), Some(class));
            let found = self.take_columns(&rooms, copies, extents);
            if found.is_some() {
                return found;
            }
        }
        self.take_columns(rooms, copies, extents)
    }

    /// The better of the drives that could take a copy of a log: of the class that logs are to lie on, else
    /// the fastest, and of those the emptiest.
    pub(in crate::engine) fn best_for_logs(
        &self,
        drives: impl Iterator<Item = usize>,
        copies: usize,
    ) -> Option<usize> {
        let wanted = self.fastest(copies);
        drives.max_by_key(|&drive| {
            let class = self.class(drive);
            let is_wanted = wanted.is_some() && class == wanted;
            (is_wanted, std::cmp::Reverse(class), self.free(drive).free())
        })
    }

    /// The class of all drives, if there is only one.
    pub(in crate::engine) fn only_media(&self) -> Option<DriveClass> {
        let usable = self.usable().into_iter().enumerate();
        let mut there = usable.filter(|&(_, stays)| stays);
        let first = there.next().and_then(|(drive, _)| self.class(drive));
        first.filter(|_| there.all(|(drive, _)| self.class(drive) == first))
    }

    /// The class of a new volume that names none: in a pool of one class any drive may hold it, for there is
    /// nothing to choose. Else the one with most room, of those that have drives enough.
    pub(in crate::engine) fn default_media(&self, drives: usize) -> Option<DriveClass> {
        let usable = self.usable();
        let staying = |class: DriveClass| {
            let all = usable.iter().enumerate();
            all.filter(move |&(drive, &stays)| stays && self.class(drive) == Some(class))
                .map(|(drive, _)| drive)
        };
        let there = DriveClass::ALL
            .into_iter()
            .filter(|&class| staying(class).next().is_some());
        if there.clone().count() < 2 {
            return None;
        }
        let fits = there.filter(|&class| staying(class).count() >= drives);
        let room = |class: DriveClass| -> u64 {
            staying(class)
                .map(|drive| u64::from(self.free(drive).free()))
                .sum()
        };
        fits.max_by_key(|&class| (room(class), std::cmp::Reverse(class)))
    }

    /// Refuses a layout that there are too few drives for.
    pub(in crate::engine) fn check_layout(
        &self,
        layout: Layout,
        class: Option<DriveClass>,
    ) -> Result<(), IoError> {
        // One that is to leave would be kept by it.
        let staying = self.staying_of(class);
        if !layout.is_possible() {
            return Err(refuse(format!(
                "{layout}: there are mirrors of 1 to 4 copies, parity over 2 to 7 columns with 1 or 2 \
                 of parity, 8 in all, and stripes of 1 to 8 columns"
            )));
        }
        let drives = layout.drives();
        if drives > staying {
            let what = class.map(|class| format!(" of class {class}"));
            let what = what.unwrap_or_default();
            return Err(refuse(format!(
                "{layout} needs {drives} drives{what}, the pool has {staying}"
            )));
        }
        Ok(())
    }
}

/// What is full, in words.
pub(in crate::engine) fn full(media: Option<DriveClass>) -> String {
    match media {
        Some(class) => format!("the pool's drives of class {class} are full"),
        None => "the pool is full".to_owned(),
    }
}
