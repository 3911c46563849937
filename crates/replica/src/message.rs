//! What owner and member say to each other. Messages are in order within a session; each carries its session's
//! number of it, so a gap is seen, and what belongs to an older session is dropped.

use ashlar_block::Registrant;
use bytes::Bytes;

use crate::event::{HostOperation, Outcome};
use crate::extent::{Extent, ExtentSet};
use crate::fence::Origin;
use crate::heads::{Heads, Mark};
use crate::ids::{
    CopyId, Epoch, FetchId, ForwardId, Head, Incarnation, Low, NodeId, Nonce, Positions,
    ReplicaSequence, ReplicaUuid, SessionId, ShardId, VolumeId,
};
use crate::leaves::Leaves;

/// A message with what says where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub volume: VolumeId,
    pub shard: ShardId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The owner's session with this member.
    pub session: SessionId,
    /// Counts the session's messages in this direction, from 0.
    pub number: u32,
    /// What is said.
    pub message: Message,
}

impl Envelope {
    /// What a copy says whose store has failed, to an owner that begins a session with it.
    pub fn answer_of_failed(&self) -> Option<Self> {
        let is_join = matches!(self.message, Message::Join(_));
        is_join.then(|| Self {
            number: 0,
            message: Message::Failed,
            ..self.clone()
        })
    }
}

/// What a range is to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These bytes, exactly the range's.
    Data(Bytes),
    Zeroes,
}

impl Content {
    /// What bytes are: those that are all zero are not sent.
    pub fn of(data: Bytes) -> Self {
        const CHUNK: [u8; 512] = [0; 512];
        let is_zero = |chunk: &[u8]| *chunk == CHUNK[..chunk.len()];
        match data.chunks(CHUNK.len()).all(is_zero) {
            true => Self::Zeroes,
            false => Self::Data(data),
        }
    }
}

/// Why an owner sends a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A host's write.
    Host,
    /// The new owner's own content of a range that was uncertain.
    Base,
    /// The owner's own content of a range in which a host's write failed.
    Restore,
}

/// A change of a range that counts as committed when all needed members have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The owner's number for it.
    pub sequence: ReplicaSequence,
    /// The lowest sequence not committed when it was sent.
    pub low: Low,
    pub kind: RecordKind,
    pub extent: Extent,
    pub content: Content,
}

/// Who wants a session, and what the volume's entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The owner's node.
    pub owner: NodeId,
    pub incarnation: Incarnation,
    /// Who is absent; a member that is answers with ATTACH.
    pub absent: Positions,
    /// Who has a copy.
    pub members: Positions,
    /// Which copy the owner's is, and how far it claims to have come. Nothing by connections of before version 6.
    pub claim: Mark,
}

/// What a copy says of itself as a session begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Which copy it is.
    pub uuid: ReplicaUuid,
    /// What may differ here from any other copy; outside the in-sync set, apart from what planes of others say.
    pub own: ExtentSet,
    /// Granules that may still be written.
    pub free: u64,
    /// It can be asked for what cannot be read elsewhere. Not said, but known by the version of the connection that this
    /// came by.
    pub has_fetch: bool,
    /// How far it claims to have come. Nothing by connections of before version 6.
    pub head: Head,
    /// How far copies in sync with it have claimed to have come. Nothing by such connections either.
    pub heads: Heads,
}

/// A host's command on its way from a member to the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Names it in the answer.
    pub forward: ForwardId,
    /// Whose it is.
    pub registrant: Registrant,
    /// What the host wants.
    pub operation: HostOperation,
}

