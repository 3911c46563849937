//! Policies to compare with, as their papers have them.

use super::Policy;
use super::lists::{List, Lists};

/// Least recently used.
pub(super) struct Lru {
    lists: Lists,
    capacity: usize,
}

impl Lru {
    const ALL: List = List(0);

    pub(super) fn new(capacity: usize) -> Self {
        Self {
            lists: Lists::new(1),
            capacity,
        }
    }
}

impl Policy for Lru {
    fn ask(&mut self, block: u32) -> bool {
        let hit = self.lists.of(block).is_some();
        if !hit && self.lists.len(Self::ALL) >= self.capacity {
            self.lists.pop(Self::ALL);
        }
        self.lists.push(Self::ALL, block);
        hit
    }
}

/// 2Q, full version (Johnson and Shasha, VLDB 1994): a quarter of the cache comes in first, and names of half of it
/// are remembered.
pub(super) struct TwoQueues {
    lists: Lists,
    capacity: usize,
}

impl TwoQueues {
    const IN: List = List(0);
    const OUT: List = List(1);
    const MAIN: List = List(2);

    pub(super) fn new(capacity: usize) -> Self {
        Self {
            lists: Lists::new(3),
            capacity,
        }
    }

    fn make_room(&mut self) {
        let lists = &mut self.lists;
        if lists.len(Self::IN) + lists.len(Self::MAIN) < self.capacity {
            return;
        }
        if lists.len(Self::IN) > self.capacity / 4 || lists.len(Self::MAIN) == 0 {
            if let Some(block) = lists.pop(Self::IN) {
                lists.push(Self::OUT, block);
            }
            if lists.len(Self::OUT) > self.capacity / 2 {
                lists.pop(Self::OUT);
            }
        } else {
            lists.pop(Self::MAIN);
        }
    }
}

impl Policy for TwoQueues {
    fn ask(&mut self, block: u32) -> bool {
        match self.lists.of(block) {
            Some(Self::MAIN) => {
                self.lists.push(Self::MAIN, block);
                true
            }
            Some(Self::IN) => true,
            Some(_) => {
                self.lists.remove(block);
                self.make_room();
                self.lists.push(Self::MAIN, block);
                false
            }
            None => {
                self.make_room();
                self.lists.push(Self::IN, block);
                false
            }
        }
    }
}

/// ARC (Megiddo and Modha, FAST 2003).
pub(super) struct Arc {
    lists: Lists,
    capacity: usize,
    /// What the list of blocks that were asked for once is to have.
    target: usize,
}

impl Arc {
    const ONCE: List = List(0);
    const OFTEN: List = List(1);
    const ONCE_GHOST: List = List(2);
    const OFTEN_GHOST: List = List(3);

    pub(super) fn new(capacity: usize) -> Self {
        Self {
            lists: Lists::new(4),
            capacity,
            target: 0,
        }
    }

    fn replace(&mut self, in_often_ghost: bool) {
        let once = self.lists.len(Self::ONCE);
        let from_once = once > 0 && (once > self.target || in_often_ghost && once == self.target);
        let (from, ghost) = match from_once {
            true => (Self::ONCE, Self::ONCE_GHOST),
            false => (Self::OFTEN, Self::OFTEN_GHOST),
        };
        if let Some(block) = self.lists.pop(from) {
            self.lists.push(ghost, block);
        }
    }

    fn miss(&mut self, block: u32) {
        let len = |list| self.lists.len(list);
        let once = len(Self::ONCE) + len(Self::ONCE_GHOST);
        let all = once + len(Self::OFTEN) + len(Self::OFTEN_GHOST);
        if once == self.capacity {
            if len(Self::ONCE) < self.capacity {
                self.lists.pop(Self::ONCE_GHOST);
                self.replace(false);
            } else {
                self.lists.pop(Self::ONCE);
            }
        } else if all >= self.capacity {
            if all == 2 * self.capacity {
                self.lists.pop(Self::OFTEN_GHOST);
            }
            self.replace(false);
        }
        self.lists.push(Self::ONCE, block);
    }
}

