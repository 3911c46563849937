//! Volumes with slots of every size.

use crate::common::model::{GRANULES, Model};
use crate::common::{Bench, small_sizes};
use ashlar_block::Operation;
use ashlar_store::{Grain, Layout, Manage, Managed, Sizes};

const fn parity(data: u8, parity: u8) -> Layout {
    Layout::Parity { data, parity }
}

const MIRROR: Layout = Layout::Mirror { copies: 2 };

const EACH: [(Layout, Grain); 9] = [
    (MIRROR, Grain::K8),
    (MIRROR, Grain::K16),
    (MIRROR, Grain::K32),
    (parity(2, 1), Grain::K8),
    (parity(2, 1), Grain::K64),
    (parity(4, 1), Grain::K16),
    (parity(4, 1), Grain::K64),
    (parity(4, 2), Grain::K32),
    (parity(5, 2), Grain::K16),
];

/// Bytes written to drives, and how many writes that took, since the log was emptied.
fn written(bench: &Bench) -> usize {
    let log = bench.seen.log.borrow();
    let is_write = |op: &Operation| matches!(op, Operation::Write(_));
    log.iter().filter(|(_, op)| is_write(op)).count()
}

fn grain_of(bench: &Bench, volume: u32) -> Option<Grain> {
    let volumes = bench.engine.volumes().into_iter();
    let mut found = volumes.filter(|info| info.number == volume);
    found.next().expect("a volume").grain
}

#[test]
fn what_is_written_comes_back_after_restarts() {
    for (layout, grain) in EACH {
        let what = format!("{layout} of {grain}");
        let mut bench = Bench::new(layout.drives(), 16 << 20);
        let mut model = Model::of(&mut bench, layout, Some(grain));
        for round in 0..4 {
            model.churn(&mut bench, 120);
            model.check(&mut bench, &format!("{what}, round {round}"));
            if round % 2 == 1 {
                bench.manage(Manage::Drain).expect("settle");
                model.check(&mut bench, &format!("{what}, settled"));
            }
            bench = bench.restart();
            model.check(&mut bench, &format!("{what}, restarted"));
            assert_eq!(grain_of(&bench, model.volume), Some(grain), "{what}");
        }
        let Ok(Managed::Scrubbed { lost: 0 }) = bench.manage(Manage::Scrub) else {
            panic!("{what}: something is lost");
        };
        assert_eq!(bench.engine.counters().bad_copies, 0, "{what}");
    }
}

#[test]
fn volumes_of_every_grain_share_a_pool_and_give_their_space_back() {
    let mut bench = Bench::new(3, 32 << 20);
    let drawn = [
        (MIRROR, Grain::K8),
        (MIRROR, Grain::K64),
        (parity(2, 1), Grain::K8),
        (parity(2, 1), Grain::K16),
    ];
    let mut models: Vec<Model> = drawn
        .iter()
        .map(|&(layout, grain)| Model::of(&mut bench, layout, Some(grain)))
        .collect();
    for round in 0..3 {
        for model in &mut models {
            model.churn(&mut bench, 60);
        }
        for (model, what) in models.iter().zip(drawn) {
            model.check(&mut bench, &format!("{what:?}, round {round}"));
        }
        bench = bench.restart();
    }
    for model in &models {
        let volume = model.volume;
        bench
            .manage(Manage::DeleteVolume { volume })
            .expect("delete");
    }
    bench.manage(Manage::Drain).expect("settle");
    let homes = bench.engine.status().homes;
    assert_eq!(homes.iter().map(|home| home.used_bytes).sum::<u64>(), 0);
    bench = bench.restart();
    let homes = bench.engine.status().homes;
    assert_eq!(homes.iter().map(|home| home.used_bytes).sum::<u64>(), 0);
}

#[test]
fn a_drive_of_small_slots_may_be_lost() {
    for (layout, grain) in EACH {
        let what = format!("{layout} of {grain}");
        // Half of a pool of two would not be let in.
        let mut bench = Bench::new(layout.drives().max(3), 16 << 20);
        let mut model = Model::of(&mut bench, layout, Some(grain));
        model.churn(&mut bench, 100);
        bench.manage(Manage::Drain).expect("settle");
        let media = bench.media.clone();
        for missing in 0..media.len() {
            let left = media.iter().enumerate();
            let left = left.filter(|(drive, _)| *drive != missing);
            let left = left.map(|(_, medium)| {
                std::rc::Rc::new(std::cell::RefCell::new(medium.borrow().clone()))
            });
            let mut bench = Bench::open(left.collect());
            let mut model = model.clone();
            model.check(&mut bench, &format!("{what}, drive {missing} lost"));
            model.churn(&mut bench, 60);
            model.check(&mut bench, &format!("{what}, degraded"));
        }
    }
}

