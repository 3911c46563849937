//! Volumes with copies on several nodes: their copies in service, and what peers order.
//!
//! ```text
//! quorum, peers ◀─ Cluster ◀── Link (Outside) ◀── Replicated, on the pool's core
//!       │                        │ news
//!       ╰─ Local ─▶ PoolManager ◀─────╯ a thread: paths of hosts, what is shown
//!                        ╰─ chores, a thread a volume: what waits for a pool
//! ```

mod alone;
mod chores;
mod cluster;
mod convert;
mod delete;
mod follow;
mod grow;
mod heads;
mod hosts;
mod leave;
mod link;
mod make;
mod measure;
mod news;
mod orders;
mod place;
mod remembered;
mod replace;
mod reseat;
mod reserved;
mod seen;
mod services;
mod show;
#[cfg(test)]
mod tests;
mod verify;
mod volumes;
mod waiting;

pub(super) use self::orders::Peers;
pub(super) use self::services::ClusterNodes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ashlar_cluster::{Cluster, OrderError, Problem, volume_id};
use ashlar_nvme::log::AnaState;
use ashlar_nvme_target::{DecidedReservations, Shared};
use ashlar_replica::{NodeId, Position, ReadMode, ReplicaUuid, Seats, Size};
use ashlar_store::{ReplicaIdentity, VolumeInfo};
use uuid::Uuid;

use self::hosts::Hosts;
use self::link::Link;
use self::news::{Item, Known, Shown};
use self::remembered::Remembered;
use self::waiting::Left;
use super::pools::engine;
use super::serve::SharedCopy;
use super::{LivePool, PoolManager};
use crate::model::{ControlError, ErrorKind, Reads};
use crate::pool::{CopyDecider, PoolLink, ReplicaMail};
use crate::replica::{ReplicaPlan, ReplicaView};
use crate::service::Services;
use crate::{Events, ReplicaEntry, StateFile};

/// Ids of controllers that each member makes: hosts refuse a second controller of the same id.
const CONTROLLERS: u16 = 20_000;
/// How long a node that ends waits for others to take its volumes over.
const HAND_OVER_WAIT: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A node's part in its cluster.
pub(super) struct Replication {
    cluster: Cluster,
    news: Sender<Item>,
    /// The copies that are here, for peers that call on the cluster's thread: it must not wait for a pool.
    places: Mutex<BTreeMap<Uuid, CopyPlace>>,
    /// Copies that could not come into service, and may yet.
    waiting: Mutex<BTreeSet<Uuid>>,
    /// Copies that are none of their volumes', and in no service.
    left: Mutex<BTreeMap<Uuid, Left>>,
    /// Volumes that are being given their first copies.
    converting: Mutex<BTreeSet<Uuid>>,
    events: Arc<Events>,
    /// What other nodes know of who may connect.
    hosts: Hosts,
    /// As it is remembered.
    state: Arc<StateFile>,
    /// Has the quorum told how far pools have come.
    heads: Sender<()>,
    /// What other nodes are to tell their hosts of reservations.
    reserved: reserved::Told,
    /// What reads rely on here.
    reads: Reads,
    /// Copies durably keep how far others have come: all nodes have agreed on a version that has it.
    keeps_heads: Arc<AtomicBool>,
    /// What is known of volumes besides their copies' own account.
    shown: Arc<Mutex<BTreeMap<Uuid, Shown>>>,
    /// Who keeps services on volumes, and hears what other nodes say of them.
    services: OnceLock<Weak<Services>>,
}

/// Where a copy is.
#[derive(Clone)]
struct CopyPlace {
    volume: Uuid,
    /// POOL/VOLUME.
    name: String,
    pool_name: String,
    pool_id: Uuid,
    pool: PoolLink,
    number: u32,
    /// What is reserved of it.
    reservations: DecidedReservations,
}

/// A volume of a live pool that is a copy.
#[derive(Clone)]
pub(super) struct CopyVolume {
    pub(super) number: u32,
    pub(super) uuid: Uuid,
    pub(super) name: String,
}

/// What hosts were let in to a copy with.
struct AsServed {
    /// What is reserved of it.
    reservations: DecidedReservations,
    /// How large the volume is, if its key says so.
    size: Option<Size>,
}

impl CopyVolume {
    pub(super) fn of(volume: &VolumeInfo, pool: &str) -> Self {
        Self {
            number: volume.number,
            uuid: volume.uuid,
            name: format!("{pool}/{}", volume.name),
        }
    }

