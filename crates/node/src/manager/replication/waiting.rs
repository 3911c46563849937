//! Copies that could not come into service, because the quorum did not answer for instance: they are tried again. And
//! those that have a place, and were never told to start: the node that gave it to them has died, or was not heard.

use std::sync::atomic::Ordering;

use ashlar_replica::quorum::{Question, Reply};
use tracing::{debug, info};
use uuid::Uuid;

use super::delete::seats;
use super::{CopyVolume, Replication};
use crate::manager::serve::served;
use crate::manager::{Kept, LivePool, PoolManager};
use crate::model::{ControlError, ErrorKind};

impl PoolManager {
    /// A copy has not come into service: it is out of it, says why, and is tried again.
    pub(super) fn put_off(
        &self,
        pool: &mut LivePool,
        volume: &CopyVolume,
        error: &ControlError,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        replication.places().remove(&volume.uuid);
        let mut shown = replication.shown();
        shown.entry(volume.uuid).or_default().alarm = Some(error.message.clone());
        drop(shown);
        replication.waiting().insert(volume.uuid);
        match pool.volumes.remove(&volume.number) {
            Some(gone) => self.target.remove(&gone.nqn).map_err(served),
            None => Ok(()),
        }
    }

    /// Brings copies into service that wait for it.
    pub(super) fn take_up_waiting(&self) {
        let Some(replication) = &self.replication else {
            return;
        };
        let waiting = match self.stopping.load(Ordering::Relaxed) {
            true => return,
            false => replication.waiting().clone(),
        };
        self.start_unstarted(replication);
        for volume in waiting {
            // Pools are not held up while the quorum is waited for.
            let is_silent = || replication.ask(volume, Question::Read) == Reply::Unknown;
            if !self.is_copy(volume) && is_silent() {
                return;
            }
            match self.start_copy(volume) {
                Ok(()) => {
                    info!(%volume, "volume {volume}: its copy here is in service");
                    if let Some(known) = replication.shown().get_mut(&volume) {
                        known.alarm = None;
                    }
                }
                Err(error) if error.kind == ErrorKind::NotFound => {}
                Err(error) => {
                    debug!(%volume, "{}", error.message);
                    continue;
                }
            }
            replication.waiting().remove(&volume);
        }
    }

    /// Brings copies into service that have a place in their volume's key, and are neither in service nor waiting.
    fn start_unstarted(&self, replication: &Replication) {
        for (volume, replica) in self.unstarted(replication) {
            match self.start_seated(replication, volume, replica) {
                Ok(true) => {
                    info!(%volume, "volume {volume}: its copy here has a place, and is started")
                }
                Ok(false) => {}
                Err(error) => debug!(%volume, "{}", error.message),
            }
        }
    }

    fn unstarted(&self, replication: &Replication) -> Vec<(Uuid, Uuid)> {
        let pools = self.lock();
        let mut found = Vec::new();
        for kept in pools.values() {
            let Kept::Live(pool) = kept else { continue };
            let Ok(view) = pool.link.view() else { continue };
            let copies = view.status.volumes.iter().filter(|one| !one.deleting);
            let copies = copies.filter_map(|one| Some((one.uuid, one.replica?.uuid)));
            found.extend(copies.filter(|(volume, _)| !self.is_copy(*volume)));
        }
        drop(pools);
        let waiting = replication.waiting();
        found.retain(|(volume, _)| !waiting.contains(volume));
        found
    }

    /// Starts a copy if the key names it.
    fn start_seated(
        &self,
        replication: &Replication,
        volume: Uuid,
        replica: Uuid,
    ) -> Result<bool, ControlError> {
        let me = replication.cluster.me();
        let Some(key) = replication.read_key(volume)? else {
            return Ok(false);
        };
        if !seats(&key, me, replica) {
            return Ok(false);
        }
        self.start_copy(volume).map(|()| true)
    }
}
