use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ashlar_cluster::{
    Cluster, ClusterConfig, Key, Kind, Local, Memory, NodeConfig, OrderError, PeerSocket,
    QuorumConfig, Trust,
};
use ashlar_replica::{Incarnation, NodeId, VolumeId};
use serde_json::{Value, json};

pub(crate) use crate::common::address;

/// Far longer than anything takes; a test that waits so long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) const A: NodeId = NodeId(1);
pub(crate) const B: NodeId = NodeId(2);

pub(crate) fn key(byte: u8) -> Trust {
    Trust::Key(Key::new(&[byte; 32]).expect("a key"))
}

pub(crate) fn config(memory: &Memory, names: &[&str]) -> ClusterConfig {
    let node = |(name, id): (&&str, u32)| NodeConfig {
        id: NodeId(id),
        name: (*name).into(),
        replication: address(),
        portal: None,
    };
    ClusterConfig {
        name: "test".into(),
        nodes: names.iter().zip(1..).map(node).collect(),
        quorum: QuorumConfig::Memory(memory.clone()),
        trust: key(1),
        versions: ashlar_cluster::Versions::OURS,
    }
}

pub(crate) fn start(config: &ClusterConfig, name: &str) -> Cluster {
    Cluster::start(config.clone(), name).expect("it starts")
}

#[derive(Debug)]
pub(crate) enum Heard {
    Accepted(NodeId, VolumeId, PeerSocket),
    Ordered(NodeId),
    Dead(NodeId, Incarnation),
}

/// Writes down what it is told.
pub(crate) struct Ear(Sender<Heard>);

pub(crate) fn ear() -> (Arc<Ear>, Receiver<Heard>) {
    let (send, heard) = channel();
    (Arc::new(Ear(send)), heard)
}

impl Ear {
    fn heard(&self, what: Heard) {
        self.0.send(what).expect("the test listens");
    }
}

impl Local for Ear {
    fn accepted(&self, from: NodeId, volume: VolumeId, stream: PeerSocket) {
        if volume == VolumeId(u64::MAX) {
            panic!("on purpose");
        }
        self.heard(Heard::Accepted(from, volume, stream));
    }

    fn order(&self, from: NodeId, request: Value) -> Result<Value, OrderError> {
        self.heard(Heard::Ordered(from));
        match request["do"].as_str() {
            Some("echo") => Ok(json!({ "said": request["what"] })),
            Some("refuse") => Err(OrderError::Refused {
                kind: Kind::NotFound,
                message: "there is no such thing".into(),
            }),
            Some("sleep") => {
                std::thread::sleep(Duration::from_millis(1500));
                Ok(Value::Null)
            }
            _ => panic!("on purpose"),
        }
    }

    fn dead(&self, node: NodeId, incarnation: Incarnation) {
        self.heard(Heard::Dead(node, incarnation));
    }
}

/// Dials, and waits for what comes of it.
pub(crate) fn dial(cluster: &Cluster, to: NodeId, volume: VolumeId) -> Result<PeerSocket, String> {
    let (send, heard) = channel();
    cluster.dial(to, volume, move |dialled| {
        send.send(dialled).expect("the test waits")
    });
    heard.recv_timeout(LONG).expect("it is delivered")
}

/// Waits until something holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
