//! Copies and keys deleted: what is meant, by its identity, and nothing else that has the volume's UUID.
//!
//! ```text
//! a whole volume: all nodes say what they have ─▶ the other copies ─▶ the key ─▶ the copy here
//! ```
//!
//! A copy that the key does not name is none of the volume's: it goes alone. So does one without a key, which is what an
//! interrupted deletion, or an interrupted `volume replicate`, leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ashlar_replica::{Incarnation, Key, NodeId, ReplicaUuid};
use ashlar_store::{Manage, VolumeInfo};
use serde::{Deserialize, Serialize};
use tracing::info;
use uuid::Uuid;

use super::make::{FIRST_EPOCH, NewCopy};
use super::orders::{Order, not_here};
use super::reseat::Read;
use super::{Replication, told};
use crate::manager::pools::engine;
use crate::manager::serve::nqn;
use crate::manager::{Dismissal, Kept, PoolManager};
use crate::model::{ControlError, DeleteVolume, ErrorKind, VolumeName};

/// How long a node may take to look for a volume: a pool may be busy. Copies that wait to be started wait as long.
const FIND_WAIT: Duration = Duration::from_secs(10);

/// What a node has under a volume's UUID.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "has", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Has {
    Copy {
        /// Its own identity.
        replica: Uuid,
        connected_hosts: Vec<String>,
    },
    /// A volume of that node alone.
    Plain { is_converting: bool },
    /// Nothing, and all its pools are in service.
    Nothing,
}

/// A volume of a pool that is in service.
pub(super) struct Sought {
    pub(super) pool: String,
    pub(super) volume: VolumeInfo,
}

/// Which copy of a node is to be deleted, and what its hosts may lose.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doomed {
    /// This one, if it is named.
    pub(super) replica: Option<Uuid>,
    /// Not while a host is connected: one may have come since its node was asked.
    pub(super) only_unused: bool,
}

impl Doomed {
    const fn named(replica: Uuid) -> Self {
        Self {
            replica: Some(replica),
            only_unused: false,
        }
    }
}

/// No process has owned it: nothing was written to the volume by it.
pub(super) fn is_unused(key: &Key) -> bool {
    key.epoch == FIRST_EPOCH && key.owner.incarnation == Incarnation(0)
}

/// Whether a key names a node's copy, or none of that node that was ever in sync.
pub(super) fn seats(key: &Key, node: NodeId, replica: Uuid) -> bool {
    let place = key.position(node);
    let named = place.and_then(|at| key.members.get(at));
    named.is_some_and(|member| {
        member.replica == ReplicaUuid::NEW || member.replica == ReplicaUuid(replica.into_bytes())
    })
}

/// In a pool that is in service.
pub(super) fn sought_live(
    pools: &BTreeMap<String, Kept>,
    volume: Uuid,
) -> Result<Option<Sought>, ControlError> {
    for (name, kept) in pools {
        let Kept::Live(pool) = kept else { continue };
        let view = pool.link.view().map_err(engine)?;
        let mut known = view.status.volumes.iter();
        if let Some(found) = known.find(|one| one.uuid == volume && !one.deleting) {
            return Ok(Some(Sought {
                pool: name.clone(),
                volume: found.clone(),
            }));
        }
    }
    Ok(None)
}

/// The same. That it is not here counts only if no pool could have it.
fn sought(pools: &BTreeMap<String, Kept>, volume: Uuid) -> Result<Option<Sought>, ControlError> {
    if let Some(found) = sought_live(pools, volume)? {
        return Ok(Some(found));
    }
    let silent = pools.iter().find_map(|(name, kept)| match kept {
        Kept::Live(_) => None,
        Kept::Failed { why, .. } => Some((name, why)),
    });
    match silent {
        None => Ok(None),
        Some((name, why)) => Err(ControlError::environment(format!(
            "pool {name} is not in service there, and may have a copy: {why}. Bring it into service, or `pool export` \
             it if it is lost"
        ))),
    }
}

