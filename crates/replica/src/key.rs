//! The store's key of a volume: who owns it, and which copies are in sync. One key, each change one compare-and-swap.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Incarnation, NodeId, Position, Positions, ReplicaUuid};
use crate::seats::Seats;

/// The newest format that this program reads. It writes the oldest that says everything, for earlier programs read that.
pub const KEY_FORMAT: u32 = 3;
/// It does not say the volume's size.
const WITHOUT_SIZE: u32 = 2;
/// Nor is a place between others empty.
const WITHOUT_GAPS: u32 = 1;

/// The process that owns an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnerId {
    pub node: NodeId,
    pub incarnation: Incarnation,
}

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberId {
    /// The node that holds it.
    pub node: NodeId,
    /// Which copy it is; [`ReplicaUuid::NEW`] until it was in sync for the first time.
    pub replica: ReplicaUuid,
}

/// The copies, by position.
pub type Members = Seats<MemberId>;

/// The size of a volume. The register stays where it is when the volume grows: hosts' granules from there on lie
/// behind it, [`Size::GAP`] further than hosts count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Granules of the volume, with all that is not the hosts'.
    pub granules: u64,
    /// Which of them is the register.
    pub register: u64,
}

impl Size {
    /// Granules that hosts do not have where the register is, once the volume has grown: so many that what is aligned for
    /// hosts is aligned in the pool, whose largest slot has as many.
    pub const GAP: u64 = 16;

    /// Granules that hosts may read and write.
    pub const fn hosts(self) -> u64 {
        match self.granules > self.register + 1 {
            true => self.granules.saturating_sub(Self::GAP),
            false => self.register,
        }
    }

    /// Where hosts count what is here, or what comes next of theirs.
    pub const fn seen(self, granule: u64) -> u64 {
        match granule.checked_sub(Self::GAP) {
            Some(before) if before >= self.register => before,
            _ if granule > self.register => self.register,
            _ => granule,
        }
    }

    /// The size with so many granules for hosts, more than now.
    pub fn grown(self, hosts: u64) -> Option<Self> {
        let granules = hosts.checked_add(Self::GAP)?;
        let grown = Self { granules, ..self };
        (hosts > self.hosts() && grown.is_sound()).then_some(grown)
    }

    /// Whether there can be a volume of this size.
    pub fn is_sound(self) -> bool {
        let Some(end) = self.register.checked_add(1) else {
            return false;
        };
        let behind = self.register.checked_add(Self::GAP);
        self.granules == end || behind.is_some_and(|behind| self.granules > behind)
    }
}

/// What the key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The newest epoch.
    pub epoch: Epoch,
    /// Who owns it.
    pub owner: OwnerId,
    /// Who is in sync: any of them may become owner.
    pub in_sync: Positions,
    /// The copies, by position.
    pub members: Members,
    /// How often a volume was taken over by a copy that was not in sync.
    pub forced: u32,
    /// The volume's size, once it is about to grow for the first time; before, each copy has it from its pool.
    pub size: Option<Size>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u32,
    epoch: Epoch,
    owner: OwnerId,
    in_sync: Vec<usize>,
    members: Vec<Option<MemberId>>,
    forced: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<Size>,
}

/// Why a key's bytes are not a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// Not what a program of this project writes.
    Malformed(String),
    /// Written by a newer program.
    Format(u32),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "the volume's key is malformed: {why}"),
            Self::Format(format) => write!(
                f,
                "the volume's key has format {format}, this program knows {KEY_FORMAT}: upgrade it"
            ),
        }
    }
}

impl std::error::Error for KeyError {}

impl Key {
    /// As the store keeps it: JSON, for people too.
    pub fn encode(&self) -> Vec<u8> {
        let members = Vec::from(self.members);
        let has_gaps = members.iter().any(Option::is_none);
        let stored = Stored {
            format: match (self.size.is_some(), has_gaps) {
                (true, _) => KEY_FORMAT,
                (false, true) => WITHOUT_SIZE,
                (false, false) => WITHOUT_GAPS,
            },
            epoch: self.epoch,
            owner: self.owner,
            in_sync: self.in_sync.iter().map(Position::index).collect(),
            members,
            forced: self.forced,
            size: self.size,
        };
        // Strings, numbers and lists: nothing in it can fail to be written.
        serde_json::to_vec(&stored).unwrap_or_default()
    }