#[test]
fn a_large_write_is_one_request_a_column() {
    let mut bench = Bench::new(5, 32 << 20);
    let volume = bench
        .volume_of(GRANULES, parity(4, 1), None)
        .expect("create");
    assert_eq!(grain_of(&bench, volume), Some(Grain::K16));
    bench.write(volume, 0, &[1; 64 << 10]).expect("write");
    bench.seen.log.borrow_mut().clear();
    bench.write(volume, 64, &[1; 64 << 10]).expect("write");
    // Five columns, and the map log's two copies.
    assert_eq!(written(&bench), 5 + 2);
    // And 256 KiB are four a column, which are read as such.
    bench.seen.log.borrow_mut().clear();
    let bytes: Vec<u8> = (0..256 << 10).map(|i: u32| (i >> 12) as u8).collect();
    bench.write(volume, 128, &bytes).expect("write");
    // A segment may have come with it.
    assert!(written(&bench) <= 5 + 2 + 2, "{}", written(&bench));
    bench.seen.log.borrow_mut().clear();
    assert!(bench.read(volume, 128, 64).expect("read") == bytes);
    let reads = bench.seen.log.borrow().len();
    assert_eq!(reads, 4);
}

#[test]
fn few_small_writes_take_one_step_and_many_go_past_the_ring() {
    let mut bench = Bench::new(5, 32 << 20);
    let volume = bench
        .volume_of(GRANULES, parity(4, 1), Some(Grain::K16))
        .expect("create");
    bench.write(volume, 0, &[1; 16 << 10]).expect("write");
    bench.seen.log.borrow_mut().clear();
    // A whole slot, and yet: the ring's two copies, and it is done.
    bench.write(volume, 4, &[2; 16 << 10]).expect("write");
    assert_eq!((written(&bench), bench.engine.counters().bypassed), (2, 0));
    let places: Vec<u64> = (2..18).map(|slot| slot * 4).collect();
    bench.write_at_once(volume, &places, &[3; 16 << 10]);
    let past = bench.engine.counters().bypassed;
    assert!((13..=15).contains(&past), "{past} of 16 past the ring");
    for (slot, value) in [(0, 1), (1, 2), (2, 3), (17, 3)] {
        let read = bench.read(volume, slot * 4, 4).expect("read");
        assert!(read == [value; 16 << 10], "slot {slot}");
    }
}

/// Segments that are looked at while small writes to so many slots go home in one round.
fn steps_home(slots: u64) -> u64 {
    let sizes = Sizes {
        ring_chunks: 32,
        ..small_sizes()
    };
    let mut bench = Bench::with_sizes(3, 64 << 20, sizes);
    let volume = bench
        .volume_of(GRANULES, parity(2, 1), Some(Grain::K8))
        .expect("create");
    for slot in 0..slots {
        bench.write(volume, slot * 2, &[1; 8192]).expect("write");
    }
    bench.manage(Manage::Drain).expect("settle");
    for slot in 0..slots {
        bench.write(volume, slot * 2, &[2; 4096]).expect("write");
    }
    let before = bench.engine.segment_steps();
    bench.manage(Manage::Drain).expect("settle");
    assert!(bench.engine.counters().destaged >= slots);
    bench.engine.segment_steps() - before
}

#[test]
fn a_round_of_many_slots_costs_no_more_a_slot() {
    let (few, many) = (steps_home(10), steps_home(40));
    assert!(many <= 6 * few, "{few} for 10 slots, {many} for 40");
}

#[test]
fn a_block_that_cannot_be_read_takes_none_beside_it_along() {
    for layout in [MIRROR, parity(4, 1)] {
        let mut bench = Bench::new(layout.drives(), 32 << 20);
        let volume = bench.volume_of(GRANULES, layout, None).expect("create");
        let bytes: Vec<u8> = (0..64 * 4096).map(|i: u32| (i >> 12) as u8 + 1).collect();
        bench.write(volume, 0, &bytes).expect("write");
        let granules: Vec<&[u8]> = bytes.chunks(4096).collect();
        // Of two that are read with others, on different drives; each can be had without the other's.
        let one = bench.places(granules[0])[0];
        let other = bench.places(granules[5]);
        let other = other.into_iter().find(|place| place.0 != one.0);
        let bad = [one, other.expect("another drive")];
        bench.seen.unreadable.borrow_mut().extend(bad);
        for _ in 0..4 {
            let read = bench.read(volume, 0, 64);
            assert!(
                read.expect("every granule can be read") == bytes,
                "{layout}"
            );
        }
        assert_eq!(bench.engine.counters().lost, 0, "{layout}");
        // What was met is written again from what is good, and nothing else counts as bad.
        let met = 2 - bench.seen.unreadable.borrow().len() as u64;
        let counters = bench.engine.counters();
        assert!(met > 0, "{layout}");
        assert_eq!(
            (counters.bad_copies, counters.repaired),
            (met, met),
            "{layout}"
        );
    }
}

#[test]
fn grains_that_do_not_fit_are_refused() {
    let mut bench = Bench::new(5, 16 << 20);
    let refusal = |bench: &mut Bench, layout, grain| {
        let made = bench.volume_of(GRANULES, layout, Some(grain));
        made.expect_err("a refusal").to_string()
    };
    let why = refusal(&mut bench, parity(4, 1), Grain::K8);
    assert!(
        why.contains("parity:4+1") && why.contains("16 KiB"),
        "{why}"
    );
    let why = refusal(&mut bench, parity(3, 1), Grain::K16);
    assert!(why.contains("32 KiB is the least"), "{why}");
    let why = refusal(&mut bench, Layout::Stripe { columns: 2 }, Grain::K16);
    assert!(why.contains("no grain"), "{why}");
}
