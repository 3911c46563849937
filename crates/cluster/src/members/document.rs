use std::net::SocketAddr;

use ashlar_replica::NodeId;
use serde::{Deserialize, Serialize};

use super::joining::Request;
use super::secret::hex_hash;
use crate::config::{ClusterConfig, NodeConfig, QuorumConfig};
use crate::problem::Problem;
use crate::store::EtcdEndpoint;
use crate::trust::Trust;

const FORMAT: u32 = 1;
/// What spoke protocol 1 of a list, before versions were agreed on, spoke this one between nodes.
const BEFORE_AGREEMENT: u16 = 4;
/// Members of an etcd that nodes bring with them: more would cost and not help.
pub(super) const ETCD_MEMBERS: usize = 3;
/// Tokens that are kept: those that were used or are too late are told from those that never were.
const TOKENS: usize = 100;

/// Where a member of etcd listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EtcdPlace {
    pub(crate) clients: SocketAddr,
    pub(crate) peers: SocketAddr,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberNode {
    pub(crate) id: NodeId,
    pub(crate) name: String,
    pub(crate) replication: SocketAddr,
    pub(crate) portal: SocketAddr,
    /// If it runs a member of etcd.
    pub(crate) etcd: Option<EtcdPlace>,
}

/// The version that a list, a node's entry or a request of what joins says.
pub(crate) fn number_of(said: u32) -> u16 {
    match said {
        1 => BEFORE_AGREEMENT,
        said => u16::try_from(said).unwrap_or(u16::MAX),
    }
}

/// A machine that runs a member of etcd and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Witness {
    pub(crate) name: String,
    pub(crate) etcd: EtcdPlace,
}

/// What is known of a token: never the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TokenEntry {
    /// SHA-256 of its secret, in hexadecimal digits.
    pub(crate) hash: String,
    /// In seconds since 1970.
    pub(crate) expires: u64,
    pub(crate) used_by: Option<String>,
    /// SHA-256 of the public key that it was used with, in hexadecimal digits. Lists of older versions do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) used_key: Option<String>,
}

impl TokenEntry {
    /// Of a token that was not used yet.
    pub(crate) fn new(hash: String, expires: u64) -> Self {
        Self {
            hash,
            expires,
            used_by: None,
            used_key: None,
        }
    }
}

/// Who is in the cluster: the value of one key in the quorum, for people too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Membership {
    format: u32,
    /// The version of what nodes say to each other that all have agreed on: none speaks less. Of lists from before there
    /// was an agreement this is 1 ([`agreed`](Self::agreed)).
    protocol: u32,
    /// The number of the next node: none is given twice.
    pub(crate) next: u32,
    pub(crate) nodes: Vec<MemberNode>,
    #[serde(default)]
    pub(crate) witnesses: Vec<Witness>,
    /// The etcd of others; empty if nodes bring their own.
    #[serde(default)]
    pub(crate) quorum: Vec<String>,
    #[serde(default)]
    pub(crate) tokens: Vec<TokenEntry>,
}

