//! Volumes that change their owner together: the swaps by which this process would own the volumes of a group wait for
//! each other a while, and are one transaction of the store.
//!
//! A swap that waits is one that arrives late, and one that is not made is told as such: both are what a candidate
//! reckons with in any case, so nothing here has to be right for a volume's own safety.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ashlar_replica::quorum::{Held, Reply};
use ashlar_replica::{Epoch, Key, OwnerId, Revision};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::store::{KeySwap, Store, SwapAll};

/// How long swaps of a group wait for each other. A former owner takes back what was not taken after twice that: one
/// volume of a group can be handed over alone, as when only its drives have failed there.
const WAIT: Duration = Duration::from_millis(400);
/// A group that no node has named for so long is none any more.
const KNOWN_FOR: Duration = Duration::from_secs(3);
/// A volume in doubt is asked for no more often than this.
const DOUBT_PAUSE: Duration = Duration::from_secs(1);
/// A volume that was taken so lately is not waited for, whatever is said of it.
const JUST_TAKEN: Duration = Duration::from_secs(1);

/// A swap of a volume's key.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) volume: Uuid,
    /// Where the store has it.
    pub(crate) key: String,
    pub(crate) revision: Revision,
    pub(crate) value: Vec<u8>,
    /// While the store has this key, the volume is in doubt, and the swap does not take it.
    pub(crate) unless: Option<String>,
}

/// Groups of volumes, and swaps that wait for each other.
#[derive(Debug)]
pub(crate) struct Together {
    me: OwnerId,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By volume: those of its group that other nodes have, and when that was said.
    groups: BTreeMap<Uuid, (Vec<Uuid>, Instant)>,
    /// The epochs that this process has had last, and since when it has known that.
    taken: BTreeMap<Uuid, (Epoch, Instant)>,
    parties: Vec<Party>,
    parties_made: u64,
}

#[derive(Debug)]
struct Party {
    number: u64,
    all: Vec<Uuid>,
    came: Vec<Coming>,
}

#[derive(Debug)]
struct Coming {
    change: Change,
    tell: oneshot::Sender<Reply>,
}

/// What becomes of a swap that has come.
#[derive(Debug)]
enum Step {
    /// These are all: they are made.
    Go(Vec<Coming>),
    /// It waits for the others of this party.
    Wait(u64),
}

