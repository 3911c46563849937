//! Which nodes have copies of a replicated volume, changed while hosts use it.
//!
//! ```text
//! more:  an empty copy there ─▶ the owner puts it into the key, and gives it everything ─▶ it counts once it is in sync
//! fewer: the owner takes it out of the key ─▶ what is left of it is deleted
//! ```
//!
//! Only the owner writes the key, by compare-and-swap. An order that is given again goes on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_cluster::ClusterConfig;
use ashlar_reactor::Clock;
use ashlar_replica::quorum::{Question, Reply};
use ashlar_replica::{
    Key, MemberId, Members, NodeId, Position, ReplicaUuid, Revision, Seats, Wish,
};
use tracing::{info, warn};
use uuid::Uuid;

use super::convert::wanted;
use super::delete::Doomed;
use super::make::{NewCopy, Seat};
use super::orders::Order;
use super::{LOOK_EVERY, Replication};
use crate::manager::PoolManager;
use crate::manager::serve::nqn;
use crate::model::{
    ControlError, CreateVolume, ErrorKind, ReplicateVolume, VolumeName, VolumeStatus,
};
use crate::pool::ReplicaMail;

/// How long the owner may take to change the key.
const CHANGE_WAIT: Duration = Duration::from_secs(10);
/// For so long an owner tries what it was asked for: what is not done then is not done after the command has failed.
const WISH_LASTS: Duration = Duration::from_secs(3);

/// How long a node may take to delete what is left of its copy: it may be gone.
const DROP_WAIT: Duration = Duration::from_secs(5);
/// How long one may take that is told of others' copies.
const SPREAD_WAIT: Duration = Duration::from_secs(1);

/// A key as it was read.
pub(super) struct Read {
    pub(super) revision: Revision,
    pub(super) key: Key,
}

/// What is to become of a volume's copies.
enum Step {
    Give(NodeId),
    Take(Position),
}

impl Replication {
    /// A volume's key, and how new it is.
    pub(super) fn read_newest(&self, volume: Uuid) -> Result<Read, ControlError> {
        match self.ask(volume, Question::Read) {
            Reply::Holds(Some(held)) => {
                let key = Key::decode(&held.value);
                let key = key.map_err(|error| ControlError::environment(error.to_string()))?;
                let revision = held.revision;
                Ok(Read { revision, key })
            }
            Reply::Holds(None) => Err(ControlError::environment(format!(
                "the quorum has no key of volume {volume}"
            ))),
            Reply::Swapped(_) | Reply::Unknown => Err(ControlError::environment(
                "the quorum does not answer: who has copies cannot change",
            )),
        }
    }

    /// Whether a copy may be taken away, by what the key says.
    fn may_go(&self, name: &VolumeName, key: &Key, place: Position) -> Result<(), ControlError> {
        let Some(member) = key.members.get(place) else {
            return Ok(());
        };
        let node = self.node_name(member.node);
        let left = key.in_sync.without(place);
        if left.is_empty() {
            return Err(ControlError::conflict(format!(
                "volume {name}: the copy on node {node} is the only one in sync; it stays until another is"
            )));
        }
        let behind = key.members.without(place).positions().minus(left);
        if key.in_sync.has(place) && !behind.is_empty() && left.count() < 2 {
            let behind = behind.iter().filter_map(|at| key.members.get(at));
            let behind: Vec<String> = behind.map(|member| self.node_name(member.node)).collect();
            return Err(ControlError::conflict(format!(
                "volume {name}: without the copy on node {node} one in sync would be left, while that of {} is not: wait \
                 until it is (`volume show {name}`), or take that away first",
                behind.join(", ")
            )));
        }
        Ok(())
    }

    fn names(&self, members: &Members) -> Vec<String> {
        let nodes = members.iter().map(|(_, member)| member.node);
        nodes.map(|node| self.node_name(node)).collect()
    }

