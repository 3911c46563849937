//! Copies that could not come into service, because the quorum did not answer for instance: they are tried again. And
//! those that have a place, and were never told to start: the node that gave it to them has died, or was not heard.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use ashlar_replica::quorum::{Question, Reply};
use tracing::{debug, info};
use uuid::Uuid;

use super::delete::seats;
use super::news::UNSEATED;
use super::{CopyVolume, Replication};
use crate::manager::serve::served;
use crate::manager::{Kept, LivePool, PoolManager};
use crate::model::{ControlError, ErrorKind};

/// Of a volume that no node can serve.
pub(super) const NO_KEY: &str = "the quorum has no key of the volume, so no node serves it: a command that makes or deletes \
                                 it has broken off, or is at work yet. `volume delete --destroy-data` on a node that has \
                                 a copy deletes that copy, and nothing of others. Not so if the quorum was made anew, or \
                                 comes from a backup: then the copy may be all there is of the volume";

/// A copy that was made, and is none of its volume's.
#[derive(Clone)]
pub(super) struct Left {
    /// POOL/VOLUME.
    pub(super) name: String,
    pub(super) why: &'static str,
}

/// A copy that is not in service.
struct Unstarted {
    /// POOL/VOLUME.
    name: String,
    volume: Uuid,
    replica: Uuid,
}

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
        let mut left = BTreeMap::new();
        for copy in self.unstarted(replication) {
            let volume = copy.volume;
            match self.start_seated(replication, &copy) {
                Ok(Some(why)) => {
                    let name = copy.name;
                    left.insert(volume, Left { name, why });
                }
                Ok(None) => {
                    info!(%volume, "volume {volume}: its copy here has a place, and is started");
                }
                Err(error) => {
                    debug!(%volume, "{}", error.message);
                    let known = replication.left().remove(&volume);
                    left.extend(known.map(|known| (volume, known)));
                }
            }
        }
        *replication.left() = left;
    }

    fn unstarted(&self, replication: &Replication) -> Vec<Unstarted> {
        let pools = self.lock();
        let mut found = Vec::new();
        for (name, kept) in pools.iter() {
            let Kept::Live(pool) = kept else { continue };
            let Ok(view) = pool.link.view() else { continue };
            let copies = view.status.volumes.iter().filter(|one| !one.deleting);
            let copies = copies.filter_map(|one| {
                Some(Unstarted {
                    name: format!("{name}/{}", one.name),
                    volume: one.uuid,
                    replica: one.replica?.uuid,
                })
            });
            found.extend(copies.filter(|copy| !self.is_copy(copy.volume)));
        }
        drop(pools);
        let waiting = replication.waiting();
        found.retain(|copy| !waiting.contains(&copy.volume));
        found
    }

    /// Starts a copy if the key names it; else it says why not.
    fn start_seated(
        &self,
        replication: &Replication,
        copy: &Unstarted,
    ) -> Result<Option<&'static str>, ControlError> {
        let me = replication.cluster.me();
        match replication.read_key(copy.volume)? {
            None => Ok(Some(NO_KEY)),
            Some(key) if !seats(&key, me, copy.replica) => Ok(Some(UNSEATED)),
            Some(_) => self.start_copy(copy.volume).map(|()| None),
        }
    }
}
