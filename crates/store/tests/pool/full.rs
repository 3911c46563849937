//! Pools without a free slot, writes that wait, and what a segment more costs.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{Bench, Medium, fill, small_sizes};
use ashlar_block::{BlockRange, Durability, ErrorKind, IoError, Operation, Request};
use ashlar_store::format::Reserve;
use ashlar_store::{Event, ImportOptions, Manage, Sizes};

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
    bench.manage(Manage::Drain).expect("settle");
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
    bench.manage(Manage::Drain).expect("settle");
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
    bench.manage(Manage::Drain).expect("settle");
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

fn without_the_last(media: &[Medium]) -> Vec<Medium> {
    let left = media[..media.len() - 1].iter();
    left.map(|medium| Rc::new(RefCell::new(medium.borrow().clone())))
        .collect()
}

fn is_full(result: Result<(), IoError>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::NoSpace)
}

/// A pool of single copies that is full but for some slots.
struct Full {
    bench: Bench,
    volume: u32,
    /// Slots that are on the last drive.
    doomed: Vec<u64>,
    /// Others, that have no home or are there, too: more than are free.
    wanting: Vec<u64>,
    /// A slot that stays.
    kept: u64,
}

fn single_copies() -> Full {
    let sizes = Sizes {
        ring_chunks: 16,
        ..small_sizes()
    };
    let mut bench = Bench::with_sizes(3, 32 << 20, sizes);
    let volume = bench.volume(65_536, 1);
    let slots = fill_up(&mut bench, volume);
    bench.manage(Manage::Drain).expect("settle");
    let mut later = Bench::try_open(without_the_last(&bench.media), true).expect("import");
    let (lost, kept): (Vec<u64>, Vec<u64>) =
        (0..slots).partition(|slot| later.read(volume, slot * 16, 1).is_err());
    assert!(lost.len() > 100 && kept.len() > 300, "{lost:?}");
    let (doomed, others) = lost.split_at(100);
    let cleared: Vec<u64> = kept.iter().step_by(3).take(100).copied().collect();
    for &slot in &cleared {
        bench.clear(volume, slot * 16, 16).expect("clear");
    }
    bench.manage(Manage::Drain).expect("settle");
    Full {
        bench,
        volume,
        doomed: doomed.to_vec(),
        wanting: cleared.iter().chain(others).copied().collect(),
        kept: kept[1],
    }
}

/// A drive is lost with the only copy of some homes, of which the ring has blocks. These need other homes: what is free
/// is theirs, and a write that would need one more than there are is refused.
fn homes_are_lost(leaf_bytes: Option<u64>, how: fn(Bench) -> Bench) {
    let full = single_copies();
    let (mut bench, volume) = (full.bench, full.volume);
    if let Some(leaf_bytes) = leaf_bytes {
        let options = ImportOptions {
            leaf_bytes,
            ..ImportOptions::default()
        };
        bench = Bench::open_with(bench.media, &options).expect("import");
    }
    for &slot in &full.doomed {
        bench.write(volume, slot * 16, &fill(1, 9)).expect("write");
    }
    let mut bench = how(bench);
    let wanting = full.wanting.iter();
    let refused = wanting.filter(|&slot| is_full(bench.write(volume, slot * 16, &fill(1, 1))));
    assert!(refused.count() > 0);
    bench.seen.held.set(None);
    let at = full.kept * 16;
    bench.write(volume, at, &fill(1, 2)).expect("it has a home");
    bench.manage(Manage::Drain).expect("the ring is empty");
    for slot in full.doomed {
        let read = bench.read(volume, slot * 16, 1);
        assert_eq!(read.expect("it is there"), fill(1, 9), "slot {slot}");
    }
}

fn is_change(op: Operation) -> bool {
    op != Operation::Read
}

