//! How a process becomes a node of its cluster: it finds out which cluster the quorum holds, and takes an incarnation.

use std::net::SocketAddr;
use std::time::Duration;

use ashlar_replica::quorum::Held;
use ashlar_replica::{Incarnation, NodeId, Revision};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use crate::config::{ClusterConfig, NodeConfig};
use crate::members::{MemberNode, Membership, number_of};
use crate::problem::Problem;
use crate::remembered::Remembered;
use crate::shared::{id_key, is_double, members_key, node_key};
use crate::store::{Identity, Store, Swap};

/// How long a quorum is waited for.
const QUORUM_TIMEOUT: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(200);

const FORMAT: u32 = 1;

/// What the quorum holds of a node, for people too.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    format: u32,
    incarnation: Incarnation,
    name: String,
    replication: SocketAddr,
    portal: Option<SocketAddr>,
    /// The program's version, and the newest that it speaks between nodes.
    version: String,
    protocol: u32,
}

/// The newest version between nodes that a node's entry says.
pub(crate) fn newest_of(entry: &[u8]) -> Option<u16> {
    let entry: Entry = serde_json::from_slice(entry).ok()?;
    (entry.format == FORMAT).then(|| number_of(entry.protocol))
}

/// Who this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) cluster: Uuid,
    pub(crate) incarnation: Incarnation,
}

enum Setback {
    /// The quorum does not answer, or another was faster: it is tried again.
    Silence(String),
    Final(Problem),
}

impl From<Problem> for Setback {
    fn from(problem: Problem) -> Self {
        Self::Final(problem)
    }
}

/// Joins; tried again until the quorum answers, for 10 s.
pub(crate) async fn join(
    store: &Store,
    config: &ClusterConfig,
    me: &NodeConfig,
    remembered: &Remembered,
) -> Result<Joined, Problem> {
    let joining = Joining {
        store,
        config,
        me,
        remembered,
    };
    let deadline = Instant::now() + QUORUM_TIMEOUT;
    let mut last = None;
    loop {
        match timeout_at(deadline, joining.attempt()).await {
            Ok(Ok(joined)) => return Ok(joined),
            Ok(Err(Setback::Final(problem))) => return Err(problem),
            Ok(Err(Setback::Silence(why))) => last = Some(why),
            Err(_) => break,
        }
        sleep(AGAIN).await;
    }
    let why = last.or_else(|| store.status().problem);
    Err(Problem::environment(format!(
        "the quorum ({}) has not answered within {} s: {}; a majority of etcd's members must run and be reachable \
         from here",
        store.names(),
        QUORUM_TIMEOUT.as_secs(),
        why.unwrap_or_else(|| "silence".into())
    )))
}

struct Joining<'a> {
    store: &'a Store,
    config: &'a ClusterConfig,
    me: &'a NodeConfig,
    remembered: &'a Remembered,
}

