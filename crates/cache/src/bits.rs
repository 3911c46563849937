/// Words of a page's bits.
pub(crate) const WORDS: usize = 128;

static NONE: [u64; WORDS] = [0; WORDS];

/// A bit for each granule of a page. Without any that is set it takes no memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits(Option<Box<[u64; WORDS]>>);

impl PartialEq for Bits {
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}

impl Eq for Bits {}

impl Bits {
    pub(crate) fn from_words(word: impl Fn(usize) -> u64) -> Self {
        let mut bits = Self::default();
        for at in 0..WORDS {
            let word = word(at);
            if word != 0 {
                bits.words_mut()[at] = word;
            }
        }
        bits
    }

    pub(crate) fn words(&self) -> &[u64] {
        self.0.as_deref().unwrap_or(&NONE)
    }

    fn words_mut(&mut self) -> &mut [u64; WORDS] {
        self.0.get_or_insert_with(|| Box::new(NONE))
    }

    /// Bytes of memory beside itself.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_deref().map_or(0, size_of_val)
    }

    /// Lets go of memory that says nothing.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            self.0 = None;
        }
    }

    pub(crate) fn get(&self, at: usize) -> bool {
        self.words()[at / 64] >> (at % 64) & 1 == 1
    }

    pub(crate) fn set(&mut self, at: usize, to: bool) {
        let bit = 1 << (at % 64);
        match (to, &mut self.0) {
            (true, _) => self.words_mut()[at / 64] |= bit,
            (false, Some(words)) => words[at / 64] &= !bit,
            (false, None) => {}
        }
    }

    pub(crate) fn count(&self) -> u64 {
        let words = self.0.iter().flat_map(|words| words.iter());
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let mut words = self.0.iter().flat_map(|words| words.iter());
        words.all(|&word| word == 0)
    }

    /// What both have.
    pub(crate) fn common(&self, other: &Self) -> Self {
        let (one, other) = (self.words(), other.words());
        Self::from_words(|at| one[at] & other[at])
    }

    /// Takes away what the other has.
    pub(crate) fn remove(&mut self, other: &Self) {
        if let Some(words) = &mut self.0 {
            let words = words.iter_mut().zip(other.words());
            words.for_each(|(word, other)| *word &= !other);
        }
    }

    /// Takes in what the other has.
    pub(crate) fn add(&mut self, other: &Self) {
        if let Some(other) = other.0.as_deref() {
            let words = self.words_mut().iter_mut().zip(other);
            words.for_each(|(word, other)| *word |= other);
        }
    }

    /// The first bit that is set from `from` on.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let words = self.0.as_deref()?;
        let mut at = from;
        while at < WORDS * 64 {
            let word = words[at / 64] >> (at % 64);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_which_none_is_set_take_no_memory() {
        let mut bits = Bits::default();
        bits.set(77, false);
        assert!(bits.bytes() == 0 && !bits.get(77) && bits.next(0).is_none());
        bits.set(77, true);
        assert_eq!(
            (bits.count(), bits.next(0), bits.bytes()),
            (1, Some(77), 1024)
        );
        bits.remove(&bits.clone());
        assert_eq!(bits, Bits::default());
        bits.shrink();
        assert_eq!(bits.bytes(), 0);
        bits.add(&Bits::from_words(|at| u64::from(at == 1) << 13));
        assert!(bits.get(77) && bits.bytes() == 1024);
    }
}
