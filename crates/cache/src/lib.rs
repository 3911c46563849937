//! A write-back cache of a fast device over a slow one that already holds something, byte for byte.
//!
//! # Where it stands
//!
//! ```text
//! host ─▶ Cache ─┬─▶ fast device: blocks where they are on the backing device, bits, a header
//!                └─▶ backing device
//! ```
//!
//! [`Cache`] is a state machine: requests, completions and time go in, requests for both devices come out. Its
//! fast device is a thin volume of a pool, as large as the backing device: what is cached lies at the same
//! address. [`policy`] decides what stays: names of blocks, no I/O.
//!
//! # Invariants
//!
//! By what the pages of bits say durably:
//!
//! 1. A granule that is not cached: the backing device has the newest that was acknowledged.
//! 2. One that is cached and clean: both devices have it, durably.
//! 3. One that is newer: the fast device has the newest that was acknowledged, durably.
//! 4. While one is newer in write-back mode, the backing device has a [mark] where it begins, and nothing
//!    mounts it.
//!
//! # Deliberately not here
//!
//! Copies, checksums, recovery of the fast device: they are its pool's.
mod bits;
mod blocks;
mod cache;
mod identity;
mod lately;
mod layout;
mod locks;
pub mod mark;
pub mod policy;
mod rules;

pub use blocks::blocks_for;
pub use cache::{Cache, Defect, Side, Status};
pub use identity::{Identity, Other};
pub use layout::{GRANULE, HEAD_BYTES, Header, Layout, Mark, Mode};
pub use rules::{RuleId, RuleStatus};
