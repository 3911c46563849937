//! What has become of reservations, for hosts at other nodes than the one that has decided it and the one that was
//! asked: they are told by an order to each node. It is a hint, as NVMe has it: what a host may do is judged with each
//! command, so a node that is away misses nothing else.

use std::sync::Weak;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use ashlar_cluster::NodeId;
use ashlar_rights::{ReservedNews, news_from_bytes};
use tracing::{debug, warn};
use uuid::Uuid;

use super::Replication;
use super::orders::Order;
use crate::PoolManager;
use crate::manager::serve::nqn;
use crate::model::ControlError;

/// How long a node may take to hear it.
const HEAR_WITHIN: Duration = Duration::from_secs(1);
/// So many may wait; a host that changes reservations faster than that has its last ones told here only.
const WAITING: usize = 256;

/// What nodes are to tell their hosts.
pub(super) struct ForNodes {
    nodes: Vec<NodeId>,
    order: Order,
}

pub(super) type Told = SyncSender<ForNodes>;

/// Begins to tell other nodes. On a thread of its own: one that is away must not keep news waiting.
pub(super) fn start(manager: Weak<PoolManager>) -> std::io::Result<Told> {
    let (sender, waiting) = sync_channel(WAITING);
    let tell = move || tell_all(&manager, &waiting);
    thread::Builder::new().name("reserved".into()).spawn(tell)?;
    Ok(sender)
}

fn tell_all(manager: &Weak<PoolManager>, waiting: &Receiver<ForNodes>) {
    // It ends with the last that could send.
    for ForNodes { nodes, order } in waiting {
        let Some(manager) = manager.upgrade() else {
            return;
        };
        let Ok(replication) = manager.replication() else {
            return;
        };
        let tell = |node| {
            if let Err(error) = replication.order_within(HEAR_WITHIN, node, &order) {
                debug!("hosts of {node} are not told of reservations: {error}");
            }
        };
        thread::scope(|scope| {
            for node in replication.reached(nodes) {
                scope.spawn(move || tell(node));
            }
        });
    }
}

impl Replication {
    /// Those of them that have answered lately.
    fn reached(&self, nodes: Vec<NodeId>) -> impl Iterator<Item = NodeId> {
        let peers = self.cluster.status().peers;
        let is_reached = move |node: &NodeId| {
            let mut known = peers.iter();
            known.any(|peer| peer.id == *node && peer.reachable)
        };
        nodes.into_iter().filter(is_reached)
    }

    fn tell_nodes(&self, volume: Uuid, reserved: ReservedNews) {
        let news = reserved.to_bytes();
        let told = ForNodes {
            nodes: reserved.nodes,
            order: Order::Reserved { volume, news },
        };
        if let Err(TrySendError::Full(_)) = self.reserved.try_send(told) {
            debug!(%volume, "volume {volume}: hosts of other nodes are not told of reservations: too many wait");
        }
    }
}

impl PoolManager {
    /// Hosts of this node, if they have not heard it with the answer, and of others.
    pub(super) fn tell_reserved(&self, volume: Uuid, reserved: ReservedNews) {
        if reserved.is_for_this_node {
            self.tell_reserved_here(volume, &reserved.news);
        }
        if let Ok(replication) = self.replication() {
            replication.tell_nodes(volume, reserved);
        }
    }

    fn tell_reserved_here(&self, volume: Uuid, news: &ashlar_nvme_target::News) {
        if let Err(error) = self.target.tell_reserved(&nqn(volume), news) {
            warn!(%volume, "volume {volume}: hosts are not told of reservations: {error}");
        }
    }

    /// The volume's owner has decided it.
    pub(super) fn hear_reserved(&self, volume: Uuid, news: &[u8]) -> Result<(), ControlError> {
        let news = news_from_bytes(news).ok_or_else(|| {
            ControlError::usage("what is to be told of reservations is garbled".to_owned())
        })?;
        self.tell_reserved_here(volume, &news);
        Ok(())
    }
}
