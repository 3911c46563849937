//! What nodes tell each other of the services that they share: each says what it knows, and the newer counts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::Services;
use super::entry::{Answer, Entry, Told, Words};
use super::keep::{One, wanted};
use super::machine::Owner;
use crate::model::{
    ControlError, CreateService, MoveService, ServiceNode, ServiceState, ServiceStatus,
};

/// How often other nodes are told the state; news are told at once.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// What a node has said so long ago does not count any more.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// What other nodes have told.
pub(super) struct Heard {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Where this node's API listens.
    api: Option<SocketAddr>,
    /// Goes up with each change that others are to learn of.
    changes: u64,
    is_over: bool,
    /// By service: the node that has its volumes, and how it is there.
    accounts: BTreeMap<String, Account>,
    apis: BTreeMap<String, SocketAddr>,
}

struct Account {
    node: String,
    status: ServiceStatus,
    at: Instant,
}

impl Account {
    /// What this node says of it, with what the one says that has its volumes.
    fn complete(&self, status: &mut ServiceStatus, is_wanted: bool) {
        let there = &self.status;
        let is_at_rest = |state| matches!(state, ServiceState::Stopped | ServiceState::Failed);
        // An order has been given that the other has not carried out yet.
        let is_stopping = !is_wanted && is_at_rest(status.state) && !is_at_rest(there.state);
        if is_stopping {
            status.state = ServiceState::Stopping;
        }
        status.since_seconds = there.since_seconds;
        status.last_gap_seconds = there.last_gap_seconds;
        status.moves = status.moves.max(there.moves);
        status.highly_available = there.highly_available;
        status.warnings = there.warnings.clone();
        let is_elsewhere = status.state == ServiceState::Elsewhere;
        if is_stopping || (is_elsewhere && there.state != ServiceState::Running) {
            let state = format!("{:?}", there.state).to_lowercase();
            let why = there.reason.as_ref();
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            status.reason = Some(format!("{state} on node {}{why}", self.node));
        }
    }
}