impl Together {
    /// No groups are known yet.
    pub(crate) fn new(me: OwnerId) -> Self {
        Self {
            me,
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Whole after every statement, whatever has panicked.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the next seconds these volumes are a group, and those that are away are with other nodes.
    pub(crate) fn keep(&self, volumes: &[Uuid], away: &[Uuid]) {
        let now = Instant::now();
        let mut inner = self.lock();
        for &volume in volumes {
            let others = away.iter().copied().filter(|&other| other != volume);
            inner.groups.insert(volume, (others.collect(), now));
        }
        inner.groups.retain(|_, (_, at)| now - *at < KNOWN_FOR);
    }

    /// A key was read: who owns it is known.
    pub(crate) fn read(&self, volume: Uuid, reply: &Reply) {
        if let Reply::Holds(Some(held)) = reply {
            self.note(volume, &held.value);
        }
    }

    fn note(&self, volume: Uuid, value: &[u8]) {
        let mut inner = self.lock();
        match Key::decode(value).ok().filter(|key| key.owner == self.me) {
            Some(key) => {
                let known = inner.taken.get(&volume).map(|(epoch, _)| *epoch);
                if known != Some(key.epoch) {
                    inner.taken.insert(volume, (key.epoch, Instant::now()));
                }
            }
            None => drop(inner.taken.remove(&volume)),
        }
    }

    /// Makes a swap, with those of its group that come within a while.
    pub(crate) async fn swap(&self, store: &Store, change: Change) -> Reply {
        let (tell, mut told) = oneshot::channel();
        let all = match self.come(Coming { change, tell }) {
            Step::Go(all) => all,
            Step::Wait(party) => match timeout(WAIT, &mut told).await {
                Ok(reply) => return reply.unwrap_or(Reply::Unknown),
                Err(_) => self.give_up(party),
            },
        };
        self.make(store, all).await;
        // Another task may be making it, and is given up with its patience.
        told.await.unwrap_or(Reply::Unknown)
    }

    /// Makes a swap at once, whatever group it is of.
    pub(crate) async fn swap_alone(&self, store: &Store, change: Change) -> Reply {
        let (tell, told) = oneshot::channel();
        self.make(store, vec![Coming { change, tell }]).await;
        told.await.unwrap_or(Reply::Unknown)
    }

    fn come(&self, mut coming: Coming) -> Step {
        let volume = coming.change.volume;
        let mut inner = self.lock();
        let takes = Key::decode(&coming.change.value).is_ok_and(|key| {
            let known = inner.taken.get(&volume).map(|(epoch, _)| *epoch);
            key.owner == self.me && known != Some(key.epoch)
        });
        if !takes {
            // What an owner changes of its own volume is no news to those that it serves with.
            coming.change.unless = None;
            return Step::Go(vec![coming]);
        }
        let is_due = |party: &Party| {
            let has_come = |one: &Coming| one.change.volume == volume;
            party.all.contains(&volume) && !party.came.iter().any(has_come)
        };
        let at = match inner.parties.iter().position(is_due) {
            Some(at) => at,
            None => {
                let mut all = inner.company(volume);
                if all.is_empty() {
                    return Step::Go(vec![coming]);
                }
                all.push(volume);
                inner.parties_made += 1;
                let number = inner.parties_made;
                let came = Vec::new();
                inner.parties.push(Party { number, all, came });
                inner.parties.len() - 1
            }
        };
        let party = &mut inner.parties[at];
        party.came.push(coming);
        match party.came.len() == party.all.len() {
            true => Step::Go(inner.parties.swap_remove(at).came),
            false => Step::Wait(party.number),
        }
    }

    /// Some have not come: those that have go on without them. None if the party is complete by now.
    fn give_up(&self, party: u64) -> Vec<Coming> {
        let mut inner = self.lock();
        let at = inner.parties.iter().position(|one| one.number == party);
        at.map_or_else(Vec::new, |at| inner.parties.swap_remove(at).came)
    }

    async fn make(&self, store: &Store, all: Vec<Coming>) {
        let swaps = all.iter().map(|Coming { change, .. }| KeySwap {
            key: &change.key,
            revision: change.revision,
            value: &change.value,
            unless: change.unless.as_deref(),
        });
        let swaps: Vec<KeySwap<'_>> = swaps.collect();
        if swaps.is_empty() {
            return;
        }
        let made = store.swap_all(&swaps).await;
        if all.len() > 1 {
            let volumes: Vec<String> = all
                .iter()
                .map(|one| one.change.volume.to_string())
                .collect();
            tracing::info!(volumes = volumes.join(" "), "in one transaction: {made:?}");
        }
        let mut held = Vec::new();
        if let SwapAll::NotMade(found) = &made {
            held.clone_from(found);
            if is_barred(&swaps, found) && all.len() > 1 {
                // One of them is in doubt: the others are taken without it.
                for one in all {
                    Box::pin(self.make(store, vec![one])).await;
                }
                return;
            }
            if is_barred(&swaps, found) {
                tracing::debug!("a volume in doubt is not taken");
                sleep(DOUBT_PAUSE).await;
            }
        }
        for (at, Coming { change, tell }) in all.into_iter().enumerate() {
            let reply = match &made {
                SwapAll::Made(revision) => {
                    self.note(change.volume, &change.value);
                    Reply::Swapped(*revision)
                }
                SwapAll::NotMade(_) => {
                    Reply::Holds(held.get_mut(at).and_then(Option::<Held>::take))
                }
                SwapAll::Unknown(_) => Reply::Unknown,
            };
            // Who asked may have given up.
            let _ = tell.send(reply);
        }
    }
}

/// Whether swaps that were not made are all of the revision that the store has.
fn is_barred(swaps: &[KeySwap<'_>], found: &[Option<Held>]) -> bool {
    let revision = |held: &Option<Held>| held.as_ref().map_or(Revision(0), |held| held.revision);
    let same = |(swap, held): (&KeySwap<'_>, &Option<Held>)| swap.revision == revision(held);
    swaps.iter().zip(found).all(same)
}

impl Inner {
    /// Who is to come with a volume.
    fn company(&self, volume: Uuid) -> Vec<Uuid> {
        let Some((others, at)) = self.groups.get(&volume) else {
            return Vec::new();
        };
        if at.elapsed() >= KNOWN_FOR {
            return Vec::new();
        }
        let is_taken = |other: &Uuid| {
            let taken = self.taken.get(other);
            taken.is_some_and(|(_, at)| at.elapsed() < JUST_TAKEN)
        };
        let others = others.iter().copied();
        others.filter(|other| !is_taken(other)).collect()
    }
}
