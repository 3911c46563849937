//! Keys that a majority of machines agrees on: etcd's, or a store in memory for tests.

mod endpoint;
mod etcd;
mod http;
mod json;
mod members;
mod memory;
#[cfg(test)]
mod tests;

pub use endpoint::EtcdEndpoint;
pub(crate) use json::KeySwap;
pub(crate) use members::MemberInfo;
pub use memory::Memory;

use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use ashlar_replica::Revision;
use ashlar_replica::quorum::Held;
use uuid::Uuid;

use crate::config::{ClusterConfig, NodeConfig, QuorumConfig};
use crate::lock;
use crate::status::QuorumStatus;
use etcd::{Caller, Etcd};
use json::{Outcome, Wish};

/// What came of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Swap {
    /// It was made, and this is the key's revision now.
    Made(Revision),
    /// It was not: the key holds this.
    NotMade(Option<Held>),
    /// It may have been made, or may still be, or not.
    Unknown(String),
}

/// What came of several swaps, all or none of which are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SwapAll {
    /// They were made, and this is the revision of each key now.
    Made(Revision),
    /// None was: the keys hold this, in the order of the swaps.
    NotMade(Vec<Option<Held>>),
    /// They may have been made, or may still be, or not.
    Unknown(String),
}

/// Which cluster a store belongs to, by a key of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) key: String,
    pub(crate) id: Uuid,
}

impl Identity {
    /// Why a store whose key holds this is another cluster's, if it is.
    fn mismatch(&self, held: Option<&Held>) -> Option<String> {
        let found = held.map(|held| Uuid::try_parse_ascii(&held.value));
        match found {
            Some(Ok(id)) if id == self.id => None,
            Some(Ok(id)) => Some(format!(
                "it holds cluster {id}, and this node belongs to {}: name the etcd that all nodes use, or restore it",
                self.id
            )),
            Some(Err(_)) => Some(format!(
                "{} holds no cluster's id there: restore it",
                self.key
            )),
            None => Some(format!(
                "it has no {}: it was emptied, or is another etcd; name the one that all nodes use, or restore it",
                self.key
            )),
        }
    }
}

/// The store, and how it answers.
#[derive(Debug)]
pub(crate) struct Store {
    keeper: Keeper,
    /// A store that belongs to another cluster, or to none, is neither believed nor changed.
    identity: OnceLock<Identity>,
    health: Mutex<Health>,
}

#[derive(Debug)]
enum Keeper {
    Etcd(Etcd),
    Memory(Memory),
}

#[derive(Debug, Default)]
struct Health {
    last_answer: Option<Instant>,
    problem: Option<String>,
}

impl Store {
    pub(crate) fn new(config: &ClusterConfig, me: &NodeConfig) -> Self {
        let identity = config.trust.identity();
        let caller = Caller {
            tls: identity.map(|identity| identity.client()),
            from: identity.map(|_| me.replication),
        };
        Self::of(&config.quorum, caller)
    }

    #[cfg(test)]
    pub(crate) fn in_memory(memory: &Memory) -> Self {
        Self::of(&QuorumConfig::Memory(memory.clone()), Caller::default())
    }

    fn of(config: &QuorumConfig, caller: Caller) -> Self {
        let keeper = match config {
            QuorumConfig::Etcd(endpoints) => Keeper::Etcd(Etcd::new(endpoints, caller)),
            QuorumConfig::Memory(memory) => Keeper::Memory(memory.clone()),
        };
        Self {
            keeper,
            identity: OnceLock::new(),
            health: Mutex::default(),
        }
    }

    /// From now on a store of another cluster is refused.
    pub(crate) fn demand(&self, identity: Identity) {
        // A second one would be the same: a process has one cluster.
        let _ = self.identity.set(identity);
    }

    /// What a key holds: a linearizable read.
    pub(crate) async fn read(&self, key: &str) -> Result<Option<Held>, String> {
        match self.ask(key, Wish::Read).await? {
            Outcome::Held(held) => Ok(held),
            other => Err(unfit(&other)),
        }
    }

    /// Changes a key if its revision is still this one. Done once at most.
    pub(crate) async fn swap(&self, key: &str, revision: Revision, value: &[u8]) -> Swap {
        match self.ask(key, Wish::Swap { revision, value }).await {
            Ok(Outcome::Swap(swap)) => swap,
            Ok(other) => Swap::Unknown(unfit(&other)),
            Err(why) => Swap::Unknown(why),
        }
    }

    /// Changes all of these keys if the revision of each is still what its swap says, or none. Done once at most.
    pub(crate) async fn swap_all(&self, swaps: &[KeySwap<'_>]) -> SwapAll {
        let first = swaps.first().map_or("", |swap| swap.key);
        match self.ask(first, Wish::SwapAll(swaps)).await {
            Ok(Outcome::SwapAll(swap)) => swap,
            Ok(other) => SwapAll::Unknown(unfit(&other)),
            Err(why) => SwapAll::Unknown(why),
        }
    }

    /// Deletes a key. One that is not there is no error.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), String> {
        match self.ask(key, Wish::Delete { at: None }).await? {
            Outcome::Deleted => Ok(()),
            other => Err(unfit(&other)),
        }
    }

    /// Deletes a key if its revision is still this one. Whether it is gone now.
    pub(crate) async fn delete_at(&self, key: &str, revision: Revision) -> Result<bool, String> {
        let at = Some(revision);
        match self.ask(key, Wish::Delete { at }).await? {
            Outcome::Deleted => Ok(true),
            Outcome::Kept(held) => Ok(held.is_none()),
            other => Err(unfit(&other)),
        }
    }

    /// What all keys hold that begin like this.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
        match self.ask(prefix, Wish::List).await? {
            Outcome::Listed(keys) => Ok(keys),
            other => Err(unfit(&other)),
        }
    }

    async fn ask(&self, key: &str, wish: Wish<'_>) -> Result<Outcome, String> {
        let identity = self.identity.get();
        let outcome = match &self.keeper {
            Keeper::Etcd(etcd) => etcd.ask(key, wish, identity).await,
            Keeper::Memory(memory) => memory.ask(key, wish, identity),
        };
        self.heard(outcome.as_ref().err());
        outcome
    }

    /// Where it is, for messages.
    pub(crate) fn names(&self) -> String {
        self.endpoints().join(", ")
    }

    pub(crate) fn status(&self) -> QuorumStatus {
        let health = lock(&self.health);
        QuorumStatus {
            endpoints: self.endpoints(),
            reachable: health.last_answer.is_some() && health.problem.is_none(),
            last_answer: health.last_answer.map(|at| at.elapsed()),
            problem: health.problem.clone(),
            ..QuorumStatus::default()
        }
    }

    fn endpoints(&self) -> Vec<String> {
        match &self.keeper {
            Keeper::Etcd(etcd) => etcd.endpoints(),
            Keeper::Memory(_) => vec!["memory".into()],
        }
    }

    fn heard(&self, problem: Option<&String>) {
        let mut health = lock(&self.health);
        match (problem, &health.problem) {
            (None, Some(before)) => tracing::info!("the quorum answers again; before: {before}"),
            (Some(why), None) => tracing::warn!("the quorum does not answer: {why}"),
            _ => {}
        }
        if problem.is_none() {
            health.last_answer = Some(Instant::now());
        }
        health.problem = problem.cloned();
    }
}

/// An answer to another question: a defect of what asks.
fn unfit(outcome: &Outcome) -> String {
    format!("an answer to another question: {outcome:?}")
}
