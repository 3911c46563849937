//! Replicated volumes made, deleted and moved: the same on each of their nodes.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ashlar_replica::quorum::{Question, Reply};
use ashlar_replica::{
    Epoch, Incarnation, Key, MemberId, Members, NodeId, OwnerId, Position, Positions, ReplicaUuid,
    Revision, Seats,
};
use ashlar_store::{Manage, Managed, ReplicaIdentity, VolumeInfo};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::cluster::unproven;
use super::delete::is_unused;
use super::orders::{Order, not_here};
use super::{CopyVolume, LOOK_EVERY, Replication, refused};
use crate::VolumeAccess;
use crate::manager::pools::engine;
use crate::manager::volumes::{REGISTER, home_room, plan_of};
use crate::manager::{Kept, LivePool, PoolManager, live};
use crate::model::{
    ControlError, CreateVolume, LayoutSpec, MoveVolume, VolumeName, VolumeStatus, readable_bytes,
};
use crate::pool::ReplicaMail;

/// How long an order to a peer may take.
const ORDER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a new volume may take until a node serves it, and a move until another does.
const SERVED_WAIT: Duration = Duration::from_secs(15);
/// How long another node may take to make a volume: it gives orders itself.
pub(super) const MADE_WITHIN: Duration = Duration::from_secs(60);

/// That of a key which no process has owned.
pub(super) const FIRST_EPOCH: Epoch = Epoch(1);

/// A node, and its place among those that have copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) place: Position,
    pub(super) node: NodeId,
}

/// A copy of a volume that holds nothing yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewCopy {
    /// The volume, as it was asked for.
    pub(super) wanted: CreateVolume,
    /// Its identity: the same on all nodes.
    volume: Uuid,
    /// The copy's place in `members`.
    pub(super) position: u8,
    /// The copy's own identity.
    replica: Uuid,
    node: NodeId,
    pub(super) members: Seats<NodeId>,
    /// What the volume holds already, which its pool must have room for.
    #[serde(default, skip_serializing_if = "is_nothing")]
    used_bytes: u64,
}

const fn is_nothing(bytes: &u64) -> bool {
    *bytes == 0
}

impl NewCopy {
    /// Those of a new volume.
    pub(super) fn of(
        wanted: &CreateVolume,
        volume: Uuid,
        nodes: &[NodeId],
    ) -> Result<Vec<Self>, ControlError> {
        let members = Seats::first(nodes.iter().copied()).map_err(ControlError::usage)?;
        let one = |(place, node)| Self::at(wanted, volume, Seat { place, node }, members);
        Ok(members.iter().map(one).collect())
    }

    /// That of a node at a place of its own.
    pub(super) fn at(
        wanted: &CreateVolume,
        volume: Uuid,
        seat: Seat,
        members: Seats<NodeId>,
    ) -> Self {
        Self {
            wanted: wanted.clone(),
            volume,
            position: seat.place.index() as u8,
            replica: Uuid::new_v4(),
            node: seat.node,
            members,
            used_bytes: 0,
        }
    }

    /// With what it is to hold.
    pub(super) fn holding(self, used_bytes: u64) -> Self {
        Self { used_bytes, ..self }
    }

    pub(super) const fn node(&self) -> NodeId {
        self.node
    }

    pub(super) const fn volume(&self) -> Uuid {
        self.volume
    }

    /// Has its node delete it, and no other copy.
    pub(super) const fn drop_order(&self) -> Order {
        Order::drop_of(self.volume, self.replica)
    }

    pub(super) const fn identity(&self) -> ReplicaIdentity {
        ReplicaIdentity {
            position: self.position,
            uuid: self.replica,
        }
    }
}

/// The first key: no process owns it yet, and so many copies, from the first on, have everything. The others are named
/// when they have: one that is known by its name is not copied in full.
pub(super) fn first_key(copies: &[NewCopy], in_sync: usize) -> Result<Key, String> {
    let member = |copy: &NewCopy| MemberId {
        node: copy.node(),
        replica: match usize::from(copy.position) < in_sync {
            true => ReplicaUuid(copy.replica.into_bytes()),
            false => ReplicaUuid::NEW,
        },
    };
    Ok(Key {
        epoch: FIRST_EPOCH,
        owner: OwnerId {
            node: copies[0].node(),
            incarnation: Incarnation(0),
        },
        in_sync: Positions::first(in_sync),
        members: Members::first(copies.iter().map(member))?,
        forced: 0,
        size: None,
    })
}

