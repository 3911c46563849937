//! Synchronous replication of a volume.
//!
//! # Where it stands
//!
//! Between the target and a pool's volume, on each node that holds a copy:
//!
//! ```text
//! host ─▶ target ─▶ Replica (owner) ─▶ Local: this node's store
//!                      │  ▲
//!                  messages, in order within a session
//!                      ▼  │
//!                   Replica (member, learner) ─▶ Local: that node's store
//!
//!          Replica (candidate, owner) ─▶ Quorum: one key a volume
//! ```
//!
//! No I/O, no clock, no randomness: [`Replica::handle`] takes an [`Event`] and the time, asks its [`Local`] store, and
//! leaves [`Effect`]s. One instance a volume and shard.
//!
//! # Invariants
//!
//! 1. What was acknowledged or read is durable on every stored in-sync member.
//! 2. One owner an epoch; one serves.
//! 3. Copies in sync differ only in their uncertain sets,
//! 4. absent ones only there, or where the plane of a copy in sync says so.
//! 5. While an owner relies on a grant, its grantor does not serve.
//! 6. Reads never revert.
//! 7. Quiet copies in sync are equal.
//! 8. No older write of a host follows its newer one.
//! 9. When faults end, everything is completed, and all are in sync.
//!
//! The store (a quorum) decides who owns, replicas decide how long, and epochs make lateness harmless; time protects
//! only reads. Copies are sets of granules, not logs: overlapping changes are never in flight together, any order of
//! the others is right, and what a crash leaves in doubt is overwritten with one copy's content.
//!
//! # Faults it survives
//!
//! Processes that crash, stop and go on; messages late, lost with their session, or in one direction; clocks within
//! their drift (beyond it with [`ReadMode::Confirmed`]); a quorum that is away, or silent about outcomes; a store that
//! tears what was on its way, or has no space. `docs/replication.md` has the table.
//!
//! # Deliberately not here
//!
//! Sockets, the quorum's client, the engine: what drives a replica has them.

mod canary;
mod candidate;
mod event;
mod extent;
mod fence;
mod forward;
mod heads;
mod ids;
mod key;
mod lease;
mod leaves;
mod local;
mod member;
mod message;
mod names;
mod owner;
mod pace;
pub mod quorum;
mod replica;
mod seats;
mod wire;

pub use ashlar_block::{AssociationId, HostId, Label, Registrant};
pub use canary::{Cage, Canary};
pub use event::{
    Alarm, Config, Difference, Effect, Event, Growth, HostCommand, HostOperation, Limits, Outcome,
    Proof, ReadMode, Shape, Why, Wish,
};
pub use extent::{Extent, ExtentSet};
pub use fence::{Fence, Intent, Origin};
pub use heads::{Heads, Mark};
pub use ids::{
    Ask, CommandId, CopyId, Epoch, FetchId, ForwardId, Head, Incarnation, Known, Leaf, Low,
    MAX_MEMBERS, NodeId, Nonce, Position, Positions, ReplicaSequence, ReplicaUuid, Revision,
    SessionId, ShardId, Token, VolumeId,
};
pub use key::{KEY_FORMAT, Key, KeyError, MemberId, Members, OwnerId, Size};
pub use lease::{DRIFT_PER_MILLE, GRANT, GRANT_EVERY, GRANT_MARGIN};
pub use leaves::Leaves;
pub use local::{Applied, Entry, EntryChange, Imported, Local, OwnPlane, Tag};
pub use member::MAX_RANGES;
pub use message::{Attach, Content, Envelope, Forward, Join, Message, Record, RecordKind, Refusal};
pub use owner::{DirectEnd, POWER_LOSS_WAIT, REMOVE_AFTER, is_forwarded};
pub use pace::SLOW_AFTER;
pub use replica::{Replica, Surroundings, TICK};
pub use seats::Seats;
pub use wire::{
    Codec, Encoded, Frame, HAS_HEADS, HEADER_BYTES, MAX_DATA_BYTES, WIRE_VERSION, WireError,
};
