//! The storage engine itself, in this process: what it costs, counted on drives that count; how long
//! it takes to come back, and what it takes of memory; how fast it reads from real files.

mod cost;
mod disks;
mod drive;
mod pool;
mod reads;
mod recovery;
mod tiers;
mod write_cache;

pub(crate) use cost::measure as cost;
pub(crate) use cost::{Cost, CostOptions, CostRatio, ratios as cost_ratios};
pub(crate) use disks::DiskCost;
pub(crate) use disks::measure as disks;
pub(crate) use reads::Reads;
pub(crate) use reads::measure as reads;
pub(crate) use recovery::measure as recovery;
pub(crate) use recovery::{Memory, Recovery};
pub(crate) use tiers::TierRatio;
pub(crate) use tiers::measure as tiers;
pub(crate) use write_cache::WriteCache;
pub(crate) use write_cache::measure as write_cache;
