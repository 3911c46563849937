//! Old images: a pool that has come back with less than it had, because its drives were restored from a copy.
//!
//! The quorum remembers how far each pool with copies had come, a little behind ([`Head`]). A pool that has less when it
//! is imported has lost acknowledged writes: none of its copies counts as in sync, or serves, before it was copied in
//! full. What is younger than the quorum's memory is known by what other copies remember of it, and what they do not know
//! is found by the proof that follows a loss of power everywhere. A copy that others have found to lack something is
//! marked, too: its process may end before it was made equal, and the next one would claim what its pool has written since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ashlar_cluster::{Head, Kind, Problem};
use ashlar_replica::HAS_HEADS;
use tracing::{debug, warn};
use uuid::Uuid;

use super::{CopyVolume, Replication, told};
use crate::PoolManager;
use crate::manager::LivePool;
use crate::manager::pools::engine;
use crate::model::ControlError;
use crate::pool::ReplicaMail;

/// How often the quorum is told how far pools have come, at least.
const EVERY: Duration = Duration::from_secs(2);
/// Since this version between nodes copies keep how far others have come.
const KEEPS_HEADS: u16 = HAS_HEADS as u16;

/// Begins to tell the quorum: now and then, and at once when it is asked for.
pub(super) fn start(manager: Weak<PoolManager>) -> std::io::Result<Sender<()>> {
    let (sender, asked) = channel();
    let watch = move || {
        let (mut told, mut config, mut seen) = (BTreeMap::new(), None, None);
        while asked.recv_timeout(EVERY) != Err(RecvTimeoutError::Disconnected) {
            let Some(manager) = manager.upgrade() else {
                return;
            };
            manager.look_at_cluster(&mut seen);
            manager.take_up_waiting();
            manager.follow_addresses(&mut config);
            if let Ok(replication) = manager.replication() {
                replication.look_at_agreement();
            }
            manager.tell_heads(&mut told);
        }
    };
    let thread = std::thread::Builder::new().name("heads".into());
    thread.spawn(watch)?;
    Ok(sender)
}

/// Why a volume is not served after the quorum's majority was lost for good, and what leads out.
pub(super) fn in_doubt(name: &str) -> String {
    format!(
        "the quorum was recovered from one machine, and nothing says whether a copy that is left has all that was \
         acknowledged: no node serves the volume. On the node that had contact with the lost machines last: `ashlar \
         volume run-alone {name} --accept-data-loss`"
    )
}

impl Replication {
    /// What copies keep of others makes their pools ones that no older program takes: so they keep it when all nodes have
    /// agreed on a version that has it.
    pub(super) fn look_at_agreement(&self) {
        if self.cluster.config().has_agreed_on(KEEPS_HEADS) {
            self.keeps_heads.store(true, Ordering::Relaxed);
        }
    }

    /// Changes what is remembered of a pool, if there is something to change.
    fn change_head(
        &self,
        pool: Uuid,
        mut change: impl FnMut(&mut Head),
    ) -> Result<Head, ControlError> {
        loop {
            let held = self.cluster.head(pool).map_err(told)?;
            let mut next = held.clone();
            change(&mut next.head);
            if next == held {
                return Ok(held.head);
            }
            match self.cluster.put_head(pool, &next) {
                Ok(()) => return Ok(next.head),
                // Made anew from what is held now.
                Err(problem) if problem.kind == Kind::Conflict => {}
                Err(problem) => return Err(told(problem)),
            }
        }
    }
}

impl PoolManager {
    /// A copy lacks something, or does not any more: the quorum is told now.
    pub(super) fn look_at_heads(&self) {
        if let Some(replication) = &self.replication {
            // The thread ends with the manager.
            let _ = replication.heads.send(());
        }
    }

    /// Whether a volume's copy in a pool that comes into service is of an older image. That is remembered before
    /// anything is written to it.
    ///
    /// # Errors
    /// The quorum does not answer: the copy must wait.
    pub(super) fn is_old_image(
        &self,
        replication: &Replication,
        pool: &LivePool,
        volume: &CopyVolume,
    ) -> Result<bool, ControlError> {
        // Once for all its copies: the pool's count goes on, and the quorum's follows it.
        let published = pool.unjudged.get();
        // As the pool itself says: this node may never have had it.
        let view = pool.link.view().map_err(engine)?;
        let copies = view
            .status
            .volumes
            .iter()
            .filter(|one| one.replica.is_some());
        let all: Vec<Uuid> = copies.map(|one| one.uuid).collect();
        let mut lacks = 0;
        let head = replication.change_head(pool.id, |head| {
            lacks = published.map_or(0, |published| head.published.saturating_sub(published));
            if let (1.., Some(published)) = (lacks, published) {
                let old: BTreeSet<Uuid> = all.iter().chain(&head.old).copied().collect();
                // From here on the marks say it, not the count: it will be passed long after the copies are sound.
                *head = Head {
                    old: old.into_iter().collect(),
                    published,
                };
            }
        })?;
        pool.unjudged.set(None);
        if lacks > 0 {
            let text = format!(
                "pool {} is an older image of itself: {lacks} changes that it had made durable are not there. Its copies \
                 of replicated volumes are copied in full from other nodes",
                volume.pool()
            );
            warn!(volume = volume.name, "{text}");
            let events = &replication.events;
            events.add("old_image", Some(volume.name.clone()), text);
        }
        let is_in_doubt = replication.cluster.is_in_doubt(volume.uuid);
        let is_in_doubt = is_in_doubt.map_err(told)?;
        if is_in_doubt {
            let text = in_doubt(&volume.name);
            warn!(volume = volume.name, "volume {}: {text}", volume.name);
            let events = &replication.events;
            events.add("in_doubt", Some(volume.name.clone()), text);
        }
        Ok(is_in_doubt || head.old.contains(&volume.uuid))
    }

