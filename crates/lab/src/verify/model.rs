use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ashlar_block::BlockRange;

use super::stamp::{Found, Stamp, inspect};
use super::tally::{Example, FailureClass, Tally};

/// Set in a block's entry once its newest generation has been read.
const SEEN: u64 = 1 << 63;

/// Which generation every logical block of a device should hold. Shared by the threads of a
/// configuration; each touches only the blocks it owns, so relaxed order suffices.
pub(crate) struct Model {
    run: u64,
    logical: usize,
    newest: Box<[AtomicU64]>,
    next: AtomicU64,
    /// Blocks with a failed write since the last good one: the oldest generation they may hold.
    doubts: Mutex<HashMap<u64, u64>>,
    doubtful: AtomicBool,
}

impl Model {
    /// A model of `blocks` blocks of `logical` bytes, of which nothing is known; `run` tells this
    /// run's stamps from others'.
    pub(crate) fn new(run: u64, logical: u32, blocks: u64) -> Self {
        Self {
            run,
            logical: logical as usize,
            newest: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicU64::new(1),
            doubts: Mutex::default(),
            doubtful: AtomicBool::new(false),
        }
    }

    /// The number in this run's stamps.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// Stamps every block of a write to `range`; gives the write's generation.
    pub(crate) fn stamp(&self, bytes: &mut [u8], range: BlockRange) -> u64 {
        let generation = self.next.fetch_add(1, Relaxed);
        for (block, lba) in bytes.chunks_exact_mut(self.logical).zip(range.start.0..) {
            Stamp {
                run: self.run,
                lba,
                generation,
            }
            .put(block);
        }
        generation
    }

    /// The write of `generation` was acknowledged.
    pub(crate) fn written(&self, range: BlockRange, generation: u64) {
        self.entries(range)
            .for_each(|(_, entry)| entry.store(generation, Relaxed));
        if self.doubtful.load(Relaxed) {
            let mut doubts = self.doubts();
            self.entries(range).for_each(|(lba, _)| {
                doubts.remove(&lba);
            });
        }
    }

    /// The write of `generation` failed: the range holds it, or what it held before, block by
    /// block.
    pub(crate) fn uncertain(&self, range: BlockRange, generation: u64) {
        self.doubtful.store(true, Relaxed);
        let mut doubts = self.doubts();
        for (lba, entry) in self.entries(range) {
            let before = entry.load(Relaxed) & !SEEN;
            doubts.entry(lba).or_insert(before);
            entry.store(generation, Relaxed);
        }
    }

    /// Compares what a read of `range` brought with what must be there.
    pub(crate) fn check(&self, bytes: &[u8], range: BlockRange, tally: &mut Tally) {
        tally.checked += u64::from(range.count);
        let blocks = || bytes.chunks_exact(self.logical).zip(self.entries(range));
        let mut good = bytes.len() == range.count as usize * self.logical;
        for (block, (lba, entry)) in blocks() {
            let expected = entry.load(Relaxed);
            let want = Stamp {
                run: self.run,
                lba,
                generation: expected & !SEEN,
            };
            if inspect(block) == Found::Intact(want) {
                if expected & SEEN == 0 {
                    entry.store(expected | SEEN, Relaxed);
                    self.seen(lba, want.generation);
                }
            } else {
                good = false;
            }
        }
        if !good {
            self.examine(bytes, range, tally);
        }
    }

    /// Names what is wrong with the blocks of a read that is not as expected.
    #[cold]
    fn examine(&self, bytes: &[u8], range: BlockRange, tally: &mut Tally) {
        let blocks: Vec<Seen> = bytes
            .chunks_exact(self.logical)
            .zip(self.entries(range))
            .map(|(block, (lba, entry))| {
                let entry = entry.load(Relaxed);
                let (expected, seen) = (entry & !SEEN, entry & SEEN != 0);
                let oldest = self.doubts().get(&lba).copied().unwrap_or(expected);
                Seen {
                    lba,
                    expected,
                    oldest,
                    seen,
                    found: inspect(block),
                }
            })
            .collect();
        for block in &blocks {
            // Part of the same write that did arrive makes the rest torn instead of lost.
            let sibling = |other: &Seen| {
                other.expected == block.expected && other.generation(self.run) == block.expected
            };
            let arrived = blocks
                .iter()
                .any(|other| other.lba != block.lba && sibling(other));
            match block.class(self.run, arrived) {
                Some(class) => tally.add(class, || block.example(class)),
                None => self.seen(block.lba, block.generation(self.run)),
            }
        }
    }

