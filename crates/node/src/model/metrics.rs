use serde::{Deserialize, Serialize};

use super::{PoolStatus, VolumeStats, VolumeStatus};

/// A volume and its counters, taken together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeMetrics {
    /// The volume.
    pub status: VolumeStatus,
    /// Its counters.
    pub stats: VolumeStats,
}

/// Everything that can be measured, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricsSnapshot {
    /// The pools.
    pub pools: Vec<PoolStatus>,
    /// The volumes.
    pub volumes: Vec<VolumeMetrics>,
}
