//! Volumes with parity: what is written comes back, whole or with drives missing, after restarts,
//! and whatever has rotted meanwhile.

use crate::common::Bench;
use crate::common::model::Model;
use ashlar_block::{Completion, ErrorKind, Operation};
use ashlar_store::format::MemberState;
use ashlar_store::{Event, Layout, Manage, Managed};

fn parity(data: u8, parity: u8) -> Layout {
    Layout::Parity { data, parity }
}

fn drives_of(layout: Layout) -> usize {
    layout.drives()
}

#[test]
fn what_is_written_comes_back_after_restarts() {
    for layout in [
        parity(2, 1),
        parity(3, 1),
        parity(4, 1),
        parity(5, 2),
        parity(7, 1),
    ] {
        let mut bench = Bench::new(drives_of(layout), 16 << 20);
        let mut model = Model::new(&mut bench, layout);
        for round in 0..4 {
            model.churn(&mut bench, 120);
            model.check(&mut bench, &format!("{layout}, round {round}"));
            if round % 2 == 1 {
                bench.manage(Manage::Drain).expect("settle");
                model.check(&mut bench, &format!("{layout}, settled"));
            }
            bench = bench.restart();
            model.check(&mut bench, &format!("{layout}, restarted"));
        }
    }
}

#[test]
fn any_drive_may_be_missing_and_another_after_it_was_replaced() {
    let layout = parity(3, 1);
    for lost in 0..4 {
        let mut bench = Bench::new(5, 24 << 20);
        let mut model = Model::new(&mut bench, layout);
        model.churn(&mut bench, 200);
        bench.seen.faults[lost].set(Some((|_| true, ErrorKind::Media)));
        model.check(&mut bench, "reads fail");
        model.churn(&mut bench, 50);
        model.check(&mut bench, "lost");
        // The fifth drive takes what the lost one had.
        bench.manage(Manage::Drain).expect("settle");
        model.check(&mut bench, "made again");
        assert!(!bench.engine.status().degraded, "drive {lost}");
        let next = (lost + 1) % 4;
        bench.seen.faults[next].set(Some((|_| true, ErrorKind::Media)));
        model.check(&mut bench, "second");
        model.churn(&mut bench, 100);
        bench.manage(Manage::Drain).expect("settle");
        model.check(&mut bench, "narrower");
    }
}

#[test]
fn two_drives_at_once_are_survived_with_two_columns_of_parity() {
    let mut bench = Bench::new(5, 16 << 20);
    let mut model = Model::new(&mut bench, parity(3, 2));
    model.churn(&mut bench, 300);
    bench.manage(Manage::Drain).expect("settle");
    for (first, second) in [(0, 1), (1, 4), (3, 4), (0, 3)] {
        let fails: crate::common::Rule = |op| op == Operation::Read;
        bench.seen.faults[first].set(Some((fails, ErrorKind::Media)));
        bench.seen.faults[second].set(Some((fails, ErrorKind::Media)));
        model.check(&mut bench, &format!("without {first} and {second}"));
        bench.seen.faults[first].set(None);
        bench.seen.faults[second].set(None);
    }
}

/// Overwrites a piece of a drive, past its head, wherever it is.
fn rot(bench: &Bench, drive: usize, random: &mut u64) {
    let mut medium = bench.media[drive].borrow_mut();
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    let from = 1 << 20;
    let at = from + (*random >> 20) as usize % (6 << 20);
    medium[at..at + 700].fill(0xA5);
}

