//! What two nodes say before anything else, byte by byte (docs/replication.md has the tables). Little endian; what is
//! reserved is zero.

use std::fmt;

use ashlar_replica::{Incarnation, NodeId, VolumeId};
use uuid::Uuid;

use crate::key::MAC_BYTES;
use crate::versions::Versions;

pub(crate) const MAGIC: [u8; 4] = *b"ASHP";

/// The newest, and how many older ones there are.
fn put_versions(versions: Versions, bytes: &mut [u8]) {
    bytes[4..6].copy_from_slice(&versions.newest().to_le_bytes());
    let older = versions.newest() - versions.oldest();
    bytes[7] = u8::try_from(older).unwrap_or(u8::MAX);
}

fn versions_of(bytes: &[u8; PREFIX_BYTES]) -> Versions {
    let newest = u16::from_le_bytes(part(bytes, 4));
    let oldest = newest.saturating_sub(bytes[7].into());
    Versions::new(oldest, newest).unwrap_or(Versions::OURS)
}

/// Magic, versions and one byte that says more: the same in all versions, so that each can refuse each other.
pub(crate) const PREFIX_BYTES: usize = 8;
pub(crate) const HELLO_BYTES: usize = 96;
pub(crate) const CHALLENGE_BYTES: usize = 96;
pub(crate) const VERDICT_BYTES: usize = 48;
pub(crate) const NONCE_BYTES: usize = 32;
pub(crate) const NAME_HASH_BYTES: usize = 16;

/// Where the proof in a challenge and in a verdict begins: it is about all before.
pub(crate) const CHALLENGE_MAC: usize = CHALLENGE_BYTES - MAC_BYTES;
pub(crate) const VERDICT_MAC: usize = VERDICT_BYTES - MAC_BYTES;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A volume's replication.
    Data = 1,
    /// One order and its answer.
    Order = 2,
    /// The process that the hello names is dead.
    Dead = 3,
    /// Nothing but to see each other.
    Probe = 4,
}

impl Purpose {
    fn of(byte: u8) -> Option<Self> {
        let all = [Self::Data, Self::Order, Self::Dead, Self::Probe];
        all.into_iter().find(|purpose| *purpose as u8 == byte)
    }
}

/// Once only in the life of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nonce(pub(crate) [u8; NONCE_BYTES]);

impl Nonce {
    /// 244 random bits.
    pub(crate) fn random() -> Self {
        let mut bytes = [0; NONCE_BYTES];
        bytes[..16].copy_from_slice(Uuid::new_v4().as_bytes());
        bytes[16..].copy_from_slice(Uuid::new_v4().as_bytes());
        Self(bytes)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce")
    }
}

/// Stands for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameHash(pub(crate) [u8; NAME_HASH_BYTES]);

impl NameHash {
    pub(crate) fn of(name: &str) -> Self {
        use sha2::{Digest, Sha256};
        let hash = Sha256::digest(name);
        let mut bytes = [0; NAME_HASH_BYTES];
        bytes.copy_from_slice(&hash[..NAME_HASH_BYTES]);
        Self(bytes)
    }
}

/// Who calls, whom, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// What the caller speaks.
    pub(crate) versions: Versions,
    pub(crate) purpose: Purpose,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// Of who calls; with [`Purpose::Dead`], of who is dead.
    pub(crate) incarnation: Incarnation,
    /// 0 unless the purpose is [`Purpose::Data`].
    pub(crate) volume: VolumeId,
    /// The cluster's id; with [`Purpose::Dead`] its name's hash, as a parent has not asked the quorum.
    pub(crate) cluster: [u8; 16],
    pub(crate) name: NameHash,
    pub(crate) nonce: Nonce,
}

/// Why bytes are no hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHello {
    /// Not of this protocol: nothing is answered.
    Foreign,
    /// None of the versions that this node speaks.
    Version(Versions),
    /// A purpose that is not known, or what cannot be.
    Malformed,
}

pub(crate) fn hello_prefix(bytes: &[u8; PREFIX_BYTES], ours: Versions) -> Result<u16, NoHello> {
    if bytes[..4] != MAGIC {
        return Err(NoHello::Foreign);
    }
    let theirs = versions_of(bytes);
    ours.common(theirs).ok_or(NoHello::Version(theirs))
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        put_versions(self.versions, &mut bytes);
        bytes[6] = self.purpose as u8;
        bytes[8..12].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.volume.0.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.cluster);
        bytes[48..64].copy_from_slice(&self.name.0);
        bytes[64..].copy_from_slice(&self.nonce.0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HELLO_BYTES], ours: Versions) -> Result<Self, NoHello> {
        hello_prefix(&part(bytes, 0), ours)?;
        let purpose = Purpose::of(bytes[6]).ok_or(NoHello::Malformed)?;
        let hello = Self {
            versions: versions_of(&part(bytes, 0)),
            purpose,
            from: NodeId(u32::from_le_bytes(part(bytes, 8))),
            to: NodeId(u32::from_le_bytes(part(bytes, 12))),
            incarnation: Incarnation(u64::from_le_bytes(part(bytes, 16))),
            volume: VolumeId(u64::from_le_bytes(part(bytes, 24))),
            cluster: part(bytes, 32),
            name: NameHash(part(bytes, 48)),
            nonce: Nonce(part(bytes, 64)),
        };
        let is_for_volume = purpose == Purpose::Data;
        let older = u16::from(bytes[7]);
        match older <= hello.versions.newest() && (is_for_volume || hello.volume.0 == 0) {
            true => Ok(hello),
            false => Err(NoHello::Malformed),
        }
    }
}

