use super::BlockIndex;

/// Rows; of a block's counters the least is believed.
const ROWS: usize = 4;
/// Counters of four bits in a word.
const A_WORD: usize = 16;
/// Counters of a row, for each block of the cache.
const A_BLOCK: usize = 8;
/// Blocks of the cache for which there are counters: those of more share them, and are halved sooner. All counters are
/// there from the start, 256 MiB at most, however little of the cache is used.
const MOST_BLOCKS: usize = 1 << 24;
/// Requests for each block of the cache, after which all counters are halved.
const LIFE: u64 = 32;
/// Or so many names for each block of the cache, which share their counters with too many others then.
const NAMES: u64 = 8;
/// Words that are halved with each request when it is time: all at once would hold hosts up.
const HALVED_AT_ONCE: usize = 8;

/// How often blocks were asked for, roughly and up to 15: a count-min sketch, in 16 bytes a block of the cache up to
/// [`MOST_BLOCKS`].
/// Counts are of blocks that have gone, too, whose names are forgotten.
#[derive(Debug, Default)]
pub(super) struct Counts {
    words: Vec<u64>,
    /// Counters of a row.
    row: usize,
    life: u64,
    counted: u64,
    /// Counted for the first time, as it seems.
    names: u64,
    most_names: u64,
    /// Where halving is; at the end it is over.
    halved: usize,
}

impl Counts {
    pub(super) fn new(blocks: usize) -> Self {
        let blocks = blocks.clamp(A_WORD, MOST_BLOCKS);
        let row = (blocks * A_BLOCK).next_multiple_of(A_WORD);
        let words = ROWS * row / A_WORD;
        Self {
            words: vec![0; words],
            row,
            life: LIFE * blocks as u64,
            counted: 0,
            names: 0,
            most_names: NAMES * blocks as u64,
            halved: words,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// A block was asked for.
    pub(super) fn count(&mut self, block: BlockIndex) {
        let least = self.of(block);
        if least < 15 {
            for (word, shift) in self.places(block) {
                if let Some(word) = self.words.get_mut(word)
                    && ((*word >> shift) & 15) as u8 == least
                {
                    *word += 1 << shift;
                }
            }
        }
        self.counted += 1;
        self.names += u64::from(least == 0);
        if self.counted >= self.life || self.names >= self.most_names {
            (self.counted, self.names, self.halved) = (0, 0, 0);
        }
        let to = (self.halved + HALVED_AT_ONCE).min(self.words.len());
        for word in &mut self.words[self.halved..to] {
            *word = (*word >> 1) & 0x7777_7777_7777_7777;
        }
        self.halved = to;
    }

    /// How often it was asked for, or a little more.
    pub(super) fn of(&self, block: BlockIndex) -> u8 {
        let counter = |(word, shift): (usize, u32)| {
            let word = self.words.get(word).copied().unwrap_or_default();
            ((word >> shift) & 15) as u8
        };
        self.places(block).map(counter).min().unwrap_or_default()
    }

    /// A block's counters: the word, and the bit at which it begins.
    fn places(&self, block: BlockIndex) -> impl Iterator<Item = (usize, u32)> + use<> {
        const ODD: [u64; ROWS] = [
            0xc3a5_c85c_97cb_3127,
            0xb492_b66f_be98_f273,
            0x9ae1_6a3b_2f90_404f,
            0xcbf2_9ce4_8422_2325,
        ];
        let row = self.row;
        ODD.into_iter().enumerate().map(move |(at, odd)| {
            let mixed = (u64::from(block.0) + 1).wrapping_mul(odd);
            let in_row = (((mixed ^ (mixed >> 32)) & 0xffff_ffff) * row as u64) >> 32;
            let counter = at * row + in_row as usize;
            (counter / A_WORD, (counter % A_WORD * 4) as u32)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_huge_cache_take_little_and_stay_in_their_rows() {
        // 8 TiB.
        let mut counts = Counts::new(1 << 30);
        assert!(counts.bytes() <= 256 << 20);
        for block in (0..1000).map(|at| BlockIndex(at * 4_000_037)) {
            counts.count(block);
            assert_eq!(counts.of(block), 1);
            let mut places = counts.places(block).enumerate();
            let row = counts.row / A_WORD;
            assert!(places.all(|(at, (word, _))| (at * row..(at + 1) * row).contains(&word)));
        }
    }

    #[test]
    fn counts_are_told_apart_and_fade() {
        let mut counts = Counts::new(1000);
        for _ in 0..5 {
            for block in 0..100 {
                counts.count(BlockIndex(block));
            }
        }
        counts.count(BlockIndex(5000));
        let five = (0..100).filter(|&block| counts.of(BlockIndex(block)) == 5);
        assert!(five.count() >= 98);
        assert_eq!(counts.of(BlockIndex(5000)), 1);
        assert_eq!(counts.of(BlockIndex(6000)), 0);
        for _ in 0..40_000 {
            counts.count(BlockIndex(7));
        }
        assert_eq!(counts.of(BlockIndex(7)), 15);
        assert_eq!(counts.of(BlockIndex(8)), 2);
    }
}
