//! Pass-through volumes.

use crate::common::{Bench, pattern};
use ashlar_block::{Durability, ErrorKind, Moment, Operation};
use ashlar_store::{Event, Layout, Manage, Managed, Outbox, Status, VolumePlan};

const STRIPE2: Layout = Layout::Stripe { columns: 2 };
const STRIPE3: Layout = Layout::Stripe { columns: 3 };
const ZEROES: Operation = Operation::WriteZeroes {
    durability: Durability::Durable,
    deallocate: false,
};
const DRIVE: usize = 32 << 20;

fn used(bench: &Bench) -> Vec<u64> {
    let status: Status = bench.engine.status();
    status.members.iter().map(|m| m.used_bytes).collect()
}

/// A pool whose own map has its space already.
fn pool() -> Bench {
    let mut bench = Bench::new(2, 16 << 20);
    let volume = bench.volume_as(2500, STRIPE2).unwrap();
    // Old data everywhere, which must not show.
    for first in (0..2500).step_by(250) {
        bench.write(volume, first, &pattern(250, 6)).unwrap();
    }
    bench.manage(Manage::DeleteVolume { volume }).unwrap();
    bench.manage(Manage::Drain).unwrap();
    bench
}

fn plan(granules: u64, layout: Layout) -> Manage {
    Manage::CreateVolume(VolumePlan {
        name: "fast".into(),
        uuid: uuid::Uuid::from_u128(9),
        granules,
        layout,
        grain: None,
        stops: false,
        class: None,
        is_cache: false,
        hot: None,
    })
}

fn trouble(bench: &Bench, volume: u32) -> Option<String> {
    let volumes = bench.engine.volumes().into_iter();
    let mut found = volumes.filter(|info| info.number == volume);
    found.next().unwrap().trouble
}

/// What is asked all the time, by hosts and by who watches, walks over no segments.
#[test]
fn neither_commands_nor_the_status_look_at_all_segments() {
    let mut bench = Bench::new(3, DRIVE);
    let volume = bench.volume_as(800, STRIPE3).unwrap();
    let before = bench.engine.segment_steps();
    bench.write(volume, 5, &pattern(2, 1)).unwrap();
    assert_eq!(bench.read(volume, 5, 2).unwrap(), pattern(2, 1));
    let status = bench.engine.status();
    let taken: u64 = status.members.iter().map(|m| m.used_bytes).sum();
    assert!(status.stripes.used_bytes > 0 && status.stripes.used_bytes < taken);
    assert_eq!(
        bench.engine.volumes()[0].used_bytes,
        status.stripes.used_bytes
    );
    assert_eq!(bench.engine.segment_steps(), before);
}

#[test]
fn what_is_written_is_in_place_and_stays() {
    let mut bench = Bench::new(3, DRIVE);
    // Two segments of 3 x 16 slots, the second one a little.
    let volume = bench.volume_as(800, STRIPE3).unwrap();
    let geometry = bench.engine.geometry(volume).unwrap();
    assert_eq!((geometry.blocks, geometry.atomic_blocks), (800, 1));
    assert!(!geometry.volatile_cache);
    let data = pattern(256, 1);
    bench.write(volume, 5, &data).unwrap();
    bench.write(volume, 760, &pattern(40, 2)).unwrap();
    bench.write(volume, 70, &pattern(1, 3)).unwrap();
    let check = |bench: &mut Bench| {
        let mut expected = data.clone();
        expected[65 * 4096..66 * 4096].copy_from_slice(&pattern(1, 3));
        assert_eq!(bench.read(volume, 5, 256).unwrap(), expected);
        assert_eq!(bench.read(volume, 760, 40).unwrap(), pattern(40, 2));
        assert_eq!(bench.read(volume, 261, 240).unwrap(), vec![0; 240 * 4096]);
        assert!(bench.read(volume, 799, 2).is_err());
    };
    check(&mut bench);
    let mut bench = bench.restart();
    check(&mut bench);
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    check(&mut bench);
    // No log, and each chunk once, on the next drive each time.
    let chunk = |n: usize| &data[(16 * n - 5) * 4096..][..65536];
    let holders = |n: usize| -> Vec<usize> {
        let holds = |i: &usize| {
            let medium = bench.media[*i].borrow();
            medium.chunks_exact(65536).any(|slot| slot == chunk(n))
        };
        (0..3).filter(holds).collect()
    };
    assert_eq!([holders(1), holders(2), holders(3)], [[1], [2], [0]]);
}

