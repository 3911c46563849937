//! Which drive it was on which something was bad: what an operator is shown.

use crate::common::{Bench, fill, small_sizes};
use ashlar_block::{BufferPool, Durability, Operation};
use ashlar_store::format::ChunkCopy;
use ashlar_store::{Event, Grain, Layout, Manage, Managed};

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
    bench.manage(Manage::Drain).unwrap();
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
    bench.manage(Manage::Drain).unwrap();
    assert_eq!(bad(&bench, copy), 1);
    assert_eq!(bench.read(volume, 3, 1).unwrap(), fill(1, 1));
}

#[test]
fn granules_that_are_lost_count_for_every_drive_that_had_them() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 0, &fill(16, 5)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    let places = bench.places(&fill(1, 5));
    for &(drive, block) in places.iter().filter(|(drive, _)| *drive < 2) {
        bench.media[drive].borrow_mut()[block as usize * 4096] ^= 1;
    }
    let found = bench.manage(Manage::Scrub).unwrap();
    assert!(matches!(found, Managed::Scrubbed { lost: 16 }), "{found:?}");
    let copy = |drive| ChunkCopy { drive, extent: 0 };
    assert_eq!([bad(&bench, copy(0)), bad(&bench, copy(1))], [16, 16]);
}

/// How far a scrub has come is remembered without a flush: what it has mended must not be in a cache.
#[test]
fn what_a_scrub_mends_is_durable() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 0, &fill(16, 1)).unwrap();
    bench.write(volume, 3, &fill(1, 2)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    // The ring's copies come first on each drive.
    let &(drive, block) = bench.places(&fill(1, 2)).last().unwrap();
    bench.media[drive].borrow_mut()[block as usize * 4096] ^= 1;
    bench.seen.writes.borrow_mut().clear();
    bench.manage(Manage::Scrub).unwrap();
    let writes = bench.seen.writes.borrow().clone();
    let mends = writes.iter().filter(|w| (w.0, w.1) == (drive, block));
    let mends: Vec<Operation> = mends.map(|w| w.2).collect();
    assert_eq!(mends, [Operation::Write(Durability::Durable)]);
    assert_eq!(bench.engine.counters().repaired, 1);
}

/// The map may still be on its way when everything else was read: a crash then must not make it good.
#[test]
fn a_scrub_is_not_over_before_the_map_is_written_anew() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 0, &fill(16, 1)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    // Pages of the map take their time, roots do not.
    let is_page: crate::common::Rule = |op| op == Operation::Write(Durability::Cached);
    bench.seen.held.set(Some(is_page));
    let what = Manage::Scrub;
    let (_, managed) = bench.run(Event::Manage { id: 900, what });
    assert!(managed.is_empty(), "{managed:?}");
    assert_eq!(bench.engine.walk_progress(), None, "the walk is over");
    let mut bench = bench.restart();
    bench.pass(0);
    assert_eq!(bench.engine.counters().scrubs, 1, "gone on with");
    assert_eq!(bench.root().scrub, None);
    let mut bench = bench.restart();
    bench.pass(0);
    assert_eq!(bench.engine.counters().scrubs, 0, "done");
}

/// An import reads many pages together. What it has no memory to read is not bad.
#[test]
fn a_page_that_there_is_no_memory_to_read_is_not_bad() {
    let mut bench = Bench::new(2, 64 << 20);
    let small = Some(Grain::K8);
    let volume = bench.volume_of(1 << 20, Layout::Mirror { copies: 2 }, small);
    let volume = volume.unwrap();
    let places: Vec<u64> = (0..500).map(|leaf| leaf * 1000).collect();
    for places in places.chunks(100) {
        bench.write_at_once(volume, places, &fill(1, 1));
    }
    bench.manage(Manage::Drain).unwrap();
    // Records of all these pages, which are read to have them applied.
    for places in places.chunks(100) {
        bench.write_at_once(volume, places, &fill(2, 1));
    }
    let media = bench.media;
    // Another user has all but a few buffers, here and there.
    let buffers = BufferPool::new(8 << 20);
    let mut others: Vec<_> = std::iter::from_fn(|| buffers.get(1 << 20)).collect();
    for at in [5, 3, 1] {
        others.remove(at);
    }
    let mut bench = Bench::open_short(media, buffers).unwrap();
    assert_eq!(bench.engine.counters().bad_copies, 0);
    assert_eq!(bench.read(volume, 499_000, 2).unwrap(), fill(2, 1));
}
