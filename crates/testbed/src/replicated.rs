//! Volumes with a copy in a pool of each of several nodes, as what a scenario measures: a cluster of its own, with its
//! etcd, in the run's folder.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashlar_lab::result::Capacity;
use ashlar_lab::{ClientPlace, LabError, PoolStack, Progress, Service};
use ashlar_node::model::{ReplicaState, ReplicationStatus, VolumeName};

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
    capacity: Option<Capacity>,
    /// As it was at the last look.
    known: Mutex<Known>,
}

/// What a figure of a replicated volume goes by.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The node that owned it as clients were given their way to it.
    pub owner: String,
    epoch: u32,
    /// What copies were given again that had missed it.
    resynced: u64,
}

/// What copies were given again in this term of their owner.
fn resynced(now: &ReplicationStatus) -> u64 {
    now.replicas.iter().map(|copy| copy.resynced_bytes).sum()
}

impl Known {
    /// A volume whose owner this is, as it is now.
    pub fn of(owner: String, now: &ReplicationStatus) -> Self {
        Self {
            owner,
            epoch: now.epoch,
            resynced: resynced(now),
        }
    }

    /// How the volume is not what it was made as, or was not all the time since the last look.
    pub fn unlike(&mut self, now: &ReplicationStatus) -> Option<String> {
        let before = std::mem::replace(&mut self.epoch, now.epoch);
        let again = resynced(now);
        let again = again.saturating_sub(std::mem::replace(&mut self.resynced, again));
        let mut lacking = now.replicas.iter();
        let lacking = lacking.find(|copy| copy.state != ReplicaState::InSync);
        if let Some(copy) = lacking {
            return Some(format!("the copy of node {} is not in sync", copy.node));
        }
        match &now.owner {
            None => Some("no node owns the volume".to_owned()),
            Some(owner) if *owner != self.owner => Some(format!(
                "node {owner} owns the volume, and clients came for node {}",
                self.owner
            )),
            Some(_) if before != now.epoch => Some(format!(
                "the volume has had {} more terms of an owner",
                now.epoch.saturating_sub(before)
            )),
            Some(_) if again > 0 => Some(format!(
                "a copy was not in sync for a while: it was given {again} bytes again"
            )),
            Some(_) => None,
        }
    }
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

    fn capacity(&self) -> Option<Capacity> {
        self.capacity.clone()
    }

    fn unlike(&self) -> Option<String> {
        match self.status() {
            Ok((_, now)) => {
                // Single fields.
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                known.unlike(&now)
            }
            Err(error) => Some(format!("how its copies are is not known: {error}")),
        }
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
        capacity: None,
        known: Mutex::default(),
    };
    // From here on it is taken away as it is dropped.
    let api = |name: &str| made.nodes.api(name).display().to_string();
    let names = &made.nodes.names;
    let mut capacity = None;
    for name in names {
        let folder = made.nodes.folder(&Seat::node(name));
        // They are all alike.
        capacity = make_pool(stack, &api(name), &folder)?;
    }
    make_volume(stack, &api(&names[0]))?;
    let (url, known) = made.await_url(stack.pool.place.unwrap_or_default(), ground.progress)?;
    (made.url, made.known) = (url, Mutex::new(known));
    made.capacity = capacity;
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
    /// Its NQN, and how its copies are.
    fn status(&self) -> Result<(String, ReplicationStatus), LabError> {
        let client = self.nodes.client(&self.nodes.names[0])?;
        let volume: VolumeName = VOLUME.parse().map_err(|error| wrong(&error))?;
        let status = client.volume(&volume).map_err(|error| wrong(&error))?;
        let known = status.replication;
        let known = known.ok_or_else(|| wrong(&"it is not replicated"))?;
        Ok((status.nqn, known))
    }

    /// Where clients come in, once all copies are in sync, and how it is then.
    fn await_url(
        &self,
        place: ClientPlace,
        progress: &Progress,
    ) -> Result<(String, Known), LabError> {
        let begun = Instant::now();
        while begun.elapsed() < IN_SYNC_WITHIN {
            progress.go_on()?;
            let (nqn, known) = self.status()?;
            let mut states = known.replicas.iter().map(|copy| copy.state);
            let are_in_sync = states.all(|state| state == ReplicaState::InSync);
            if let Some(owner) = known.owner.clone().filter(|_| are_in_sync) {
                let mut names = self.nodes.names.iter();
                let node = names.find(|name| (**name == owner) == (place == ClientPlace::Owner));
                let node = node.ok_or_else(|| wrong(&"no such node has a copy"))?;
                let portal = self.nodes.network.address(&Seat::node(node), Port::Clients);
                let url = format!("nvme-tcp://{portal}/{nqn}?ns=1");
                return Ok((url, Known::of(owner, &known)));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(wrong(&"its copies are not in sync"))
    }
}

fn wrong(error: &dyn std::fmt::Display) -> LabError {
    LabError::environment(format!("the replicated volume: {error}"))
}

#[cfg(test)]
mod tests {
    use ashlar_node::model::ReplicaStatus;

    use super::*;

    fn copy(node: &str, state: ReplicaState) -> ReplicaStatus {
        ReplicaStatus {
            node: node.into(),
            state,
            resync_bytes_left: 0,
            resync_percent: None,
            resync_seconds_left: None,
            absent_since_seconds: None,
            resynced_bytes: 0,
            reason: None,
        }
    }

    /// A figure of one copy is not taken for one of two.
    #[test]
    fn a_volume_that_lost_a_copy_or_changed_its_owner_is_told() {
        let mut known = Known {
            owner: "a".into(),
            epoch: 3,
            resynced: 0,
        };
        let mut now = ReplicationStatus {
            owner: Some("a".into()),
            epoch: 3,
            replicas: ["a", "b"]
                .map(|node| copy(node, ReplicaState::InSync))
                .into(),
            portals: Vec::new(),
            last_failover: None,
            follow: false,
            followed: None,
            reads: Default::default(),
            last_proof: None,
            written_bytes: None,
            advice: None,
        };
        assert_eq!(known.unlike(&now), None);
        now.replicas[1].state = ReplicaState::Resync;
        let why = known.unlike(&now).expect("one copy");
        assert!(why.contains("node b is not in sync"), "{why}");
        now.replicas[1].state = ReplicaState::InSync;
        // It went away and came back.
        now.epoch = 5;
        let why = known.unlike(&now).expect("a failover");
        assert!(why.contains("2 more terms"), "{why}");
        assert_eq!(known.unlike(&now), None);
        // It fell out and came back between two looks.
        now.replicas[1].resynced_bytes = 4096;
        let why = known.unlike(&now).expect("a resync");
        assert!(why.contains("4096 bytes again"), "{why}");
        assert_eq!(known.unlike(&now), None);
        (now.owner, now.epoch) = (Some("b".into()), 6);
        for _ in 0..2 {
            let why = known.unlike(&now).expect("elsewhere");
            assert!(why.contains("node b owns"), "{why}");
        }
    }
}
