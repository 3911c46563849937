//! The engine on drives that do no wrong.
#![allow(clippy::unwrap_used)]

mod common;

use ashlar_store::{Layout, Manage, Managed, VolumePlan};
use common::Bench;

fn fill(granules: usize, seed: u8) -> Vec<u8> {
    (0..granules * 4096)
        .map(|i| (i / 4096) as u8 ^ seed.wrapping_add((i % 251) as u8))
        .collect()
}

#[test]
fn what_is_written_is_read_also_after_a_restart() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(1024, 2);
    bench.write(volume, 5, &fill(1, 1)).unwrap();
    bench.write(volume, 14, &fill(5, 2)).unwrap();
    bench.write(volume, 64, &fill(32, 3)).unwrap();
    bench.write(volume, 66, &fill(2, 4)).unwrap();
    let check = |bench: &mut Bench| {
        assert_eq!(bench.read(volume, 5, 1).unwrap(), fill(1, 1));
        assert_eq!(bench.read(volume, 14, 5).unwrap(), fill(5, 2));
        let mut expected = fill(32, 3);
        expected[2 * 4096..4 * 4096].copy_from_slice(&fill(2, 4));
        assert_eq!(bench.read(volume, 64, 32).unwrap(), expected);
        assert_eq!(bench.read(volume, 0, 5).unwrap(), vec![0; 5 * 4096]);
    };
    check(&mut bench);
    let mut bench = bench.restart();
    check(&mut bench);
    bench.manage(Manage::Settle).unwrap();
    check(&mut bench);
    let mut bench = bench.restart();
    check(&mut bench);
    bench.clear(volume, 64, 16).unwrap();
    bench.clear(volume, 5, 1).unwrap();
    assert_eq!(bench.read(volume, 64, 16).unwrap(), vec![0; 16 * 4096]);
    let mut bench = bench.restart();
    assert_eq!(bench.read(volume, 64, 16).unwrap(), vec![0; 16 * 4096]);
    assert_eq!(bench.read(volume, 5, 1).unwrap(), vec![0; 4096]);
    assert_eq!(bench.read(volume, 15, 4).unwrap(), fill(5, 2)[4096..]);
}

#[test]
fn the_logs_go_round() {
    let mut bench = Bench::new(3, 64 << 20);
    let volume = bench.volume(2048, 2);
    for round in 0..40u8 {
        for i in 0..64u64 {
            bench
                .write(volume, i * 31 % 2000, &fill(3, round ^ i as u8))
                .unwrap();
        }
        bench.write(volume, 1024, &fill(64, round)).unwrap();
        if round % 8 == 7 {
            let counters = bench.engine.counters();
            assert!(
                counters.destaged > 100 && counters.roots > 0,
                "{counters:?}"
            );
            bench = bench.restart();
        }
    }
    for i in (0..64u64).rev().take(5) {
        assert_eq!(
            bench.read(volume, i * 31 % 2000, 3).unwrap(),
            fill(3, 39 ^ i as u8),
            "{i}"
        );
    }
}

#[test]
fn a_full_pool_says_so_and_recovers() {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume(16384, 2);
    let mut written = 0;
    while bench.write(volume, written * 16, &fill(16, 1)).is_ok() {
        written += 1;
    }
    assert!(written > 64, "{written} slots");
    // What has a home can still be overwritten; nothing is lost.
    bench.write(volume, 0, &fill(16, 9)).unwrap();
    bench.write(volume, 33, &fill(2, 9)).unwrap();
    assert_eq!(bench.read(volume, 0, 16).unwrap(), fill(16, 9));
    assert!(bench.write(volume, written * 16 + 3, &fill(1, 1)).is_err());
    bench.clear(volume, 160, 160).unwrap();
    bench.write(volume, written * 16, &fill(16, 2)).unwrap();
    bench.manage(Manage::Settle).unwrap();
    let mut bench = bench.restart();
    assert_eq!(bench.read(volume, written * 16, 16).unwrap(), fill(16, 2));
    assert_eq!(bench.read(volume, 33, 2).unwrap(), fill(2, 9));
}

#[test]
fn volumes_come_and_go() {
    let mut bench = Bench::new(2, 16 << 20);
    for _ in 0..40 {
        let volume = bench.volume(1024, 2);
        bench.write(volume, 0, &fill(64, 1)).unwrap();
        bench.write(volume, 100, &fill(3, 1)).unwrap();
        assert_eq!(
            bench.manage(Manage::DeleteVolume { volume }).unwrap(),
            Managed::Done
        );
        assert!(bench.read(volume, 0, 1).is_err());
        bench.pass(10);
    }
    assert!(bench.engine.volumes().is_empty());
    let volume = bench.volume(512, 1);
    bench
        .manage(Manage::ResizeVolume {
            volume,
            granules: 1024,
        })
        .unwrap();
    bench.write(volume, 1000, &fill(16, 1)).unwrap();
    bench
        .manage(Manage::ResizeVolume {
            volume,
            granules: 1001,
        })
        .unwrap();
    assert!(bench.read(volume, 1001, 1).is_err());
    bench
        .manage(Manage::ResizeVolume {
            volume,
            granules: 1024,
        })
        .unwrap();
    assert_eq!(bench.read(volume, 1001, 15).unwrap(), vec![0; 15 * 4096]);
    assert_eq!(bench.read(volume, 1000, 1).unwrap(), fill(1, 1));
}

#[test]
fn nonsense_is_refused() {
    let mut bench = Bench::new(2, 16 << 20);
    let plan = |name: &str, granules, copies| {
        Manage::CreateVolume(VolumePlan {
            name: name.into(),
            uuid: uuid::Uuid::nil(),
            granules,
            layout: Layout::Mirror { copies },
        })
    };
    for bad in [
        plan("", 1, 2),
        plan("a/b", 1, 2),
        plan("a", 0, 2),
        plan("a", 1, 3),
        plan("a", 1, 0),
    ] {
        assert!(bench.manage(bad).is_err());
    }
    bench.manage(plan("a", 1, 2)).unwrap();
    assert!(bench.manage(plan("a", 1, 2)).is_err());
    assert!(bench.manage(Manage::DeleteVolume { volume: 99 }).is_err());
    assert!(bench.read(16, 1, 1).is_err());
}
