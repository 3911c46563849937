//! All services of a daemon: made, listed, moved, stopped, deleted; remembered in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

use super::address;
use super::driver::{Beginning, Running};
use super::entry::{Answer, Entry, Words, order_after};
use super::host::{self, Host};
use super::machine::{Owner, Wanted};
use super::share::Heard;
use super::{Ownership, needs, one_copy};
use crate::files;
use crate::model::{
    ControlError, CreateService, ErrorKind, KeptVolume, MoveService, ServiceAddress, ServiceState,
    ServiceStatus, VolumeName,
};

/// What is remembered of all services.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    version: u32,
    services: Vec<Entry>,
}

const VERSION: u32 = 2;
/// Of version 1, which has no nodes.
const OLDEST_VERSION: u32 = 1;
/// A daemon that ends waits so long for its replicated services to come down in order.
const DOWN_WITHIN: Duration = Duration::from_secs(30);

/// A service, and what watches it: one that was deleted is not watched.
pub(super) struct One {
    pub(super) entry: Entry,
    pub(super) running: Option<Running>,
}

/// What an operator wants of it.
pub(super) fn wanted(entry: &Entry) -> Wanted {
    match entry.stopped {
        true => Wanted::Stopped,
        false => Wanted::Run,
    }
}

/// All services of a daemon.
pub struct Services {
    me: Weak<Self>,
    dir: PathBuf,
    pub(super) ownership: Arc<dyn Ownership>,
    pub(super) all: Mutex<BTreeMap<String, One>>,
    /// Of services that are no more here: they are watched until they are down.
    leaving: Mutex<Vec<Running>>,
    /// Held while one is begun.
    beginning: Mutex<()>,
    /// What other nodes have told.
    pub(super) heard: Heard,
}

fn file(dir: &Path) -> PathBuf {
    dir.join("services.json")
}

fn remembered(dir: &Path) -> Result<Remembered, ControlError> {
    let path = file(dir);
    let Some(text) = files::read(&path)? else {
        return Ok(Remembered::default());
    };
    let read: Remembered = serde_json::from_str(&text)
        .map_err(|error| ControlError::environment(format!("{}: {error}", path.display())))?;
    if !(OLDEST_VERSION..=VERSION).contains(&read.version) {
        return Err(ControlError::environment(format!(
            "{}: version {} is not {VERSION}, which is read here",
            path.display(),
            read.version
        )));
    }
    Ok(read)
}

/// Takes away what an earlier daemon has left of replicated services: since then another node may have had their
/// volumes, and what was mounted must not get to them again. To be called before volumes are served.
///
/// # Errors
/// Environment: what is remembered cannot be read, or something does not go.
pub fn fence_left_behind(dir: &Path) -> Result<(), ControlError> {
    for entry in remembered(dir)?.services {
        if entry.is_replicated() && !entry.deleted {
            let name = entry.service.name.clone();
            let fenced = Host::new(entry.service, dir, true)?.fence();
            fenced.map_err(|why| ControlError::environment(format!("service {name}: {why}")))?;
        }
    }
    Ok(())
}

