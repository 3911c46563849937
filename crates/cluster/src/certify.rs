use ashlar_replica::{Incarnation, NodeId};

use crate::config::ClusterConfig;

/// Tells every peer that a process of node `me` is dead: called by what reaped it, on a thread of its own a peer, within
/// 1 s, best effort.
pub fn certify(config: &ClusterConfig, me: NodeId, incarnation: Incarnation) {
    let _ = (config, me, incarnation);
}
