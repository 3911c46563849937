//! Pools without a free slot, writes that wait, and what a segment more costs.

use crate::common::{Bench, fill, small_sizes};
use ashlar_block::{BlockRange, ErrorKind, Operation, Request};
use ashlar_store::{Event, Manage, Sizes};

/// Fills a pool with whole slots; how many there are.
fn fill_up(bench: &mut Bench, volume: u32) -> u64 {
    let full = |bench: &mut Bench, slot: u64| {
        let result = bench.write(volume, slot * 16, &fill(16, slot as u8));
        let refused = result
            .as_ref()
            .is_err_and(|e| e.kind() == ErrorKind::NoSpace);
        assert!(refused || result.is_ok(), "{result:?}");
        refused
    };
    (0..).find(|&slot| full(bench, slot)).expect("full")
}

fn deallocate(slot: u64) -> Request {
    Request {
        tag: 1,
        op: Operation::Deallocate,
        range: BlockRange::new(slot * 16, 16),
        buffer: None,
    }
}

/// A slot is given up while it is written again, and another write waits for what is free: the slot's own
/// write has the first claim. Were that not reserved before the slot's home is given up, each round would
/// promise one home to two writes, and at last records in the ring would find none.
#[test]
fn a_home_that_is_given_up_is_not_promised_twice() {
    let mut bench = Bench::new(2, 24 << 20);
    let volume = bench.volume(65_536, 2);
    let slots = fill_up(&mut bench, volume);
    bench.manage(Manage::Settle).expect("settle");
    let rounds = 12;
    assert!(slots > rounds);
    for round in 0..rounds {
        bench.seen.held.set(Some(|op| op != Operation::Read));
        bench.begin(volume, deallocate(round));
        let again = bench.request(round * 16, &fill(1, 100 + round as u8));
        bench.begin(volume, again);
        let elsewhere = bench.request((slots + round) * 16, &fill(1, 200));
        bench.begin(volume, elsewhere);
        bench.seen.held.set(None);
        let (done, _) = bench.run(Event::Tick);
        assert_eq!(done.len(), 3, "round {round}");
        for one in done {
            let refused = one
                .result
                .as_ref()
                .is_err_and(|e| e.kind() == ErrorKind::NoSpace);
            assert!(refused || one.result.is_ok(), "{one:?}");
        }
    }
    bench.manage(Manage::Settle).expect("settle");
    let mut bench = bench.restart();
    for round in 0..rounds {
        let read = bench.read(volume, round * 16, 2).expect("read");
        let expected = [fill(1, 100 + round as u8), fill(1, 0)].concat();
        assert!(read == expected, "slot {round}");
    }
}

#[test]
fn a_volume_that_waits_does_not_hold_up_another() {
    let mut bench = Bench::new(2, 24 << 20);
    let (slow, quick) = (bench.volume(1024, 2), bench.volume(1024, 2));
    bench.write(slow, 0, &fill(16, 1)).expect("write");
    bench.manage(Manage::Settle).expect("settle");
    let mut bench = bench.restart();
    // Its leaf has to be read, and that takes its time.
    bench.seen.held.set(Some(|op| op == Operation::Read));
    for _ in 0..3 {
        let waits = bench.request(3, &fill(1, 2));
        bench.begin(slow, waits);
    }
    bench
        .write(quick, 0, &fill(1, 3))
        .expect("it does not wait");
    bench.seen.held.set(None);
    let (done, _) = bench.run(Event::Tick);
    assert_eq!(done.len(), 3);
    assert!(done.iter().all(|one| one.result.is_ok()), "{done:?}");
    assert_eq!(bench.read(slow, 3, 1).expect("read"), fill(1, 2));
}

/// Segments that are looked at while so many slots are written, two to a segment.
fn steps(bench: &mut Bench, volume: u32, slots: std::ops::Range<u64>) -> u64 {
    let before = bench.engine.segment_steps();
    for slot in slots {
        let data = fill(16, slot as u8);
        bench.write(volume, slot * 16, &data).expect("room");
    }
    bench.engine.segment_steps() - before
}

#[test]
fn a_new_segment_of_a_pool_that_lacks_a_drive_looks_at_no_others() {
    let sizes = Sizes {
        segment_slots: 2,
        ..small_sizes()
    };
    let mut bench = Bench::with_sizes(3, 80 << 20, sizes);
    let volume = bench.volume(16_384, 3);
    let is_write: fn(Operation) -> bool = |op| matches!(op, Operation::Write(_));
    bench.seen.faults[2].set(Some((is_write, ErrorKind::Media)));
    steps(&mut bench, volume, 0..20);
    assert!(bench.engine.status().degraded);
    let first = steps(&mut bench, volume, 20..120);
    steps(&mut bench, volume, 120..700);
    let last = steps(&mut bench, volume, 700..800);
    assert!(last <= first + first / 4, "{first}, then {last}");
}

#[test]
fn the_last_segment_takes_no_more_steps_than_the_first() {
    let sizes = Sizes {
        segment_slots: 2,
        ..small_sizes()
    };
    let mut bench = Bench::with_sizes(2, 80 << 20, sizes);
    let volume = bench.volume(16_384, 2);
    steps(&mut bench, volume, 0..20);
    let first = steps(&mut bench, volume, 20..120);
    steps(&mut bench, volume, 120..700);
    let last = steps(&mut bench, volume, 700..800);
    assert!(last <= first + first / 4, "{first}, then {last}");
}