    /// A write that may have failed was read: what is older must not come back.
    fn seen(&self, lba: u64, generation: u64) {
        if !self.doubtful.load(Relaxed) {
            return;
        }
        if let Some(oldest) = self.doubts().get_mut(&lba) {
            *oldest = generation.max(*oldest);
        }
    }

    fn entries(&self, range: BlockRange) -> impl Iterator<Item = (u64, &AtomicU64)> {
        let start = range.start.0 as usize;
        let end = start
            .saturating_add(range.count as usize)
            .min(self.newest.len());
        let entries = self.newest.get(start..end).unwrap_or_default();
        (range.start.0..).zip(entries)
    }

    fn doubts(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A block as it was read, beside what it should be.
struct Seen {
    lba: u64,
    expected: u64,
    oldest: u64,
    seen: bool,
    found: Found,
}

impl Seen {
    /// The generation it holds, 0 if it is no intact block of this run.
    fn generation(&self, run: u64) -> u64 {
        match self.found {
            Found::Intact(stamp) if stamp.run == run && stamp.lba == self.lba => stamp.generation,
            _ => 0,
        }
    }

    fn class(&self, run: u64, arrived: bool) -> Option<FailureClass> {
        // Generation 0: nothing is known of the block, so anything may be there.
        if self.oldest == 0 {
            return None;
        }
        let older = match (arrived, self.seen) {
            (true, _) => FailureClass::Torn,
            (false, true) => FailureClass::Stale,
            (false, false) => FailureClass::Lost,
        };
        match self.found {
            Found::Intact(stamp) if stamp.run != run => Some(FailureClass::Foreign),
            Found::Intact(stamp) if stamp.lba != self.lba => Some(FailureClass::Misplaced),
            Found::Intact(stamp) if stamp.generation > self.expected => Some(FailureClass::Foreign),
            Found::Intact(stamp) if stamp.generation >= self.oldest => None,
            Found::Intact(_) | Found::Zeroes => Some(older),
            Found::Mixed { newest, .. } if newest <= self.expected => Some(FailureClass::Torn),
            Found::Mixed { .. } | Found::Damaged(_) | Found::Unstamped => {
                Some(FailureClass::Corrupt)
            }
        }
    }

    fn example(&self, class: FailureClass) -> Example {
        let expected = if self.oldest == self.expected {
            format!("generation {}", self.expected)
        } else {
            format!("generation {} to {}", self.oldest, self.expected)
        };
        let found = match self.found {
            Found::Intact(s) => {
                format!(
                    "generation {} of LBA {} of run {:016x}",
                    s.generation, s.lba, s.run
                )
            }
            Found::Zeroes => "zeroes".to_owned(),
            Found::Mixed { oldest, newest } => {
                format!("sectors of generations {oldest} to {newest}")
            }
            Found::Damaged(s) => {
                format!(
                    "generation {} of LBA {} with a wrong checksum",
                    s.generation, s.lba
                )
            }
            Found::Unstamped => "no stamp".to_owned(),
        };
        Example {
            class,
            lba: self.lba,
            expected,
            found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FailureClass::{Corrupt, Foreign, Lost, Misplaced, Stale, Torn};

    const LOGICAL: usize = 4096;

    /// Sixteen blocks, all written once (generation 1), and the medium they are on.
    fn filled() -> (Model, Vec<u8>) {
        let model = Model::new(42, LOGICAL as u32, 16);
        let mut medium = vec![0; 16 * LOGICAL];
        let all = BlockRange::new(0, 16);
        let generation = model.stamp(&mut medium, all);
        model.written(all, generation);
        (model, medium)
    }

    fn bytes(range: BlockRange) -> std::ops::Range<usize> {
        let start = range.start.0 as usize * LOGICAL;
        start..start + range.count as usize * LOGICAL
    }

    fn classes(model: &Model, medium: &[u8], range: BlockRange) -> Vec<(u64, FailureClass)> {
        let mut tally = Tally::default();
        model.check(&medium[bytes(range)], range, &mut tally);
        assert_eq!(tally.failures.total() as usize, tally.examples.len());
        tally.examples.iter().map(|e| (e.lba, e.class)).collect()
    }

    fn acknowledge(model: &Model, range: BlockRange) -> Vec<u8> {
        let mut data = vec![0x5A; range.count as usize * LOGICAL];
        let generation = model.stamp(&mut data, range);
        model.written(range, generation);
        data
    }

    #[test]
    fn what_was_written_is_found() {
        let (model, mut medium) = filled();
        let range = BlockRange::new(2, 2);
        medium[bytes(range)].copy_from_slice(&acknowledge(&model, range));
        assert_eq!(classes(&model, &medium, BlockRange::new(0, 8)), []);
    }

    #[test]
    fn a_lost_write_and_a_stale_read_differ_by_whether_it_was_seen() {
        let (model, mut medium) = filled();
        let range = BlockRange::new(2, 2);
        let data = acknowledge(&model, range);
        assert_eq!(classes(&model, &medium, range), [(2, Lost), (3, Lost)]);
        let old = medium.clone();
        medium[bytes(range)].copy_from_slice(&data);
        assert_eq!(classes(&model, &medium, range), []);
        assert_eq!(classes(&model, &old, range), [(2, Stale), (3, Stale)]);
        let (model, _) = filled();
        assert_eq!(
            classes(&model, &vec![0; 65536], BlockRange::new(5, 1)),
            [(5, Lost)]
        );
    }

    #[test]
    fn half_a_write_is_torn_within_and_between_blocks() {
        let (model, mut medium) = filled();
        let range = BlockRange::new(4, 2);
        let data = acknowledge(&model, range);
        let at = bytes(range).start;
        medium[at..at + LOGICAL].copy_from_slice(&data[..LOGICAL]);
        assert_eq!(classes(&model, &medium, range), [(5, Torn)]);
        medium[at + LOGICAL..at + LOGICAL + 512].copy_from_slice(&data[LOGICAL..LOGICAL + 512]);
        assert_eq!(classes(&model, &medium, range), [(5, Torn)]);
    }

    #[test]
    fn misplaced_foreign_and_corrupt_data_have_their_own_names() {
        let (model, mut medium) = filled();
        let (a, b) = (bytes(BlockRange::new(1, 1)), bytes(BlockRange::new(9, 1)));
        let moved = medium[a].to_vec();
        medium[b].copy_from_slice(&moved);
        assert_eq!(
            classes(&model, &medium, BlockRange::new(9, 1)),
            [(9, Misplaced)]
        );
        let other = Model::new(41, LOGICAL as u32, 16);
        let mut foreign = vec![0; 16 * LOGICAL];
        other.stamp(&mut foreign, BlockRange::new(0, 16));
        assert_eq!(
            classes(&model, &foreign, BlockRange::new(3, 1)),
            [(3, Foreign)]
        );
        medium[20 * 512 + 100] ^= 1;
        assert_eq!(
            classes(&model, &medium, BlockRange::new(2, 1)),
            [(2, Corrupt)]
        );
        let garbage = vec![0xFF; 65536];
        assert_eq!(
            classes(&model, &garbage, BlockRange::new(2, 1)),
            [(2, Corrupt)]
        );
    }

    #[test]
    fn after_a_failed_write_either_content_will_do_until_the_next_good_one() {
        let (model, mut medium) = filled();
        let range = BlockRange::new(7, 1);
        let mut failed = vec![1; LOGICAL];
        let generation = model.stamp(&mut failed, range);
        model.uncertain(range, generation);
        assert_eq!(classes(&model, &medium, range), []);
        medium[bytes(range)].copy_from_slice(&failed);
        assert_eq!(classes(&model, &medium, range), []);
        let _ = acknowledge(&model, range);
        assert_eq!(classes(&model, &medium, range), [(7, Lost)]);
    }

    #[test]
    fn a_failed_write_that_was_read_must_not_be_undone() {
        let (model, mut medium) = filled();
        let range = BlockRange::new(7, 1);
        let before = medium.clone();
        let mut writes = Vec::new();
        for _ in 0..2 {
            let mut failed = vec![1; LOGICAL];
            let generation = model.stamp(&mut failed, range);
            model.uncertain(range, generation);
            writes.push(failed);
        }
        assert_eq!(classes(&model, &before, range), []);
        medium[bytes(range)].copy_from_slice(&writes[0]);
        assert_eq!(classes(&model, &medium, range), []);
        assert_eq!(classes(&model, &before, range), [(7, Lost)]);
        let mut newest = medium.clone();
        newest[bytes(range)].copy_from_slice(&writes[1]);
        assert_eq!(classes(&model, &newest, range), []);
        assert_eq!(classes(&model, &medium, range), [(7, Stale)]);
    }

    #[test]
    fn unknown_blocks_are_not_judged() {
        let model = Model::new(1, LOGICAL as u32, 4);
        assert_eq!(classes(&model, &vec![9; 16384], BlockRange::new(0, 4)), []);
    }
}
