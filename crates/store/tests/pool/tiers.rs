//! Volumes with a hot home beside their others: what goes where, what moves, and what is refused.

use ashlar_block::ErrorKind;
use ashlar_store::format::DriveClass::{self, Hdd, Nvme};
use ashlar_store::{Grain, HotTier, Layout, Manage, Managed, Share, TierStatus, VolumePlan};

use crate::common::model::{GRANULES, Model};
use crate::common::{Bench, fill, small_sizes};

const PARITY: Layout = Layout::Parity { data: 2, parity: 1 };
const DISKS: Layout = Layout::Mirror { copies: 2 };

fn hot(copies: u8, class: Option<DriveClass>, percent: u8) -> Option<HotTier> {
    Some(HotTier {
        copies,
        class,
        share: Share::of_percent(percent).expect("a share"),
    })
}

fn create(bench: &mut Bench, plan: VolumePlan) -> u32 {
    match bench.manage(Manage::CreateVolume(plan)) {
        Ok(Managed::Volume(number)) => number,
        other => panic!("{other:?}"),
    }
}

/// A volume of parity with a mirror of a fifth on the same drives.
fn tiered(bench: &mut Bench, granules: u64) -> u32 {
    let plan = VolumePlan {
        hot: hot(2, None, 20),
        grain: Some(Grain::K16),
        ..bench.plan(granules, PARITY)
    };
    create(bench, plan)
}

/// A volume of mirrored disks with a mirror of a fifth on flash.
fn over_disks(bench: &mut Bench, granules: u64) -> u32 {
    let plan = VolumePlan {
        class: Some(Hdd),
        hot: hot(2, Some(Nvme), 20),
        ..bench.plan(granules, DISKS)
    };
    create(bench, plan)
}

fn tier(bench: &Bench, volume: u32) -> TierStatus {
    let volumes = bench.engine.volumes();
    let ours = volumes.iter().find(|one| one.number == volume);
    ours.and_then(|one| one.tier).expect("a tier")
}

/// Lets the ring empty itself, and moves go on until none is due.
fn rest(bench: &mut Bench) {
    for _ in 0..40 {
        bench.pass(1_100_000_000);
    }
}

fn model(bench: &mut Bench, volume: u32) -> Model {
    let mut model = Model::new(bench, Layout::Mirror { copies: 1 });
    model.volume = volume;
    model
}

#[test]
fn what_is_written_comes_back_from_either_home_after_restarts() {
    let mut bench = Bench::new(4, 24 << 20);
    let volume = tiered(&mut bench, GRANULES);
    let mut model = model(&mut bench, volume);
    let mut moved = false;
    for round in 0..6 {
        model.churn(&mut bench, 150);
        model.check(&mut bench, &format!("round {round}"));
        rest(&mut bench);
        model.check(&mut bench, &format!("round {round}, at rest"));
        let found = tier(&bench, volume);
        assert!(found.hot_bytes <= found.limit_bytes, "{found:?}");
        moved |= found.tally.promoted_bytes > 0 && found.tally.demoted_bytes > 0;
        if round % 2 == 1 {
            bench.manage(Manage::Drain).expect("settle");
        }
        bench = bench.restart();
        assert_eq!(tier(&bench, volume).hot_bytes, found.hot_bytes);
        model.check(&mut bench, &format!("round {round}, restarted"));
    }
    assert!(moved, "nothing has moved");
    let scrubbed = bench.manage(Manage::Scrub).expect("scrub");
    assert_eq!(scrubbed, Managed::Scrubbed { lost: 0 });
}

#[test]
fn small_writes_go_to_the_mirror_and_whole_slots_do_not() {
    let mut bench = Bench::new(4, 24 << 20);
    let volume = tiered(&mut bench, 4096);
    for slot in 0..32 {
        bench.write(volume, slot * 16, &fill(16, 1)).expect("write");
    }
    rest(&mut bench);
    assert_eq!(tier(&bench, volume).hot_bytes, 0);
    for slot in 0..8 {
        bench
            .write(volume, slot * 16 + 1, &fill(1, 2))
            .expect("write");
    }
    rest(&mut bench);
    let found = tier(&bench, volume);
    assert_eq!(found.hot_bytes, 8 * (16 << 10));
    assert_eq!(found.tally.promoted_bytes, 8 * (16 << 10));
    for slot in 0..32 {
        let read = bench.read(volume, slot * 16, 4).expect("read");
        let second = if slot < 8 { 2 } else { 1 };
        assert_eq!(read[..4096], fill(1, 1)[..], "slot {slot}");
        assert_eq!(read[4096..8192], fill(1, second)[..], "slot {slot}");
    }
    let read = tier(&bench, volume).tally;
    assert_eq!((read.reads, read.hits), (32, 8));
}

