//! What a node that has joined finds in its directory: `DIR/cluster/`.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ashlar_replica::NodeId;
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;
use uuid::Uuid;

use super::document::EtcdPlace;
use crate::config::{ClusterConfig, NodeConfig, QuorumConfig, check_name};
use crate::problem::Problem;
use crate::shared::id_key;
use crate::store::{EtcdEndpoint, Store};
use crate::trust::{Identity, Trust, read_private, write_private};
use crate::versions::Versions;

/// The folder in a node's directory.
pub const LIES_IN: &str = "cluster";
const FILE: &str = "cluster.toml";
/// Where etcd serves clients.
const LISTENS: &str = "--listen-client-urls";
const HEAD: &str = "# Written by `ashlar`, and replaced as a whole when nodes join or leave.\n\n";

/// A member of etcd that this machine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdMember {
    arguments: Vec<String>,
}

impl EtcdMember {
    /// What etcd is started with.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The URL at which it serves clients.
    fn listens(&mut self) -> Option<&mut String> {
        let mut words = self.arguments.iter_mut();
        words.find(|word| *word == LISTENS)?;
        words.next()
    }
}

/// A node's or a witness's place in its cluster.
#[derive(Clone, Debug)]
pub struct Home {
    /// What all nodes are told, as it was known last.
    pub config: ClusterConfig,
    /// What this one is called.
    pub name: String,
    /// Whether it only runs a member of etcd.
    pub is_witness: bool,
    /// What it runs of etcd.
    pub etcd: Option<EtcdMember>,
}

/// A member of etcd, as the file has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileEtcd {
    pub(super) clients: SocketAddr,
    pub(super) peers: SocketAddr,
    /// All members, as etcd is told when it starts for the first time.
    pub(super) first: String,
    /// Whether this member began etcd.
    pub(super) is_first: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileNode {
    pub(super) name: String,
    pub(super) id: NodeId,
    pub(super) replication: SocketAddr,
    pub(super) portal: Option<SocketAddr>,
}

/// What is in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) id: Uuid,
    pub(super) this: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_witness: bool,
    pub(super) quorum: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) etcd: Option<FileEtcd>,
    #[serde(default, rename = "node")]
    pub(super) nodes: Vec<FileNode>,
}

impl From<&NodeConfig> for FileNode {
    fn from(node: &NodeConfig) -> Self {
        Self {
            name: node.name.clone(),
            id: node.id,
            replication: node.replication,
            portal: node.portal,
        }
    }
}

impl File {
    pub(super) fn path(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }

    pub(super) fn read(folder: &Path) -> Result<Self, Problem> {
        let path = Self::path(folder);
        let text = read_private(&path)?;
        toml::from_str(&text).map_err(|error: toml::de::Error| {
            let at = error.span().map(|span| span.start);
            let why = ashlar_plain::at_line(&text, at, error.message());
            Problem::environment(format!("{}: {why}", path.display()))
        })
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), Problem> {
        let text = toml::to_string(self).map_err(|error| Problem::internal(error.to_string()))?;
        write_private(&Self::path(folder), &format!("{HEAD}{text}"))
    }

    fn etcd_arguments(&self, folder: &Path) -> Option<EtcdMember> {
        let etcd = self.etcd.as_ref()?;
        let data = folder.with_file_name("etcd").display().to_string();
        let file = |name: &str| folder.join(name).display().to_string();
        let url = |at: SocketAddr| format!("https://{at}");
        let (certificate, key, authority) = (file("node.pem"), file("node.key"), file("ca.pem"));
        let state = if etcd.is_first { "new" } else { "existing" };
        let words = [
            ("--name", self.this.clone()),
            ("--data-dir", data),
            (LISTENS, url(etcd.clients)),
            ("--advertise-client-urls", url(etcd.clients)),
            ("--listen-peer-urls", url(etcd.peers)),
            ("--initial-advertise-peer-urls", url(etcd.peers)),
            ("--initial-cluster", etcd.first.clone()),
            ("--initial-cluster-state", state.to_owned()),
            ("--initial-cluster-token", self.id.to_string()),
            ("--cert-file", certificate.clone()),
            ("--key-file", key.clone()),
            ("--trusted-ca-file", authority.clone()),
            ("--peer-cert-file", certificate),
            ("--peer-key-file", key),
            ("--peer-trusted-ca-file", authority),
            ("--auto-compaction-mode", "revision".to_owned()),
            ("--auto-compaction-retention", "1000".to_owned()),
            ("--logger", "zap".to_owned()),
            ("--log-level", "warn".to_owned()),
            ("--log-outputs", "stderr".to_owned()),
        ];
        let mut arguments: Vec<String> = vec![
            "--client-cert-auth".into(),
            "--peer-client-cert-auth".into(),
            "--experimental-peer-skip-client-san-verification".into(),
        ];
        for (word, value) in words {
            arguments.extend([word.to_owned(), value]);
        }
        Some(EtcdMember { arguments })
    }
}

