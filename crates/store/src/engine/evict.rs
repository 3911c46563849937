//! What of the map stays in memory: leaves that are clean and not in use go, those least
//! lately used first (CLOCK), while there are more than the limit. A leaf is *pinned* by what has looked
//! at it and is about to change it, or to look again: from then until it is done the leaf stays.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::ops::Range;

use super::Engine;
use super::locks::SlotKey;
use super::map::{LeafView, leaf_id};
use crate::format::{Leaf, PageId};
use crate::ring::Mix;
use crate::sizes::{Grain, LEAF_GRANULES};

/// Bytes that a leaf takes in memory: itself, its places in the tables of what is here, and how hot its slots are, as
/// if its volume had a tier.
const fn leaf_memory(grain: Grain) -> u64 {
    size_of::<Leaf>() as u64 + 5 * grain.slots_a_leaf() as u64 + 152
}

/// The same of the smallest leaf.
pub(crate) const LEAF_MEMORY: u64 = leaf_memory(Grain::K64);
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
    /// Bytes that they take.
    pub(super) bytes: u64,
    pins: HashMap<PageId, u32, BuildHasherDefault<Mix>>,
}

impl Clock {
    /// A leaf has come.
    pub(super) fn enter(&mut self, id: PageId, grain: Grain) {
        self.order.push_back(id);
        self.bytes += leaf_memory(grain);
    }

    /// A leaf that was in the order's front has gone.
    pub(super) fn left(&mut self, grain: Grain) {
        self.bytes -= leaf_memory(grain);
    }

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
    /// The same with 1 TiB mapped.
    pub limit_bytes_a_tib: u64,
}

/// Bytes that leaves may take: those that an operator wished, or by what is mapped.
pub(crate) fn leaf_limit(wished: u64, mapped_bytes: u64) -> u64 {
    let bytes = match wished {
        0 => LEAST.max(mapped_bytes / SHARE),
        bytes => bytes,
    };
    bytes.max(LEAF_MEMORY)
}

impl Engine {
    /// What the map takes of memory.
    pub fn leaf_memory(&self) -> LeafMemory {
        let leaves = self.map.leaves();
        LeafMemory {
            leaves,
            dirty: self.map.dirty_pages(),
            bytes: self.map.leaf_bytes(),
            limit_bytes: self.leaf_limit(),
            limit_bytes_a_tib: self.leaf_limit_of(1 << 40),
        }
    }

    /// Bytes that leaves may take.
    fn leaf_limit(&self) -> u64 {
        self.leaf_limit_of(self.map.mapped_bytes())
    }

    fn leaf_limit_of(&self, mapped_bytes: u64) -> u64 {
        self.memory.leaf_limit(mapped_bytes)
    }

    /// Lets go of leaves that are too many.
    pub(super) fn evict(&mut self) {
        let limit = self.leaf_limit();
        if self.map.leaf_bytes() > limit {
            self.counters.evicted += self.map.evict(limit, STEPS);
        }
    }

    /// Whether changes keep so much of the map here that pages should be written for it.
    pub(super) fn has_many_dirty_leaves(&self) -> bool {
        let each = self.map.leaf_bytes() / self.map.leaves().max(1) as u64;
        let dirty = self.map.dirty_pages().saturating_sub(8) as u64;
        dirty * each.max(LEAF_MEMORY) > self.leaf_limit() / 4 * 3
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

    /// The granules of a slot.
    pub(super) fn granules_of(&self, key: SlotKey) -> Range<u64> {
        self.map.grain(key.volume).range(key.slot)
    }

    /// Keeps the leaf of a slot here.
    pub(super) fn pin_slot(&mut self, key: SlotKey) {
        let slot = self.granules_of(key);
        self.pin(key.volume, slot.start, slot.end);
    }

    /// Takes back what [`pin_slot`](Self::pin_slot) did.
    pub(super) fn unpin_slot(&mut self, key: SlotKey) {
        let slot = self.granules_of(key);
        self.unpin(key.volume, slot.start, slot.end);
    }

    /// Takes back what [`pin`](Self::pin) did.
    pub(super) fn unpin(&mut self, volume: u32, first: u64, end: u64) {
        for leaf in first / LEAF_GRANULES..end.div_ceil(LEAF_GRANULES) {
            self.map.clock.unpin(leaf_id(volume, leaf));
        }
    }
}