/// Why a message of an owner was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A newer epoch was promised.
    Epoch,
    /// The session is not known here: the process has restarted, or a message is missing.
    Session,
    /// The copy is an old image, and not what the store says of it.
    OldImage,
    /// The owner has claimed more before: its copy lacks what it has acknowledged.
    Lags,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Owner: begin a session.
    Join(Join),
    /// Owner: a change.
    Record(Record),
    /// Owner: a learner lacks this.
    Copy {
        /// The owner's number for it.
        copy: CopyId,
        extent: Extent,
        content: Content,
    },
    /// Owner: who is absent now.
    Entry { absent: Positions },
    /// Owner: all below is committed.
    Commit {
        /// The lowest sequence not committed.
        low: Low,
    },
    /// Owner: promise not to activate.
    GrantAsk {
        /// Names the question.
        nonce: Nonce,
        /// How far copies in sync, the owner's too, have claimed to have come. Nothing by connections of before version 6.
        heads: Heads,
    },
    /// Owner: say the digest of a run of leaves.
    DigestAsk {
        /// The owner's number for it.
        copy: CopyId,
        leaves: Leaves,
        /// How many of their granules, from their first on; 0 for all that the copy had when its process began.
        granules: u32,
    },
    /// Owner: what is there? It cannot be read here.
    Fetch {
        /// The owner's number for it.
        fetch: FetchId,
        extent: Extent,
    },
    /// Owner: I have stopped; take over.
    Handoff,
    /// Member: the session has begun.
    Joined(Attach),
    /// Member: the session has begun, and I am a learner.
    Attach(Attach),
    /// Member: no.
    Refuse {
        /// The newest epoch promised here.
        promised: Epoch,
        reason: Refusal,
    },
    /// Member: a record is durable.
    Ack { sequence: ReplicaSequence },
    /// Member: a copy is durable.
    CopyAck { copy: CopyId },
    /// Member: a record or copy could not be written.
    Failed,
    /// Member: promised.
    Grant {
        /// The question's.
        nonce: Nonce,
        /// Granules that may still be written.
        free: u64,
        /// How far the copy claims to have come. Nothing by connections of before version 6.
        head: Head,
    },
    /// Member: a host's command that has come here.
    Forward(Forward),
    /// Member: what is the label of this association with this node?
    LabelAsk { origin: Origin },
    /// Owner: a forwarded command has ended.
    Done {
        forward: ForwardId,
        outcome: Outcome,
    },
    /// Owner: of an association with the member, in this epoch.
    Labelled {
        origin: Origin,
        /// Writes of the host's other associations.
        writes: u64,
    },
    /// Member: what is there.
    Fetched {
        /// The owner's number.
        fetch: FetchId,
        extent: Extent,
        /// What; none if it cannot be read here either.
        content: Option<Content>,
    },
    /// Member: the digest asked for.
    Digest {
        /// The question's.
        copy: CopyId,
        /// 128 bits of the leaves' plain checksums.
        digest: u128,
    },
}

impl Message {
    /// Its name in the note and in traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Join(_) => "JOIN",
            Self::Record(_) => "REC",
            Self::Copy { .. } => "COPY",
            Self::Entry { .. } => "ENTRY",
            Self::Commit { .. } => "COMMIT",
            Self::GrantAsk { .. } => "GRANT?",
            Self::DigestAsk { .. } => "DIGEST?",
            Self::Fetch { .. } => "FETCH",
            Self::Fetched { .. } => "FETCHED",
            Self::Handoff => "HANDOFF",
            Self::Joined(_) => "JOINED",
            Self::Attach(_) => "ATTACH",
            Self::Refuse { .. } => "REFUSE",
            Self::Ack { .. } => "ACK",
            Self::CopyAck { .. } => "COPIED",
            Self::Failed => "FAILED",
            Self::Grant { .. } => "GRANT",
            Self::Digest { .. } => "DIGEST",
            Self::Forward(_) => "FWD",
            Self::LabelAsk { .. } => "LABEL?",
            Self::Done { .. } => "DONE",
            Self::Labelled { .. } => "LABEL",
        }
    }

    /// Whether an owner says it to a member.
    pub const fn is_of_owner(&self) -> bool {
        matches!(
            self,
            Self::Join(_)
                | Self::Record(_)
                | Self::Copy { .. }
                | Self::Entry { .. }
                | Self::Commit { .. }
                | Self::GrantAsk { .. }
                | Self::DigestAsk { .. }
                | Self::Fetch { .. }
                | Self::Handoff
                | Self::Done { .. }
                | Self::Labelled { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_all_zero_are_zeroes() {
        for len in [1, 511, 512, 513, 4096] {
            let mut bytes = vec![0; len];
            assert_eq!(Content::of(Bytes::from(bytes.clone())), Content::Zeroes);
            bytes[len - 1] = 1;
            let data = Bytes::from(bytes);
            assert_eq!(Content::of(data.clone()), Content::Data(data));
        }
    }
}