    /// From what the store keeps.
    ///
    /// # Errors
    /// If the bytes are not a key, or one of a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Self, KeyError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let malformed = |why: serde_json::Error| KeyError::Malformed(why.to_string());
        let format: Format = serde_json::from_slice(bytes).map_err(malformed)?;
        if !(WITHOUT_GAPS..=KEY_FORMAT).contains(&format.format) {
            return Err(KeyError::Format(format.format));
        }
        let stored: Stored = serde_json::from_slice(bytes).map_err(malformed)?;
        let has_gaps = stored.members.iter().any(Option::is_none);
        if has_gaps && stored.format == WITHOUT_GAPS {
            let why = "a place without a member, which its format does not have";
            return Err(KeyError::Malformed(why.into()));
        }
        let is_bad = |size: Size| stored.format <= WITHOUT_SIZE || !size.is_sound();
        if stored.size.is_some_and(is_bad) {
            let why = "a size that no volume has, or its format does not say";
            return Err(KeyError::Malformed(why.into()));
        }
        let members = Members::try_from(stored.members).map_err(KeyError::Malformed)?;
        let taken = members.positions();
        let mut in_sync = Positions::NONE;
        for index in stored.in_sync {
            let position = Position::new(index).filter(|p| taken.has(*p) && !in_sync.has(*p));
            let bad = || KeyError::Malformed(format!("in_sync names {index} of {taken:?}"));
            in_sync = in_sync.with(position.ok_or_else(bad)?);
        }
        if in_sync.is_empty() {
            return Err(KeyError::Malformed("in_sync is empty".into()));
        }
        Ok(Self {
            epoch: stored.epoch,
            owner: stored.owner,
            in_sync,
            members,
            forced: stored.forced,
            size: stored.size,
        })
    }

    /// All positions that have a member.
    pub fn everybody(&self) -> Positions {
        self.members.positions()
    }

    /// Who is not in sync.
    pub fn absent(&self) -> Positions {
        self.everybody().minus(self.in_sync)
    }

    /// Where a node's copy is.
    pub fn position(&self, node: NodeId) -> Option<Position> {
        self.members.find(|member| member.node == node)
    }

    /// Whether this copy of this node is in sync: what another has at its place does not count for it.
    pub fn is_in_sync(&self, position: Position, member: MemberId) -> bool {
        self.in_sync.has(position) && self.members.get(position) == Some(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        let member = |n| MemberId {
            node: NodeId(n),
            replica: ReplicaUuid([n as u8; 16]),
        };
        let owner = OwnerId {
            node: NodeId(7),
            incarnation: Incarnation(3),
        };
        Key {
            epoch: Epoch(4),
            owner,
            in_sync: Positions::first(2),
            members: Members::first([member(7), member(8), member(9)]).expect("three"),
            forced: 0,
            size: None,
        }
    }

    #[test]
    fn a_key_comes_back_as_it_was_written() {
        assert_eq!(Key::decode(&key().encode()), Ok(key()));
        assert_eq!(key().position(NodeId(9)), Position::new(2));
        assert_eq!(
            key().absent(),
            Positions::NONE.with(Position::new(2).expect("a position"))
        );
    }

    #[test]
    fn only_a_key_with_a_gap_needs_the_newer_format() {
        let text = |key: &Key| String::from_utf8(key.encode()).expect("text");
        let at = |index| Position::new(index).expect("a position");
        assert!(text(&key()).contains("\"format\":1"));
        let mut fewer = key();
        fewer.members = fewer.members.without(at(2));
        assert!(text(&fewer).contains("\"format\":1"));
        let gap = Key {
            in_sync: Positions::NONE.with(at(0)).with(at(2)),
            members: key().members.without(at(1)),
            ..key()
        };
        assert!(text(&gap).contains("\"format\":2"));
        assert_eq!(Key::decode(&gap.encode()), Ok(gap.clone()));
        let older = text(&gap).replace("\"format\":2", "\"format\":1");
        assert!(Key::decode(older.as_bytes()).is_err());
        let member = gap.members.get(at(2)).expect("a member");
        assert!(gap.is_in_sync(at(2), member));
        let replica = ReplicaUuid::NEW;
        assert!(!gap.is_in_sync(at(2), MemberId { replica, ..member }));
    }

    #[test]
    fn a_key_that_says_the_size_needs_the_newest_format() {
        let size = |granules, register| Size { granules, register };
        let sized = |size| Key {
            size: Some(size),
            ..key()
        };
        let before = size(65, 64);
        let grown = before.grown(200).expect("larger");
        assert_eq!((before.hosts(), grown), (64, size(216, 64)));
        assert_eq!(grown.grown(200), None);
        for size in [before, grown] {
            let text = String::from_utf8(sized(size).encode()).expect("text");
            assert!(text.contains("\"format\":3"), "{text}");
            assert_eq!(Key::decode(text.as_bytes()), Ok(sized(size)));
            let older = text.replace("\"format\":3", "\"format\":2");
            assert!(Key::decode(older.as_bytes()).is_err());
        }
        for bad in [
            size(66, 64),
            size(80, 64),
            size(64, 64),
            size(u64::MAX, u64::MAX),
        ] {
            assert!(Key::decode(&sized(bad).encode()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_not_a_key_is_refused_by_what_is_wrong() {
        let text = String::from_utf8(key().encode()).expect("text");
        let refused = |from: &str, to: &str| {
            let changed = text.replace(from, to);
            assert_ne!(changed, text);
            Key::decode(changed.as_bytes())
                .expect_err("refused")
                .to_string()
        };
        assert!(refused("\"format\":1", "\"format\":4").contains("format 4"));
        assert!(refused("[0,1]", "[0,3]").contains("names 3"));
        assert!(refused("[0,1]", "[1,1]").contains("names 1"));
        assert!(refused("[0,1]", "[]").contains("empty"));
        assert!(refused("forced", "farced").contains("farced"));
        for cut in 0..text.len() {
            assert!(Key::decode(&text.as_bytes()[..cut]).is_err());
        }
    }
}
