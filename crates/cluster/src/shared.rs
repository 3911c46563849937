use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ashlar_replica::quorum::{Question, Reply};
use ashlar_replica::{Incarnation, NodeId, VolumeId};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use uuid::Uuid;

use crate::cluster::Local;
use crate::config::{ClusterConfig, NodeConfig};
use crate::peer::{
    CallError, Called, Hello, NameHash, Nonce, Peer, Purpose, Refusal, Target, call,
};
use crate::store::{Store, Swap};

/// Orders of peers that are carried out at a time; more wait.
pub(crate) const ORDERS_AT_ONCE: usize = 64;
/// How often quorum and peers are looked at.
const WATCH: Duration = Duration::from_secs(2);

/// What the cluster's tasks share.
pub(crate) struct Shared {
    pub(crate) config: ClusterConfig,
    pub(crate) me: NodeConfig,
    pub(crate) incarnation: Incarnation,
    pub(crate) id: Uuid,
    pub(crate) store: Store,
    pub(crate) peers: Vec<Peer>,
    pub(crate) local: OnceLock<Arc<dyn Local>>,
    pub(crate) orders: Semaphore,
}

impl Shared {
    /// A node other than this one.
    pub(crate) fn peer(&self, id: NodeId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.config.id == id)
    }

    fn hello(&self, purpose: Purpose, to: NodeId, volume: VolumeId) -> Hello {
        Hello {
            purpose,
            from: self.me.id,
            to,
            incarnation: self.incarnation,
            volume,
            cluster: self.id.into_bytes(),
            name: NameHash::of(&self.me.name),
            nonce: Nonce::random(),
        }
    }

    /// Calls a peer, and remembers what came of it.
    pub(crate) async fn call(
        &self,
        peer: &Peer,
        purpose: Purpose,
        volume: VolumeId,
    ) -> Result<Called, String> {
        let target = Target {
            config: &self.config,
            me: &self.me,
            peer: &peer.config,
        };
        let _permit = peer.calls.acquire().await;
        let hello = self.hello(purpose, peer.config.id, volume);
        let called = call(target, hello).await;
        let called = called.and_then(|called| match peer.reached(called.incarnation) {
            Ok(()) => Ok(called),
            Err(newest) => Err(Refusal::OldProcess(newest).into()),
        });
        called.map_err(|error| {
            let words = error.words(target);
            // It is there, and will let this node in.
            let soon = [Refusal::Starting, Refusal::Busy].map(CallError::Refused);
            if !soon.contains(&error) {
                peer.not_reached(&words);
            }
            words
        })
    }

    /// Asks about a volume's key.
    pub(crate) async fn ask(&self, volume: Uuid, question: Question) -> Reply {
        let key = self.config.volume_key(volume);
        match question {
            Question::Read => self
                .store
                .read(&key)
                .await
                .map_or(Reply::Unknown, Reply::Holds),
            Question::Swap { revision, value } => {
                match self.store.swap(&key, revision, &value).await {
                    Swap::Made(revision) => Reply::Swapped(revision),
                    Swap::NotMade(held) => Reply::Holds(held),
                    Swap::Unknown(_) => Reply::Unknown,
                }
            }
        }
    }

    /// Looks at the quorum now and then, so that its state is known before it is needed.
    pub(crate) async fn watch_quorum(self: Arc<Self>) {
        loop {
            // What comes of it is remembered by the store.
            let _ = self.store.read(&self.config.id_key()).await;
            sleep(WATCH).await;
        }
    }

    /// Looks at a peer now and then.
    pub(crate) async fn watch_peer(self: Arc<Self>, id: NodeId) {
        let Some(peer) = self.peer(id) else { return };
        loop {
            // What comes of it is remembered by the call.
            let _ = self.call(peer, Purpose::Probe, VolumeId(0)).await;
            sleep(WATCH).await;
        }
    }
}

impl ClusterConfig {
    /// Which cluster of its name a store belongs to.
    pub(crate) fn id_key(&self) -> String {
        format!("/ashlar/{}/id", self.name)
    }

    pub(crate) fn node_key(&self, node: NodeId) -> String {
        format!("/ashlar/{}/node/{}", self.name, node.0)
    }

    pub(crate) fn volume_key(&self, volume: Uuid) -> String {
        format!("/ashlar/{}/volume/{}", self.name, volume.hyphenated())
    }
}

/// Whether another process that has the name of node `me` answers at `address`.
pub(crate) async fn is_double(
    config: &ClusterConfig,
    me: &NodeConfig,
    (id, address): (Uuid, SocketAddr),
) -> bool {
    let hello = Hello {
        purpose: Purpose::Probe,
        from: me.id,
        to: me.id,
        incarnation: Incarnation(0),
        volume: VolumeId(0),
        cluster: id.into_bytes(),
        name: NameHash::of(&me.name),
        nonce: Nonce::random(),
    };
    let there = NodeConfig {
        replication: address,
        ..me.clone()
    };
    let target = Target {
        config,
        me,
        peer: &there,
    };
    let called = call(target, hello).await;
    matches!(called, Err(CallError::Refused(Refusal::Oneself)))
}