impl Membership {
    pub(crate) fn of_founder(config: &ClusterConfig, me: &NodeConfig) -> Self {
        let identity = config.trust.identity();
        let etcd = identity.and_then(|identity| identity.etcd());
        let quorum = match (&config.quorum, etcd) {
            (QuorumConfig::Etcd(endpoints), None) => {
                endpoints.iter().map(ToString::to_string).collect()
            }
            (QuorumConfig::Memory(_), None) => vec!["http://memory".into()],
            _ => Vec::new(),
        };
        Self {
            format: FORMAT,
            protocol: config.versions.newest().into(),
            next: me.id.0 + 1,
            nodes: vec![MemberNode {
                id: me.id,
                name: me.name.clone(),
                replication: me.replication,
                portal: me.portal.unwrap_or(me.replication),
                etcd,
            }],
            witnesses: Vec::new(),
            quorum,
            tokens: Vec::new(),
        }
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, Problem> {
        let broken = |why: String| {
            Problem::environment(format!("the quorum's list of members is damaged: {why}"))
        };
        let members: Self = serde_json::from_slice(value)
            .map_err(|error| broken(ashlar_plain::reworded(&error.to_string())))?;
        match members.format == FORMAT {
            true => Ok(members),
            false => Err(Problem::environment(format!(
                "the quorum's list of members has format {}, this program knows {FORMAT}: upgrade it",
                members.format
            ))),
        }
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, Problem> {
        serde_json::to_vec(self).map_err(|error| Problem::internal(error.to_string()))
    }

    /// Whether nodes bring the members of etcd with them.
    pub(crate) fn is_local(&self) -> bool {
        self.quorum.is_empty()
    }

    /// etcd's members: those of nodes, and of witnesses.
    pub(crate) fn etcd(&self) -> Vec<(String, EtcdPlace)> {
        let nodes = self.nodes.iter();
        let nodes = nodes.filter_map(|node| node.etcd.map(|place| (node.name.clone(), place)));
        let witnesses = self.witnesses.iter();
        let witnesses = witnesses.map(|witness| (witness.name.clone(), witness.etcd));
        nodes.chain(witnesses).collect()
    }

    pub(crate) fn node(&self, name: &str) -> Option<&MemberNode> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// As all nodes are told; `like` says what does not change.
    pub(crate) fn config(&self, like: &ClusterConfig) -> Result<ClusterConfig, Problem> {
        Ok(ClusterConfig {
            name: like.name.clone(),
            nodes: self.node_configs(),
            quorum: match &like.quorum {
                QuorumConfig::Memory(memory) => QuorumConfig::Memory(memory.clone()),
                QuorumConfig::Etcd(_) => QuorumConfig::Etcd(self.endpoints()?),
            },
            trust: Trust::clone(&like.trust),
            versions: like.versions.since(self.agreed()),
        })
    }

    /// The version that all have agreed on.
    pub(crate) fn agreed(&self) -> u16 {
        number_of(self.protocol)
    }

    /// All speak this version from now on.
    pub(super) fn agree_on(&mut self, version: u16) {
        self.protocol = self.protocol.max(version.into());
    }

    pub(crate) fn node_configs(&self) -> Vec<NodeConfig> {
        let nodes = self.nodes.iter().map(|node| NodeConfig {
            id: node.id,
            name: node.name.clone(),
            replication: node.replication,
            portal: Some(node.portal),
        });
        nodes.collect()
    }

    /// Where etcd is asked.
    pub(crate) fn endpoints(&self) -> Result<Vec<EtcdEndpoint>, Problem> {
        if self.is_local() {
            let places = self.etcd().into_iter();
            return Ok(places
                .map(|(_, place)| EtcdEndpoint::with_tls(place.clients))
                .collect());
        }
        let endpoints = self.quorum.iter().map(|text| {
            text.parse()
                .map_err(|why| Problem::environment(format!("the quorum's list of members: {why}")))
        });
        endpoints.collect()
    }

    pub(crate) fn put_token(&mut self, token: TokenEntry) {
        self.tokens.push(token);
        // The oldest go.
        let surplus = self.tokens.len().saturating_sub(TOKENS);
        self.tokens.drain(..surplus);
    }

    /// The request's token is good for it alone from now on.
    pub(super) fn use_token(&mut self, request: &Request) {
        if let Some(token) = self.token_of(request) {
            token.used_by = Some(request.name.clone());
            token.used_key = Some(hex_hash(&request.public_key));
        }
    }

    /// Nothing has come of the request: its token is as it was before.
    pub(super) fn release_token(&mut self, request: &Request) {
        if let Some(token) = self.token_of(request) {
            token.used_by = None;
            token.used_key = None;
        }
    }

    fn token_of(&mut self, request: &Request) -> Option<&mut TokenEntry> {
        let hash = request.secret.hash();
        self.tokens.iter_mut().find(|token| token.hash == hash)
    }
}
