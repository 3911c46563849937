//! A replicated volume becomes larger, while hosts use it.
//!
//! ```text
//! the key says the size that there is ─▶ each copy grows in its pool ─▶ the key says the new size, by its owner ─▶ hosts
//! hear of it, at every node
//! ```
//!
//! Only the last but one makes the volume larger. Until then what copies have more is nothing of the volume's, and the
//! command that is given again goes on.

use std::time::{Duration, Instant};

use ashlar_reactor::Clock;
use ashlar_replica::quorum::{Question, Reply};
use ashlar_replica::{Growth, Key, Members, NodeId, Position, ReplicaUuid, Size};
use ashlar_store::{Manage, OwnPlane, ReplicaChange, ReplicaPromise, ReplicaSize, VolumeInfo};
use tracing::{info, warn};
use uuid::Uuid;

use super::orders::Order;
use super::{CopyPlace, CopyVolume, LOOK_EVERY, Replication};
use crate::manager::pools::engine;
use crate::manager::serve::{nqn, served};
use crate::manager::volumes::GRANULE;
use crate::manager::{LivePool, PoolManager};
use crate::model::{ControlError, ErrorKind, ResizeVolume, VolumeName, VolumeStatus};
use crate::pool::{PoolLink, ReplicaMail};

/// How long an owner may take to change the key.
const WISH_LASTS: Duration = Duration::from_secs(3);
/// How long a copy may keep something of others that are in sync again: its pool writes such things lazily.
const QUIET_WAIT: Duration = Duration::from_secs(5);

impl Replication {
    /// Only with all copies in sync: what one lacks is remembered by granules that others have.
    fn may_grow(&self, name: &VolumeName, key: &Key) -> Result<(), ControlError> {
        let absent = key.absent();
        if absent.is_empty() {
            return Ok(());
        }
        let behind = absent.iter().filter_map(|at| key.members.get(at));
        let behind: Vec<String> = behind.map(|member| self.node_name(member.node)).collect();
        Err(ControlError::conflict(format!(
            "volume {name} grows when all its copies are in sync, and that of {} is not: wait until it is (`volume show \
             {name}`), or take it away with `volume replicate`",
            behind.join(", ")
        )))
    }
}

impl Replication {
    /// Why a copy does not come into service by a key that says less than it has said before.
    fn refuses_backup(
        &self,
        volume: &CopyVolume,
        says: Option<Size>,
        said: ReplicaSize,
    ) -> ControlError {
        let ReplicaSize { granules, register } = said;
        let bytes = |size: Size| size.hosts() * GRANULE;
        ControlError::environment(format!(
            "volume {name}: the quorum's key of it says {says}, and has said {had} before: it comes from a backup of before \
             the volume grew. Nothing is lost; no copy that knows serves by it. Put a newer key back; if there is none, \
             write \"format\":3 and \"size\":{{\"granules\":{granules},\"register\":{register}}} into \
             /ashlar/{cluster}/volume/{uuid} with `etcdctl put`. The copy is tried again all the time",
            name = volume.name,
            says = says.map_or("no size".into(), |size| format!("{} bytes", bytes(size))),
            had = bytes(Size { granules, register }),
            cluster = self.cluster.config().name,
            uuid = volume.uuid,
        ))
    }
}

