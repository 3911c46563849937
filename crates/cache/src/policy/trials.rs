use super::{Admission, Asked, BlockIndex, Prefers, S3Fifo};

/// Most blocks that a trial has.
const MOST: usize = 4096;
/// Of the hits of a period, what counts at the end of the next.
const FADES: f64 = 0.95;
/// Periods while as much is asked for as the cache has blocks.
const PERIODS: u64 = 4;
/// Fewest requests of a period.
const LEAST: u64 = 64;

/// What the queues would have had of a sample of all blocks, with each preference: the one that finds more of what is
/// read is followed. They hold names and no data.
#[derive(Debug)]
pub(super) struct Trials {
    each: [Trial; 3],
    /// Of so many blocks one is in the sample.
    one_in: u64,
    asked: u64,
    period: u64,
    /// The one that is followed.
    now: Prefers,
}

#[derive(Debug)]
struct Trial {
    queues: S3Fifo,
    prefers: Prefers,
    /// Reads of this period that found what they asked for.
    hits: u32,
    /// Of all before, the older the less.
    score: f64,
}

impl Trials {
    /// For a cache of so many blocks, with a preference to begin with.
    pub(super) fn new(blocks: usize, begins: Prefers) -> Self {
        let one_in = blocks.div_ceil(MOST).max(1);
        let trial = |prefers| Trial {
            queues: S3Fifo::sample(blocks, one_in, prefers),
            prefers,
            hits: 0,
            score: 0.0,
        };
        Self {
            each: [Prefers::Frequent, Prefers::Recent, Prefers::Latest].map(trial),
            one_in: one_in as u64,
            asked: 0,
            period: (blocks as u64 / PERIODS).max(LEAST),
            now: begins,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + (self.each.iter().map(|one| one.queues.bytes())).sum::<usize>()
    }

    /// A block was asked for; what is to be preferred from now on.
    pub(super) fn ask(&mut self, block: BlockIndex, how: Asked) -> Prefers {
        let mixed = (u64::from(block.0) + 1).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40;
        if mixed.is_multiple_of(self.one_in) {
            for one in &mut self.each {
                one.hits += u32::from(one.queues.ask(block, how) && how.is_read());
            }
        }
        self.asked += 1;
        if self.asked.is_multiple_of(self.period) {
            self.look();
        }
        self.now
    }

    /// Follows the best, if it is better than what is followed by more than chance.
    fn look(&mut self) {
        let (mut now, mut best) = (0.0_f64, (0.0_f64, self.now));
        for one in &mut self.each {
            one.score = one.score * FADES + f64::from(std::mem::take(&mut one.hits));
            if one.prefers == self.now {
                now = one.score;
            }
            if one.score > best.0 {
                best = (one.score, one.prefers);
            }
        }
        if best.0 - now > best.0.sqrt() {
            self.now = best.1;
        }
    }
}

impl S3Fifo {
    /// All that one request for a block means where nothing holds it up; whether it was here.
    fn ask(&mut self, block: BlockIndex, how: Asked) -> bool {
        let here = self.touch(block, how);
        let enters = match how {
            Asked::Read | Asked::Written => !here,
            Asked::ReadByStream => !here && self.admits(block, Admission::Stream),
            Asked::WrittenAround => {
                self.forget(block);
                false
            }
        };
        if enters {
            if self.is_full() {
                self.victim(|_| true);
            }
            self.insert(block, Admission::Ordinary);
        }
        here
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const BLOCKS: usize = 1000;

    type Next = dyn FnMut(&mut fastrand::Rng) -> u32;

    /// Of so many reads, the share that the queues had.
    fn hit_ratio(mut queues: S3Fifo, mut next: impl FnMut(&mut fastrand::Rng) -> u32) -> f64 {
        const READS: usize = 40_000;
        let mut random = fastrand::Rng::with_seed(1);
        let mut has = |_: &usize| queues.ask(BlockIndex(next(&mut random)), Asked::Read);
        (0..READS).filter(&mut has).count() as f64 / READS as f64
    }

    /// A working set that moves on, and blocks between that nothing asks for again.
    fn moving(once_of_100: u8) -> impl FnMut(&mut fastrand::Rng) -> u32 {
        let (mut at, mut once) = (5000, 1 << 20);
        move |random| {
            if random.u8(..100) < once_of_100 {
                once += 1;
                return once;
            }
            at += u32::from(random.u8(..4) == 0);
            at - random.u32(..900)
        }
    }

    /// Skewed, behind a memory that has what was asked for lately.
    fn behind_memory() -> impl FnMut(&mut fastrand::Rng) -> u32 {
        let mut memory = VecDeque::new();
        move |random| {
            loop {
                let mut among = 16_384;
                while among > 512 && random.u8(..3) != 0 {
                    among /= 2;
                }
                let block = random.u32(..among);
                if !memory.contains(&block) {
                    memory.push_back(block);
                    if memory.len() > 1500 {
                        memory.pop_front();
                    }
                    return block;
                }
            }
        }
    }

    #[test]
    fn trials_keep_out_what_the_cache_keeps_out() {
        let mut queues = S3Fifo::with(BLOCKS, Prefers::Latest);
        let block = BlockIndex(1);
        let mut ask = |how| queues.ask(block, how);
        assert!(!ask(Asked::WrittenAround) && !ask(Asked::ReadByStream));
        // The second time it comes in.
        assert!(!ask(Asked::ReadByStream) && ask(Asked::ReadByStream));
        assert!(ask(Asked::WrittenAround) && !ask(Asked::Read) && ask(Asked::Read));
    }

    #[test]
    fn a_trial_is_the_cache_on_a_smaller_scale() {
        for prefers in [Prefers::Frequent, Prefers::Recent, Prefers::Latest] {
            let (whole, part) = (
                S3Fifo::with(400_000, prefers),
                S3Fifo::sample(400_000, 100, prefers),
            );
            let small = whole.small_share as f64 / part.small_share as f64;
            assert!((98.0..102.0).contains(&small), "{prefers:?} {small}");
        }
    }

    #[test]
    fn a_scan_that_stays_out_says_nothing_of_preferences() {
        let mut queues = S3Fifo::new(BLOCKS);
        let (mut next, mut random) = (moving(0), fastrand::Rng::with_seed(1));
        let mut scanned = 1 << 24;
        for _ in 0..40_000 {
            queues.ask(BlockIndex(next(&mut random)), Asked::Read);
            for _ in 0..4 {
                scanned += 1;
                queues.touch(BlockIndex(scanned), Asked::ReadByStream);
            }
        }
        assert_eq!(queues.prefers, Prefers::Latest);
    }

    #[test]
    fn the_best_preference_is_found() {
        let all = [Prefers::Frequent, Prefers::Recent, Prefers::Latest];
        let best_is = |best: Prefers, next: &dyn Fn() -> Box<Next>| {
            let of = all.map(|prefers| (prefers, hit_ratio(S3Fifo::with(BLOCKS, prefers), next())));
            let found = hit_ratio(S3Fifo::new(BLOCKS), next());
            let most = of.iter().find(|one| one.0 == best).map_or(0.0, |one| one.1);
            let mut others = of.iter().filter(|one| one.0 != best);
            assert!(others.all(|one| one.1 < most * 0.95), "{of:?}");
            assert!(found > most * 0.95, "{of:?} {found}");
        };
        best_is(Prefers::Frequent, &|| Box::new(behind_memory()));
        best_is(Prefers::Recent, &|| Box::new(moving(60)));
        best_is(Prefers::Latest, &|| Box::new(moving(0)));
    }
}