#[test]
fn a_mirror_that_fills_up_gives_cold_slots_up_down_to_where_it_stops() {
    let mut bench = Bench::new(4, 24 << 20);
    let volume = tiered(&mut bench, 1600);
    // 400 slots: 80 may be hot, from 72 on some are given up, down to 64.
    assert_eq!(tier(&bench, volume).limit_bytes, 80 * (16 << 10));
    let write = |bench: &mut Bench, slot: u64, value: u8| {
        bench
            .write(volume, slot * 4 + 1, &fill(1, value))
            .expect("write");
    };
    for slot in 0..71 {
        write(&mut bench, slot, 1);
    }
    rest(&mut bench);
    assert_eq!(tier(&bench, volume).hot_bytes, 71 * (16 << 10));
    // These are written again and again: they stay.
    for _ in 0..15 {
        for slot in 0..20 {
            write(&mut bench, slot, 2);
        }
    }
    for slot in 71..100 {
        write(&mut bench, slot, 3);
    }
    rest(&mut bench);
    let found = tier(&bench, volume);
    assert_eq!(found.hot_bytes, 64 * (16 << 10), "{found:?}");
    assert!(
        !found.is_demoting && found.tally.demoted_bytes > 0,
        "{found:?}"
    );
    let before = found.tally;
    for slot in 0..20 {
        let read = bench.read(volume, slot * 4 + 1, 1).expect("read");
        assert_eq!(read, fill(1, 2), "slot {slot}");
    }
    let after = tier(&bench, volume).tally;
    assert_eq!(after.hits - before.hits, 20, "hot slots have left");
    for slot in 20..100 {
        let value = if slot < 71 { 1 } else { 3 };
        let read = bench.read(volume, slot * 4 + 1, 1).expect("read");
        assert_eq!(read, fill(1, value), "slot {slot}");
    }
}

#[test]
fn slots_that_are_read_often_move_to_faster_drives_and_no_others_do() {
    let mut bench = Bench::of_classes(&[Nvme, Nvme, Hdd, Hdd], 24 << 20, small_sizes());
    let volume = over_disks(&mut bench, 2048);
    for slot in 0..60 {
        bench
            .write(volume, slot * 16, &fill(16, slot as u8 + 1))
            .expect("write");
    }
    rest(&mut bench);
    assert_eq!(tier(&bench, volume).hot_bytes, 0);
    for _ in 0..40 {
        for slot in 0..5 {
            let read = bench.read(volume, slot * 16 + 3, 2).expect("read");
            assert_eq!(read, fill(2, slot as u8 + 1));
        }
    }
    // A scan is no sign of anything.
    for _ in 0..3 {
        bench.read(volume, 20 * 16, 128).expect("read");
    }
    rest(&mut bench);
    let found = tier(&bench, volume);
    assert_eq!(found.hot_bytes, 5 * (64 << 10), "{found:?}");
    let moved = found.tally.promoted_bytes;
    let host = found.tally.user_bytes + 40 * 5 * 2 * 4096 + 3 * 128 * 4096;
    assert!(moved * 10 <= host, "{moved} of {host}");
    bench.manage(Manage::Drain).expect("settle");
    let mut bench = bench.restart();
    for slot in 0..60 {
        let read = bench.read(volume, slot * 16 + 3, 2).expect("read");
        assert_eq!(read, fill(2, slot as u8 + 1), "slot {slot}");
    }
    assert_eq!(tier(&bench, volume).tally.hits, 5);
}

/// Where the mirror is on the drives of the others, reads would gain nothing.
#[test]
fn reads_move_nothing_between_drives_of_one_class() {
    let mut bench = Bench::new(4, 24 << 20);
    let volume = tiered(&mut bench, 4096);
    for slot in 0..32 {
        bench.write(volume, slot * 16, &fill(16, 1)).expect("write");
    }
    for _ in 0..40 {
        bench.read(volume, 16, 2).expect("read");
    }
    rest(&mut bench);
    assert_eq!(tier(&bench, volume).hot_bytes, 0);
}

#[test]
fn whole_slots_that_are_hot_stay_on_faster_drives() {
    let mut bench = Bench::of_classes(&[Nvme, Nvme, Hdd, Hdd], 24 << 20, small_sizes());
    let volume = over_disks(&mut bench, 2048);
    bench.write(volume, 16, &fill(2, 1)).expect("write");
    rest(&mut bench);
    assert_eq!(tier(&bench, volume).hot_bytes, 64 << 10);
    bench.seen.writes.borrow_mut().clear();
    for value in 2..6 {
        bench.write(volume, 16, &fill(16, value)).expect("write");
        rest(&mut bench);
        assert_eq!(tier(&bench, volume).hot_bytes, 64 << 10);
    }
    let writes = bench.seen.writes.borrow();
    let disks = writes.iter().filter(|(drive, ..)| *drive >= 2);
    // Roots are on every drive.
    let data = disks.filter(|(_, at, _)| *at >= 256).count();
    assert_eq!(data, 0);
    drop(writes);
    assert_eq!(bench.read(volume, 16, 16).expect("read"), fill(16, 5));
}

