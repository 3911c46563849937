use std::collections::HashMap;

use super::BlockIndex;
use super::queue::{Queue, Slab};

/// How a block comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// As any block.
    Ordinary,
    /// It is written by a stream: it is absorbed, and goes as soon as it may.
    Stream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Small,
    Main,
    Ghost,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    node: u32,
    at: Where,
    /// It was asked for since it came to this queue, or since its last round.
    asked: bool,
}

/// The queues. Only names and bits: what the blocks hold is their owner's.
#[derive(Debug, Default)]
pub struct S3Fifo {
    entries: HashMap<u32, Entry>,
    slab: Slab,
    small: Queue,
    main: Queue,
    ghost: Queue,
    capacity: usize,
    /// Blocks that the small queue has when the cache is full.
    small_share: usize,
}

impl S3Fifo {
    /// Queues for so many blocks.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            small_share: (capacity / 10).max(1),
            ..Self::default()
        }
    }

    /// Blocks that it has.
    pub fn len(&self) -> usize {
        self.small.len() + self.main.len()
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

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        // A table keeps an eighth free, and a byte beside each place.
        let places = self.entries.capacity() * 8 / 7;
        self.slab.bytes() + places * (size_of::<(u32, Entry)>() + 1)
    }

    /// Whether a block is here.
    pub fn has(&self, block: BlockIndex) -> bool {
        let entry = self.entries.get(&block.0);
        entry.is_some_and(|entry| entry.at != Where::Ghost)
    }

    /// A block was asked for; whether it is here.
    pub fn touch(&mut self, block: BlockIndex) -> bool {
        match self.entries.get_mut(&block.0) {
            Some(entry) if entry.at != Where::Ghost => {
                entry.asked = true;
                true
            }
            _ => false,
        }
    }

    /// A block comes in. Whoever wants room for it calls [`victim`](Self::victim) before.
    pub fn insert(&mut self, block: BlockIndex, how: Admission) {
        let known = match self.entries.get(&block.0) {
            Some(entry) if entry.at != Where::Ghost => return,
            Some(&entry) => {
                self.slab.remove(&mut self.ghost, entry.node);
                true
            }
            None => false,
        };
        let at = match known && how == Admission::Ordinary {
            true => Where::Main,
            false => Where::Small,
        };
        self.put(block, at);
    }

    /// What is to go next, if `may_go` says so of it; what may not is passed over, and comes into question
    /// again after all others. It is out of the queues, and its name is a ghost if it came from the small one.
    pub fn victim(&mut self, mut may_go: impl FnMut(BlockIndex) -> bool) -> Option<BlockIndex> {
        // Each block is looked at twice at most: once to lose its bit.
        for _ in 0..2 * self.len().min(PASSED_OVER) {
            let from_small = self.small.len() >= self.small_share || self.main.len() == 0;
            let queue = if from_small { &self.small } else { &self.main };
            let node = queue.oldest()?;
            let block = self.slab.block(node)?;
            let asked = self.entries.get(&block.0).is_some_and(|entry| entry.asked);
            if !asked && may_go(block) {
                self.take(block);
                if from_small {
                    self.remember(block);
                }
                return Some(block);
            }
            // Asked for: up, or round again. Not to go yet: round again, where it is.
            let at = match from_small && !asked {
                true => Where::Small,
                false => Where::Main,
            };
            self.take(block);
            self.put(block, at);
        }
        None
    }

    /// A block is gone, whatever the queues think of it.
    pub fn forget(&mut self, block: BlockIndex) {
        self.take(block);
    }

    fn put(&mut self, block: BlockIndex, at: Where) {
        let queue = match at {
            Where::Small => &mut self.small,
            Where::Main => &mut self.main,
            Where::Ghost => &mut self.ghost,
        };
        let node = self.slab.push(queue, block);
        let asked = false;
        self.entries.insert(block.0, Entry { node, at, asked });
    }

    fn take(&mut self, block: BlockIndex) {
        if let Some(entry) = self.entries.remove(&block.0) {
            let queue = match entry.at {
                Where::Small => &mut self.small,
                Where::Main => &mut self.main,
                Where::Ghost => &mut self.ghost,
            };
            self.slab.remove(queue, entry.node);
        }
    }

    fn remember(&mut self, block: BlockIndex) {
        // As many names as the main queue has blocks.
        if self.ghost.len() + self.small_share >= self.capacity
            && let Some(oldest) = self.ghost.oldest()
            && let Some(oldest) = self.slab.block(oldest)
        {
            self.take(oldest);
        }
        self.put(block, Where::Ghost);
    }
}

/// Blocks that are looked at for one that may go: when the first so many may not, none is taken.
const PASSED_OVER: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cache: &mut S3Fifo, block: u32) -> bool {
        let block = BlockIndex(block);
        if cache.touch(block) {
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
            for block in 0..80 {
                ask(&mut cache, block);
            }
        }
        for block in 1000..11_000 {
            ask(&mut cache, block);
        }
        let left = (0..80)
            .filter(|&block| cache.has(BlockIndex(block)))
            .count();
        assert!(left >= 79, "{left}");
        assert_eq!(cache.len(), 100);
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
    fn memory_is_a_few_dozen_bytes_a_block() {
        let mut cache = S3Fifo::new(100_000);
        for block in 0..400_000 {
            ask(&mut cache, block);
        }
        let each = cache.bytes() / cache.capacity();
        assert!((16..120).contains(&each), "{each} bytes");
    }
}
