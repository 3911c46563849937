//! Who may connect to a replicated volume: the same on all its nodes, once they have heard of each other.
//!
//! More hosts are let in at the nodes that are reached; hosts are turned away only when all are. A node is told
//! of a change until it has heard of it: each node remembers the number of each change, tells the others once a second
//! where they are not known to agree, and asks them before it serves hosts by a copy that comes into service or is
//! connected again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ashlar_replica::{NodeId, Seats};
use serde::{Deserialize, Serialize};
use tracing::{debug, info, warn};
use uuid::Uuid;

#[cfg(test)]
mod tests;

use super::Replication;
use super::orders::{Order, not_here};
use crate::VolumeAccess;
use crate::access::Admission;
use crate::manager::pools::engine;
use crate::manager::serve::nqn;
use crate::manager::{Kept, PoolManager, live};
use crate::model::{ControlError, ErrorKind, HostChange, HostList, VolumeName, VolumeStatus};

/// How often a node is told what it is not known to know.
const EVERY: Duration = Duration::from_secs(1);
/// How long a node may take to hear of a change.
const HEARS_WITHIN: Duration = Duration::from_secs(2);
/// How long one may take to say what it knows, when a copy comes into service here.
const SAYS_WITHIN: Duration = Duration::from_millis(500);
/// How long one may take that is connected, and is to let hosts no longer in.
const TURNS_AWAY_WITHIN: Duration = Duration::from_secs(10);
/// One that has not answered is not waited for again so soon.
const SILENT_FOR: Duration = Duration::from_secs(2);

/// What is known of other nodes' lists.
#[derive(Default)]
pub(super) struct Hosts(Mutex<Inner>);

/// A volume's copy on another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RemoteCopy {
    volume: Uuid,
    node: NodeId,
}

#[derive(Default)]
struct Inner {
    /// As it was there when it answered last.
    there: BTreeMap<RemoteCopy, Admission>,
    /// A change was made here that it has not heard of.
    behind: BTreeSet<RemoteCopy>,
    silent: BTreeMap<NodeId, Instant>,
}

/// How it is on a node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Account {
    admission: Admission,
    /// Hosts that are connected there.
    connected: Vec<String>,
}

impl Hosts {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Single insertions and removals.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_silent(&self, node: NodeId) -> bool {
        let inner = self.lock();
        let since = inner.silent.get(&node);
        since.is_some_and(|since| since.elapsed() < SILENT_FOR)
    }

    /// What a node has answered, which is in `there` if it is known.
    fn answered(&self, copy: RemoteCopy, there: Option<&Admission>) {
        let mut inner = self.lock();
        inner.silent.remove(&copy.node);
        if let Some(there) = there {
            inner.there.insert(copy, there.clone());
            inner.behind.remove(&copy);
        }
    }

    fn failed(&self, node: NodeId, error: &ControlError) {
        if error.kind == ErrorKind::Environment {
            self.lock().silent.insert(node, Instant::now());
        }
    }

    fn agrees(&self, copy: RemoteCopy, ours: &Admission) -> bool {
        self.lock().there.get(&copy) == Some(ours)
    }
}

/// Begins to tell other nodes.
pub(super) fn start(manager: Weak<PoolManager>) -> std::io::Result<()> {
    let watch = move || {
        loop {
            std::thread::sleep(EVERY);
            let Some(manager) = manager.upgrade() else {
                return;
            };
            manager.agree_on_hosts();
        }
    };
    let thread = std::thread::Builder::new().name("hosts".into());
    thread.spawn(watch).map(drop)
}

impl Replication {
    /// Tells a node; what it knows then.
    fn tell_hosts(
        &self,
        copy: RemoteCopy,
        admission: &Admission,
        limit: Duration,
    ) -> Result<Admission, ControlError> {
        let RemoteCopy { volume, node } = copy;
        let order = Order::HearHosts {
            volume,
            admission: admission.clone(),
        };
        let answer = self.order_within(limit, node, &order);
        let answer = answer.inspect_err(|error| self.hosts.failed(node, error))?;
        let there = serde_json::from_value(answer);
        let there = there.map_err(|error| ControlError::internal(error.to_string()))?;
        self.hosts.answered(copy, Some(&there));
        Ok(there)
    }