impl PoolManager {
    /// What this node has of a volume.
    pub(super) fn has_here(&self, volume: Uuid) -> Result<Has, ControlError> {
        let pools = self.lock();
        let Some(found) = sought(&pools, volume)? else {
            return Ok(Has::Nothing);
        };
        let Some(identity) = found.volume.replica else {
            let replication = self.replication()?;
            let is_converting = replication.converting().contains(&volume);
            return Ok(Has::Plain { is_converting });
        };
        Ok(Has::Copy {
            replica: identity.uuid,
            connected_hosts: self.connected(&nqn(volume)),
        })
    }

    /// What a node of the cluster has of a volume. One that was forgotten has nothing that counts.
    pub(super) fn has(
        &self,
        replication: &Replication,
        node: NodeId,
        volume: Uuid,
    ) -> Result<Has, ControlError> {
        if node == replication.cluster.me() {
            return self.has_here(volume);
        }
        if replication.cluster.config().node_by_id(node).is_none() {
            return Ok(Has::Nothing);
        }
        let answer = replication.order_within(FIND_WAIT, node, &Order::Find { volume })?;
        serde_json::from_value(answer).map_err(|error| ControlError::internal(error.to_string()))
    }

    /// An order that names no copy is for one that lost its place before it was in sync, and may come late.
    pub(super) fn check_unplaced(&self, volume: Uuid) -> Result<(), ControlError> {
        let Has::Copy { replica, .. } = self.has_here(volume)? else {
            return Ok(());
        };
        let replication = self.replication()?;
        let key = replication.read_key(volume)?;
        match key.is_some_and(|key| seats(&key, replication.cluster.me(), replica)) {
            true => Err(ControlError::conflict(format!(
                "the copy of volume {volume} has a place: it is not the one that was to be deleted"
            ))),
            false => Ok(()),
        }
    }

    /// Deletes this node's copy, in service or not: the one that is meant, if that is said.
    pub(super) fn drop_copy(&self, volume: Uuid, doomed: Doomed) -> Result<(), ControlError> {
        let mut pools = self.lock();
        let found = sought(&pools, volume)?.ok_or_else(|| not_here(volume))?;
        let name = format!("{}/{}", found.pool, found.volume.name);
        let identity = found.volume.replica.ok_or_else(|| {
            ControlError::conflict(format!(
                "volume {name} is no copy: it is deleted on its own node alone"
            ))
        })?;
        if doomed
            .replica
            .is_some_and(|replica| replica != identity.uuid)
        {
            return Err(ControlError::conflict(format!(
                "the copy {name} is another than the one that is to be deleted"
            )));
        }
        if doomed.only_unused {
            let hosts = self.connected(&nqn(volume));
            DeleteVolume::default().allowed_by_hosts(&name, &hosts)?;
        }
        let Some(Kept::Live(pool)) = pools.get_mut(&found.pool) else {
            return Err(not_here(volume));
        };
        self.forget_copy(volume);
        let number = found.volume.number;
        let why = Dismissal::ForGood("the volume was deleted".into());
        self.withdraw(pool, number, why)?;
        let id = pool.id;
        let what = Manage::DeleteVolume { volume: number };
        pool.link.manage(what).map_err(engine)?;
        self.state.update(|state| state.forget_volume(id, volume))
    }

    /// Deletes a replicated volume on all its nodes; a copy that is none of the volume's, alone.
    pub(in crate::manager) fn drop_replicated(
        &self,
        name: &VolumeName,
        request: &DeleteVolume,
    ) -> Result<(), ControlError> {
        let status = self.one_volume(name)?;
        request.allowed_on(&status)?;
        let volume = status.uuid;
        let Has::Copy { replica, .. } = self.has_here(volume)? else {
            return Err(not_here(volume));
        };
        let replication = match self.replication() {
            // Of a pool that was brought here, to a node of no cluster.
            Err(_) if status.replication.is_none() => {
                return self.drop_copy(volume, Doomed::named(replica));
            }
            known => known?,
        };
        let me = replication.cluster.me();
        let is_named = |key: &Key| seats(key, me, replica);
        if replication
            .read_key(volume)?
            .is_some_and(|key| is_named(&key))
        {
            if self.is_of_no_volume(replication, volume)? {
                info!(%volume, "volume {name}: it has one copy, on another node: the key that was never used is deleted");
            } else {
                let gone = self.drop_others(replication, name, volume, request)?;
                // As at the others: a host may have come meanwhile.
                let hosts = self.connected(&nqn(volume));
                request
                    .allowed_by_hosts(&name.to_string(), &hosts)
                    .and_then(|()| replication.cluster.delete_key(volume).map_err(told))
                    .map_err(|error| with_gone(error, &gone))?;
            }
        }
        self.drop_copy(volume, Doomed::named(replica))
    }

