//! Making, importing and letting go of pools.

use ashlar_store::{Manage, Managed, MemberStatus};
use uuid::Uuid;

use super::serve::specs;
use super::wanted::{GO_ON, Wanted};
use super::{Dismissal, Keeper, Kept, KnownDrive, LivePool, live};
use crate::model::{ControlError, CreatePool, ImportPool, PoolStatus, ReplaceDrive, ReserveSpec};
use crate::notice::notice;
use crate::pool::{create, import, open_drives, reserve_of};
use crate::{Config, DriveEntry, PoolEntry};

impl Keeper {
    /// Imports what is remembered and what the configuration names.
    pub(super) fn import_remembered(&self, config: &Config) {
        let remembered = self.state.read().pools.into_iter();
        let remembered = remembered.map(|pool| (pool.name, Some(pool.id), pool.drives));
        let configured = config.pools.iter();
        let configured = configured.map(|pool| (pool.name.clone(), None, pool.drives.clone()));
        for (name, id, drives) in remembered.chain(configured) {
            let mut pools = self.lock();
            if pools.contains_key(&name) {
                continue;
            }
            let kept = match self.bring_up_ours(&name, id, &drives) {
                Ok(pool) => {
                    // It is served all the same: what is lost is how a drive was called.
                    if let Err(error) = self.remember_drives(&pool) {
                        notice(format_args!("pool {name}: {}", error.message));
                    }
                    Kept::Live(pool)
                }
                Err(error) => {
                    let why = error.message;
                    notice(format_args!("pool {name} is not in service: {why}"));
                    Kept::Failed {
                        id: id.unwrap_or_default(),
                        drives,
                        why,
                    }
                }
            };
            pools.insert(name, kept);
        }
    }

    /// Brings up a pool that was in service before. A drive that has left it may hold another since.
    fn bring_up_ours(
        &self,
        name: &str,
        id: Option<Uuid>,
        specs: &[String],
    ) -> Result<LivePool, ControlError> {
        let is_ours = |spec: &&String| {
            let drive = open_drives(std::slice::from_ref(*spec));
            let meant = Wanted::new(name, id);
            // One that only has another name may be in the middle of being renamed.
            !drive.is_ok_and(|drive| match id {
                Some(_) => meant.pool_of(&drive).is_ok_and(|pool| pool != id),
                None => meant.check(&drive).is_err(),
            })
        };
        let ours: Vec<String> = specs.iter().filter(is_ours).cloned().collect();
        // With none of its own, the refusal says whose they are.
        let drives = if ours.is_empty() { specs } else { &ours };
        self.bring_up(&Wanted::new(name, id), drives)
    }

    /// Imports a pool, puts it on a core and serves its volumes.
    fn bring_up(&self, wanted: &Wanted<'_>, specs: &[String]) -> Result<LivePool, ControlError> {
        let name = wanted.new_name.unwrap_or(wanted.name);
        let mut drives = Vec::new();
        let mut missing = Vec::new();
        for spec in specs {
            match open_drives(std::slice::from_ref(spec)) {
                Ok(mut drive) => drives.append(&mut drive),
                // The pool may be able to go on without it; the engine decides.
                Err(error) => missing.push(error.message),
            }
        }
        if drives.is_empty() {
            return Err(ControlError::environment(format!(
                "no drive of pool {name} can be opened: {}",
                missing.join("; ")
            )));
        }
        if wanted.needs_all() && !missing.is_empty() {
            return Err(ControlError::environment(format!(
                "{}. Nothing was changed. {GO_ON}",
                missing.join("; ")
            )));
        }
        let how = (wanted.degraded, wanted.check(&drives)?);
        let imported = import(&drives, how, self.repair_after)
            .map_err(|error| self.with_names(also(error, &missing)))?;
        let pool_id = imported.engine.label().pool;
        let volumes = imported.engine.volumes();
        let mut pool = self.settle(pool_id, imported)?;
        let state = self.state.read();
        for volume in volumes.iter().filter(|volume| !volume.deleting) {
            let access = state.access(pool_id, volume.uuid);
            let full = format!("{name}/{}", volume.name);
            if let Err(error) = self.serve(&mut pool, volume.number, &full, volume.uuid, access) {
                self.take_down(&pool);
                return Err(error);
            }
        }
        Ok(pool)
    }

    /// Says how drives are named that a text knows by their identities.
    fn with_names(&self, mut error: ControlError) -> ControlError {
        let state = self.state.read();
        let known = state
            .drives
            .iter()
            .map(|entry| (entry.drive, &entry.spec[..]));
        error.message = named(error.message, known);
        error
    }

