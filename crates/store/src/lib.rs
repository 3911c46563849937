//! The storage engine: drives become pools, pools give volumes that lose nothing.
//!
//! # Where it stands
//!
//! ```text
//! host ─ target ─▶ Engine ─▶ ring (small writes)      ─▶ drives
//!                    │   └──▶ fresh slots (whole ones) ─▶ drives
//!                    ├ map log, index, map
//!                    └ destage: ring ─▶ homes; checkpoint: map ─▶ pages, root
//! ```
//!
//! A write that covers whole slots, of 8 to 64 KiB each, goes straight to fresh space, and records of their
//! places into the *map log*. Any other write goes, with its data, into the *data ring*, and from there, later
//! and together with its neighbours, home. Both logs are on as many drives as the pool's most tolerant
//! layout needs; a write is acknowledged when all of them have it.
//!
//! A slot of a volume with parity is cut over columns and always written as a whole, to fresh space.
//!
//! A `stripe` volume has none of this: its commands go to its drives and their answers to its hosts.
//! Only where it lies is kept in the logs and the map.
//!
//! # Invariants (of mirrors and parity; of a `stripe`, 4 and 6)
//!
//! 1. Acknowledged writes survive crashes, power losses and tolerated losses of drives, flush or no
//!    flush; a value once read never reverts.
//! 2. A write inside an aligned unit of 64 KiB is there as a whole or not at all.
//! 3. Every granule of 4 KiB carries its checksum from the record to the home; a read verifies it.
//!    Never wrong data, errors only for the blocks affected.
//! 4. Nothing that the map, a log or a reader can reach is overwritten or given away.
//! 5. A record of the ring goes when its home, flushed, and the map's change, durable, both are
//!    there; a change of the map goes when a durable root reaches it *and* every ring record that
//!    recovery would replay is younger.
//! 6. Recovery, interrupted anywhere and repeated, gives one state.
//!
//! # Deliberately not here
//!
//! Sockets, clocks, threads: time and I/O are parameters ([`Event`], [`Outbox`]).
mod canary;
mod comeback;
mod create;
mod drive_table;
mod drives;
mod engine;
mod error;
pub mod format;
mod layout;
mod manage;
mod membership;
mod recover;
mod replica;
pub mod ring;
pub mod sizes;
mod tier;

pub use canary::{Cage, Canary};
pub use comeback::{Comeback, read_label};
pub use create::{DrivePlan, PoolPlan, enlist, format};
pub use drive_table::{DriveBytes, DriveErrors, DriveTable, Missing};
pub use drives::{DRIVE_REPLY_TIMEOUT, Drives};
pub use engine::{
    Counters, DriveReplies, DriveWait, Engine, Event, HomeStatus, LeafMemory, LostBlocks,
    MemberStatus, Outbox, Replicas, Status, StripeStatus, TierStatus, TierTally, VolumeCondition,
    VolumeInfo,
};
pub use error::PoolError;
pub use layout::Layout;
pub use manage::{Manage, Managed, VolumePlan};
pub use membership::{Membership, NodeMemory};
pub use recover::{ImportOptions, Imported, import, missing_members};
pub use replica::{
    Committed, OwnPlane, POSITIONS, ReplicaChange, ReplicaIdentity, ReplicaMark, ReplicaPromise,
    ReplicaSize, ReplicaTag, Till,
};
pub use sizes::{Grain, Sizes};
pub use tier::{HotTier, Share};
