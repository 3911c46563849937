use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{Check, ControlError, ReplicationStatus, check_name};

/// How a node of the cluster is, as the one that is asked sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is reached.
    Up,
    /// It is reached, and was drained: its volumes are served by others.
    Drained,
    /// It is not reached.
    Unreachable,
}

/// What a node does in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// It has pools, and serves volumes.
    Storage,
    /// It runs a member of etcd.
    Quorum,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeOfCluster {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// Whether it is the one that was asked.
    pub is_this: bool,
    /// What it does.
    #[serde(default)]
    pub roles: Vec<NodeRole>,
    /// How it is.
    pub state: NodeState,
    /// Why it is not reached, or not let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where its peers reach it.
    pub replication: String,
    /// Where hosts connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portal: Option<String>,
    /// Its newest process that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u64>,
}

/// The store that decides who owns what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuorumOfCluster {
    /// Where it is asked.
    pub endpoints: Vec<String>,
    /// Whether it answers.
    pub reachable: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether nodes bring the members of etcd with them.
    #[serde(default)]
    pub local: bool,
    /// The members of etcd, as they answer the node that is asked.
    #[serde(default)]
    pub members: Vec<MemberOfQuorum>,
    /// What is to be done so that it survives the end of a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// What a member of etcd does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuorumRole {
    /// It leads.
    Leader,
    /// It votes.
    Voter,
    /// It is told everything, and does not vote.
    Learner,
    /// It does not answer.
    Unreachable,
}

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberOfQuorum {
    /// Of the node or witness that runs it; of another, its address.
    pub name: String,
    /// Where it is asked.
    pub endpoint: String,
    /// What it does.
    pub role: QuorumRole,
    /// Why it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A token that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// How long it is good.
    pub seconds: u64,
}

impl Check for NewToken {
    fn check(&self) -> Result<(), ControlError> {
        match self.seconds {
            1..=604_800 => Ok(()),
            other => Err(ControlError::usage(format!(
                "a token is good for a second to a week, not for {other} s"
            ))),
        }
    }
}

/// A token with which one machine can join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterToken {
    /// The token.
    pub token: String,
    /// Until when it is good, in seconds since 1970.
    pub expires: u64,
}

/// A node, or a witness, that is to be in the cluster no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetNode {
    /// Its name.
    pub node: String,
}

impl Check for ForgetNode {
    fn check(&self) -> Result<(), ControlError> {
        check_name("node", &self.node)
    }
}

/// One node is to take the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceNode {
    /// The node whose copies are to go.
    pub node: String,
    /// The node that gets them.
    pub with: String,
}

impl Check for ReplaceNode {
    fn check(&self) -> Result<(), ControlError> {
        check_name("node", &self.node)?;
        check_name("node", &self.with)
    }
}

/// How far that is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplaceReply {
    /// The volumes of which the old node still had a copy.
    pub volumes: Vec<ReplacedVolume>,
}

/// How far it is with a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplacedVolume {
    /// POOL/VOLUME.
    pub volume: String,
    /// Its identity.
    pub uuid: Uuid,
    /// How far it is.
    pub state: ReplaceState,
    /// What the new copy still misses.
    pub resync_bytes_left: u64,
    /// Why nothing is done.
    pub reason: Option<String>,
}

/// How far it is with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplaceState {
    /// The new node's copy is in sync, and the old node has none.
    Replaced,
    /// The new node's copy is given what it misses.
    Copying,
    /// Nothing is done.
    Refused,
}

/// A volume that has copies on several nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeOfCluster {
    /// POOL/VOLUME, as it is called on the node that is asked, or if that has no copy, on one that has.
    pub volume: String,
    /// Its identity.
    pub uuid: Uuid,
    /// Its owner and its copies.
    #[serde(flatten)]
    pub replication: ReplicationStatus,
}

/// Versions of what nodes say to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProtocolOfCluster {
    /// The one that all nodes have agreed on: none speaks less. Raised when all have been upgraded. None in a cluster of a
    /// file, where each connection has the newest that both ends speak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<u16>,
    /// The oldest that the asked node speaks with others.
    pub oldest: u16,
    /// The newest that it speaks.
    pub newest: u16,
}

/// A cluster, as one of its nodes sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterView {
    /// Its name.
    pub name: String,
    /// Which cluster of that name it is.
    pub id: Uuid,
    /// What its nodes say to each other; a daemon from before that was shown leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolOfCluster>,
    /// Who decides.
    pub quorum: QuorumOfCluster,
    /// Its nodes.
    pub nodes: Vec<NodeOfCluster>,
    /// Machines that run a member of etcd and nothing else.
    #[serde(default)]
    pub witnesses: Vec<String>,
    /// The volumes that have copies on several nodes, of all nodes that are reached.
    pub volumes: Vec<VolumeOfCluster>,
}

/// A node whose volumes are to be served by others, or may be served by it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainNode {
    /// The node.
    pub node: String,
    /// Its volumes go; without, it is as others again.
    pub drain: bool,
}

impl Check for DrainNode {
    fn check(&self) -> Result<(), ControlError> {
        check_name("node", &self.node)
    }
}

/// A volume that no other node can take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptVolume {
    /// POOL/VOLUME.
    pub volume: String,
    /// Why it stays.
    pub reason: String,
}

/// What a drain has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainReply {
    /// The volumes that others serve now.
    pub moved: Vec<String>,
    /// Those that stay. While there are any, the node is not drained.
    pub kept: Vec<KeptVolume>,
}

/// What has happened, as far as an operator may want to know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterEvent {
    /// Counts from 1 when the daemon starts.
    pub number: u64,
    /// When, in seconds since 1970.
    pub seconds: f64,
    /// Of a volume: `serves`, `stops`, `isolated`, `connected`, `in_sync`, `copies`, `left`, `unseated`, `follows`,
    /// `diverged`, `alarm`, `failed`, `old_image`, `in_doubt`, `resync`, `resynced`, `run_alone`. Of a node: `drained`,
    /// `undrained`, `forgotten`, `quorum_lost`, `quorum_back`, `node_lost`, `node_back`, `node_joined`, `node_left`,
    /// `agreed`. Of a service: `service_running`, `service_interrupted`, `service_stopped`, `service_waiting`,
    /// `service_failed`, `service_elsewhere`. There may be more.
    pub kind: String,
    /// The volume, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The service, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Of a service: the node that this is said of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Of a service: why it is so, where there is a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In a sentence; its words may change.
    pub text: String,
}

/// Which events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct EventsAfter {
    /// Those after this number.
    #[serde(default)]
    pub after: u64,
}

impl Check for EventsAfter {
    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }
}