    fn ask_hosts(&self, copy: RemoteCopy, limit: Duration) -> Result<Account, ControlError> {
        let RemoteCopy { volume, node } = copy;
        let answer = self.order_within(limit, node, &Order::SayHosts { volume });
        let answer = answer.inspect_err(|error| self.hosts.failed(node, error))?;
        self.hosts.answered(copy, None);
        serde_json::from_value(answer).map_err(|error| ControlError::internal(error.to_string()))
    }

    /// Who may connect to the copy here, as it is remembered.
    fn access_to(&self, volume: Uuid) -> Option<VolumeAccess> {
        let pool = self.places().get(&volume).map(|place| place.pool_id);
        let state = self.state.read();
        let mut known = state.replicas.iter();
        let known = known
            .find(|known| known.volume == volume && pool.is_none_or(|pool| known.pool == pool))?;
        let new = || VolumeAccess::new(known.pool, volume, HostList::default());
        let access = state.access(known.pool, volume).cloned();
        Some(access.unwrap_or_else(new))
    }

    /// The other nodes with copies, as this one remembers.
    fn remembered_others(&self, volume: Uuid) -> Vec<NodeId> {
        let state = self.state.read();
        let known = state.replicas.iter().find(|known| known.volume == volume);
        let members = known.map_or(&[][..], |known| &known.members);
        let nodes = members.iter().flatten().map(|&node| NodeId(node));
        nodes.filter(|&node| node != self.cluster.me()).collect()
    }
}

impl PoolManager {
    /// Changes who may connect to a volume with copies on other nodes.
    pub(in crate::manager) fn change_hosts_of_copies(
        &self,
        name: &VolumeName,
        volume: Uuid,
        change: &HostChange,
    ) -> Result<VolumeStatus, ControlError> {
        match change {
            HostChange::Allow(_) => self.let_hosts_in(name, volume, change)?,
            HostChange::Deny(_) | HostChange::Set(_) => {
                self.turn_hosts_away(name, volume, change)?;
            }
        }
        self.one_volume(name)
    }

    /// It counts on the nodes that are reached: one that is lost keeps no host from the others.
    fn let_hosts_in(
        &self,
        name: &VolumeName,
        volume: Uuid,
        change: &HostChange,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let pools = self.lock();
        let status = self.status_of(live(&pools, &name.pool)?, &name.pool, &name.name)?;
        let list = change.applied_to(&status)?;
        self.set_hosts(&pools, name, list)?;
        drop(pools);
        for node in replication.remembered_others(volume) {
            let copy = RemoteCopy { volume, node };
            if replication.hosts.is_silent(node) {
                replication.hosts.lock().behind.insert(copy);
            } else if let Err(error) = self.agree_with(copy) {
                let text = format!(
                    "volume {name}: who may connect is told again: {}",
                    error.message
                );
                warn!(%volume, "{text}");
                replication.hosts.lock().behind.insert(copy);
            }
        }
        Ok(())
    }

