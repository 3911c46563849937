//! A walk shares the drives with hosts: it works in rounds and rests in between.

mod common;

use ashlar_block::{BlockRange, BufferPool, ErrorKind, Moment, Operation, Request};
use ashlar_store::{Event, Manage};
use common::Bench;

const MS: u64 = 1_000_000;
/// Slots of 64 KiB: five rounds of eight.
const SLOTS: u64 = 40;
const MINUTE: u64 = 60_000 * MS;

/// A settled mirror, a scrub whose first reads have taken 10 ms, and a count of reads since.
fn scrubbing(host: bool) -> (Bench, usize) {
    scrubbing_on(2, host)
}

fn scrubbing_on(drives: usize, host: bool) -> (Bench, usize) {
    let mut bench = Bench::new(drives, 64 << 20);
    let volume = bench.volume(SLOTS * 16, 2);
    for slot in 0..SLOTS {
        bench
            .write(volume, slot * 16, &[7; 16 * 4096])
            .expect("write");
    }
    bench.manage(Manage::Settle).expect("settle");
    // Those writes are long past.
    bench.pass(1000 * MS);
    bench.seen.log.borrow_mut().clear();
    bench.seen.held.set(Some(|op| op == Operation::Read));
    if host {
        let buffer = BufferPool::new(1 << 20).get(4096).expect("buffer");
        let request = Request::read(1, BlockRange::new(0, 1), buffer);
        bench.run(Event::Command { volume, request });
    }
    let what = Manage::Scrub;
    bench.run(Event::Manage { id: 900, what });
    bench.pass(10 * MS);
    bench.seen.held.set(None);
    bench.pass(0);
    let reads = reads(&bench);
    (bench, reads)
}

fn reads(bench: &Bench) -> usize {
    let log = bench.seen.log.borrow();
    log.iter().filter(|(_, op)| *op == Operation::Read).count()
}

#[test]
fn a_scrub_among_hosts_rests_three_times_as_long_as_it_works() {
    let (mut bench, seen) = scrubbing(true);
    assert_eq!(seen, 2 * 8 + 1, "a round, and the host's read");
    let ends = Moment::from_nanos(1040 * MS);
    assert_eq!(bench.engine.next_deadline(), Some(ends));
    bench.pass(29 * MS);
    assert_eq!(reads(&bench), seen);
    bench.pass(MS);
    assert_eq!(
        reads(&bench),
        2 * SLOTS as usize + 1,
        "what takes no time needs no rest"
    );
}

#[test]
fn a_scrub_alone_does_not_rest() {
    let (bench, seen) = scrubbing(false);
    assert_eq!(seen, 2 * SLOTS as usize);
    drop(bench);
}

/// What is read from here on.
fn walked(bench: &mut Bench) -> usize {
    let before = reads(bench);
    bench.pass(0);
    reads(bench) - before
}

#[test]
fn an_import_goes_on_with_a_scrub_where_it_was() {
    /// What is read of the map.
    const PAGES: usize = 8;
    let (mut bench, _) = scrubbing(true);
    // A round is looked at, the next one takes a minute and more, and then the process dies.
    bench.seen.held.set(Some(|op| op == Operation::Read));
    bench.pass(MINUTE);
    let mut bench = bench.restart();
    let rest = 2 * (SLOTS as usize - 8);
    let pages = walked(&mut bench).checked_sub(rest);
    assert!(pages.is_some_and(|pages| pages < PAGES), "{pages:?}");
    assert_eq!(bench.engine.counters().scrubs, 1, "to its end");
    let mut bench = bench.restart();
    assert!(walked(&mut bench) < PAGES, "it is done");
}

/// A drive is lost while a scrub rests: the columns that it had are not made again when the scrub is through,
/// which may be days later.
#[test]
fn repair_does_not_wait_for_the_end_of_a_scrub() {
    let (mut bench, _) = scrubbing_on(3, true);
    let before = bench.engine.walk_progress().expect("a walk");
    assert!(before > 0.1, "{before}");
    let volume = bench.engine.volumes()[0].number;
    bench.seen.faults[0].set(Some((|_| true, ErrorKind::Media)));
    for slot in 0..SLOTS {
        bench
            .write(volume, slot * 16, &[8; 16 * 4096])
            .expect("write");
    }
    assert!(bench.engine.status().degraded);
    // No time has passed: it still rests from its first round.
    assert_eq!(bench.engine.walk_progress(), Some(0.0));
    bench.pass(31 * MS);
    assert!(!bench.engine.status().degraded);
    assert_eq!(bench.engine.counters().scrubs, 1);
}

/// A scrub that was interrupted, and finds no column to make, goes on where it was.
#[test]
fn a_repair_that_can_do_nothing_costs_a_scrub_nothing() {
    let (mut bench, _) = scrubbing(true);
    let before = bench.engine.walk_progress().expect("a walk");
    bench.manage(Manage::Repair).expect("repair");
    assert_eq!(bench.engine.walk_progress(), Some(before));
    bench.seen.log.borrow_mut().clear();
    bench.pass(1000 * MS);
    bench.pass(1000 * MS);
    assert_eq!(bench.engine.counters().scrubs, 1);
    let rest = 2 * (SLOTS as usize - 8);
    let found = reads(&bench);
    assert!((rest..rest + 8).contains(&found), "{found} of {rest}");
}
