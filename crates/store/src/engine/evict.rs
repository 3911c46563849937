//! What of the map stays in memory: leaves that are clean and that nobody uses go, those least
//! lately used first (CLOCK), while there are more than the limit. A leaf is *pinned* by whoever has looked
//! at it and is about to change it, or to look again: from then until it is done the leaf stays.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use super::Engine;
use super::index::Mix;
use super::map::{LeafView, leaf_id};
use crate::format::{Leaf, PageId};
use crate::sizes::{LEAF_GRANULES, SLOT_BYTES};

/// Bytes that a leaf takes in memory: itself, its places in the tables of what is here.
pub(crate) const LEAF_MEMORY: u64 = size_of::<Leaf>() as u64 + 128;
/// Without a limit of the owner's: of every mapped byte this part, but so much at least.
const SHARE: u64 = 1024;
const LEAST: u64 = 64 << 20;
/// Leaves that one turn looks at.
const STEPS: usize = 256;

/// Which leaves are here, and which must stay.
#[derive(Default)]
pub(crate) struct Clock {
    /// Leaves that are here, in the order in which they will be looked at.
    pub(super) order: VecDeque<PageId>,
    pins: HashMap<PageId, u32, BuildHasherDefault<Mix>>,
}

impl Clock {
    pub(super) fn pin(&mut self, id: PageId) {
        *self.pins.entry(id).or_default() += 1;
    }

    pub(super) fn unpin(&mut self, id: PageId) {
        if let Some(count) = self.pins.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&id);
            }
        }
    }

    pub(super) fn is_pinned(&self, id: PageId) -> bool {
        self.pins.contains_key(&id)
    }
}

/// The map's leaves in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafMemory {
    /// Leaves that are here.
    pub leaves: usize,
    /// Of these, how many changes keep here until they are in written pages.
    pub dirty: usize,
    /// Bytes that the leaves that are here take.
    pub bytes: u64,
    /// Bytes that they may take: above, those that nothing keeps here go.
    pub limit_bytes: u64,
}

impl Engine {
    /// What the map takes of memory.
    pub fn leaf_memory(&self) -> LeafMemory {
        let leaves = self.map.leaves();
        LeafMemory {
            leaves,
            dirty: self.map.dirty_pages(),
            bytes: leaves as u64 * LEAF_MEMORY,
            limit_bytes: self.leaf_limit() as u64 * LEAF_MEMORY,
        }
    }

    fn leaf_limit(&self) -> usize {
        let bytes = match self.leaf_bytes {
            0 => LEAST.max(self.map.mapped_slots() * SLOT_BYTES / SHARE),
            bytes => bytes,
        };
        (bytes / LEAF_MEMORY).max(1) as usize
    }

    /// Lets go of leaves that are too many.
    pub(super) fn evict(&mut self) {
        let limit = self.leaf_limit();
        if self.map.leaves() > limit {
            self.counters.evicted += self.map.evict(limit, STEPS);
        }
    }

    /// Whether changes keep so much of the map here that pages should be written for it.
    pub(super) fn has_many_dirty_leaves(&self) -> bool {
        self.map.dirty_pages() > self.leaf_limit() / 4 * 3 + 8
    }

    /// Leaves of a range of granules that must be loaded.
    pub(super) fn missing_leaves(&self, volume: u32, first: u64, end: u64) -> Vec<PageId> {
        let leaves = first / LEAF_GRANULES..end.div_ceil(LEAF_GRANULES);
        let missing =
            leaves.filter(|&leaf| matches!(self.map.leaf(volume, leaf), LeafView::OnDisk));
        missing.map(|leaf| leaf_id(volume, leaf)).collect()
    }

    /// Keeps the leaves of a range of granules here.
    pub(super) fn pin(&mut self, volume: u32, first: u64, end: u64) {
        for leaf in first / LEAF_GRANULES..end.div_ceil(LEAF_GRANULES) {
            self.map.clock.pin(leaf_id(volume, leaf));
        }
    }

    /// Takes back what [`pin`](Self::pin) did.
    pub(super) fn unpin(&mut self, volume: u32, first: u64, end: u64) {
        for leaf in first / LEAF_GRANULES..end.div_ceil(LEAF_GRANULES) {
            self.map.clock.unpin(leaf_id(volume, leaf));
        }
    }
}
