//! Volumes that are used on this machine without a connection: on their pool's core, in process.
//!
//! To all others such a user is a host that is connected to the volume, and what holds for hosts holds
//! for it: who may, what refuses while one is there, and what sends it away.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use ashlar_block::IoError;
use ashlar_nvme_target::server::{Resident, ServeError};
use ashlar_reactor::{Handle, Opener};
use ashlar_store::VolumeInfo;
use uuid::Uuid;

use super::serve::{CORE, access_of, nqn};
use super::{Kept, LivePool, PoolManager};
use crate::model::{ControlError, VolumeName};

/// How long one that is sent away may take: what its volume has is answered first.
const DISMISSAL_TIMEOUT: Duration = Duration::from_secs(10);

/// What a process of this machine wants to use.
#[derive(Clone, Debug)]
pub struct LocalWish {
    pub volume: VolumeName,
    pub uuid: Uuid,
    /// The bytes that it has at least.
    pub bytes: u64,
    /// As whom: an NQN.
    pub host: String,
    /// Where, for people.
    pub place: String,
}

/// Why a wish is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRefusal {
    /// In a sentence.
    pub why: String,
    /// It may be met later, although no setting changes.
    pub may_change: bool,
}

impl LocalRefusal {
    fn for_now(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            may_change: true,
        }
    }

    fn for_good(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            may_change: false,
        }
    }
}

/// Why a local user is sent away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dismissal {
    /// It may come back; this is why.
    ForNow(String),
    /// It need not; this is why.
    ForGood(String),
}

/// A user of a volume on this machine.
pub trait LocalUser: Send + Sync {
    /// Is to end: it answers what it has taken, and takes nothing more.
    fn dismiss(&self, why: Dismissal);

    /// Waits until its resident has nothing of the volume any more; false if that takes longer.
    fn has_left_within(&self, limit: Duration) -> bool;
}

/// Makes the resident that uses the volume, on the volume's core.
pub type MakeLocal =
    Box<dyn FnOnce(&Handle, &dyn Opener) -> Result<Box<dyn Resident>, IoError> + Send>;

/// A local user and where it is.
pub(super) struct LocalUse {
    host: String,
    place: String,
    user: Arc<dyn LocalUser>,
}

/// The local users, by their volume's NQN: one a volume.
pub(super) type LocalUses = BTreeMap<String, LocalUse>;

fn resident_name(nqn: &str) -> String {
    format!("local use of {nqn}")
}

impl PoolManager {
    fn local_uses(&self) -> MutexGuard<'_, LocalUses> {
        // Each change of the map is a single insertion or removal; a panic leaves none half done.
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a volume may be used on this machine in process.
    ///
    /// # Errors
    /// Why not.
    pub fn may_use_locally(&self, wish: &LocalWish) -> Result<(), LocalRefusal> {
        let pools = self.lock();
        self.find_for(&pools, wish)?;
        match self.local_uses().get(&nqn(wish.uuid)) {
            Some(other) => Err(taken(wish, other)),
            None => Ok(()),
        }
    }

    /// Has a volume used on its core by a resident that `make` makes.
    ///
    /// # Errors
    /// Why not; nothing is left then.
    pub fn use_locally(
        &self,
        wish: &LocalWish,
        user: Arc<dyn LocalUser>,
        make: MakeLocal,
    ) -> Result<(), LocalRefusal> {
        // Held to the end: who changes the volume or its pool finds the user, or has been before it.
        let pools = self.lock();
        let opener = self.find_for(&pools, wish)?;
        let nqn = nqn(wish.uuid);
        let mut uses = self.local_uses();
        if let Some(other) = uses.get(&nqn) {
            return Err(taken(wish, other));
        }
        let settle = Box::new(move |handle: &Handle| make(handle, opener.as_ref()));
        self.target
            .settle_in(CORE, &resident_name(&nqn), settle)
            .map_err(|error| {
                let why = format!("{}: {error}", wish.volume);
                match error {
                    ServeError::Resident(_) => LocalRefusal::for_good(why),
                    // The core's end is the daemon's; the next one may do it.
                    _ => LocalRefusal::for_now(why),
                }
            })?;
        let one = LocalUse {
            host: wish.host.clone(),
            place: wish.place.clone(),
            user,
        };
        uses.insert(nqn, one);
        Ok(())
    }

    /// The volume that is meant, if this host may use it.
    fn find_for(
        &self,
        pools: &BTreeMap<String, Kept>,
        wish: &LocalWish,
    ) -> Result<Arc<dyn Opener>, LocalRefusal> {
        let name = &wish.volume;
        let pool = match pools.get(&name.pool) {
            Some(Kept::Live(pool)) => pool,
            Some(Kept::Failed { why, .. }) => {
                let why = format!("pool {} is not in service: {why}", name.pool);
                return Err(LocalRefusal::for_now(why));
            }
            // It may be imported again.
            None => {
                return Err(LocalRefusal::for_now(format!(
                    "there is no pool {}",
                    name.pool
                )));
            }
        };
        let nqn = nqn(wish.uuid);
        let mut volumes = pool.volumes.values();
        let Some(served) = volumes.find(|served| served.nqn == nqn) else {
            return Err(not_served(pool, wish));
        };
        if self.is_copy(wish.uuid) {
            return Err(LocalRefusal::for_good(format!(
                "{name} has copies on several nodes: attach it by their portals"
            )));
        }
        self.admit(pool, wish)?;
        let bytes = served.opener.geometry().bytes();
        if bytes < wish.bytes {
            let why = format!("{name} has {bytes} bytes, and had {}", wish.bytes);
            return Err(LocalRefusal::for_good(why));
        }
        // Its reservations are kept with it, and so is this.
        let opener = self.target.for_stranger(&nqn, served.opener.clone());
        opener.map_err(|error| LocalRefusal::for_now(format!("{name}: {error}")))
    }

