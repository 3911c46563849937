//! The digest of a leaf: of the plain checksums of its granules.

/// A digest under way: 128 bits over words, each mixed with those before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest {
    low: u64,
    high: u64,
}

const SEEDS: (u64, u64) = (0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344);
const FACTORS: (u64, u64) = (0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f);

/// The product's halves, folded.
const fn fold(left: u64, right: u64) -> u64 {
    let product = left as u128 * right as u128;
    product as u64 ^ (product >> 64) as u64
}

impl Digest {
    pub(crate) const fn new() -> Self {
        Self {
            low: SEEDS.0,
            high: SEEDS.1,
        }
    }

    pub(crate) const fn word(&mut self, word: u64) {
        self.low = fold(self.low ^ word, FACTORS.0).rotate_left(29) ^ word;
        self.high = fold(self.high ^ word.rotate_left(32), FACTORS.1).wrapping_add(self.low);
    }

    /// A digest of others.
    pub(crate) const fn digest(&mut self, digest: u128) {
        self.word(digest as u64);
        self.word((digest >> 64) as u64);
    }

    pub(crate) const fn end(mut self) -> u128 {
        self.word(self.high);
        self.word(self.low);
        (self.high as u128) << 64 | self.low as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(words: &[u64]) -> u128 {
        let mut digest = Digest::new();
        words.iter().for_each(|&word| digest.word(word));
        digest.end()
    }

    #[test]
    fn every_bit_of_every_word_counts() {
        let plain = vec![0u64; 512];
        let before = digest(&plain);
        for bit in (0..512 * 64).step_by(37) {
            let mut other = plain.clone();
            other[bit / 64] ^= 1 << (bit % 64);
            let after = digest(&other);
            let differs = (before ^ after).count_ones();
            assert!(differs > 30, "bit {bit}: {differs} bits of the digest");
        }
        let (mut one, mut two) = (plain.clone(), plain);
        (one[0], two[1]) = (1, 1);
        assert_ne!(digest(&one), digest(&two), "the order counts");
    }
}
