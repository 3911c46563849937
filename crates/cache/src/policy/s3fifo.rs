use std::collections::HashMap;
use std::ops::Range;

use super::BlockIndex;
use super::counts::Counts;
use super::queue::{Queue, Slab};
use super::trials::Trials;

/// How a block comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// As any block.
    Ordinary,
    /// It is of a stream. Written, it is absorbed, and goes as soon as it may; read, it comes in the second time.
    Stream,
}

/// Why a block is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To be read: what the cache is for.
    Read,
    /// The same, by a stream.
    ReadByStream,
    /// To be written, and to stay.
    Written,
    /// To be written to the backing device alone: what was here of it goes.
    WrittenAround,
}

impl Asked {
    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::ReadByStream)
    }
}

/// What comes to the main queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Prefers {
    /// What was asked for late in the small queue, and what comes back while its name is there.
    Recent,
    /// The same, and most of the cache is the small queue.
    Latest,
    /// What was asked for more often than that which would leave the main queue for it.
    #[default]
    Frequent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Small,
    /// What a stream has written while the small queue is long, on its way out.
    Passing,
    Main,
    Ghost,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    node: u32,
    at: Where,
    /// How often it was asked for since it came to this queue, less its rounds there; up to [`MOST_ASKED`].
    asked: u8,
    /// When it came to this queue, by [`S3Fifo::time`]. It may be taken for young again after very long.
    came: u16,
}

/// Rounds that a block of the main queue can have before it.
const MOST_ASKED: u8 = 3;
/// How long a block of the small queue is young, as long as [`Prefers::Frequent`] is followed.
const YOUNG: u16 = 64;
/// Requests for each block of the cache, after which those that are asked for among what came back are known.
const LEARNED: u64 = 4;
/// Blocks by which the small queue is larger than a tenth, as long as that is less than a quarter of all: what is
/// asked for twice in a row is so within a number of blocks, not within a share of the cache.
const SMALL_MORE: usize = 100;
/// What was asked for less is not taken for frequent.
const FREQUENT: u8 = 2;

impl Prefers {
    /// Blocks that the small queue of so many has when the cache is full, `more` than its share.
    fn small_share(self, capacity: usize, more: usize) -> usize {
        let part = match self {
            Self::Recent => capacity / 10,
            Self::Latest => capacity / 10 * 8,
            Self::Frequent => capacity / 20,
        };
        (part + (capacity * 15 / 100).min(more)).max(1)
    }
}

/// The queues. Only names and bits: what the blocks hold is their owner's.
#[derive(Debug)]
pub struct S3Fifo {
    entries: HashMap<u32, Entry>,
    slab: Slab,
    small: Queue,
    passing: Queue,
    main: Queue,
    ghost: Queue,
    capacity: usize,
    /// [`SMALL_MORE`], or its part of a sample.
    small_more: usize,
    /// Blocks that the small queue has when the cache is full.
    pub(super) small_share: usize,
    /// Requests so far, and those of a unit of time.
    clock: u64,
    unit: u64,
    pub(super) prefers: Prefers,
    counts: Counts,
    /// Of a preference; none in a trial.
    trials: Option<Box<Trials>>,
    /// What it had in a life before has come back to the main queue.
    is_restored: bool,
    /// Blocks that were looked at so far for one that may go.
    steps: u64,
}

impl S3Fifo {
    /// Queues for so many blocks.
    pub fn new(capacity: usize) -> Self {
        let prefers = Prefers::default();
        Self {
            trials: Some(Box::new(Trials::new(capacity, prefers))),
            ..Self::with(capacity, prefers)
        }
    }

    /// The same, with a preference that stays.
    pub(super) fn with(capacity: usize, prefers: Prefers) -> Self {
        Self::sample(capacity, 1, prefers)
    }

