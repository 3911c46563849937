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
use crate::engine::Engine;
use crate::engine::class::Class;
use crate::engine::invariant::invariant;
use crate::engine::journal::Then;
use crate::engine::manage::segment_change;
use crate::engine::space::Space;
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

impl Engine {
    /// Gives segments back that are empty, as far as the map log has room for it.
    pub(in crate::engine) fn advance_release(&mut self) {
        if !self.space.upkeep.release().look {
            return;
        }
        let mut stocks: BTreeMap<Class, bool> = BTreeMap::new();
        for id in self.space.upkeep.release().empty.clone() {
            let full = self.logs.is_map_busy();
            if self.space.upkeep.release().freeing.len() >= RECORDS || full {
                return;
            }
            // It may have been given back since, or may be in use again.
            let class = self.space.segments.class(id);
            let Some(class) = class.filter(|_| self.space.segments.is_empty(id)) else {
                self.space.upkeep.release_mut().empty.remove(&id);
                continue;
            };
            let stocked = *stocks
                .entry(class)
                .or_insert_with(|| self.has_volume_of(class));
            // One that is being given a column stays until that is done.
            let stays = self.rebuild.is_joining(id) || stocked && self.space.is_stock(class, id);
            if !stays {
                self.space.upkeep.release_mut().empty.remove(&id);
                self.release_segment(id);
            }
        }
        self.space.upkeep.release_mut().look = false;
    }

    fn release_segment(&mut self, id: u32) {
        let shape = self.space.shape(id);
        let (Some(shape), Some(columns)) = (shape, self.space.segments.remove(id)) else {
            return invariant!(self, "segment {id} is to be given back, but is not there");
        };
        let extents = shape.extents(self.identity.sizes());
        self.space
            .upkeep
            .release_mut()
            .freeing
            .insert(id, (columns, extents));
        if self.identity.sings(Canary::ReleaseBeforeDurable) {
            // As late as a record can be: never.
            self.give_segment_back(id);
            self.space.upkeep.release_mut().freeing.remove(&id);
            return;
        }
        let change = segment_change(id, &SegmentEntry::free(), Then::Released(id));
        self.journal.stage(change);
    }

    /// Extents of a segment are free.
    fn give_segment_back(&mut self, id: u32) {
        let Some((columns, extents)) = self.space.upkeep.release_mut().freeing.get_mut(&id) else {
            return invariant!(self, "segment {id} is free, but was not to be given back");
        };
        let (columns, extents) = (std::mem::take(columns), *extents);
        for copy in columns {
            self.give_extents_of(copy, extents);
        }
    }

    /// A segment's free entry is durable.
    pub(in crate::engine) fn segment_released(&mut self, id: u32) {
        self.give_segment_back(id);
        self.space.upkeep.release_mut().freeing.remove(&id);
        self.space.segments.give_id(id);
        self.base.counters.released += 1;
        let release = self.space.upkeep.release_mut();
        release.look |= !release.empty.is_empty();
        if self.space.upkeep.release().freeing.is_empty() && self.is_degraded() {
            // What found no room before may find it now.
            self.rebuild_wanted();
            self.volumes
                .stops_admission_check(&self.space, &self.rebuild);
        }
    }
}
