//! What lies on which drives, and what the pool cannot go on without.

use std::collections::BTreeSet;

use crate::engine::class::Class;
use crate::engine::journal::logs::Logs;
use crate::engine::raw::Raw;
use crate::engine::rebuild::Rebuild;
use crate::engine::space::Space;
use crate::engine::volumes::VolumeTable;
use crate::format::{ChunkCopy, DriveClass, LogId, VolumeState};

/// All that lies on drives.
pub(in crate::engine) struct Holding<'a> {
    pub(in crate::engine) space: &'a Space,
    pub(in crate::engine) logs: &'a Logs,
    pub(in crate::engine) rebuild: &'a Rebuild,
    pub(in crate::engine) raw: &'a Raw,
    pub(in crate::engine) volumes: &'a VolumeTable,
}

impl Holding<'_> {
    /// Columns that a drive's class must have drives for: those of the segments that lie on it, or that are
    /// about to, and of its volumes that have none yet.
    pub(in crate::engine) fn widest_on(&self, media: Option<DriveClass>) -> usize {
        let classes = self.space.segments.classes_on_drives();
        let classes = classes.filter(|class| class.media == media);
        let most = classes.map(|class| class.columns()).max();
        let live = self.volumes.iter();
        let live = live.filter(|(_, entry)| entry.state == VolumeState::Live);
        let homes = live.flat_map(|(&number, entry)| Class::all_of_volume(number, entry));
        let homes = homes.filter(|class| class.media == media);
        let promised = homes.map(|class| class.columns()).max();
        most.max(promised).unwrap_or(0)
    }

    /// Drives that segments of volumes have columns on.
    pub(in crate::engine) fn homes_on(&self) -> BTreeSet<u16> {
        self.space.segments.drives().collect()
    }

    /// Drives that anything is on, or was until just now.
    pub(in crate::engine) fn drives(&self) -> BTreeSet<u16> {
        let chunks = self.logs.chunks().flat_map(|chunk| &chunk.copies);
        let meta = self.space.metadata.segments().iter();
        let meta = meta.flat_map(|segment| &segment.columns);
        let made = self
            .space
            .segments
            .coming()
            .flat_map(|(_, columns)| columns);
        let copies = chunks.chain(meta).chain(made).copied();
        let copies = copies.chain(self.space.upkeep.release().columns());
        let mut drives = self.homes_on();
        drives.extend(copies.map(|copy| copy.drive));
        drives.extend(self.rebuild.joining_drives());
        let all = self.space.drives.numbers();
        let raw = all.filter(|&drive| self.raw.is_on(drive));
        drives.extend(raw);
        drives
    }

    /// What the pool cannot go on without and has no copy of any more.
    pub(in crate::engine) fn lost_for_good(&self) -> Option<&'static str> {
        let lost = |copies: &[ChunkCopy]| {
            !copies
                .iter()
                .any(|copy| self.space.drives.in_service(copy.drive))
        };
        for (name, log) in [("the data ring", LogId::Ring), ("the map log", LogId::Map)] {
            let mut chunks = self.logs.chunks_of(log).iter();
            if chunks.any(|chunk| lost(&chunk.copies)) {
                return Some(name);
            }
        }
        let mut segments = self.space.metadata.segments().iter();
        segments
            .any(|segment| lost(&segment.columns) && !self.space.metadata.is_emptied(segment.id))
            .then_some("the map")
    }
}
