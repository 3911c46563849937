//! Drives of several classes: logs and map on the fastest, homes where their volume says.

use std::collections::BTreeSet;

use ashlar_block::{ErrorKind, Operation};
use ashlar_store::format::DriveClass::{self, Hdd, Nvme};
use ashlar_store::{Grain, Layout, Manage, VolumePlan};

use crate::common::{Bench, fill, small_sizes};

const MIRROR: Layout = Layout::Mirror { copies: 2 };

fn bench(classes: &[DriveClass]) -> Bench {
    Bench::of_classes(classes, 24 << 20, small_sizes())
}

fn volume(bench: &mut Bench, layout: Layout, class: Option<DriveClass>) -> u32 {
    bench.class = class;
    bench.volume_as(16 << 10, layout).expect("a volume")
}

/// Drives that homes of volumes are on.
fn homes(bench: &Bench) -> BTreeSet<usize> {
    let members = bench.engine.status().members;
    let with = members
        .iter()
        .enumerate()
        .filter(|(_, one)| one.holds_homes);
    with.map(|(drive, _)| drive).collect()
}

/// Drives that a log or the map is on.
fn logs_and_map(bench: &Bench) -> BTreeSet<u16> {
    let root = bench.root();
    let chunks = root.ring.chunks.iter().chain(&root.map.chunks);
    let chunks = chunks.flat_map(|chunk| &chunk.copies);
    let map = root.meta.iter().flat_map(|segment| &segment.columns);
    chunks.chain(map).map(|copy| copy.drive).collect()
}

fn write_some(bench: &mut Bench, volume: u32, slots: u64) {
    for slot in 0..slots {
        bench
            .write(volume, slot * 16, &fill(16, slot as u8 + 1))
            .expect("write");
    }
}

fn check(bench: &mut Bench, volume: u32, slots: u64) {
    for slot in 0..slots {
        let read = bench.read(volume, slot * 16 + 3, 2).expect("read");
        assert_eq!(read, fill(2, slot as u8 + 1), "slot {slot}");
    }
}

#[test]
fn homes_lie_where_their_volume_says_and_logs_on_the_fastest() {
    let mut bench = bench(&[Hdd, Nvme, Hdd, Nvme, Hdd]);
    let slow = volume(&mut bench, MIRROR, Some(Hdd));
    write_some(&mut bench, slow, 20);
    bench.manage(Manage::Drain).expect("settle");
    assert!(homes(&bench).is_subset(&BTreeSet::from([0, 2, 4])));
    assert_eq!(logs_and_map(&bench), BTreeSet::from([1, 3]));
    let fast = volume(&mut bench, MIRROR, Some(Nvme));
    write_some(&mut bench, fast, 20);
    let mut bench = bench.restart();
    for one in [slow, fast] {
        check(&mut bench, one, 20);
    }
    let shown = bench.engine.volumes();
    assert_eq!(
        shown.iter().map(|one| one.class).collect::<Vec<_>>(),
        [Some(Hdd), Some(Nvme)]
    );
    assert_eq!(
        homes(&bench).intersection(&BTreeSet::from([1, 3])).count(),
        2
    );
}

#[test]
fn a_volume_that_names_no_class_gets_the_roomiest_that_can_hold_it() {
    let mut mixed = bench(&[Nvme, Nvme, Hdd, Hdd, Hdd]);
    volume(&mut mixed, MIRROR, None);
    assert_eq!(mixed.engine.volumes()[0].class, Some(Hdd));
    let mut narrow = bench(&[Nvme, Nvme, Hdd]);
    volume(&mut narrow, MIRROR, None);
    assert_eq!(narrow.engine.volumes()[0].class, Some(Nvme));
    let mut plain = bench(&[Nvme, Nvme]);
    volume(&mut plain, MIRROR, None);
    assert_eq!(plain.engine.volumes()[0].class, None);
}

