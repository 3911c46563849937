use std::io;

use ashlar_replica::{Incarnation, NodeId};

use super::wire::{Code, NoAnswer};
use crate::config::{ClusterConfig, NodeConfig};
use crate::trust::Trust;
use crate::versions::Versions;

/// Why a peer and this node do not talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// What answers is no Ashlar.
    Foreign,
    /// It speaks other versions of the protocol between nodes.
    Version(Versions),
    OtherCluster,
    WrongNode(NodeId),
    UnknownNode,
    /// It knows a newer process of this node.
    Stale(Incarnation),
    /// The process that answers is older than one that is known.
    OldProcess(Incarnation),
    Busy,
    Starting,
    WrongKey,
    Malformed,
    /// A reason that only a newer version knows.
    Other(u8),
    Oneself,
    /// A certificate is another node's than who shows it says it is.
    OtherCertificate,
    /// A certificate is of another cluster.
    OtherAuthority,
}

/// Who refuses, and what it says with that.
#[derive(Clone, Copy)]
pub(super) struct Refuses {
    pub(super) node: NodeId,
    /// The newest process that it knows of the caller's node.
    pub(super) newest: Incarnation,
    pub(super) versions: Versions,
}

impl Refusal {
    /// What a code of an answer says.
    pub(super) fn of(code: Code, by: Refuses) -> Self {
        let Refuses {
            node,
            newest,
            versions,
        } = by;
        match code {
            // A refusal that says "go on" is none that this version knows.
            Code::GoOn => Self::Other(0),
            Code::Version => Self::Version(versions),
            Code::OtherCluster => Self::OtherCluster,
            Code::WrongNode => Self::WrongNode(node),
            Code::UnknownNode => Self::UnknownNode,
            Code::Stale => Self::Stale(newest),
            Code::Busy => Self::Busy,
            Code::Starting => Self::Starting,
            Code::WrongKey => Self::WrongKey,
            Code::Malformed => Self::Malformed,
            Code::Oneself => Self::Oneself,
            Code::OtherCertificate => Self::OtherCertificate,
        }
    }

    /// What TLS says of the other end's certificate, or the other end of ours.
    pub(crate) fn of_tls(error: &io::Error) -> Option<Self> {
        use rustls::{AlertDescription, CertificateError, Error};
        let error = error.get_ref()?.downcast_ref::<Error>()?;
        match error {
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => Some(Self::OtherCertificate),
            Error::InvalidCertificate(_)
            | Error::AlertReceived(
                AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::DecryptError,
            ) => Some(Self::OtherAuthority),
            Error::AlertReceived(AlertDescription::AccessDenied) => Some(Self::Busy),
            Error::InvalidMessage(_) => Some(Self::Foreign),
            _ => None,
        }
    }

    /// In words, with the next step. `me` has called `peer`.
    pub(crate) fn words(
        self,
        config: &ClusterConfig,
        me: &NodeConfig,
        peer: &NodeConfig,
    ) -> String {
        let at = format!("node {} at {}", peer.name, peer.replication);
        let mine = &me.name;
        match self {
            Self::Foreign => format!(
                "{at}: what answers there is no node of Ashlar; correct `replication` of node {} in the cluster's file",
                peer.name
            ),
            Self::Version(versions) => format!(
                "{at} speaks {versions} of the protocol between nodes, this one ({mine}) {}: upgrade the older one",
                config.versions
            ),
            Self::OtherCluster => format!(
                "{at} belongs to another cluster than {}: let both name the same cluster and the same quorum; if the \
                 quorum was emptied since that node has started, restore it",
                config.name
            ),
            Self::WrongNode(node) => {
                let other = config.node_by_id(node);
                let other = other.map_or_else(|| node.to_string(), |n| format!("node {}", n.name));
                format!(
                    "{} is the address of {other}, not of node {}: correct `replication` in the cluster's file",
                    peer.replication, peer.name
                )
            }
            Self::UnknownNode => format!(
                "{at} does not know node {mine} under number {}: its cluster's file is another one; copy the same to all \
                 nodes and start that node again",
                me.id.0
            ),
            Self::Stale(newest) => format!(
                "{at} knows a newer process of node {mine} (incarnation {}), or this one as dead: two daemons run under \
                 this node's name; end one of them",
                newest.0
            ),
            Self::OldProcess(newest) => format!(
                "{at}: an older process answers there than the newest one known (incarnation {}): two daemons run under \
                 that node's name; end one of them",
                newest.0
            ),
            Self::Busy => format!(
                "{at} has too many connections that have not shown the key: it is tried again; if it stays, look for \
                 what connects there"
            ),
            Self::Starting => format!("{at} is starting: it is tried again"),
            Self::WrongKey => match config.trust {
                Trust::Key(_) => format!(
                    "{at} has another key: copy the same key_file to all nodes, and start them again"
                ),
                Trust::Certificates(_) => format!(
                    "{at} says what it cannot have heard: something between the two changes what they say"
                ),
            },
            Self::OtherCertificate => format!(
                "{at} and this node ({mine}) do not have the certificates that the cluster has given to nodes of these \
                 names: one of them has left, and joined again; have it end, and start it from its newest directory"
            ),
            Self::OtherAuthority => format!(
                "{at} belongs to another cluster than {}: its certificate is signed by another authority; a node joins \
                 this one with a token (`ashlar cluster token`, then `ashlar cluster join`)",
                config.name
            ),
            Self::Malformed => {
                format!("{at} does not understand what this node says: upgrade the older one")
            }
            Self::Other(code) => {
                format!(
                    "{at} refuses for reason {code}, which this version does not know: upgrade this node"
                )
            }
            Self::Oneself => format!(
                "{at} is another daemon under the name of this node ({mine}): two daemons must not have one name; end \
                 one of them, or correct its name"
            ),
        }
    }
}

impl From<NoAnswer> for Refusal {
    fn from(no: NoAnswer) -> Self {
        match no {
            NoAnswer::Foreign => Self::Foreign,
            NoAnswer::Version(version) => Self::Version(version),
            NoAnswer::Code(code) => Self::Other(code),
        }
    }
}
