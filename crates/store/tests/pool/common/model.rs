//! What a volume should hold, granule by granule.

use ashlar_store::{Grain, Layout};

use super::Bench;

/// Granules of a model's volume.
pub const GRANULES: u64 = 1024;

/// A volume and what it should hold: for each granule, the number its bytes are made from.
#[derive(Clone)]
pub struct Model {
    pub volume: u32,
    pub values: Vec<u32>,
    random: u64,
}

pub fn bytes(granule: u64, value: u32) -> Vec<u8> {
    if value == 0 {
        return vec![0; 4096];
    }
    let seed = granule * 7919 + u64::from(value) * 104_729;
    (0..4096u64)
        .map(|i| (seed + i * (seed | 1)) as u8)
        .collect()
}

impl Model {
    pub fn new(bench: &mut Bench, layout: Layout) -> Self {
        Self::of(bench, layout, None)
    }

    pub fn of(bench: &mut Bench, layout: Layout, grain: Option<Grain>) -> Self {
        Self {
            volume: bench.volume_of(GRANULES, layout, grain).expect("create"),
            values: vec![0; GRANULES as usize],
            random: 88_172_645_463_325_252,
        }
    }

    pub fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    pub fn write(&mut self, bench: &mut Bench, first: u64, count: u64, value: u32) {
        let data: Vec<u8> = (first..first + count)
            .flat_map(|g| bytes(g, value))
            .collect();
        bench.write(self.volume, first, &data).expect("write");
        self.values[first as usize..(first + count) as usize].fill(value);
    }

    /// Whole slots, odd runs, single granules, and cleared ones.
    pub fn churn(&mut self, bench: &mut Bench, rounds: u32) {
        for value in 1..=rounds {
            let (first, count) = match self.draw(10) {
                0 | 1 => (self.draw(GRANULES / 16) * 16, 16),
                8 | 9 => self.aligned(),
                2 => (self.draw(GRANULES - 40), 1 + self.draw(40)),
                3 => {
                    let (first, count) = (self.draw(GRANULES - 20), 1 + self.draw(20));
                    bench
                        .clear(self.volume, first, count as u32)
                        .expect("clear");
                    self.values[first as usize..(first + count) as usize].fill(0);
                    continue;
                }
                _ => (self.draw(GRANULES - 4), 1 + self.draw(4)),
            };
            self.write(bench, first, count, value);
        }
    }

    /// Slots of some grain: one, or some.
    fn aligned(&mut self) -> (u64, u64) {
        let granules = 2 << self.draw(3);
        let count = granules * (1 + self.draw(4));
        (self.draw((GRANULES - count) / granules) * granules, count)
    }

    pub fn check(&self, bench: &mut Bench, what: &str) {
        let lost = bench.engine.counters().lost;
        assert_eq!(lost, 0, "{what}");
        for slot in 0..GRANULES / 16 {
            let read = bench.read(self.volume, slot * 16, 16);
            let read = read.unwrap_or_else(|error| panic!("{what}: slot {slot}: {error}"));
            for (granule, found) in (slot * 16..).zip(read.chunks(4096)) {
                let expected = bytes(granule, self.values[granule as usize]);
                assert!(found == expected, "{what}: granule {granule}");
            }
        }
    }
}
