//! Volumes with a copy in a pool of each of several nodes, as what a scenario measures: a cluster of its own, with its
//! etcd, in the run's folder.

use std::path::Path;
use std::time::{Duration, Instant};

use ashlar_lab::{ClientPlace, LabError, PoolStack, Progress, Service};
use ashlar_node::model::{ReplicaState, VolumeName};

use super::nodes::{Network, Nodes, NodesPlan, Port, Seat};
use super::pools::{VOLUME, make_pool, make_volume};

/// Where the nodes are in a pool's folder: short, since a socket's path is.
const NODES: &str = "n";
/// New copies hold nothing that would have to be copied.
const IN_SYNC_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How nodes are made.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// On ports of 127.0.0.1, where agents are that make the load, even as root.
    pub is_loopback: bool,
    /// Of the run.
    pub progress: &'a Progress,
}

/// A volume that is served by nodes, which end when this is dropped.
pub struct Replicated {
    nodes: Nodes,
    url: String,
}

impl Replicated {
    /// Where a host has to be to reach it.
    pub fn network(&self) -> &Network {
        &self.nodes.network
    }
}

impl Service for Replicated {
    fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Replicated {
    fn drop(&mut self) {
        if let Err(error) = self.nodes.down() {
            eprintln!("ashlar: the lab's nodes: {error}");
        }
    }
}

/// Makes nodes, a pool on each, and a volume with a copy on each, and waits until all copies are in sync.
///
/// # Errors
/// A program is missing, or something does not come up: what was made is taken away.
pub fn serve(stack: &PoolStack, ground: Ground<'_>) -> Result<Replicated, LabError> {
    let plan = NodesPlan {
        nodes: stack.pool.nodes() as usize,
        // Their pools are made below.
        drives: 0,
        drive_bytes: 0,
        loopback: ground.is_loopback,
        etcd: 1,
        has_switches: false,
    };
    let nodes = Nodes::up(&stack.dir.join(NODES), &plan, ground.progress)?;
    let mut made = Replicated {
        nodes,
        url: String::new(),
    };
    // From here on it is taken away as it is dropped.
    let api = |name: &str| made.nodes.api(name).display().to_string();
    let names = &made.nodes.names;
    for name in names {
        make_pool(stack, &api(name), &made.nodes.folder(&Seat::node(name)))?;
    }
    make_volume(stack, &api(&names[0]))?;
    made.url = made.await_url(stack.pool.place.unwrap_or_default(), ground.progress)?;
    Ok(made)
}

/// Takes away what a run that was killed has left of such nodes in its folder.
///
/// # Errors
/// Something of it stays.
pub(crate) fn end_left(folder: &Path) -> Result<(), LabError> {
    for pool in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let dir = pool.path().join(NODES);
        if Nodes::is_in(&dir) {
            Nodes::at(&dir)?.down()?;
        }
    }
    Ok(())
}

impl Replicated {
    /// Where clients come in, once all copies are in sync.
    fn await_url(&self, place: ClientPlace, progress: &Progress) -> Result<String, LabError> {
        let wrong = |error: &dyn std::fmt::Display| {
            LabError::environment(format!("the replicated volume: {error}"))
        };
        let client = self.nodes.client(&self.nodes.names[0])?;
        let volume: VolumeName = VOLUME.parse().map_err(|error| wrong(&error))?;
        let begun = Instant::now();
        while begun.elapsed() < IN_SYNC_WITHIN {
            progress.go_on()?;
            let status = client.volume(&volume).map_err(|error| wrong(&error))?;
            let known = status.replication;
            let known = known.ok_or_else(|| wrong(&"it is not replicated"))?;
            let mut states = known.replicas.iter().map(|copy| copy.state);
            let are_in_sync = states.all(|state| state == ReplicaState::InSync);
            if let Some(owner) = known.owner.filter(|_| are_in_sync) {
                let mut names = self.nodes.names.iter();
                let node = names.find(|name| (**name == owner) == (place == ClientPlace::Owner));
                let node = node.ok_or_else(|| wrong(&"no such node has a copy"))?;
                let portal = self.nodes.network.address(&Seat::node(node), Port::Clients);
                return Ok(format!("nvme-tcp://{portal}/{}?ns=1", status.nqn));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(wrong(&"its copies are not in sync"))
    }
}
