use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ashlar_replica::NodeId;
use serde::Deserialize;

use crate::key::Key;
use crate::problem::Problem;
use crate::store::{EtcdEndpoint, Memory};
use crate::trust::Trust;
use crate::versions::Versions;

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
    pub trust: Trust,
    /// What this node speaks with others: of its program's ([`Versions::OURS`]) those that the cluster has not left behind,
    /// and that it is not held back from.
    pub versions: Versions,
}

impl ClusterConfig {
    /// Whether what this version leaves behind may be left: no node speaks less any more. In a cluster of a file nothing is
    /// agreed on, and nothing is waited for but this node's own leave.
    pub fn has_agreed_on(&self, version: u16) -> bool {
        let is_file = self.trust.identity().is_none();
        self.versions.newest() >= version && (is_file || self.versions.oldest() >= version)
    }

    /// The same, of a node that speaks nothing newer than this with others.
    ///
    /// # Errors
    /// The program does not speak it.
    pub fn speaking_at_most(self, newest: Option<u16>) -> Result<Self, Problem> {
        let Some(newest) = newest else {
            return Ok(self);
        };
        let versions = self.versions.at_most(newest).ok_or_else(|| {
            Problem::usage(format!(
                "protocol_at_most {newest}: this program speaks {} of the protocol between nodes",
                self.versions
            ))
        })?;
        Ok(Self { versions, ..self })
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its number: never given to another node.
    pub id: NodeId,
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
            trust: Trust::Key(key),
            versions: Versions::OURS,
        };
        config.check().map_err(nonsense)?;
        Ok(config)
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&NodeConfig> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The same of a node that must be there.
    ///
    /// # Errors
    /// Usage: it is not; the message names those that are.
    pub fn known(&self, name: &str) -> Result<&NodeConfig, Problem> {
        self.node(name).ok_or_else(|| {
            let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            Problem::usage(format!(
                "node {name:?} is not in cluster {}; its nodes: {}",
                self.name,
                names.join(", ")
            ))
        })
    }

