//! A volume of one node gets copies on others, in service.
//!
//! ```text
//! empty copies elsewhere ─▶ the key: in sync is what is here ─▶ what is here becomes a copy that knows what the others
//! lack: everything ─▶ hosts come back to a subsystem that several nodes serve ─▶ resync
//! ```
//!
//! Whatever is interrupted: the volume here is either as it was, or a copy that is in sync by itself. An order that is
//! given again goes on: it replaces a key that was never used, and empty copies that never counted.

use ashlar_block::{ErrorKind as IoErrorKind, IoError};
use ashlar_replica::{Key, Position};
use ashlar_store::{Committed, Manage, OwnPlane, ReplicaChange, ReplicaPromise};
use uuid::Uuid;

use super::delete::Has;
use super::make::{NewCopy, first_key};
use super::orders::Order;
use super::{CopyVolume, Replication};
use crate::manager::pools::engine;
use crate::manager::serve::{nqn, served};
use crate::manager::volumes::{GRANULE, REGISTER};
use crate::manager::{Kept, LivePool, PoolManager};
use crate::model::{
    ControlError, CreateVolume, LayoutSpec, ReplicateVolume, VolumeName, VolumeState, VolumeStatus,
};
use crate::pool::PoolLink;

impl PoolManager {
    /// Gives a volume copies on other nodes.
    pub(in crate::manager) fn replicate(
        &self,
        name: &VolumeName,
        request: &ReplicateVolume,
    ) -> Result<VolumeStatus, ControlError> {
        let replication = self.replication()?;
        let status = self.one_volume(name)?;
        if status.replication.is_some() {
            return self.change_copies(name, request, &status);
        }
        if request.replicas < 2 {
            return Err(ControlError::usage(format!(
                "volume {name} has one copy, on this node: --replicas 2 or 3 gives it more"
            )));
        }
        self.may_replicate(name, &status)?;
        let _alone = Converting::begin(replication, name, status.uuid)?;
        if self.one_volume(name)?.replication.is_some() {
            return Err(ControlError::conflict(format!(
                "volume {name} was given copies meanwhile: look at `volume show {name}`"
            )));
        }
        let wanted = CreateVolume {
            replicas: request.replicas,
            nodes: request.nodes.clone(),
            ..wanted(name, &status)
        };
        let members = replication.choose(&wanted)?;
        let copies = NewCopy::of(&wanted, status.uuid, &members)?;
        let holding = |copy: NewCopy| copy.holding(status.used_bytes);
        let copies: Vec<NewCopy> = copies.into_iter().map(holding).collect();
        let key = first_key(&copies, 1).map_err(ControlError::usage)?;
        let (ours, others) = match copies.split_first() {
            Some(parts) => parts,
            None => return Err(ControlError::internal("no copies")),
        };
        self.make_others(replication, others, status.uuid, &key)?;
        if let Err(not_made) = self.become_copy(name, status.uuid, ours) {
            self.clean_up(&not_made, others, &key)?;
            return Err(not_made.why);
        }
        for copy in others {
            let volume = status.uuid;
            replication.order(copy.node(), &Order::StartCopy { volume })?;
        }
        self.await_owner(name, |owner| owner.is_some())
    }

    /// Empty copies elsewhere, and the volume's first key; or none of it.
    fn make_others(
        &self,
        replication: &Replication,
        others: &[NewCopy],
        volume: Uuid,
        key: &Key,
    ) -> Result<(), ControlError> {
        let mut asked = 0;
        let mut result = others.iter().try_for_each(|copy| {
            let order = Order::MakeCopy(Box::new(copy.clone()));
            asked += 1;
            replication.order(copy.node(), &order).map(drop)
        });
        if result.is_ok() {
            result = replication.put_first_key(volume, key);
        }
        if result.is_err() {
            self.unmake(replication, &others[..asked], key);
        }
        result
    }