    /// Its pool's name.
    fn pool(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }
}

impl Replication {
    fn shown(&self) -> MutexGuard<'_, BTreeMap<Uuid, Shown>> {
        // Single insertions and removals.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<Uuid, CopyPlace>> {
        // Single insertions and removals.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        // Single insertions and removals.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) -> MutexGuard<'_, BTreeMap<Uuid, Left>> {
        // Replaced as a whole, or single removals.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn converting(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        // Single insertions and removals.
        self.converting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn is_drained(&self) -> bool {
        self.state.read().drained
    }

    /// Where other nodes serve a volume.
    fn others_portals(&self, members: &Seats<NodeId>) -> Vec<SocketAddr> {
        let config = self.cluster.config();
        let others = members.iter().map(|(_, node)| node);
        let others = others.filter(|&node| node != self.cluster.me());
        let others = others.filter_map(|node| config.node_by_id(node)?.portal);
        others.collect()
    }

    fn node_name(&self, node: NodeId) -> String {
        let config = self.cluster.config();
        let known = config.node_by_id(node);
        known.map_or_else(|| node.to_string(), |known| known.name.clone())
    }
}

fn told(problem: Problem) -> ControlError {
    let kind = match problem.kind {
        ashlar_cluster::Kind::Usage => ErrorKind::Usage,
        ashlar_cluster::Kind::NotFound => ErrorKind::NotFound,
        ashlar_cluster::Kind::Conflict => ErrorKind::Conflict,
        ashlar_cluster::Kind::Refused => ErrorKind::Refused,
        ashlar_cluster::Kind::Unauthorized => ErrorKind::Unauthorized,
        ashlar_cluster::Kind::Environment => ErrorKind::Environment,
        ashlar_cluster::Kind::Internal => ErrorKind::Internal,
    };
    ControlError::new(kind, problem.message)
}

/// What a peer has said to an order, with the peer's name.
fn refused(node: &str, error: OrderError) -> ControlError {
    match error {
        OrderError::Unreachable(why) => ControlError::environment(format!("node {node}: {why}")),
        OrderError::Refused { kind, message } => {
            told(Problem::new(kind, format!("node {node}: {message}")))
        }
    }
}

