//! One copy of a replicated volume in a pool: what the protocol asks of a store ([`Local`](ashlar_replica::Local)),
//! done by the [`Engine`](ashlar_store::Engine).
//!
//! # Where it stands
//!
//! ```text
//!  Replica ── Local ──▶ EngineLocal ── post ──▶ Engine ──▶ drives
//!     ▲                                            │
//!     ╰──── Event ◀── Copy ◀── its completions ────╯
//! ```
//!
//! No I/O, no clock. Engine and replica live on one core; a volume has one [`struct@Copy`].
//!
//! # How it is driven
//!
//! ```text
//! // Once a volume, by an order of the pool: Manage::MakeReplica { volume, identity, granules }. Then, at every import:
//! // `names` is the pool's, and outlives its copies.
//! let mut copy = Copy::new(&engine, volume, buffers, &names)?; // None: the volume is no copy
//! let mut replica = Replica::new(config, copy.imported(is_old_image), now); // config.shape = copy.shape()
//!
//! // A turn: whatever the replica is told, it is told with an EngineLocal around the pool's outbox.
//! replica.handle(event, Surroundings { now, local: &mut EngineLocal::new(&mut engine, &mut copy, now, &mut out), out: effects });
//! engine.handle(now, Event::Tick, &mut out);                    // as ever: then out.io to the drives
//! for completion in out.done   where volume_of(completion.tag) == Some(volume) { copy.completed(completion) }
//! for (id, answer) in out.managed where volume_of(id) == Some(volume)          { copy.managed(id, answer) }
//! EngineLocal::new(..).resume();                                // what has waited for a buffer; some of what is to be proven
//! while let Some(event) = copy.next_event() { replica.handle(event, ..) }       // and the engine again, if there were any
//! while let Some(read) = copy.next_directly_read() { replica.end_direct(..) }   // of what Replica::begin_direct began
//! if let Some(why) = copy.failure() { /* the engine has stopped: so does the replica */ }
//! ```
//!
//! Names of commands and orders have their highest bit set ([`volume_of`]): those of the pool's other users must not.
//! A copy that was stopped may still be answered: a pool's copies count their names by one [`NameCount`].
//! Hosts' commands for the volume go to the replica, never to the engine.
//!
//! # What it promises
//!
//! What [`Local`](ashlar_replica::Local) demands, with what the engine keeps durably: tags in the records of its logs, which
//! stay until they are known to be committed or are in the own plane; planes and entry in pages of their own, planes
//! before the entry that needs them. After a crash more may be uncertain or missing than was, never less.

mod copy;
mod digest;
mod direct;
mod lent;
mod local;
mod memory;
mod names;
mod proof;

pub use copy::Copy;
pub use direct::DirectlyRead;
pub use local::{EngineLocal, matches, missed, plane, uncertain, unwritten};
pub use names::{NameCount, volume_of};

/// Granules of a leaf of an engine's map: what a proof is about.
pub const LEAF_GRANULES: u32 = 512;