    /// Takes a pool's volumes and the pool itself off the cores.
    fn take_down(&self, pool: &LivePool) {
        for volume in pool.volumes.values() {
            if let Err(error) = self.target.remove(&volume.nqn) {
                notice(format_args!("{}: {error}", volume.nqn));
            }
        }
        if let Err(error) = self.unsettle(pool.id) {
            notice(format_args!("pool {}: {}", pool.id, error.message));
        }
    }

    fn remember(&self, name: &str, pool: &LivePool) -> Result<(), ControlError> {
        self.remember_with(name, pool, None)
    }

    fn remember_with(
        &self,
        name: &str,
        pool: &LivePool,
        more: Option<&str>,
    ) -> Result<(), ControlError> {
        let mut drives = specs(&pool.drives);
        drives.extend(more.map(str::to_owned));
        let mut seen = std::collections::BTreeSet::new();
        drives.retain(|drive| seen.insert(drive.clone()));
        let entry = PoolEntry {
            name: name.to_owned(),
            id: pool.id,
            drives,
        };
        self.state.update(|state| {
            state.put_pool(entry);
            state.put_drives(pool.id, entries(pool));
        })
    }

    /// Remembers how a pool's drives are called, for when they are missing.
    fn remember_drives(&self, pool: &LivePool) -> Result<(), ControlError> {
        let drives = entries(pool);
        self.state.update(|state| state.put_drives(pool.id, drives))
    }

    pub(super) fn make_pool(&self, request: &CreatePool) -> Result<PoolStatus, ControlError> {
        let mut pools = self.lock();
        let name = &request.name;
        if pools.contains_key(name) {
            return Err(ControlError::conflict(format!(
                "there is a pool {name} already"
            )));
        }
        self.refuse_drives_in_use(&pools, &request.drives)?;
        let drives = open_drives(&request.drives)?;
        let id = create(request, &drives)?;
        drop(drives);
        let pool = self.bring_up(&Wanted::new(name, Some(id)), &request.drives)?;
        self.remember(name, &pool)?;
        let kept = pools.entry(name.clone()).or_insert(Kept::Live(pool));
        Ok(self.pool_status(name, kept))
    }

    fn refuse_drives_in_use(
        &self,
        pools: &std::collections::BTreeMap<String, Kept>,
        wanted: &[String],
    ) -> Result<(), ControlError> {
        for (name, kept) in pools {
            let Kept::Live(pool) = kept else { continue };
            let view = pool.link.view().ok();
            // One that is out of service is closed, and free for something else.
            let is_out = |index: usize| {
                let member = view
                    .as_ref()
                    .and_then(|view| view.status.members.get(index));
                member.is_some_and(|member| !member.in_service)
            };
            let theirs = pool.drives.iter().enumerate();
            let theirs = theirs.filter(|(index, drive)| drive.is_here && !is_out(*index));
            let theirs: Vec<_> = theirs.map(|(_, drive)| &drive.spec).collect();
            if let Some(drive) = wanted.iter().find(|drive| theirs.contains(drive)) {
                return Err(ControlError::conflict(format!(
                    "drive {drive} is in pool {name}"
                )));
            }
        }
        Ok(())
    }

    pub(super) fn take_up_pool(
        &self,
        name: &str,
        request: &ImportPool,
    ) -> Result<PoolStatus, ControlError> {
        let mut pools = self.lock();
        let new_name = request.new_name.as_deref().filter(|new| *new != name);
        if let Some(new) = new_name.filter(|new| pools.contains_key(*new)) {
            return Err(ControlError::conflict(format!(
                "there is a pool {new} already"
            )));
        }
        let (id, drives) = match pools.get(name) {
            Some(Kept::Live(_)) if new_name.is_some() && request.drives.is_empty() => {
                return Err(ControlError::conflict(format!(
                    "pool {name} is in service: export it first, or name the drives of the other pool \
                     of that name"
                )));
            }
            Some(kept @ Kept::Live(pool)) if new_name.is_none() => {
                let is_theirs =
                    |spec: &&String| pool.drives.iter().any(|drive| drive.spec == **spec);
                return match request.drives.iter().find(|spec| !is_theirs(spec)) {
                    None => Ok(self.pool_status(name, kept)),
                    Some(spec) => Err(ControlError::conflict(format!(
                        "a pool {name} ({}) is in service already, without drive {spec}: another pool of that \
                         name gets a name of its own with --as, and a new drive joins with `pool add`",
                        pool.id
                    ))),
                };
            }
            Some(Kept::Failed { id, drives, .. }) if request.drives.is_empty() => {
                (Some(*id).filter(|id| !id.is_nil()), drives.clone())
            }
            _ if request.drives.is_empty() => {
                return Err(ControlError::usage(format!(
                    "name the drives of pool {name}"
                )));
            }
            _ => (request.id, request.drives.clone()),
        };
        self.refuse_drives_in_use(&pools, &drives)?;
        let known = match pools.get(new_name.unwrap_or(name)) {
            Some(Kept::Failed { id, .. }) => Some(*id).filter(|id| !id.is_nil()),
            _ => None,
        };
        let wanted = Wanted {
            new_name,
            degraded: request.degraded,
            named: !request.drives.is_empty(),
            known,
            ..Wanted::new(name, id)
        };
        let pool = self.bring_up(&wanted, &drives)?;
        let served = new_name.unwrap_or(name);
        self.remember(served, &pool)?;
        let is_it = matches!(pools.get(name), Some(Kept::Failed { id, .. }) if *id == pool.id);
        if is_it {
            pools.remove(name);
        }
        pools.insert(served.to_owned(), Kept::Live(pool));
        Ok(self.pool_status(served, &pools[served]))
    }

