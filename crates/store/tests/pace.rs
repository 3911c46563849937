//! A walk shares the drives with hosts: it works in rounds and rests in between.

mod common;

use ashlar_block::{BlockRange, BufferPool, Moment, Operation, Request};
use ashlar_store::{Event, Manage};
use common::Bench;

const MS: u64 = 1_000_000;
/// Slots of 64 KiB: five rounds of eight.
const SLOTS: u64 = 40;

/// A settled mirror, a scrub whose first reads have taken 10 ms, and a count of reads since.
fn scrubbing(host: bool) -> (Bench, usize) {
    let mut bench = Bench::new(2, 64 << 20);
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
    const MINUTE: u64 = 60_000 * MS;
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