    /// The same, for a sample: of so many blocks one.
    pub(super) fn sample(blocks: usize, one_in: usize, prefers: Prefers) -> Self {
        let (capacity, small_more) = (blocks / one_in, SMALL_MORE / one_in);
        let small_share = prefers.small_share(capacity, small_more);
        Self {
            entries: HashMap::new(),
            slab: Slab::default(),
            small: Queue::default(),
            passing: Queue::default(),
            main: Queue::default(),
            ghost: Queue::default(),
            capacity,
            small_more,
            small_share,
            clock: 0,
            unit: (small_share as u64 * 2).div_ceil(u64::from(YOUNG)).max(1),
            prefers,
            counts: Counts::new(capacity),
            trials: None,
            is_restored: false,
            steps: 0,
        }
    }

    /// Blocks that it has.
    pub fn len(&self) -> usize {
        self.small.len() + self.passing.len() + self.main.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks that it may have.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether one more would be one too many.
    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Blocks that were looked at so far for one that may go.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        // A table keeps an eighth free, and a byte beside each place.
        let places = self.entries.capacity() * 8 / 7;
        let trials = self.trials.as_ref().map_or(0, |trials| trials.bytes());
        self.slab.bytes() + places * (size_of::<(u32, Entry)>() + 1) + self.counts.bytes() + trials
    }

    /// Whether a block is here.
    pub fn has(&self, block: BlockIndex) -> bool {
        let entry = self.entries.get(&block.0);
        entry.is_some_and(|entry| entry.at != Where::Ghost)
    }

    /// Which of these blocks have a name here: they may be far more than those that have.
    pub fn known_in(&self, blocks: Range<u32>) -> Vec<BlockIndex> {
        let named = |block: &u32| self.entries.contains_key(block);
        let known: Vec<u32> = match blocks.len() > self.entries.len() {
            true => (self.entries.keys().copied())
                .filter(|block| blocks.contains(block))
                .collect(),
            false => blocks.filter(named).collect(),
        };
        known.into_iter().map(BlockIndex).collect()
    }

    /// A block was asked for; whether it is here. In the small queue that counts only if it has been there for twice
    /// as many requests as that has blocks: a host that asks twice in a row need not ask again.
    pub fn touch(&mut self, block: BlockIndex, how: Asked) -> bool {
        if let Some(trials) = &mut self.trials {
            self.prefers = trials.ask(block, how);
            self.small_share = self.prefers.small_share(self.capacity, self.small_more);
        }
        self.clock += 1;
        let (now, young) = (self.time(), self.small_share as u64 * 2 / self.unit);
        let (here, counts) = match self.entries.get_mut(&block.0) {
            Some(entry) if entry.at == Where::Main => {
                entry.asked = (entry.asked + 1).min(MOST_ASKED);
                (true, true)
            }
            Some(entry) if entry.at != Where::Ghost => {
                let is_old = u64::from(now.wrapping_sub(entry.came)) >= young;
                entry.asked |= u8::from(is_old);
                (true, is_old)
            }
            _ => (false, true),
        };
        if counts {
            self.counts.count(block);
        }
        here
    }

    /// The clock in units of which [`YOUNG`] are twice as many requests as the small queue has blocks at first.
    fn time(&self) -> u16 {
        (self.clock / self.unit) as u16
    }

    /// Whether a block that is not here and was read may come in. What a stream reads may if its name is known: it
    /// was read not long ago. Otherwise only its name comes in.
    pub fn admits(&mut self, block: BlockIndex, how: Admission) -> bool {
        let known = self.entries.contains_key(&block.0);
        if how == Admission::Stream && !known {
            self.remember(block);
        }
        how == Admission::Ordinary || known
    }

