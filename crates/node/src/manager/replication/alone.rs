//! A copy that was not in sync goes on alone, because an operator says that all others are lost.
//!
//! The volume's key names it as the only copy in sync, in a new epoch that its process owns. Others that come back are
//! copied in full: what they hold of writes that are missing here must not come back to life granule by granule.

use std::time::Duration;

use ashlar_cluster::{Kind, OrderError};
use ashlar_replica::quorum::{Question, Reply};
use ashlar_replica::{Epoch, Key, NodeId, OwnerId, Position, Positions};
use ashlar_store::{Committed, Manage, OwnPlane, ReplicaChange, ReplicaPromise};
use tracing::warn;
use uuid::Uuid;

use super::orders::{Order, ShowReply};
use super::reseat::Read;
use super::{AsServed, CopyPlace, CopyVolume, Replication, told};
use crate::manager::pools::engine;
use crate::manager::{Kept, PoolManager};
use crate::model::{
    ControlError, ErrorKind, ReplicaState, ReplicationStatus, RunAlone, VolumeName, VolumeStatus,
};
use crate::pool::{PoolLink, ReplicaMail};
use crate::replica::ReplicaView;

/// How long a node may take to say whether it serves a volume.
const ASK_WAIT: Duration = Duration::from_secs(3);
/// So many epochs a quorum may have handed out that this node's etcd did not hear of.
const LOST_EPOCHS: u32 = 10_000;

impl PoolManager {
    /// Has this node's copy serve without the others.
    pub(in crate::manager) fn run_alone(
        &self,
        name: &VolumeName,
        request: &RunAlone,
    ) -> Result<VolumeStatus, ControlError> {
        let replication = self.replication()?;
        let status = self.one_volume(name)?;
        let place = self.place_of(status.uuid)?;
        let look = |reply| ReplicaMail::Look { reply };
        let view = place.pool.ask_replica(place.number, look).map_err(engine)?;
        let view = view.ok_or_else(|| {
            ControlError::environment(format!("the copy of {name} here is not in service"))
        })?;
        if view.owns.is_some()
            && replication
                .cluster
                .is_in_doubt(place.volume)
                .map_err(told)?
        {
            replication.serves_on(&place, request)?;
            return self.one_volume(name);
        }
        let newest = replication.may_run_alone(&place, &view)?;
        if !request.force {
            replication.none_has_more(&place, &view, &newest.key)?;
        }
        if !request.accept_data_loss {
            return Err(ControlError::refused(format!(
                "what was written to volume {name} since this node's copy was in sync is lost for good if it goes on \
                 alone. The other nodes with copies must be off, or cut from their hosts: one that lives and does not \
                 hear of it would serve on, and what is written there is lost, too. --accept-data-loss says that this \
                 is meant"
            )));
        }
        warn!(
            volume = place.name,
            "volume {}: this copy goes on alone", place.name
        );
        let text = "this copy is to go on alone: what it lacks is lost for good".to_owned();
        let name_here = Some(place.name.clone());
        replication.events.add("run_alone", name_here, text);
        self.restart_alone(replication, &place, &view, newest)?;
        self.await_owner(name, |owner| owner.is_some())
    }

    fn restart_alone(
        &self,
        replication: &Replication,
        place: &CopyPlace,
        view: &ReplicaView,
        newest: Read,
    ) -> Result<(), ControlError> {
        let mut pools = self.lock();
        let Some(Kept::Live(pool)) = pools.get_mut(&place.pool_name) else {
            return Err(ControlError::environment(
                "its pool is not in service any more",
            ));
        };
        let size = newest.key.size;
        let stop = |reply| ReplicaMail::Stop { reply };
        pool.link.ask_replica(place.number, stop).map_err(engine)?;
        // As the key says that is changed: what this copy was told of others may be old.
        let others = newest.key.members.positions().without(view.position);
        let marked = mark_all(&pool.link, place.number, view, others);
        let named = marked.and_then(|()| replication.name_only(place, view.position, newest));
        let named =
            named.and_then(|()| self.forgive_image(replication, place.pool_id, place.volume));
        let named = named.and_then(|()| replication.cluster.end_doubt(place.volume).map_err(told));
        let seen = pool.link.view().map_err(engine)?;
        let mut known = seen.status.volumes.iter();
        let found = known.find(|one| one.number == place.number);
        let (found, identity) = found
            .and_then(|one| Some((one, one.replica?)))
            .ok_or_else(|| ControlError::internal("the copy is gone"))?;
        // Whatever became of it, the copy is in service again, or will be.
        let copy = CopyVolume::of(found, &place.pool_name);
        let as_served = AsServed {
            reservations: place.reservations.clone(),
            size,
        };
        let started = self.start_replica(pool, &copy, identity, as_served);
        if let Err(error) = &started {
            self.put_off(pool, &copy, error)?;
        }
        named.and(started)
    }
}

