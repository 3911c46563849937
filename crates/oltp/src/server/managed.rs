//! A pair that Patroni keeps wherever it runs as a group, with etcd and HAProxy beside it.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ashlar_lab::{LabError, Progress};

use super::{Cgroup, DATABASE, Server, Settings, remains, shared_buffers};
use crate::group::{Adopted, Group, NodeName};

/// What Patroni copies a primary's log by.
pub(super) const REPLICATOR: &str = "create role replicator login replication";

/// Who keeps a pair.
#[derive(Debug)]
pub(super) struct Managed {
    /// Where a group's own things are while it runs; what holds them is there.
    dir: PathBuf,
    running: Mutex<Option<Group>>,
}

impl Managed {
    pub(super) fn at(dir: PathBuf) -> Self {
        Self {
            dir,
            running: Mutex::default(),
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Group>> {
        // A single field.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Through the listener, while a group runs.
    pub(super) fn url(&self) -> Option<String> {
        let running = self.running();
        running.as_ref().map(|group| group.url(DATABASE))
    }

    /// Has both run as a group.
    pub(super) fn start(&self, pair: [&Server; 2], settings: &Settings) -> Result<(), LabError> {
        let [primary, _] = pair;
        let own = remains::own_segments(primary.engine.version());
        let buffers = shared_buffers(settings);
        let set = own.into_iter().chain(buffers);
        let adopted = Adopted {
            dir: &self.dir,
            homes: pair.map(|server| server.room.dir.as_path()),
            set: set.chain(settings.set.iter().cloned()).collect(),
            door: primary.room.door.clone(),
        };
        let group = Group::adopt(adopted, &Progress::silent())?;
        let limited = limit(&group, pair, settings);
        *self.running() = Some(group);
        limited
    }

    /// Ends the group, in order; both databases stay where they are.
    pub(super) fn stop(&self) -> Result<(), LabError> {
        match self.running().take() {
            Some(group) => group.release(),
            None => Ok(()),
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // Ended in order before; this is for an error on the way.
        if let Some(group) = self.running().take() {
            let _ = group.stop();
        }
    }
}

/// Databases alone have the limit: what keeps them has its own memory.
fn limit(group: &Group, pair: [&Server; 2], settings: &Settings) -> Result<(), LabError> {
    for (server, node) in pair.into_iter().zip([NodeName::A, NodeName::B]) {
        if let Some(bytes) = settings.memory_bytes {
            let limited = Cgroup::make(&server.room.dir, bytes)?;
            limited.take(&group.database_processes(node))?;
        }
        server.keep(settings)?;
    }
    Ok(())
}
