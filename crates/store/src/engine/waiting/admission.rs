//! Writes that wait to be let in, those of a volume in the order in which they came. What one volume waits
//! for does not hold up another: only what both need does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::engine::class::Class;

/// Writes that wait, by volume.
#[derive(Default)]
pub(in crate::engine) struct Admission {
    /// Serial number and operation of each.
    by_volume: BTreeMap<u32, VecDeque<(u64, usize)>>,
}

/// What writes that came earlier, of other volumes too, wait for.
#[derive(Default)]
pub(in crate::engine) struct Wanting {
    /// Free slots.
    pub(in crate::engine) slots: BTreeSet<Class>,
    /// Places for pages of the map.
    pub(in crate::engine) places: bool,
    /// Room in the map log, or memory, for whole slots past the ring.
    pub(in crate::engine) bypass: bool,
}

impl Admission {
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.by_volume.is_empty()
    }

    /// Writes that wait.
    pub(in crate::engine) fn len(&self) -> usize {
        self.by_volume.values().map(VecDeque::len).sum()
    }

    /// A write of a volume has come.
    pub(in crate::engine) fn push(&mut self, volume: u32, serial: u64, op: usize) {
        let queue = self.by_volume.entry(volume).or_default();
        queue.push_back((serial, op));
    }

    /// Volumes that have writes waiting, the one that waits longest first.
    pub(in crate::engine) fn volumes(&self) -> Vec<u32> {
        let fronts = self.by_volume.iter();
        let fronts = fronts.filter_map(|(&volume, queue)| Some((queue.front()?.0, volume)));
        let mut fronts: Vec<(u64, u32)> = fronts.collect();
        fronts.sort_unstable();
        fronts.into_iter().map(|(_, volume)| volume).collect()
    }

    /// The first write of a volume that waits.
    pub(in crate::engine) fn front(&self, volume: u32) -> Option<usize> {
        let queue = self.by_volume.get(&volume)?;
        queue.front().map(|&(_, op)| op)
    }

    /// The first write of each volume.
    pub(in crate::engine) fn fronts(&self) -> impl Iterator<Item = usize> {
        let queues = self.by_volume.values();
        queues.filter_map(|queue| queue.front().map(|&(_, op)| op))
    }

    /// Up to so many writes of a volume, from its first on.
    pub(in crate::engine) fn first(&self, volume: u32, most: usize) -> Vec<usize> {
        let queue = self.by_volume.get(&volume).into_iter().flatten();
        queue.take(most).map(|&(_, op)| op).collect()
    }

    /// The first write of a volume waits no more.
    pub(in crate::engine) fn pop(&mut self, volume: u32) {
        if let Some(queue) = self.by_volume.get_mut(&volume) {
            queue.pop_front();
            if queue.is_empty() {
                self.by_volume.remove(&volume);
            }
        }
    }

    /// None waits any more.
    pub(in crate::engine) fn clear(&mut self) {
        self.by_volume.clear();
    }
}