/// Whether a pool has room for what a new volume is to hold.
fn has_room(pool: &LivePool, volume: u32, bytes: u64) -> Result<(), ControlError> {
    let view = pool.link.view().map_err(engine)?;
    let mut known = view.status.volumes.iter();
    let room = known.find(|one| one.number == volume);
    let room = room.and_then(|found| home_room(found, &view));
    match room.filter(|&room| room < bytes) {
        None => Ok(()),
        Some(room) => Err(ControlError::environment(format!(
            "the volume holds {}, and the pool has room for {} of it: add a drive (`pool add`)",
            readable_bytes(bytes),
            readable_bytes(room)
        ))),
    }
}

impl Replication {
    /// Asks the quorum, and waits.
    pub(super) fn ask(&self, volume: Uuid, question: Question) -> Reply {
        let (sender, receiver) = channel();
        self.cluster.ask(volume, question, move |reply| {
            // Who asked may have gone.
            let _ = sender.send(reply);
        });
        receiver.recv().unwrap_or(Reply::Unknown)
    }

    /// A volume's key.
    pub(super) fn read_key(&self, volume: Uuid) -> Result<Option<Key>, ControlError> {
        match self.ask(volume, Question::Read) {
            Reply::Holds(None) => Ok(None),
            Reply::Holds(Some(held)) => {
                let key = Key::decode(&held.value);
                key.map(Some)
                    .map_err(|error| ControlError::environment(error.to_string()))
            }
            Reply::Swapped(_) | Reply::Unknown => Err(ControlError::environment(
                "the quorum does not answer: `ashlar volume show` works on, changes of who has copies do not",
            )),
        }
    }

    /// Who asks has no copy of the volume: a key that was put for one and never used gives way.
    pub(super) fn put_first_key(&self, volume: Uuid, key: &Key) -> Result<(), ControlError> {
        let revision = match self.read_key(volume)? {
            Some(stored) if is_unused(&stored) => self.read_newest(volume)?.revision,
            _ => Revision(0),
        };
        let question = Question::Swap {
            revision,
            value: key.encode(),
        };
        match self.ask(volume, question) {
            Reply::Swapped(_) => Ok(()),
            // It may have been put all the same.
            _ if self.read_key(volume)?.as_ref() == Some(key) => Ok(()),
            _ => Err(ControlError::environment(format!(
                "the quorum does not take the key of volume {volume}"
            ))),
        }
    }

    pub(super) fn order(
        &self,
        to: NodeId,
        order: &Order,
    ) -> Result<serde_json::Value, ControlError> {
        self.order_within(ORDER_TIMEOUT, to, order)
    }

    pub(super) fn order_within(
        &self,
        limit: Duration,
        to: NodeId,
        order: &Order,
    ) -> Result<serde_json::Value, ControlError> {
        let name = self.node_name(to);
        let words = serde_json::to_value(order)
            .map_err(|error| ControlError::internal(error.to_string()))?;
        let answer = self.cluster.order(to, &words, limit);
        answer.map_err(|error| refused(&name, error))
    }
}

