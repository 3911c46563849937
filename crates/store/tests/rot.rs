//! Which drive it was on which something was bad: what an operator is shown.
#![allow(clippy::unwrap_used)]

mod common;

use ashlar_store::Manage;
use ashlar_store::format::ChunkCopy;
use common::{Bench, small_sizes};

fn fill(granules: usize, value: u8) -> Vec<u8> {
    vec![value; granules * 4096]
}

/// Flips a bit in every granule of a column of so many bytes.
fn spoil(bench: &Bench, copy: ChunkCopy, bytes: u64) {
    let at = small_sizes().extent_at(copy.extent) as usize;
    let mut medium = bench.media[usize::from(copy.drive)].borrow_mut();
    for granule in medium[at..at + bytes as usize].chunks_mut(4096) {
        granule[100] ^= 1;
    }
}

fn bad(bench: &Bench, copy: ChunkCopy) -> u64 {
    let members = bench.engine.status().members;
    let found: u64 = members.iter().map(|one| one.bad_copies).sum();
    assert_eq!(found, bench.engine.counters().bad_copies);
    members[usize::from(copy.drive)].bad_copies
}

#[test]
fn pages_of_the_map_count_for_their_drive() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 0, &fill(16, 1)).unwrap();
    bench.manage(Manage::Settle).unwrap();
    let mut bench = bench.restart();
    let copy = bench.root().meta[0].columns[0];
    // The tables have been read, the leaf has not.
    spoil(&bench, copy, small_sizes().segment_bytes());
    assert_eq!(bench.read(volume, 0, 16).unwrap(), fill(16, 1));
    assert_eq!(bad(&bench, copy), 1);
    // An import reads the tables: each of them is bad.
    let bench = bench.restart();
    let found = bad(&bench, copy);
    assert!(found >= 3, "{found}");
}

#[test]
fn records_of_the_ring_count_for_their_drive() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 3, &fill(1, 1)).unwrap();
    let mut bench = bench.restart();
    let copy = bench.root().ring.chunks[0].copies[0];
    spoil(&bench, copy, small_sizes().chunk_bytes());
    bench.manage(Manage::Settle).unwrap();
    assert_eq!(bad(&bench, copy), 1);
    assert_eq!(bench.read(volume, 3, 1).unwrap(), fill(1, 1));
}
