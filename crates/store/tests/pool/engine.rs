//! The engine on drives that do no wrong.

use crate::common::{Bench, pattern};
use ashlar_block::ErrorKind;
use ashlar_store::format::Root;
use ashlar_store::{Layout, Manage, Managed, PoolError, Sizes, VolumePlan, sizes};

#[test]
fn what_is_written_is_read_also_after_a_restart() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(1024, 2);
    bench.write(volume, 5, &pattern(1, 1)).unwrap();
    bench.write(volume, 14, &pattern(5, 2)).unwrap();
    bench.write(volume, 64, &pattern(32, 3)).unwrap();
    bench.write(volume, 66, &pattern(2, 4)).unwrap();
    let check = |bench: &mut Bench| {
        assert_eq!(bench.read(volume, 5, 1).unwrap(), pattern(1, 1));
        assert_eq!(bench.read(volume, 14, 5).unwrap(), pattern(5, 2));
        let mut expected = pattern(32, 3);
        expected[2 * 4096..4 * 4096].copy_from_slice(&pattern(2, 4));
        assert_eq!(bench.read(volume, 64, 32).unwrap(), expected);
        assert_eq!(bench.read(volume, 0, 5).unwrap(), vec![0; 5 * 4096]);
    };
    check(&mut bench);
    let mut bench = bench.restart();
    check(&mut bench);
    bench.manage(Manage::Drain).unwrap();
    check(&mut bench);
    let mut bench = bench.restart();
    check(&mut bench);
    bench.clear(volume, 64, 16).unwrap();
    bench.clear(volume, 5, 1).unwrap();
    assert_eq!(bench.read(volume, 64, 16).unwrap(), vec![0; 16 * 4096]);
    let mut bench = bench.restart();
    assert_eq!(bench.read(volume, 64, 16).unwrap(), vec![0; 16 * 4096]);
    assert_eq!(bench.read(volume, 5, 1).unwrap(), vec![0; 4096]);
    assert_eq!(bench.read(volume, 15, 4).unwrap(), pattern(5, 2)[4096..]);
}

#[test]
fn the_logs_go_round() {
    let mut bench = Bench::new(3, 64 << 20);
    let volume = bench.volume(2048, 2);
    for round in 0..40u8 {
        for i in 0..64u64 {
            bench
                .write(volume, i * 31 % 2000, &pattern(3, round ^ i as u8))
                .unwrap();
        }
        bench.write(volume, 1024, &pattern(64, round)).unwrap();
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
            pattern(3, 39 ^ i as u8),
            "{i}"
        );
    }
}

