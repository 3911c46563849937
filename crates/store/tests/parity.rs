//! Volumes with parity: what is written comes back, whole or with drives missing, after restarts,
//! and whatever has rotted meanwhile.

mod common;

use ashlar_block::{ErrorKind, Operation};
use ashlar_store::{Layout, Manage, Managed};
use common::Bench;

const GRANULES: u64 = 1024;

/// A volume and what it should hold: for each granule, the number its bytes are made from.
struct Model {
    volume: u32,
    values: Vec<u32>,
    random: u64,
}

fn bytes(granule: u64, value: u32) -> Vec<u8> {
    if value == 0 {
        return vec![0; 4096];
    }
    let seed = granule * 7919 + u64::from(value) * 104_729;
    (0..4096u64)
        .map(|i| (seed + i * (seed | 1)) as u8)
        .collect()
}

impl Model {
    fn new(bench: &mut Bench, layout: Layout) -> Self {
        Self {
            volume: bench.volume_as(GRANULES, layout).expect("create"),
            values: vec![0; GRANULES as usize],
            random: 88_172_645_463_325_252,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn write(&mut self, bench: &mut Bench, first: u64, count: u64, value: u32) {
        let data: Vec<u8> = (first..first + count)
            .flat_map(|g| bytes(g, value))
            .collect();
        bench.write(self.volume, first, &data).expect("write");
        self.values[first as usize..(first + count) as usize].fill(value);
    }

    /// Whole slots, odd runs, single granules, and cleared ones.
    fn churn(&mut self, bench: &mut Bench, rounds: u32) {
        for value in 1..=rounds {
            let (first, count) = match self.draw(8) {
                0 | 1 => (self.draw(GRANULES / 16) * 16, 16),
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

    fn check(&self, bench: &mut Bench, what: &str) {
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

fn parity(data: u8, parity: u8) -> Layout {
    Layout::Parity { data, parity }
}

fn drives_of(layout: Layout) -> usize {
    layout.drives()
}

#[test]
fn what_is_written_comes_back_after_restarts() {
    for layout in [
        parity(2, 1),
        parity(3, 1),
        parity(4, 1),
        parity(5, 2),
        parity(7, 1),
    ] {
        let mut bench = Bench::new(drives_of(layout), 16 << 20);
        let mut model = Model::new(&mut bench, layout);
        for round in 0..4 {
            model.churn(&mut bench, 120);
            model.check(&mut bench, &format!("{layout}, round {round}"));
            if round % 2 == 1 {
                bench.manage(Manage::Settle).expect("settle");
                model.check(&mut bench, &format!("{layout}, settled"));
            }
            bench = bench.restart();
            model.check(&mut bench, &format!("{layout}, restarted"));
        }
    }
}

#[test]
fn any_drive_may_be_missing_and_another_after_it_was_replaced() {
    let layout = parity(3, 1);
    for lost in 0..4 {
        let mut bench = Bench::new(5, 24 << 20);
        let mut model = Model::new(&mut bench, layout);
        model.churn(&mut bench, 200);
        bench.seen.faults[lost].set(Some((|_| true, ErrorKind::Media)));
        model.check(&mut bench, "reads fail");
        model.churn(&mut bench, 50);
        model.check(&mut bench, "lost");
        // The fifth drive takes what the lost one had.
        bench.manage(Manage::Settle).expect("settle");
        model.check(&mut bench, "made again");
        assert!(!bench.engine.status().degraded, "drive {lost}");
        let next = (lost + 1) % 4;
        bench.seen.faults[next].set(Some((|_| true, ErrorKind::Media)));
        model.check(&mut bench, "second");
        model.churn(&mut bench, 100);
        bench.manage(Manage::Settle).expect("settle");
        model.check(&mut bench, "narrower");
    }
}

#[test]
fn two_drives_at_once_are_survived_with_two_columns_of_parity() {
    let mut bench = Bench::new(5, 16 << 20);
    let mut model = Model::new(&mut bench, parity(3, 2));
    model.churn(&mut bench, 300);
    bench.manage(Manage::Settle).expect("settle");
    for (first, second) in [(0, 1), (1, 4), (3, 4), (0, 3)] {
        let fails: common::Rule = |op| op == Operation::Read;
        bench.seen.faults[first].set(Some((fails, ErrorKind::Media)));
        bench.seen.faults[second].set(Some((fails, ErrorKind::Media)));
        model.check(&mut bench, &format!("without {first} and {second}"));
        bench.seen.faults[first].set(None);
        bench.seen.faults[second].set(None);
    }
}

/// Overwrites a piece of a drive, past its head, wherever it is.
fn rot(bench: &Bench, drive: usize, random: &mut u64) {
    let mut medium = bench.media[drive].borrow_mut();
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    let from = 1 << 20;
    let at = from + (*random >> 20) as usize % (6 << 20);
    medium[at..at + 700].fill(0xA5);
}

#[test]
fn rot_is_repaired_by_reads_and_by_a_scrub() {
    let mut bench = Bench::new(5, 16 << 20);
    let mut model = Model::new(&mut bench, parity(4, 1));
    model.churn(&mut bench, 300);
    bench.manage(Manage::Settle).expect("settle");
    let mut random = 3;
    for round in 0..20 {
        for _ in 0..20 {
            rot(&bench, round % 5, &mut random);
        }
        if round % 2 == 0 {
            model.check(&mut bench, "rotten");
        }
        let scrubbed = bench.manage(Manage::Scrub).expect("scrub");
        assert_eq!(scrubbed, Managed::Scrubbed { lost: 0 }, "round {round}");
        model.churn(&mut bench, 10);
        bench.manage(Manage::Settle).expect("settle");
    }
    assert!(bench.engine.counters().repaired > 0);
    // Parity that had rotted is good again: every drive can be spared.
    for drive in 0..5 {
        let fails: common::Rule = |op| op == Operation::Read;
        bench.seen.faults[drive].set(Some((fails, ErrorKind::Media)));
        model.check(&mut bench, &format!("without {drive}"));
        bench.seen.faults[drive].set(None);
    }
}

#[test]
fn a_full_pool_still_overwrites() {
    let mut bench = Bench::new(3, 16 << 20);
    let volume = bench.volume_as(16_384, parity(2, 1)).expect("create");
    let slot = |value: u8| vec![value; 16 * 4096];
    let mut written = 0;
    while bench.write(volume, written * 16, &slot(1)).is_ok() {
        written += 1;
    }
    assert!(written > 64, "{written} slots");
    for round in 2..6 {
        for at in 0..written {
            let piece = vec![round; 3 * 4096];
            bench.write(volume, at * 16 + 2, &piece).expect("overwrite");
        }
    }
    bench.write(volume, 0, &slot(9)).expect("whole");
    bench.manage(Manage::Settle).expect("settle");
    let mut bench = bench.restart();
    let mut expected = slot(1);
    expected[2 * 4096..5 * 4096].fill(5);
    assert_eq!(bench.read(volume, 16, 16).expect("read"), expected);
    assert_eq!(bench.read(volume, 0, 16).expect("read"), slot(9));
    bench.clear(volume, 160, 160).expect("clear");
    bench
        .write(volume, written * 16, &slot(2))
        .expect("room again");
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    let mut bench = Bench::new(4, 16 << 20);
    for layout in [
        parity(1, 1),
        parity(4, 1),
        parity(2, 3),
        parity(7, 2),
        parity(255, 255),
    ] {
        let refused = bench.volume_as(64, layout);
        assert!(refused.is_err(), "{layout}");
    }
}