    /// Nothing is changed unless all nodes are reached, and no host would lose what it uses there.
    fn turn_hosts_away(
        &self,
        name: &VolumeName,
        volume: Uuid,
        change: &HostChange,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let mut connected = Vec::new();
        for node in self.others_with_copy(volume)? {
            let account = replication.ask_hosts(RemoteCopy { volume, node }, TURNS_AWAY_WITHIN);
            let account = account.map_err(|mut error| {
                error.message = format!(
                    "{}. Nothing was changed: hosts are turned away where all nodes with copies are reached",
                    error.message
                );
                error
            })?;
            self.hear_hosts(volume, &account.admission)?;
            connected.extend(account.connected);
        }
        let mut status = self.status_of(live(&self.lock(), &name.pool)?, &name.pool, &name.name)?;
        status.connected_hosts.extend(connected);
        let list = change.applied_to(&status)?;
        let mut access = replication
            .access_to(volume)
            .ok_or_else(|| not_here(volume))?;
        access.change_to(list);
        let next = access.admission();
        let (done, failed) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let push = |to: &Mutex<Vec<String>>, text| {
            to.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        };
        let told = self.each_other(volume, |node| {
            let copy = RemoteCopy { volume, node };
            match replication.tell_hosts(copy, &next, TURNS_AWAY_WITHIN) {
                Ok(_) => push(&done, replication.node_name(node)),
                Err(error) => push(&failed, error.message),
            }
            Ok(())
        });
        self.hear_hosts(volume, &next)?;
        push(&done, replication.node_name(replication.cluster.me()));
        let take =
            |from: Mutex<Vec<String>>| from.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut failed = take(failed);
        failed.extend(told.err().map(|error| error.message));
        match failed.is_empty() {
            true => Ok(()),
            false => Err(ControlError::environment(format!(
                "volume {name}: who may connect is changed on node {}, and not everywhere: {}. It is told there as soon \
                 as that node is reached",
                take(done).join(", node "),
                failed.join("; ")
            ))),
        }
    }