    /// A node by its number.
    pub fn node_by_id(&self, id: NodeId) -> Option<&NodeConfig> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// What holds for every configuration, wherever it comes from.
    pub(crate) fn check(&self) -> Result<(), String> {
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

pub(crate) fn endpoints(texts: &[String]) -> Result<Vec<EtcdEndpoint>, String> {
    if texts.is_empty() {
        return Err("quorum: name the client addresses of etcd's members".into());
    }
    let mut found: Vec<EtcdEndpoint> = Vec::new();
    for text in texts {
        let endpoint: EtcdEndpoint = text.parse().map_err(|why| format!("quorum: {why}"))?;
        endpoint
            .without_tls()
            .map_err(|why| format!("quorum: {why}"))?;
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

pub(crate) fn check_name(what: &str, name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(plain);
    match is_name && !matches!(name, "." | "..") {
        true => Ok(()),
        false => Err(format!(
            "{what} {name:?}: a name has 1 to {LONGEST_NAME} letters, digits, `-`, `_`, `.`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::problem::Kind;

    const TWO: &str = "name = 'x'\nkey_file = 'key'\nquorum = ['127.0.0.1:2379', 'http://etcd2/']\n\
        [[node]]\nname = 'a'\nreplication = '10.0.0.1:7000'\nportal = '10.0.0.1:4420'\n\
        [[node]]\nname = 'b'\nreplication = '[fd00::2]:7000'\n";

    fn read(text: &str, mode: u32, key: &str) -> Result<ClusterConfig, Problem> {
        let dir = tempfile::tempdir().expect("directory");
        let path = |name: &str| dir.path().join(name);
        fs::write(path("key"), key).expect("key");
        fs::set_permissions(path("key"), PermissionsExt::from_mode(mode)).expect("mode");
        fs::write(path("cluster.toml"), text).expect("file");
        ClusterConfig::read(&path("cluster.toml"))
    }

    const SECRET: &str = "0123456789abcdef0123456789abcdef\n";

    #[test]
    fn everything_is_read() {
        let config = read(TWO, 0o600, SECRET).expect("valid");
        assert_eq!(config.name, "x");
        let b = config.node("b").expect("there");
        assert_eq!((b.id, b.portal), (NodeId(2), None));
        assert_eq!(b.replication.to_string(), "[fd00::2]:7000");
        assert!(config.node("a").expect("there").portal.is_some());
        assert!(config.node("c").is_none());
        let QuorumConfig::Etcd(endpoints) = &config.quorum else {
            panic!("etcd");
        };
        let endpoints: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
        assert_eq!(endpoints, ["http://127.0.0.1:2379", "http://etcd2:2379"]);
        let line_end = SECRET.trim_end();
        let same = read(TWO, 0o400, line_end).expect("valid");
        let (Trust::Key(key), Trust::Key(same)) = (&config.trust, &same.trust) else {
            panic!("keys");
        };
        assert_eq!(key.mac(&[b"x"]), same.mac(&[b"x"]));
        assert_eq!(format!("{key:?}"), "Key", "it is not shown");
        let numbered = TWO.replace("name = 'a'", "name = 'a'\nid = 7");
        let config = read(&numbered, 0o600, SECRET).expect("valid");
        let ids: Vec<u32> = config.nodes.iter().map(|node| node.id.0).collect();
        assert_eq!(ids, [7, 2]);
    }

    #[test]
    fn mistakes_are_named() {
        let changes = [
            ("name = 'x'", "name = 'x y'", "x y"),
            ("name = 'x'", "colour = 3", "colour"),
            ("name = 'x'", "", "name"),
            ("quorum = [", "quorum = [] #", "quorum"),
            ("127.0.0.1:2379", "https://etcd", "https://etcd"),
            ("127.0.0.1:2379", "etcd", "etcd"),
            ("127.0.0.1:2379", "etcd:0", "etcd:0"),
            ("127.0.0.1:2379", "etcd:1/x", "etcd:1/x"),
            ("127.0.0.1:2379", "http://etcd2", "twice"),
            ("name = 'b'", "name = 'a'", "node a is there twice"),
            ("name = 'b'", "name = 'b'\nid = 1", "both have id 1"),
            ("name = 'b'", "name = 'b'\nid = 0", "id = 0"),
            ("name = 'b'", "name = ''", "node \"\""),
            ("name = 'b'", "name = 'b'\nsize = 1", "size"),
            (
                "[fd00::2]:7000",
                "10.0.0.1:7000",
                "10.0.0.1:7000 is replication of node a",
            ),
            ("[fd00::2]:7000", "10.0.0.1:4420", "portal of node a"),
            ("[fd00::2]:7000", "0.0.0.0:7000", "0.0.0.0:7000"),
            ("[fd00::2]:7000", "10.0.0.2:0", "10.0.0.2:0"),
            ("[fd00::2]:7000", "there", "replication"),
            ("[[node]]", "[[knot]]", "knot"),
        ];
        for (from, to, word) in changes {
            let text = TWO.replace(from, to);
            assert_ne!(text, TWO);
            let problem = read(&text, 0o600, SECRET).expect_err(to);
            assert_eq!(problem.kind, Kind::Usage, "{problem}");
            let said = &problem.message;
            assert!(
                said.contains(word) && said.contains("cluster.toml"),
                "{to}: {said}"
            );
        }
        let none = TWO.split("[[node]]").next().expect("a head");
        let problem = read(none, 0o600, SECRET).expect_err("no nodes");
        assert!(problem.message.contains("[[node]]"), "{problem}");
    }

    #[test]
    fn a_key_that_is_none_is_refused_by_its_file() {
        for (mode, key, word) in [
            (0o640, SECRET, "0640"),
            (0o604, SECRET, "0604"),
            (0o600, "short\n", "32 bytes"),
            (0o600, &" ".repeat(64), "32 bytes"),
            (0o600, &"x".repeat(5000), "5000 bytes"),
        ] {
            let problem = read(TWO, mode, key).expect_err(word);
            assert_eq!(problem.kind, Kind::Environment);
            let said = &problem.message;
            assert!(said.contains(word) && said.contains("/key"), "{said}");
        }
        let text = TWO.replace("'key'", "'lost'");
        let problem = read(&text, 0o600, SECRET).expect_err("not there");
        assert!(
            problem.message.contains("/lost cannot be read"),
            "{problem}"
        );
        let problem = ClusterConfig::read(Path::new("/nowhere/cluster.toml")).expect_err("none");
        assert!(
            problem.message.contains("/nowhere/cluster.toml"),
            "{problem}"
        );
    }
}
