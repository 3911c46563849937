//! Segments that hold nothing any more go back to their drives, so that space that one layout has
//! used can serve another.
//!
//! A segment is empty when every slot is free here, in memory: then all the changes that freed them
//! are durable, no reader is left, and nothing is on its way there. From that moment nothing is taken
//! from it. A record frees its entry, behind all those changes in the same log, so a crash leaves
//! either an empty segment, which the next import gives back, or none. Only when the record is durable
//! are its extents free: what is put there next may be named by a root, and a root does not wait for
//! the map log.
//!
//! A class that volumes have keeps a segment's worth of free slots: what is deleted and written in
//! turn needs no record each time.

use std::collections::{BTreeMap, BTreeSet};

use crate::Canary;
use crate::engine::base::Base;
use crate::engine::class::Class;
use crate::engine::identity::Identity;
use crate::engine::invariant::invariant;
use crate::engine::journal::logs::Logs;
use crate::engine::journal::{Journal, Then};
use crate::engine::manage::segment_change;
use crate::engine::rebuild::Rebuild;
use crate::engine::space::Space;
use crate::engine::volumes::VolumeTable;
use crate::format::{ChunkCopy, SegmentEntry};

/// Records of segments on their way at a time: each takes a block of the map log.
const RECORDS: usize = 32;

/// Segments on their way back.
#[derive(Default)]
pub(crate) struct Release {
    /// Segments that became empty, and may be in use again.
    empty: BTreeSet<u32>,
    /// Something has changed since they were last looked at.
    look: bool,
    /// Segments whose records are on their way: their columns, and extents of each.
    freeing: BTreeMap<u32, (Vec<ChunkCopy>, u32)>,
}

/// What the release of a segment may use.
pub(in crate::engine) struct Around<'a> {
    pub(in crate::engine) base: &'a mut Base,
    pub(in crate::engine) identity: &'a Identity,
    pub(in crate::engine) volumes: &'a VolumeTable,
    pub(in crate::engine) rebuild: &'a Rebuild,
    pub(in crate::engine) logs: &'a Logs,
    pub(in crate::engine) journal: &'a mut Journal,
}

impl Release {
    /// Columns that are still in use until a record is durable.
    pub(in crate::engine) fn columns(&self) -> impl Iterator<Item = ChunkCopy> {
        self.freeing
            .values()
            .flat_map(|(columns, _)| columns.iter().copied())
    }

    /// The same, and extents of each.
    pub(in crate::engine) fn columns_and_extents(&self) -> impl Iterator<Item = (ChunkCopy, u32)> {
        let freeing = self.freeing.values();
        freeing.flat_map(|(columns, extents)| columns.iter().map(|&copy| (copy, *extents)))
    }

    /// Whether records are on their way, or segments wait for theirs.
    pub(in crate::engine) fn is_under_way(&self) -> bool {
        self.look || !self.freeing.is_empty()
    }
}

impl Space {
    /// After an import: what a crash has left empty, or what was never used.
    pub(in crate::engine) fn look_for_empty(&mut self) {
        let all = self.segments.ids().into_iter();
        let empty = all.filter(|&id| self.segments.is_empty(id));
        self.upkeep.release_mut().empty = empty.collect();
        self.upkeep.release_mut().look = true;
    }

    /// A slot of a segment has become free.
    pub(in crate::engine) fn slot_freed(&mut self, segment: u32) {
        if self.segments.is_empty(segment) {
            self.upkeep.release_mut().empty.insert(segment);
            self.upkeep.release_mut().look = true;
        }
    }

    /// A volume is gone, and with it what was its alone: its hot home, also what was never used of that.
    pub(in crate::engine) fn look_for_hot_of(&mut self, volume: u32) {
        let theirs = self.segments.iter();
        let theirs = theirs.filter(|(_, class)| class.hot_of == Some(volume));
        let theirs = theirs.map(|(id, _)| id);
        self.upkeep.release_mut().empty.extend(theirs);
    }

    /// A volume has come or gone: what its class kept in stock may go, too.
    pub(in crate::engine) fn look_at_empty(&mut self) {
        self.upkeep.release_mut().look = true;
    }

    /// Whether a class would have too few free slots without this segment.
    pub(in crate::engine) fn is_stock(&self, class: Class, id: u32) -> bool {
        let segments = self.segments.of_class(class);
        let (units, counts) = segments.map_or((0, false), |segments| {
            (u64::from(segments.units()), segments.is_open(id))
        });
        counts && self.spare_slots(class) < 2 * units
    }
}

impl Space {
    /// Gives segments back that are empty, as far as the map log has room for it.
    pub(in crate::engine) fn advance_release(&mut self, around: &mut Around<'_>) {
        if !self.upkeep.release().look {
            return;
        }
        let mut stocks: BTreeMap<Class, bool> = BTreeMap::new();
        for id in self.upkeep.release().empty.clone() {
            if self.upkeep.release().freeing.len() >= RECORDS || around.logs.is_map_busy() {
                return;
            }
            // It may have been given back since, or may be in use again.
            let class = self.segments.class(id);
            let Some(class) = class.filter(|_| self.segments.is_empty(id)) else {
                self.upkeep.release_mut().empty.remove(&id);
                continue;
            };
            let has_volume = || around.volumes.have_one_of(class);
            let stocked = *stocks.entry(class).or_insert_with(has_volume);
            // One that is being given a column stays until that is done.
            let stays = around.rebuild.is_joining(id) || stocked && self.is_stock(class, id);
            if !stays {
                self.upkeep.release_mut().empty.remove(&id);
                self.release_segment(id, around);
            }
        }
        self.upkeep.release_mut().look = false;
    }

    fn release_segment(&mut self, id: u32, around: &mut Around<'_>) {
        let shape = self.shape(id);
        let (Some(shape), Some(columns)) = (shape, self.segments.remove(id)) else {
            let base = &mut *around.base;
            return invariant!(base, "segment {id} is to be given back, but is not there");
        };
        let extents = shape.extents(self.sizes());
        let release = self.upkeep.release_mut();
        release.freeing.insert(id, (columns, extents));
        if around.identity.sings(Canary::ReleaseBeforeDurable) {
            // As late as a record can be: never.
            return self.give_segment_back(id, around.base);
        }
        let change = segment_change(id, &SegmentEntry::free(), Then::Released(id));
        around.journal.stage(change);
    }

    /// Extents of a segment are free.
    fn give_segment_back(&mut self, id: u32, base: &mut Base) {
        let Some((columns, extents)) = self.upkeep.release_mut().freeing.remove(&id) else {
            return invariant!(base, "segment {id} is free, but was not to be given back");
        };
        for copy in columns {
            self.give_extents(copy, extents, base.now);
        }
    }

    /// A segment's free entry is durable. Whether none is on its way back any more.
    pub(in crate::engine) fn segment_released(&mut self, id: u32, base: &mut Base) -> bool {
        self.give_segment_back(id, base);
        self.segments.give_id(id);
        base.counters.released += 1;
        let release = self.upkeep.release_mut();
        release.look |= !release.empty.is_empty();
        release.freeing.is_empty()
    }
}
