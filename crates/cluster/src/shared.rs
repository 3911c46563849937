use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use ashlar_replica::quorum::{Question, Reply};
use ashlar_replica::{Incarnation, NodeId, OwnerId, VolumeId};
use tokio::sync::{Mutex as Turn, Notify, Semaphore};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::cluster::Local;
use crate::config::{ClusterConfig, NodeConfig};
use crate::join::Joined;
use crate::members::{LastLook, MembersView};
use crate::peer::{
    CallError, Called, Hello, NameHash, Nonce, Peer, Purpose, Refusal, Target, call,
};
use crate::store::Store;
use crate::together::{Change, Together};

/// Orders of peers that are carried out at a time; more wait.
pub(crate) const ORDERS_AT_ONCE: usize = 64;
/// How often quorum and peers are looked at.
const WATCH: Duration = Duration::from_secs(2);

/// What the cluster's tasks share.
pub(crate) struct Shared {
    pub(crate) name: String,
    config: RwLock<Arc<ClusterConfig>>,
    pub(crate) me: NodeConfig,
    pub(crate) incarnation: Incarnation,
    pub(crate) id: Uuid,
    pub(crate) store: Store,
    peers: RwLock<Vec<Arc<Peer>>>,
    pub(crate) local: OnceLock<Arc<dyn Local>>,
    pub(crate) orders: Semaphore,
    /// Who is a member may have changed.
    pub(crate) look_again: Notify,
    /// Who joins or leaves does so one after the other.
    pub(crate) turn: Turn<()>,
    /// For who asks to join with a token that this node does not know.
    pub(crate) last_look: LastLook,
    pub(crate) view: RwLock<MembersView>,
    /// Volumes that change their owner together.
    pub(crate) together: Together,
}

/// What a process begins with.
pub(crate) struct Beginning {
    pub(crate) config: ClusterConfig,
    pub(crate) me: NodeConfig,
    pub(crate) joined: Joined,
    pub(crate) store: Store,
}

impl Shared {
    pub(crate) fn new(beginning: Beginning) -> Arc<Self> {
        let Beginning {
            config,
            me,
            joined,
            store,
        } = beginning;
        let others = config.nodes.iter().filter(|node| node.id != me.id);
        let peers = others.cloned().map(|node| Arc::new(Peer::new(node)));
        let owner = OwnerId {
            node: me.id,
            incarnation: joined.incarnation,
        };
        Arc::new(Self {
            name: config.name.clone(),
            peers: RwLock::new(peers.collect()),
            config: RwLock::new(Arc::new(config)),
            me,
            incarnation: joined.incarnation,
            id: joined.cluster,
            store,
            local: OnceLock::new(),
            orders: Semaphore::new(ORDERS_AT_ONCE),
            look_again: Notify::new(),
            turn: Turn::new(()),
            last_look: LastLook::default(),
            view: RwLock::default(),
            together: Together::new(owner),
        })
    }

    /// What all nodes are told, as far as this one knows.
    pub(crate) fn config(&self) -> Arc<ClusterConfig> {
        // Whole after every statement, whatever has panicked.
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        config.clone()
    }

