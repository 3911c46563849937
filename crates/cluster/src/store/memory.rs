use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ashlar_replica::Revision;
use ashlar_replica::quorum::Held;

use super::json::{KeySwap, Outcome, Wish};
use super::{Identity, Swap, SwapAll};
use crate::lock;

/// A store in this process, for tests. Clones are the same store.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    keys: BTreeMap<String, Held>,
    revision: u64,
    is_away: bool,
    loses_answers: bool,
    reads: u64,
}

impl Memory {
    /// Whether it does nothing from now on, and does not answer.
    pub fn set_away(&self, is_away: bool) {
        lock(&self.0).is_away = is_away;
    }

    /// Whether it makes swaps from now on, and does not answer.
    pub fn set_loses_answers(&self, loses_answers: bool) {
        lock(&self.0).loses_answers = loses_answers;
    }

    /// How often keys were read.
    pub fn reads(&self) -> u64 {
        lock(&self.0).reads
    }

    /// As after an accident: all keys are gone.
    pub fn empty(&self) {
        lock(&self.0).keys.clear();
    }

    pub(super) fn ask(
        &self,
        key: &str,
        wish: Wish<'_>,
        identity: Option<&Identity>,
    ) -> Result<Outcome, String> {
        let mut inner = lock(&self.0);
        if inner.is_away {
            return Err("the store in memory is away".into());
        }
        let foreign =
            identity.and_then(|identity| identity.mismatch(inner.keys.get(&identity.key)));
        if let Some(why) = foreign {
            return Err(why);
        }
        let held = inner.keys.get(key).cloned();
        let outcome = match wish {
            Wish::Read => {
                inner.reads += 1;
                Outcome::Held(held)
            }
            Wish::List => {
                let all = inner.keys.iter();
                let found = all.filter(|(name, _)| name.starts_with(key));
                Outcome::Listed(
                    found
                        .map(|(name, held)| (name.clone(), held.value.clone()))
                        .collect(),
                )
            }
            Wish::Delete { at: Some(at) }
                if held.as_ref().map(|held| held.revision) != Some(at) =>
            {
                Outcome::Kept(held)
            }
            Wish::Delete { .. } => {
                inner.keys.remove(key);
                Outcome::Deleted
            }
            Wish::SwapAll(swaps) => Outcome::SwapAll(inner.swap_all(swaps)),
            Wish::Swap { revision, value } => {
                let is_same = held.as_ref().map_or(Revision(0), |held| held.revision) == revision;
                Outcome::Swap(match is_same {
                    true => Swap::Made(inner.put(key, value)),
                    false => Swap::NotMade(held),
                })
            }
        };
        match inner.loses_answers && !matches!(wish, Wish::Read | Wish::List) {
            true => Err("the store in memory loses answers".into()),
            false => Ok(outcome),
        }
    }
}

impl Inner {
    fn put(&mut self, key: &str, value: &[u8]) -> Revision {
        self.revision += 1;
        self.hold(key, value)
    }

    fn hold(&mut self, key: &str, value: &[u8]) -> Revision {
        let revision = Revision(self.revision);
        let value = value.to_vec();
        self.keys.insert(key.into(), Held { revision, value });
        revision
    }

    /// As in etcd, all keys of a transaction have one revision.
    fn swap_all(&mut self, swaps: &[KeySwap<'_>]) -> SwapAll {
        let held = |swap: &KeySwap<'_>| self.keys.get(swap.key).cloned();
        let found: Vec<Option<Held>> = swaps.iter().map(held).collect();
        let is_same = |(swap, held): (&KeySwap<'_>, &Option<Held>)| {
            held.as_ref().map_or(Revision(0), |held| held.revision) == swap.revision
        };
        let is_barred =
            |swap: &KeySwap<'_>| swap.unless.is_some_and(|key| self.keys.contains_key(key));
        if swaps.iter().any(is_barred) || !swaps.iter().zip(&found).all(is_same) {
            return SwapAll::NotMade(found);
        }
        self.revision += 1;
        for swap in swaps {
            self.hold(swap.key, swap.value);
        }
        SwapAll::Made(Revision(self.revision))
    }
}
