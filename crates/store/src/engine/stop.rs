//! Volumes that would rather stop than go on with less redundancy than their layout says.
//!
//! Such a volume takes no writes while something of its layout lacks a copy, or a column, *and* no
//! drive can take it: fewer drives are in service than it needs, or none has room. As long as a repair
//! can, it goes on like any other. Reads go on always: what is there can be copied away. What was let in
//! before the loss goes through.

use std::collections::BTreeSet;

use ashlar_block::{ErrorKind, IoError};

use super::class::Class;
use super::manage::refuse;
use super::rebuild::Rebuild;
use super::segment_table::HomeSegment;
use super::space::Space;
use super::volumes::VolumeTable;
use crate::format::VolumeState;

impl VolumeTable {
    /// Works out anew which volumes take no writes: drives or segments have come or gone.
    pub(super) fn stops_admission_check(&mut self, space: &Space, rebuild: &Rebuild) {
        let wishes = self.iter();
        let wishes = wishes.filter(|(_, entry)| entry.stops && entry.state == VolumeState::Live);
        let wishes: Vec<(u32, Vec<Class>)> = wishes
            .map(|(&number, entry)| (number, Class::all_of_volume(number, entry).collect()))
            .collect();
        if wishes.is_empty() {
            return self.stop_only([]);
        }
        let short = short_classes(space, rebuild);
        let lacks = |class: &Class| {
            let there = space.drives.active().into_iter();
            let there = there.filter(|&drive| space.drives.is_of(drive, class.media));
            class.columns() > there.count() || short.contains(class)
        };
        let stops = |(_, classes): &&(u32, Vec<Class>)| classes.iter().any(lacks);
        let stopped: Vec<u32> = wishes.iter().filter(stops).map(|&(n, ..)| n).collect();
        self.stop_only(stopped);
    }

    /// A segment has come that lacks a column: whether volumes of its class stop for it.
    pub(super) fn stop_admission_check_for(&mut self, id: u32, space: &Space, rebuild: &Rebuild) {
        if rebuild.is_joining(id) || rebuild.could_have_column(id, space) {
            return;
        }
        let class = space.segments.class(id);
        let live = self.iter();
        let live = live.filter(|(_, entry)| entry.stops && entry.state == VolumeState::Live);
        let stops = live.filter(|&(&number, entry)| {
            Class::all_of_volume(number, entry).any(|one| Some(one) == class)
        });
        let stopped: Vec<u32> = stops.map(|(&number, _)| number).collect();
        self.stop_too(stopped);
    }

    /// Why a volume takes no writes, if it takes none.
    pub(super) fn stop_reason(&self, volume: u32) -> Option<String> {
        self.is_stopped(volume).then(|| {
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

/// Classes with a segment that lacks a column which no drive can take.
fn short_classes(space: &Space, rebuild: &Rebuild) -> BTreeSet<Class> {
    let mut short = BTreeSet::new();
    for (id, class) in space.segments.iter() {
        if short.contains(&class) || rebuild.is_joining(id) {
            continue;
        }
        let found = space.segments.get(id);
        let lacks = |found: HomeSegment<'_>| {
            space.drives.serving(found.columns).len() < found.wanted_columns()
        };
        if found.is_some_and(lacks) && !rebuild.could_have_column(id, space) {
            short.insert(class);
        }
    }
    short
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
