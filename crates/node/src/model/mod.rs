//! The words of the API: what is asked, what is told, what goes wrong.
//!
//! Everything here is JSON on the wire and stable: within `/v1` fields are added, never renamed,
//! removed or given another unit. Requests refuse fields they do not know, so that a mistyped
//! option is an error and not a silence; answers may grow, so clients ignore what they do not know.
//! Sizes are in bytes and times in seconds unless a name says otherwise.

#![warn(missing_docs)]

mod address;
mod bytes;
mod cache;
mod cluster;
mod error;
mod hosts;
mod layout;
mod metrics;
mod name;
mod pool;
mod replica;
mod request;
mod reserve;
mod rule;
mod service;
#[cfg(test)]
mod tests;
mod tier;
mod volume;

pub use address::ServiceAddress;
pub(crate) use address::are_neighbours;
pub use bytes::readable_bytes;
pub use cache::{
    ByteRange, CacheMode, CacheStatus, CreateCache, FlushReply, NewerData, ReopenCache,
};
pub use cluster::{
    ClusterEvent, ClusterToken, ClusterView, DrainNode, DrainReply, EventsAfter, ForgetNode,
    KeptVolume, MemberOfQuorum, NewToken, NodeOfCluster, NodeRole, NodeState, ProtocolOfCluster,
    QuorumOfCluster, QuorumRole, ReplaceNode, ReplaceReply, ReplaceState, ReplacedVolume,
    VolumeOfCluster,
};
pub use error::{ControlError, ErrorBody, ErrorKind};
pub(crate) use hosts::check_remembered_hosts;
pub use hosts::{AllowHosts, DenyHosts, HostChange, HostList, SetHosts};
pub use layout::{LayoutSpec, Outcome, Survives};
pub use metrics::{
    ClusterMetrics, CopiedCount, CopyCounts, FailoverCount, MetricsSnapshot, PeerMetrics,
    VolumeMetrics,
};
pub use name::{VolumeName, check_name};
pub use pool::{
    DriveClass, DriveErrors, DriveState, DriveStatus, LayoutStatus, LogFill, LostRange,
    PoolCounters, PoolState, PoolStatus, Reserve, SpaceStatus, WorkKind, WorkState, WorkStatus,
};
pub use replica::{
    CopyProof, DifferentRange, FailoverCause, FailoverStatus, MoveVolume, ProofResult, ProofStatus,
    Reads, ReplicaState, ReplicaStatus, ReplicateVolume, ReplicationStatus, RunAlone, SetFollow,
};
pub use request::{
    AddDrive, Check, CreatePool, CreateVolume, DeleteVolume, ExportPool, ImportPool, RemoveDrive,
    ReplaceDrive, ResizeVolume, SetReserve, SetWhenDegraded,
};
pub use reserve::ReserveSpec;
pub use rule::{CacheRule, MOST_RULE_RANGES, PutRule, RemoveRule, RuleExtents};
pub use service::{CreateService, MoveService, ServiceNode, ServiceState, ServiceStatus};
pub use tier::{HotSpec, TierStatus};
pub use volume::{IoCounters, NodeStatus, VolumeState, VolumeStats, VolumeStatus, WhenDegraded};
