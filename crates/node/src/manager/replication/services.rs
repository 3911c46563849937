//! What services must know of replicated volumes: who has them, who could, and what other nodes say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_replica::{NodeId, Position};
use serde_json::Value;

use super::orders::Order;
use super::{CopyPlace, LOOK_EVERY, Replication, refused};
use crate::Events;
use crate::manager::PoolManager;
use crate::model::{
    AllowHosts, ControlError, HostChange, KeptVolume, MoveVolume, ReplicaState, VolumeName,
    VolumeOfCluster,
};
use crate::service::{Answer, OneNode, Owner, Ownership, Services, Words, one_copy};

/// How long another node may take to answer what it is told of services.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// A new service is made when another node has looked at it.
const OFFER_WITHIN: Duration = Duration::from_secs(10);
/// How long this node may take to let volumes go.
const GIVEN_WITHIN: Duration = Duration::from_secs(5);

/// The nodes of a cluster, as services see them.
pub(in crate::manager) struct ClusterNodes {
    manager: Arc<PoolManager>,
    /// For volumes with one copy, here.
    alone: OneNode,
}

impl ClusterNodes {
    pub(in crate::manager) fn of(manager: Arc<PoolManager>) -> Self {
        let alone = OneNode::new(manager.clone(), manager.events.clone());
        Self { manager, alone }
    }

    fn replication(&self) -> Result<&Replication, ControlError> {
        self.manager.replication()
    }

    fn copy(&self, name: &VolumeName) -> Option<CopyPlace> {
        let name = name.to_string();
        let mut copies = self.manager.copies().into_iter();
        copies.find(|copy| copy.name == name)
    }

    /// The copies of all of these that are here.
    fn all_copies(&self, volumes: &[VolumeName]) -> Option<Vec<CopyPlace>> {
        volumes.iter().map(|name| self.copy(name)).collect()
    }

    /// The epoch since which this node serves a copy.
    fn serves(&self, copy: &CopyPlace) -> Option<u64> {
        let replication = self.replication().ok()?;
        let epoch = replication.shown().get(&copy.volume)?.serves?;
        Some(epoch.0.into())
    }

    /// Whether another node may have a copy by now, though this one has not heard so.
    fn is_isolated(&self, copy: &CopyPlace) -> bool {
        let replication = self.replication().ok();
        replication.is_some_and(|known| {
            let shown = known.shown();
            shown.get(&copy.volume).is_some_and(|one| one.is_isolated)
        })
    }

    /// The node that takes one of them takes all, in one step.
    fn keep_together(&self, volumes: &[VolumeName]) {
        let copies = self.all_copies(volumes).filter(|all| all.len() > 1);
        let (Some(copies), Ok(replication)) = (copies, self.replication()) else {
            return;
        };
        let is_away = |copy: &&CopyPlace| self.serves(copy).is_none();
        let id = |copy: &CopyPlace| copy.volume;
        let away: Vec<_> = copies.iter().filter(is_away).map(id).collect();
        let all: Vec<_> = copies.iter().map(id).collect();
        replication.cluster.keep_together(&all, &away);
    }

    fn names(&self, nodes: &[NodeId]) -> Vec<String> {
        let replication = self.replication();
        let name = |&node: &NodeId| replication.as_ref().ok().map(|known| known.node_name(node));
        nodes.iter().filter_map(name).collect()
    }
}

/// Whether a node's copy of a volume is in sync, by what the nodes say that are reached.
fn is_in_sync_on(all: &[VolumeOfCluster], name: &VolumeName, node: &str) -> bool {
    let name = name.to_string();
    let its = all.iter().filter(|one| one.volume == name);
    let mut copies = its.flat_map(|one| &one.replication.replicas);
    copies.any(|copy| copy.node == node && copy.state == ReplicaState::InSync)
}

/// A volume with one copy among volumes with several.
fn mixed(one: &VolumeName, several: &VolumeName) -> ControlError {
    ControlError::conflict(format!(
        "volume {one} has one copy, on this node, and volume {several} is replicated: a service on both could never \
         run elsewhere. Make {one} with --replicas 2, or a service for each"
    ))
}

impl Ownership for ClusterNodes {
    fn node(&self) -> String {
        let replication = self.replication();
        replication.map_or_else(
            |_| self.alone.node(),
            |known| known.node_name(known.cluster.me()),
        )
    }

    fn peers(&self) -> Vec<String> {
        let Ok(replication) = self.replication() else {
            return Vec::new();
        };
        let (config, me) = (replication.cluster.config(), replication.cluster.me());
        let others = config.nodes.iter().filter(|node| node.id != me);
        others.map(|node| node.name.clone()).collect()
    }