    /// What is to be done for so many copies, on these nodes if they are named.
    fn steps(&self, key: &Key, request: &ReplicateVolume) -> Result<Vec<Step>, ControlError> {
        let count = usize::from(request.replicas);
        let named = self.named(&request.nodes)?;
        let (has, node_of) = (key.members.count(), |at| {
            key.members.get(at).map(|member| member.node)
        });
        let is_named = |at: &Position| node_of(*at).is_some_and(|node| named.contains(&node));
        let stays = |at: &Position| named.is_empty() || is_named(at);
        let mut give: Vec<NodeId> = named.clone();
        give.retain(|&node| key.position(node).is_none());
        let mut take: Vec<Position> = key.members.positions().iter().collect();
        if named.is_empty() {
            give = self.others_for(key, count.saturating_sub(has))?;
            // Who has it and is in sync stays, the owner first of all.
            let owner = key.position(key.owner.node);
            take.sort_by_key(|&at| {
                (
                    key.in_sync.has(at),
                    Some(at) == owner,
                    std::cmp::Reverse(at),
                )
            });
            take.truncate(has.saturating_sub(count));
        } else {
            take.retain(|at| !stays(at));
        }
        if !give.is_empty() && !take.is_empty() {
            let taken = take.iter().filter_map(|&at| node_of(at));
            let taken: Vec<String> = taken.map(|node| self.node_name(node)).collect();
            return Err(ControlError::usage(format!(
                "this would take the copy of {} away before another is in sync: give it more first, or have one node take \
                 the place of another with `ashlar node replace`",
                taken.join(", ")
            )));
        }
        let give = give.into_iter().map(Step::Give);
        Ok(give.chain(take.into_iter().map(Step::Take)).collect())
    }

    /// Nodes by their names, each once.
    pub(super) fn named(&self, names: &[String]) -> Result<Vec<NodeId>, ControlError> {
        let mut nodes = Vec::new();
        for name in names {
            let node = self.node_named(name)?;
            if nodes.contains(&node) {
                return Err(ControlError::usage(format!("node {name} is named twice")));
            }
            nodes.push(node);
        }
        Ok(nodes)
    }

    /// A node by its name.
    pub(super) fn node_named(&self, name: &str) -> Result<NodeId, ControlError> {
        let config = self.cluster.config();
        let node = config.node(name).map(|node| node.id);
        node.ok_or_else(|| {
            ControlError::not_found(format!("cluster {} has no node {name}", config.name))
        })
    }

    /// So many nodes that have none.
    fn others_for(&self, key: &Key, count: usize) -> Result<Vec<NodeId>, ControlError> {
        let config = self.cluster.config();
        let others = config.nodes.iter().map(|node| node.id);
        let others = others.filter(|&node| key.position(node).is_none());
        let others = others.filter(|&node| match node == self.cluster.me() {
            true => !self.is_drained(),
            false => self.asks_whether_drained(node) == Some(false),
        });
        let found: Vec<NodeId> = others.take(count).collect();
        match found.len() < count {
            false => Ok(found),
            true => Err(ControlError::environment(format!(
                "{count} more copies need {count} nodes without one: of the {} of cluster {}, {} are reached and not \
                 drained",
                config.nodes.len(),
                config.name,
                found.len()
            ))),
        }
    }
}

impl PoolManager {
    /// The other nodes that have copies of a volume, as its key says: what the copy here was told may be old. As it was
    /// told, if there is no key any more.
    ///
    /// # Errors
    /// Environment: the quorum does not answer. Who has copies is not known then.
    pub(super) fn others_with_copy(&self, volume: Uuid) -> Result<Vec<NodeId>, ControlError> {
        let replication = self.replication()?;
        let members = match replication.read_key(volume)? {
            Some(key) => key.members.map(|member| member.node),
            None => self.with_copy(volume, |pool, number| {
                let view = self.replica_view(pool, number)?;
                Ok(view.map_or(Seats::NONE, |view| view.members))
            })?,
        };
        let nodes = members.iter().map(|(_, node)| node);
        let me = replication.cluster.me();
        Ok(nodes.filter(|&node| node != me).collect())
    }

    /// Has all other nodes with copies hear something.
    pub(super) fn order_others(&self, volume: Uuid, order: &Order) -> Result<(), ControlError> {
        let replication = self.replication()?;
        self.each_other(volume, |node| replication.order(node, order).map(drop))
    }

    /// Does something for all other nodes with copies, also one that gets a copy meanwhile.
    pub(super) fn each_other(
        &self,
        volume: Uuid,
        act: impl Fn(NodeId) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let mut done = BTreeSet::new();
        loop {
            let mut others = self.others_with_copy(volume)?;
            others.retain(|node| !done.contains(node));
            if others.is_empty() {
                return Ok(());
            }
            for node in others {
                act(node)?;
                done.insert(node);
            }
        }
    }