    /// A volume's copy is known to be of an older image than its key.
    pub(super) fn mark_image(
        &self,
        replication: &Replication,
        pool: Uuid,
        volume: Uuid,
    ) -> Result<(), ControlError> {
        let mark = |head: &mut Head| {
            if !head.old.contains(&volume) {
                head.old.push(volume);
            }
        };
        replication.change_head(pool, mark).map(drop)
    }

    /// A volume's copy counts as it is, because an operator has said so. It is put even if nothing changes: who has looked
    /// at the copy before, and is about to mark it, has to look again.
    pub(super) fn forgive_image(
        &self,
        replication: &Replication,
        pool: Uuid,
        volume: Uuid,
    ) -> Result<(), ControlError> {
        loop {
            let mut held = replication.cluster.head(pool).map_err(told)?;
            held.head.old.retain(|old| *old != volume);
            match replication.cluster.put_head(pool, &held) {
                Ok(()) => return Ok(()),
                Err(problem) if problem.kind == Kind::Conflict => {}
                Err(problem) => return Err(told(problem)),
            }
        }
    }

    fn tell_heads(&self, told: &mut BTreeMap<Uuid, Seen>) {
        let Ok(replication) = self.replication() else {
            return;
        };
        let seen = self.heads_now();
        let is_news = |(pool, seen): &(&Uuid, &Seen)| told.get(pool) != Some(seen);
        let pools: Vec<Uuid> = seen.iter().filter(is_news).map(|(pool, _)| *pool).collect();
        for pool in pools {
            match self.tell_head(replication, pool) {
                Ok(Some(seen)) => _ = told.insert(pool, seen),
                Ok(None) => {}
                Err(problem) => debug!("{problem}"),
            }
        }
    }

    /// What was read is read before the pool is looked at, and must still be held: a pool that was exported and has come
    /// back as an older image meanwhile is marked in between, and what was seen before says nothing of it.
    fn tell_head(&self, replication: &Replication, pool: Uuid) -> Result<Option<Seen>, Problem> {
        let mut held = replication.cluster.head(pool)?;
        let Some(seen) = self.heads_now().remove(&pool) else {
            return Ok(None);
        };
        let before = held.head.clone();
        seen.tell(&mut held.head);
        if held.head != before {
            replication.cluster.put_head(pool, &held)?;
        }
        Ok(Some(seen))
    }

    /// Pools with copies in service.
    fn heads_now(&self) -> BTreeMap<Uuid, Seen> {
        let mut pools: BTreeMap<Uuid, Seen> = BTreeMap::new();
        for place in self.copies() {
            let look = |reply| ReplicaMail::Look { reply };
            let Ok(Some(view)) = place.pool.ask_replica(place.number, look) else {
                continue;
            };
            let seen = pools.entry(place.pool_id).or_default();
            seen.published = seen.published.max(view.published);
            match view.is_old_image {
                true => seen.old.insert(place.volume),
                false => seen.sound.insert(place.volume),
            };
        }
        pools
    }
}

/// A pool as it is now.
#[derive(Default, PartialEq, Eq)]
struct Seen {
    published: u64,
    /// Volumes whose copies here are what they should be.
    sound: BTreeSet<Uuid>,
    /// Those whose copies here lack something.
    old: BTreeSet<Uuid>,
}

impl Seen {
    /// What the quorum remembers of it.
    fn tell(&self, head: &mut Head) {
        head.old.retain(|volume| !self.sound.contains(volume));
        let known: BTreeSet<Uuid> = head.old.iter().copied().collect();
        head.old.extend(self.old.difference(&known));
        head.published = head.published.max(self.published);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy that others have found to lack something stays marked when its process ends, until it was made equal.
    #[test]
    fn a_copy_that_lacks_something_is_marked_until_it_is_sound() {
        let volumes = [1, 2, 3].map(Uuid::from_u128);
        let seen = |old: &[Uuid], sound: &[Uuid]| Seen {
            published: 7,
            sound: sound.iter().copied().collect(),
            old: old.iter().copied().collect(),
        };
        let mut head = Head {
            published: 9,
            old: vec![volumes[2]],
        };
        seen(&volumes[..1], &volumes[1..2]).tell(&mut head);
        assert_eq!(head.old, [volumes[2], volumes[0]]);
        seen(&volumes[..1], &[]).tell(&mut head);
        assert_eq!(head.old, [volumes[2], volumes[0]], "once");
        seen(&[], &[]).tell(&mut head);
        assert_eq!(head.old, [volumes[2], volumes[0]], "its process has ended");
        seen(&[], &volumes[..1]).tell(&mut head);
        assert_eq!((head.old, head.published), (vec![volumes[2]], 9));
    }
}