#[test]
fn zeroes_and_deallocations_are_passed_on() {
    let mut bench = Bench::new(2, DRIVE);
    let volume = bench.volume_as(1500, STRIPE2).unwrap();
    for first in (0..1500).step_by(250) {
        bench.write(volume, first, &pattern(250, 7)).unwrap();
    }
    bench.without_data(volume, ZEROES, 20, 1001).unwrap();
    assert_eq!(bench.read(volume, 20, 250).unwrap(), vec![0; 250 * 4096]);
    assert_eq!(bench.read(volume, 771, 250).unwrap(), vec![0; 250 * 4096]);
    assert_eq!(
        bench.read(volume, 19, 1).unwrap(),
        pattern(20, 7)[19 * 4096..]
    );
    assert_eq!(
        bench.read(volume, 1021, 1).unwrap(),
        pattern(22, 7)[21 * 4096..]
    );
    bench.seen.log.borrow_mut().clear();
    bench.clear(volume, 0, 64).unwrap();
    bench.without_data(volume, Operation::Flush, 0, 0).unwrap();
    let mut log = bench.seen.log.borrow().clone();
    log.sort_by_key(|&(drive, op)| (op == Operation::Flush, drive));
    let (deallocate, flush) = (Operation::Deallocate, Operation::Flush);
    assert_eq!(
        log,
        [(0, deallocate), (1, deallocate), (0, flush), (1, flush)]
    );
    // A drive that cannot zero gets zeroes.
    let unable = |op| matches!(op, Operation::WriteZeroes { .. });
    bench.seen.faults[1].set(Some((unable, ErrorKind::Unsupported)));
    bench.write(volume, 500, &pattern(250, 8)).unwrap();
    bench.without_data(volume, ZEROES, 501, 400).unwrap();
    assert_eq!(bench.read(volume, 501, 249).unwrap(), vec![0; 249 * 4096]);
    assert_eq!(bench.read(volume, 500, 1).unwrap(), pattern(1, 8));
    let another = bench.volume_as(700, STRIPE2).unwrap();
    assert_eq!(bench.read(another, 450, 250).unwrap(), vec![0; 250 * 4096]);
}

#[test]
fn space_is_taken_at_once_and_comes_back() {
    let mut bench = pool();
    let before = used(&bench);
    for round in 0..30u8 {
        let volume = bench.volume_as(1024, STRIPE2).unwrap();
        let taken: Vec<u64> = before.iter().map(|bytes| bytes + (2 << 20)).collect();
        assert_eq!(used(&bench), taken, "two segments of 1 MiB on each");
        assert_eq!(bench.read(volume, 300, 200).unwrap(), vec![0; 200 * 4096]);
        bench.write(volume, 300, &pattern(200, round)).unwrap();
        bench.manage(Manage::DeleteVolume { volume }).unwrap();
        assert!(bench.read(volume, 0, 1).is_err());
        if round % 5 == 0 {
            bench = bench.restart();
        }
        assert_eq!(used(&bench), before, "round {round}");
    }
    let refused = bench.volume_as(8192, STRIPE2).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    assert_eq!(used(&bench), before);
    assert!(bench.engine.volumes().is_empty());
    for columns in [0, 3, 9] {
        assert!(bench.volume_as(16, Layout::Stripe { columns }).is_err());
    }
    // Mirrors find the space again, too.
    let mirror = bench.volume(512, 2);
    bench.write(mirror, 0, &pattern(256, 4)).unwrap();
    let mut bench = bench.restart();
    assert_eq!(bench.read(mirror, 0, 256).unwrap(), pattern(256, 4));
}

