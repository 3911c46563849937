//! What is measured of the cluster.

use ashlar_cluster::PeerStatus;

use super::Replication;
use crate::manager::PoolManager;
use crate::model::{
    ClusterMetrics, CopiedCount, CopyCounts, FailoverCause, FailoverCount, PeerMetrics,
};
use crate::pool::ReplicaMail;

impl PoolManager {
    /// What is measured of the cluster, without a question to another node.
    pub(in crate::manager) fn metrics_of_cluster(&self) -> Option<ClusterMetrics> {
        let replication = self.replication.as_ref()?;
        let mut metrics = replication.metrics();
        for place in self.copies() {
            let look = |reply| ReplicaMail::Look { reply };
            // One that is out of service has no more to say.
            let Ok(Some(view)) = place.pool.ask_replica(place.number, look) else {
                continue;
            };
            let volume = place.volume;
            let others = view.members.iter().filter(|(at, _)| *at != view.position);
            metrics.copied.extend(others.map(|(at, node)| CopiedCount {
                volume,
                node: replication.node_name(node),
                bytes: view.tally.copied_bytes(at),
                sent_bytes: view.tally.sent_bytes(at),
            }));
            let shown = replication.shown();
            let shown = shown.get(&volume);
            metrics.copies.push(CopyCounts {
                volume,
                forwarded: view.tally.forwarded,
                stale: view.tally.stale,
                followed: shown.map_or(0, |known| known.handed),
                alarm: shown.is_some_and(|known| known.alarm.is_some()),
            });
        }
        Some(metrics)
    }
}

impl Replication {
    fn metrics(&self) -> ClusterMetrics {
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
            copied: Vec::new(),
            copies: Vec::new(),
            drained: self.is_drained(),
            agreed: status.agreed,
        }
    }
}
