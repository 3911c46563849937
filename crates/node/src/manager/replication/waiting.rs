//! Copies that could not come into service with their pool, because the quorum did not answer: they do when it does.

use std::sync::atomic::Ordering;

use tracing::{debug, info};
use uuid::Uuid;

use crate::manager::PoolManager;
use crate::model::ErrorKind;

impl PoolManager {
    /// A copy is tried again from now on.
    pub(in crate::manager) fn wait_with_copy(&self, volume: Uuid) {
        if let Some(replication) = &self.replication {
            replication.waiting().insert(volume);
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
            if !self.is_copy(volume) && replication.read_key(volume).is_err() {
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
