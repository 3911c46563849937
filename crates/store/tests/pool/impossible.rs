//! What production does in a state that cannot be.

use crate::common::{Bench, pattern};
use ashlar_block::{ErrorKind, Operation};
use ashlar_store::{Event, Manage};

/// A segment that a home names has a shape and columns; one that is not there has none to be guessed.
#[test]
#[should_panic(expected = "segment 4000 is not there, and was looked for at")]
fn a_segment_that_is_not_there_stops_the_pool() {
    let mut bench = Bench::new(2, 32 << 20);
    bench.engine.look_for_segment(4000);
    bench.run(Event::Tick);
}

/// What is staged by then would be acknowledged by what names that segment.
#[test]
fn nothing_is_sealed_once_a_segment_was_not_there() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(64, 2);
    bench.write(volume, 0, &pattern(2, 1)).unwrap();
    bench.may_fail = true;
    bench.engine.only_stop();
    let before = bench.seen.writes.borrow().len();
    bench.engine.look_for_segment(4000);
    let error = bench
        .write(volume, 0, &pattern(2, 2))
        .expect_err("it was acknowledged");
    assert_eq!(error.kind(), ErrorKind::Latched);
    assert_eq!(bench.seen.writes.borrow().len(), before);
}

#[test]
#[should_panic(expected = "a slot of segment 4000 is free, which is not there")]
fn a_free_slot_of_a_segment_that_is_not_there_stops_the_pool() {
    let mut bench = Bench::new(2, 32 << 20);
    bench.engine.free_slot_of(4000);
    bench.run(Event::Tick);
}

/// A pool with a volume whose leaf of the map is on its drives.
fn with_a_leaf() -> (Bench, u32) {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(64, 2);
    bench.write(volume, 0, &pattern(16, 1)).unwrap();
    bench.manage(Manage::Drain).unwrap();
    (bench, volume)
}

#[test]
#[should_panic(expected = "slot 1 of volume 16 is placed, but its leaf is not here")]
fn a_slot_without_its_leaf_is_not_placed() {
    let (mut bench, volume) = with_a_leaf();
    bench
        .seen
        .held
        .set(Some(|op| matches!(op, Operation::Write(_))));
    let request = bench.request(16, &pattern(16, 2));
    bench.begin(volume, request);
    bench.run(Event::Tick);
    bench.engine.drop_leaf(volume, 0);
    bench.seen.held.set(None);
    bench.run(Event::Tick);
}

#[test]
#[should_panic(expected = "slot 0 of volume 16 moves, but its leaf is not here")]
fn a_slot_without_its_leaf_does_not_move() {
    let (mut bench, volume) = with_a_leaf();
    bench.engine.drop_leaf(volume, 0);
    bench.engine.take_on(volume, 0);
}

/// A pool stops: nothing more is written, nothing is acknowledged, hosts and operators are told which state it was.
#[test]
fn a_pool_in_a_state_that_cannot_be_stops_before_it_acknowledges() {
    let mut bench = Bench::new(2, 32 << 20);
    let volume = bench.volume(64, 2);
    bench.write(volume, 0, &pattern(2, 1)).unwrap();
    bench.may_fail = true;
    let is_write = |op| matches!(op, Operation::Write(_));
    bench.seen.held.set(Some(is_write));
    let request = bench.request(0, &pattern(2, 2));
    bench.begin(volume, request);
    bench.engine.stop_as_impossible("a slot has two homes");
    let before = bench.seen.writes.borrow().len();
    let (done, _) = bench.run(Event::Tick);
    bench.seen.held.set(None);
    let (later, _) = bench.run(Event::Tick);
    let answers: Vec<_> = done.into_iter().chain(later).collect();
    let [answer] = &answers[..] else {
        panic!("{answers:?}");
    };
    let error = answer.result.as_ref().expect_err("it was acknowledged");
    assert_eq!(error.kind(), ErrorKind::Latched);
    assert!(
        error.context().contains("a slot has two homes"),
        "{error:?}"
    );
    // Only what was on its way already.
    let written = bench.seen.writes.borrow().len() - before;
    assert!(written <= 2, "{written} writes");
    let refused = bench
        .write(volume, 8, &pattern(1, 3))
        .expect_err("it writes");
    assert_eq!(refused.kind(), ErrorKind::Latched);
    let reason = bench.engine.failure().expect("it has stopped");
    assert!(reason.contains("import the pool again"), "{reason}");
    let mut bench = bench.restart();
    bench.write(volume, 0, &pattern(2, 4)).unwrap();
    assert_eq!(bench.read(volume, 0, 2).unwrap(), pattern(2, 4));
}
