//! The handshake without I/O, from both sides.
//!
//! ```text
//! who calls                               who is called
//!   hello, with a nonce            ──▶
//!                                  ◀──    challenge: a nonce, and a proof of the key over both
//!   a proof of the key over both   ──▶
//!                                  ◀──    verdict, proven as well
//! ```
//!
//! Each proof has a word of its own and is over the whole hello and challenge: one that is repeated, sent back, or taken
//! from another connection is of other nonces, and does not fit.

use ashlar_replica::Incarnation;
use subtle::ConstantTimeEq;

use super::refusal::{Refusal, Refuses};
use super::wire::{
    CHALLENGE_BYTES, CHALLENGE_MAC, Challenge, Code, HELLO_BYTES, Hello, VERDICT_BYTES,
    VERDICT_MAC, Verdict, part,
};
use crate::key::{Key, MAC_BYTES, mac};
use crate::versions::Versions;

const CALLED: &[u8] = b"ashlar peer 1: called";
const CALLER: &[u8] = b"ashlar peer 1: caller";
const VERDICT: &[u8] = b"ashlar peer 1: verdict";
const SESSION: &[u8] = b"ashlar peer 1: session";

/// What both sides have said.
#[derive(Clone)]
struct Said {
    hello: [u8; HELLO_BYTES],
    challenge: [u8; CHALLENGE_MAC],
}

impl Said {
    fn mac(&self, key: &Key, word: &[u8], more: &[u8]) -> [u8; MAC_BYTES] {
        key.mac(&[word, &self.hello, &self.challenge, more])
    }

    fn session(&self, key: &Key) -> Session {
        Session(self.mac(key, SESSION, &[]))
    }
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// A key that only the two ends of one connection have.
pub(crate) struct Session([u8; MAC_BYTES]);

/// Which way a text of a session goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToCalled = 1,
    ToCaller = 2,
}

impl Session {
    /// Proves that a text is of this session, and goes this way.
    pub(crate) fn seal(&self, way: Way, text: &[u8]) -> [u8; MAC_BYTES] {
        mac(&self.0, &[&[way as u8], text])
    }

    pub(crate) fn is_seal(&self, way: Way, text: &[u8], seal: &[u8; MAC_BYTES]) -> bool {
        is_same(&self.seal(way, text), seal)
    }
}

/// Who calls, before it is answered.
pub(crate) struct Caller<'a> {
    key: &'a Key,
    hello: Hello,
    bytes: [u8; HELLO_BYTES],
}

/// Who calls, after it was challenged.
pub(crate) struct Challenged<'a> {
    key: &'a Key,
    said: Said,
    incarnation: Incarnation,
    ours: Versions,
    version: u16,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(key: &'a Key, hello: Hello) -> Self {
        let bytes = hello.encode();
        Self { key, hello, bytes }
    }

    pub(crate) fn hello(&self) -> &[u8; HELLO_BYTES] {
        &self.bytes
    }

    /// Whether the right node answers, with the right key; then what proves the caller.
    pub(crate) fn challenged(
        self,
        bytes: &[u8; CHALLENGE_BYTES],
    ) -> Result<(Challenged<'a>, [u8; MAC_BYTES]), Refusal> {
        let ours = self.hello.versions;
        let challenge = Challenge::decode(bytes, ours)?;
        let theirs = challenge.versions;
        let version = ours.common(theirs).ok_or(Refusal::Version(theirs))?;
        if challenge.code != Code::GoOn {
            let by = Refuses {
                node: challenge.node,
                newest: challenge.incarnation,
                versions: theirs,
            };
            return Err(Refusal::of(challenge.code, by));
        }
        let said = Said {
            hello: self.bytes,
            challenge: part(bytes, 0),
        };
        if !is_same(&said.mac(self.key, CALLED, &[]), &bytes[CHALLENGE_MAC..]) {
            return Err(Refusal::WrongKey);
        }
        if challenge.node != self.hello.to {
            return Err(Refusal::WrongNode(challenge.node));
        }
        let proof = said.mac(self.key, CALLER, &[]);
        let challenged = Challenged {
            key: self.key,
            said,
            incarnation: challenge.incarnation,
            ours,
            version,
        };
        Ok((challenged, proof))
    }
}