/// Why a peer says no. The numbers stay what they are in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// None: it goes on.
    GoOn = 0,
    Version = 1,
    OtherCluster = 2,
    WrongNode = 3,
    UnknownNode = 4,
    Stale = 5,
    Busy = 6,
    Starting = 7,
    WrongKey = 8,
    Malformed = 9,
    Oneself = 10,
    OtherCertificate = 11,
}

impl Code {
    fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::GoOn,
            Self::Version,
            Self::OtherCluster,
            Self::WrongNode,
            Self::UnknownNode,
            Self::Stale,
            Self::Busy,
            Self::Starting,
            Self::WrongKey,
            Self::Malformed,
            Self::Oneself,
            Self::OtherCertificate,
        ];
        all.into_iter().find(|code| *code as u8 == byte)
    }
}

/// What is answered to a hello: who is there, and that it knows the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// What who answers speaks.
    pub(crate) versions: Versions,
    pub(crate) code: Code,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) nonce: Nonce,
}

/// Why bytes are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    Foreign,
    Version(Versions),
    /// A refusal that this version does not know.
    Code(u8),
}

/// The beginning of an answer: of any version, and of one that refuses.
pub(crate) fn answer_prefix(bytes: &[u8; PREFIX_BYTES], ours: Versions) -> Result<Code, NoAnswer> {
    if bytes[..4] != MAGIC {
        return Err(NoAnswer::Foreign);
    }
    let theirs = versions_of(bytes);
    match ours.common(theirs) {
        Some(_) => Code::of(bytes[6]).ok_or(NoAnswer::Code(bytes[6])),
        None => Err(NoAnswer::Version(theirs)),
    }
}

fn put_answer_prefix(bytes: &mut [u8], code: Code, versions: Versions) {
    bytes[..4].copy_from_slice(&MAGIC);
    put_versions(versions, bytes);
    bytes[6] = code as u8;
}

impl Challenge {
    /// Its proof is left zero.
    pub(crate) fn encode(&self) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [0; CHALLENGE_BYTES];
        put_answer_prefix(&mut bytes, self.code, self.versions);
        bytes[8..12].copy_from_slice(&self.node.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.nonce.0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; CHALLENGE_BYTES], ours: Versions) -> Result<Self, NoAnswer> {
        Ok(Self {
            code: answer_prefix(&part(bytes, 0), ours)?,
            versions: versions_of(&part(bytes, 0)),
            node: NodeId(u32::from_le_bytes(part(bytes, 8))),
            incarnation: Incarnation(u64::from_le_bytes(part(bytes, 16))),
            nonce: Nonce(part(bytes, 32)),
        })
    }
}

/// What is answered to a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// What who answers speaks.
    pub(crate) versions: Versions,
    pub(crate) code: Code,
    /// With [`Code::Stale`]: the newest process that is known.
    pub(crate) newest: Incarnation,
}

impl Verdict {
    /// Its proof is left zero.
    pub(crate) fn encode(&self) -> [u8; VERDICT_BYTES] {
        let mut bytes = [0; VERDICT_BYTES];
        put_answer_prefix(&mut bytes, self.code, self.versions);
        bytes[8..16].copy_from_slice(&self.newest.0.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; VERDICT_BYTES], ours: Versions) -> Result<Self, NoAnswer> {
        Ok(Self {
            code: answer_prefix(&part(bytes, 0), ours)?,
            versions: versions_of(&part(bytes, 0)),
            newest: Incarnation(u64::from_le_bytes(part(bytes, 8))),
        })
    }
}

