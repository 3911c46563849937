//! A seeded world around the storage engine: drives that lose power, die and lie, users who know what
//! they may read, and time.
//!
//! ```text
//! load ─▶ Engine ─▶ outbox ─▶ drives (cache, medium, faults)
//!   ╰───── model: what may every granule hold? ◀─────╯
//! ```
//!
//! # What is checked
//!
//! Every granule read is one of the values it may hold: acknowledged writes survive every crash,
//! what was read once never reverts, writes of up to 64 KiB within an aligned unit of 64 KiB happen whole or
//! not at all; content names its volume, granule and write, so that lost, torn and misplaced data are
//! told apart. Every command is answered, once; requests to drives are well-formed; when the faults
//! have stopped, the logs drain, and an import finds everything again.
//!
//! # What drives do
//!
//! They answer in any order and late, in two pieces. A power loss keeps, loses or tears (at 512 B,
//! in any order) what was in the cache and not flushed, and what was on its way. A crash of the node
//! leaves the caches and lets what was on its way happen in part.

mod audit;
mod cached;
mod drive;
mod enumerate;
mod halves;
mod layouts;
mod load;
mod members;
mod memory;
mod model;
mod node;
mod overcommit;
mod pages;
mod plan;
mod profile;
mod report;
mod rig;
mod run;
mod seam;
mod tiers;
#[cfg(test)]
mod toy;
mod volumes;
mod wish;
mod world;

pub use ashlar_cache::Defect;
pub use ashlar_store::{Canary, Grain, Layout};
pub(crate) use drive::{Drive, DriveSize, Handle, Pace, Shared};
pub use enumerate::{Case, Counts, Sweep, Work};
pub(crate) use plan::SMALL;
pub use profile::Profile;
pub use report::Summary;
pub(crate) use rig::Rig;
pub(crate) use run::panicked;
pub use run::{run, run_case, run_crashes, run_every_crash, run_traced};
pub(crate) use seam::{Running, Shape as PoolShape, Subject, Wait, Wish, memory, used_up};
