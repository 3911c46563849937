//! Where blocks are: the leaves under a write, and decorators that make leaves behave.
//!
//! # Where it stands
//!
//! The last room on a write's way. What assembles a stack turns a text into an
//! [`Opener`](ashlar_reactor::Opener), which is shared by all cores and holds what they have in
//! common; each core opens its own [`BlockDevice`](ashlar_block::BlockDevice) from it.
//!
//! ```text
//! Spec text ─ parse ─▶ Opener (shared) ─ open(core's reactor) ─▶ BlockDevice (one a core)
//!                                                                 memory | null | file
//!                                                                 stripe over devices
//!                                                                 media, faults, record over a device
//! ```
//!
//! # Invariants
//!
//! * A leaf keeps the contract's consistency across its queues: what one queue has completed,
//!   every other queue reads; no block is ever read half old and half new.
//! * After a flush or a durable write failed, every queue of that device refuses everything.
//!   No flush is elided.
//! * In steady state a read or write allocates nothing.
//! * What can be known at opening is said at opening: wrong sizes, a full disk, a file in use.
//!
//! # Deliberately not here
//!
//! Volumes, redundancy, caching, the network: a remote namespace is only *recognised* here and
//! built by what assembles the stack. `unsafe` is confined to `pages`, the memory device's
//! pages, `extents`, an ioctl, and `rbd`, which calls Ceph's library where it is built in.

mod error;
mod extents;
pub mod faults;
mod file;
mod guard;
mod identity;
pub mod media;
mod memory;
mod null;
mod pages;
mod rbd;
pub mod record;
mod size;
mod spec;
mod stripe;
#[cfg(test)]
mod testing;

pub use error::{OpenError, OpenErrorKind};
pub use extents::{Extent, extents};
pub use file::{FileDevice, FileOptions};
pub use guard::{Finding, FindingKind, find_use, inspect};
pub use identity::identity_of;
pub use memory::Memory;
pub use null::{Null, NullReads};
pub use rbd::RbdName;
pub use size::{SizeText, parse_size};
pub use spec::{Remotes, Spec, open, open_whole, open_with};
pub use stripe::{DEFAULT_CHUNK_BYTES, Stripe};