/// `N` bytes from `at`: callers stay within what they have.
pub(crate) fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OURS: Versions = Versions::OURS;

    fn hello() -> impl Strategy<Value = Hello> {
        let ids = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>());
        let bytes = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<[u8; 32]>());
        (1_u8..5, ids, bytes).prop_map(|(purpose, (from, to, incarnation, volume), bytes)| {
            let purpose = Purpose::of(purpose).expect("known");
            let volume = if purpose == Purpose::Data { volume } else { 0 };
            Hello {
                versions: OURS,
                purpose,
                from: NodeId(from),
                to: NodeId(to),
                incarnation: Incarnation(incarnation),
                volume: VolumeId(volume),
                cluster: bytes.0,
                name: NameHash(bytes.1),
                nonce: Nonce(bytes.2),
            }
        })
    }

    fn noise() -> impl Strategy<Value = [u8; HELLO_BYTES]> {
        let halves = (any::<[u8; 32]>(), any::<[u8; 32]>(), any::<[u8; 32]>());
        // Often right up to the purpose, so that what comes behind is looked at, too.
        (halves, 0_usize..9, 0_u8..6).prop_map(|((a, b, c), right, purpose)| {
            let mut bytes = [0; HELLO_BYTES];
            for (at, part) in [a, b, c].into_iter().enumerate() {
                bytes[at * 32..][..32].copy_from_slice(&part);
            }
            let mut prefix = [0; PREFIX_BYTES];
            put_answer_prefix(&mut prefix, Code::GoOn, OURS);
            prefix[6] = purpose;
            bytes[..right.min(PREFIX_BYTES)].copy_from_slice(&prefix[..right.min(PREFIX_BYTES)]);
            bytes
        })
    }

    proptest! {
        #[test]
        fn a_hello_comes_back_as_it_was_said(hello in hello()) {
            prop_assert_eq!(Hello::decode(&hello.encode(), OURS), Ok(hello));
        }

        #[test]
        fn of_any_bytes_a_hello_is_one_that_says_them_or_none(bytes in noise()) {
            if let Ok(hello) = Hello::decode(&bytes, OURS) {
                prop_assert_eq!(hello.encode(), bytes);
            }
            // Never a panic; the codes of answers are a closed list.
            let _ = Challenge::decode(&bytes, OURS);
            let _ = Verdict::decode(&part(&bytes, 0), OURS);
        }

        #[test]
        fn answers_come_back(
            code in 0_u8..12, node in any::<u32>(), number in any::<u64>(), nonce in any::<[u8; 32]>(),
        ) {
            let code = Code::of(code).expect("known");
            let incarnation = Incarnation(number);
            let challenge = Challenge { versions: OURS, code, node: NodeId(node), incarnation, nonce: Nonce(nonce) };
            prop_assert_eq!(Challenge::decode(&challenge.encode(), OURS), Ok(challenge));
            let verdict = Verdict { versions: OURS, code, newest: incarnation };
            prop_assert_eq!(Verdict::decode(&verdict.encode(), OURS), Ok(verdict));
        }
    }

    #[test]
    fn each_purpose_and_code_is_its_number() {
        for byte in 0..=255 {
            assert_eq!(Purpose::of(byte).map_or(byte, |p| p as u8), byte);
            assert_eq!(Code::of(byte).map_or(byte, |code| code as u8), byte);
        }
    }

    fn versions(oldest: u16, newest: u16) -> Versions {
        Versions::new(oldest, newest).expect("a range")
    }

    #[test]
    fn the_newest_version_that_both_speak_is_taken() {
        let ours = versions(3, 5);
        for (theirs, common) in [
            (versions(4, 9), Some(5)),
            (versions(1, 4), Some(4)),
            (versions(1, 3), Some(3)),
            (versions(4, 4), Some(4)),
            (versions(1, 2), None),
            (versions(6, 7), None),
        ] {
            assert_eq!(ours.common(theirs), common, "{theirs}");
            assert_eq!(theirs.common(ours), common, "{theirs}");
            let mut bytes = [0; PREFIX_BYTES];
            put_versions(theirs, &mut bytes);
            assert_eq!(versions_of(&bytes), theirs);
        }
        assert_eq!(ours.to_string(), "versions 3 to 5");
        assert_eq!(versions(3, 3).to_string(), "version 3");
    }

    /// What speaks newer ones, too, is let in; what speaks none of ours says in the refusal which it does.
    #[test]
    fn other_versions_and_protocols_are_told_apart() {
        let mut bytes = [0; HELLO_BYTES];
        assert_eq!(Hello::decode(&bytes, OURS), Err(NoHello::Foreign));
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = 1;
        let old = NoHello::Version(versions(1, 1));
        assert_eq!(Hello::decode(&bytes, OURS), Err(old));
        let newest = OURS.newest() as u8;
        (bytes[4], bytes[7]) = (newest + 4, 3);
        let newer = versions(OURS.newest() + 1, OURS.newest() + 4);
        assert_eq!(Hello::decode(&bytes, OURS), Err(NoHello::Version(newer)));
        let answer = answer_prefix(&part(&bytes, 0), OURS);
        assert_eq!(answer, Err(NoAnswer::Version(newer)));
        bytes[6] = 1;
        bytes[7] = 4;
        let hello = Hello::decode(&bytes, OURS).expect("it speaks ours, too");
        assert_eq!(hello.versions.common(OURS), Some(OURS.newest()));
        (bytes[4], bytes[7]) = (newest, 0);
        assert!(Hello::decode(&bytes, OURS).is_ok());
        bytes[7] = newest + 1;
        assert_eq!(Hello::decode(&bytes, OURS), Err(NoHello::Malformed));
        (bytes[6], bytes[7]) = (200, 0);
        assert_eq!(Hello::decode(&bytes, OURS), Err(NoHello::Malformed));
        assert_eq!(
            answer_prefix(&part(&bytes, 0), OURS),
            Err(NoAnswer::Code(200))
        );
    }
}