#[test]
fn sizes_change_and_nothing_old_shows() {
    let mut bench = Bench::new(3, DRIVE);
    let volume = bench.volume_as(600, STRIPE2).unwrap();
    let before = used(&bench);
    let resize = |bench: &mut Bench, granules| {
        let what = Manage::ResizeVolume { volume, granules };
        bench.manage(what).map(|_| ())
    };
    bench.write(volume, 400, &pattern(200, 1)).unwrap();
    resize(&mut bench, 2000).unwrap();
    bench.write(volume, 1800, &pattern(200, 2)).unwrap();
    assert!(resize(&mut bench, 100_000).is_err(), "no room");
    let mut bench = bench.restart();
    assert_eq!(bench.read(volume, 400, 200).unwrap(), pattern(200, 1));
    assert_eq!(bench.read(volume, 1800, 200).unwrap(), pattern(200, 2));
    resize(&mut bench, 500).unwrap();
    assert!(bench.read(volume, 500, 1).is_err());
    assert!(used(&bench).iter().sum::<u64>() < before.iter().sum());
    resize(&mut bench, 2000).unwrap();
    assert_eq!(bench.read(volume, 400, 100).unwrap(), pattern(100, 1));
    assert_eq!(bench.read(volume, 500, 256).unwrap(), vec![0; 256 * 4096]);
    assert_eq!(bench.read(volume, 1800, 200).unwrap(), vec![0; 200 * 4096]);
    let mut bench = bench.restart();
    resize(&mut bench, 600).unwrap();
    // On which drives an import puts the map's next segment depends on what is there then.
    let sum = |used: Vec<u64>| used.iter().sum::<u64>();
    assert_eq!(sum(used(&bench)), sum(before));
    bench.manage(Manage::DeleteVolume { volume }).unwrap();
    assert!(bench.engine.volumes().is_empty());
}

#[test]
fn space_waits_for_what_is_under_way() {
    let base = used(&pool());
    let mut bench = with_stripe();
    let taken = used(&bench);
    let buffer = ashlar_block::BufferPool::new(1 << 20)
        .get(16 * 4096)
        .unwrap();
    let range = ashlar_block::BlockRange::new(984, 16);
    let request = ashlar_block::Request::write(7, range, buffer, Durability::Cached);
    bench
        .seen
        .held
        .set(Some(|op| op == Operation::Write(Durability::Cached)));
    let volume = 17;
    let (done, _) = bench.run(Event::Command { volume, request });
    assert!(done.is_empty());
    // Behind the end from now on, and then gone altogether; but a drive still writes there.
    let shrink = Manage::ResizeVolume {
        volume,
        granules: 400,
    };
    bench.manage(shrink.clone()).unwrap();
    assert_eq!(used(&bench), taken);
    assert!(bench.manage(shrink).is_err(), "one after the other");
    bench.manage(Manage::DeleteVolume { volume }).unwrap();
    bench.pass(10);
    assert_eq!(used(&bench), taken);
    bench.seen.held.set(None);
    let (done, _) = bench.run(Event::Tick);
    assert!(done[0].result.is_ok() && done[0].tag == 7);
    assert_eq!(used(&bench), base);
}

/// Dies after every number of requests to drives; `check` sees the pool after the restart, and
/// whether the wish had been granted.
fn cut_everywhere(prepare: fn() -> Bench, what: &Manage, check: impl Fn(&mut Bench, bool)) {
    for budget in 0.. {
        assert!(budget < 400, "it never ends");
        let mut bench = prepare();
        let answer = bench.manage_cut(what.clone(), budget);
        let granted = answer.map(|answer| answer.unwrap()).is_some();
        let left = bench.budget.unwrap() > 0;
        let mut bench = bench.restart();
        bench.pass(10);
        check(&mut bench, granted);
        // And once more, with whatever the first import did.
        let mut bench = bench.restart();
        check(&mut bench, granted);
        if granted && left {
            return;
        }
    }
}

fn with_stripe() -> Bench {
    let mut bench = pool();
    let volume = bench.volume_as(1000, STRIPE2).unwrap();
    assert_eq!(volume, 17);
    bench.write(volume, 0, &pattern(256, 5)).unwrap();
    bench
}