impl Challenged<'_> {
    /// The process that was called.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The version that both speak.
    pub(crate) fn version(&self) -> u16 {
        self.version
    }

    pub(crate) fn judged(self, bytes: &[u8; VERDICT_BYTES]) -> Result<Session, Refusal> {
        let verdict = Verdict::decode(bytes, self.ours)?;
        let proof = self.said.mac(self.key, VERDICT, &bytes[..VERDICT_MAC]);
        if !is_same(&proof, &bytes[VERDICT_MAC..]) {
            return Err(Refusal::WrongKey);
        }
        match verdict.code {
            Code::GoOn => Ok(self.said.session(self.key)),
            code => {
                let by = Refuses {
                    node: ashlar_replica::NodeId(0),
                    newest: verdict.newest,
                    versions: verdict.versions,
                };
                Err(Refusal::of(code, by))
            }
        }
    }
}

/// Who is called, after it has challenged.
pub(crate) struct Called<'a> {
    key: &'a Key,
    said: Said,
}

impl<'a> Called<'a> {
    /// Answers a hello; the challenge goes back as it is.
    pub(crate) fn new(
        key: &'a Key,
        hello: &[u8; HELLO_BYTES],
        challenge: &Challenge,
    ) -> (Self, [u8; CHALLENGE_BYTES]) {
        let mut bytes = challenge.encode();
        let said = Said {
            hello: *hello,
            challenge: part(&bytes, 0),
        };
        bytes[CHALLENGE_MAC..].copy_from_slice(&said.mac(key, CALLED, &[]));
        (Self { key, said }, bytes)
    }

    /// Whether the caller knows the key.
    pub(crate) fn is_proven(&self, proof: &[u8; MAC_BYTES]) -> bool {
        is_same(&self.said.mac(self.key, CALLER, &[]), proof)
    }

    /// What the caller is told, and the session if it is let in.
    pub(crate) fn verdict(self, verdict: &Verdict) -> ([u8; VERDICT_BYTES], Session) {
        let mut bytes = verdict.encode();
        let proof = self.said.mac(self.key, VERDICT, &bytes[..VERDICT_MAC]);
        bytes[VERDICT_MAC..].copy_from_slice(&proof);
        (bytes, self.said.session(self.key))
    }
}

#[cfg(test)]
mod tests {
    use ashlar_replica::{NodeId, VolumeId};
    use proptest::prelude::*;

    use super::*;
    use crate::peer::wire::{NameHash, Nonce, Purpose};
    use crate::versions::Versions;

    fn key(byte: u8) -> Key {
        Key::new(&[byte; 32]).expect("a key")
    }

    fn hello(nonce: u8) -> Hello {
        Hello {
            versions: Versions::OURS,
            purpose: Purpose::Data,
            from: NodeId(1),
            to: NodeId(2),
            incarnation: Incarnation(7),
            volume: VolumeId(9),
            cluster: [5; 16],
            name: NameHash::of("a"),
            nonce: Nonce([nonce; 32]),
        }
    }

    fn challenge(nonce: u8) -> Challenge {
        Challenge {
            versions: Versions::OURS,
            code: Code::GoOn,
            node: NodeId(2),
            incarnation: Incarnation(3),
            nonce: Nonce([nonce; 32]),
        }
    }

    const LET_IN: Verdict = Verdict {
        versions: Versions::OURS,
        code: Code::GoOn,
        newest: Incarnation(0),
    };

