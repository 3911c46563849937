//! All services of a daemon: made, listed, moved, stopped, deleted; remembered in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::Ownership;
use super::driver::Running;
use super::host::{self, Host};
use super::machine::{Owner, Wanted};
use crate::files;
use crate::model::{ControlError, CreateService, MoveService, ServiceState, ServiceStatus};

/// What is remembered of all services.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    version: u32,
    services: Vec<Entry>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(flatten)]
    service: CreateServiceKept,
    stopped: bool,
}

/// Flattened, it cannot deny unknown fields by itself.
#[derive(Clone, Serialize, Deserialize)]
struct CreateServiceKept {
    service: CreateService,
}

const VERSION: u32 = 1;

/// All services of a daemon.
pub struct Services {
    dir: PathBuf,
    ownership: Arc<dyn Ownership>,
    running: Mutex<BTreeMap<String, Running>>,
}

impl Services {
    /// Those that are remembered in a daemon's directory, which come up where their volumes are.
    ///
    /// # Errors
    /// What is remembered cannot be read.
    pub fn open(dir: &Path, ownership: Arc<dyn Ownership>) -> Result<Arc<Self>, ControlError> {
        let services = Arc::new(Self {
            dir: dir.to_owned(),
            ownership,
            running: Mutex::default(),
        });
        for entry in services.remembered()?.services {
            let wanted = if entry.stopped {
                Wanted::Stopped
            } else {
                Wanted::Run
            };
            services.begin(entry.service.service, wanted)?;
        }
        Ok(services)
    }

    fn file(&self) -> PathBuf {
        self.dir.join("services.json")
    }

    fn remembered(&self) -> Result<Remembered, ControlError> {
        let path = self.file();
        let Some(text) = files::read(&path)? else {
            return Ok(Remembered::default());
        };
        let read: Remembered = serde_json::from_str(&text)
            .map_err(|error| ControlError::environment(format!("{}: {error}", path.display())))?;
        if read.version != VERSION {
            return Err(ControlError::environment(format!(
                "{}: version {} is not {VERSION}, which is read here",
                path.display(),
                read.version
            )));
        }
        Ok(read)
    }