#[test]
fn a_volume_that_is_deleted_gives_both_homes_back() {
    let mut bench = Bench::new(4, 24 << 20);
    let volume = tiered(&mut bench, GRANULES);
    let mut model = model(&mut bench, volume);
    model.churn(&mut bench, 200);
    rest(&mut bench);
    assert!(tier(&bench, volume).hot_bytes > 0);
    bench
        .manage(Manage::DeleteVolume { volume })
        .expect("delete");
    bench.manage(Manage::Drain).expect("settle");
    let hot = |bench: &Bench| {
        let homes = bench.engine.status().homes;
        homes.iter().any(|home| home.hot_of.is_some())
    };
    let used = |bench: &Bench| -> u64 {
        let homes = bench.engine.status().homes;
        homes.iter().map(|home| home.used_bytes).sum()
    };
    assert_eq!(used(&bench), 0);
    rest(&mut bench);
    assert!(!hot(&bench), "its mirror's segments are still there");
    let mut bench = bench.restart();
    assert_eq!(used(&bench), 0);
    assert!(!hot(&bench), "its mirror's segments are still there");
    tiered(&mut bench, GRANULES);
}

#[test]
fn a_smaller_volume_keeps_less_hot() {
    let mut bench = Bench::new(4, 24 << 20);
    let volume = tiered(&mut bench, 1600);
    for slot in 0..70 {
        bench
            .write(volume, slot * 4 + 1, &fill(1, 1))
            .expect("write");
    }
    rest(&mut bench);
    let granules = 400;
    bench
        .manage(Manage::ResizeVolume { volume, granules })
        .expect("resize");
    rest(&mut bench);
    let found = tier(&bench, volume);
    assert_eq!(found.limit_bytes, 20 * (16 << 10));
    assert!(found.hot_bytes <= 16 * (16 << 10), "{found:?}");
    for slot in 0..70 {
        let read = bench.read(volume, slot * 4 + 1, 1).expect("read");
        assert_eq!(read, fill(1, 1), "slot {slot}");
    }
}

#[test]
fn a_lost_drive_is_made_again_in_both_homes() {
    let mut bench = Bench::new(5, 32 << 20);
    let volume = tiered(&mut bench, GRANULES);
    let mut model = model(&mut bench, volume);
    model.churn(&mut bench, 200);
    rest(&mut bench);
    for lost in [1, 3] {
        bench.seen.faults[lost].set(Some((|_| true, ErrorKind::Media)));
        model.check(&mut bench, "reads fail");
        model.churn(&mut bench, 100);
        bench.manage(Manage::Repair).expect("repair");
        rest(&mut bench);
        model.check(&mut bench, "made again");
        bench.manage(Manage::Drain).expect("settle");
        model.check(&mut bench, "settled");
    }
    assert!(!bench.engine.status().degraded);
}

/// What cannot be read is not moved: another copy may come back, or a scrub may mend it.
#[test]
fn a_cold_slot_that_cannot_be_read_stays_where_it_is() {
    let mut bench = Bench::new(4, 24 << 20);
    let volume = tiered(&mut bench, 400);
    for slot in 0..17 {
        bench
            .write(volume, slot * 4 + 1, &fill(1, slot as u8 + 1))
            .expect("write");
    }
    rest(&mut bench);
    let wanted = fill(1, 1);
    let places = bench.places(&wanted);
    // The ring may have it too.
    assert!(places.len() >= 2, "{places:?}");
    bench.seen.unreadable.borrow_mut().extend(&places);
    for slot in 17..40 {
        bench
            .write(volume, slot * 4 + 1, &fill(1, slot as u8 + 1))
            .expect("write");
    }
    rest(&mut bench);
    bench.seen.unreadable.borrow_mut().clear();
    for slot in 0..40 {
        let read = bench.read(volume, slot * 4 + 1, 1).expect("read");
        assert_eq!(read, fill(1, slot as u8 + 1), "slot {slot}");
    }
}