    /// A block comes in. Room for it is made by [`victim`](Self::victim), before.
    pub fn insert(&mut self, block: BlockIndex, how: Admission) {
        let known = match self.entries.get(&block.0) {
            Some(entry) if entry.at != Where::Ghost => return,
            Some(&entry) => {
                self.slab.remove(&mut self.ghost, entry.node);
                true
            }
            None => false,
        };
        let at = match how {
            Admission::Stream if self.prefers == Prefers::Latest => Where::Passing,
            Admission::Stream => Where::Small,
            Admission::Ordinary if known && self.goes_up(block, true) => Where::Main,
            Admission::Ordinary => Where::Small,
        };
        self.put(block, at);
    }

    /// Whether a block goes to the main queue that comes back, or whose turn in the small queue is over.
    fn goes_up(&mut self, block: BlockIndex, was_asked_for: bool) -> bool {
        if self.prefers != Prefers::Frequent {
            return was_asked_for;
        }
        let count = self.counts.of(block);
        if self.main.len() + self.small_share < self.capacity {
            return count >= FREQUENT;
        }
        // Among many names that come once, some share all their counters with others.
        if count < FREQUENT + u8::from(!was_asked_for) {
            return false;
        }
        let mut rounds = 0;
        while let Some(oldest) = self.main.oldest()
            && let Some(oldest) = self.slab.block(oldest)
        {
            match self.entries.get(&oldest.0).map_or(0, |entry| entry.asked) {
                asked if asked > 0 && rounds < ROUNDS => {
                    self.again(oldest, Where::Main, asked - 1);
                    (rounds, self.steps) = (rounds + 1, self.steps + 1);
                }
                _ => return count > self.counts.of(oldest),
            }
        }
        true
    }

    /// A block gets another round.
    fn again(&mut self, block: BlockIndex, at: Where, asked: u8) {
        self.take(block);
        self.put(block, at);
        if let Some(entry) = self.entries.get_mut(&block.0) {
            entry.asked = asked;
        }
    }

    /// A block was here in a life before. Which of them are hot is not known: all are in the main queue, and what comes
    /// anew passes through a small queue that is short at first, while hosts ask for those that are.
    pub fn restore(&mut self, block: BlockIndex) {
        if !self.has(block) {
            self.is_restored = true;
            self.put(block, Where::Main);
        }
    }

    /// Blocks that the small queue has now when the cache is full.
    fn small_now(&self) -> usize {
        let learned = LEARNED * self.capacity as u64;
        match self.is_restored && self.clock < learned {
            true => (self.small_share as u64 * self.clock / learned).max(1) as usize,
            false => self.small_share,
        }
    }

    /// Of each queue as many blocks as this, those that have been there longest: what is to go before long, but for
    /// what was asked for since it came, where that says that it stays.
    pub fn next_to_go(&self, most: usize) -> impl Iterator<Item = BlockIndex> {
        let passing = self.slab.oldest_first(&self.passing).take(most);
        let small = self.slab.oldest_first(&self.small).take(most);
        let main = self.slab.oldest_first(&self.main).take(most);
        passing.chain(small).chain(main).filter(|block| {
            let entry = self.entries.get(&block.0);
            let frequent = self.prefers == Prefers::Frequent;
            entry.is_some_and(|entry| entry.asked == 0 || frequent && entry.at != Where::Main)
        })
    }

