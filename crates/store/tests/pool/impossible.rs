//! What production does in a state that cannot be.

use crate::common::{Bench, pattern};
use ashlar_block::{ErrorKind, Operation};
use ashlar_store::Event;

/// A segment that a home names has a shape and columns; one that is not there has none to be guessed.
#[test]
#[should_panic(expected = "segment 4000 is not there, and was looked for at")]
fn a_segment_that_is_not_there_stops_the_pool() {
    let mut bench = Bench::new(2, 32 << 20);
    bench.engine.look_for_segment(4000);
    bench.run(Event::Tick);
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
