//! The volumes that worlds have.

use ashlar_block::BlockRange;
use ashlar_store::format::DriveClass;
use ashlar_store::{Grain, HotTier, Layout};

use super::cached::CacheWish;

/// A volume that a world makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) layout: Layout,
    /// Its slots' size; `None` for the layout's own.
    pub(crate) grain: Option<Grain>,
    pub(crate) granules: u64,
    /// It will never have more.
    pub(crate) most: u64,
    /// How its blocks lie in the volume that is made for it.
    pub(crate) spread: Spread,
    /// The drives that hold it, and what is small and hot of it.
    pub(crate) class: Option<DriveClass>,
    pub(crate) hot: Option<HotTier>,
    /// It caches a device.
    pub(crate) cache: Option<CacheWish>,
}

impl Wish {
    /// Granules that the pool's volume has if hosts see so many.
    pub(crate) fn of_pool(&self, granules: u64) -> u64 {
        match self.cache {
            Some(_) => ashlar_cache::Layout::of_granules(granules).fast_granules(),
            None => self.spread.at(granules),
        }
    }
}

/// Where the granules of a volume are in a larger one: the pool has volumes of which few places are used,
/// and a world that looks at all that was written has small ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spread {
    /// Granules that stay side by side; a command reaches into no two of such.
    pub(crate) unit: u64,
    /// Granules from the first of one to the first of the next.
    pub(crate) step: u64,
}

impl Spread {
    /// As they are.
    pub(crate) const NONE: Self = Self { unit: 1, step: 1 };

    /// Whether it leaves gaps.
    pub(crate) fn is_sparse(self) -> bool {
        self.step > self.unit
    }

    /// Where a granule is; or where a volume of so many ends.
    pub(crate) fn at(self, granule: u64) -> u64 {
        granule / self.unit * self.step + granule % self.unit
    }

    /// Where a range is. What is in the gaps of a longer one is zero, and stays so.
    pub(crate) fn range(self, range: BlockRange) -> BlockRange {
        let (first, count) = (range.start.0, u64::from(range.count));
        let last = first + count.saturating_sub(1);
        let (from, to) = (self.at(first), self.at(last) + 1);
        BlockRange::new(from, if count == 0 { 0 } else { (to - from) as u32 })
    }

    /// As much of a range as one command may reach into.
    pub(crate) fn cut(self, range: BlockRange) -> BlockRange {
        let first = range.start.0;
        let left = self.unit - first % self.unit;
        match self.is_sparse() {
            true => BlockRange::new(first, range.count.min(left as u32)),
            false => range,
        }
    }
}