    /// What was made for a volume that stays alone goes. One that is a copy, in service or not, needs its key.
    pub(super) fn clean_up(
        &self,
        not_made: &NotMade,
        others: &[NewCopy],
        key: &Key,
    ) -> Result<(), ControlError> {
        let Some(volume) = others.first().map(NewCopy::volume) else {
            return Ok(());
        };
        let is_plain = matches!(self.has_here(volume), Ok(Has::Plain { .. }));
        if is_plain && !not_made.may_come {
            self.unmake(self.replication()?, others, key);
        }
        Ok(())
    }

    fn may_replicate(&self, name: &VolumeName, status: &VolumeStatus) -> Result<(), ControlError> {
        let conflict = |why: &str| Err(ControlError::conflict(format!("volume {name} {why}")));
        if status.cache.is_some() {
            return conflict("caches a device of this machine, which other nodes do not have");
        }
        if matches!(status.layout, LayoutSpec::Stripe { .. }) {
            return conflict("is a stripe: it keeps no log, which copies on other nodes need");
        }
        if !matches!(status.state, VolumeState::Online | VolumeState::Degraded) {
            return conflict("is not in service");
        }
        if self.local_host(&status.nqn).is_some() {
            return conflict(
                "is attached on this machine in process: `detach` it, and attach it again afterwards",
            );
        }
        self.check_unreserved(name, &status.nqn)
    }

    /// Copies begin unreserved: a host that was kept out could write again.
    fn check_unreserved(&self, name: &VolumeName, nqn: &str) -> Result<(), ControlError> {
        match self.target.target().registrants_of(nqn) {
            0 => Ok(()),
            hosts => Err(ControlError::conflict(format!(
                "volume {name}: {hosts} hosts are registered for its reservations, which copies would begin without. They \
                 unregister first, and register again afterwards"
            ))),
        }
    }

    /// What is here becomes the first copy. Its hosts lose their connections, and come back.
    pub(super) fn become_copy(
        &self,
        name: &VolumeName,
        volume: Uuid,
        copy: &NewCopy,
    ) -> Result<(), NotMade> {
        let mut pools = self.lock();
        let Some(Kept::Live(pool)) = pools.get_mut(&name.pool) else {
            return Err(NotMade::from(ControlError::environment(format!(
                "pool {} is not in service any more",
                name.pool
            ))));
        };
        let view = pool.link.view().map_err(engine)?;
        let found = view.status.volumes.iter().find(|one| one.uuid == volume);
        let gone = || ControlError::not_found(format!("there is no volume {name} any more"));
        let found = found.ok_or_else(gone)?;
        self.remember_copy(pool.id, volume, &copy.members)?;
        let (nqn, away) = (nqn(volume), format!("replication of {volume}"));
        self.target.target().expect(&away, vec![nqn.clone()]);
        let unreserved = self.check_unreserved(name, &nqn);
        let removed = unreserved.and_then(|()| self.target.remove(&nqn).map_err(served));
        let made = removed.map_err(NotMade::from).and_then(|()| {
            pool.volumes.remove(&found.number);
            let identity = copy.identity();
            let of_copy = CopyVolume::of(found, &name.pool);
            match make_first(&pool.link, found.number, copy) {
                Ok(()) => {
                    let taken = self.take_up_copy(pool, &of_copy, identity);
                    taken.map_err(|why| NotMade::not_yet(name, why))
                }
                Err(error) => Err(self.not_made(pool, &of_copy, found.granules, error)),
            }
        });
        self.target.target().expect_no_more(&away);
        made
    }

    /// A volume that its pool refuses to make a copy is served as before. One whose pool has not answered may be made one
    /// yet: it comes into service as that, and must not be used as anything else.
    pub(super) fn not_made(
        &self,
        pool: &mut LivePool,
        volume: &CopyVolume,
        granules: u64,
        error: IoError,
    ) -> NotMade {
        if error.kind() != IoErrorKind::Timeout {
            return self
                .stay_alone(pool, volume, granules, engine(error))
                .into();
        }
        let pool = volume.pool();
        let why = ControlError::environment(format!(
            "pool {pool} has not said in time whether volume {0} is a copy now: it is out of service until it is, and comes \
             by itself. If `volume show {0}` does not say so when the pool answers again (`pool status {pool}`), `pool \
             export {pool}` and `pool import {pool}` bring it back as it was",
            volume.name
        ));
        NotMade {
            why,
            may_come: true,
        }
    }

