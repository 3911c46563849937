use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Check, ControlError, check_name};

/// How a copy of a replicated volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// Has everything that was acknowledged: its node may own the volume.
    InSync,
    /// Is given what it missed.
    Resync,
    /// Has all that it missed, and is compared before it counts as in sync.
    Proving,
    /// It was in sync and not equal to the owner's copy when they were compared; it is given that again.
    Diverged,
    /// Its node is away, or its pool is not in service.
    Absent,
    /// It was in sync as far as the quorum knows, which was recovered from one machine; whether it has everything that
    /// was acknowledged, nothing says. No node serves the volume until an operator has one go on.
    InDoubt,
    /// What it is cannot be told: no owner was reached.
    Unknown,
}

/// What reads of volumes with copies on several nodes rely on, at a node that owns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reads {
    /// Promises of the other copies, for 1.5 s: no round trip a read, as long as clocks keep within 1 %.
    #[default]
    Leased,
    /// A word of all other copies in sync after each batch of reads: clocks do not matter.
    Confirmed,
}

impl std::str::FromStr for Reads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "leased" => Ok(Self::Leased),
            "confirmed" => Ok(Self::Confirmed),
            _ => Err(format!("{text:?}: leased or confirmed")),
        }
    }
}

/// One copy of a replicated volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaStatus {
    /// The node that has it.
    pub node: String,
    /// How it is.
    pub state: ReplicaState,
    /// Bytes that it misses yet.
    pub resync_bytes_left: u64,
    /// Of what it missed when this resync began, how much it has by now, 0 to 99; `null` if there is none, or that is
    /// not known. It never goes backwards while the owner is the same and reaches the copy.
    #[serde(default)]
    pub resync_percent: Option<u8>,
    /// When it will have everything, at the rate of the last minute; `null` while that is not known. It is compared
    /// after that.
    #[serde(default)]
    pub resync_seconds_left: Option<u64>,
    /// Since when it is not in sync, in seconds since 1970, as the owner's node remembers it; `null` if it is in sync, or
    /// that is not known: another node has seen it.
    #[serde(default)]
    pub absent_since_seconds: Option<u64>,
    /// Bytes that the owner has copied to it in its term, of what it missed.
    #[serde(default)]
    pub resynced_bytes: u64,
    /// Why the owner has no connection to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ReplicaStatus {
    /// One of which nothing is known but where it is.
    pub const fn unknown(node: String) -> Self {
        Self {
            node,
            state: ReplicaState::Unknown,
            resync_bytes_left: 0,
            resync_percent: None,
            resync_seconds_left: None,
            absent_since_seconds: None,
            resynced_bytes: 0,
            reason: None,
        }
    }
}

/// Why ownership has changed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailoverCause {
    /// All nodes started anew.
    Start,
    /// The owner handed over.
    Move,
    /// The owner's process was certified dead.
    Death,
    /// The owner was silent.
    Silence,
}

impl FailoverCause {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Start, Self::Move, Self::Death, Self::Silence];
}

/// The last change of ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailoverStatus {
    /// From the last that was heard of the owner before to the moment when the new one served, in milliseconds.
    pub gap_ms: u64,
    /// Why.
    pub cause: FailoverCause,
}

/// Everything about a volume's copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicationStatus {
    /// The node that serves it; none while ownership changes.
    pub owner: Option<String>,
    /// The owner's term.
    pub epoch: u32,
    /// Its copies.
    pub replicas: Vec<ReplicaStatus>,
    /// Where hosts connect, `ADDR:PORT`: this node and the others.
    #[serde(default)]
    pub portals: Vec<String>,
    /// The last change of ownership, as its owner remembers it.
    #[serde(default)]
    pub last_failover: Option<FailoverStatus>,
    /// Whether ownership follows the hosts, to the node by which most of their commands come.
    #[serde(default)]
    pub follow: bool,
    /// Why the owner was given it, if that was for its hosts.
    #[serde(default)]
    pub followed: Option<String>,
    /// What reads rely on, at its owner.
    #[serde(default)]
    pub reads: Reads,
    /// When copies in sync were compared last, as the owner remembers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_proof: Option<ProofStatus>,
    /// Bytes of it that hosts have written and not discarded, in whole slots, if its owner can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// What leads out of what keeps it from having an owner, if that does not end by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// Whether ownership of a replicated volume follows its hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetFollow {
    /// Whether it does.
    pub follow: bool,
}

impl Check for SetFollow {
    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }
}

/// What came of comparing copies in sync by digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProofStatus {
    /// When it ended, in seconds since 1970.
    pub seconds: u64,
    /// How many that were asked for have ended in the owner's term.
    pub asked: u64,
    /// The node whose copy the others were compared with: what hosts read.
    pub owner: String,
    /// Bytes of the volume that were compared.
    pub bytes: u64,
    /// The other copies.
    pub copies: Vec<CopyProof>,
}

impl ProofStatus {
    /// Whether no copy that was compared differs.
    pub fn agrees(&self) -> bool {
        self.copies
            .iter()
            .all(|copy| copy.result != ProofResult::Differs)
    }
}

/// How a copy was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProofResult {
    /// All digests agree.
    Agrees,
    /// Some do not.
    Differs,
    /// It is not in sync, was not reached all the time, or the owner could not tell what it has itself.
    NotCompared,
}

/// What came of it for a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyProof {
    /// The node that has it.
    pub node: String,
    /// How it was found.
    pub result: ProofResult,
    /// What differs, to 2 MiB.
    pub ranges: Vec<DifferentRange>,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DifferentRange {
    /// The first.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// A volume is to have copies on so many nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplicateVolume {
    /// How many nodes have a copy then: 1 to 3.
    pub replicas: u8,
    /// Which nodes; without it, those that have one, in sync first, and the first others that are up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

impl Check for ReplicateVolume {
    fn check(&self) -> Result<(), ControlError> {
        if !(1..=3).contains(&self.replicas) {
            return Err(ControlError::usage(format!(
                "{} replicas: a volume has copies on 1 to 3 nodes",
                self.replicas
            )));
        }
        check_count(self.replicas, &self.nodes)
    }
}

/// Nodes are named for all copies, or for none.
pub(super) fn check_count(replicas: u8, nodes: &[String]) -> Result<(), ControlError> {
    let count = nodes.len();
    if count != 0 && count != usize::from(replicas) {
        return Err(ControlError::usage(format!(
            "{count} nodes for {replicas} replicas: name as many"
        )));
    }
    nodes.iter().try_for_each(|node| check_name("node", node))
}

/// A copy that was not in sync is to serve without the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunAlone {
    /// What was written since it was in sync may be lost for good.
    #[serde(default)]
    pub accept_data_loss: bool,
    /// Although another node answers that serves the volume, or has a copy in sync.
    #[serde(default)]
    pub force: bool,
}

impl Check for RunAlone {
    fn check(&self) -> Result<(), ControlError> {
        Ok(())
    }
}

/// A replicated volume is to be served by another node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveVolume {
    /// The node.
    pub to: String,
}

impl Check for MoveVolume {
    fn check(&self) -> Result<(), ControlError> {
        check_name("node", &self.to)
    }
}
