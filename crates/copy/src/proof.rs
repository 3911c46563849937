//! The proof of a run of leaves, as far as it has come: leaf after leaf, a few in a turn.

use ashlar_replica::{Extent, Token};
use bytes::BytesMut;

use crate::LEAF_GRANULES;
use crate::copy::GRANULE;
use crate::digest::Digest;

/// What is known of a leaf.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing is written there.
    Unwritten,
    /// The plain checksums of its granules, as far as the map tells them.
    Sums(Vec<Option<u32>>),
    /// The map's part is on the drives.
    Elsewhere,
    /// What it holds.
    Bytes(BytesMut),
}

/// A run of leaves that is being proven.
#[derive(Debug)]
pub(crate) struct Proof {
    token: Token,
    /// The leaf it has come to.
    leaf: Extent,
    /// The leaves behind it.
    rest: Option<Extent>,
    /// Of the leaves before it.
    digest: Digest,
    is_over: bool,
    /// The leaf was loaded for that already.
    is_loaded: bool,
}

impl Proof {
    pub(crate) const fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn new(token: Token, run: Extent) -> Self {
        let (leaf, rest) = run.split(LEAF_GRANULES);
        Self {
            token,
            leaf,
            rest,
            digest: Digest::new(),
            is_over: false,
            is_loaded: false,
        }
    }

    /// The leaf it has come to.
    pub(crate) const fn leaf(&self) -> Extent {
        self.leaf
    }

    /// Whether the leaf is to be loaded: once.
    pub(crate) const fn loads(&mut self) -> bool {
        !std::mem::replace(&mut self.is_loaded, true)
    }

    /// Takes the leaf, if what is known of it says enough; whether it does.
    pub(crate) fn take(&mut self, found: &Found) -> bool {
        let Some(digest) = self.digest_of(found) else {
            return false;
        };
        self.digest.digest(digest);
        match self.rest.take() {
            Some(rest) => {
                (self.leaf, self.rest) = rest.split(LEAF_GRANULES);
                self.is_loaded = false;
            }
            None => self.is_over = true,
        }
        true
    }

    fn digest_of(&self, found: &Found) -> Option<u128> {
        match found {
            Found::Unwritten if self.leaf.count() == LEAF_GRANULES => Some(UNWRITTEN),
            Found::Unwritten => {
                let sums = vec![ZEROES; self.leaf.count() as usize];
                Some(digest_of(&sums))
            }
            Found::Sums(sums) => {
                let known: Option<Vec<u32>> = sums.iter().copied().collect();
                known.map(|known| digest_of(&known))
            }
            Found::Elsewhere => None,
            Found::Bytes(bytes) => {
                let sums: Vec<u32> = bytes.chunks(GRANULE).map(crc32c::crc32c).collect();
                Some(digest_of(&sums))
            }
        }
    }

    /// The digest, once all leaves are in it.
    pub(crate) fn digest(&self) -> Option<u128> {
        self.is_over.then(|| self.digest.end())
    }
}

/// The plain checksum of a granule of zeroes.
const ZEROES: u32 = 0x98f9_4189;
/// The digest of a leaf of zeroes.
const UNWRITTEN: u128 = digest_of(&[ZEROES; LEAF_GRANULES as usize]);

/// The digest of a leaf whose granules have these plain checksums.
const fn digest_of(sums: &[u32]) -> u128 {
    let mut digest = Digest::new();
    let mut at = 0;
    while at < sums.len() {
        digest.word(sums[at] as u64);
        at += 1;
    }
    digest.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: u32 = 3 * LEAF_GRANULES + 7;

    /// The digest of a run of zeroes, if this is known of each leaf of it.
    fn digest(found: impl Fn(Extent) -> Found) -> u128 {
        let run = Extent::new(LEAF_GRANULES.into(), RUN).expect("an extent");
        let mut proof = Proof::new(Token(1), run);
        while proof.digest().is_none() {
            let found = found(proof.leaf());
            assert!(proof.take(&found));
        }
        proof.digest().expect("the end")
    }

    #[test]
    fn a_run_has_one_digest_whatever_is_known_of_it() {
        let zeroes = |leaf: Extent| BytesMut::zeroed(leaf.count() as usize * GRANULE);
        let unwritten = digest(|_| Found::Unwritten);
        let sums = |leaf: Extent| vec![Some(crc32c::crc32c(&[0; GRANULE])); leaf.count() as usize];
        assert_eq!(digest(|leaf| Found::Sums(sums(leaf))), unwritten);
        assert_eq!(digest(|leaf| Found::Bytes(zeroes(leaf))), unwritten);
        let other = |at: u64| {
            digest(|leaf| {
                let mut bytes = zeroes(leaf);
                if leaf.granules().contains(&at) {
                    bytes[(at - leaf.first()) as usize * GRANULE] = 1;
                }
                Found::Bytes(bytes)
            })
        };
        let first = u64::from(LEAF_GRANULES);
        let digests = [first, 2 * first, first + u64::from(RUN) - 1].map(other);
        assert!(!digests.contains(&unwritten), "every granule counts");
        assert!(digests[0] != digests[1], "and where it is");
    }

    #[test]
    fn what_is_known_of_a_leaf_may_not_be_enough() {
        let run = Extent::new(0, 2 * LEAF_GRANULES).expect("an extent");
        let mut proof = Proof::new(Token(1), run);
        assert!(!proof.take(&Found::Elsewhere));
        assert!(proof.loads() && !proof.loads(), "loaded once");
        assert!(!proof.take(&Found::Sums(vec![None; 512])));
        assert!(proof.take(&Found::Unwritten));
        assert!(proof.loads(), "the next leaf");
    }
}