    fn owner(&self, volumes: &[VolumeName]) -> Owner {
        if volumes.iter().all(|name| self.copy(name).is_none()) && self.is_here_alone(volumes) {
            return self.alone.owner(volumes);
        }
        self.keep_together(volumes);
        let mut epochs = 0;
        for name in volumes {
            let Some(copy) = self.copy(name) else {
                return Owner::Unusable {
                    why: format!("no copy of volume {name} is in service on this node"),
                };
            };
            match self.serves(&copy) {
                Some(_) if self.is_isolated(&copy) => {
                    return Owner::Unusable {
                        why: format!(
                            "no word of the other copies of volume {name}: another node may serve it by now"
                        ),
                    };
                }
                Some(epoch) => epochs += epoch,
                None => {
                    return Owner::Unusable {
                        why: format!(
                            "volume {name} is not served by this node, nor is it known by which"
                        ),
                    };
                }
            }
        }
        Owner::Here { epoch: epochs }
    }

    fn silence(&self, volumes: &[VolumeName]) -> Option<Duration> {
        let replication = self.replication().ok()?;
        let copies = self.all_copies(volumes)?;
        let shown = replication.shown();
        let gap = |copy: &CopyPlace| {
            shown
                .get(&copy.volume)?
                .last_failover
                .map(|last| last.gap_ms)
        };
        let longest = copies.iter().filter_map(gap).max();
        longest.map(Duration::from_millis)
    }

    fn nodes(&self, volumes: &[VolumeName]) -> Result<Vec<String>, ControlError> {
        let mut statuses = Vec::new();
        for name in volumes {
            statuses.push((name, self.manager.one_volume(name)?.replication));
        }
        let mut known: Option<(&VolumeName, Vec<String>, Option<String>)> = None;
        for (name, replication) in &statuses {
            let several = statuses.iter().find(|(_, known)| known.is_some());
            let Some(replication) = replication else {
                match several {
                    Some((several, _)) => return Err(mixed(name, several)),
                    None => continue,
                }
            };
            let nodes: Vec<String> = replication
                .replicas
                .iter()
                .map(|one| one.node.clone())
                .collect();
            let owner = replication.owner.clone();
            let Some((first, first_nodes, first_owner)) = &known else {
                known = Some((name, nodes, owner));
                continue;
            };
            let is_same = nodes.len() == first_nodes.len()
                && nodes.iter().all(|node| first_nodes.contains(node));
            if !is_same {
                return Err(ControlError::conflict(format!(
                    "volume {first} has copies on {}, and volume {name} on {}: a service needs its volumes on the same nodes",
                    first_nodes.join(", "),
                    nodes.join(", ")
                )));
            }
            if owner != *first_owner {
                let served = |owner: &Option<String>| {
                    owner
                        .clone()
                        .map_or_else(|| "no node".into(), |owner| format!("node {owner}"))
                };
                return Err(ControlError::conflict(format!(
                    "volume {first} is served by {}, and volume {name} by {}: a service needs both on one node (`ashlar volume move {name} --to {}`)",
                    served(first_owner),
                    served(&owner),
                    first_owner.as_deref().unwrap_or("NODE")
                )));
            }
        }
        Ok(known.map(|(_, nodes, _)| nodes).unwrap_or_default())
    }

    fn takers(&self, volumes: &[VolumeName]) -> Vec<String> {
        let (Ok(replication), Some(copies)) = (self.replication(), self.all_copies(volumes)) else {
            return Vec::new();
        };
        let shown = replication.shown();
        let state = replication.state.read();
        let place_of = |copy: &CopyPlace, node: NodeId| {
            let known = state
                .replicas
                .iter()
                .find(|one| one.volume == copy.volume)?;
            let place = known
                .members
                .iter()
                .position(|&member| member == Some(node.0))?;
            Position::new(place)
        };
        let is_in_sync = |copy: &CopyPlace, node: NodeId| match (
            place_of(copy, node),
            shown.get(&copy.volume),
        ) {
            (Some(place), Some(known)) => known.serves.is_some() && known.in_sync.has(place),
            _ => false,
        };
        let config = replication.cluster.config();
        let nodes = config.nodes.iter();
        let others = nodes.filter(|node| node.id != replication.cluster.me());
        let able = others.filter(|node| copies.iter().all(|copy| is_in_sync(copy, node.id)));
        let able: Vec<NodeId> = able.map(|node| node.id).collect();
        drop(shown);
        self.names(&able)
    }

    fn preferred(&self, mut nodes: Vec<String>) -> Vec<String> {
        let (Ok(replication), 2..) = (self.replication(), nodes.len()) else {
            return nodes;
        };
        let ids = nodes
            .iter()
            .filter_map(|node| replication.node_named(node).ok());
        let undrained = self.names(&Vec::from_iter(replication.undrained(ids.collect())));
        nodes.sort_by_key(|node| !undrained.contains(node));
        nodes
    }

    fn let_in(&self, volumes: &[VolumeName]) -> Result<(), ControlError> {
        let Some(host) = &self.manager.host else {
            return Ok(());
        };
        for name in volumes {
            let status = self.manager.one_volume(name)?;
            let is_in = status.allow_any_host || status.allow_hosts.contains(host);
            if !is_in && status.replication.is_some() {
                let more = AllowHosts {
                    hosts: vec![host.clone()],
                    any_host: false,
                };
                self.manager
                    .change_who_may(name, &HostChange::Allow(more))?;
            }
        }
        Ok(())
    }