    /// Whether a volume's key is one that its node, which has the volume itself, has never used. It is deleted then: the
    /// copies that it names are of no volume.
    fn is_of_no_volume(
        &self,
        replication: &Replication,
        volume: Uuid,
    ) -> Result<bool, ControlError> {
        let Read { revision, key } = replication.read_newest(volume)?;
        let node = key.owner.node;
        if !is_unused(&key) || node == replication.cluster.me() {
            return Ok(false);
        }
        match self.has(replication, node, volume).map_err(untouched)? {
            Has::Plain {
                is_converting: true,
            } => Err(ControlError::conflict(format!(
                "node {} is giving the volume copies: nothing is deleted",
                replication.node_name(node)
            ))),
            Has::Plain { .. } => {
                let deleted = replication.cluster.delete_key_at(volume, revision);
                match deleted.map_err(told)? {
                    true => Ok(true),
                    false => Err(ControlError::conflict(
                        "the volume's key has changed meanwhile: look again with `volume show`",
                    )),
                }
            }
            Has::Copy { .. } | Has::Nothing => Ok(false),
        }
    }

    /// Deletes all other copies, also one that is made meanwhile; none of them before all nodes have said that it may be.
    /// Gives the nodes of those that are gone.
    fn drop_others(
        &self,
        replication: &Replication,
        name: &VolumeName,
        volume: Uuid,
        request: &DeleteVolume,
    ) -> Result<Vec<String>, ControlError> {
        let (mut done, mut gone) = (BTreeSet::new(), Vec::new());
        let me = replication.cluster.me();
        while let Some(key) = replication.read_key(volume)? {
            let others = key.members.iter().map(|(_, member)| member.node);
            let mut others: Vec<NodeId> = others.filter(|&node| node != me).collect();
            others.retain(|node| !done.contains(node));
            if others.is_empty() {
                break;
            }
            let mut copies = Vec::new();
            for &node in &others {
                if let Has::Copy {
                    replica,
                    connected_hosts,
                    ..
                } = self.has(replication, node, volume).map_err(untouched)?
                {
                    request.allowed_by_hosts(&name.to_string(), &connected_hosts)?;
                    copies.push((node, replica));
                }
            }
            // Another copy of a node than the one that counts is none of the volume's.
            copies.retain(|&(node, replica)| seats(&key, node, replica));
            for (node, replica) in copies {
                let order = Order::DropCopy {
                    volume,
                    replica: Some(replica),
                    only_unused: !request.force,
                };
                match replication.order(node, &order) {
                    Err(error) if error.kind != ErrorKind::NotFound => {
                        return Err(with_gone(error, &gone));
                    }
                    _ => gone.push(replication.node_name(node)),
                }
            }
            done.extend(others);
        }
        Ok(gone)
    }

    /// Deletes copies that were made for a key, and the key, if nothing came of them.
    pub(super) fn unmake(&self, replication: &Replication, copies: &[NewCopy], key: &Key) {
        let Some(volume) = copies.first().map(NewCopy::volume) else {
            return;
        };
        // It may have been put all the same. Another's is none of this call's. What the quorum keeps for now is
        // replaced by the next key of the volume.
        if let Ok(Read {
            revision,
            key: stored,
        }) = replication.read_newest(volume)
            && stored == *key
        {
            let _ = replication.cluster.delete_key_at(volume, revision);
        }
        for copy in copies {
            // What was not made is not there; what cannot be reached is taken over by the next copy there, or deleted.
            let _ = self.order_of(replication, copy.node(), copy.drop_order());
        }
    }