#[test]
fn a_full_pool_says_so_and_recovers() {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume(16384, 2);
    let mut written = 0;
    while bench.write(volume, written * 16, &pattern(16, 1)).is_ok() {
        written += 1;
    }
    assert!(written > 64, "{written} slots");
    // What has a home can still be overwritten; nothing is lost.
    bench.write(volume, 0, &pattern(16, 9)).unwrap();
    bench.write(volume, 33, &pattern(2, 9)).unwrap();
    assert_eq!(bench.read(volume, 0, 16).unwrap(), pattern(16, 9));
    assert!(
        bench
            .write(volume, written * 16 + 3, &pattern(1, 1))
            .is_err()
    );
    bench.clear(volume, 160, 160).unwrap();
    bench.write(volume, written * 16, &pattern(16, 2)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    assert_eq!(
        bench.read(volume, written * 16, 16).unwrap(),
        pattern(16, 2)
    );
    assert_eq!(bench.read(volume, 33, 2).unwrap(), pattern(2, 9));
}

#[test]
fn volumes_come_and_go() {
    let mut bench = Bench::new(2, 16 << 20);
    for _ in 0..40 {
        let volume = bench.volume(1024, 2);
        bench.write(volume, 0, &pattern(64, 1)).unwrap();
        bench.write(volume, 100, &pattern(3, 1)).unwrap();
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
    bench.write(volume, 1000, &pattern(16, 1)).unwrap();
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
    assert_eq!(bench.read(volume, 1000, 1).unwrap(), pattern(1, 1));
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
            grain: None,
            stops: false,
            class: None,
            is_cache: false,
            hot: None,
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

/// The newest root that a drive holds.
fn root_of(medium: &crate::common::Medium) -> Root {
    let medium = medium.borrow();
    let roots = sizes::ROOT_AT.iter().filter_map(|&at| {
        let bytes = &medium[at as usize..(at + sizes::ROOT_BYTES) as usize];
        Root::decode(bytes, crate::common::SALT).ok()
    });
    roots.max_by_key(|root| root.generation).unwrap()
}

/// Damages block `block` (4 KiB) of the ring's tail chunk on every copy.
fn damage_ring(bench: &Bench, block: usize) {
    let root = root_of(&bench.media[0]);
    let sizes = crate::common::small_sizes();
    let chunk = (root.ring.tail_at / sizes.chunk_bytes()) as usize % root.ring.chunks.len();
    for copy in &root.ring.chunks[chunk].copies {
        let offset = root.ring.tail_at % sizes.chunk_bytes();
        let at = (sizes.extent_at(copy.extent) + offset) as usize + block * 4096;
        bench.media[usize::from(copy.drive)].borrow_mut()[at + 100] ^= 0x40;
    }
}

#[test]
fn a_hole_in_a_log_is_damage_and_its_end_is_not() {
    let write_three = || {
        let mut bench = Bench::new(2, 16 << 20);
        let volume = bench.volume(1024, 2);
        for i in 0..3 {
            bench.write(volume, i * 20, &pattern(1, i as u8)).unwrap();
        }
        (bench, volume)
    };
    // Each of these batches is a block of metadata and one of data.
    let (bench, _) = write_three();
    damage_ring(&bench, 2);
    let before: Vec<Vec<u8>> = bench
        .media
        .iter()
        .map(|medium| medium.borrow().clone())
        .collect();
    let error = Bench::try_open(bench.media.clone(), false).err().unwrap();
    assert!(matches!(error, PoolError::Damaged(_)), "{error}");
    assert!(
        bench
            .media
            .iter()
            .zip(before)
            .all(|(medium, old)| *medium.borrow() == old)
    );
    // The last one may have been torn before it was acknowledged: the log ends there.
    let (bench, volume) = write_three();
    damage_ring(&bench, 4);
    let mut bench = bench.restart();
    assert_eq!(bench.read(volume, 20, 1).unwrap(), pattern(1, 1));
    assert_eq!(bench.read(volume, 40, 1).unwrap(), vec![0; 4096]);
    // It was the newest batch of an earlier term: now it must be there.
    let (bench, _) = write_three();
    let bench = bench.restart();
    damage_ring(&bench, 4);
    assert!(matches!(
        Bench::try_open(bench.media, false),
        Err(PoolError::Damaged(_))
    ));
}

#[test]
fn members_that_are_missing_are_left_out_for_good() {
    let mut bench = Bench::new(3, 16 << 20);
    let volume = bench.volume(1024, 2);
    bench.write(volume, 0, &pattern(64, 1)).unwrap();
    bench.write(volume, 70, &pattern(3, 2)).unwrap();
    let media = bench.media.clone();
    assert!(matches!(
        Bench::try_open(media[..1].to_vec(), false),
        Err(PoolError::Refused(_))
    ));
    // Two of three may go on, and give everything its copies back.
    let mut rest = Bench::try_open(media[..2].to_vec(), false).unwrap();
    rest.pass(1);
    rest.manage(Manage::Drain).unwrap();
    assert_eq!(rest.read(volume, 0, 64).unwrap(), pattern(64, 1));
    rest.write(volume, 0, &pattern(4, 5)).unwrap();
    assert!(!rest.engine.status().degraded, "{:?}", rest.engine.status());
    // The third is old now; with it or without it, the others are right.
    let mut all = Bench::try_open(media.clone(), false).unwrap();
    assert_eq!(all.read(volume, 0, 4).unwrap(), pattern(4, 5));
    assert_eq!(all.read(volume, 70, 3).unwrap(), pattern(3, 2));
    assert!(Bench::try_open(media[2..].to_vec(), false).is_err());
}

#[test]
fn drives_are_added_and_emptied() {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume(1024, 2);
    bench.write(volume, 0, &pattern(64, 1)).unwrap();
    assert!(bench.manage(Manage::RemoveDrive { member: 0 }).is_err());
    bench.add_drive(16 << 20);
    bench.manage(Manage::RemoveDrive { member: 0 }).unwrap();
    bench.pass(1);
    bench.manage(Manage::Drain).unwrap();
    bench.pass(1);
    let status = bench.engine.status();
    assert!(
        !status.members[0].in_service && !status.degraded,
        "{status:?}"
    );
    let media = bench.media[1..].to_vec();
    let mut bench = Bench::try_open(media, false).unwrap();
    assert_eq!(bench.read(volume, 0, 64).unwrap(), pattern(64, 1));
}

#[test]
fn a_scrub_mends_what_is_bad() {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume(1024, 2);
    bench.write(volume, 0, &pattern(64, 1)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    // Noise over all homes of the second drive.
    let written = pattern(64, 1);
    {
        let mut medium = bench.media[1].borrow_mut();
        for at in (0..medium.len()).step_by(4096) {
            if (0..64).any(|i| medium[at..at + 4096] == written[i * 4096..(i + 1) * 4096]) {
                medium[at..at + 4096].fill(0xA5);
            }
        }
    }
    assert_eq!(
        bench.manage(Manage::Scrub).unwrap(),
        Managed::Scrubbed { lost: 0 }
    );
    let counters = bench.engine.counters();
    assert_eq!((counters.repaired, counters.lost), (64, 0), "{counters:?}");
    let mut alone = Bench::try_open(bench.media[1..].to_vec(), true).unwrap();
    assert_eq!(alone.read(volume, 0, 64).unwrap(), pattern(64, 1));
}

#[test]
fn a_pool_survives_a_hundred_restarts_with_a_write_each() {
    // Logs so large that a hundred batches give no other reason to write a root: each import begins
    // a term, and a root has room for 64.
    let sizes = Sizes {
        ring_chunks: 32,
        map_chunks: 32,
        ..crate::common::small_sizes()
    };
    let mut bench = Bench::with_sizes(2, 64 << 20, sizes);
    let volume = bench.volume(1024, 2);
    for round in 0..100u8 {
        bench
            .write(volume, u64::from(round), &pattern(1, round))
            .unwrap();
        bench = bench.restart();
    }
    for round in 0..100u8 {
        assert_eq!(
            bench.read(volume, u64::from(round), 1).unwrap(),
            pattern(1, round)
        );
    }
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume(2048, 2);
    bench.write(volume, 1024, &pattern(64, 1)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    let resize = |granules| Manage::ResizeVolume { volume, granules };
    bench.manage(resize(1000)).unwrap();
    let mut bench = bench.restart();
    bench.pass(1);
    bench.manage(resize(2048)).unwrap();
    assert_eq!(bench.read(volume, 1024, 64).unwrap(), vec![0; 64 * 4096]);
}

#[test]
fn a_scrub_mends_the_map_too() {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume(1024, 2);
    bench.write(volume, 0, &pattern(64, 1)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    // Noise over the metadata of the second drive.
    let root = root_of(&bench.media[1]);
    let sizes = crate::common::small_sizes();
    for column in root.meta.iter().flat_map(|segment| &segment.columns) {
        if column.drive == 1 {
            let at = sizes.extent_at(column.extent) as usize;
            bench.media[1].borrow_mut()[at..at + sizes.segment_bytes() as usize].fill(0xA5);
        }
    }
    let mut bench = bench.restart();
    assert_eq!(
        bench.manage(Manage::Scrub).unwrap(),
        Managed::Scrubbed { lost: 0 }
    );
    let mut alone = Bench::try_open(bench.media[1..].to_vec(), true).unwrap();
    assert_eq!(alone.read(volume, 0, 64).unwrap(), pattern(64, 1));
}

#[test]
fn a_lost_last_copy_takes_nothing_else_with_it() {
    let mut bench = Bench::new(3, 16 << 20);
    let volume = bench.volume(2048, 1);
    for slot in 0..64 {
        bench
            .write(volume, slot * 16, &pattern(16, slot as u8))
            .unwrap();
    }
    bench.manage(Manage::Drain).unwrap();
    bench.seen.faults[2].set(Some((|_| true, ErrorKind::Media)));
    let lost: Vec<u64> = (0..64)
        .filter(|slot| bench.read(volume, slot * 16, 1).is_err())
        .collect();
    assert!(!lost.is_empty() && lost.len() < 64, "{lost:?}");
    // What is acknowledged from here on is there, wherever its slot was.
    for slot in 0..64u64 {
        bench
            .write(volume, slot * 16 + 3, &pattern(1, 200))
            .unwrap();
    }
    bench.manage(Manage::Drain).unwrap();
    for slot in 0..64u64 {
        assert_eq!(
            bench.read(volume, slot * 16 + 3, 1).unwrap(),
            pattern(1, 200),
            "{slot}"
        );
    }
    let written: Vec<u64> = (64..96)
        .filter(|slot| bench.write(volume, slot * 16, &pattern(16, 9)).is_ok())
        .collect();
    assert!(!written.is_empty());
    for slot in written {
        assert_eq!(bench.read(volume, slot * 16, 16).unwrap(), pattern(16, 9));
    }
}

#[test]
fn a_rebuild_goes_on_under_a_constant_load() {
    let mut bench = Bench::new(3, 64 << 20);
    let granules = 4096;
    let volume = bench.volume(granules, 2);
    for slot in 0..granules / 16 {
        bench
            .write(volume, slot * 16, &pattern(16, slot as u8))
            .unwrap();
    }
    // The ring is so full that it is always being emptied.
    bench.run_loaded((volume, granules), 2000, |engine| engine.log_fill().0 > 0.3);
    bench.seen.faults[0].set(Some((
        |op| matches!(op, ashlar_block::Operation::Write(_)),
        ErrorKind::Media,
    )));
    bench.run_loaded((volume, granules), 200, |engine| {
        !engine.losses().is_empty()
    });
    let whole = |engine: &ashlar_store::Engine| {
        let status = engine.status();
        !status.rebuilding && status.walk.is_none()
    };
    assert!(bench.run_loaded((volume, granules), 20_000, whole));
    assert_eq!(bench.engine.losses().len(), 1);
}
