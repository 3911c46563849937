//! Volumes that survive more losses than the pool's logs did: the logs are copied more often first.

mod common;

use ashlar_block::ErrorKind;
use ashlar_store::{Layout, Manage};
use common::Bench;

fn fill(granules: usize, value: u8) -> Vec<u8> {
    vec![value; granules * 4096]
}

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
    bench.manage(Manage::Settle).expect("settle");
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