    /// Tells a node what is known here, and hears what is known there.
    fn agree_with(&self, copy: RemoteCopy) -> Result<(), ControlError> {
        let volume = copy.volume;
        let replication = self.replication()?;
        let ours = replication
            .access_to(volume)
            .ok_or_else(|| not_here(volume))?
            .admission();
        match replication.tell_hosts(copy, &ours, HEARS_WITHIN) {
            Ok(there) if there == ours => Ok(()),
            Ok(there) => self.hear_hosts(volume, &there).map(drop),
            // It has no copy yet, or none any more: one that it gets hears of it first.
            Err(error) if error.kind == ErrorKind::NotFound => {
                replication.hosts.answered(copy, Some(&ours));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Tells the other nodes what they are not known to know.
    fn agree_on_hosts(&self) {
        let Some(replication) = &self.replication else {
            return;
        };
        let volumes: BTreeSet<Uuid> = {
            let state = self.state.read();
            state.replicas.iter().map(|known| known.volume).collect()
        };
        for volume in volumes {
            let Some(access) = replication.access_to(volume) else {
                continue;
            };
            let ours = access.admission();
            for node in replication.remembered_others(volume) {
                let copy = RemoteCopy { volume, node };
                let is_idle = self.stopping.load(Ordering::Relaxed)
                    || replication.hosts.is_silent(node)
                    || replication.hosts.agrees(copy, &ours);
                if !is_idle && let Err(error) = self.agree_with(copy) {
                    debug!(%volume, "who may connect: {}", error.message);
                }
            }
        }
    }

    /// A node is to know who may connect to the copy that it gets. Where there is none here any more, it asks the others.
    pub(super) fn tell_hosts_of(&self, volume: Uuid, node: NodeId) -> Result<(), ControlError> {
        match self.replication()?.access_to(volume) {
            Some(_) => self.agree_with(RemoteCopy { volume, node }),
            None => Ok(()),
        }
    }

    /// What has changed while a copy was out of service is remembered before it serves. Who does not answer at once is
    /// not waited for.
    pub(super) fn catch_up_on_hosts(
        &self,
        pool: Uuid,
        volume: Uuid,
        members: &Seats<NodeId>,
    ) -> Result<(), ControlError> {
        let replication = self.replication()?;
        for (_, node) in members.iter() {
            if node == replication.cluster.me() || replication.hosts.is_silent(node) {
                continue;
            }
            if let Ok(account) = replication.ask_hosts(RemoteCopy { volume, node }, SAYS_WITHIN) {
                self.state.update(|state| {
                    let new = || VolumeAccess::new(pool, volume, HostList::default());
                    let known = state.access(pool, volume).cloned();
                    let mut access = known.unwrap_or_else(new);
                    access.hear(&account.admission);
                    state.put_volume(access);
                })?;
            }
        }
        Ok(())
    }

    /// A copy is connected again, after a while in which others may have changed who may connect.
    pub(super) fn catch_up_with_connected(&self, volume: Uuid) -> Result<(), ControlError> {
        let replication = self.replication()?;
        let connected = self.with_copy(volume, |pool, number| {
            let view = self.replica_view(pool, number)?;
            let nodes = view.map(|view| {
                let connected = view.connected.iter();
                connected
                    .filter_map(|at| view.members.get(at))
                    .collect::<Vec<_>>()
            });
            Ok(nodes.unwrap_or_default())
        })?;
        // Paths of all volumes wait for this: a node that hangs is asked once in a while, not for each of them.
        let answering = connected
            .into_iter()
            .filter(|&node| !replication.hosts.is_silent(node));
        for node in answering {
            match replication.ask_hosts(RemoteCopy { volume, node }, SAYS_WITHIN) {
                Ok(account) => drop(self.hear_hosts(volume, &account.admission)?),
                Err(error) => debug!(%volume, "who may connect: {error}"),
            }
        }
        Ok(())
    }

    /// What is known here. Without a lock on pools: who asks may hold one of its own.
    pub(super) fn say_hosts(&self, volume: Uuid) -> Result<Account, ControlError> {
        let access = self.replication()?.access_to(volume);
        let access = access.ok_or_else(|| not_here(volume))?;
        Ok(Account {
            admission: access.admission(),
            connected: self.connected(&nqn(volume)),
        })
    }

    /// Takes what another node knows, also for a copy that is not in service; what is known here then. Hosts that are
    /// let in no more lose the volume: whether they may was asked before.
    pub(super) fn hear_hosts(
        &self,
        volume: Uuid,
        told: &Admission,
    ) -> Result<Admission, ControlError> {
        let pools = self.lock();
        let known = self.replication()?.access_to(volume);
        let mut access = known.ok_or_else(|| not_here(volume))?;
        let before = access.admission();
        access.hear(told);
        let now = access.admission();
        if now == before {
            return Ok(now);
        }
        info!(%volume, "volume {volume}: who may connect has changed on another node");
        self.state
            .update(|state| state.put_volume(access.clone()))?;
        for (pool_name, kept) in pools.iter() {
            let Kept::Live(pool) = kept else { continue };
            if pool.id != access.pool {
                continue;
            }
            let view = pool.link.view().map_err(engine)?;
            let mut volumes = view.status.volumes.iter();
            if let Some(found) = volumes.find(|one| one.uuid == volume && !one.deleting) {
                let name = VolumeName::new(pool_name, &found.name)?;
                self.admit_by(pool, &name, found.number, &access)?;
            }
        }
        Ok(now)
    }

    /// What an operator may want to know: nodes that have not heard of the last change.
    pub(in crate::manager) fn behind_on_hosts(&self, volume: Uuid) -> Option<String> {
        let replication = self.replication.as_ref()?;
        let inner = replication.hosts.lock();
        let mut behind: Vec<NodeId> = Vec::new();
        behind.extend(
            inner
                .behind
                .iter()
                .filter(|copy| copy.volume == volume)
                .map(|copy| copy.node),
        );
        drop(inner);
        if !behind.is_empty() {
            let others = replication.remembered_others(volume);
            behind.retain(|node| others.contains(node));
        }
        let names: Vec<String> = behind
            .iter()
            .map(|&node| replication.node_name(node))
            .collect();
        (!names.is_empty()).then(|| {
            format!(
                "node {} has not heard who may connect since that has changed: it is told when it is reached",
                names.join(", node ")
            )
        })
    }
}