impl PoolManager {
    /// Makes a replicated volume larger.
    pub(in crate::manager) fn grow_replicated(
        &self,
        name: &VolumeName,
        request: &ResizeVolume,
    ) -> Result<VolumeStatus, ControlError> {
        let replication = self.replication()?;
        let status = self.one_volume(name)?;
        let volume = status.uuid;
        if request.bytes < status.bytes {
            return Err(ControlError::conflict(format!(
                "volume {name} has copies on several nodes and {} bytes: it can be made larger, and not smaller",
                status.bytes
            )));
        }
        let key = replication.read_newest(volume)?.key;
        replication.may_grow(name, &key)?;
        let before = self.size_of(volume, &key)?;
        let hosts = request.bytes / GRANULE;
        if hosts > before.hosts() {
            let wanted = before.grown(hosts);
            let wanted = wanted.filter(|_| before.register.is_multiple_of(Size::GAP));
            let wanted = wanted.ok_or_else(|| unaligned(name, before))?;
            let members = key.members;
            self.wish_size(volume, before, members)?;
            if key.size.is_none() {
                self.spread_seats(volume)?;
            }
            let granules = wanted.granules;
            for (_, member) in members.iter() {
                let order = Order::GrowCopy { volume, granules };
                self.order_of(replication, member.node, order)?;
            }
            self.wish_size(volume, wanted, members)?;
            info!(%volume, "volume {name}: it has {} bytes from now on", request.bytes);
        }
        self.tell_size(replication, volume)?;
        self.one_volume(name)
    }

    /// The size that the key says, or that of the copy here.
    pub(super) fn size_of(&self, volume: Uuid, key: &Key) -> Result<Size, ControlError> {
        if let Some(size) = key.size {
            return Ok(size);
        }
        self.with_copy(volume, |pool, number| {
            let view = self.replica_view(pool, number)?;
            let view = view.ok_or_else(|| ControlError::conflict("the copy here has stopped"))?;
            Ok(view.size)
        })
    }

    /// Has the owner put a size into the key, if the copies are still those that have the room for it.
    pub(super) fn wish_size(
        &self,
        volume: Uuid,
        size: Size,
        members: Members,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let owner = replication.read_newest(volume)?.key.owner.node;
        let members = members.into();
        let order = Order::Resize {
            volume,
            size,
            members,
        };
        self.order_of(replication, owner, order)
    }

    /// All nodes with copies tell their hosts how large the volume is.
    fn tell_size(&self, replication: &Replication, volume: Uuid) -> Result<(), ControlError> {
        self.look_at_seats(volume)?;
        self.each_other(volume, |node: NodeId| {
            let told = replication.order(node, &Order::LookAtSeats { volume });
            told.map(drop).map_err(|error| ControlError {
                message: format!(
                    "the volume is larger; hosts that use it by node {} do not know yet, give the command again: {}",
                    replication.node_name(node),
                    error.message
                ),
                ..error
            })
        })
    }

    /// The copy here gets the room, if the key says how large the volume is without it.
    pub(super) fn grow_copy(&self, volume: Uuid, granules: u64) -> Result<(), ControlError> {
        let replication = self.replication()?;
        if replication.read_newest(volume)?.key.size.is_none() {
            return Err(ControlError::conflict(
                "the volume's key does not say its size: give the command again",
            ));
        }
        // What the key says is remembered before what the pool has says less of it.
        self.look_at_seats(volume)?;
        self.await_room(volume, granules)?;
        // One that is not in service begins with what its pool has.
        self.place_of(volume)?.tell_grown()
    }

    /// The pool gives the copy its room, as soon as that keeps nothing of others.
    fn await_room(&self, volume: Uuid, granules: u64) -> Result<(), ControlError> {
        let begun = Instant::now();
        loop {
            let given = self
                .place_of(volume)
                .and_then(|place| place.give_room(granules));
            match given {
                Err(error)
                    if error.kind != ErrorKind::Environment && begun.elapsed() <= QUIET_WAIT =>
                {
                    std::thread::sleep(LOOK_EVERY * 10);
                }
                given => return given,
            }
        }
    }

    /// The copy here has less than its owner speaks of: it gets the room that the key says.
    pub(super) fn give_room(&self, volume: Uuid) -> Result<(), ControlError> {
        let size = self.replication()?.read_newest(volume)?.key.size;
        let Some(size) = size else {
            return Err(ControlError::conflict(
                "the volume's key does not say its size",
            ));
        };
        self.await_room(volume, size.granules)?;
        self.remember_size(volume, size)?;
        self.place_of(volume)?.tell_grown()
    }

