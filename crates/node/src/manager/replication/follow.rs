//! Ownership follows a volume's hosts: to the node by which most of their commands come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_replica::{Position, Seats};
use ashlar_store::Manage;
use tracing::{info, warn};
use uuid::Uuid;

use super::news::Shown;
use super::orders::Order;
use crate::manager::PoolManager;
use crate::manager::pools::engine;
use crate::model::{ControlError, SetFollow, VolumeName, VolumeStatus};
use crate::pool::ReplicaMail;

/// Between changes of ownership and such a move: at first, and at most.
const PAUSE: Duration = Duration::from_secs(5 * 60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// How long ownership stays, so that it does not run to and fro.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// When this node took over from another.
    taken: Option<Instant>,
    pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            taken: None,
            pause: PAUSE,
        }
    }
}

impl Patience {
    /// This node took the volume over.
    pub(super) const fn took(&mut self, now: Instant) {
        self.taken = Some(now);
    }

    /// Whether the volume may go where its hosts are. If it may it has gone: the next time takes longer.
    fn lets_go(&mut self, now: Instant) -> bool {
        let since = self.taken.map(|at| now.saturating_duration_since(at));
        if since.is_some_and(|since| since < self.pause) {
            return false;
        }
        let has_stayed = since.is_none_or(|since| since >= LONGEST_PAUSE);
        let next = if has_stayed { PAUSE } else { self.pause };
        self.pause = (next * 2).min(LONGEST_PAUSE);
        true
    }
}

impl PoolManager {
    /// Most of a volume's commands have come by another node for a while: it takes the volume over, if it may.
    /// On a thread of its own: what is asked of other nodes must not keep news waiting.
    pub(super) fn follow_hosts(self: &Arc<Self>, volume: Uuid, to: Position) {
        let manager = self.clone();
        let follow = move || {
            if let Err(error) = manager.followed(volume, to) {
                warn!(%volume, "volume {volume}: it does not follow its hosts: {}", error.message);
            }
        };
        let thread = std::thread::Builder::new().name("follow".into());
        if let Err(error) = thread.spawn(follow) {
            warn!(%volume, "volume {volume}: it does not follow its hosts: {error}");
        }
    }

    pub(super) fn followed(&self, volume: Uuid, to: Position) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let place = self.place_of(volume)?;
        let (id, members) = self.with_copy(volume, |pool, number| {
            let view = self.replica_view(pool, number)?;
            let view = view.filter(|view| !view.is_unproven);
            let members = view.map_or(Seats::NONE, |view| view.members);
            Ok((pool.id, members))
        })?;
        let stays = self
            .state
            .read()
            .replica(id, volume)
            .is_some_and(|known| known.stays);
        let in_sync = replication
            .shown()
            .get(&volume)
            .is_some_and(|known| known.in_sync.has(to));
        let Some(node) = members.get(to).filter(|_| in_sync && !stays) else {
            return Ok(());
        };
        // It is about to be switched off: hosts go on by way of it as long as it runs.
        if replication.asks_whether_drained(node) == Some(true) {
            return Ok(());
        }
        self.asks_who_decides()?;
        let may = |shown: &mut Shown| shown.patience.lets_go(Instant::now());
        if !replication.shown().get_mut(&volume).is_some_and(may) {
            return Ok(());
        }
        let name = replication.node_name(node);
        let text = format!("handed to node {name}: most commands came by it for 30 s");
        info!(%volume, "volume {}: {text}", place.name);
        replication
            .events
            .add("follows", Some(place.name.clone()), text.clone());
        replication.shown().entry(volume).or_default().handed += 1;
        place
            .pool
            .post_to_replica(place.number, ReplicaMail::Move { to });
        // Who has it now can say why.
        replication
            .order(
                node,
                &Order::Followed {
                    volume,
                    reason: text,
                },
            )
            .map(drop)
    }

    /// Why this node was given a volume.
    pub(super) fn note_followed(&self, volume: Uuid, reason: String) -> Result<(), ControlError> {
        let replication = self.replication()?;
        replication.shown().entry(volume).or_default().followed = Some(reason);
        Ok(())
    }

    /// Says on this node whether a volume follows its hosts.
    pub(super) fn set_follow_here(&self, volume: Uuid, follow: bool) -> Result<(), ControlError> {
        let id = self.with_copy(volume, |pool, _| Ok(pool.id))?;
        self.state.update(|state| {
            if let Some(known) = state.replica(id, volume).cloned() {
                state.put_replica(crate::ReplicaEntry {
                    stays: !follow,
                    ..known
                });
            }
        })
    }

    /// Says on this node whether a volume takes writes while a copy in its pool is missing.
    pub(super) fn set_stops_here(&self, volume: Uuid, stops: bool) -> Result<(), ControlError> {
        self.with_copy(volume, |pool, number| {
            let wish = Manage::SetStops {
                volume: number,
                stops,
            };
            pool.link.manage(wish).map(drop).map_err(engine)
        })
    }

    /// The same on all its nodes: the rule stays when another node serves it.
    pub(in crate::manager) fn change_stops_of_copies(
        &self,
        name: &VolumeName,
        volume: Uuid,
        stops: bool,
    ) -> Result<VolumeStatus, ControlError> {
        self.order_others(volume, &Order::SetStops { volume, stops })?;
        self.set_stops_here(volume, stops)?;
        self.one_volume(name)
    }

    /// Says on all its nodes whether a volume follows its hosts.
    pub(in crate::manager) fn change_follow(
        &self,
        name: &VolumeName,
        request: SetFollow,
    ) -> Result<VolumeStatus, ControlError> {
        let status = self.one_volume(name)?;
        if status.replication.is_none() {
            return Err(ControlError::conflict(format!(
                "volume {name} has one copy, on this node: there is nothing to follow to"
            )));
        }
        let (volume, follow) = (status.uuid, request.follow);
        self.order_others(volume, &Order::SetFollow { volume, follow })?;
        self.set_follow_here(volume, follow)?;
        self.one_volume(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_further_and_further_apart_until_it_has_been_quiet() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let mut now = Instant::now();
        let mut patience = Patience::default();
        assert!(patience.lets_go(now), "it was not taken from another");
        for pause in [10, 20, 40, 60, 60] {
            patience.took(now);
            now += minutes(pause) - Duration::from_secs(1);
            assert!(!patience.lets_go(now), "{pause} minutes");
            if pause < 60 {
                now += Duration::from_secs(1);
                assert!(patience.lets_go(now), "{pause} minutes");
            }
        }
        patience.took(now);
        now += minutes(61);
        assert!(patience.lets_go(now));
        patience.took(now);
        assert!(patience.lets_go(now + minutes(10)), "it begins anew");
    }
}
