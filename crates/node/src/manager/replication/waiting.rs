//! Copies that could not come into service, because the quorum did not answer for instance: they are tried again.

use std::sync::atomic::Ordering;

use ashlar_replica::quorum::{Question, Reply};
use tracing::{debug, info};

use super::CopyVolume;
use crate::manager::serve::served;
use crate::manager::{LivePool, PoolManager};
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
}