    pub(super) fn let_go_pool(&self, name: &str, force: bool) -> Result<(), ControlError> {
        let mut pools = self.lock();
        if let Some(Kept::Failed { id, .. }) = pools.get(name) {
            let id = *id;
            self.state.update(|state| state.forget_pool(id))?;
            pools.remove(name);
            return Ok(());
        }
        let pool = live(&pools, name)?;
        let connected = pool
            .volumes
            .values()
            .flat_map(|volume| self.connected(&volume.nqn));
        if let (false, Some(host)) = (force, connected.into_iter().next()) {
            return Err(ControlError::refused(format!(
                "host {host} is connected to a volume of pool {name}; --force disconnects it"
            )));
        }
        for volume in pool.volumes.values() {
            let why = format!("pool {name} was exported");
            self.send_away(&volume.nqn, Dismissal::ForNow(why))?;
            self.target
                .remove(&volume.nqn)
                .map_err(super::serve::served)?;
        }
        pool.link.manage(Manage::Settle).map_err(engine)?;
        let id = pool.id;
        self.unsettle(id)?;
        pools.remove(name);
        self.state.update(|state| state.forget_pool(id))
    }

    pub(super) fn begin_scrub(&self, name: &str) -> Result<PoolStatus, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, name)?;
        // Its progress is in the status; nobody waits for the answer.
        drop(pool.link.begin(Manage::Scrub));
        Ok(self.pool_status(name, &pools[name]))
    }

    pub(super) fn grow_pool(
        &self,
        name: &str,
        spec: &str,
        destroy_data: bool,
    ) -> Result<PoolStatus, ControlError> {
        let mut pools = self.lock();
        self.refuse_drives_in_use(&pools, &[spec.to_owned()])?;
        let pool = live(&pools, name)?;
        let drives = open_drives(&[spec.to_owned()])?;
        // Before it is a member: after a crash the pool must be found with it.
        let enlisted = || self.remember_with(name, pool, Some(spec));
        let added = crate::pool::add(&pool.link, &drives, destroy_data, enlisted);
        let member = match added {
            Ok(member) => member,
            Err(error) => {
                self.remember(name, pool)?;
                return Err(error);
            }
        };
        if let (Some(Kept::Live(pool)), Some(drive)) = (pools.get_mut(name), drives.first()) {
            let view = pool.link.view().map_err(engine)?;
            for (index, one) in view.status.members.iter().enumerate() {
                if index == member {
                    pool.drives.push(KnownDrive::open(one.drive, drive));
                } else if index >= pool.drives.len() {
                    pool.drives.push(KnownDrive::missing(one.drive, None));
                }
            }
            self.remember(name, pool)?;
        }
        Ok(self.pool_status(name, &pools[name]))
    }

    pub(super) fn swap_drive(
        &self,
        name: &str,
        request: &ReplaceDrive,
    ) -> Result<PoolStatus, ControlError> {
        let member = self.member(name, &request.old)?;
        self.grow_pool(name, &request.new, request.destroy_data)?;
        self.evacuate(name, member)
    }

    pub(super) fn empty_drive(&self, name: &str, drive: &str) -> Result<PoolStatus, ControlError> {
        let member = self.member(name, drive)?;
        self.evacuate(name, member)
    }

    fn evacuate(&self, name: &str, member: usize) -> Result<PoolStatus, ControlError> {
        self.order(name, Manage::RemoveDrive { member })?;
        let mut pools = self.lock();
        if let Some(Kept::Live(pool)) = pools.get_mut(name) {
            if let Some(drive) = pool.drives.get_mut(member) {
                drive.removed = true;
            }
            self.remember_drives(pool)?;
        }
        match pools.get(name) {
            Some(kept) => Ok(self.pool_status(name, kept)),
            None => Err(ControlError::not_found(format!("there is no pool {name}"))),
        }
    }

    pub(super) fn keep_for_repair(
        &self,
        name: &str,
        reserve: ReserveSpec,
    ) -> Result<PoolStatus, ControlError> {
        let sizes = live(&self.lock(), name)?.link.view();
        let sizes = sizes.map_err(engine)?.status.label.sizes;
        let reserve = reserve_of(reserve, &sizes);
        self.order(name, Manage::SetReserve { reserve })
    }

    /// Has a pool do something that is answered when it is done, or has durably begun.
    pub(super) fn order(&self, name: &str, what: Manage) -> Result<PoolStatus, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, name)?;
        match pool.link.manage(what).map_err(engine)? {
            Managed::Done => Ok(self.pool_status(name, &pools[name])),
            other => Err(ControlError::internal(format!(
                "an answer to another question: {other:?}"
            ))),
        }
    }

    /// The member that a text names: by identity, or as the drive was named.
    fn member(&self, name: &str, drive: &str) -> Result<usize, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, name)?;
        let view = pool.link.view().map_err(engine)?;
        let members = view.status.members.iter().enumerate();
        let is_it = |(index, member): &(usize, &MemberStatus)| {
            let known = pool.drives.get(*index);
            member.drive.to_string() == drive || known.is_some_and(|known| known.spec == drive)
        };
        // A drive that was removed and added again has been a member twice.
        let found = members
            .filter(is_it)
            .filter(|(index, member)| !is_gone(pool, *index, member));
        found
            .max_by_key(|(index, member)| (member.in_service, *index))
            .map(|(index, _)| index)
            .ok_or_else(|| ControlError::not_found(format!("pool {name} has no drive {drive}")))
    }

    /// Everything in order: no hosts, logs empty, drives let go.
    pub(super) fn stop_all(&self) -> Result<(), ControlError> {
        let mut pools = self.lock();
        let mut first = Ok(());
        for (name, kept) in std::mem::take(&mut *pools) {
            let Kept::Live(pool) = kept else { continue };
            for volume in pool.volumes.values() {
                let why = Dismissal::ForNow("the daemon has ended".to_owned());
                first = first.and(self.send_away(&volume.nqn, why));
                first = first.and(
                    self.target
                        .remove(&volume.nqn)
                        .map_err(super::serve::served),
                );
            }
            let settled = pool.link.manage(Manage::Settle);
            let settled = settled.map(drop).map_err(|error| {
                ControlError::environment(format!("pool {name} did not settle: {error}"))
            });
            first = first.and(settled).and(self.unsettle(pool.id));
        }
        self.target.stop();
        first
    }
}