impl PoolManager {
    /// Makes a volume with copies on several nodes, and waits until it is served.
    pub(in crate::manager) fn make_replicated(
        &self,
        request: &CreateVolume,
    ) -> Result<VolumeStatus, ControlError> {
        let replication = self.replication()?;
        if matches!(request.layout, LayoutSpec::Stripe { .. }) {
            return Err(ControlError::usage(
                "layout stripe keeps no log, which copies on other nodes need: take mirror or parity",
            ));
        }
        if let Some(others) = self.chosen_elsewhere(request)? {
            return self.make_elsewhere(request, &others);
        }
        let members = replication.choose(request)?;
        let volume = Uuid::new_v4();
        let copies = NewCopy::of(request, volume, &members)?;
        let key = first_key(&copies, copies.len()).map_err(ControlError::usage)?;
        let mut result = copies.iter().try_for_each(|copy| {
            self.order_of(
                replication,
                copy.node(),
                Order::MakeCopy(Box::new(copy.clone())),
            )
        });
        if result.is_ok() {
            result = replication.put_first_key(volume, &key);
        }
        if let Err(error) = result {
            self.unmake(replication, &copies, &key);
            return Err(error);
        }
        for copy in &copies {
            self.order_of(replication, copy.node(), Order::StartCopy { volume })?;
            // The first has the volume before others could want it: a machine that is busy does not decide where it is.
            if copy.position == 0 {
                // If it has not by then, another takes it as well.
                let _ = self.await_key(volume, |key| key.epoch > FIRST_EPOCH);
            }
        }
        let name = VolumeName::new(&request.pool, &request.name)?;
        self.await_owner(&name, |owner| owner.is_some())
    }

    /// Does something here, or has a peer do it.
    pub(super) fn order_of(
        &self,
        replication: &Replication,
        node: NodeId,
        order: Order,
    ) -> Result<(), ControlError> {
        match node == replication.cluster.me() {
            true => self.obey(node, order).map(drop),
            false => replication.order(node, &order).map(drop),
        }
    }

    /// Waits until a volume has the owner that is wanted.
    pub(super) fn await_owner(
        &self,
        name: &VolumeName,
        is_wanted: impl Fn(Option<&str>) -> bool,
    ) -> Result<VolumeStatus, ControlError> {
        let begun = Instant::now();
        loop {
            let status = self.one_volume(name)?;
            let known = status.replication.as_ref();
            let owner = known.and_then(|known| known.owner.as_deref());
            if is_wanted(owner) {
                return Ok(status);
            }
            if begun.elapsed() > SERVED_WAIT {
                let owner = owner.unwrap_or("no node");
                return Err(ControlError::environment(format!(
                    "volume {name} is served by {owner} after {} s: `volume show {name}` says more",
                    SERVED_WAIT.as_secs()
                )));
            }
            std::thread::sleep(LOOK_EVERY * 5);
        }
    }

    pub(super) fn make_copy(&self, copy: &NewCopy) -> Result<(), ControlError> {
        self.replication()?;
        let wanted = &copy.wanted;
        self.make_way(copy)?;
        self.await_name(&wanted.pool, &wanted.name);
        let pools = self.lock();
        let pool = live(&pools, &wanted.pool)?;
        let view = pool.link.view().map_err(engine)?;
        let taken = |volume: &VolumeInfo| volume.name == wanted.name && !volume.deleting;
        if let Some(there) = view.status.volumes.iter().find(|volume| taken(volume)) {
            let name = format!("{}/{}", wanted.pool, wanted.name);
            let left = match there.replica {
                Some(_) => format!(
                    ": if it was left by an order that broke off, `volume delete {name} --destroy-data` on that node deletes \
                     it (`volume show {name}` there)"
                ),
                None => String::new(),
            };
            let why = format!("there is a volume {name} already{left}");
            return Err(ControlError::conflict(why));
        }
        let mut plan = plan_of(wanted, copy.volume, &view)?;
        plan.granules += REGISTER;
        let access = VolumeAccess::new(pool.id, copy.volume, wanted.hosts());
        self.state.update(|state| state.put_volume(access))?;
        self.remember_copy(pool.id, copy.volume, &copy.members)?;
        let made = pool.link.manage(Manage::CreateVolume(plan)).map_err(engine);
        let made = made.and_then(|made| match made {
            Managed::Volume(volume) => {
                let identity = copy.identity();
                let what = Manage::MakeReplica {
                    volume,
                    identity,
                    granules: None,
                };
                let done = pool.link.manage(what).map_err(engine);
                let done = done.and_then(|_| has_room(pool, volume, copy.used_bytes));
                done.inspect_err(|_| {
                    // What is left of it is deleted at the next try, or by hand.
                    let _ = pool.link.manage(Manage::DeleteVolume { volume });
                })
            }
            _ => Err(ControlError::internal("an answer to another question")),
        });
        if let Err(error) = made {
            self.state
                .update(|state| state.forget_volume(pool.id, copy.volume))?;
            return Err(error);
        }
        Ok(())
    }