    /// All nodes other than this one.
    pub(crate) fn peers(&self) -> Vec<Arc<Peer>> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.clone()
    }

    /// A node other than this one.
    pub(crate) fn peer(&self, id: NodeId) -> Option<Arc<Peer>> {
        let mut peers = self.peers().into_iter();
        peers.find(|peer| peer.config.id == id)
    }

    /// Nodes have joined or left. Returns those that are new.
    pub(crate) fn set_config(&self, config: ClusterConfig) -> Vec<NodeId> {
        let others = config.nodes.iter().filter(|node| node.id != self.me.id);
        let before = self.peers();
        let mut new = Vec::new();
        let peers = others.map(|node| {
            let known = before.iter().find(|peer| peer.config == *node);
            known.cloned().unwrap_or_else(|| {
                new.push(node.id);
                Arc::new(Peer::new(node.clone()))
            })
        });
        let peers = peers.collect();
        *self.peers.write().unwrap_or_else(PoisonError::into_inner) = peers;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        new
    }

    fn hello(&self, purpose: Purpose, to: NodeId, volume: VolumeId) -> Hello {
        Hello {
            versions: self.config().versions,
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
            config: &self.config(),
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
        match self.swap_of(volume, question) {
            None => self.read(volume).await,
            Some(change) => self.together.swap_alone(&self.store, change).await,
        }
    }

    /// The same for a volume's own protocol: what takes it over waits for the others of its group.
    pub(crate) async fn ask_with_group(&self, volume: Uuid, question: Question) -> Reply {
        match self.swap_of(volume, question) {
            None => self.read(volume).await,
            Some(change) => {
                let unless = Some(self.doubt_key(volume));
                let change = Change { unless, ..change };
                self.together.swap(&self.store, change).await
            }
        }
    }

    /// What a question changes, if it is a swap.
    fn swap_of(&self, volume: Uuid, question: Question) -> Option<Change> {
        match question {
            Question::Read => None,
            Question::Swap { revision, value } => Some(Change {
                volume,
                key: self.volume_key(volume),
                revision,
                value,
                unless: None,
            }),
        }
    }

    async fn read(&self, volume: Uuid) -> Reply {
        let held = self.store.read(&self.volume_key(volume)).await;
        let reply = held.map_or(Reply::Unknown, Reply::Holds);
        self.together.read(volume, &reply);
        reply
    }

    /// Looks at the quorum now and then, so that its state is known before it is needed, and at who is a member.
    pub(crate) async fn watch_quorum(self: Arc<Self>) {
        loop {
            // What comes of it is remembered by the store.
            let _ = match self.config().trust.identity() {
                None => self.store.read(&id_key(&self.name)).await.map(drop),
                Some(_) => self.follow_members().await,
            };
            self.look_at_quorum().await;
            let _ = timeout(WATCH, self.look_again.notified()).await;
        }
    }

    /// Looks at a peer now and then.
    pub(crate) async fn watch_peer(self: Arc<Self>, id: NodeId) {
        let Some(first) = self.peer(id) else { return };
        loop {
            // One that has left, or joined again, is watched no more.
            let Some(peer) = self.peer(id).filter(|peer| Arc::ptr_eq(peer, &first)) else {
                return;
            };
            // What comes of it is remembered by the call.
            let _ = self.call(&peer, Purpose::Probe, VolumeId(0)).await;
            sleep(WATCH).await;
        }
    }

    pub(crate) fn head_key(&self, pool: Uuid) -> String {
        format!("/ashlar/{}/head/{}", self.name, pool.hyphenated())
    }

    /// Of a volume that is in doubt.
    pub(crate) fn doubt_key(&self, volume: Uuid) -> String {
        doubt_key(&self.name, volume)
    }

    pub(crate) fn volume_key(&self, volume: Uuid) -> String {
        format!("{}{}", volumes_prefix(&self.name), volume.hyphenated())
    }
}

/// Which cluster of its name a store belongs to.
pub(crate) fn id_key(cluster: &str) -> String {
    format!("/ashlar/{cluster}/id")
}

/// Who is a member of a cluster that nodes join.
pub(crate) fn members_key(cluster: &str) -> String {
    format!("/ashlar/{cluster}/members")
}

pub(crate) fn node_key(cluster: &str, node: NodeId) -> String {
    format!("/ashlar/{cluster}/node/{}", node.0)
}

pub(crate) fn volumes_prefix(cluster: &str) -> String {
    format!("/ashlar/{cluster}/volume/")
}

/// Of a volume that is in doubt.
pub(crate) fn doubt_key(cluster: &str, volume: Uuid) -> String {
    format!("/ashlar/{cluster}/doubt/{}", volume.hyphenated())
}

/// Whether another process that has the name of node `me` answers at `address`.
pub(crate) async fn is_double(
    config: &ClusterConfig,
    me: &NodeConfig,
    cluster: Uuid,
    address: SocketAddr,
) -> bool {
    let hello = Hello {
        versions: config.versions,
        purpose: Purpose::Probe,
        from: me.id,
        to: me.id,
        incarnation: Incarnation(0),
        volume: VolumeId(0),
        cluster: cluster.into_bytes(),
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