/// Whether a drive was removed as it was to be: nothing is on it any more, and it is nobody's concern.
pub(super) fn is_gone(pool: &LivePool, index: usize, member: &MemberStatus) -> bool {
    let removed = pool.drives.get(index).is_some_and(|drive| drive.removed);
    removed && !member.in_service && !member.holds
}

fn entries(pool: &LivePool) -> Vec<DriveEntry> {
    let drives = pool.drives.iter();
    drives.map(|drive| drive.entry(pool.id)).collect()
}

/// A text that knows drives by their identities, with their names.
pub(super) fn named<'a>(text: String, known: impl Iterator<Item = (Uuid, &'a str)>) -> String {
    known
        .filter(|(_, spec)| !spec.is_empty())
        .fold(text, |text, (id, spec)| {
            let id = id.to_string();
            text.replace(&id, &format!("{spec} ({id})"))
        })
}

/// What the engine has refused, for an operator.
pub(super) fn engine(error: ashlar_block::IoError) -> ControlError {
    use ashlar_block::ErrorKind;
    let text = error.to_string();
    match error.kind() {
        ErrorKind::InvalidRequest => ControlError::usage(error.context().to_owned()),
        ErrorKind::Internal => ControlError::internal(text),
        _ => ControlError::environment(text),
    }
}

fn also(mut error: ControlError, missing: &[String]) -> ControlError {
    if !missing.is_empty() {
        error.message = format!("{} ({})", error.message, missing.join("; "));
    }
    error
}
