//! Making, importing and letting go of pools.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use ashlar_store::{Manage, Managed};
use tracing::{error, info, warn};
use uuid::Uuid;

use super::caches::CacheVolume;
use super::replication::CopyVolume;
use super::serve::specs;
use super::start::Opened;
use super::stop::empty_while_it_gets_on;
use super::wanted::{GO_ON, Wanted};
use super::{Dismissal, Ending, Kept, LivePool, PoolManager, live};
use crate::model::{ControlError, CreatePool, ImportPool, PoolStatus, ReopenCache, ReserveSpec};
use crate::pool::{
    CreatedFiles, Found, HowToImport, OpenDrive, create, import, open_drives, probe, reserve_of,
};
use crate::{DriveEntry, PoolEntry};

/// How long a pool that is let go of by force may take to empty its logs.
const DRAIN_BY_FORCE: Duration = Duration::from_secs(10);

impl PoolManager {
    /// Imports a pool, puts it on a core and serves its volumes.
    pub(super) fn bring_up(
        &self,
        wanted: &Wanted<'_>,
        opened: Opened,
    ) -> Result<LivePool, ControlError> {
        let name = wanted.new_name.unwrap_or(wanted.name);
        let Opened {
            drives, missing, ..
        } = opened;
        for why in &missing {
            warn!(pool = name, "pool {name}: {why}");
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
        let how = HowToImport {
            degraded: wanted.degraded,
            accept_data_loss: wanted.accept_data_loss,
            rename: wanted.check(&drives)?,
            repair_after: self.repair_after,
            memory: self.memory.of_an_import(&self.state),
        };
        let imported =
            import(&drives, how).map_err(|error| self.with_names(also(error, &missing)))?;
        let pool_id = imported.engine.label().pool;
        let volumes = imported.engine.volumes();
        let mut pool = self.settle(pool_id, imported)?;
        let state = self.state.read().clone();
        for volume in volumes.iter().filter(|volume| !volume.deleting) {
            if volume.is_cache {
                self.take_up_cache(
                    &mut pool,
                    &CacheVolume::of(volume, name),
                    &ReopenCache::default(),
                );
                continue;
            }
            if let Some(identity) = volume.replica {
                let copy = CopyVolume::of(volume, name);
                // The pool's other volumes do not wait for it.
                if let Err(error) = self.take_up_copy(&mut pool, &copy, identity) {
                    error!(volume = copy.name, "{}", error.message);
                }
                continue;
            }
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
    pub(super) fn take_down(&self, pool: &LivePool) {
        for volume in pool.volumes.values() {
            if let Err(error) = self.target.remove(&volume.nqn) {
                error!(nqn = volume.nqn, "{}: {error}", volume.nqn);
            }
        }
        self.unsettle_caches(pool);
        if let Err(error) = self.unsettle(pool.id) {
            error!(pool = %pool.id, "pool {}: {}", pool.id, error.message);
        }
    }

    pub(super) fn remember(&self, name: &str, pool: &LivePool) -> Result<(), ControlError> {
        self.remember_with(name, pool, None)
    }

    /// Remembers a pool that has come into service. One that cannot be remembered goes off its core again: nothing else
    /// would know of it.
    fn remember_new(&self, name: &str, pool: &LivePool) -> Result<(), ControlError> {
        self.remember(name, pool).map_err(|mut error| {
            self.forget_copies_of(name);
            self.take_down(pool);
            let way_out = format!(
                ". Pool {name} is on its drives and not in service: `pool import {name}` with them, once that can be \
                 written"
            );
            error.message.push_str(&way_out);
            error
        })
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
        let created = CreatedFiles::watch(&pools, &request.drives);
        let drives = open_drives(&request.drives, self.opening(false))?;
        let id = create(request, &drives)?;
        created.keep();
        drop(drives);
        let wanted = Wanted::new(name, Some(id));
        let opened = self.open_known(&request.drives, &wanted);
        let pool = self.bring_up(&wanted, opened)?;
        self.remember_new(name, &pool)?;
        let kept = pools.entry(name.clone()).or_insert(Kept::Live(pool));
        Ok(self.pool_status(name, kept))
    }

    pub(super) fn take_up_pool(
        &self,
        name: &str,
        request: &ImportPool,
    ) -> Result<PoolStatus, ControlError> {
        let look = self.look_of(name);
        let _alone = look.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pools = self.lock();
        self.lay_down_failed(&mut pools, name);
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
                    "name the drives of pool {name}, which is not known here: `pool import {name} --drive DRIVE \
                     --drive DRIVE …`, all that it has"
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
            accept_data_loss: request.accept_data_loss,
            named: !request.drives.is_empty(),
            known,
            ..Wanted::new(name, id)
        };
        let opened = self.open_known(&drives, &wanted);
        let may_go_on = !request.degraded && !wanted.needs_all() && !opened.drives.is_empty();
        if opened.is_taken && may_go_on && self.lacks(&opened).is_some() {
            return Err(ControlError::conflict(format!(
                "{}. It may serve the pool: end it for good, then `pool import {name}`. {GO_ON}",
                opened.missing.join("; ")
            )));
        }
        refuse_copies(&pools, &opened.drives)?;
        let pool = self.bring_up(&wanted, opened)?;
        let served = new_name.unwrap_or(name);
        self.remember_new(served, &pool)?;
        self.expect_no_volumes_of(pool.id);
        let is_it = matches!(pools.get(name), Some(Kept::Failed { id, .. }) if *id == pool.id);
        if is_it {
            pools.remove(name);
        }
        pools.insert(served.to_owned(), Kept::Live(pool));
        Ok(self.pool_status(served, &pools[served]))
    }

    fn refuse_connected(&self, name: &str, pool: &LivePool) -> Result<(), ControlError> {
        let mut volumes = pool.volumes.values();
        let connected = volumes.find_map(|volume| self.connected(&volume.nqn).into_iter().next());
        match connected {
            None => Ok(()),
            Some(host) => Err(ControlError::refused(format!(
                "host {host} is connected to a volume of pool {name}; --force disconnects it"
            ))),
        }
    }

    /// Empties the logs of a pool that is to be let go of while its volumes are there: if that fails nothing has
    /// changed. Other pools do not wait for it.
    fn empty_first(&self, name: &str) -> Result<(), ControlError> {
        let link = {
            let pools = self.lock();
            let Some(Kept::Live(pool)) = pools.get(name) else {
                return Ok(());
            };
            self.refuse_connected(name, pool)?;
            pool.link.clone()
        };
        let view = link.view().ok();
        let failed = view
            .as_ref()
            .is_some_and(|view| view.status.failure.is_some());
        if failed {
            return Ok(());
        }
        let volumes = view.iter().flat_map(|view| &view.status.volumes);
        let has_copies = volumes.clone().any(|volume| volume.replica.is_some());
        match empty_while_it_gets_on(&link) {
            // Other nodes may fill them as fast until their copies here have left.
            Err(_) if has_copies => Ok(()),
            emptied => emptied.map_err(not_emptied),
        }
    }

    pub(super) fn let_go_pool(&self, name: &str, force: bool) -> Result<(), ControlError> {
        if !force {
            self.await_backing(name)?;
            self.empty_first(name)?;
        }
        let mut pools = self.lock();
        if let Some(Kept::Failed { id, .. }) = pools.get(name) {
            // What looks for its drives, or brings it up, for minutes, sees that it is wanted no more.
            let id = *id;
            self.memory.forget(id)?;
            self.expect_no_volumes_of(id);
            pools.remove(name);
            return Ok(());
        }
        let pool = live(&pools, name)?;
        if !force {
            self.refuse_connected(name, pool)?;
        }
        let has_failed = pool.failure().is_some();
        self.hand_over(pool);
        if !has_failed {
            self.leave_owners_of(name);
        }
        self.forget_copies_of(name);
        let or_warn = |gone: Result<(), ControlError>| match gone {
            Err(error) if force || has_failed => {
                warn!(pool = name, "pool {name}: {}", error.message);
                Ok(())
            }
            gone => gone,
        };
        for volume in pool.volumes.values() {
            let why = Dismissal::ForNow(format!("pool {name} was exported"));
            or_warn(self.send_away(&volume.nqn, why))?;
            or_warn(self.unserve(&volume.nqn))?;
        }
        self.unsettle_caches(pool);
        let settled = match force {
            true => pool.link.drain_within(DRAIN_BY_FORCE),
            false => pool.link.manage(Manage::Drain).map(drop),
        };
        match settled {
            // What it has acknowledged is in its logs: the next import finds it there.
            Err(error) if force || has_failed => {
                warn!(pool = name, "pool {name} is exported as it is: {error}");
            }
            settled => settled.map_err(not_emptied)?,
        }
        let id = pool.id;
        self.unsettle(id)?;
        pools.remove(name);
        info!(
            pool = name,
            "pool {name} is out of service: it was exported"
        );
        self.memory.forget(id)
    }

    /// Takes a pool off the cores that has stopped, so that it can be imported again. Its hosts come back.
    fn lay_down_failed(&self, pools: &mut BTreeMap<String, Kept>, name: &str) {
        let Some(Kept::Live(pool)) = pools.get(name) else {
            return;
        };
        let Some(why) = pool.failure() else { return };
        warn!(
            pool = name,
            "pool {name} has stopped and is to be imported again: {why}"
        );
        self.expect_volumes_of(Some(pool.id));
        self.take_down(pool);
        let failed = Kept::Failed {
            id: pool.id,
            drives: specs(&pool.drives),
            why,
            ending: Ending::ByOrder,
        };
        pools.insert(name.to_owned(), failed);
    }

    pub(super) fn begin_scrub(&self, name: &str) -> Result<PoolStatus, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, name)?;
        // Its progress is in the status; the answer is not waited for.
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

/// Refuses drives that are copies of those of a pool in service, before anything is written to them.
fn refuse_copies(pools: &BTreeMap<String, Kept>, drives: &[OpenDrive]) -> Result<(), ControlError> {
    for (drive, found) in drives.iter().zip(probe(drives)?) {
        let Found::Label(label) = found else { continue };
        let is_it = |kept: &Kept| matches!(kept, Kept::Live(pool) if pool.id == label.pool);
        if let Some((name, _)) = pools.iter().find(|(_, kept)| is_it(kept)) {
            return Err(ControlError::conflict(format!(
                "drive {} holds a copy of pool {name} ({}), which is in service here: nothing was changed. `pool export \
                 {name}` first, or import the copy on another machine",
                drive.spec, label.pool
            )));
        }
    }
    Ok(())
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

/// Why a pool's logs are not empty, and what can be done without that.
fn not_emptied(error: ashlar_block::IoError) -> ControlError {
    let mut error = engine(error);
    let way_out = ". `pool export --force` lets go of it as it is";
    error.message.push_str(way_out);
    error
}

fn also(mut error: ControlError, missing: &[String]) -> ControlError {
    if !missing.is_empty() {
        error.message = format!("{} ({})", error.message, missing.join("; "));
    }
    error
}