    /// What is to go next, if `may_go` says so of it; what may not is passed over, and comes into question
    /// again after all others. When too much of the small queue may not, the main queue's turn is now. What goes is
    /// out of the queues, and its name is a ghost if it came from the small one. Where all are to stay, the one that is
    /// oldest after `STEPS` goes.
    pub fn victim(&mut self, mut may_go: impl FnMut(BlockIndex) -> bool) -> Option<BlockIndex> {
        // Each block is looked at as often as it can have been asked for, and once more.
        let (mut refused, from) = (0, self.steps);
        for _ in 0..(usize::from(MOST_ASKED) + 1) * self.len() {
            let hurries = self.steps - from >= STEPS;
            self.steps += 1;
            let at = self.turn(refused < PASSED_OVER / 2);
            let from_small = at != Where::Main;
            let queue = match at {
                Where::Passing => &self.passing,
                Where::Small => &self.small,
                _ => &self.main,
            };
            let node = queue.oldest()?;
            let block = self.slab.block(node)?;
            let asked = self.entries.get(&block.0).map_or(0, |entry| entry.asked);
            if refused >= PASSED_OVER {
                return None;
            }
            let goes_up = from_small && !hurries && self.goes_up(block, asked > 0);
            let may_leave = !goes_up && (from_small || hurries || asked == 0);
            if may_leave && may_go(block) {
                self.take(block);
                if from_small {
                    self.remember(block);
                }
                return Some(block);
            }
            // Asked for: up, or round again. Not to go yet: round again, where it is.
            refused += usize::from(may_leave);
            let (at, left) = match (from_small, goes_up) {
                (true, false) => (at, asked),
                (true, true) => (Where::Main, 0),
                (false, _) => (Where::Main, asked.saturating_sub(1)),
            };
            self.again(block, at, left);
        }
        None
    }

    /// The queue from which one is to go, which is not empty if any is not. What streams have written has no more than
    /// the shortest of small queues, whatever is preferred.
    fn turn(&self, before_main: bool) -> Where {
        let (passing, small) = (self.passing.len(), self.small.len());
        let most = self.small_now();
        let passes = match self.prefers {
            Prefers::Latest => {
                most.min(Prefers::Frequent.small_share(self.capacity, self.small_more))
            }
            _ => 1,
        };
        let pass = passing >= passes;
        let due = before_main && (pass || passing + small >= most);
        match due || self.main.len() == 0 {
            true if small == 0 || pass => Where::Passing,
            true => Where::Small,
            false => Where::Main,
        }
    }

    /// A block is gone, whatever the queues think of it. One that was not here keeps its name.
    pub fn forget(&mut self, block: BlockIndex) {
        if self.has(block) {
            self.take(block);
        }
    }

    /// Not even its name is known any more.
    pub fn erase(&mut self, block: BlockIndex) {
        self.take(block);
    }

    fn put(&mut self, block: BlockIndex, at: Where) {
        let queue = match at {
            Where::Small => &mut self.small,
            Where::Passing => &mut self.passing,
            Where::Main => &mut self.main,
            Where::Ghost => &mut self.ghost,
        };
        let entry = Entry {
            node: self.slab.push(queue, block),
            at,
            asked: 0,
            came: self.time(),
        };
        self.entries.insert(block.0, entry);
    }

    fn take(&mut self, block: BlockIndex) {
        if let Some(entry) = self.entries.remove(&block.0) {
            let queue = match entry.at {
                Where::Small => &mut self.small,
                Where::Passing => &mut self.passing,
                Where::Main => &mut self.main,
                Where::Ghost => &mut self.ghost,
            };
            self.slab.remove(queue, entry.node);
        }
    }

    fn remember(&mut self, block: BlockIndex) {
        // As many names as the main queue has blocks; after another preference they become so bit by bit.
        for _ in 0..2 {
            if self.ghost.len() + self.small_share >= self.capacity
                && let Some(oldest) = self.ghost.oldest()
                && let Some(oldest) = self.slab.block(oldest)
            {
                self.take(oldest);
            }
        }
        self.put(block, Where::Ghost);
    }
}

