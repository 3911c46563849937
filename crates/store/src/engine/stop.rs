//! Volumes that would rather stop than go on with less redundancy than their layout says.
//!
//! Such a volume takes no writes while something of its layout lacks a copy, or a column, *and* no
//! drive can take it: fewer drives are in service than it needs, or none has room. As long as a repair
//! can, it goes on like any other. Reads go on always: what is there can be copied away. What was let in
//! before the loss goes through.

use std::collections::BTreeSet;

use ashlar_block::{ErrorKind, IoError};

use super::Engine;
use super::class::Class;
use super::manage::refuse;
use super::segment_table::HomeSegment;
use crate::format::VolumeState;

impl Engine {
    /// Sets what a volume does when a copy is missing that no drive can take.
    pub(super) fn set_stops(&mut self, id: u64, volume: u32, stops: bool) -> Result<(), IoError> {
        let mut entry = self.live(volume)?;
        if self.volumes.is_changing(volume) || self.raw_is_changing(volume) {
            return Err(refuse(format!(
                "volume {volume} is still being changed as it was asked to be before"
            )));
        }
        check_stops(entry.layout, stops)?;
        if self.is_raw(volume) {
            // It never stops. A change of its entry would be taken for the end of another, of its size
            // say, which is asked for while this one is on its way.
            self.out
                .managed
                .push((id, Ok(crate::manage::Managed::Done)));
            return Ok(());
        }
        entry.stops = stops;
        // One change of an entry at a time: another that is asked for meanwhile would undo this one, or be
        // undone, for each writes the whole entry.
        self.volumes.begin_change(volume, entry.granules);
        self.stage_volume(volume, &entry, Some(id));
        Ok(())
    }

    /// Works out anew which volumes take no writes: drives or segments have come or gone.
    pub(super) fn stops_admission_check(&mut self) {
        let wishes = self.volumes.iter();
        let wishes = wishes.filter(|(_, entry)| entry.stops && entry.state == VolumeState::Live);
        let wishes: Vec<(u32, Vec<Class>)> = wishes
            .map(|(&number, entry)| (number, Class::all_of_volume(number, entry).collect()))
            .collect();
        if wishes.is_empty() {
            return self.volumes.stop_only([]);
        }
        let short = self.short_classes();
        let lacks = |class: &Class| {
            let there = self.active().into_iter();
            let there = there.filter(|&drive| self.is_of(drive, class.media));
            class.columns() > there.count() || short.contains(class)
        };
        let stops = |(_, classes): &&(u32, Vec<Class>)| classes.iter().any(lacks);
        let stopped: Vec<u32> = wishes.iter().filter(stops).map(|&(n, ..)| n).collect();
        self.volumes.stop_only(stopped);
    }

    /// A segment has come that lacks a column: whether volumes of its class stop for it.
    pub(super) fn stop_admission_check_for(&mut self, id: u32, class: Class) {
        if self.rebuild.is_joining(id) || self.could_have_column(id) {
            return;
        }
        let live = self.volumes.iter();
        let live = live.filter(|(_, entry)| entry.stops && entry.state == VolumeState::Live);
        let stops = live.filter(|&(&number, entry)| {
            Class::all_of_volume(number, entry).any(|one| one == class)
        });
        let stopped: Vec<u32> = stops.map(|(&number, _)| number).collect();
        self.volumes.stop_too(stopped);
    }

    /// Classes with a segment that lacks a column which no drive can take.
    fn short_classes(&self) -> BTreeSet<Class> {
        let mut short = BTreeSet::new();
        for (id, class) in self.segments.iter() {
            if short.contains(&class) || self.rebuild.is_joining(id) {
                continue;
            }
            let found = self.segments.get(id);
            let lacks =
                |found: HomeSegment<'_>| self.serving(found.columns).len() < found.wanted_columns();
            if found.is_some_and(lacks) && !self.could_have_column(id) {
                short.insert(class);
            }
        }
        short
    }

    /// Why a volume takes no writes, if it takes none.
    pub(super) fn stop_reason(&self, volume: u32) -> Option<String> {
        self.volumes.is_stopped(volume).then(|| {
            "a copy is missing and no drive can take it; the volume is set to stop then".to_owned()
        })
    }

    /// The same as a host is told.
    pub(super) fn stop_error(&self, volume: u32) -> Option<IoError> {
        let why = self.stop_reason(volume)?;
        let text = format!("volume {volume}: {why}");
        Some(IoError::new(ErrorKind::ReadOnly, text))
    }
}

/// What has no copies cannot lack one.
pub(super) fn check_stops(layout: crate::Layout, stops: bool) -> Result<(), IoError> {
    if stops && layout.survives() == 0 {
        return Err(refuse(format!(
            "{layout} has no copies: it cannot stop when one is missing"
        )));
    }
    Ok(())
}