    fn remember(&self, running: &BTreeMap<String, Running>) -> Result<(), ControlError> {
        let entry = |one: &Running| Entry {
            service: CreateServiceKept {
                service: one.service().clone(),
            },
            stopped: one.wanted() == Wanted::Stopped,
        };
        let all = Remembered {
            version: VERSION,
            services: running.values().map(entry).collect(),
        };
        let text = serde_json::to_string_pretty(&all);
        let text = text.map_err(|error| ControlError::internal(format!("services: {error}")))?;
        files::replace(&self.file(), text.as_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        // Each change is a single insertion or removal.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, service: CreateService, wanted: Wanted) -> Result<(), ControlError> {
        let name = service.name.clone();
        let host = Host::new(service, &self.dir)?;
        let running = Running::begin(host, self.ownership.clone(), wanted)?;
        self.lock().insert(name, running);
        Ok(())
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<ServiceStatus> {
        self.lock().values().map(Running::status).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// Not found.
    pub fn show(&self, name: &str) -> Result<ServiceStatus, ControlError> {
        self.with(name, |one| Ok(one.status()))
    }

    fn with<T>(
        &self,
        name: &str,
        ask: impl FnOnce(&Running) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let running = self.lock();
        let one = running.get(name);
        ask(one.ok_or_else(|| ControlError::not_found(format!("there is no service {name}")))?)
    }

    /// Makes a service, and has it come up where its volumes are.
    ///
    /// # Errors
    /// Conflict: the name, a volume or a mount point is taken; its volumes have different owners or cannot be used.
    /// Usage: there is no such user. Environment: it cannot be remembered.
    pub fn create(&self, service: CreateService) -> Result<ServiceStatus, ControlError> {
        let name = service.name.clone();
        {
            let running = self.lock();
            if running.contains_key(&name) {
                return Err(ControlError::conflict(format!(
                    "there is a service {name} already"
                )));
            }
            for other in running.values().map(Running::service) {
                let volume = service
                    .volumes
                    .iter()
                    .find(|volume| other.volumes.contains(volume));
                let mount = service
                    .mounts
                    .iter()
                    .find(|mount| other.mounts.contains(mount));
                if let Some(taken) = volume
                    .cloned()
                    .or(mount.map(|mount| mount.display().to_string()))
                {
                    return Err(ControlError::conflict(format!(
                        "{taken} is used by service {}",
                        other.name
                    )));
                }
            }
        }
        if let Some(user) = &service.user {
            host::ids(user).map_err(ControlError::usage)?;
        }
        if let Some(mount) = service.mounts.iter().find(|mount| host::is_mounted(mount)) {
            return Err(ControlError::conflict(format!(
                "mount point {} is in use: something is mounted there",
                mount.display()
            )));
        }
        let volumes = service.volume_names()?;
        if let Owner::Unusable { why } = self.ownership.owner(&volumes) {
            return Err(ControlError::conflict(format!("service {name}: {why}")));
        }
        self.begin(service, Wanted::Run)?;
        let remembered = self.remember(&self.lock());
        if let Err(error) = remembered {
            if let Some(one) = self.lock().remove(&name) {
                one.end();
            }
            return Err(error);
        }
        self.show(&name)
    }

    /// Has it run again, after it was stopped or has failed too often.
    ///
    /// # Errors
    /// Not found. Environment: it cannot be remembered.
    pub fn start(&self, name: &str) -> Result<ServiceStatus, ControlError> {
        self.want(name, Wanted::Run)
    }

    /// Stops it in order and unmounts its volumes; it stays so until it is started.
    ///
    /// # Errors
    /// Not found. Environment: it cannot be remembered.
    pub fn stop(&self, name: &str) -> Result<ServiceStatus, ControlError> {
        self.want(name, Wanted::Stopped)
    }

    fn want(&self, name: &str, wanted: Wanted) -> Result<ServiceStatus, ControlError> {
        let status = self.with(name, |one| {
            one.want(wanted);
            Ok(one.status())
        })?;
        self.remember(&self.lock())?;
        Ok(status)
    }

    /// Stops it in order and gives its volumes to another node, which runs it.
    ///
    /// # Errors
    /// Not found. Conflict: no other node can have it.
    pub fn move_to(
        &self,
        name: &str,
        request: &MoveService,
    ) -> Result<ServiceStatus, ControlError> {
        self.with(name, |one| {
            let volumes = one.service().volume_names()?;
            if !self.ownership.can_move(&volumes) {
                let refused = self.ownership.give(&volumes, request.to.as_deref());
                return Err(refused.err().unwrap_or_else(|| {
                    ControlError::conflict(format!("service {name}: no other node can have it"))
                }));
            }
            one.move_to(request.to.clone());
            Ok(one.status())
        })
    }

    /// Forgets a service that is stopped; its volumes stay as they are.
    ///
    /// # Errors
    /// Not found. Conflict: it is not stopped.
    pub fn delete(&self, name: &str) -> Result<(), ControlError> {
        let state = self.show(name)?.state;
        if !matches!(
            state,
            ServiceState::Stopped | ServiceState::Failed | ServiceState::Elsewhere
        ) {
            return Err(ControlError::conflict(format!(
                "service {name} is {state:?}: stop it first (`ashlar service stop {name}`)"
            )));
        }
        let one = self.lock().remove(name);
        self.remember(&self.lock())?;
        if let Some(one) = one {
            one.end();
        }
        Ok(())
    }

    /// Watches no longer. What runs goes on: a daemon that is restarted finds it.
    pub fn leave(&self) {
        for one in self.lock().values() {
            one.end();
        }
    }
}