/// The others lack everything, as this copy knows durably.
fn mark_all(
    link: &PoolLink,
    volume: u32,
    view: &ReplicaView,
    others: Positions,
) -> Result<(), ControlError> {
    let change = |absent: Positions| ReplicaChange {
        promise: ReplicaPromise {
            epoch: view.promised.0,
            session: view.session.0,
            absent: absent.bits(),
        },
        marks_uncertain: false,
        marks: std::iter::once(0..view.granules).collect(),
        own: OwnPlane::Until(Committed::default()),
    };
    // Marks are for copies that are newly absent, so none is absent at first.
    for absent in [Positions::NONE, others] {
        let change = change(absent);
        let what = Manage::ChangeReplica { volume, change };
        link.manage(what).map_err(engine)?;
    }
    Ok(())
}

/// What a node's own account says that it has.
fn own_part(status: &ReplicationStatus, name: &str) -> Option<String> {
    if status.owner.is_some() {
        return Some("serves it".to_owned());
    }
    let mut known = status.replicas.iter();
    // A copy that is not in sync knows that it is absent; of one that is, its node does not know what the owner knows.
    let lacks = known.any(|one| one.node == name && one.state == ReplicaState::Absent);
    (!lacks).then(|| "has a copy of it that is in sync".to_owned())
}

impl Replication {
    /// A node that has served the volume since before it was in doubt, or without having heard of that, goes on.
    fn serves_on(&self, place: &CopyPlace, request: &RunAlone) -> Result<(), ControlError> {
        let name = &place.name;
        if !request.accept_data_loss {
            return Err(ControlError::refused(format!(
                "this node serves volume {name}, which is in doubt: what other copies may have, and this one has not, \
                 is lost for good if it goes on. --accept-data-loss says that this is meant"
            )));
        }
        self.cluster.end_doubt(place.volume).map_err(told)?;
        let text = "this node serves the volume, and goes on: it is in doubt no more";
        warn!(volume = name, "volume {name}: {text}");
        let events = &self.events;
        events.add("run_alone", Some(name.clone()), text.to_owned());
        Ok(())
    }

    /// Refused where this copy may not, whatever other nodes have. What the quorum says of the volume.
    fn may_run_alone(&self, place: &CopyPlace, view: &ReplicaView) -> Result<Read, ControlError> {
        let conflict = |why: String| Err(ControlError::conflict(why));
        if view.owns.is_some() {
            return conflict(format!("this node serves volume {}", place.name));
        }
        let newest = self.read_newest(place.volume)?;
        let key = &newest.key;
        if key.members.get(view.position).map(|member| member.node) != Some(self.cluster.me()) {
            return conflict(format!(
                "the copy of volume {} here is none of the volume's any more: its place was given up",
                place.name
            ));
        }
        if key.members.get(view.position).map(|member| member.replica) != Some(view.uuid) {
            return conflict(format!(
                "the copy of volume {} here has not been in sync yet: what the volume holds was never here in full",
                place.name
            ));
        }
        let is_in_doubt = self.cluster.is_in_doubt(place.volume).map_err(told)?;
        if key.in_sync.has(view.position) && !(view.is_old_image || is_in_doubt) {
            return conflict(format!(
                "the copy of volume {} here is in sync: it serves by itself as soon as the other copies in sync are \
                 known to be away",
                place.name
            ));
        }
        Ok(newest)
    }