impl PoolManager {
    /// Takes part in a cluster: copies come into service, and peers are let in.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn join_cluster(
        manager: &Weak<Self>,
        cluster: Cluster,
        state: Arc<StateFile>,
        reads: Reads,
        events: Arc<Events>,
    ) -> Result<Replication, ControlError> {
        let remembered = Remembered::open(&state.beside("copies.toml"));
        let shown = Arc::new(Mutex::new(remembered.shown()));
        let known = Known {
            shown: Arc::clone(&shown),
            remembered,
        };
        let news = news::start(manager.clone(), known, events.clone());
        let news = news.map_err(|error| {
            ControlError::environment(format!("cannot start a thread: {error}"))
        })?;
        let heads = heads::start(manager.clone());
        let heads = heads.and_then(|heads| hosts::start(manager.clone()).map(|()| heads));
        let started = heads.and_then(|heads| Ok((heads, reserved::start(manager.clone())?)));
        let (heads, reserved) = started.map_err(|error| {
            ControlError::environment(format!("cannot start a thread: {error}"))
        })?;
        Ok(Replication {
            cluster,
            news,
            places: Mutex::default(),
            waiting: Mutex::default(),
            left: Mutex::default(),
            converting: Mutex::default(),
            hosts: Hosts::default(),
            events,
            state,
            heads,
            reserved,
            reads,
            keeps_heads: Arc::default(),
            shown,
            services: OnceLock::new(),
        })
    }

    /// The cluster's part.
    ///
    /// # Errors
    /// Usage: the node is in no cluster.
    fn replication(&self) -> Result<&Replication, ControlError> {
        self.replication.as_ref().ok_or_else(|| {
            ControlError::usage(
                "this node is in no cluster: make one with `ashlar cluster init`, or join one with `ashlar cluster join`",
            )
        })
    }

    /// How hosts reach a copy, until its replica says more.
    fn shared(
        &self,
        replication: &Replication,
        members: &Seats<NodeId>,
        position: Position,
    ) -> Shared {
        let first = position.index() as u16 * CONTROLLERS + 1;
        Shared {
            controller_ids: first..=first + CONTROLLERS - 1,
            state: AnaState::Inaccessible,
            portals: replication.others_portals(members),
            core: Some(super::serve::CORE),
            quiesce: Duration::ZERO,
        }
    }

    /// Serves a copy and brings it into service. Hosts get to it when it owns the volume. One that cannot come into
    /// service now is tried again.
    pub(super) fn take_up_copy(
        &self,
        pool: &mut LivePool,
        volume: &CopyVolume,
        identity: ReplicaIdentity,
    ) -> Result<(), ControlError> {
        let replication = self.replication().map_err(|error| {
            let why = format!("volume {} has copies on other nodes. {error}", volume.name);
            ControlError::environment(why)
        })?;
        let taken = self.try_copy(replication, pool, volume, identity);
        if let Err(error) = &taken {
            self.put_off(pool, volume, error)?;
        }
        taken
    }

    fn try_copy(
        &self,
        replication: &Replication,
        pool: &mut LivePool,
        volume: &CopyVolume,
        identity: ReplicaIdentity,
    ) -> Result<(), ControlError> {
        let members = self.members_of(replication, pool.id, volume)?;
        let shared = self.shared_of(replication, &members, volume, identity)?;
        self.catch_up_on_hosts(pool.id, volume.uuid, &members)?;
        let size = self.catch_up_size(replication, pool, volume)?;
        let access = self.state.read().access(pool.id, volume.uuid).cloned();
        let reservations = DecidedReservations::new(Arc::new(CopyDecider {
            pool: pool.link.clone(),
            volume: volume.number,
        }));
        let shared = SharedCopy {
            shared,
            decided: reservations.clone(),
        };
        self.serve_shared(pool, volume, access.as_ref(), shared)?;
        let as_served = AsServed { reservations, size };
        let started = self.start_replica(pool, volume, identity, as_served);
        if started.is_ok() && size.is_some() {
            // Who has connected meanwhile has seen what the pool has.
            self.show_in(pool, volume.number, volume.uuid)?;
        }
        started
    }

    /// Why a volume that has copies on other nodes is not in service here.
    pub(super) fn why_no_copy(&self, volume: Uuid) -> String {
        let Some(replication) = &self.replication else {
            return "it has copies on other nodes, and this one is in no cluster: start it as the node that it was, or \
                    have it join that cluster"
                .to_owned();
        };
        let shown = replication.shown().get(&volume).cloned();
        let left = || Some(replication.left().get(&volume)?.why.to_owned());
        let why = shown.and_then(|shown| shown.alarm).or_else(left);
        why.unwrap_or_else(|| "its copy is not in service on this node".to_owned())
    }

    /// How hosts reach a copy, if it can be one.
    fn shared_of(
        &self,
        replication: &Replication,
        members: &Seats<NodeId>,
        volume: &CopyVolume,
        identity: ReplicaIdentity,
    ) -> Result<Shared, ControlError> {
        let place = Position::new(identity.position.into());
        let place = place.filter(|&place| members.get(place).is_some());
        let place = place.ok_or_else(|| {
            ControlError::environment(format!(
                "volume {}: this is its copy {}, which it has not",
                volume.name, identity.position
            ))
        })?;
        Ok(self.shared(replication, members, place))
    }

    /// Brings a copy that is served into service.
    fn start_replica(
        &self,
        pool: &LivePool,
        volume: &CopyVolume,
        identity: ReplicaIdentity,
        as_served: AsServed,
    ) -> Result<(), ControlError> {
        let AsServed { reservations, size } = as_served;
        let replication = self.replication()?;
        let members = self.members_of(replication, pool.id, volume)?;
        replication.look_at_agreement();
        let plan = ReplicaPlan {
            name: volume.name.clone(),
            volume: volume_id(volume.uuid),
            node: replication.cluster.me(),
            incarnation: replication.cluster.incarnation(),
            uuid: ReplicaUuid(identity.uuid.into_bytes()),
            members,
            reservations: reservations.clone(),
            size,
            is_old_image: self.is_old_image(replication, pool, volume)?,
            reads: match replication.reads {
                Reads::Leased => ReadMode::Leased,
                Reads::Confirmed => ReadMode::Confirmed,
            },
            keeps_heads: replication.keeps_heads.clone(),
        };
        let link = Link {
            cluster: replication.cluster.clone(),
            volume: volume.uuid,
            number: volume.number,
            pool: pool.link.clone(),
            news: replication.news.clone(),
        };
        let started = pool
            .link
            .ask_replica(volume.number, |reply| ReplicaMail::Start {
                plan,
                outside: Box::new(link),
                reply,
            });
        started.map_err(engine)?.map_err(ControlError::internal)?;
        replication.places().insert(
            volume.uuid,
            CopyPlace {
                volume: volume.uuid,
                name: volume.name.clone(),
                pool_name: volume.pool().to_owned(),
                pool_id: pool.id,
                pool: pool.link.clone(),
                number: volume.number,
                reservations,
            },
        );
        Ok(())
    }

    /// The copies that are here.
    fn copies(&self) -> Vec<CopyPlace> {
        let replication = self.replication.as_ref();
        replication.map_or_else(Vec::new, |known| known.places().values().cloned().collect())
    }

    /// Whether a volume that is in service here has copies on other nodes.
    pub(super) fn is_copy(&self, volume: Uuid) -> bool {
        let replication = self.replication.as_ref();
        replication.is_some_and(|known| known.places().contains_key(&volume))
    }

    /// A copy goes out of service.
    fn forget_copy(&self, volume: Uuid) {
        if let Some(replication) = &self.replication {
            replication.places().remove(&volume);
            replication.shown().remove(&volume);
            replication.left().remove(&volume);
        }
    }

    /// The copies of a pool that goes out of service.
    pub(super) fn forget_copies_of(&self, pool: &str) {
        if let Some(replication) = &self.replication {
            replication
                .places()
                .retain(|_, place| place.pool_name != pool);
        }
    }

    /// Who has copies: as remembered, or as the volume's key says.
    fn members_of(
        &self,
        replication: &Replication,
        pool: Uuid,
        volume: &CopyVolume,
    ) -> Result<Seats<NodeId>, ControlError> {
        if let Some(known) = self.state.read().replica(pool, volume.uuid) {
            let seats = Seats::try_from(known.members.clone()).map_err(ControlError::internal)?;
            return Ok(seats.map(NodeId));
        }
        let key = replication.read_key(volume.uuid)?.ok_or_else(|| {
            ControlError::environment(format!(
                "volume {}: who has its other copies is neither remembered nor in the quorum",
                volume.name
            ))
        })?;
        let members = key.members.map(|member| member.node);
        self.remember_copy(pool, volume.uuid, &members)?;
        Ok(members)
    }

    fn remember_copy(
        &self,
        pool: Uuid,
        volume: Uuid,
        members: &Seats<NodeId>,
    ) -> Result<(), ControlError> {
        let members = Vec::from(members.map(|node| node.0));
        self.state.update(|state| {
            let stays = state.replica(pool, volume).is_some_and(|known| known.stays);
            state.put_replica(ReplicaEntry {
                pool,
                volume,
                members,
                stays,
            });
        })
    }

    fn replica_view(
        &self,
        pool: &LivePool,
        number: u32,
    ) -> Result<Option<ReplicaView>, ControlError> {
        let look = |reply| ReplicaMail::Look { reply };
        pool.link.ask_replica(number, look).map_err(engine)
    }

    /// Has other nodes take over what a pool's copies own, as far as that is quick: hosts go on there.
    /// None could without the quorum.
    pub(super) fn hand_over(&self, pool: &LivePool) {
        let Ok(replication) = self.replication() else {
            return;
        };
        if self.asks_who_decides().is_err() {
            return;
        }
        let mut owned = self.owned(pool);
        owned.retain(|(_, view)| !view.is_unproven);
        let views: Vec<&ReplicaView> = owned.iter().map(|(_, view)| view).collect();
        let heirs = replication.heirs_of(&views);
        for ((number, _), to) in owned.iter().zip(heirs) {
            if let Some(to) = to {
                pool.link.post_to_replica(*number, ReplicaMail::Move { to });
            }
        }
        // What was asked before takes none of their time.
        let begun = Instant::now();
        while !owned.is_empty() && begun.elapsed() < HAND_OVER_WAIT {
            std::thread::sleep(LOOK_EVERY);
            owned = self.owned(pool);
            owned.retain(|(_, view)| !view.connected.is_empty() && !view.is_unproven);
        }
    }

    fn owned(&self, pool: &LivePool) -> Vec<(u32, ReplicaView)> {
        if self.replication.is_none() {
            return Vec::new();
        }
        let numbers = pool.volumes.keys().copied();
        let views = numbers.filter_map(|number| {
            let view = self.replica_view(pool, number).ok()??;
            view.owns.is_some().then_some((number, view))
        });
        views.collect()
    }
}
