//! Old images: a pool that has come back with less than it had, because its drives were restored from a copy.
//!
//! The quorum remembers how far each pool with copies had come, a little behind ([`Head`]). A pool that has less when it
//! is imported has lost acknowledged writes: none of its copies counts as in sync, or serves, before it was copied in
//! full. What is younger than the quorum's memory is found by the proof that follows a loss of power everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ashlar_cluster::Head;
use tracing::{debug, warn};
use uuid::Uuid;

use super::{CopyVolume, Replication, told};
use crate::Keeper;
use crate::keeper::LivePool;
use crate::keeper::pools::engine;
use crate::model::ControlError;
use crate::pool::ReplicaMail;

/// How often the quorum is told how far pools have come.
const EVERY: Duration = Duration::from_secs(2);

/// Begins to tell the quorum.
pub(super) fn start(keeper: Weak<Keeper>) -> std::io::Result<()> {
    let watch = move || {
        let mut told = BTreeMap::new();
        loop {
            std::thread::sleep(EVERY);
            let Some(keeper) = keeper.upgrade() else {
                return;
            };
            keeper.tell_heads(&mut told);
        }
    };
    let thread = std::thread::Builder::new().name("heads".into());
    thread.spawn(watch).map(drop)
}

impl Keeper {
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
        let Some(head) = replication.cluster.head(pool.id).map_err(told)? else {
            return Ok(false);
        };
        let ask = |reply| ReplicaMail::Published { reply };
        let published = pool.link.ask_replica(volume.number, ask).map_err(engine)?;
        if published >= head.published {
            return Ok(head.old.contains(&volume.uuid));
        }
        let all = self.state.read();
        let all = all.replicas.iter().filter(|known| known.pool == pool.id);
        let all = all.map(|known| known.volume).chain([volume.uuid]);
        let old: BTreeSet<Uuid> = all.chain(head.old.iter().copied()).collect();
        let lacks = head.published - published;
        let text = format!(
            "pool {} is an older image of itself: {lacks} changes that it had made durable are not there. Its copies \
             of replicated volumes are copied in full from other nodes",
            volume.pool()
        );
        warn!(volume = volume.name, "{text}");
        replication
            .events
            .add("old_image", Some(volume.name.clone()), text);
        let old = old.into_iter().collect();
        // From here on the marks say it, not the count: it will be passed long after the copies are sound.
        let head = Head { old, published };
        replication.cluster.put_head(pool.id, &head).map_err(told)?;
        Ok(true)
    }

    /// A volume's copy counts as it is, because an operator has said so.
    pub(super) fn forgive_image(
        &self,
        replication: &Replication,
        pool: Uuid,
        volume: Uuid,
    ) -> Result<(), ControlError> {
        let head = replication.cluster.head(pool).map_err(told)?;
        let Some(mut head) = head.filter(|head| head.old.contains(&volume)) else {
            return Ok(());
        };
        head.old.retain(|old| *old != volume);
        replication.cluster.put_head(pool, &head).map_err(told)
    }

    fn tell_heads(self: &Arc<Self>, told: &mut BTreeMap<Uuid, Seen>) {
        let Ok(replication) = self.replication() else {
            return;
        };
        for (pool, seen) in self.heads_now() {
            if told.get(&pool).is_some_and(|known| *known == seen) {
                continue;
            }
            // Anew each time: an import writes it, too.
            let before = match replication.cluster.head(pool) {
                Ok(head) => head,
                Err(problem) => return debug!("{problem}"),
            };
            let mut head = before.clone().unwrap_or_default();
            head.old.retain(|volume| !seen.sound.contains(volume));
            head.published = head.published.max(seen.published);
            if before.as_ref() != Some(&head)
                && let Err(problem) = replication.cluster.put_head(pool, &head)
            {
                debug!("{problem}");
                continue;
            }
            told.insert(pool, seen);
        }
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
            if !view.is_old_image {
                seen.sound.insert(place.volume);
            }
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
}