    /// A volume that cannot be a copy is served as before. Why it cannot.
    pub(super) fn stay_alone(
        &self,
        pool: &mut LivePool,
        volume: &CopyVolume,
        granules: u64,
        mut why: ControlError,
    ) -> ControlError {
        let number = volume.number;
        let before = Manage::ResizeVolume {
            volume: number,
            granules,
        };
        let back = pool.link.manage(before).map_err(engine).and_then(|_| {
            self.state
                .update(|state| state.forget_replica(pool.id, volume.uuid))?;
            let state = self.state.read().clone();
            let access = state.access(pool.id, volume.uuid);
            self.serve(pool, number, &volume.name, volume.uuid, access)
        });
        if let Err(error) = back {
            let text = format!("; it is not served until its pool is imported again: {error}");
            why.message.push_str(&text);
        }
        why
    }
}

/// Why a volume is no copy.
#[derive(Debug)]
pub(super) struct NotMade {
    pub(super) why: ControlError,
    /// It may be one yet.
    pub(super) may_come: bool,
}

impl NotMade {
    /// It is one, and not in service.
    fn not_yet(name: &VolumeName, mut why: ControlError) -> Self {
        let text = format!(
            ": volume {name} is a copy now and comes into service by itself. Look at `volume show {name}`, and give the \
             same order again if it has too few copies"
        );
        why.message.push_str(&text);
        Self {
            why,
            may_come: true,
        }
    }
}

impl From<ControlError> for NotMade {
    fn from(why: ControlError) -> Self {
        Self {
            why,
            may_come: false,
        }
    }
}

/// While it lives, no other call gives the volume its first copies.
struct Converting<'a> {
    replication: &'a Replication,
    volume: Uuid,
}

impl<'a> Converting<'a> {
    fn begin(
        replication: &'a Replication,
        name: &VolumeName,
        volume: Uuid,
    ) -> Result<Self, ControlError> {
        match replication.converting().insert(volume) {
            true => Ok(Self {
                replication,
                volume,
            }),
            false => Err(ControlError::conflict(format!(
                "volume {name} is being given copies already: look at `volume show {name}`"
            ))),
        }
    }
}

impl Drop for Converting<'_> {
    fn drop(&mut self) {
        self.replication.converting().remove(&self.volume);
    }
}

/// What a volume would have to be asked for to be as it is.
pub(super) fn wanted(name: &VolumeName, status: &VolumeStatus) -> CreateVolume {
    CreateVolume {
        grain_bytes: Some(status.grain_bytes),
        class: status.class,
        hot: status.tier.as_ref().map(|tier| tier.hot),
        hot_share_percent: status.tier.as_ref().map(|tier| tier.share_percent),
        when_degraded: status.when_degraded,
        allow_hosts: status.allow_hosts.clone(),
        allow_any_host: status.allow_any_host,
        ..CreateVolume::new(name, status.bytes, status.layout)
    }
}

/// Makes a volume that holds something a copy that knows the others to lack all of it.
pub(super) fn make_first(link: &PoolLink, volume: u32, copy: &NewCopy) -> Result<(), IoError> {
    let identity = copy.identity();
    let granules = copy.wanted.bytes / GRANULE + REGISTER;
    let what = Manage::MakeReplica {
        volume,
        identity,
        granules: Some(granules),
    };
    link.manage(what)?;
    let all = copy.members.positions();
    let others = Position::new(copy.position.into()).map_or(all, |own| all.without(own));
    let change = ReplicaChange {
        promise: ReplicaPromise {
            epoch: 1,
            session: 0,
            absent: others.bits(),
        },
        marks_uncertain: false,
        marks: std::iter::once(0..granules).collect(),
        own: OwnPlane::Until(Committed::default()),
    };
    let what = Manage::ChangeReplica { volume, change };
    link.manage(what).map(drop)
}