    /// Makes way for a copy: what is left of one that never held anything goes.
    pub(super) fn make_way(&self, copy: &NewCopy) -> Result<(), ControlError> {
        let volume = copy.volume();
        let pools = self.lock();
        let Some(found) = sought_live(&pools, volume)? else {
            return Ok(());
        };
        let Some(Kept::Live(pool)) = pools.get(&found.pool) else {
            return Ok(());
        };
        let (id, name) = (pool.id, format!("{}/{}", found.pool, found.volume.name));
        drop(pools);
        let is_free = found.volume.used_bytes == 0 && self.connected(&nqn(volume)).is_empty();
        let is_left = match found.volume.replica {
            Some(identity) => {
                let key = self.replication()?.read_key(volume)?;
                let own = ReplicaUuid(identity.uuid.into_bytes());
                key.is_none_or(|key| key.members.find(|member| member.replica == own).is_none())
            }
            // It was not a copy yet when this daemon ended.
            None => self.state.read().replica(id, volume).is_some(),
        };
        if !(is_free && is_left) {
            return Err(ControlError::conflict(format!(
                "there is a volume {name} with the same identity already: if it is what was left of a copy, `volume delete \
                 {name} --destroy-data` on that node deletes it, and no other copy"
            )));
        }
        info!(%volume, "volume {name}: an empty copy that never counted is made anew");
        match found.volume.replica {
            Some(identity) => self.drop_copy(volume, Doomed::named(identity.uuid)),
            None => {
                let name: VolumeName = name.parse()?;
                let request = DeleteVolume {
                    destroy_data: true,
                    ..DeleteVolume::default()
                };
                self.drop_volume(&name, &request)
            }
        }
    }

    /// Deletes a volume's key if no node has anything of the volume. A node that is gone is not asked about a key that was
    /// never used.
    ///
    /// # Errors
    /// Environment: a node, or the quorum, does not answer.
    pub(super) fn drop_orphaned_key(
        &self,
        volume: Uuid,
        gone: Option<NodeId>,
    ) -> Result<bool, ControlError> {
        let replication = self.replication()?;
        let Read { revision, key } = replication.read_newest(volume)?;
        let is_unused = is_unused(&key);
        for (_, member) in key.members.iter() {
            if is_unused && Some(member.node) == gone {
                continue;
            }
            match self.has(replication, member.node, volume)? {
                Has::Nothing => {}
                Has::Plain {
                    is_converting: false,
                } if is_unused => {}
                Has::Copy { .. } | Has::Plain { .. } => return Ok(false),
            }
        }
        let deleted = replication.cluster.delete_key_at(volume, revision);
        let deleted = deleted.map_err(told)?;
        if deleted {
            info!(%volume, "volume {volume}: no node has anything of it: its key is deleted");
        }
        Ok(deleted)
    }

    /// Deletes the keys that name a node and that no volume has. Whether there was one.
    pub(super) fn drop_orphaned_keys_of(
        &self,
        node: NodeId,
        gone: Option<NodeId>,
    ) -> Result<bool, ControlError> {
        let replication = self.replication()?;
        let mut any = false;
        for volume in replication.cluster.volumes_on(node).map_err(told)? {
            any |= self.drop_orphaned_key(volume, gone)?;
        }
        Ok(any)
    }
}

/// What is deleted already, where a deletion ends halfway.
fn with_gone(mut error: ControlError, gone: &[String]) -> ControlError {
    if !gone.is_empty() {
        let text = format!(
            ". The copies on {} are deleted: give the order again, or keep what is left and have it copied again \
             (`volume replicate`, with as many copies less, then with as many as before)",
            gone.join(", ")
        );
        error.message.push_str(&text);
    }
    error
}

fn untouched(mut error: ControlError) -> ControlError {
    error.message.push_str(": nothing is deleted");
    error
}
