//! What of the map stays in memory: leaves that are clean and not in use go, those least
//! lately used first (CLOCK), while there are more than the limit. A leaf is *pinned* by what has looked
//! at it and is about to change it, or to look again: from then until it is done the leaf stays.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::ops::Range;

use super::{Content, LeafView, Map, Page, leaf_id};
use crate::engine::access::locks::SlotKey;
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
pub(super) struct Clock {
    /// Leaves that are here, in the order in which they will be looked at.
    order: VecDeque<PageId>,
    /// Bytes that they take.
    bytes: u64,
    /// Bytes that they may take by the owner's wish; 0 for the default.
    wished: u64,
    pins: HashMap<PageId, u32, BuildHasherDefault<Mix>>,
}

impl Clock {
    /// A leaf has come.
    pub(super) fn enter(&mut self, id: PageId, grain: Grain) {
        self.order.push_back(id);
        self.bytes += leaf_memory(grain);
    }

    /// A leaf has gone out of the order.
    fn left(&mut self, grain: Grain) {
        self.bytes -= leaf_memory(grain);
    }

    fn pin(&mut self, id: PageId) {
        *self.pins.entry(id).or_default() += 1;
    }

    fn unpin(&mut self, id: PageId) {
        if let Some(count) = self.pins.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&id);
            }
        }
    }

    fn is_pinned(&self, id: PageId) -> bool {
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

impl Map {
    /// The same with the owner's bound for what leaves may take; 0 for the default.
    #[must_use]
    pub(crate) fn with_leaf_bytes(mut self, wished: u64) -> Self {
        self.clock.wished = wished;
        self
    }

    /// What leaves take of memory.
    pub(crate) fn leaf_memory(&self) -> LeafMemory {
        LeafMemory {
            leaves: self.leaves(),
            dirty: self.dirty_pages(),
            bytes: self.clock.bytes,
            limit_bytes: self.leaf_limit(),
            limit_bytes_a_tib: leaf_limit(self.clock.wished, 1 << 40),
        }
    }

    /// Bytes that leaves may take.
    fn leaf_limit(&self) -> u64 {
        leaf_limit(self.clock.wished, self.mapped_bytes())
    }

    /// Leaves that are here.
    pub(crate) fn leaves(&self) -> usize {
        self.clock.order.len()
    }

    /// Lets go of some leaves, while there are too many. Returns how many have gone.
    pub(crate) fn make_room(&mut self) -> u64 {
        self.evict(self.leaf_limit(), STEPS)
    }

    /// Lets go of leaves that are clean, not pinned, and were not used since they were last looked
    /// at, until the others take no more than `limit` bytes or `steps` were looked at. Returns how
    /// many have gone.
    pub(crate) fn evict(&mut self, limit: u64, steps: usize) -> u64 {
        let mut gone = 0;
        for _ in 0..steps {
            if self.clock.bytes <= limit {
                break;
            }
            let Some(id) = self.clock.order.pop_front() else {
                break;
            };
            let stays = |page: &Page| page.first_dirty.is_some() || page.used.take();
            if self.clock.is_pinned(id) || self.pages.get(&id).is_some_and(stays) {
                self.clock.order.push_back(id);
            } else {
                if let Some(Content::Leaf(leaf)) = self.pages.remove(&id).map(|page| page.content) {
                    self.clock.left(leaf.grain());
                }
                self.unlose(id);
                gone += 1;
            }
        }
        gone
    }

    /// Lets go of one leaf that nothing uses; whether it has gone.
    pub(super) fn forget_leaf(&mut self, id: PageId) -> bool {
        if self.clock.is_pinned(id) {
            return false;
        }
        match self.pages.remove(&id).map(|page| page.content) {
            Some(Content::Leaf(leaf)) => {
                self.clock.order.retain(|&one| one != id);
                self.clock.left(leaf.grain());
                true
            }
            _ => false,
        }
    }

    /// A leaf is here no more, though it may be needed.
    #[cfg(feature = "canary")]
    pub(crate) fn drop_leaf(&mut self, leaf: PageId) {
        self.pages.remove(&leaf);
    }

    /// Whether changes keep so much of the map here that pages should be written for it.
    pub(crate) fn has_many_dirty_leaves(&self) -> bool {
        let each = self.clock.bytes / self.leaves().max(1) as u64;
        let dirty = self.dirty_pages().saturating_sub(8) as u64;
        dirty * each.max(LEAF_MEMORY) > self.leaf_limit() / 4 * 3
    }

    /// The granules of a slot.
    pub(crate) fn granules_of(&self, key: SlotKey) -> Range<u64> {
        self.grain(key.volume).range(key.slot)
    }

    /// The leaf of a slot.
    pub(crate) fn leaf_of(&self, key: SlotKey) -> PageId {
        leaf_id(key.volume, self.granules_of(key).start / LEAF_GRANULES)
    }

    /// Leaves of a range of granules that must be loaded.
    pub(crate) fn missing_leaves(&self, volume: u32, granules: Range<u64>) -> Vec<PageId> {
        let is_missing = |&leaf: &u64| matches!(self.leaf(volume, leaf), LeafView::OnDisk);
        let missing = leaves_of(granules).filter(is_missing);
        missing.map(|leaf| leaf_id(volume, leaf)).collect()
    }

    /// Keeps the leaves of a range of granules here.
    pub(crate) fn pin(&mut self, volume: u32, granules: Range<u64>) {
        for leaf in leaves_of(granules) {
            self.clock.pin(leaf_id(volume, leaf));
        }
    }

    /// Takes back what [`pin`](Self::pin) did.
    pub(crate) fn unpin(&mut self, volume: u32, granules: Range<u64>) {
        for leaf in leaves_of(granules) {
            self.clock.unpin(leaf_id(volume, leaf));
        }
    }

    /// Keeps the leaf of a slot here.
    pub(crate) fn pin_slot(&mut self, key: SlotKey) {
        self.clock.pin(self.leaf_of(key));
    }

    /// Takes back what [`pin_slot`](Self::pin_slot) did.
    pub(crate) fn unpin_slot(&mut self, key: SlotKey) {
        self.clock.unpin(self.leaf_of(key));
    }

    /// Keeps a page here.
    pub(crate) fn pin_page(&mut self, id: PageId) {
        self.clock.pin(id);
    }

    /// Takes back what [`pin_page`](Self::pin_page) did.
    pub(crate) fn unpin_page(&mut self, id: PageId) {
        self.clock.unpin(id);
    }
}

/// Numbers of the leaves that granules are in.
fn leaves_of(granules: Range<u64>) -> Range<u64> {
    granules.start / LEAF_GRANULES..granules.end.div_ceil(LEAF_GRANULES)
}
