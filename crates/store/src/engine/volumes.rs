//! The table of volumes: their entries, which of these are being changed, and which volumes take no writes.

mod entries;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

use super::class::Class;
use crate::Layout;
use crate::format::{VolumeEntry, VolumeState};

/// Volumes by number.
pub(super) struct VolumeTable {
    entries: BTreeMap<u32, VolumeEntry>,
    /// Volumes whose entry is on its way into the table, with the size in granules that it says.
    changing: BTreeMap<u32, u64>,
    /// Volumes that take no writes, for a copy is missing.
    stopped: BTreeSet<u32>,
}

impl VolumeTable {
    /// As an import has found it.
    pub(super) fn new(entries: BTreeMap<u32, VolumeEntry>) -> Self {
        Self {
            entries,
            changing: BTreeMap::new(),
            stopped: BTreeSet::new(),
        }
    }

    pub(super) fn get(&self, volume: &u32) -> Option<&VolumeEntry> {
        self.entries.get(volume)
    }

    pub(super) fn get_mut(&mut self, volume: &u32) -> Option<&mut VolumeEntry> {
        self.entries.get_mut(volume)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&u32, &VolumeEntry)> {
        self.entries.iter()
    }

    pub(super) fn keys(&self) -> impl DoubleEndedIterator<Item = &u32> {
        self.entries.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &VolumeEntry> {
        self.entries.values()
    }

    pub(super) fn range(
        &self,
        volumes: impl RangeBounds<u32>,
    ) -> impl Iterator<Item = (&u32, &VolumeEntry)> {
        self.entries.range(volumes)
    }

    pub(super) fn insert(&mut self, volume: u32, entry: VolumeEntry) {
        self.entries.insert(volume, entry);
    }

    pub(super) fn remove(&mut self, volume: &u32) {
        self.entries.remove(volume);
    }

    /// Whether a volume is passed through.
    pub(super) fn is_raw(&self, volume: u32) -> bool {
        let entry = self.get(&volume);
        entry.is_some_and(|entry| matches!(entry.layout, Layout::Stripe { .. }))
    }

    /// The class that a volume has homes in, beside a hot one; none if there is no such volume, or if it is passed through.
    pub(super) fn class_of(&self, volume: u32) -> Option<Class> {
        self.get(&volume).and_then(Class::of_volume)
    }

    /// The granule behind the last of a volume in service.
    pub(super) fn end(&self, volume: u32) -> Option<u64> {
        let entry = self.get(&volume)?;
        (entry.state == VolumeState::Live).then_some(entry.granules)
    }

    /// Whether there is a volume with homes of this class.
    pub(super) fn have_one_of(&self, class: Class) -> bool {
        self.iter().any(|(&number, entry)| {
            let mut classes = Class::all_of_volume(number, entry);
            entry.state == VolumeState::Live && classes.any(|one| one == class)
        })
    }

    /// The class of a volume's hot home.
    pub(super) fn hot_class(&self, volume: u32) -> Option<Class> {
        let entry = self.get(&volume)?;
        Class::hot_of_volume(volume, entry)
    }

    /// Slots that a volume may have in its hot home.
    pub(super) fn hot_limit(&self, volume: u32) -> u64 {
        let hot = |entry: &VolumeEntry| {
            let slots = entry.granules.div_ceil(entry.grain.granules());
            entry.hot.map_or(0, |hot| hot.share.of(slots))
        };
        self.get(&volume).map_or(0, hot)
    }

    /// An entry that says this size is on its way.
    pub(super) fn begin_change(&mut self, volume: u32, granules: u64) {
        self.changing.insert(volume, granules);
    }

    pub(super) fn end_change(&mut self, volume: u32) {
        self.changing.remove(&volume);
    }

    pub(super) fn is_changing(&self, volume: u32) -> bool {
        self.changing.contains_key(&volume)
    }

    /// The size in granules that a volume will have when the entry on its way is there; 0 if none is.
    pub(super) fn coming_size(&self, volume: u32) -> u64 {
        self.changing.get(&volume).copied().unwrap_or(0)
    }

    /// Only these volumes take no writes from now on.
    pub(super) fn stop_only(&mut self, volumes: impl IntoIterator<Item = u32>) {
        self.stopped = volumes.into_iter().collect();
    }

    /// Neither do these.
    pub(super) fn stop_too(&mut self, volumes: impl IntoIterator<Item = u32>) {
        self.stopped.extend(volumes);
    }

    pub(super) fn is_stopped(&self, volume: u32) -> bool {
        self.stopped.contains(&volume)
    }
}