#[test]
fn hot_homes_that_make_no_sense_are_refused() {
    let mut bench = Bench::of_classes(&[Nvme, Nvme, Hdd, Hdd, Hdd], 24 << 20, small_sizes());
    let stripe = Layout::Stripe { columns: 2 };
    let cases = [
        (stripe, Some(Hdd), hot(2, Some(Nvme), 20), "passed through"),
        (PARITY, Some(Hdd), hot(1, Some(Nvme), 20), "weaker part"),
        (PARITY, Some(Hdd), hot(5, Some(Nvme), 20), "1 to 4 copies"),
        (
            PARITY,
            Some(Hdd),
            hot(3, Some(Nvme), 20),
            "needs 3 drives of class nvme",
        ),
        (
            PARITY,
            Some(Hdd),
            hot(2, Some(DriveClass::Ssd), 20),
            "class ssd",
        ),
        (
            DISKS,
            Some(Hdd),
            hot(2, None, 20),
            "no faster than mirror:2 on class hdd",
        ),
        (
            DISKS,
            Some(Hdd),
            hot(2, Some(Hdd), 20),
            "no faster than mirror:2 on class hdd",
        ),
        (
            DISKS,
            Some(Nvme),
            hot(2, Some(Hdd), 20),
            "no faster than mirror:2 on class nvme",
        ),
    ];
    for (layout, class, hot, why) in cases {
        let plan = VolumePlan {
            class,
            hot,
            ..bench.plan(1024, layout)
        };
        let refused = bench.manage(Manage::CreateVolume(plan));
        let text = refused.expect_err(why).to_string();
        assert!(text.contains(why), "{text}");
    }
    let cache = VolumePlan {
        class: Some(Hdd),
        hot: hot(2, Some(Nvme), 20),
        is_cache: true,
        ..bench.plan(1024, PARITY)
    };
    assert!(bench.manage(Manage::CreateVolume(cache)).is_err());
    over_disks(&mut bench, 1024);
}

/// A drive that the hot home needs is not taken out.
#[test]
fn a_drive_that_the_mirror_needs_stays() {
    let mut bench = Bench::of_classes(&[Nvme, Nvme, Hdd, Hdd, Hdd], 24 << 20, small_sizes());
    over_disks(&mut bench, 1024);
    let refused = bench.manage(Manage::RemoveDrive { member: 0 });
    let text = refused.expect_err("needed").to_string();
    assert!(text.contains("1 drives of class nvme"), "{text}");
    bench
        .manage(Manage::RemoveDrive { member: 2 })
        .expect("spare");
}

/// The mirror has no room at all: what is written is there all the same.
#[test]
fn drives_of_the_mirror_that_are_full_stop_nothing() {
    let mut bench = Bench::of_classes(&[Nvme, Nvme, Hdd, Hdd], 24 << 20, small_sizes());
    bench.class = Some(Nvme);
    let fast = bench.volume_as(16 << 10, DISKS).expect("a volume");
    let full = (0..1024).find_map(|slot| bench.write(fast, slot * 16, &fill(16, 1)).err());
    assert!(full.is_some());
    bench.manage(Manage::Drain).expect("settle");
    let volume = over_disks(&mut bench, 2048);
    for slot in 0..60 {
        bench
            .write(volume, slot * 16 + 5, &fill(1, slot as u8 + 1))
            .expect("write");
    }
    rest(&mut bench);
    assert_eq!(tier(&bench, volume).hot_bytes, 0);
    for slot in 0..60 {
        let read = bench.read(volume, slot * 16 + 5, 1).expect("read");
        assert_eq!(read, fill(1, slot as u8 + 1), "slot {slot}");
    }
}

/// What cannot be read now may be read, or mended, later: a slot with such a block stays where it is, also when something
/// else of it is written.
#[test]
fn a_slot_does_not_move_away_from_a_block_that_cannot_be_read() {
    let classes = [Hdd, Hdd, Nvme, Nvme];
    let mut bench = Bench::of_classes(&classes, 24 << 20, small_sizes());
    let volume = over_disks(&mut bench, 4096);
    let mut cold = fill(16, 1);
    cold[5 * 4096..6 * 4096].fill(99);
    bench.write(volume, 0, &cold).expect("write");
    rest(&mut bench);
    bench.manage(Manage::Drain).expect("settle");
    assert_eq!(tier(&bench, volume).hot_bytes, 0);
    let copies = bench.places(&fill(1, 99));
    assert_eq!(copies.len(), 2);
    bench.seen.unreadable.borrow_mut().extend(copies);
    bench.write(volume, 9, &fill(1, 98)).expect("write");
    rest(&mut bench);
    bench.manage(Manage::Drain).expect("settle");
    assert_eq!(bench.read(volume, 9, 1).expect("read"), fill(1, 98));
    assert!(bench.read(volume, 5, 1).is_err(), "not now");
    bench.seen.unreadable.borrow_mut().clear();
    assert_eq!(bench.read(volume, 5, 1).expect("read"), fill(1, 99));
}
