use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ashlar_replica::quorum::{Question, Reply};
use ashlar_replica::{Incarnation, NodeId, VolumeId};
use serde_json::Value;
use uuid::Uuid;

use crate::config::ClusterConfig;
use crate::problem::{OrderError, Problem};
use crate::remembered::Remembered;
use crate::status::ClusterStatus;

/// What peers may want of this node. Called on threads of the cluster's runtime; must not block long except `order`.
pub trait Local: Send + Sync + 'static {
    /// A peer's authenticated connection for a volume's replication; its protocol starts with the next byte.
    fn accepted(&self, from: NodeId, volume: VolumeId, stream: OwnedFd);

    /// A peer's order, run on a blocking thread. It is carried out to its end even if the peer goes away.
    ///
    /// # Errors
    /// Whatever keeps it from being carried out; the peer is told kind and message.
    fn order(&self, from: NodeId, request: Value) -> Result<Value, OrderError>;

    /// A process of a peer is certified dead.
    fn dead(&self, node: NodeId, incarnation: Incarnation);
}

/// This process as a node of its cluster.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    config: ClusterConfig,
    me: NodeId,
    incarnation: Incarnation,
    id: Uuid,
}

impl Cluster {
    /// Those of [`start_as`](Self::start_as), of a node that remembers nothing.
    ///
    /// # Errors
    /// Those of [`start_as`](Self::start_as).
    pub fn start(config: ClusterConfig, me: &str) -> Result<Self, Problem> {
        Self::start_as(config, me, &Remembered::default())
    }

    /// Starts its thread: listens on the replication address, and takes a new incarnation in the quorum.
    ///
    /// # Errors
    /// Usage: the node is not in the configuration. Environment: the address cannot be listened on, the quorum does
    /// not answer within 10 s. Conflict: the quorum's store is not the one that the node remembers.
    pub fn start_as(
        config: ClusterConfig,
        me: &str,
        remembered: &Remembered,
    ) -> Result<Self, Problem> {
        let _ = (config, me, remembered);
        Err(Problem::internal("not there yet"))
    }

    /// From now on peers are let in.
    pub fn serve(&self, local: Arc<dyn Local>) {
        drop(local);
    }

    /// What all nodes are told.
    pub fn config(&self) -> &ClusterConfig {
        &self.0.config
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.0.me
    }

    /// This process.
    pub fn incarnation(&self) -> Incarnation {
        self.0.incarnation
    }

    /// Which cluster of its name it is: made at its first start.
    pub fn cluster_id(&self) -> Uuid {
        self.0.id
    }

    /// Asks the quorum about a volume's key. `deliver` is called exactly once, on the cluster's thread, within 3 s.
    pub fn ask(
        &self,
        volume: Uuid,
        question: Question,
        deliver: impl FnOnce(Reply) + Send + 'static,
    ) {
        let _ = (volume, question);
        deliver(Reply::Unknown);
    }

    /// Deletes a volume's key. One that is not there is no error.
    ///
    /// # Errors
    /// Environment: the quorum does not answer.
    pub fn delete_key(&self, volume: Uuid) -> Result<(), Problem> {
        Err(Problem::internal(format!("{volume}: not there yet")))
    }

    /// Dials a peer for a volume's replication, authenticated. `deliver` is called exactly once, within 3 s.
    pub fn dial(
        &self,
        to: NodeId,
        volume: VolumeId,
        deliver: impl FnOnce(Result<OwnedFd, String>) + Send + 'static,
    ) {
        deliver(Err(format!("{to}, {volume}: not there yet")));
    }

    /// A blocking order to a peer, with a deadline.
    ///
    /// # Errors
    /// [`OrderError::Unreachable`] if there is no answer within `timeout`; else what the peer says.
    pub fn order(
        &self,
        to: NodeId,
        request: &Value,
        timeout: Duration,
    ) -> Result<Value, OrderError> {
        let _ = (request, timeout);
        Err(OrderError::Unreachable(format!("{to}: not there yet")))
    }

    /// Tells every peer that an earlier process of this node is dead (best effort, within 1 s, in the background).
    pub fn certify_dead(&self, node: NodeId, incarnation: Incarnation) {
        let _ = (node, incarnation);
    }

    /// How the cluster looks from here.
    pub fn status(&self) -> ClusterStatus {
        ClusterStatus {
            name: self.0.config.name.clone(),
            id: self.0.id,
            node: self.0.me,
            incarnation: self.0.incarnation,
            quorum: crate::status::QuorumStatus::default(),
            peers: Vec::new(),
        }
    }

    /// Ends its thread; what is under way is answered with *unknown*.
    pub fn stop(&self) {}
}

/// A volume's number in messages between nodes: the low 64 bits of its UUID.
pub fn volume_id(uuid: Uuid) -> VolumeId {
    VolumeId(uuid.as_u128() as u64)
}
