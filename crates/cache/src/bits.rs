/// Words of a page's bits.
pub(crate) const WORDS: usize = 128;

/// A bit for each granule of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bits(Box<[u64; WORDS]>);

impl Default for Bits {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

impl Bits {
    pub(crate) fn from_words(word: impl Fn(usize) -> u64) -> Self {
        let mut bits = Self::default();
        for (at, place) in bits.0.iter_mut().enumerate() {
            *place = word(at);
        }
        bits
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.0[..]
    }

    pub(crate) fn get(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    pub(crate) fn set(&mut self, at: usize, to: bool) {
        let bit = 1 << (at % 64);
        match to {
            true => self.0[at / 64] |= bit,
            false => self.0[at / 64] &= !bit,
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// What both have.
    pub(crate) fn common(&self, other: &Self) -> Self {
        Self::from_words(|at| self.0[at] & other.0[at])
    }

    /// Takes away what the other has.
    pub(crate) fn remove(&mut self, other: &Self) {
        let words = self.0.iter_mut().zip(&other.0[..]);
        words.for_each(|(word, other)| *word &= !other);
    }

    /// Takes in what the other has.
    pub(crate) fn add(&mut self, other: &Self) {
        let words = self.0.iter_mut().zip(&other.0[..]);
        words.for_each(|(word, other)| *word |= other);
    }

    /// The first bit that is set from `from` on.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let mut at = from;
        while at < WORDS * 64 {
            let word = self.0[at / 64] >> (at % 64);
            if word != 0 {
                return Some(at + word.trailing_zeros() as usize);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let found = self.next(at)?;
            at = found + 1;
            Some(found)
        })
    }
}