#[test]
fn a_crash_leaves_a_whole_volume_or_none() {
    let base = used(&pool());
    cut_everywhere(pool, &plan(1500, STRIPE2), |bench, granted| {
        let volumes = bench.engine.volumes();
        let taken: Vec<u64> = base.iter().map(|bytes| bytes + (3 << 20)).collect();
        assert!(volumes.len() == 1 || !granted);
        assert_eq!(
            used(bench),
            if volumes.is_empty() {
                base.clone()
            } else {
                taken
            }
        );
        if let Some(volume) = volumes.first() {
            assert_eq!(trouble(bench, volume.number), None);
            for first in (0..1500).step_by(250) {
                let read = bench.read(volume.number, first, 250).unwrap();
                assert_eq!(read, vec![0; 250 * 4096], "{first}");
            }
            bench.write(volume.number, 1400, &pattern(100, 0)).unwrap();
            bench
                .without_data(volume.number, ZEROES, 1400, 100)
                .unwrap();
        } else {
            // The number is free again, and no part of the first try gets into the second.
            let volume = bench.volume_as(700, STRIPE2).unwrap();
            assert_eq!(bench.read(volume, 600, 100).unwrap(), vec![0; 100 * 4096]);
            bench.manage(Manage::DeleteVolume { volume }).unwrap();
            assert_eq!(used(bench), base);
        }
    });
}

#[test]
fn a_crash_between_the_records_of_a_large_volume_leaves_none_of_it() {
    // Its segments' records fill more than one batch, so that some are there without the volume.
    const SINGLE: Layout = Layout::Stripe { columns: 1 };
    let fresh = || {
        let mut bench = Bench::new(1, 64 << 20);
        let volume = bench.volume(16, 1);
        bench.write(volume, 0, &pattern(3, 1)).unwrap();
        bench.manage(Manage::Drain).unwrap();
        bench
    };
    let base = used(&fresh());
    cut_everywhere(fresh, &plan(45 * 256, SINGLE), |bench, granted| {
        let volumes = bench.engine.volumes();
        let found = volumes.iter().find(|volume| volume.name == "fast");
        let taken = if found.is_some() { 45 << 20 } else { 0 };
        assert_eq!(used(bench), [base[0] + taken]);
        match found.map(|volume| volume.number) {
            Some(volume) => assert_eq!(bench.read(volume, 11_519, 1).unwrap(), vec![0; 4096]),
            None => assert!(!granted),
        }
    });
}

#[test]
fn a_crash_leaves_one_size_or_the_other() {
    let base = used(&with_stripe());
    for granules in [400, 2000] {
        let what = Manage::ResizeVolume {
            volume: 17,
            granules,
        };
        cut_everywhere(with_stripe, &what, |bench, granted| {
            let volume = bench.engine.volumes().remove(0);
            assert!([1000, granules].contains(&volume.granules));
            assert!(volume.granules == granules || !granted);
            let parts = volume.granules.div_ceil(512) << 20;
            let expected: Vec<u64> = base.iter().map(|b| b - (2 << 20) + parts).collect();
            assert_eq!(used(bench), expected);
            assert_eq!(bench.read(17, 0, 256).unwrap(), pattern(256, 5));
            let end = volume.granules - 100;
            assert_eq!(bench.read(17, end, 100).unwrap(), vec![0; 100 * 4096]);
        });
    }
}

#[test]
fn a_crash_leaves_a_deletion_that_goes_on() {
    let base = used(&pool());
    let what = Manage::DeleteVolume { volume: 17 };
    cut_everywhere(with_stripe, &what, |bench, granted| {
        match bench.engine.volumes().first() {
            None => assert_eq!(used(bench), base),
            Some(volume) => {
                assert!(!granted && !volume.deleting);
                assert_eq!(bench.read(17, 0, 256).unwrap(), pattern(256, 5));
            }
        }
    });
}

#[test]
fn errors_are_those_of_the_blocks_affected() {
    let mut bench = Bench::new(3, DRIVE);
    let volume = bench.volume_as(960, STRIPE3).unwrap();
    bench.write(volume, 0, &pattern(96, 1)).unwrap();
    let read = |op| op == Operation::Read;
    bench.seen.faults[1].set(Some((read, ErrorKind::Media)));
    assert_eq!(bench.read(volume, 0, 16).unwrap(), pattern(16, 1));
    let error = bench.read(volume, 8, 16).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Media);
    let write = |op| op == Operation::Write(Durability::Cached);
    bench.seen.faults[1].set(Some((write, ErrorKind::Media)));
    assert!(bench.write(volume, 16, &pattern(1, 2)).is_err());
    bench.write(volume, 32, &pattern(1, 2)).unwrap();
    bench.seen.faults[1].set(None);
    bench.write(volume, 16, &pattern(1, 2)).unwrap();
    assert_eq!(bench.read(volume, 16, 1).unwrap(), pattern(1, 2));
    // None of this has cost the pool its drive.
    assert!(bench.engine.losses().is_empty());
    assert_eq!(trouble(&bench, volume), None);
}