impl Home {
    /// What a node's directory holds; `None` if it has joined no cluster.
    ///
    /// # Errors
    /// Environment: a file is missing, damaged, or others may read it.
    pub fn open(dir: &Path) -> Result<Option<Self>, Problem> {
        let dir = std::path::absolute(dir)
            .map_err(|error| Problem::environment(format!("{}: {error}", dir.display())))?;
        let folder = dir.join(LIES_IN);
        if !File::path(&folder).exists() {
            return Ok(None);
        }
        let file = File::read(&folder)?;
        let damaged =
            |why: String| Problem::environment(format!("{}: {why}", File::path(&folder).display()));
        check_name("this", &file.this).map_err(damaged)?;
        let endpoints = file.quorum.iter().map(|text| text.parse());
        let endpoints: Result<Vec<EtcdEndpoint>, String> = endpoints.collect();
        let etcd = file.etcd.as_ref().map(|etcd| EtcdPlace {
            clients: etcd.clients,
            peers: etcd.peers,
        });
        let identity = Identity::read(&folder, file.id)?.with_etcd(etcd);
        let nodes = file.nodes.iter().map(|node| NodeConfig {
            id: node.id,
            name: node.name.clone(),
            replication: node.replication,
            portal: node.portal,
        });
        Ok(Some(Self {
            config: ClusterConfig {
                name: file.name.clone(),
                nodes: nodes.collect(),
                quorum: QuorumConfig::Etcd(endpoints.map_err(damaged)?),
                trust: Trust::Certificates(Arc::new(identity)),
                versions: Versions::OURS,
            },
            etcd: file.etcd_arguments(&folder),
            is_witness: file.is_witness,
            name: file.this,
        }))
    }

    /// The same, with an etcd that listens where no other node looks for it.
    ///
    /// # Errors
    /// Environment: this node has no etcd, or there is no free port.
    pub fn apart(&self) -> Result<Self, Problem> {
        let mut home = self.clone();
        let listens = home.etcd.as_mut().and_then(EtcdMember::listens);
        let url = listens.ok_or_else(|| Problem::environment("this node has no etcd"))?;
        let cannot = |why: String| Problem::environment(format!("a port for etcd alone: {why}"));
        let usual = url.trim_start_matches("https://").parse::<SocketAddr>();
        let usual = usual.map_err(|error| cannot(error.to_string()))?;
        let free = TcpListener::bind((usual.ip(), 0)).and_then(|free| free.local_addr());
        let free = free.map_err(|error| cannot(error.to_string()))?;
        *url = format!("https://{free}");
        let endpoint = url.parse().map_err(cannot)?;
        home.config.quorum = QuorumConfig::Etcd(vec![endpoint]);
        Ok(home)
    }

    /// This node, if it is one.
    pub fn node(&self) -> Option<&NodeConfig> {
        self.config.node(&self.name)
    }
}

/// Whether the quorum answers: asked once.
///
/// # Errors
/// Why not.
pub fn answers(home: &Home) -> Result<(), String> {
    let key = id_key(&home.config.name);
    ask(home, async |store| store.read(&key).await).map(drop)
}

/// Asks the quorum, for as long as that takes.
pub(crate) fn ask<T>(
    home: &Home,
    question: impl AsyncFnOnce(&Store) -> Result<T, String>,
) -> Result<T, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let me = home.node().ok_or("this is no node")?;
    let store = Store::new(&home.config, me);
    runtime.block_on(question(&store))
}