    #[test]
    fn who_knows_the_key_is_let_in_and_both_have_the_session() {
        let key = key(1);
        let caller = Caller::new(&key, hello(1));
        let (called, bytes) = Called::new(&key, caller.hello(), &challenge(2));
        let (challenged, proof) = caller.challenged(&bytes).expect("the right key");
        assert_eq!(challenged.incarnation(), Incarnation(3));
        assert!(called.is_proven(&proof));
        let (verdict, theirs) = called.verdict(&LET_IN);
        let ours = challenged.judged(&verdict).expect("let in");
        let seal = ours.seal(Way::ToCalled, b"text");
        assert!(theirs.is_seal(Way::ToCalled, b"text", &seal));
        assert!(!theirs.is_seal(Way::ToCaller, b"text", &seal), "sent back");
        assert!(!theirs.is_seal(Way::ToCalled, b"texts", &seal));
    }

    #[test]
    fn another_key_is_noticed_by_both() {
        let (one, other) = (key(1), key(2));
        let caller = Caller::new(&one, hello(1));
        let (called, bytes) = Called::new(&other, caller.hello(), &challenge(2));
        let refusal = caller.challenged(&bytes).err();
        assert_eq!(refusal, Some(Refusal::WrongKey));
        let (_, honest) = Called::new(&one, &hello(1).encode(), &challenge(2));
        let (_, proof) = Caller::new(&one, hello(1))
            .challenged(&honest)
            .expect("its own");
        assert!(!called.is_proven(&proof));
    }

    #[test]
    fn a_proof_that_is_repeated_or_sent_back_fits_nowhere() {
        let key = key(1);
        let (_, bytes) = Called::new(&key, &hello(1).encode(), &challenge(2));
        let (_, proof) = Caller::new(&key, hello(1))
            .challenged(&bytes)
            .expect("right");
        // The same hello again, and a fresh challenge.
        let (again, fresh) = Called::new(&key, &hello(1).encode(), &challenge(3));
        assert!(!again.is_proven(&proof), "repeated");
        // What is called proves itself with what it was given by another connection.
        assert!(!again.is_proven(&part(&fresh, CHALLENGE_MAC)), "sent back");
        let refusal = Caller::new(&key, hello(4)).challenged(&bytes).err();
        assert_eq!(refusal, Some(Refusal::WrongKey), "an old challenge");
    }

    #[test]
    fn a_verdict_of_another_connection_is_none() {
        let key = key(1);
        let (_, bytes) = Called::new(&key, &hello(1).encode(), &challenge(2));
        let (challenged, _) = Caller::new(&key, hello(1))
            .challenged(&bytes)
            .expect("right");
        let (other, _) = Called::new(&key, &hello(1).encode(), &challenge(3));
        let (verdict, _) = other.verdict(&LET_IN);
        assert_eq!(challenged.judged(&verdict).err(), Some(Refusal::WrongKey));
    }

    proptest! {
        /// Each bit of what is said counts: with one changed on its way, one of the two notices.
        #[test]
        fn a_bit_that_changes_on_its_way_is_noticed(which in 0_usize..4, bit in 0_usize..768) {
            let key = key(1);
            let caller = Caller::new(&key, hello(1));
            let mut heard = *caller.hello();
            let flip = |bytes: &mut [u8]| {
                let bit = bit % (bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            };
            if which == 0 {
                flip(&mut heard);
            }
            let (called, mut bytes) = Called::new(&key, &heard, &challenge(2));
            if which == 1 {
                flip(&mut bytes);
            }
            let Ok((challenged, mut proof)) = caller.challenged(&bytes) else {
                prop_assert!(which < 2);
                return Ok(());
            };
            prop_assert!(which > 1, "hello or challenge");
            if which == 2 {
                flip(&mut proof);
            }
            prop_assert_eq!(called.is_proven(&proof), which != 2);
            let (mut verdict, _) = called.verdict(&LET_IN);
            if which == 3 {
                flip(&mut verdict);
            }
            prop_assert_eq!(challenged.judged(&verdict).is_err(), which == 3);
        }
    }
}