impl Policy for Arc {
    fn ask(&mut self, block: u32) -> bool {
        let (once, often) = (
            self.lists.len(Self::ONCE_GHOST).max(1),
            self.lists.len(Self::OFTEN_GHOST).max(1),
        );
        match self.lists.of(block) {
            Some(Self::ONCE | Self::OFTEN) => {
                self.lists.push(Self::OFTEN, block);
                return true;
            }
            Some(Self::ONCE_GHOST) => {
                self.target = (self.target + (often / once).max(1)).min(self.capacity);
                self.replace(false);
                self.lists.push(Self::OFTEN, block);
            }
            Some(_) => {
                self.target = self.target.saturating_sub((once / often).max(1));
                self.replace(true);
                self.lists.push(Self::OFTEN, block);
            }
            None => self.miss(block),
        }
        false
    }
}

/// W-TinyLFU (Einziger, Friedman and Manes, ACM TOS 2017): a window of a hundredth, a segmented LRU behind it, four
/// fifths of that protected, and a sketch of how often blocks were asked for that decides who comes in.
pub(super) struct TinyLfu {
    lists: Lists,
    capacity: usize,
    sketch: Sketch,
}

impl TinyLfu {
    const WINDOW: List = List(0);
    const PROBATION: List = List(1);
    const PROTECTED: List = List(2);

    pub(super) fn new(capacity: usize) -> Self {
        Self {
            lists: Lists::new(3),
            capacity,
            sketch: Sketch::new(capacity),
        }
    }

    fn window(&self) -> usize {
        (self.capacity / 100).max(1)
    }

    /// The window's oldest against the oldest on probation.
    fn leave_window(&mut self) {
        let Some(candidate) = self.lists.pop(Self::WINDOW) else {
            return;
        };
        let main = self.lists.len(Self::PROBATION) + self.lists.len(Self::PROTECTED);
        if main < self.capacity - self.window() {
            return self.lists.push(Self::PROBATION, candidate);
        }
        let from = match self.lists.len(Self::PROBATION) {
            0 => Self::PROTECTED,
            _ => Self::PROBATION,
        };
        if let Some(victim) = self.lists.oldest(from)
            && self.sketch.estimate(candidate) > self.sketch.estimate(victim)
        {
            self.lists.remove(victim);
            self.lists.push(Self::PROBATION, candidate);
        }
    }
}

impl Policy for TinyLfu {
    fn ask(&mut self, block: u32) -> bool {
        self.sketch.count(block);
        match self.lists.of(block) {
            Some(Self::WINDOW) => self.lists.push(Self::WINDOW, block),
            Some(_) => {
                self.lists.push(Self::PROTECTED, block);
                let most = (self.capacity - self.window()) * 4 / 5;
                if self.lists.len(Self::PROTECTED) > most
                    && let Some(demoted) = self.lists.oldest(Self::PROTECTED)
                {
                    self.lists.push(Self::PROBATION, demoted);
                }
            }
            None => {
                self.lists.push(Self::WINDOW, block);
                if self.lists.len(Self::WINDOW) > self.window() {
                    self.leave_window();
                }
                return false;
            }
        }
        true
    }
}

/// Counts to 15 in four rows; all are halved after ten requests a block of the cache.
struct Sketch {
    counters: Vec<u8>,
    mask: u64,
    counted: usize,
    sample: usize,
}

impl Sketch {
    const ROWS: u64 = 4;

    fn new(capacity: usize) -> Self {
        let width = (capacity.max(16) * 4).next_power_of_two();
        Self {
            counters: vec![0; width * Self::ROWS as usize],
            mask: width as u64 - 1,
            counted: 0,
            sample: capacity.max(16) * 10,
        }
    }

    fn places(&self, block: u32) -> impl Iterator<Item = usize> + use<> {
        const ODD: [u64; 4] = [
            0xc3a5_c85c_97cb_3127,
            0xb492_b66f_be98_f273,
            0x9ae1_6a3b_2f90_404f,
            0xcbf2_9ce4_8422_2325,
        ];
        let mask = self.mask;
        (0..Self::ROWS).map(move |row| {
            let mixed = (u64::from(block) + 1).wrapping_mul(ODD[row as usize]);
            let at = (mixed ^ (mixed >> 32)) & mask;
            (row * (mask + 1) + at) as usize
        })
    }

    fn estimate(&self, block: u32) -> u8 {
        self.places(block)
            .map(|at| self.counters[at])
            .min()
            .unwrap_or(0)
    }

    fn count(&mut self, block: u32) {
        for at in self.places(block) {
            self.counters[at] = (self.counters[at] + 1).min(15);
        }
        self.counted += 1;
        if self.counted >= self.sample {
            self.counted /= 2;
            self.counters.iter_mut().for_each(|count| *count /= 2);
        }
    }
}
