//! A map that is larger than the memory that it may take.

use crate::common::{Bench, small_sizes};
use ashlar_block::{ErrorKind, Operation};
use ashlar_store::{ImportOptions, Layout, LeafMemory, Manage, Sizes};

/// Leaves of the volume, of 512 granules each.
const LEAVES: u64 = 40;
/// Bytes that leaves may take: fewer than eight of them.
const MEMORY: u64 = 16 << 10;

fn options() -> ImportOptions {
    ImportOptions {
        leaf_bytes: MEMORY,
        ..ImportOptions::default()
    }
}

fn bench(drives: usize) -> Bench {
    // Logs that take the changes of many leaves before a checkpoint.
    let sizes = Sizes {
        ring_chunks: 8,
        map_chunks: 8,
        ..small_sizes()
    };
    let bench = Bench::with_sizes(drives, 140 << 20, sizes);
    Bench::open_with(bench.media, &options()).unwrap()
}

fn value(granule: u64, round: u64) -> u8 {
    (granule * 7 + granule / 512 * 13 + round * 31) as u8
}

fn within(memory: LeafMemory) {
    // What is dirty or in use stays; the rest is bounded.
    let bound =
        memory.limit_bytes + (memory.dirty as u64 + 4) * memory.bytes / memory.leaves.max(1) as u64;
    assert!(memory.bytes <= bound.max(memory.limit_bytes), "{memory:?}");
    let limit = memory.limit_bytes * memory.leaves.max(1) as u64 / memory.bytes.max(1);
    assert!(memory.dirty as u64 <= limit + 8, "{memory:?}");
}

#[test]
fn a_mirror_larger_than_the_memory_for_its_map() {
    churn(2, Layout::Mirror { copies: 2 });
}

#[test]
fn parity_larger_than_the_memory_for_its_map() {
    let layout = Layout::Parity { data: 2, parity: 1 };
    churn(3, layout);
}

#[test]
fn an_import_keeps_no_more_of_the_map_than_a_running_pool() {
    let mut bench = bench(2);
    let volume = bench.volume(LEAVES * 512, 2);
    let everywhere: Vec<u64> = (0..LEAVES).map(|leaf| leaf * 512 + 7).collect();
    for round in 0..3 {
        for &at in &everywhere {
            bench.write(volume, at, &[value(at, round); 4096]).unwrap();
        }
        if round == 0 {
            bench.manage(Manage::Drain).unwrap();
        }
    }
    // The ring has records of every leaf; the map log's changes of most of them are in pages.
    let mut bench = Bench::open_with(bench.media, &options()).unwrap();
    let memory = bench.engine.leaf_memory();
    within(memory);
    assert!((memory.leaves as u64) < LEAVES / 2, "{memory:?}");
    for &at in &everywhere {
        let read = bench.read(volume, at, 1).unwrap();
        assert_eq!(read, [value(at, 2); 4096]);
    }
}

/// Each round takes a batch of the map log. With rounds of one slot that log was full before the ring's oldest
/// records were home, and both stayed full.
#[test]
fn a_round_of_destage_waits_for_all_its_leaves() {
    let layouts = [
        Layout::Mirror { copies: 2 },
        Layout::Parity { data: 2, parity: 1 },
    ];
    for layout in layouts {
        let mut bench = bench(layout.drives());
        let volume = bench.volume_as(LEAVES * 512, layout).unwrap();
        let everywhere: Vec<u64> = (0..LEAVES).map(|leaf| leaf * 512 + 7).collect();
        let mut batches = 0;
        for round in 0..3 {
            for &at in &everywhere {
                bench.write(volume, at, &[value(at, round); 4096]).unwrap();
            }
            let before = bench.engine.counters().map_batches;
            bench.manage(Manage::Drain).unwrap();
            batches = bench.engine.counters().map_batches - before;
        }
        // Of the last time: by then all leaves are in pages.
        assert!(batches < LEAVES / 4, "{layout}: {batches} batches");
        for &at in &everywhere {
            let read = bench.read(volume, at, 1).unwrap();
            assert_eq!(read, [value(at, 2); 4096]);
        }
    }
}

fn churn(drives: usize, layout: Layout) {
    let mut bench = bench(drives);
    let granules = LEAVES * 512;
    let volume = bench.volume_as(granules, layout).unwrap();
    let mut expected = vec![0u8; granules as usize];
    let mut next = 1u64;
    let mut chance = || {
        next = next
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        next >> 33
    };
    for round in 0..6 {
        for _ in 0..400 {
            let len = [1, 2, 5, 16, 40][chance() as usize % 5];
            let first = chance() % (granules - len);
            // Whole slots now and then, so that all ways are taken.
            let first = if len == 16 { first / 16 * 16 } else { first };
            if chance() % 10 == 0 {
                bench.clear(volume, first, len as u32).unwrap();
                expected[first as usize..(first + len) as usize].fill(0);
            } else {
                let data: Vec<u8> = (first..first + len)
                    .flat_map(|granule| [value(granule, round); 4096])
                    .collect();
                bench.write(volume, first, &data).unwrap();
                for granule in first..first + len {
                    expected[granule as usize] = value(granule, round);
                }
            }
            within(bench.engine.leaf_memory());
        }
        match round {
            1 => {
                bench.manage(Manage::Drain).unwrap();
            }
            2 => {
                bench.manage(Manage::Scrub).unwrap();
            }
            4 => bench.seen.faults[0].set(Some((|op| op == Operation::Read, ErrorKind::Media))),
            3 => bench = Bench::open_with(bench.media, &options()).unwrap(),
            _ => {}
        }
        for first in (0..granules).step_by(128) {
            let data = bench.read(volume, first, 128).unwrap();
            let range = first as usize..first as usize + 128;
            for (bytes, byte) in data.chunks(4096).zip(&expected[range]) {
                assert!(
                    bytes.iter().all(|b| b == byte),
                    "round {round}, from {first}"
                );
            }
            within(bench.engine.leaf_memory());
        }
    }
    bench.manage(Manage::Drain).unwrap();
    let memory = bench.engine.leaf_memory();
    assert!(
        memory.bytes <= memory.limit_bytes && memory.dirty == 0,
        "{memory:?}"
    );
    let counters = bench.engine.counters();
    assert!(
        counters.evicted > 100 && counters.loaded > 100,
        "{counters:?}"
    );
}
