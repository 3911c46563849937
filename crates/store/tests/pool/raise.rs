//! Volumes that survive more losses than the pool's logs did: the logs are copied more often first.

use crate::common::{Bench, fill};
use ashlar_block::ErrorKind;
use ashlar_store::{Grain, Layout, Manage};

/// Writes, loses drives one after the other, and finds everything every time.
fn survives(layout: Layout, drives: usize) {
    let mut bench = Bench::new(drives, 16 << 20);
    let plain = bench.volume(512, 2);
    for slot in 0..20 {
        bench
            .write(plain, slot * 16 + 3, &fill(5, 1))
            .expect("write");
    }
    assert_eq!(bench.engine.status().log_copies, 2);
    let volume = bench.volume_as(512, layout).expect("create");
    assert_eq!(bench.engine.status().log_copies, layout.survives() + 1);
    assert!(!bench.engine.status().degraded);
    for slot in 0..20 {
        bench.write(volume, slot * 16, &fill(16, 2)).expect("whole");
        bench
            .write(volume, slot * 16 + 4, &fill(3, 3))
            .expect("part");
    }
    let check = |bench: &mut Bench, what: &str| {
        for slot in 0..20 {
            let read = bench.read(volume, slot * 16 + 2, 4).expect(what);
            assert_eq!(read, [fill(2, 2), fill(2, 3)].concat(), "{what}: {slot}");
        }
    };
    check(&mut bench, "all there");
    let mut bench = bench.restart();
    assert_eq!(bench.engine.status().log_copies, layout.survives() + 1);
    for lost in 0..usize::from(layout.survives()) {
        bench.seen.faults[lost].set(Some((|_| true, ErrorKind::Media)));
        bench.write(volume, 400, &fill(1, 9)).expect("goes on");
        check(&mut bench, "lost");
    }
    bench.manage(Manage::Drain).expect("settle");
    check(&mut bench, "settled");
    // With fewer drives than it should have, its space is still known.
    let homes = bench.engine.status().homes;
    let home = homes.iter().find(|home| home.layout == layout);
    assert!(home.is_some_and(|home| home.used_bytes > 0), "{homes:?}");
}

#[test]
fn a_mirror_of_three_survives_two_losses() {
    survives(Layout::Mirror { copies: 3 }, 5);
    survives(Layout::Mirror { copies: 3 }, 3);
}

#[test]
fn two_columns_of_parity_survive_two_losses() {
    survives(Layout::Parity { data: 3, parity: 2 }, 5);
}

#[test]
fn a_pool_of_one_drive_grows_up() {
    let mut bench = Bench::new(1, 16 << 20);
    let volume = bench.volume(512, 1);
    bench.write(volume, 0, &fill(16, 1)).expect("write");
    assert!(bench.volume_as(64, Layout::Mirror { copies: 2 }).is_err());
    bench.add_drive(16 << 20);
    let second = bench.volume_as(64, Layout::Mirror { copies: 2 });
    let second = second.expect("create");
    assert_eq!(bench.engine.status().log_copies, 2);
    bench.write(second, 5, &fill(1, 2)).expect("write");
    let mut bench = bench.restart();
    assert_eq!(bench.read(second, 5, 1).expect("read"), fill(1, 2));
    assert_eq!(bench.read(volume, 0, 16).expect("read"), fill(16, 1));
}

#[test]
fn without_room_for_the_copies_it_is_refused_and_nothing_hangs() {
    let mut bench = Bench::new(3, 16 << 20);
    let volume = bench.volume(16_384, 2);
    let mut written = 0;
    while bench.write(volume, written * 16, &fill(16, 1)).is_ok() {
        written += 1;
    }
    let third = bench.volume_as(64, Layout::Mirror { copies: 3 });
    let error = third.expect_err("no room").to_string();
    assert!(error.contains("3 copies of the pool's logs"), "{error}");
    assert_eq!(bench.read(volume, 0, 16).expect("read"), fill(16, 1));
    bench.write(volume, 0, &fill(3, 2)).expect("overwrite");
}

/// Copies of every log chunk, by the newest root.
fn chunk_copies(bench: &Bench) -> Vec<usize> {
    let root = bench.root();
    let chunks = root.ring.chunks.iter().chain(&root.map.chunks);
    chunks.map(|chunk| chunk.copies.len()).collect()
}

const THREE: Layout = Layout::Mirror { copies: 3 };

/// Two losses would take both copies of a chunk that has but two.
#[test]
fn copies_of_some_chunks_are_not_enough_however_often_it_is_asked() {
    let mut partly = 0;
    for extents in 16..100 {
        let mut bench = Bench::new(2, 16 << 20);
        bench.add_drive(extents << 16);
        if bench.volume_as(64, THREE).is_ok() {
            assert_eq!(chunk_copies(&bench), [3; 8], "{extents}");
            continue;
        }
        let copies = chunk_copies(&bench);
        partly += usize::from(copies.contains(&3) && copies.contains(&2));
        let error = bench.volume_as(64, THREE).expect_err("still no room");
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{extents}: {error}");
        // What the logs do survive is promised.
        bench
            .volume_as(64, Layout::Mirror { copies: 2 })
            .expect("two");
    }
    assert!(partly > 5, "{partly}");
}

/// A volume that is refused takes nothing from those that there are.
#[test]
fn logs_that_were_cut_short_by_losses_grow_again_with_the_drives() {
    let mut bench = Bench::new(3, 16 << 20);
    let volume = bench.volume_as(64, THREE).expect("create");
    // Room for pages of the map, and for no chunk.
    bench.add_drive(3 << 20);
    let four = bench.volume_as(64, Layout::Mirror { copies: 4 });
    assert_eq!(four.expect_err("no room").kind(), ErrorKind::NoSpace);
    for lost in [1, 2] {
        bench.seen.faults[lost].set(Some((|_| true, ErrorKind::Media)));
        bench.write(volume, 0, &fill(1, 9)).expect("goes on");
    }
    for copies in [2, 3] {
        bench.add_drive(16 << 20);
        bench.manage(Manage::Drain).expect("settle");
        assert_eq!(chunk_copies(&bench), [copies; 8]);
    }
}

/// What the map has left, the newest root still names when the last page has moved.
#[test]
fn a_large_map_that_is_not_in_memory_is_raised() {
    let mut bench = Bench::new(3, 64 << 20);
    let small = Some(Grain::K8);
    let volume = bench.volume_of(1 << 20, Layout::Mirror { copies: 2 }, small);
    let volume = volume.expect("create");
    let places: Vec<u64> = (0..1000).map(|leaf| leaf * 1000).collect();
    for places in places.chunks(100) {
        bench.write_at_once(volume, places, &fill(1, 1));
    }
    bench.manage(Manage::Drain).expect("settle");
    let mut bench = bench.restart();
    bench.manage(Manage::Drain).expect("settle");
    bench.volume_as(64, THREE).expect("create");
    assert!(bench.engine.counters().loaded > 3 * 256);
}