    fn admit(&self, pool: &LivePool, wish: &LocalWish) -> Result<(), LocalRefusal> {
        let state = self.state.read();
        match access_of(state.access(pool.id, wish.uuid)).allows(&wish.host) {
            true => Ok(()),
            false => Err(LocalRefusal::for_good(denied(&wish.volume, &wish.host))),
        }
    }

    /// The host that uses a volume here, if one does.
    pub(super) fn local_host(&self, nqn: &str) -> Option<String> {
        self.local_uses().get(nqn).map(|one| one.host.clone())
    }

    /// A local user has ended by itself: its resident goes.
    pub fn left_locally(&self, volume: Uuid, user: &Arc<dyn LocalUser>) {
        // It fails only when the core has died, and then the daemon ends.
        let _ = self.take_out(&nqn(volume), user);
    }

    fn take_out(&self, nqn: &str, user: &Arc<dyn LocalUser>) -> Result<(), ControlError> {
        let mut uses = self.local_uses();
        // Another may have come in its place.
        if !uses
            .get(nqn)
            .is_some_and(|one| Arc::ptr_eq(&one.user, user))
        {
            return Ok(());
        }
        uses.remove(nqn);
        self.target
            .move_out(&resident_name(nqn))
            .map_err(super::serve::served)
    }

    /// Sends a volume's local user away, if there is one, and waits until it is gone.
    ///
    /// # Errors
    /// Environment: what it has taken is not answered in time, or its core has died.
    pub(super) fn send_away(&self, nqn: &str, why: Dismissal) -> Result<(), ControlError> {
        let uses = self.local_uses();
        let Some(one) = uses.get(nqn) else {
            return Ok(());
        };
        let (user, place) = (one.user.clone(), one.place.clone());
        drop(uses);
        user.dismiss(why);
        if !user.has_left_within(DISMISSAL_TIMEOUT) {
            return Err(ControlError::environment(format!(
                "what {place} has asked of {nqn} is not answered: it cannot be sent away"
            )));
        }
        self.take_out(nqn, &user)
    }

    /// Sends a volume's local user away if its host may not use it any more.
    pub(super) fn send_away_unless_allowed(
        &self,
        name: &VolumeName,
        nqn: &str,
        allows: impl Fn(&str) -> bool,
    ) -> Result<(), ControlError> {
        match self.local_host(nqn) {
            Some(host) if !allows(&host) => {
                self.send_away(nqn, Dismissal::ForGood(denied(name, &host)))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
impl PoolManager {
    /// As if a host used a volume here, or not any more.
    pub(super) fn pretend_use(&self, volume: Uuid, host: Option<&str>) {
        self.pretend_user(volume, host, true);
    }

    /// The same; what it has asked for may be answered when it is sent away, or not.
    pub(super) fn pretend_user(&self, volume: Uuid, host: Option<&str>, leaves: bool) {
        struct User {
            leaves: bool,
        }
        impl LocalUser for User {
            fn dismiss(&self, _: Dismissal) {}

            fn has_left_within(&self, _: Duration) -> bool {
                self.leaves
            }
        }
        let mut uses = self.local_uses();
        uses.remove(&nqn(volume));
        if let Some(host) = host {
            let one = LocalUse {
                host: host.to_owned(),
                place: "/mnt".into(),
                user: Arc::new(User { leaves }),
            };
            uses.insert(nqn(volume), one);
        }
    }
}

/// Why a wish for a volume that is not served is not met. One that the pool has comes back: a cache is out of service
/// while its backing device is away, and until `volume reopen`.
fn not_served(pool: &LivePool, wish: &LocalWish) -> LocalRefusal {
    let name = &wish.volume;
    let volumes = match pool.link.view() {
        Ok(view) => view.status.volumes,
        Err(error) => return LocalRefusal::for_now(format!("{name}: {error}")),
    };
    let is_it = |volume: &&VolumeInfo| volume.uuid == wish.uuid && !volume.deleting;
    let Some(volume) = volumes.iter().find(is_it) else {
        let why = format!("there is no volume {name} ({})", wish.uuid);
        return LocalRefusal::for_good(why);
    };
    let cached = pool.caches.get(&volume.number);
    let why = cached.and_then(|cached| cached.why.clone());
    let why = why.unwrap_or_else(|| "it is not served yet".to_owned());
    LocalRefusal::for_now(format!("volume {name} is not in service: {why}"))
}

fn denied(volume: &VolumeName, host: &str) -> String {
    format!("{volume} does not let this host in, which is {host}")
}

fn taken(wish: &LocalWish, other: &LocalUse) -> LocalRefusal {
    // A guardian whose daemon did not notice its end comes again.
    LocalRefusal::for_now(format!(
        "{} is attached already, at {}",
        wish.volume, other.place
    ))
}