/// Blocks that are looked at for one that may go: when the first so many may not, none is taken, and the next call
/// goes on behind them. Few, for a cache in which nothing may go asks again at every turn.
const PASSED_OVER: usize = 128;
/// Blocks that are looked at in one call before the oldest goes although it was asked for. A working set that has fit
/// for days is in one queue, all of it asked for: a call that sorted all that would hold hosts up for seconds.
const STEPS: u64 = 1024;
/// Of these, most blocks that get another round so that one can be weighed against the next.
const ROUNDS: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cache: &mut S3Fifo, block: u32) -> bool {
        let block = BlockIndex(block);
        if cache.touch(block, Asked::Read) {
            return true;
        }
        if cache.is_full() {
            cache.victim(|_| true).expect("one may go");
        }
        cache.insert(block, Admission::Ordinary);
        false
    }

    #[test]
    fn a_scan_does_not_empty_it() {
        let mut cache = S3Fifo::new(100);
        for _ in 0..3 {
            for block in 0..70 {
                ask(&mut cache, block);
            }
        }
        for block in 1000..11_000 {
            ask(&mut cache, block);
        }
        let left = (0..70)
            .filter(|&block| cache.has(BlockIndex(block)))
            .count();
        assert!(left >= 69, "{left}");
        assert_eq!(cache.len(), 100);
    }

    /// Of so many requests, most of them for few blocks, the share that it had.
    fn hit_ratio(cache: &mut S3Fifo, seed: u64) -> f64 {
        const REQUESTS: usize = 3000;
        let mut word = seed;
        let mut below = |limit: u64| {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            (word >> 11) % limit
        };
        let skewed = |_: &usize| {
            let mut among = 6144;
            while among > 64 && below(3) != 0 {
                among /= 2;
            }
            ask(cache, (below(among) * 2_654_435_761 % 6144) as u32)
        };
        (0..REQUESTS).filter(skewed).count() as f64 / REQUESTS as f64
    }

    #[test]
    fn it_is_as_warm_as_in_the_life_before() {
        let mut cache = S3Fifo::new(1024);
        hit_ratio(&mut cache, 1);
        let before = hit_ratio(&mut cache, 2);
        let mut after = S3Fifo::new(1024);
        for block in (0..6144).map(BlockIndex).filter(|&block| cache.has(block)) {
            after.restore(block);
        }
        let (next, after) = (hit_ratio(&mut cache, 3), hit_ratio(&mut after, 3));
        assert!(before > 0.4 && next > 0.4, "{before} {next}");
        assert!(after >= next * 0.95, "{after} of {next}");
    }

    #[test]
    fn what_comes_back_soon_after_it_left_stays() {
        let mut cache = S3Fifo::new(20);
        for block in 0..40 {
            ask(&mut cache, block);
        }
        assert!(!cache.has(BlockIndex(15)));
        ask(&mut cache, 15);
        for block in 100..115 {
            ask(&mut cache, block);
        }
        assert!(cache.has(BlockIndex(15)));
    }

    #[test]
    fn what_is_asked_for_twice_in_a_row_passes_through() {
        let mut cache = S3Fifo::new(1000);
        for _ in 0..4 {
            for block in 0..700 {
                ask(&mut cache, block);
            }
        }
        for block in 10_000..20_000 {
            ask(&mut cache, block);
            ask(&mut cache, block - 1);
        }
        let mut kept = 0..700;
        assert!(kept.all(|block| cache.has(BlockIndex(block))));
    }

    #[test]
    fn of_what_a_stream_reads_names_enter_and_then_blocks() {
        let mut cache = S3Fifo::new(100);
        let stream = Admission::Stream;
        assert!(cache.admits(BlockIndex(7), Admission::Ordinary));
        assert!(!cache.admits(BlockIndex(8), stream) && !cache.has(BlockIndex(8)));
        assert!(cache.admits(BlockIndex(8), stream));
        // One that is longer than the names that are kept never comes in.
        for _ in 0..3 {
            let mut long = 1000..2000;
            assert!(!long.any(|block| cache.admits(BlockIndex(block), stream)));
        }
        assert!(cache.is_empty());
    }

    #[test]
    fn what_is_forgotten_and_was_not_here_keeps_its_name() {
        let mut cache = S3Fifo::new(100);
        let block = BlockIndex(7);
        assert!(!cache.admits(block, Admission::Stream));
        // It was written, and that went around.
        cache.forget(block);
        assert!(cache.admits(block, Admission::Stream));
        cache.insert(block, Admission::Ordinary);
        cache.forget(block);
        assert!(!cache.has(block) && cache.known_in(0..10).is_empty());
        assert!(!cache.admits(block, Admission::Stream));
        cache.erase(block);
        assert!(cache.known_in(0..10).is_empty());
    }

    #[test]
    fn another_preference_comes_to_be_as_its_trial_is() {
        let mut cache = S3Fifo::with(1000, Prefers::Frequent);
        let trial = S3Fifo::with(1000, Prefers::Latest);
        for block in 0..4000 {
            ask(&mut cache, block);
        }
        (cache.prefers, cache.small_share) = (Prefers::Latest, trial.small_share);
        for block in 4000..6000 {
            ask(&mut cache, block);
        }
        assert!(cache.ghost.len() + trial.small_share <= 1000);
        // It is as young as it would be there.
        ask(&mut cache, 5500);
        assert_eq!(cache.entries[&5500].asked, 0);
    }

    #[test]
    fn what_a_stream_has_written_leaves_soon_whatever_is_preferred() {
        for prefers in [Prefers::Frequent, Prefers::Recent, Prefers::Latest] {
            let mut cache = S3Fifo::with(1000, prefers);
            for block in (0..8).flat_map(|_| 0..1000) {
                ask(&mut cache, block);
            }
            for block in 5000..6000 {
                cache.victim(|_| true).expect("one may go");
                cache.insert(BlockIndex(block), Admission::Stream);
            }
            let log = (5000..6000).filter(|&block| cache.has(BlockIndex(block)));
            assert!(log.count() <= 200, "{prefers:?}");
            assert_eq!(cache.len(), 1000);
        }
    }

    #[test]
    fn what_may_not_go_is_passed_over() {
        let mut cache = S3Fifo::new(4);
        for block in 0..4 {
            ask(&mut cache, block);
        }
        assert_eq!(cache.victim(|block| block.0 == 3), Some(BlockIndex(3)));
        assert_eq!(cache.victim(|_| false), None);
        assert_eq!(cache.len(), 3);
        cache.forget(BlockIndex(0));
        assert!(!cache.has(BlockIndex(0)) && cache.len() == 2);
    }

    #[test]
    fn no_call_goes_through_the_whole_cache() {
        const BLOCKS: u32 = 40_000;
        for prefers in [Prefers::Frequent, Prefers::Recent, Prefers::Latest] {
            let mut cache = S3Fifo::with(BLOCKS as usize, prefers);
            for block in (0..3).flat_map(|_| 0..BLOCKS) {
                ask(&mut cache, block);
            }
            let most = STEPS + ROUNDS + PASSED_OVER as u64;
            for block in BLOCKS..BLOCKS + 1000 {
                let from = cache.steps();
                cache.touch(BlockIndex(block), Asked::Read);
                cache.victim(|_| true).expect("one goes");
                cache.insert(BlockIndex(block), Admission::Ordinary);
                let took = cache.steps() - from;
                assert!(took <= most, "{prefers:?}: {took}");
            }
            let kept = (0..BLOCKS).filter(|&block| cache.has(BlockIndex(block)));
            assert!(kept.count() >= 39_000);
            // Nothing may go, and all of it is asked for.
            for block in 0..BLOCKS {
                cache.touch(BlockIndex(block), Asked::Read);
            }
            let from = cache.steps();
            assert_eq!(cache.victim(|_| false), None);
            assert!(cache.steps() - from <= most, "{prefers:?}");
        }
    }

    #[test]
    fn memory_is_a_few_dozen_bytes_a_block() {
        let mut cache = S3Fifo::new(100_000);
        for block in 0..400_000 {
            ask(&mut cache, block);
        }
        let each = cache.bytes() / cache.capacity();
        assert!((16..144).contains(&each), "{each} bytes");
    }
}