    /// Refused while another node that answers serves the volume, or has a copy in sync. That this copy has no connection
    /// to it says little: one that lives would serve on. Of a volume in doubt each copy counts: which are in sync is
    /// just what is not known.
    pub(super) fn none_has_more(
        &self,
        place: &CopyPlace,
        view: &ReplicaView,
        key: &Key,
    ) -> Result<(), ControlError> {
        let is_in_doubt = self.cluster.is_in_doubt(place.volume).map_err(told)?;
        let asked = match is_in_doubt {
            true => key.members.positions(),
            false => key.in_sync,
        };
        for at in asked.without(view.position).iter() {
            let Some(member) = key.members.get(at) else {
                continue;
            };
            let has = match view.connected.has(at) {
                true => Some("has a copy of it that is in sync".to_owned()),
                false => self.has_more(member.node, place.volume, is_in_doubt),
            };
            let Some(has) = has else {
                continue;
            };
            let name = self.node_name(member.node);
            return Err(ControlError::conflict(match is_in_doubt {
                true => format!(
                    "volume {}: node {name} is there, and has a copy of it, too; nothing says which is newer. Give the \
                     order where contact with the lost machines was last; --force says that it was here",
                    place.name
                ),
                false => format!(
                    "volume {}: node {name} is there, and {has}. Look there, with `pool status` and `volume show`. If it \
                     cannot serve any more, end its daemon, or cut it from its hosts and say --force",
                    place.name
                ),
            }));
        }
        Ok(())
    }

    /// What a node that answers has of a volume and this one has not. One whose copy is not in service has nothing.
    fn has_more(&self, node: NodeId, volume: Uuid, is_in_doubt: bool) -> Option<String> {
        let words = serde_json::to_value(Order::Show { volume }).ok()?;
        match self.cluster.order(node, &words, ASK_WAIT) {
            Ok(answer) => match serde_json::from_value::<ShowReply>(answer) {
                Ok(_) if is_in_doubt => Some("has a copy of it".to_owned()),
                Ok(ShowReply { status }) => own_part(&status, &self.node_name(node)),
                Err(error) => Some(format!("what it has of it is not understood: {error}")),
            },
            Err(OrderError::Refused {
                kind: Kind::NotFound,
                ..
            }) => None,
            Err(OrderError::Refused { message, .. }) => Some(format!(
                "it does not say whether it serves the volume: {message}"
            )),
            // One that was reached, and has not answered in time.
            Err(OrderError::Unreachable(why)) => {
                let peers = self.cluster.status().peers;
                let lives = peers.iter().any(|peer| peer.id == node && peer.reachable);
                lives.then(|| format!("it does not say whether it serves the volume: {why}"))
            }
        }
    }

    /// The key names this process's copy as the only one.
    fn name_only(&self, place: &CopyPlace, me: Position, newest: Read) -> Result<(), ControlError> {
        let Read { revision, key } = newest;
        // A copy that comes back refuses an epoch that is older than what it has promised.
        let skipped = match self.cluster.is_in_doubt(place.volume).map_err(told)? {
            true => LOST_EPOCHS,
            false => 0,
        };
        let epoch = key.epoch.0.checked_add(1 + skipped);
        let epoch = epoch.map(Epoch);
        let epoch = epoch.ok_or_else(|| ControlError::internal("no epoch is left"))?;
        let alone = Key {
            epoch,
            owner: OwnerId {
                node: self.cluster.me(),
                incarnation: self.cluster.incarnation(),
            },
            in_sync: Positions::NONE.with(me),
            forced: key.forced.saturating_add(1),
            ..key
        };
        let question = Question::Swap {
            revision,
            value: alone.encode(),
        };
        match self.ask(place.volume, question) {
            Reply::Swapped(_) => Ok(()),
            Reply::Holds(_) => Err(ControlError::conflict(
                "the volume's key has changed meanwhile: look again with `volume show`",
            )),
            Reply::Unknown => Err(ControlError::new(
                ErrorKind::Environment,
                "the quorum does not say whether it has taken the change: `volume show` tells, in a moment",
            )),
        }
    }
}
