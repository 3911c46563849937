//! A replicated volume on its pool's core: the driver of [`ashlar_replica`] over [`ashlar_copy`].
//!
//! ```text
//! connection ─▶ the volume's device ─▶ pool::EngineDriver ─▶ Replicated ─┬─▶ Copy ─▶ Engine ─▶ drives
//!                                                   │            └─▶ Stream ─▶ the other nodes
//!                                       Outside: quorum, dialling, news ─▶ manager::replicas
//! ```
//!
//! It lives in its pool's [`EngineDriver`](crate::pool::EngineDriver), which hands it commands of hosts, mail of the control plane and
//! what the engine has completed.

mod commands;
mod failover;
mod follow;
mod resync;
mod stream;
mod tally;
mod volume;

pub(crate) use failover::{Cause, Failover};
pub(crate) use resync::ResyncView;
pub(crate) use volume::{Ground, News, Outside, ProofView, ReplicaPlan, ReplicaView, Replicated};
