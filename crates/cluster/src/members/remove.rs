//! Nodes that leave, and those that are forgotten.

use std::sync::Arc;
use std::time::Duration;

use ashlar_replica::NodeId;
use serde::Deserialize;
use uuid::Uuid;

use super::document::{EtcdPlace, Membership};
use super::screen::OTHERS;
use crate::cluster::Cluster;
use crate::problem::{Kind, Problem};
use crate::remembered::Remembered;
use crate::shared::{Shared, volumes_prefix};

/// How long the quorum may take, and etcd until a member is gone.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);

/// What is looked at in a volume's key.
#[derive(Deserialize)]
struct VolumeKey {
    /// Places that were given up are empty.
    members: Vec<Option<VolumeMember>>,
}

#[derive(Deserialize)]
struct VolumeMember {
    node: NodeId,
}

impl Cluster {
    /// Takes another node, or a witness, out of the cluster. Blocks.
    ///
    /// # Errors
    /// Not found. Conflict: it is there and can leave by itself, has copies of volumes, is the last node, or etcd needs
    /// it. Environment: the quorum does not answer.
    pub fn forget(&self, name: &str) -> Result<(), Problem> {
        let (shared, name) = (self.0.shared.clone(), name.to_owned());
        let forget = async move {
            let peers = shared.peers();
            let mut peers = peers.iter().map(|peer| peer.status());
            if peers.any(|peer| peer.name == name && peer.reachable) {
                return Err(Problem::conflict(format!(
                    "node {name} is there: `ashlar cluster leave` on it, or end it first"
                )));
            }
            shared.remove(&name).await
        };
        let done = self.wait(REMOVAL_TIMEOUT + OTHERS, forget);
        done.map_err(Problem::environment)?
    }

    /// Volumes of which a node has a copy. Blocks.
    ///
    /// # Errors
    /// Environment: the quorum does not answer.
    pub fn volumes_on(&self, node: NodeId) -> Result<Vec<Uuid>, Problem> {
        let shared = self.0.shared.clone();
        let listed = self.wait(REMOVAL_TIMEOUT, async move { shared.copies_on(node).await });
        let listed = listed.map_err(Problem::environment)??;
        let ids = listed.iter().map(|id| Uuid::parse_str(id));
        let no_id = |error| {
            Problem::environment(format!("the quorum has a volume without a UUID: {error}"))
        };
        ids.collect::<Result<_, _>>().map_err(no_id)
    }

    /// Takes this node out of the cluster, for good: its directory is a node's of none. Who calls ends the process.
    /// Blocks.
    ///
    /// # Errors
    /// Those of [`forget`](Self::forget).
    pub fn leave(&self) -> Result<(), Problem> {
        let shared = self.0.shared.clone();
        let config = shared.config();
        let identity = config.trust.identity().ok_or_else(|| shared.no_joining())?;
        let name = shared.me.name.clone();
        let remove = async move { shared.remove(&name).await };
        let left = self.wait(REMOVAL_TIMEOUT + OTHERS, remove);
        left.map_err(Problem::environment)??;
        let folder = identity.folder();
        if let Some(dir) = folder.parent() {
            Remembered::forget(dir)?;
        }
        std::fs::remove_dir_all(folder).map_err(|error| {
            Problem::environment(format!(
                "this node has left, and {} cannot be removed: {error}; remove it",
                folder.display()
            ))
        })
    }
}

/// Who is taken out.
struct Leaver {
    node: Option<NodeId>,
    etcd: Option<EtcdPlace>,
}

impl Leaver {
    fn of(members: &Membership, name: &str) -> Option<Self> {
        if let Some(node) = members.node(name) {
            return Some(Self {
                node: Some(node.id),
                etcd: node.etcd,
            });
        }
        let witness = members.witnesses.iter().find(|one| one.name == name)?;
        Some(Self {
            node: None,
            etcd: Some(witness.etcd),
        })
    }
}

impl Shared {
    async fn remove(self: &Arc<Self>, name: &str) -> Result<(), Problem> {
        let _turn = self.take_turn().await?;
        let config = self.config();
        config.trust.identity().ok_or_else(|| self.no_joining())?;
        let (members, _) = self.members().await?;
        let leaver = Leaver::of(&members, name).ok_or_else(|| {
            let what = format!("cluster {} has no node or witness {name}", self.name);
            Problem::new(Kind::NotFound, what)
        })?;
        if let Some(node) = leaver.node {
            if members.nodes.len() == 1 {
                return Err(Problem::conflict(format!(
                    "node {name} is the last one of cluster {}: with it ends the cluster; end the daemon, and remove {}",
                    self.name,
                    config
                        .trust
                        .identity()
                        .map_or_else(String::new, |known| known.folder().display().to_string())
                )));
            }
            let copies = self.copies_on(node).await?;
            if !copies.is_empty() {
                return Err(Problem::conflict(format!(
                    "node {name} has copies of volumes: {}; have another node take its place first: `ashlar node \
                     replace {name} --with NODE`",
                    copies.join(", ")
                )));
            }
        }
        // First: if etcd needs it, nothing is changed.
        if let Some(place) = leaver.etcd.filter(|_| members.is_local()) {
            self.remove_from_etcd(place).await?;
        }
        let gone = |members: &mut Membership| {
            members.nodes.retain(|node| node.name != name);
            members.witnesses.retain(|one| one.name != name);
            Ok(())
        };
        self.change(gone).await.map(drop)
    }

    /// Volumes of which a node has a copy, by their UUIDs.
    async fn copies_on(&self, node: NodeId) -> Result<Vec<String>, Problem> {
        let prefix = volumes_prefix(&self.name);
        let listed = self.store.list(&prefix).await;
        let listed = listed.map_err(|why| {
            Problem::environment(format!(
                "the quorum does not say which volumes there are: {why}"
            ))
        })?;
        let mut copies = Vec::new();
        for (key, value) in listed {
            let volume = key.trim_start_matches(&prefix).to_owned();
            // A key of a newer format is taken for one that names the node.
            let is_there = serde_json::from_slice::<VolumeKey>(&value).map_or(true, |key| {
                key.members
                    .iter()
                    .flatten()
                    .any(|member| member.node == node)
            });
            if is_there {
                copies.push(volume);
            }
        }
        Ok(copies)
    }
}