    /// Gives a replicated volume more copies, or fewer.
    pub(super) fn change_copies(
        &self,
        name: &VolumeName,
        request: &ReplicateVolume,
        status: &VolumeStatus,
    ) -> Result<VolumeStatus, ControlError> {
        let replication = self.replication()?;
        let key = replication.read_newest(status.uuid)?.key;
        let steps = replication.steps(&key, request)?;
        if steps.is_empty() {
            return Err(ControlError::conflict(format!(
                "volume {name} has copies on {} already",
                replication.names(&key.members).join(", ")
            )));
        }
        let mine = key.position(replication.cluster.me());
        if steps
            .iter()
            .any(|step| matches!(step, Step::Take(at) if Some(*at) == mine))
        {
            return Err(ControlError::usage(format!(
                "this node's copy of volume {name} would go: order it at a node whose copy stays"
            )));
        }
        for step in steps {
            match step {
                Step::Give(node) => self.give_seat(name, status, node)?,
                Step::Take(at) => self.take_seat(name, status.uuid, at)?,
            }
        }
        self.await_owner(name, |owner| owner.is_some())
    }

    /// Gives a node a copy.
    pub(super) fn give_seat(
        &self,
        name: &VolumeName,
        status: &VolumeStatus,
        node: NodeId,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let volume = status.uuid;
        let key = replication.read_newest(volume)?.key;
        let place = key.members.free().ok_or_else(|| {
            ControlError::conflict(format!(
                "volume {name} has copies on {}: there is no place for another",
                replication.names(&key.members).join(", ")
            ))
        })?;
        let copy = self.make_for(name, status, &key.members, Seat { place, node })?;
        self.seat(name, status, &copy)
    }

    /// Gives a node a copy where another has one: for both there is no place. The new one is made before the old one is
    /// taken away.
    pub(super) fn swap_seat(
        &self,
        name: &VolumeName,
        status: &VolumeStatus,
        node: NodeId,
        old: Position,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let key = replication.read_newest(status.uuid)?.key;
        replication.may_go(name, &key, old)?;
        let seat = Seat { place: old, node };
        let copy = self.make_for(name, status, &key.members, seat)?;
        if let Err(error) = self.take_seat(name, status.uuid, old) {
            let _ = self.order_of(replication, node, copy.drop_order());
            return Err(error);
        }
        self.seat(name, status, &copy)
    }

    /// An empty copy for a place.
    fn make_for(
        &self,
        name: &VolumeName,
        status: &VolumeStatus,
        members: &Members,
        seat: Seat,
    ) -> Result<NewCopy, ControlError> {
        let Seat { place, node } = seat;
        let replication = self.replication()?;
        let replica = ReplicaUuid::NEW;
        let members = members.with(place, MemberId { node, replica });
        let wanted = CreateVolume {
            replicas: members.count() as u8,
            ..wanted(name, status)
        };
        let nodes = members.map(|member| member.node);
        let copy = NewCopy::at(&wanted, status.uuid, seat, nodes);
        let copy = copy.holding(status.used_bytes);
        let order = Order::MakeCopy(Box::new(copy.clone()));
        let node = replication.node_name(node);
        self.order_of(replication, copy.node(), order)?;
        info!(volume = %status.uuid, "volume {name}: node {node} gets a copy");
        Ok(copy)
    }

    /// A copy that was made gets its place, and comes into service.
    fn seat(
        &self,
        name: &VolumeName,
        status: &VolumeStatus,
        copy: &NewCopy,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let (volume, node, replica) = (status.uuid, copy.node(), ReplicaUuid::NEW);
        let changed = replication.read_newest(volume).and_then(|newest| {
            let place = Position::new(copy.position.into());
            let place = place.filter(|&place| newest.key.members.get(place).is_none());
            let place = place.ok_or_else(|| {
                ControlError::conflict(format!(
                    "volume {name} has another copy meanwhile: look at `volume show {name}`"
                ))
            })?;
            let members = newest.key.members.with(place, MemberId { node, replica });
            self.reseat(volume, members, |_| Ok(()))
        });
        // Who may connect can have changed since the copy was made, by a node that did not know of it yet.
        let told = changed.and_then(|()| self.tell_hosts_of(volume, node));
        let started =
            told.and_then(|()| self.order_of(replication, node, Order::StartCopy { volume }));
        if let Err(error) = started {
            // Unless the key has it all the same, it is none of the volume's.
            if replication
                .read_newest(volume)?
                .key
                .position(node)
                .is_none()
            {
                let _ = self.order_of(replication, node, copy.drop_order());
            }
            return Err(error);
        }
        self.spread_after(volume)
    }

