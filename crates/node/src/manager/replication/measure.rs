//! What is measured of the cluster.

use ashlar_cluster::PeerStatus;

use super::Replication;
use crate::model::{ClusterMetrics, FailoverCause, FailoverCount, PeerMetrics};

impl Replication {
    /// What is measured, without a question to another node.
    pub(in crate::manager) fn metrics(&self) -> ClusterMetrics {
        let status = self.cluster.status();
        let peer = |peer: PeerStatus| PeerMetrics {
            node: peer.name,
            connected: peer.reachable,
        };
        let shown = self.shown();
        let counts = shown.iter().flat_map(|(&volume, known)| {
            FailoverCause::ALL.map(|cause| FailoverCount {
                volume,
                cause,
                count: known.failovers.get(&cause).copied().unwrap_or(0),
            })
        });
        ClusterMetrics {
            node: self.node_name(self.cluster.me()),
            quorum_reachable: status.quorum.reachable,
            peers: status.peers.into_iter().map(peer).collect(),
            failovers: counts.collect(),
        }
    }
}
