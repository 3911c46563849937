//! Making, importing and letting go of pools.

use ashlar_store::{Manage, Managed};
use uuid::Uuid;

use super::serve::specs;
use super::{Keeper, Kept, KnownDrive, LivePool, live};
use crate::Config;
use crate::PoolEntry;
use crate::model::{ControlError, CreatePool, ImportPool, PoolStatus, ReplaceDrive, ReserveSpec};
use crate::notice::notice;
use crate::pool::{Found, OpenDrive, create, import, open_drives, probe, reserve_of};

/// A pool that is to be imported.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    name: &'a str,
    id: Option<Uuid>,
    /// The name that it gets.
    new_name: Option<&'a str>,
    degraded: bool,
}

impl<'a> Wanted<'a> {
    fn new(name: &'a str, id: Option<Uuid>) -> Self {
        Self {
            name,
            id,
            new_name: None,
            degraded: false,
        }
    }

    /// The pool of the first of these drives that has a label.
    fn pool_of(&self, drives: &[OpenDrive]) -> Result<Option<Uuid>, ControlError> {
        let found = probe(drives)?;
        let pool = found.iter().find_map(|found| match found {
            Found::Label(label) => Some(label.pool),
            _ => None,
        });
        // What has no label is the engine's to refuse.
        Ok(pool.or(self.id))
    }

    /// Refuses drives that hold another pool than the one that is meant. Says what its drives are to
    /// be called if they are not called that: on request, or because that was interrupted.
    fn check(&self, drives: &[OpenDrive]) -> Result<Option<String>, ControlError> {
        let name = self.new_name.unwrap_or(self.name);
        let mut labels = Vec::new();
        for (drive, found) in drives.iter().zip(probe(drives)?) {
            if let Found::Label(label) = found {
                labels.push((drive, label));
            }
        }
        let named = |wanted: &str| {
            let mut theirs = labels.iter();
            theirs
                .find(|(_, label)| label.pool_name == wanted)
                .map(|(_, label)| label.pool)
        };
        let meant = self.id.or_else(|| named(self.name)).or_else(|| named(name));
        let known = |text: &str| text == self.name || text == name;
        let ours = labels.iter().any(|(_, label)| known(&label.pool_name));
        for (drive, label) in &labels {
            if meant != Some(label.pool) || !ours {
                return Err(ControlError::conflict(format!(
                    "drive {} holds pool {} ({}), not {}: import it under its own name",
                    drive.spec, label.pool_name, label.pool, self.name
                )));
            }
        }
        let differs = labels.iter().any(|(_, label)| label.pool_name != name);
        Ok(differs.then(|| name.to_owned()))
    }
}

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
                Ok(pool) => Kept::Live(pool),
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
        let how = (wanted.degraded, wanted.check(&drives)?);
        let imported =
            import(&drives, how, self.repair_after).map_err(|error| also(error, &missing))?;
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
        self.state.update(|state| state.put_pool(entry))
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
            let theirs = theirs.filter(|(index, _)| !is_out(*index));
            let theirs: Vec<_> = theirs
                .filter_map(|(_, drive)| Some(&drive.as_ref()?.spec))
                .collect();
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
            Some(kept @ Kept::Live(_)) if new_name.is_none() => {
                return Ok(self.pool_status(name, kept));
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
        let wanted = Wanted {
            new_name,
            degraded: request.degraded,
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
        if let Some(Kept::Live(pool)) = pools.get_mut(name) {
            pool.drives.resize(pool.drives.len().max(member + 1), None);
            pool.drives[member] = drives.first().map(KnownDrive::from);
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
        self.order(name, Manage::RemoveDrive { member })
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
        let is_it = |(index, member): &(usize, &ashlar_store::MemberStatus)| {
            let spec = pool.drives.get(*index).and_then(Option::as_ref);
            member.drive.to_string() == drive || spec.is_some_and(|open| open.spec == drive)
        };
        // A drive that was removed and added again has been a member twice.
        let found = members.filter(is_it);
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