    /// The nodes look at the key, if this one still has a copy: who asked may have had the one that was taken away.
    fn spread_after(&self, volume: Uuid) -> Result<(), ControlError> {
        match self.place_of(volume) {
            Ok(_) => self.spread_seats(volume),
            Err(_) => Ok(()),
        }
    }

    /// Takes a copy away.
    pub(super) fn take_seat(
        &self,
        name: &VolumeName,
        volume: Uuid,
        place: Position,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let key = replication.read_newest(volume)?.key;
        let Some(member) = key.members.get(place) else {
            return Ok(());
        };
        let node = replication.node_name(member.node);
        replication.may_go(name, &key, place)?;
        if key.owner.node == member.node {
            let left = key.in_sync.without(place);
            let to = left.iter().find_map(|at| key.members.get(at));
            let to = to.ok_or_else(|| ControlError::internal("no copy in sync is left"))?;
            let order = Order::Move {
                volume,
                to: to.node,
            };
            self.order_of(replication, member.node, order)?;
            self.await_key(volume, |key| key.owner.node != member.node)?;
        }
        let may = |key: &Key| replication.may_go(name, key, place);
        self.reseat(volume, key.members.without(place), may)?;
        info!(%volume, "volume {name}: the copy of node {node} is taken away");
        // Which one it is is known if it has been in sync.
        let is_known = member.replica != ReplicaUuid::NEW;
        let replica = is_known.then(|| Uuid::from_bytes(member.replica.0));
        let doomed = Doomed {
            replica,
            only_unused: false,
        };
        let order = Order::DropCopy {
            volume,
            replica,
            only_unused: false,
        };
        let dropped = match member.node == replication.cluster.me() {
            true => self.drop_copy(volume, doomed),
            false => replication
                .order_within(DROP_WAIT, member.node, &order)
                .map(drop),
        };
        match dropped {
            Err(error) if error.kind != ErrorKind::NotFound => {
                let text = format!(
                    "what is left of its copy on node {node} is not deleted: {}",
                    error.message
                );
                warn!(%volume, "volume {name}: {text}");
                replication.events.add("left", Some(name.to_string()), text);
            }
            _ => {}
        }
        self.spread_after(volume)
    }

    /// Has the owner change who has copies, and waits until the key says so. Whether it may is looked at anew with each
    /// key that is read, and the owner does it for that key only.
    pub(super) fn reseat(
        &self,
        volume: Uuid,
        members: Members,
        may: impl Fn(&Key) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let begun = Instant::now();
        let mut trouble = None;
        loop {
            let Read { revision, key } = replication.read_newest(volume)?;
            if key.members.map(|one| one.node) == members.map(|one| one.node) {
                return Ok(());
            }
            may(&key)?;
            let owner = key.owner.node;
            if begun.elapsed() > CHANGE_WAIT {
                let why = trouble.map_or_else(String::new, |why| format!(": {why}"));
                return Err(ControlError::environment(format!(
                    "its owner, node {}, has not changed who has copies within {} s{why}",
                    replication.node_name(owner),
                    CHANGE_WAIT.as_secs()
                )));
            }
            // What is asked for later could be done after this command has failed.
            let left = (CHANGE_WAIT - WISH_LASTS).saturating_sub(begun.elapsed());
            if !left.is_zero() {
                let order = Order::Reseat {
                    volume,
                    revision,
                    members: Vec::from(members),
                };
                trouble = self.wish(replication, owner, left, order)?;
            }
            std::thread::sleep(LOOK_EVERY * 10);
        }
    }

