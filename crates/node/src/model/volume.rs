use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{CacheStatus, DriveClass, LayoutSpec, ReplicationStatus, TierStatus};

/// How a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Served, with its full redundancy.
    Online,
    /// Served, with less.
    Degraded,
    /// Takes no writes: a copy is missing that no drive can take, and it is set to stop then.
    Stopped,
    /// Not served, or reads only; `reason` says why.
    Failed,
    /// Its space is being given back.
    Deleting,
}

/// What a volume does when it cannot be kept as its layout says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenDegraded {
    /// Goes on, loudly.
    #[default]
    Continue,
    /// Takes no writes while a copy is missing that no drive can take. Reads go on.
    Stop,
}

/// Everything about a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeStatus {
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub name: String,
    /// The subsystem that hosts connect to.
    pub nqn: String,
    /// Its namespace there.
    pub nsid: u32,
    /// Its identity for hosts; never changes.
    pub uuid: Uuid,
    /// Where hosts connect, `ADDR:PORT`.
    pub address: String,
    /// How it is laid out.
    pub layout: LayoutSpec,
    /// The class of drives that hold it; any, without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<DriveClass>,
    /// Its size.
    pub bytes: u64,
    /// User bytes it holds: it is thin.
    pub used_bytes: u64,
    /// Its logical block.
    pub block_bytes: u32,
    /// Size of its slots, which are allocated, and with parity written, as a whole; 0 for a `stripe`,
    /// which has none.
    pub grain_bytes: u32,
    /// Aligned writes up to this size are there as a whole or not at all, whatever happens; 0 if
    /// nothing is promised.
    pub atomic_bytes: u32,
    /// Whether a host must flush to be safe from a power loss.
    pub volatile_cache: bool,
    /// How it is.
    pub state: VolumeState,
    /// Why it is not online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it does when a copy is missing.
    pub when_degraded: WhenDegraded,
    /// The hosts that may connect, by NQN.
    pub allow_hosts: Vec<String>,
    /// Whether every host may.
    pub allow_any_host: bool,
    /// The hosts that are connected now, by NQN.
    pub connected_hosts: Vec<String>,
    /// Its hot home, if it has one; `layout` is for all else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierStatus>,
    /// What it caches, if it is a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheStatus>,
    /// Its owner and its copies, if it has several.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<ReplicationStatus>,
    /// What an operator should know: that the pool has no room for all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Commands of one kind since the volume came online.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IoCounters {
    /// Commands that ended.
    pub operations: u64,
    /// Bytes they moved, or covered.
    pub bytes: u64,
    /// Of the commands, those that failed.
    pub errors: u64,
    /// Time from each command's arrival to its end, added up, in microseconds: over the difference
    /// in `operations` it is a mean latency.
    pub latency_total_us: u64,
}

/// What a volume has done since it came online.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeStats {
    /// How long ago it came online.
    pub since_seconds: u64,
    /// Commands under way.
    pub in_flight: u64,
    /// Reads.
    pub read: IoCounters,
    /// Writes.
    pub write: IoCounters,
    /// Flushes; they move nothing.
    pub flush: IoCounters,
    /// Deallocations and writes of zeroes.
    pub deallocate: IoCounters,
}

/// The daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// How long it has been running.
    pub uptime_seconds: u64,
    /// Where hosts connect, `ADDR:PORT`.
    pub address: String,
    /// Its directory.
    pub dir: String,
}