fn lose_the_last(mut bench: Bench) -> Bench {
    bench.seen.faults[2].set(Some((is_change, ErrorKind::Media)));
    // The first round of destage comes as far as this.
    bench.seen.held.set(Some(|op| op == Operation::Flush));
    let reserve = Reserve::None;
    let what = Manage::SetReserve { reserve };
    bench.run(Event::Manage { id: 1, what });
    assert_eq!(bench.engine.losses().len(), 1);
    bench
}

#[test]
fn records_whose_homes_are_lost_count_on_what_is_free() {
    homes_are_lost(None, lose_the_last);
}

/// Where the leaf that names a slot's home is not in memory, nothing tells that it is one of the lost.
#[test]
fn records_whose_leaves_are_not_here_count_on_what_is_free() {
    homes_are_lost(Some(4 << 10), lose_the_last);
}

#[test]
fn an_import_counts_homes_for_records_that_have_lost_theirs() {
    homes_are_lost(None, |bench| {
        Bench::try_open(without_the_last(&bench.media), true).expect("import")
    });
}

/// Writes to slots that lose their homes while the ring does not have them yet count on what is free, too.
#[test]
fn writes_on_their_way_whose_homes_are_lost_count_on_what_is_free() {
    let full = single_copies();
    let (mut bench, volume) = (full.bench, full.volume);
    let (first, late) = full.doomed.split_first().expect("a slot");
    bench.write(volume, first * 16, &fill(1, 9)).expect("write");
    let held = |op| op == Operation::Write(Durability::Durable);
    bench.seen.held.set(Some(held));
    bench.seen.faults[2].set(Some((is_change, ErrorKind::Media)));
    let ask = |bench: &mut Bench, slot: &u64, value: u8| {
        let request = bench.request(slot * 16, &fill(1, value));
        bench.run(Event::Command { volume, request }).0
    };
    for slot in late {
        assert!(ask(&mut bench, slot, 9).is_empty());
    }
    let what = Manage::Drain;
    bench.run(Event::Manage { id: 1, what });
    assert_eq!(bench.engine.losses().len(), 1);
    let mut done = Vec::new();
    for slot in &full.wanting {
        done.append(&mut ask(&mut bench, slot, 1));
    }
    bench.seen.held.set(None);
    let (more, settled) = bench.run(Event::Tick);
    done.extend(more);
    assert_eq!(done.len(), late.len() + full.wanting.len());
    assert!(done.into_iter().any(|one| is_full(one.result)));
    assert_eq!(settled.len(), 1);
    for slot in full.doomed {
        let read = bench.read(volume, slot * 16, 1);
        assert_eq!(read.expect("it is there"), fill(1, 9), "slot {slot}");
    }
}

/// While the drive with a slot's home is on its way back, a full pool has a write of that slot wait.
#[test]
fn a_write_waits_for_the_drive_that_has_its_home() {
    let full = single_copies();
    let (mut bench, volume) = (full.bench, full.volume);
    bench.seen.faults[2].set(Some((is_change, ErrorKind::Media)));
    let reserve = Reserve::None;
    bench
        .manage(Manage::SetReserve { reserve })
        .expect("a root");
    bench.seen.faults[2].set(None);
    let mut wanting = full.wanting.iter();
    assert!(wanting.any(|&slot| is_full(bench.write(volume, slot * 16, &fill(1, 1)))));
    let at = full.doomed[0] * 16;
    assert!(is_full(bench.write(volume, at, &fill(1, 9))));
    bench.seen.held.set(Some(|op| op == Operation::Flush));
    let what = bench.readmission(2);
    let (_, returned) = bench.run(Event::Manage { id: 1, what });
    assert!(returned.is_empty());
    let request = bench.request(at, &fill(1, 9));
    let (done, _) = bench.run(Event::Command { volume, request });
    assert!(done.is_empty(), "{done:?}");
    bench.seen.held.set(None);
    let (done, returned) = bench.run(Event::Tick);
    assert!(returned.len() == 1 && returned[0].1.is_ok());
    assert!(done.len() == 1 && done[0].result.is_ok());
    assert_eq!(bench.read(volume, at, 1).expect("read"), fill(1, 9));
}