    /// The copy here, if it owns the volume, puts a size into the key.
    pub(super) fn resize_here(
        &self,
        volume: Uuid,
        size: Size,
        members: Members,
    ) -> Result<(), ControlError> {
        let place = self.place_of(volume)?;
        let begun = Instant::now();
        while begun.elapsed() < WISH_LASTS * 2 {
            let until = Clock.now() + WISH_LASTS;
            let mail = ReplicaMail::Resize(Growth {
                size,
                members,
                until,
            });
            place.pool.post_to_replica(place.number, mail);
            for _ in 0..10 {
                let key = self.replication()?.read_newest(volume)?.key;
                let view =
                    self.with_copy(volume, |pool, number| self.replica_view(pool, number))?;
                // Hosts hear of it, and copies grow, when it is so here.
                if key.size == Some(size)
                    && view.is_some_and(|view| view.serves && view.said_size == Some(size))
                {
                    return self.remember_size(volume, size);
                }
                if key.members != members {
                    return Err(ControlError::conflict(
                        "the volume has another copy meanwhile, which may lack the room: give the command again",
                    ));
                }
                std::thread::sleep(LOOK_EVERY * 5);
            }
        }
        Err(ControlError::environment(
            "its owner has not changed the volume's size: `volume show` tells whether all copies are in sync; give the \
             command again",
        ))
    }

    /// The copy here remembers what the key says of the volume's size.
    pub(super) fn remember_size(&self, volume: Uuid, size: Size) -> Result<(), ControlError> {
        // A pool that hangs must not keep the others' from being looked at.
        let place = self.place_of(volume)?;
        note_size(&place.pool, place.number, size)
    }

    /// A copy from before the volume grew gets its room before it comes into service. The volume's size, if the key says
    /// it.
    pub(super) fn catch_up_size(
        &self,
        replication: &Replication,
        pool: &LivePool,
        volume: &CopyVolume,
    ) -> Result<Option<Size>, ControlError> {
        // A key that cannot be read keeps the copy from serving, and is shown by it.
        let key = match replication.ask(volume.uuid, Question::Read) {
            Reply::Holds(Some(held)) => Key::decode(&held.value).ok(),
            Reply::Holds(None) => None,
            Reply::Swapped(_) | Reply::Unknown => {
                return Err(ControlError::environment(format!(
                    "volume {}: the quorum does not answer: how large it is, is not known",
                    volume.name
                )));
            }
        };
        let Some(key) = key else { return Ok(None) };
        let known = pool.link.view().map_err(engine)?.status.volumes;
        let Some(known) = known.into_iter().find(|one| one.number == volume.number) else {
            return Ok(None);
        };
        if let Some(said) = known.said.filter(|said| said.granules > granules(key.size)) {
            return Err(replication.refuses_backup(volume, key.size, said));
        }
        let Some(size) = key.size else {
            return Ok(None);
        };
        if known.granules < size.granules {
            info!(volume = %volume.uuid, "volume {}: the copy here is from before it grew", volume.name);
            if is_of_key(&key, &known) {
                // It has had the room when the key said so.
                self.mark_image(replication, pool.id, volume.uuid)?;
                forget_planes(pool, &known)?;
            }
            let wish = Manage::ResizeVolume {
                volume: volume.number,
                granules: size.granules,
            };
            pool.link.manage(wish).map_err(|error| {
                let why = engine(error).message;
                ControlError::environment(format!(
                    "volume {}: the copy here is from before the volume grew, and cannot grow: {why}. Take it away and give \
                     it again (`volume replicate`)",
                    volume.name
                ))
            })?;
        }
        note_size(&pool.link, volume.number, size)?;
        Ok(Some(size))
    }