    fn may_give(&self, volumes: &[VolumeName], to: &str) -> Result<(), ControlError> {
        let node = self.replication()?.node_named(to)?;
        let copies = self.all_copies(volumes).ok_or_else(|| one_copy(volumes))?;
        let may_give = |copy: &CopyPlace| self.manager.may_give(copy.volume, node).map(drop);
        copies.iter().try_for_each(may_give)
    }

    fn give(&self, volumes: &[VolumeName], to: &str) -> Result<(), ControlError> {
        // All at once: what has moved is of no use without the others.
        self.may_give(volumes, to)?;
        let node = self.replication()?.node_named(to)?;
        let copies = self.all_copies(volumes).ok_or_else(|| one_copy(volumes))?;
        for copy in &copies {
            self.manager.give_copy(copy.volume, node)?;
        }
        let begun = Instant::now();
        while copies.iter().any(|copy| self.serves(copy).is_some()) {
            if begun.elapsed() > GIVEN_WITHIN {
                return Err(ControlError::environment(format!(
                    "node {to} has not taken all volumes over within {} s",
                    GIVEN_WITHIN.as_secs()
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn gather(&self, volumes: &[VolumeName]) -> Result<(), ControlError> {
        let serves = |name: &&VolumeName| {
            let copy = self.copy(name);
            copy.is_some_and(|copy| self.serves(&copy).is_some())
        };
        let (here, away): (Vec<_>, Vec<_>) = volumes.iter().partition(serves);
        if away.is_empty() || here.first().copied() != volumes.first() {
            return Ok(());
        }
        let all = self.manager.cluster_view()?.volumes;
        let me = self.node();
        if away.iter().all(|name| is_in_sync_on(&all, name, &me)) {
            let to = MoveVolume { to: me };
            let mut away = away.into_iter();
            return away.try_for_each(|name| self.manager.move_replicated(name, &to).map(drop));
        }
        // This one cannot have them all: its pool of one has failed, for instance.
        let has_all = |node: &String| volumes.iter().all(|name| is_in_sync_on(&all, name, node));
        let heir = self.peers().into_iter().find(has_all);
        let heir = heir.ok_or_else(|| {
            ControlError::conflict(
                "its volumes have different owners, and no node has all of them in sync",
            )
        })?;
        let here: Vec<VolumeName> = here.into_iter().cloned().collect();
        self.give(&here, &heir)
    }

    fn events(&self) -> &Events {
        &self.manager.events
    }

    fn say(&self, node: &str, words: Words) -> Result<Answer, ControlError> {
        let replication = self.replication()?;
        let to = replication.node_named(node)?;
        let limit = match &words {
            Words::Offer { .. } => OFFER_WITHIN,
            _ => ANSWER_WITHIN,
        };
        let internal = |error: serde_json::Error| ControlError::internal(error.to_string());
        let words = Box::new(words);
        let order = serde_json::to_value(Order::Service { words }).map_err(internal)?;
        let answer = replication.cluster.order(to, &order, limit);
        let answer = answer.map_err(|error| refused(node, error))?;
        serde_json::from_value(answer).map_err(internal)
    }
}

impl ClusterNodes {
    /// Whether these are volumes with one copy.
    fn is_here_alone(&self, volumes: &[VolumeName]) -> bool {
        let status = |name| self.manager.one_volume(name);
        volumes
            .iter()
            .all(|name| !status(name).is_ok_and(|status| status.replication.is_some()))
    }
}

impl PoolManager {
    pub(in crate::manager) fn hear_for(&self, services: &Arc<Services>) {
        if let Some(replication) = &self.replication {
            // Once: a daemon has one.
            let _ = replication.services.set(Arc::downgrade(services));
        }
    }

    fn services(&self) -> Option<Arc<Services>> {
        self.replication.as_ref()?.services.get()?.upgrade()
    }

    /// Who has volumes has changed.
    pub(super) fn services_look(&self) {
        if let Some(services) = self.services() {
            services.look();
        }
    }

    /// Services leave in order, with their volumes; the volumes of those that take longer. What else stays is told with
    /// the volumes that stay.
    pub(super) fn drain_services(&self) -> Vec<KeptVolume> {
        let services = self.services();
        services.map_or_else(Vec::new, |services| services.drain())
    }

    pub(super) fn hear_of_services(&self, words: Words) -> Result<Value, ControlError> {
        let services = self.replication()?.services.get();
        let services = services.and_then(std::sync::Weak::upgrade);
        let services = services
            .ok_or_else(|| ControlError::environment("the node is coming up, or ending"))?;
        let answer = services.answer(words)?;
        serde_json::to_value(answer).map_err(|error| ControlError::internal(error.to_string()))
    }
}
