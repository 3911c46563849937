//! All volumes of a cluster that have copies on several nodes, whichever node is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use ashlar_replica::{NodeId, Seats};
use uuid::Uuid;

use super::orders::Order;
use super::{CopyPlace, Replication};
use crate::manager::PoolManager;
use crate::model::{ControlError, ReplicaStatus, ReplicationStatus, VolumeOfCluster, VolumeStatus};

/// How long other nodes are waited for, all at once.
const OTHERS_WITHIN: Duration = Duration::from_secs(1);
/// After so long nothing more is looked up of volumes whose owner has said nothing.
const OWNERLESS_WITHIN: Duration = Duration::from_secs(2);

/// What nodes have said of volumes.
#[derive(Default)]
struct Accounts(BTreeMap<Uuid, VolumeOfCluster>);

impl Accounts {
    /// An owner's account counts more than a member's, a newer term's more than an older one's. The name stays that of who
    /// has spoken first.
    fn add(&mut self, account: VolumeOfCluster) {
        let weight = |one: &ReplicationStatus| (one.owner.is_some(), one.epoch);
        match self.0.get_mut(&account.uuid) {
            Some(known) if weight(&account.replication) > weight(&known.replication) => {
                known.replication = account.replication;
            }
            Some(_) => {}
            None => {
                self.0.insert(account.uuid, account);
            }
        }
    }
}

impl PoolManager {
    /// Those of which this node has a copy, as it knows them by itself.
    pub(super) fn volumes_here(&self) -> Vec<VolumeOfCluster> {
        let of = |place: CopyPlace| VolumeOfCluster {
            replication: self
                .own_account(place.volume)
                .unwrap_or_else(|_| self.out_of_service(place.volume)),
            volume: place.name,
            uuid: place.volume,
        };
        let left = self.replication.as_ref().map(|known| known.left().clone());
        let left = left.into_iter().flatten();
        let left = left.filter(|(volume, _)| !self.is_copy(*volume));
        let left = left.map(|(uuid, copy)| VolumeOfCluster {
            replication: self.out_of_service(uuid),
            volume: copy.name,
            uuid,
        });
        self.copies().into_iter().map(of).chain(left).collect()
    }

    /// What can be said of a volume whose copy here is not in service.
    fn out_of_service(&self, volume: Uuid) -> ReplicationStatus {
        let state = self.state.read();
        let known = state.replicas.iter().find(|known| known.volume == volume);
        let seats = known.and_then(|known| Seats::try_from(known.members.clone()).ok());
        let nodes = seats.iter().flat_map(Seats::iter);
        let nodes = nodes.filter_map(|(_, node)| {
            let replication = self.replication.as_ref()?;
            Some(replication.node_name(NodeId(node)))
        });
        ReplicationStatus {
            replicas: nodes.map(ReplicaStatus::unknown).collect(),
            ..ReplicationStatus::default()
        }
    }

    /// Has of volumes that other nodes serve what those say.
    pub(in crate::manager) fn complete_by_owners(&self, all: &mut [VolumeStatus]) {
        let is_elsewhere = |one: &VolumeStatus| {
            let known = one.replication.as_ref();
            known.is_some_and(|known| known.owner.is_none())
        };
        if !all.iter().any(is_elsewhere) {
            return;
        }
        // Without an answer, what this node knows.
        let Ok(view) = self.cluster_view() else {
            return;
        };
        for one in all.iter_mut().filter(|one| is_elsewhere(one)) {
            let known = view.volumes.iter().find(|known| known.uuid == one.uuid);
            one.replication = known
                .map(|known| known.replication.clone())
                .or(one.replication.take());
        }
    }

    /// All of them, as the nodes of `reached` and this one know them.
    pub(super) fn volumes_of_cluster(
        &self,
        reached: &[NodeId],
    ) -> Result<Vec<VolumeOfCluster>, ControlError> {
        let replication = self.replication()?;
        let begun = Instant::now();
        let mut all = Accounts::default();
        self.volumes_here().into_iter().for_each(|one| all.add(one));
        let mut heard = BTreeSet::from([replication.cluster.me()]);
        for (node, volumes) in replication.ask_all(reached) {
            heard.insert(node);
            volumes.into_iter().for_each(|one| all.add(one));
        }
        let complete = |mut one: VolumeOfCluster| {
            let is_known = one.replication.owner.is_some();
            if !is_known && begun.elapsed() < OWNERLESS_WITHIN {
                one.replication = replication.asked(one.uuid, one.replication, &heard);
            }
            one
        };
        Ok(all.0.into_values().map(complete).collect())
    }
}

impl Replication {
    /// Asks nodes for all that they know, at once. One that does not answer, or is of a version that does not know the
    /// question, says nothing.
    fn ask_all(&self, nodes: &[NodeId]) -> Vec<(NodeId, Vec<VolumeOfCluster>)> {
        let ask = |node| {
            let answer = self
                .order_within(OTHERS_WITHIN, node, &Order::ShowAll)
                .ok()?;
            Some((node, serde_json::from_value(answer).ok()?))
        };
        thread::scope(|scope| {
            let asked = nodes.iter().map(|&node| scope.spawn(move || ask(node)));
            let asked: Vec<_> = asked.collect();
            let heard = asked
                .into_iter()
                .filter_map(|one| one.join().ok().flatten());
            heard.collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(owner: Option<&str>, epoch: u32) -> VolumeOfCluster {
        VolumeOfCluster {
            volume: format!("tank/{epoch}"),
            uuid: Uuid::from_u128(1),
            replication: ReplicationStatus {
                owner: owner.map(str::to_owned),
                epoch,
                ..ReplicationStatus::default()
            },
        }
    }

    #[test]
    fn an_owner_of_the_newest_term_is_believed() {
        let mut all = Accounts::default();
        for (owner, epoch, believed) in [
            (None, 5, (None, 5)),
            (Some("a"), 4, (Some("a"), 4)),
            (None, 6, (Some("a"), 4)),
            (Some("b"), 6, (Some("b"), 6)),
            (Some("a"), 4, (Some("b"), 6)),
        ] {
            all.add(account(owner, epoch));
            let known: Vec<_> = all.0.values().collect();
            assert_eq!(known.len(), 1);
            let replication = &known[0].replication;
            assert_eq!((replication.owner.as_deref(), replication.epoch), believed);
            assert_eq!(known[0].volume, "tank/5");
        }
    }
}