    /// Hosts that are connected here hear how large the volume is.
    pub(super) fn show_size(&self, volume: Uuid) {
        let shown = self.with_copy(volume, |pool, number| self.show_in(pool, number, volume));
        if let Err(error) = shown {
            warn!(%volume, "volume {volume}: hosts are not told of its size: {}", error.message);
        }
    }

    pub(super) fn show_in(
        &self,
        pool: &LivePool,
        number: u32,
        volume: Uuid,
    ) -> Result<(), ControlError> {
        let Some(known) = pool.volumes.get(&number) else {
            return Ok(());
        };
        if let Some(opener) = &known.volume {
            opener.refresh().map_err(engine)?;
        }
        self.target.resized(&nqn(volume)).map_err(served)
    }

    /// How much hosts see of a copy.
    pub(in crate::manager) fn bytes_of_copy(&self, pool: &LivePool, number: u32) -> Option<u64> {
        let view = self.replica_view(pool, number).ok()??;
        Some(view.size.hosts() * GRANULE)
    }
}

impl CopyPlace {
    /// The copy has at least so many granules in its pool.
    fn give_room(&self, granules: u64) -> Result<(), ControlError> {
        let volume = self.number;
        let mut known = self.pool.view().map_err(engine)?.status.volumes.into_iter();
        let has = known.find(|one| one.number == volume);
        if has.is_some_and(|one| one.granules >= granules) {
            return Ok(());
        }
        let wish = Manage::ResizeVolume { volume, granules };
        self.pool.manage(wish).map(drop).map_err(engine)
    }

    /// The copy goes by what its pool has.
    fn tell_grown(&self) -> Result<(), ControlError> {
        let heard = |reply| ReplicaMail::Grown { reply };
        self.pool.ask_replica(self.number, heard).map_err(engine)
    }
}

fn granules(size: Option<Size>) -> u64 {
    size.map_or(0, |size| size.granules)
}

/// Whether the copy is the one that the key names at its place, and has been in sync.
fn is_of_key(key: &Key, known: &VolumeInfo) -> bool {
    let Some(identity) = known.replica else {
        return false;
    };
    let named = Position::new(identity.position.into()).and_then(|at| key.members.get(at));
    named.is_some_and(|named| named.replica == ReplicaUuid(identity.uuid.into_bytes()))
}

/// What an old image keeps of others' says nothing of them now, and what is uncertain in it is copied with all else.
fn forget_planes(pool: &LivePool, known: &VolumeInfo) -> Result<(), ControlError> {
    let promise = known.promise.unwrap_or_default();
    let change = ReplicaChange {
        promise: ReplicaPromise {
            absent: 0,
            ..promise
        },
        marks_uncertain: false,
        marks: Vec::new(),
        own: OwnPlane::Forget,
    };
    let volume = known.number;
    let forget = Manage::ChangeReplica { volume, change };
    pool.link.manage(forget).map(drop).map_err(engine)
}

/// The copy remembers what the key says of the volume's size: a key that says less is from before.
fn note_size(pool: &PoolLink, volume: u32, size: Size) -> Result<(), ControlError> {
    let said = ReplicaSize {
        granules: size.granules,
        register: size.register,
    };
    let known = pool.view().map_err(engine)?.status.volumes;
    let known = known.iter().find(|one| one.number == volume);
    let knows = |one: &VolumeInfo| one.said.is_some_and(|old| old.granules >= said.granules);
    if known.is_none_or(|one| knows(one) || one.granules < said.granules) {
        return Ok(());
    }
    let note = Manage::NoteSize { volume, size: said };
    pool.manage(note).map(drop).map_err(engine)
}

fn unaligned(name: &VolumeName, size: Size) -> ControlError {
    let unit = Size::GAP * GRANULE;
    ControlError::conflict(format!(
        "volume {name} has {} bytes, which is no multiple of {unit}: such a volume with copies on several nodes cannot grow; \
         copy it to a new one",
        size.register * GRANULE
    ))
}
