use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ashlar_replica::NodeId;
use serde::Deserialize;

use crate::key::Key;
use crate::problem::Problem;
use crate::store::{EtcdEndpoint, Memory};

/// The largest configuration that is read.
const LONGEST_FILE: u64 = 1 << 20;
/// Most characters of a name.
const LONGEST_NAME: usize = 64;

/// What all nodes of a cluster are told.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The cluster's name: part of its keys in the quorum.
    pub name: String,
    /// All nodes.
    pub nodes: Vec<NodeConfig>,
    /// Who decides.
    pub quorum: QuorumConfig,
    /// What nodes know each other by.
    pub key: Key,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its number: never given to another node.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where it listens for its peers.
    pub replication: SocketAddr,
    /// Where hosts connect to its volumes.
    pub portal: Option<SocketAddr>,
}

/// Who decides.
#[derive(Clone, Debug)]
pub enum QuorumConfig {
    /// Members of one etcd cluster, tried in turn.
    Etcd(Vec<EtcdEndpoint>),
    /// A store in this process, for tests: all clusters with a clone of it share it.
    Memory(Memory),
}

impl QuorumConfig {
    /// A store in this process, for tests.
    pub fn memory() -> Self {
        Self::Memory(Memory::default())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    key_file: PathBuf,
    quorum: Vec<String>,
    #[serde(default)]
    node: Vec<FileNode>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileNode {
    name: String,
    id: Option<u32>,
    replication: SocketAddr,
    portal: Option<SocketAddr>,
}

impl ClusterConfig {
    /// Reads a file, and the key that it names.
    ///
    /// # Errors
    /// Environment: a file is not there or cannot be read, or others may read the key. Usage: it makes no sense; the
    /// message names the key and the line.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        let shown = path.display();
        let cannot = |why: String| Problem::environment(format!("{shown}: {why}"));
        let size = std::fs::metadata(path).map_err(|error| cannot(error.to_string()))?;
        if size.len() > LONGEST_FILE {
            return Err(cannot(format!(
                "has {} bytes: no configuration",
                size.len()
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| cannot(error.to_string()))?;
        let nonsense = |why: String| Problem::usage(format!("{shown}: {why}"));
        let file = parse(&text).map_err(nonsense)?;
        let quorum = endpoints(&file.quorum).map_err(nonsense)?;
        let nodes = nodes(file.node).map_err(nonsense)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let key = Key::read(&folder.join(&file.key_file))?;
        let config = Self {
            name: file.name,
            nodes,
            quorum: QuorumConfig::Etcd(quorum),
            key,
        };
        config.check().map_err(nonsense)?;
        Ok(config)
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&NodeConfig> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// A node by its number.
    pub fn node_by_id(&self, id: NodeId) -> Option<&NodeConfig> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The names of all nodes, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        names.join(", ")
    }

    /// What holds for every configuration, wherever it comes from.
    fn check(&self) -> Result<(), String> {
        check_name("name", &self.name)?;
        if self.nodes.is_empty() {
            return Err("there is no [[node]]".into());
        }
        let mut names = HashMap::new();
        let mut ids = HashMap::new();
        let mut addresses: HashMap<SocketAddr, String> = HashMap::new();
        for node in &self.nodes {
            check_name("node", &node.name)?;
            let name = &node.name;
            if names.insert(name, ()).is_some() {
                return Err(format!("node {name} is there twice"));
            }
            if let Some(other) = ids.insert(node.id, name) {
                let id = node.id.0;
                return Err(format!("nodes {other} and {name} both have id {id}"));
            }
            let places = [
                ("replication", Some(node.replication)),
                ("portal", node.portal),
            ];
            for (word, address) in places {
                let Some(address) = address else { continue };
                if address.ip().is_unspecified() || address.port() == 0 {
                    return Err(format!(
                        "node {name}: {word} = {address}: others cannot connect there; name an address and a port"
                    ));
                }
                let here = format!("{word} of node {name}");
                if let Some(other) = addresses.insert(address, here.clone()) {
                    return Err(format!("{address} is {other} and {here}"));
                }
            }
        }
        Ok(())
    }
}

fn parse(text: &str) -> Result<File, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let at = error.span().map(|span| span.start);
        ashlar_plain::at_line(text, at, error.message())
    })
}

fn endpoints(texts: &[String]) -> Result<Vec<EtcdEndpoint>, String> {
    if texts.is_empty() {
        return Err("quorum: name the client addresses of etcd's members".into());
    }
    let mut found: Vec<EtcdEndpoint> = Vec::new();
    for text in texts {
        let endpoint: EtcdEndpoint = text.parse().map_err(|why| format!("quorum: {why}"))?;
        if found.contains(&endpoint) {
            return Err(format!("quorum: {endpoint} is there twice"));
        }
        found.push(endpoint);
    }
    Ok(found)
}

fn nodes(nodes: Vec<FileNode>) -> Result<Vec<NodeConfig>, String> {
    let numbered = nodes.into_iter().zip(1..);
    let nodes = numbered.map(|(node, place)| {
        let id = node.id.unwrap_or(place);
        if id == 0 {
            return Err(format!("node {}: id = 0: ids count from 1", node.name));
        }
        Ok(NodeConfig {
            id: NodeId(id),
            name: node.name,
            replication: node.replication,
            portal: node.portal,
        })
    });
    nodes.collect()
}

fn check_name(what: &str, name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(plain);
    match is_name && !matches!(name, "." | "..") {
        true => Ok(()),
        false => Err(format!(
            "{what} {name:?}: a name has 1 to {LONGEST_NAME} letters, digits, `-`, `_`, `.`"
        )),
    }
}