#[test]
fn a_failed_flush_is_never_forgotten() {
    let mut bench = Bench::new(3, DRIVE);
    let (volume, mirror) = (bench.volume_as(960, STRIPE3).unwrap(), bench.volume(960, 2));
    bench.write(volume, 0, &pattern(96, 1)).unwrap();
    let flush = |op| op == Operation::Flush;
    bench.seen.faults[0].set(Some((flush, ErrorKind::Media)));
    let error = bench.without_data(volume, Operation::Flush, 0, 0);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Media);
    bench.seen.faults[0].set(None);
    for error in [
        bench.without_data(volume, Operation::Flush, 0, 0),
        bench.write(volume, 900, &pattern(1, 1)),
        bench.read(volume, 16, 1).map(|_| ()),
    ] {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Latched);
    }
    assert!(trouble(&bench, volume).unwrap().contains("flush"));
    // The same flush spoke for pages and homes on that drive: it is out, and mirrors go on.
    assert_eq!(bench.engine.losses()[0].0, 0);
    bench.write(mirror, 3, &pattern(20, 3)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    assert_eq!(bench.read(mirror, 3, 20).unwrap(), pattern(20, 3));
    bench.manage(Manage::DeleteVolume { volume }).unwrap();
    assert_eq!(bench.engine.volumes().len(), 1);
}

#[test]
fn a_lost_drive_takes_its_blocks_along() {
    let mut bench = Bench::new(3, DRIVE);
    let volume = bench.volume_as(960, STRIPE3).unwrap();
    let mirror = bench.volume(960, 2);
    bench.write(volume, 0, &pattern(96, 1)).unwrap();
    for member in 0..3 {
        let error = bench.manage(Manage::RemoveDrive { member }).unwrap_err();
        assert!(error.context().contains("v1"), "{error}");
    }
    bench.seen.faults[2].set(Some((|_| true, ErrorKind::Disconnected)));
    bench.write(mirror, 0, &pattern(3, 1)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    let check = |bench: &mut Bench| {
        assert!(trouble(bench, volume).unwrap().contains("(2)"));
        assert_eq!(trouble(bench, mirror), None);
        assert_eq!(bench.read(volume, 0, 32).unwrap(), pattern(32, 1));
        assert!(bench.read(volume, 32, 1).is_err());
        assert!(bench.write(volume, 32, &pattern(1, 1)).is_err());
        bench
            .write(volume, 16, &pattern(32, 1)[16 * 4096..])
            .unwrap();
    };
    check(&mut bench);
    bench.wipe(2);
    let mut bench = bench.restart();
    check(&mut bench);
    let grow = Manage::ResizeVolume {
        volume,
        granules: 990,
    };
    assert!(bench.manage(grow).is_err());
    assert!(bench.without_data(volume, Operation::Flush, 0, 0).is_err());
    bench.manage(Manage::DeleteVolume { volume }).unwrap();
    assert_eq!(bench.read(mirror, 0, 3).unwrap(), pattern(3, 1));
}

/// What it does when a copy is missing is told while it is being given another size: the one must not
/// be taken for the end of the other, which would free what the volume is about to reach into.
#[test]
fn an_order_to_go_on_does_not_end_a_resize() {
    let mut bench = pool();
    let Managed::Volume(volume) = bench.manage(plan(100, STRIPE2)).unwrap() else {
        panic!("no volume");
    };
    let (what, now) = (
        Manage::SetStops {
            volume,
            stops: false,
        },
        Moment::ORIGIN,
    );
    let mut out = Outbox::default();
    bench
        .engine
        .post(now, Event::Manage { id: 1077, what }, &mut out);
    let granules = 2000;
    let what = Manage::ResizeVolume { volume, granules };
    let (_, managed) = bench.run(Event::Manage { id: 1078, what });
    assert!(
        managed.iter().all(|(_, answer)| answer.is_ok()),
        "{managed:?}"
    );
    let data = pattern(100, 3);
    bench.write(volume, 1900, &data).unwrap();
    let mut bench = bench.restart();
    assert_eq!(bench.read(volume, 1900, 100).unwrap(), data);
}