impl Joining<'_> {
    async fn attempt(&self) -> Result<Joined, Setback> {
        let cluster = self.cluster().await?;
        let key = id_key(&self.config.name);
        self.store.demand(Identity { key, id: cluster });
        self.membership(cluster).await?;
        let incarnation = self.incarnation(cluster).await?;
        Ok(Joined {
            cluster,
            incarnation,
        })
    }

    /// Which cluster the quorum holds; a new one if neither it nor this node knows one.
    async fn cluster(&self) -> Result<Uuid, Setback> {
        let key = id_key(&self.config.name);
        let held = self.store.read(&key).await.map_err(Setback::Silence)?;
        let found = match held {
            Some(held) => held,
            None => match self.remembered.cluster {
                Some(id) => {
                    return Err(self.lost(&format!("has no {key}, and this node belongs to {id}")));
                }
                None => {
                    let known = self.config.trust.identity();
                    let id = known.map_or_else(Uuid::new_v4, |identity| identity.cluster());
                    let value = id.to_string();
                    match self.store.swap(&key, Revision(0), value.as_bytes()).await {
                        Swap::Made(_) => return Ok(id),
                        Swap::NotMade(Some(held)) => held,
                        Swap::NotMade(None) => {
                            return Err(Setback::Silence(format!("{key} came and went")));
                        }
                        Swap::Unknown(why) => return Err(Setback::Silence(why)),
                    }
                }
            },
        };
        let id = Uuid::try_parse_ascii(&found.value)
            .map_err(|_| self.lost(&format!("holds no cluster's id in {key}")))?;
        if let Some(identity) = self.config.trust.identity()
            && identity.cluster() != id
        {
            return Err(Setback::Final(Problem::conflict(format!(
                "the quorum ({}) holds another cluster of the name {}: {id}, where this node's is {}; give this one \
                 another name, or name another etcd",
                self.store.names(),
                self.config.name,
                identity.cluster()
            ))));
        }
        match self.remembered.cluster {
            Some(known) if known != id => Err(self.lost(&format!(
                "holds cluster {id}, and this node belongs to {known}"
            ))),
            _ => Ok(id),
        }
    }

    /// Whether this node is a member of a cluster that nodes join; the first one begins the list.
    async fn membership(&self, cluster: Uuid) -> Result<(), Setback> {
        if self.config.trust.identity().is_none() {
            return Ok(());
        }
        let key = members_key(&self.config.name);
        let held = self.store.read(&key).await.map_err(Setback::Silence)?;
        let Some(held) = held else {
            if self.remembered.cluster.is_some() {
                return Err(self.lost(&format!("has no {key} of cluster {cluster}")));
            }
            let first = Membership::of_founder(self.config, self.me);
            return match self.store.swap(&key, Revision(0), &first.encode()?).await {
                Swap::Made(_) => Ok(()),
                Swap::NotMade(_) => Err(Setback::Silence(format!("{key} was changed meanwhile"))),
                Swap::Unknown(why) => Err(Setback::Silence(why)),
            };
        };
        let members = Membership::decode(&held.value)?;
        let is_member = |node: &MemberNode| node.id == self.me.id && node.name == self.me.name;
        match members.nodes.iter().any(is_member) {
            true => self.speaks(members.agreed()),
            false => Err(Setback::Final(Problem::conflict(format!(
                "node {} is no member of cluster {} any more: it has left, or was forgotten; `ashlar cluster join` \
                 with a new token makes it one, after {} is removed",
                self.me.name,
                self.config.name,
                self.config
                    .trust
                    .identity()
                    .map_or_else(String::new, |known| known.folder().display().to_string())
            )))),
        }
    }

    /// Whether this program speaks what all nodes have agreed on.
    fn speaks(&self, agreed: u16) -> Result<(), Setback> {
        let ours = self.config.versions;
        if ours.has(agreed) {
            return Ok(());
        }
        let step = match agreed > ours.newest() {
            true => {
                "start it from the program that it ran before, or a newer one, and without protocol_at_most"
            }
            false => "upgrade all nodes to a version in between first",
        };
        Err(Setback::Final(Problem::conflict(format!(
            "the nodes of cluster {} have agreed on version {agreed} of the protocol between nodes, and this program \
             (Ashlar {}) of node {} speaks {ours}: {step}",
            self.config.name,
            env!("CARGO_PKG_VERSION"),
            self.me.name
        ))))
    }

    /// One compare-and-swap; of a lost answer's outcome nothing is guessed, the next takes another number.
    async fn incarnation(&self, cluster: Uuid) -> Result<Incarnation, Setback> {
        let key = node_key(&self.config.name, self.me.id);
        let held = self.store.read(&key).await.map_err(Setback::Silence)?;
        let before = self.before(held.as_ref())?;
        self.check_memory(before.as_ref())?;
        if let Some(before) = &before {
            self.check_double(before, cluster).await?;
        }
        let last = before.map_or(Incarnation(0), |entry| entry.incarnation);
        let next = last.0.checked_add(1).map(Incarnation);
        let incarnation =
            next.ok_or_else(|| Problem::internal(format!("{key}: no incarnation is left")))?;
        let revision = held.map_or(Revision(0), |held| held.revision);
        let value = self.entry(incarnation)?;
        match self.store.swap(&key, revision, &value).await {
            Swap::Made(_) => Ok(incarnation),
            Swap::NotMade(_) => Err(Setback::Silence(format!("{key} was changed meanwhile"))),
            Swap::Unknown(why) => Err(Setback::Silence(why)),
        }
    }

    fn entry(&self, incarnation: Incarnation) -> Result<Vec<u8>, Problem> {
        let entry = Entry {
            format: FORMAT,
            incarnation,
            name: self.me.name.clone(),
            replication: self.me.replication,
            portal: self.me.portal,
            version: env!("CARGO_PKG_VERSION").into(),
            protocol: self.config.versions.newest().into(),
        };
        serde_json::to_vec(&entry).map_err(|error| Problem::internal(error.to_string()))
    }

    /// What the quorum holds of this node already.
    fn before(&self, held: Option<&Held>) -> Result<Option<Entry>, Problem> {
        let Some(held) = held else { return Ok(None) };
        let key = node_key(&self.config.name, self.me.id);
        let entry: Entry = serde_json::from_slice(&held.value).map_err(|error| {
            let why = ashlar_plain::reworded(&error.to_string());
            Problem::environment(format!("{key} in the quorum is no node's entry: {why}"))
        })?;
        if entry.format != FORMAT {
            return Err(Problem::environment(format!(
                "{key} in the quorum has format {}, this program knows {FORMAT}: upgrade it",
                entry.format
            )));
        }
        let NodeId(id) = self.me.id;
        if entry.name != self.me.name {
            return Err(Problem::conflict(format!(
                "node {id} is {} in the quorum, and {} in the cluster's file: a number is never given to another node; \
                 set `id = N` so that nodes keep theirs, and give a new one a number that was never used",
                entry.name, self.me.name
            )));
        }
        Ok(Some(entry))
    }

    /// A quorum that knows less of this node than it knows itself comes from a backup.
    fn check_memory(&self, before: Option<&Entry>) -> Result<(), Setback> {
        let stored = before.map_or(Incarnation(0), |entry| entry.incarnation);
        let remembered = self.remembered.incarnation;
        match self.remembered.cluster.is_some() && stored < remembered {
            true => Err(self.lost(&format!(
                "knows incarnation {} of this node, which had {} already",
                stored.0, remembered.0
            ))),
            false => Ok(()),
        }
    }

    /// A daemon of this name that runs elsewhere keeps it.
    async fn check_double(&self, before: &Entry, cluster: Uuid) -> Result<(), Problem> {
        let elsewhere = before.replication;
        if elsewhere == self.me.replication {
            return Ok(());
        }
        match is_double(self.config, self.me, cluster, elsewhere).await {
            true => Err(Problem::conflict(format!(
                "another daemon under the name of node {} runs at {elsewhere}: end it first, or give this one a name \
                 and a number of its own",
                self.me.name
            ))),
            false => Ok(()),
        }
    }

    fn lost(&self, what: &str) -> Setback {
        Setback::Final(Problem::conflict(format!(
            "the quorum ({}) {what}: it was emptied, restored from an older backup, or is another one; name the etcd \
             that this cluster uses, or restore its newest data",
            self.store.names()
        )))
    }
}
