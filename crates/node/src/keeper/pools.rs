//! Making, importing and letting go of pools.

use ashlar_store::{Manage, Managed};
use tracing::{error, info, warn};
use uuid::Uuid;

use super::serve::specs;
use super::wanted::{GO_ON, Wanted};
use super::{Dismissal, Keeper, Kept, LivePool, live};
use crate::model::{ControlError, CreatePool, ImportPool, PoolStatus, ReserveSpec};
use crate::pool::{CreatedFiles, create, import, open_drives, reserve_of};
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
                        warn!(pool = name, "pool {name}: {}", error.message);
                    }
                    Kept::Live(pool)
                }
                Err(error) => {
                    let why = error.message;
                    error!(pool = name, "pool {name} is not in service: {why}");
                    self.expect_volumes_of(id);
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
                Err(error) => {
                    warn!(pool = name, drive = spec, "pool {name}: {}", error.message);
                    missing.push(error.message);
                }
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
        tell_of(name, &pool);
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
                error!(nqn = volume.nqn, "{}: {error}", volume.nqn);
            }
        }
        if let Err(error) = self.unsettle(pool.id) {
            error!(pool = %pool.id, "pool {}: {}", pool.id, error.message);
        }
    }

    pub(super) fn remember(&self, name: &str, pool: &LivePool) -> Result<(), ControlError> {
        self.remember_with(name, pool, None)
    }

    pub(super) fn remember_with(
        &self,
        name: &str,
        pool: &LivePool,
        more: Option<&str>,
    ) -> Result<(), ControlError> {
        let mut drives = specs(&pool.drives);
        drives.extend(specs(&pool.joining));
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
    pub(super) fn remember_drives(&self, pool: &LivePool) -> Result<(), ControlError> {
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
        let created = CreatedFiles::watch(&request.drives);
        let drives = open_drives(&request.drives)?;
        let id = create(request, &drives)?;
        created.keep();
        drop(drives);
        let pool = self.bring_up(&Wanted::new(name, Some(id)), &request.drives)?;
        self.remember(name, &pool)?;
        let kept = pools.entry(name.clone()).or_insert(Kept::Live(pool));
        Ok(self.pool_status(name, kept))
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
                refuse_another(name, pool, request)?;
                return Ok(self.pool_status(name, kept));
            }
            Some(Kept::Failed { id, .. })
                if request.drives.is_empty() && is_another(*id, request) =>
            {
                return Err(ControlError::conflict(format!(
                    "the pool {name} that is known here is {id}: name the drives of the other"
                )));
            }
            Some(Kept::Failed { id, drives, .. }) if request.drives.is_empty() => {
                let known = Some(*id).filter(|id| !id.is_nil());
                (known.or(request.id), drives.clone())
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
        self.expect_no_volumes_of(pool.id);
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
            self.expect_no_volumes_of(id);
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
        info!(
            pool = name,
            "pool {name} is out of service: it was exported"
        );
        self.state.update(|state| state.forget_pool(id))
    }

    pub(super) fn begin_scrub(&self, name: &str) -> Result<PoolStatus, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, name)?;
        // Its progress is in the status; nobody waits for the answer.
        drop(pool.link.begin(Manage::Scrub));
        Ok(self.pool_status(name, &pools[name]))
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
}

/// Says that a pool is in service, and which of its drives are not.
fn tell_of(name: &str, pool: &LivePool) {
    let (drives, volumes) = (pool.drives.iter(), pool.volumes.len());
    let here = drives.clone().filter(|drive| drive.is_here).count();
    info!(
        pool = name,
        id = %pool.id,
        "pool {name} is in service: {here} drives, {volumes} volumes"
    );
    for drive in drives.filter(|drive| !drive.is_here && !drive.removed) {
        let drive = drive.name();
        warn!(pool = name, drive, "pool {name}: drive {drive} is missing");
    }
}

/// Whether an import asks for a pool of another identity than this.
fn is_another(id: Uuid, request: &ImportPool) -> bool {
    !id.is_nil() && request.id.is_some_and(|wanted| wanted != id)
}

/// Refuses to take a pool in service for what an import asks for, unless it is that.
fn refuse_another(name: &str, pool: &LivePool, request: &ImportPool) -> Result<(), ControlError> {
    let id = pool.id;
    if let Some(wanted) = request.id.filter(|_| is_another(id, request)) {
        return Err(ControlError::conflict(format!(
            "the pool {name} in service is {id}, not {wanted}: the other gets a name of its own with --as"
        )));
    }
    if request.drives.is_empty() {
        return Ok(());
    }
    let view = pool.link.view().map_err(engine)?;
    let members = view.status.members.iter().zip(&pool.drives);
    // One that is out keeps its name, and is none of the pool's drives.
    let theirs = members.filter(|(member, _)| member.in_service);
    let theirs: Vec<&str> = theirs.map(|(_, drive)| &drive.spec[..]).collect();
    let mut wanted = request.drives.iter();
    match wanted.find(|spec| !theirs.contains(&&spec[..])) {
        None => Ok(()),
        Some(spec) => Err(ControlError::conflict(format!(
            "a pool {name} ({id}) is in service already, without drive {spec}: another pool of that \
             name gets a name of its own with --as, and a new drive joins with `pool add`"
        ))),
    }
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