#[test]
fn rot_is_repaired_by_reads_and_by_a_scrub() {
    let mut bench = Bench::new(5, 16 << 20);
    let mut model = Model::new(&mut bench, parity(4, 1));
    model.churn(&mut bench, 300);
    bench.manage(Manage::Drain).expect("settle");
    let mut random = 3;
    for round in 0..20 {
        for _ in 0..20 {
            rot(&bench, round % 5, &mut random);
        }
        if round % 2 == 0 {
            model.check(&mut bench, "rotten");
        }
        let scrubbed = bench.manage(Manage::Scrub).expect("scrub");
        assert_eq!(scrubbed, Managed::Scrubbed { lost: 0 }, "round {round}");
        model.churn(&mut bench, 10);
        bench.manage(Manage::Drain).expect("settle");
    }
    assert!(bench.engine.counters().repaired > 0);
    // Parity that had rotted is good again: every drive can be spared.
    for drive in 0..5 {
        let fails: crate::common::Rule = |op| op == Operation::Read;
        bench.seen.faults[drive].set(Some((fails, ErrorKind::Media)));
        model.check(&mut bench, &format!("without {drive}"));
        bench.seen.faults[drive].set(None);
    }
}

#[test]
fn a_full_pool_still_overwrites() {
    let mut bench = Bench::new(3, 16 << 20);
    let volume = bench.volume_as(16_384, parity(2, 1)).expect("create");
    let slot = |value: u8| vec![value; 16 * 4096];
    let mut written = 0;
    while bench.write(volume, written * 16, &slot(1)).is_ok() {
        written += 1;
    }
    assert!(written > 64, "{written} slots");
    for round in 2..6 {
        for at in 0..written {
            let piece = vec![round; 3 * 4096];
            bench.write(volume, at * 16 + 2, &piece).expect("overwrite");
        }
    }
    bench.write(volume, 0, &slot(9)).expect("whole");
    bench.manage(Manage::Drain).expect("settle");
    let mut bench = bench.restart();
    let mut expected = slot(1);
    expected[2 * 4096..5 * 4096].fill(5);
    assert_eq!(bench.read(volume, 16, 16).expect("read"), expected);
    assert_eq!(bench.read(volume, 0, 16).expect("read"), slot(9));
    bench.clear(volume, 160, 160).expect("clear");
    bench
        .write(volume, written * 16, &slot(2))
        .expect("room again");
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    let mut bench = Bench::new(4, 16 << 20);
    for layout in [
        parity(1, 1),
        parity(4, 1),
        parity(2, 3),
        parity(7, 2),
        parity(255, 255),
    ] {
        let refused = bench.volume_as(64, layout);
        assert!(refused.is_err(), "{layout}");
    }
}

/// A drive answers what it was not asked, and the engine stops. What it knows already it still puts together.
#[test]
fn an_engine_that_has_stopped_still_reads_what_it_can() {
    let mut bench = Bench::new(3, 32 << 20);
    let layout = Layout::Parity { data: 2, parity: 1 };
    let known = bench.volume_as(512, layout).unwrap();
    let data: Vec<u8> = (0..64 * 4096)
        .map(|i| (i / 4096 * 7 + i % 251) as u8)
        .collect();
    bench.write(known, 0, &data).unwrap();
    bench.manage(Manage::Drain).unwrap();
    bench.seen.faults[0].set(Some((|_| true, ErrorKind::Media)));
    bench.write(known, 200, &data[..4096]).unwrap();
    bench.manage(Manage::Drain).unwrap();
    bench.wipe(0);
    let mut bench = bench.restart();
    assert_eq!(bench.engine.members()[0].state, MemberState::Excluded);
    assert_eq!(bench.read(known, 0, 64).unwrap(), data);
    bench.may_fail = true;
    let completion = Completion {
        tag: u64::MAX,
        buffer: None,
        result: Ok(()),
    };
    bench.run(Event::Done {
        drive: 1,
        completion,
    });
    let stopped = bench.write(known, 0, &data[..4096]).unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Latched);
    assert_eq!(bench.read(known, 0, 64).unwrap(), data);
    // With another silent there is nothing to be put together: but that is no proof of damage.
    bench.seen.faults[1].set(Some((|op| op == Operation::Read, ErrorKind::Media)));
    let error = bench.read(known, 0, 64).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Latched);
}