impl Services {
    /// Those that are remembered in a daemon's directory, which come up where their volumes are.
    ///
    /// # Errors
    /// What is remembered cannot be read.
    pub fn open(dir: &Path, ownership: Arc<dyn Ownership>) -> Result<Arc<Self>, ControlError> {
        let services = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            dir: dir.to_owned(),
            ownership,
            all: Mutex::default(),
            leaving: Mutex::default(),
            beginning: Mutex::default(),
            heard: Heard::new(),
        });
        for entry in remembered(dir)?.services {
            services.begin(entry)?;
        }
        services.begin_telling()?;
        Ok(services)
    }

    /// Remembers all of them.
    pub(super) fn remember(&self, all: &BTreeMap<String, One>) -> Result<(), ControlError> {
        let all = Remembered {
            version: VERSION,
            services: all.values().map(|one| one.entry.clone()).collect(),
        };
        let text = serde_json::to_string_pretty(&all);
        let text = text.map_err(|error| ControlError::internal(format!("services: {error}")))?;
        files::replace(&file(&self.dir), text.as_bytes())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, One>> {
        // Each change is a single insertion or removal, or of single fields.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a service from now on, unless it is watched as that already: another node may have told of it meanwhile.
    pub(super) fn begin(&self, entry: Entry) -> Result<(), ControlError> {
        let name = entry.service.name.clone();
        // Of two at once the second finds what the first has begun.
        let _turn = self
            .beginning
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_begun = |one: &One| one.running.is_some() && !entry.supersedes(&one.entry);
        if self.lock().get(&name).is_some_and(is_begun) {
            return Ok(());
        }
        let running = match entry.deleted {
            true => None,
            false => Some(Running::begin(Beginning {
                host: Host::new(entry.service.clone(), &self.dir, entry.is_replicated())?,
                ownership: self.ownership.clone(),
                services: self.me.clone(),
                wanted: wanted(&entry),
                failed_on: entry.failed_on.clone(),
                nodes: entry.nodes.clone(),
            })?),
        };
        let before = self.lock().insert(name, One { entry, running });
        if let Some(before) = before.and_then(|one| one.running) {
            self.retire(before);
        }
        Ok(())
    }

    /// It is none of this node's any more, and is still to come down.
    pub(super) fn retire(&self, running: Running) {
        running.retire();
        self.leaving().push(running);
    }

    /// What is still coming down, though it is none of this node's services any more.
    fn leaving(&self) -> MutexGuard<'_, Vec<Running>> {
        // Each change is a single one.
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|running| !running.is_down());
        leaving
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<ServiceStatus> {
        let all = self.lock();
        let known = all.values().filter_map(|one| self.status(one));
        known.collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// Not found.
    pub fn show(&self, name: &str) -> Result<ServiceStatus, ControlError> {
        let all = self.lock();
        let status = all.get(name).and_then(|one| self.status(one));
        status.ok_or_else(|| not_found(name))
    }

    fn with<T>(
        &self,
        name: &str,
        ask: impl FnOnce(&mut Entry, &Running) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let mut all = self.lock();
        let Some(One {
            entry,
            running: Some(running),
        }) = all.get_mut(name)
        else {
            return Err(not_found(name));
        };
        ask(entry, running)
    }

    /// Why a service cannot be one of this node's, if so.
    pub(super) fn check(&self, service: &CreateService) -> Result<(), ControlError> {
        let name = &service.name;
        for other in self.lock().values().filter(|one| one.running.is_some()) {
            let other = &other.entry.service;
            if other.name == *name {
                return Err(ControlError::conflict(format!(
                    "there is a service {name} already"
                )));
            }
            let volume = service
                .volumes
                .iter()
                .find(|volume| other.volumes.contains(volume));
            let mount = service
                .mounts
                .iter()
                .find(|mount| other.mounts.contains(mount));
            let ip = |of: &CreateService| of.address.as_ref().map(ServiceAddress::ip);
            let ip = ip(service).filter(|mine| ip(other) == Some(*mine));
            if let Some(taken) = volume
                .cloned()
                .or(mount.map(|mount| mount.display().to_string()))
                .or(ip.map(|ip| format!("address {ip}")))
            {
                return Err(ControlError::conflict(format!(
                    "{taken} is used by service {}",
                    other.name
                )));
            }
        }
        if let Some(user) = &service.user {
            host::ids(user).map_err(ControlError::usage)?;
        }
        needs::check(service)?;
        for mount in &service.mounts {
            host::is_no_link(mount).map_err(ControlError::conflict)?;
        }
        for mount in &service.mounts {
            if host::is_mounted(mount).map_err(ControlError::environment)? {
                return Err(ControlError::conflict(format!(
                    "mount point {} is in use: something is mounted there",
                    mount.display()
                )));
            }
        }
        let mut mounts = service.mounts.iter();
        mounts.try_for_each(|mount| is_free(mount))?;
        let address = service.address.as_ref();
        address.map_or(Ok(()), address::check)
    }

    /// The service that a volume is of, whether it runs or not; one that is no more, while it is not down yet.
    pub(crate) fn user_of(&self, volume: &VolumeName) -> Option<String> {
        let (all, volume) = (self.lock(), volume.to_string());
        let known = all.values().filter(|one| !one.entry.deleted);
        let known = known.map(|one| &one.entry.service);
        let leaving = self.leaving();
        let mut all = known.chain(leaving.iter().map(Running::service));
        let its = all.find(|service| service.volumes.contains(&volume));
        its.map(|service| service.name.clone())
    }

    /// The first revision of a service: newer than all that is remembered of others of its name.
    fn first_revision(
        &self,
        service: &CreateService,
        nodes: &[String],
    ) -> Result<u64, ControlError> {
        let known = |one: &One| one.entry.revision;
        let mut newest = self.lock().get(&service.name).map_or(0, known);
        for node in self.ownership.peers() {
            match self.deleted_at(&node, service) {
                Ok(revision) => newest = newest.max(revision),
                Err(error) if nodes.contains(&node) => return Err(error),
                // It cannot have it, and what it remembers the others have most likely heard.
                Err(_) => {}
            }
        }
        Ok(order_after(newest))
    }

    /// Makes a service, and has it come up where its volumes are.
    ///
    /// # Errors
    /// Conflict: the name, a volume, a mount point or the address is taken; its volumes have different owners or cannot be used.
    /// Usage: there is no such user or interface. Environment: it cannot be remembered, a program that it needs is not
    /// installed, or a node that has copies of its volumes cannot be reached.
    pub fn create(&self, service: CreateService) -> Result<ServiceStatus, ControlError> {
        let name = service.name.clone();
        self.check(&service)?;
        let volumes = service.volume_names()?;
        let nodes = self.ownership.nodes(&volumes)?;
        if nodes.is_empty()
            && let Owner::Unusable { why } = self.ownership.owner(&volumes)
        {
            return Err(ControlError::conflict(format!("service {name}: {why}")));
        }
        if let Some(address) = &service.address {
            address::check_neighbours(address)?;
        }
        let revision = self.first_revision(&service, &nodes)?;
        let entry = Entry::new(service, nodes, revision);
        // Others first: one that refuses it has nothing to undo here.
        let mut offered = Vec::new();
        let made = self
            .offer(&entry, &mut offered)
            .and_then(|()| match entry.is_replicated() {
                true => self.ownership.let_in(&volumes),
                false => Ok(()),
            })
            .and_then(|()| self.begin(entry.clone()))
            .and_then(|()| self.remember(&self.lock()));
        if let Err(error) = made {
            self.withdraw(entry, offered);
            return Err(error);
        }
        self.show(&name)
    }

    /// Offers a new service to the other nodes that have its volumes. `offered` are those that may have it then.
    fn offer(&self, entry: &Entry, offered: &mut Vec<String>) -> Result<(), ControlError> {
        for node in self.others(entry) {
            let entry = Box::new(entry.clone());
            let said = self.ownership.say(&node, Words::Offer { entry });
            // One that has another of that name has not taken this one.
            if !matches!(&said, Err(error) if error.kind == ErrorKind::Conflict) {
                offered.push(node);
            }
            said?;
        }
        Ok(())
    }

    /// Takes back what one of the nodes has refused, this one or another. On a node that has not taken it, it would end
    /// another service of that name.
    fn withdraw(&self, entry: Entry, offered: Vec<String>) {
        let mut gone = entry;
        gone.nodes = offered;
        gone.nodes.push(self.ownership.node());
        gone.deleted = true;
        gone.ordered();
        self.take(vec![gone]);
        self.tell_now();
    }

    /// Has it run again, after it was stopped or has failed too often.
    ///
    /// # Errors
    /// Not found. Environment: it cannot be remembered.
    pub fn start(&self, name: &str) -> Result<ServiceStatus, ControlError> {
        self.with(name, |_, running| {
            running.forgive();
            Ok(())
        })?;
        self.change(name, |entry| {
            entry.stopped = false;
            entry.failed_on.clear();
        })
    }

    /// Stops it in order and unmounts its volumes; it stays so until it is started.
    ///
    /// # Errors
    /// Not found. Environment: it cannot be remembered.
    pub fn stop(&self, name: &str) -> Result<ServiceStatus, ControlError> {
        self.change(name, |entry| entry.stopped = true)
    }

    /// Changes what is remembered of it, here and then on its other nodes.
    pub(super) fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut Entry),
    ) -> Result<ServiceStatus, ControlError> {
        self.with(name, |entry, running| {
            change(entry);
            entry.ordered();
            running.want(wanted(entry), &entry.failed_on);
            Ok(())
        })?;
        self.remember(&self.lock())?;
        self.tell_now();
        self.show(name)
    }

    /// Stops it in order and gives its volumes to another node, which runs it.
    ///
    /// # Errors
    /// Not found. Usage: no such node. Conflict: no other node can have it now.
    pub fn move_to(
        &self,
        name: &str,
        request: &MoveService,
    ) -> Result<ServiceStatus, ControlError> {
        let (entry, is_here) = self.with(name, |entry, running| {
            Ok((entry.clone(), running.is_here()))
        })?;
        let volumes = entry.service.volume_names()?;
        if !entry.is_replicated() {
            return Err(one_copy(&volumes));
        }
        if let Some(to) = request.to.as_ref().filter(|to| !entry.nodes.contains(to)) {
            return Err(ControlError::conflict(format!(
                "service {name}: node {to} has no copy of its volumes, which are on {}",
                entry.nodes.join(", ")
            )));
        }
        if !is_here {
            return self.have_moved(name, request);
        }
        if request.to.as_deref() == Some(&self.ownership.node()) {
            return self.show(name);
        }
        let mut takers = self.ownership.takers(&volumes);
        takers.retain(|node| entry.nodes.contains(node));
        match &request.to {
            Some(to) => takers.retain(|node| node == to),
            None => takers = self.ownership.preferred(takers),
        }
        let Some(to) = takers.first() else {
            let who = match &request.to {
                Some(to) => format!("the copies on node {to} are"),
                None => "no copies on another node are".into(),
            };
            let not = if request.to.is_some() { "not " } else { "" };
            return Err(ControlError::conflict(format!(
                "service {name}: {who} {not}in sync: `ashlar volume show {}` says more",
                volumes[0]
            )));
        };
        // Before anything of it is stopped: where the volumes must stay, it serves on.
        self.ownership
            .may_give(&volumes, to)
            .map_err(|error| ControlError {
                message: format!("service {name}: {}", error.message),
                ..error
            })?;
        self.with(name, |_, running| {
            running.move_to(to.clone());
            Ok(())
        })?;
        self.show(name)
    }

    /// The node that runs it is to move it.
    fn have_moved(&self, name: &str, request: &MoveService) -> Result<ServiceStatus, ControlError> {
        let status = self.show(name)?;
        let Some(node) = status.node.clone() else {
            return Err(ControlError::conflict(format!(
                "service {name}: no node has its volumes at present"
            )));
        };
        if request.to.as_ref() == Some(&node) {
            return Ok(status);
        }
        let words = Words::Move {
            service: name.into(),
            to: request.to.clone(),
        };
        match self.ownership.say(&node, words)? {
            Answer::Moving { .. } => self.show(name),
            _ => Err(ControlError::internal("an answer to another question")),
        }
    }

    /// Forgets a service that is stopped; its volumes stay as they are.
    ///
    /// # Errors
    /// Not found. Conflict: it is not stopped.
    pub fn delete(&self, name: &str) -> Result<(), ControlError> {
        let status = self.show(name)?;
        let state = status.state;
        let (stopped, is_shared) =
            self.with(name, |entry, _| Ok((entry.stopped, entry.is_replicated())))?;
        if (is_shared && !stopped)
            || !matches!(
                state,
                ServiceState::Stopped | ServiceState::Failed | ServiceState::Elsewhere
            )
        {
            let what = match stopped {
                true => "is being stopped: give the order again when it has stopped".to_owned(),
                false => format!("is not stopped: stop it first (`ashlar service stop {name}`)"),
            };
            return Err(ControlError::conflict(format!("service {name} {what}")));
        }
        {
            let mut all = self.lock();
            let is_shared = all.get(name).is_some_and(|one| one.entry.is_replicated());
            let running = match all.get_mut(name) {
                Some(one) if is_shared => {
                    one.entry.ordered();
                    one.entry.deleted = true;
                    one.running.take()
                }
                _ => all.remove(name).and_then(|one| one.running),
            };
            self.remember(&all)?;
            if let Some(running) = running {
                self.retire(running);
            }
        }
        self.tell_now();
        Ok(())
    }

    /// Moves what runs here to other nodes, in order, and waits until it has gone or a while is over. The volumes of
    /// what is then still being stopped.
    pub(crate) fn drain(&self) -> Vec<KeptVolume> {
        self.drain_within(DOWN_WITHIN)
    }

    fn drain_within(&self, patience: Duration) -> Vec<KeptVolume> {
        let here = |one: &One| one.running.as_ref().is_some_and(Running::is_here);
        let names: Vec<String> = {
            let all = self.lock();
            let moving = all
                .iter()
                .filter(|(_, one)| one.entry.is_replicated() && here(one));
            moving.map(|(name, _)| name.clone()).collect()
        };
        // What does not move keeps all of its volumes: one alone would be taken from under it.
        let mut moving = names;
        let mut kept = Vec::new();
        moving.retain(|name| {
            let moved = self.move_to(name, &MoveService::default());
            if let (Err(error), Some(one)) = (&moved, self.lock().get(name)) {
                tracing::warn!(service = %name, "{}", error.message);
                kept.extend(all_of(&one.entry.service, &error.message));
            }
            moved.is_ok()
        });
        let begun = Instant::now();
        let is_left = |name: &String| self.lock().get(name).is_some_and(here);
        let is_leaving = || self.leaving().iter().any(Running::is_here);
        while (moving.iter().any(is_left) || is_leaving()) && begun.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(50));
        }
        let all = self.lock();
        let leaving = self.leaving();
        let gone = leaving.iter().filter(|running| running.is_here());
        let gone = gone.map(Running::service);
        let is_up = |one: &&One| one.running.as_ref().is_some_and(|one| !one.is_down());
        let left = moving.iter().filter_map(|name| all.get(name));
        let left = left.filter(|one| here(one)).filter(is_up);
        let left = left.map(|one| &one.entry.service);
        kept.extend(left.chain(gone).flat_map(still_stopping));
        kept
    }

    /// Who has volumes may have changed.
    pub(crate) fn look(&self) {
        for one in self.lock().values() {
            if let Some(running) = &one.running {
                running.look();
            }
        }
    }

    /// Watches no longer. What runs on volumes of this node alone goes on: a daemon that is restarted finds it. What
    /// runs on replicated ones comes down in order, for another node to have it.
    pub fn leave(&self) {
        let begun = Instant::now();
        while !self.has_left(begun.elapsed() >= DOWN_WITHIN) {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.heard.end();
    }

    /// Has come down what is to, unless it is `late` for that; then nothing is watched any more.
    fn has_left(&self, late: bool) -> bool {
        let all = self.lock();
        let leaving = self.leaving();
        let running = all.values().filter_map(|one| one.running.as_ref());
        let running: Vec<&Running> = running.chain(leaving.iter()).collect();
        let is_up = |one: &&&Running| one.is_replicated() && !one.is_down();
        let up: Vec<&Running> = running.iter().filter(is_up).copied().collect();
        if late || up.is_empty() {
            running.iter().for_each(|running| running.end());
            return true;
        }
        up.iter().for_each(|running| running.come_down());
        false
    }
}

/// Refuses a mount point that would hide something; one that is not there is made later.
fn is_free(mount: &Path) -> Result<(), ControlError> {
    let refused = |why| {
        let mount = mount.display();
        Err(ControlError::conflict(format!(
            "mount point {mount}: {why}"
        )))
    };
    match std::fs::read_dir(mount).map(|mut entries| entries.next().is_some()) {
        Ok(true) => refused("it is not empty, and mounting would hide what is in it".into()),
        Ok(false) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => refused(error.to_string()),
    }
}

/// Volumes that must not be taken from it.
fn still_stopping(service: &CreateService) -> Vec<KeptVolume> {
    let reason = format!(
        "service {} is still being stopped: give the order again when it has moved",
        service.name
    );
    all_of(service, &reason)
}

/// A service's volumes, which stay for this reason.
fn all_of(service: &CreateService, reason: &str) -> Vec<KeptVolume> {
    let kept = |volume: &String| KeptVolume {
        volume: volume.clone(),
        reason: reason.to_owned(),
    };
    service.volumes.iter().map(kept).collect()
}

fn not_found(name: &str) -> ControlError {
    ControlError::not_found(format!("there is no service {name}"))
}
