use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{FailoverCause, PoolStatus, VolumeStats, VolumeStatus};

/// A volume and its counters, taken together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeMetrics {
    /// The volume.
    pub status: VolumeStatus,
    /// Its counters.
    pub stats: VolumeStats,
}

/// A node's part in its cluster, as it knows it without asking another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterMetrics {
    /// The node itself.
    pub node: String,
    /// Whether the quorum's last answer came.
    pub quorum_reachable: bool,
    /// All other nodes.
    pub peers: Vec<PeerMetrics>,
    /// How often this node came to serve volumes, since its daemon started.
    pub failovers: Vec<FailoverCount>,
    /// What it has copied to other nodes, since then.
    pub copied: Vec<CopiedCount>,
    /// What else is counted of its copies.
    pub copies: Vec<CopyCounts>,
    /// Whether it was drained.
    pub drained: bool,
    /// The version of what nodes say to each other that all have agreed on.
    pub agreed: Option<u16>,
}

/// How another node looks from here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMetrics {
    /// Its name.
    pub node: String,
    /// Whether the last attempt to reach it succeeded.
    pub connected: bool,
}

/// How often this node came to serve a volume for one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailoverCount {
    /// The volume's identity.
    pub volume: Uuid,
    /// Why.
    pub cause: FailoverCause,
    /// How often.
    pub count: u64,
}

/// What has gone from a node to a copy of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedCount {
    /// The volume's identity.
    pub volume: Uuid,
    /// The node that has the copy.
    pub node: String,
    /// What was copied to it, of what it missed.
    pub bytes: u64,
    /// All that was sent to its node.
    pub sent_bytes: u64,
}

/// A copy that this node has, since its daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyCounts {
    /// The volume's identity.
    pub volume: Uuid,
    /// Commands of hosts that came here and were sent on to the owner.
    pub forwarded: u64,
    /// Commands of hosts that came here and were refused, because they might have been late.
    pub stale: u64,
    /// How often it was handed to another node, by which its hosts came.
    pub followed: u64,
    /// Whether something is wrong, as this node knows.
    pub alarm: bool,
}

/// Everything that can be measured, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricsSnapshot {
    /// The pools.
    pub pools: Vec<PoolStatus>,
    /// The volumes.
    pub volumes: Vec<VolumeMetrics>,
    /// The cluster, if the node is in one.
    pub cluster: Option<ClusterMetrics>,
}