    /// Has an owner hear what is wanted. Why it has not, if it may the next time.
    fn wish(
        &self,
        replication: &Replication,
        owner: NodeId,
        limit: Duration,
        order: Order,
    ) -> Result<Option<String>, ControlError> {
        let asked = match owner == replication.cluster.me() {
            true => self.obey(owner, order).map(drop),
            false => replication.order_within(limit, owner, &order).map(drop),
        };
        match asked {
            Ok(()) => Ok(None),
            Err(error) => match error.kind {
                ErrorKind::Environment | ErrorKind::Conflict | ErrorKind::NotFound => {
                    Ok(Some(error.message))
                }
                _ => Err(error),
            },
        }
    }

    pub(super) fn await_key(
        &self,
        volume: Uuid,
        is_wanted: impl Fn(&Key) -> bool,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let begun = Instant::now();
        while !is_wanted(&replication.read_newest(volume)?.key) {
            if begun.elapsed() > CHANGE_WAIT {
                return Err(ControlError::environment(format!(
                    "volume {volume} has not changed its owner within {} s",
                    CHANGE_WAIT.as_secs()
                )));
            }
            std::thread::sleep(LOOK_EVERY * 5);
        }
        Ok(())
    }

    /// Has the copy here, if it owns the volume, change who has copies.
    pub(super) fn reseat_here(
        &self,
        volume: Uuid,
        revision: Revision,
        members: Vec<Option<MemberId>>,
    ) -> Result<(), ControlError> {
        let until = Clock.now() + WISH_LASTS;
        let members = Members::try_from(members).map_err(ControlError::usage)?;
        let newest = self.replication()?.read_newest(volume)?;
        if newest.revision != revision {
            return Err(ControlError::conflict(
                "the volume's key has changed meanwhile: look again with `volume show`",
            ));
        }
        let place = self.place_of(volume)?;
        let wish = Wish {
            members,
            in_sync: newest.key.in_sync,
            until,
        };
        place
            .pool
            .post_to_replica(place.number, ReplicaMail::Reseat(wish));
        Ok(())
    }

    /// All nodes with copies look at the key: who is not reached looks when it needs to.
    pub(super) fn spread_seats(&self, volume: Uuid) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let key = replication.read_newest(volume)?.key;
        for (_, member) in key.members.iter() {
            let order = Order::LookAtSeats { volume };
            let _ = match member.node == replication.cluster.me() {
                true => self.look_at_seats(volume),
                false => replication
                    .order_within(SPREAD_WAIT, member.node, &order)
                    .map(drop),
            };
        }
        Ok(())
    }

    /// The copy here hears who has copies.
    pub(super) fn look_at_seats(&self, volume: Uuid) -> Result<(), ControlError> {
        let Read { revision, key } = self.replication()?.read_newest(volume)?;
        let place = self.place_of(volume)?;
        let mail = ReplicaMail::Seats {
            revision,
            members: key.members,
            size: key.size,
        };
        place.pool.post_to_replica(place.number, mail);
        match key.size {
            Some(size) => self.remember_size(volume, size),
            None => Ok(()),
        }
    }

    /// It is remembered who has copies, and hosts hear where else the volume is.
    pub(super) fn take_seats(&self, volume: Uuid, members: &Seats<NodeId>) {
        let Some(replication) = &self.replication else {
            return;
        };
        let remembered = self
            .with_copy(volume, |pool, _| Ok(pool.id))
            .and_then(|pool| self.remember_copy(pool, volume, members));
        if let Err(error) = remembered {
            warn!(%volume, "volume {volume}: who has copies is not remembered: {}", error.message);
        }
        self.tell_portals(replication, volume, members);
    }

    fn tell_portals(&self, replication: &Replication, volume: Uuid, members: &Seats<NodeId>) {
        let portals = replication.others_portals(members);
        if let Err(error) = self.target.set_portals(&nqn(volume), portals) {
            warn!(%volume, "volume {volume}: hosts are not told of other portals: {error}");
        }
    }

    /// Nodes may have other addresses since: hosts hear of them.
    pub(super) fn follow_addresses(&self, known: &mut Option<Arc<ClusterConfig>>) {
        let Some(replication) = &self.replication else {
            return;
        };
        let config = replication.cluster.config();
        if known
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, &config))
        {
            return;
        }
        *known = Some(config);
        for place in self.copies() {
            let state = self.state.read();
            let members = state.replica(place.pool_id, place.volume);
            let members = members.map(|known| Seats::try_from(known.members.clone()));
            if let Some(Ok(members)) = members {
                self.tell_portals(replication, place.volume, &members.map(NodeId));
            }
        }
    }
}
