use std::net::SocketAddr;
use std::time::Duration;

use ashlar_replica::{Incarnation, NodeId};
use serde::Serialize;
use uuid::Uuid;

use crate::members::QuorumMember;
use crate::versions::Versions;

/// How the cluster looks from this node.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterStatus {
    /// The cluster's name.
    pub name: String,
    /// Which cluster of that name it is.
    pub id: Uuid,
    /// This node.
    pub node: NodeId,
    /// This process.
    pub incarnation: Incarnation,
    /// What this node speaks with others: of its program's versions those that the cluster has not left behind.
    pub speaks: Versions,
    /// The version that all nodes have agreed on; none in a cluster of a file.
    pub agreed: Option<u16>,
    /// Who decides.
    pub quorum: QuorumStatus,
    /// Machines that run a member of etcd and nothing else.
    pub witnesses: Vec<String>,
    /// All other nodes, in the configuration's order.
    pub peers: Vec<PeerStatus>,
}

/// How the quorum looks from this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QuorumStatus {
    /// Where it is asked.
    pub endpoints: Vec<String>,
    /// Whether the last question had an answer.
    pub reachable: bool,
    /// How long ago it answered last.
    pub last_answer: Option<Duration>,
    /// Why it does not answer.
    pub problem: Option<String>,
    /// Members of etcd, as they answer.
    pub members: Vec<QuorumMember>,
    /// Whether nodes bring the members of etcd with them.
    pub is_local: bool,
}

/// How a peer looks from this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    pub id: NodeId,
    pub name: String,
    /// Where it listens for peers.
    pub replication: SocketAddr,
    /// Where hosts connect to its volumes.
    pub portal: Option<SocketAddr>,
    /// Whether the last attempt to reach it succeeded.
    pub reachable: bool,
    /// The newest of its processes that is known here.
    pub incarnation: Option<Incarnation>,
    /// How long ago it was reached, or reached this node, last.
    pub last_seen: Option<Duration>,
    /// Why it cannot be reached, or refuses this node.
    pub problem: Option<String>,
    /// Why this node refused it last, if it has not been let in since.
    pub refused: Option<String>,
}
