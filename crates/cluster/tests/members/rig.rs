use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ashlar_cluster::{
    Cluster, Founding, Home, Local, Memory, Newcomer, OrderError, PeerSocket, Problem,
    QuorumConfig, Remembered, Role, Versions, found, join,
};
use ashlar_replica::quorum::{Question, Reply};
use ashlar_replica::{Incarnation, NodeId, Revision, VolumeId};
use serde_json::Value;
use uuid::Uuid;

use crate::common::address;

/// Far longer than anything takes; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(60);

/// A cluster's machines, and its quorum.
pub(crate) struct Room {
    name: String,
    memory: Memory,
    folder: tempfile::TempDir,
    dirs: AtomicU32,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.dir.display())
    }
}

/// A node that runs.
pub(crate) struct Node {
    pub(crate) cluster: Cluster,
    dir: PathBuf,
    heard: Receiver<PeerSocket>,
}

struct Ear(Sender<PeerSocket>);

impl Local for Ear {
    fn accepted(&self, _: NodeId, _: VolumeId, stream: PeerSocket) {
        // A test may have ended.
        let _ = self.0.send(stream);
    }

    fn order(&self, _: NodeId, request: Value) -> Result<Value, OrderError> {
        Ok(request)
    }

    fn dead(&self, _: NodeId, _: Incarnation) {}
}

impl Room {
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, Memory::default())
    }

    pub(crate) fn with(name: &str, memory: Memory) -> Self {
        Self {
            name: name.into(),
            memory,
            folder: tempfile::tempdir().expect("a folder"),
            dirs: AtomicU32::new(0),
        }
    }

    /// A directory that is not there yet.
    pub(crate) fn dir(&self) -> PathBuf {
        let number = self.dirs.fetch_add(1, Ordering::Relaxed);
        self.folder.path().join(number.to_string())
    }

    pub(crate) fn found(&self, node: &str) -> Node {
        self.found_at(node, address())
    }

    pub(crate) fn found_at(&self, node: &str, replication: SocketAddr) -> Node {
        let dir = self.dir();
        let plan = Founding {
            cluster: self.name.clone(),
            node: node.into(),
            replication,
            portal: address(),
            etcd: address(),
            quorum: Some(vec!["127.0.0.1:1".into()]),
        };
        found(&dir, &plan).expect("founded");
        self.start(&dir)
    }

    pub(crate) fn start(&self, dir: &Path) -> Node {
        self.try_start(dir).expect("it starts")
    }

    pub(crate) fn try_start(&self, dir: &Path) -> Result<Node, Problem> {
        self.try_start_as(dir, Versions::OURS)
    }

    /// From a program that speaks these.
    pub(crate) fn try_start_as(&self, dir: &Path, versions: Versions) -> Result<Node, Problem> {
        let home = Home::open(dir)?.expect("a node");
        let mut config = home.config;
        config.versions = versions;
        config.quorum = QuorumConfig::Memory(self.memory.clone());
        let cluster = Cluster::start_as(config, &home.name, &Remembered::read(dir)?)?;
        cluster.remembered(None).write(dir)?;
        let (send, heard) = channel();
        cluster.serve(Arc::new(Ear(send)));
        Ok(Node {
            cluster,
            dir: dir.to_owned(),
            heard,
        })
    }

    pub(crate) fn try_join(&self, dir: &Path, token: &str, name: &str) -> Result<(), Problem> {
        join(dir, token, &newcomer(name)).map(drop)
    }

    /// A program that speaks these joins, and is started.
    pub(crate) fn join_as(
        &self,
        token: &str,
        name: &str,
        versions: Versions,
    ) -> Result<Node, Problem> {
        let dir = self.dir();
        let newcomer = Newcomer {
            versions,
            ..newcomer(name)
        };
        join(&dir, token, &newcomer)?;
        self.try_start_as(&dir, versions)
    }

    /// Comes back as the node of this name, at addresses that are new.
    pub(crate) fn try_rejoin(&self, dir: &Path, token: &str, name: &str) -> Result<(), Problem> {
        let newcomer = Newcomer {
            rejoins: true,
            ..newcomer(name)
        };
        join(dir, token, &newcomer).map(drop)
    }

    pub(crate) fn join(&self, token: &str, name: &str) -> Result<Node, Problem> {
        self.join_in(&self.dir(), token, name)
    }

    pub(crate) fn join_in(&self, dir: &Path, token: &str, name: &str) -> Result<Node, Problem> {
        self.try_join(dir, token, name)?;
        self.try_start(dir)
    }
}

fn newcomer(name: &str) -> Newcomer {
    Newcomer {
        name: name.into(),
        role: Role::Node,
        replication: address(),
        portal: address(),
        etcd: address(),
        rejoins: false,
        versions: Versions::OURS,
    }
}

impl Node {
    pub(crate) fn accepted(&self) -> PeerSocket {
        self.heard.recv_timeout(LONG).expect("it is called")
    }

    pub(crate) fn heard_nothing(&self) -> bool {
        self.heard.try_recv().is_err()
    }

    /// Ends, and leaves its directory.
    pub(crate) fn stop(self) -> PathBuf {
        self.cluster.stop();
        self.dir
    }

    pub(crate) fn reaches(&self, name: &str) -> bool {
        let peers = self.cluster.status().peers;
        peers.iter().any(|peer| peer.name == name && peer.reachable)
    }

    pub(crate) fn put_volume(&self, key: &[u8]) -> Uuid {
        let volume = Uuid::new_v4();
        let question = Question::Swap {
            revision: Revision(0),
            value: key.to_vec(),
        };
        let (send, heard) = channel();
        self.cluster.ask(volume, question, move |reply| {
            send.send(reply).expect("the test waits");
        });
        let reply = heard.recv_timeout(LONG).expect("delivered");
        assert!(matches!(reply, Reply::Swapped(_)), "{reply:?}");
        volume
    }
}

pub(crate) fn dial(from: &Node, to: NodeId, volume: VolumeId) -> Result<PeerSocket, String> {
    let (send, heard) = channel();
    from.cluster.dial(to, volume, move |dialled| {
        send.send(dialled).expect("the test waits");
    });
    heard.recv_timeout(LONG).expect("it is delivered")
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