impl Heard {
    pub(super) fn new() -> Self {
        Self {
            inner: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Single insertions and fields.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more is told.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Waits until there is something to tell; false: it is over.
    fn wait(&self, told: &mut u64) -> bool {
        let inner = self.lock();
        let nothing_new = |inner: &mut Inner| !inner.is_over && inner.changes == *told;
        let waited = self
            .changed
            .wait_timeout_while(inner, TELL_EVERY, nothing_new);
        let (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *told = inner.changes;
        !inner.is_over
    }
}

impl Services {
    /// Tells each other node from now on, each on a thread of its own: one that hangs holds up no other.
    pub(super) fn begin_telling(self: &Arc<Self>) -> Result<(), ControlError> {
        for node in self.ownership.peers() {
            let services = Arc::downgrade(self);
            let thread = std::thread::Builder::new().name("svc-tell".into());
            let thread = thread.spawn(move || tell(&services, &node));
            thread.map_err(|error| ControlError::environment(format!("a thread: {error}")))?;
        }
        Ok(())
    }

    /// Where the daemon's API listens, for other nodes to tell.
    pub fn set_api(&self, api: Option<SocketAddr>) {
        self.heard.lock().api = api;
    }

    /// Something is new.
    pub(super) fn tell_now(&self) {
        self.heard.lock().changes += 1;
        self.heard.changed.notify_all();
    }

    /// The other nodes that can have a service.
    pub(super) fn others(&self, entry: &Entry) -> Vec<String> {
        let me = self.ownership.node();
        let others = entry.nodes.iter().filter(|node| **node != me);
        others.cloned().collect()
    }

    /// How a service is, with what the node says that has it.
    pub(super) fn status(&self, one: &One) -> Option<ServiceStatus> {
        let mut status = one.running.as_ref()?.status();
        let heard = self.heard.lock();
        let me = self.ownership.node();
        if status.node.as_ref() != Some(&me)
            && let Some(account) = heard.accounts.get(&status.service.name)
            && account.at.elapsed() < STALE_AFTER
        {
            account.complete(&mut status, !one.entry.stopped);
        }
        let node = |name: &String| ServiceNode {
            name: name.clone(),
            api: match *name == me {
                true => heard.api,
                false => heard.apis.get(name).copied(),
            },
        };
        status.nodes = one.entry.nodes.iter().map(node).collect();
        Some(status)
    }

    /// Who has a service's volumes, as another node has told.
    pub(super) fn told_of(&self, service: &str) -> Option<Owner> {
        let heard = self.heard.lock();
        let account = heard.accounts.get(service)?;
        (account.at.elapsed() < STALE_AFTER).then(|| Owner::Elsewhere {
            node: account.node.clone(),
            epoch: account.status.epoch,
        })
    }

    /// It cannot be kept up on this node.
    pub(super) fn failed_here(&self, service: &str) {
        let me = self.ownership.node();
        self.note(service, |entry| {
            let is_new = !entry.failed_on.contains(&me);
            if is_new {
                entry.failed_on.push(me);
                entry.failed_on.sort();
            }
            is_new
        });
        self.tell_others_of(service);
    }

    /// It runs well on this node: what has failed elsewhere may be tried again.
    pub(super) fn runs_here(&self, service: &str) {
        self.note(service, |entry| {
            let is_new = !entry.failed_on.is_empty();
            entry.failed_on.clear();
            is_new
        });
    }

    /// Changes what is remembered of a service, if there is something to change.
    fn note(&self, service: &str, change: impl FnOnce(&mut Entry) -> bool) {
        let mut all = self.lock();
        let Some(one) = all.get_mut(service) else {
            return;
        };
        if !change(&mut one.entry) {
            return;
        }
        one.entry.noted();
        if let Some(running) = &one.running {
            running.heard_of_failures(&one.entry.failed_on);
        }
        // Not remembered, it is known to this process at least.
        if let Err(error) = self.remember(&all) {
            warn!(service, "service {service}: {}", error.message);
        }
        drop(all);
        self.tell_now();
    }

    /// Tells them, and waits for it: they are about to have it.
    fn tell_others_of(&self, service: &str) {
        let others = self
            .lock()
            .get(service)
            .map(|one| self.others(&one.entry))
            .unwrap_or_default();
        for node in others {
            // It is told again until it has heard.
            let _ = self.tell(&node);
        }
    }

    /// What another node is to know.
    fn for_node(&self, node: &str) -> Told {
        let all = self.lock();
        let shared = |one: &&One| {
            let nodes = &one.entry.nodes;
            nodes.iter().any(|known| known == node)
        };
        let shared: Vec<&One> = all.values().filter(shared).collect();
        let here = shared.iter().filter_map(|one| {
            let running = one.running.as_ref()?;
            running.is_here().then(|| running.status())
        });
        Told {
            node: self.ownership.node(),
            here: here.collect(),
            entries: shared.iter().map(|one| one.entry.clone()).collect(),
            api: self.heard.lock().api,
        }
    }

    /// Of services that a node names, those that it cannot have any more.
    fn without(&self, node: &str, names: &[String]) -> Vec<Entry> {
        let all = self.lock();
        let known = names.iter().filter_map(|name| all.get(name));
        let lost = known.filter(|one| !one.entry.nodes.iter().any(|known| known == node));
        lost.map(|one| one.entry.clone()).collect()
    }

    /// Tells a node what is known here, and hears what is known there.
    fn tell(&self, node: &str) -> Result<(), ControlError> {
        let told = self.for_node(node);
        if told.entries.is_empty() {
            return Ok(());
        }
        match self.ownership.say(node, Words::Tell { told })? {
            Answer::Told { told } => self.hear(told),
            _ => return Err(ControlError::internal("an answer to another question")),
        }
        Ok(())
    }

    /// At which revision another node remembers that a service of this name was deleted; 0: it remembers none.
    pub(super) fn deleted_at(
        &self,
        node: &str,
        service: &CreateService,
    ) -> Result<u64, ControlError> {
        let mut told = self.for_node(node);
        // A question in words that older nodes know, too: one on no node, older than any, changes nothing there.
        told.entries
            .push(Entry::new(service.clone(), Vec::new(), 0));
        let Answer::Told { told } = self.ownership.say(node, Words::Tell { told })? else {
            return Err(ControlError::internal("an answer to another question"));
        };
        let is_its = |entry: &&Entry| entry.deleted && entry.service.name == service.name;
        let deleted = told.entries.iter().filter(is_its);
        Ok(deleted.map(|entry| entry.revision).max().unwrap_or(0))
    }

    fn hear(&self, told: Told) {
        let Told {
            node,
            entries,
            here,
            api,
        } = told;
        {
            let mut heard = self.heard.lock();
            match api {
                Some(api) => heard.apis.insert(node.clone(), api),
                None => heard.apis.remove(&node),
            };
            let is_there = |name: &str| here.iter().any(|status| status.service.name == name);
            heard
                .accounts
                .retain(|name, account| account.node != node || is_there(name));
            for status in here {
                let account = Account {
                    node: node.clone(),
                    at: Instant::now(),
                    status,
                };
                let name = account.status.service.name.clone();
                heard.accounts.insert(name, account);
            }
        }
        self.take(entries);
    }

    /// Takes what is newer than what is known here.
    pub(super) fn take(&self, entries: Vec<Entry>) {
        let me = self.ownership.node();
        for entry in entries {
            let mut all = self.lock();
            let name = entry.service.name.clone();
            let known = all.get(&name).map(|one| &one.entry);
            if known.is_some_and(|known| !entry.supersedes(known)) {
                continue;
            }
            if !entry.nodes.contains(&me) {
                self.lose(all, &name);
                continue;
            }
            info!(service = %name, revision = entry.revision, "service {name}: another node has changed it");
            let is_same = known.is_some_and(|known| {
                known.service == entry.service && !known.deleted && !entry.deleted
            });
            if is_same && let Some(one) = all.get_mut(&name) {
                if let Some(running) = &one.running {
                    if one.entry.failed_on != entry.failed_on && entry.failed_on.is_empty() {
                        running.forgive();
                    }
                    running.want(wanted(&entry), &entry.failed_on);
                    running.set_nodes(&entry.nodes);
                }
                one.entry = entry;
            } else {
                if let Some(One {
                    running: Some(running),
                    ..
                }) = all.remove(&name)
                {
                    self.retire(running);
                }
                drop(all);
                if let Err(error) = self.begin(entry) {
                    warn!(service = %name, "service {name}: {}", error.message);
                }
                all = self.lock();
            }
            if let Err(error) = self.remember(&all) {
                warn!(service = %name, "service {name}: {}", error.message);
            }
        }
    }

    /// This node has no copies of its volumes any more, and forgets it.
    fn lose(&self, mut all: MutexGuard<'_, BTreeMap<String, One>>, name: &str) {
        let Some(one) = all.remove(name) else {
            return;
        };
        info!(service = %name, "service {name}: this node cannot have it any more");
        if let Some(running) = one.running {
            self.retire(running);
        }
        if let Err(error) = self.remember(&all) {
            warn!(service = %name, "service {name}: {}", error.message);
        }
    }

    /// A node offers a service: it can be had here, and is known from now on. One may be offered again.
    fn accept(&self, entry: Entry) -> Result<(), ControlError> {
        let is_known = match self.lock().get(&entry.service.name) {
            Some(one) if one.entry.deleted && !entry.supersedes(&one.entry) => {
                return Err(ControlError::conflict(format!(
                    "service {}: one of this name was deleted, which counts as newer than this: give the order again",
                    entry.service.name
                )));
            }
            Some(one) => one.running.is_some() && one.entry.service == entry.service,
            None => false,
        };
        if !is_known {
            self.check(&entry.service)?;
        }
        self.ownership.let_in(&entry.service.volume_names()?)?;
        self.take(vec![entry]);
        Ok(())
    }

    /// Another node says something.
    ///
    /// # Errors
    /// What is refused, and why.
    pub(crate) fn answer(&self, words: Words) -> Result<Answer, ControlError> {
        match words {
            Words::Offer { entry } => {
                self.accept(*entry)?;
                Ok(Answer::Done)
            }
            Words::Tell { told } => {
                let node = told.node.clone();
                let names = told.entries.iter().map(|entry| entry.service.name.clone());
                let names: Vec<String> = names.collect();
                self.hear(told);
                let mut answer = self.for_node(&node);
                answer.entries.extend(self.without(&node, &names));
                Ok(Answer::Told { told: answer })
            }
            Words::Move { service, to } => {
                let status = self.move_to(&service, &MoveService { to })?;
                Ok(Answer::Moving {
                    status: Box::new(status),
                })
            }
        }
    }
}

/// Tells one node, until it is over.
fn tell(services: &Weak<Services>, node: &str) {
    let (mut told, mut is_away) = (0, false);
    loop {
        let Some(services) = services.upgrade() else {
            return;
        };
        if !services.heard.wait(&mut told) {
            return;
        }
        let failed = services.tell(node).err();
        if let Some(error) = failed.as_ref().filter(|_| !is_away) {
            warn!(
                node,
                "node {node} does not hear of services: {}", error.message
            );
        }
        is_away = failed.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ServiceState::{Elsewhere, Failed, Running, Starting, Stopped, Stopping};

    fn status(state: ServiceState, reason: Option<&str>) -> ServiceStatus {
        let status = serde_json::json!({
            "name": "pg", "volumes": [], "mounts": [], "start": "run", "state": state, "reason": reason, "epoch": 1,
            "highly_available": true, "since_seconds": 0.0, "moves": 0, "starts": 0, "failures": 0
        });
        serde_json::from_value(status).expect("a status")
    }

    #[test]
    fn one_that_does_not_run_elsewhere_says_why() {
        let failed = status(Failed, Some("exit status: 7"));
        let starting = status(Starting, None);
        let running = status(Running, None);
        let stopping = status(Stopping, None);
        for (here, there, shown, reason) in [
            (
                Elsewhere,
                &failed,
                Elsewhere,
                Some("failed on node a: exit status: 7"),
            ),
            (Elsewhere, &starting, Elsewhere, Some("starting on node a")),
            (Elsewhere, &running, Elsewhere, None),
            (Stopped, &failed, Stopped, None),
            (Stopped, &status(Stopped, None), Stopped, None),
            // It is stopped when it is so everywhere.
            (Stopped, &running, Stopping, Some("running on node a")),
            (Failed, &stopping, Stopping, Some("stopping on node a")),
        ] {
            let mut here = status(here, None);
            let account = Account {
                node: "a".into(),
                status: there.clone(),
                at: Instant::now(),
            };
            let is_wanted = matches!(here.state, Elsewhere);
            account.complete(&mut here, is_wanted);
            assert_eq!((here.state, here.reason.as_deref()), (shown, reason));
        }
        let (mut here, account) = (
            status(Failed, None),
            Account {
                node: "a".into(),
                status: running,
                at: Instant::now(),
            },
        );
        account.complete(&mut here, true);
        assert_eq!(here.state, Failed, "none has stopped it");
    }
}