/// Strips of 16 KiB and more: an arm takes as long to come to small ones.
#[test]
fn parity_on_disks_has_large_slots_if_no_others_are_said() {
    let parity = Layout::Parity { data: 2, parity: 1 };
    let grain = |classes: &[DriveClass], class, wanted| {
        let mut bench = bench(classes);
        bench.class = class;
        let made = bench.volume_of(16, parity, wanted);
        made.expect("a volume");
        let bench = bench.restart();
        bench.engine.volumes()[0].grain
    };
    let mixed = [Nvme, Nvme, Nvme, Hdd, Hdd, Hdd];
    for (classes, class, wanted, expected) in [
        (&mixed[..], Some(Hdd), None, Grain::K64),
        (&mixed, Some(Hdd), Some(Grain::K16), Grain::K16),
        (&mixed, Some(Nvme), None, Grain::K8),
        (&[Hdd; 3], None, None, Grain::K64),
        (&[Nvme; 3], None, None, Grain::K8),
    ] {
        let found = grain(classes, class, wanted);
        assert_eq!(found, Some(expected), "{classes:?} {class:?} {wanted:?}");
    }
    let bench = bench(&[Hdd; 5]);
    let homes = bench.engine.status().homes.into_iter();
    let mut shown = homes.filter(|home| home.layout == Layout::Parity { data: 4, parity: 1 });
    let shown = shown.next().expect("what it could hold");
    assert_eq!(shown.grain, Grain::K64, "as such a volume would be made");
}

#[test]
fn too_few_drives_and_too_little_room_are_said_of_the_class() {
    let mut bench = bench(&[Nvme, Nvme, Nvme, Hdd, Hdd]);
    bench.class = Some(Hdd);
    let wide = Layout::Parity { data: 2, parity: 1 };
    let refused = bench.volume_as(16, wide).expect_err("two disks");
    let why = "parity:2+1 needs 3 drives of class hdd, the pool has 2";
    assert!(refused.to_string().contains(why), "{refused}");
    let refused = bench.manage(Manage::CreateVolume(VolumePlan {
        class: Some(DriveClass::Ssd),
        is_cache: false,
        ..bench.plan(16, MIRROR)
    }));
    assert!(refused.expect_err("none").to_string().contains("class ssd"));
    let slow = volume(&mut bench, MIRROR, Some(Hdd));
    let full = (0..1024).find_map(|slot| bench.write(slow, slot * 16, &fill(16, 1)).err());
    let full = full.expect("24 MiB are full");
    assert_eq!(full.kind(), ErrorKind::NoSpace);
    assert!(full.to_string().contains("class hdd are full"), "{full}");
    let fast = volume(&mut bench, MIRROR, Some(Nvme));
    write_some(&mut bench, fast, 50);
    let refused = bench.manage(Manage::RemoveDrive { member: 3 });
    let refused = refused.expect_err("it holds a copy").to_string();
    assert!(refused.contains("1 drives of class hdd"), "{refused}");
}

#[test]
fn a_stripe_lies_on_its_class() {
    let mut bench = bench(&[Nvme, Nvme, Hdd, Hdd]);
    bench.class = Some(Hdd);
    let layout = Layout::Stripe { columns: 2 };
    let striped = bench.volume_as(1024, layout).expect("a stripe");
    write_some(&mut bench, striped, 8);
    let used = |drive: usize| bench.engine.status().members[drive].used_bytes;
    assert!(used(2) > 0 && used(3) > 0);
    let refused = bench.volume_as(16, Layout::Stripe { columns: 3 });
    assert!(refused.is_err());
}

/// Repair keeps to the class, whatever room there is on others.
#[test]
fn what_is_lost_comes_back_on_the_same_class_or_not_at_all() {
    let mut bench = bench(&[Nvme, Nvme, Nvme, Hdd, Hdd, Hdd]);
    let slow = volume(&mut bench, MIRROR, Some(Hdd));
    write_some(&mut bench, slow, 30);
    bench.manage(Manage::Drain).expect("settle");
    for (lost, left) in [(3, [4, 5].as_slice()), (4, &[5])] {
        let fails = |op: Operation| op != Operation::Read;
        bench.seen.faults[lost].set(Some((fails, ErrorKind::Media)));
        bench.write(slow, 16 * 16, &fill(16, 17)).expect("write");
        bench.manage(Manage::Repair).expect("repair");
        bench.manage(Manage::Drain).expect("settle");
        bench.manage(Manage::Scrub).expect("scrub");
        check(&mut bench, slow, 30);
        assert_eq!(bench.engine.is_degraded(), left.len() < 2);
        let on = homes(&bench);
        assert!(left.iter().all(|drive| on.contains(drive)), "{on:?}");
        assert!(on.iter().all(|&drive| drive >= 3), "{on:?}");
    }
    bench.new_class = Nvme;
    bench.add_drive(24 << 20);
    bench.manage(Manage::Repair).expect("repair");
    bench.manage(Manage::Scrub).expect("scrub");
    assert!(bench.engine.is_degraded());
    bench.new_class = Hdd;
    bench.add_drive(24 << 20);
    bench.manage(Manage::Repair).expect("repair");
    bench.manage(Manage::Scrub).expect("scrub");
    assert!(!bench.engine.is_degraded());
    check(&mut bench.restart(), slow, 30);
}