    /// Brings a copy that was made into service.
    pub(super) fn start_copy(&self, volume: Uuid) -> Result<(), ControlError> {
        let mut pools = self.lock();
        if self.is_copy(volume) {
            return Ok(());
        }
        for (name, kept) in pools.iter_mut() {
            let Kept::Live(pool) = kept else { continue };
            let view = pool.link.view().map_err(engine)?;
            let mut known = view.status.volumes.iter();
            let Some(found) = known.find(|one| one.uuid == volume && !one.deleting) else {
                continue;
            };
            let Some(identity) = found.replica else {
                return Err(ControlError::conflict(format!(
                    "volume {volume} is no copy"
                )));
            };
            let copy = CopyVolume::of(found, name);
            return self.take_up_copy(pool, &copy, identity);
        }
        Err(not_here(volume))
    }

    /// Has another node serve a volume.
    pub(in crate::manager) fn move_replicated(
        &self,
        name: &VolumeName,
        request: &MoveVolume,
    ) -> Result<VolumeStatus, ControlError> {
        let replication = self.replication()?;
        let status = self.one_volume(name)?;
        let Some(known) = &status.replication else {
            return Err(ControlError::conflict(format!(
                "volume {name} has one copy, on this node: it cannot move"
            )));
        };
        let to = replication.node_named(&request.to)?;
        let copy = known.replicas.iter().find(|one| one.node == request.to);
        let copy = copy.ok_or_else(|| {
            ControlError::conflict(format!("node {} has no copy of volume {name}", request.to))
        })?;
        let owner = known.owner.as_deref().ok_or_else(|| {
            ControlError::environment(format!("volume {name} is served by no node at present"))
        })?;
        if owner == request.to {
            return Ok(status);
        }
        if copy.state != crate::model::ReplicaState::InSync {
            return Err(ControlError::conflict(format!(
                "the copy on node {} is not in sync: {} bytes are missing there",
                request.to, copy.resync_bytes_left
            )));
        }
        let config = replication.cluster.config();
        let owner = config
            .node(owner)
            .map_or(replication.cluster.me(), |node| node.id);
        let order = Order::Move {
            volume: status.uuid,
            to,
        };
        self.order_of(replication, owner, order)?;
        self.await_owner(name, |owner| owner == Some(&request.to))
    }

    /// Hands a volume over, if this node owns it.
    pub(super) fn give_copy(&self, volume: Uuid, to: NodeId) -> Result<(), ControlError> {
        let place = self.may_give(volume, to)?;
        self.with_copy(volume, |pool, number| {
            pool.link
                .post_to_replica(number, ReplicaMail::Move { to: place });
            Ok(())
        })
    }

    /// Where the copy is that a volume could be handed to.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn may_give(&self, volume: Uuid, to: NodeId) -> Result<Position, ControlError> {
        self.with_copy(volume, |pool, number| {
            let view = self.replica_view(pool, number)?;
            let view = view.filter(|view| view.serves).ok_or_else(|| {
                ControlError::conflict("this node does not serve the volume any more")
            })?;
            if view.is_unproven {
                return Err(unproven());
            }
            let place = view.members.find(|node| node == to);
            place.ok_or_else(|| ControlError::conflict(format!("{to} has no copy of the volume")))
        })
        .and_then(|place| self.asks_who_decides().map(|()| place))
    }

    /// Without the quorum no other node could take over, so an owner keeps what it has.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn asks_who_decides(&self) -> Result<(), ControlError> {
        let quorum = self.replication()?.cluster.status().quorum;
        match quorum.reachable {
            true => Ok(()),
            false => Err(ControlError::environment(
                "the quorum does not answer, and without it no other node could take the volume over: it stays where \
                 it is",
            )),
        }
    }
}
