//! A walk shares the drives with hosts: it works in rounds and rests in between.

use crate::common::{Answers, Bench, small_sizes};
use ashlar_block::{BlockRange, BufferPool, ErrorKind, Moment, Operation, Request};
use ashlar_store::format::ChunkCopy;
use ashlar_store::sizes::LEAF_GRANULES;
use ashlar_store::{Event, Grain, Layout, Manage, Sizes};

const MS: u64 = 1_000_000;
/// Slots of 64 KiB: five rounds of eight.
const SLOTS: u64 = 40;
const MINUTE: u64 = 60_000 * MS;

/// A settled mirror, a scrub whose first reads have taken 10 ms, and a count of reads since.
fn scrubbing(host: bool) -> (Bench, usize) {
    scrubbing_on(2, host)
}

fn scrubbing_on(drives: usize, host: bool) -> (Bench, usize) {
    scrubbing_in(Bench::new(drives, 64 << 20), SLOTS, host)
}

fn scrubbing_in(mut bench: Bench, slots: u64, host: bool) -> (Bench, usize) {
    let volume = bench.volume(slots * 16, 2);
    for slot in 0..slots {
        bench
            .write(volume, slot * 16, &[7; 16 * 4096])
            .expect("write");
    }
    bench.manage(Manage::Drain).expect("settle");
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
    // No time has passed: it still rests from its first round.
    assert!(bench.engine.is_rebuilding() && bench.engine.status().degraded);
    bench.pass(31 * MS);
    assert!(!bench.engine.status().degraded);
    assert_eq!(bench.engine.counters().scrubs, 1);
}

/// Nor does what is made again wait for all that a scrub reads: the scrub goes on where it was when nothing is lacking.
#[test]
fn repair_does_not_read_what_a_scrub_would() {
    const MANY: u64 = 160;
    let sizes = Sizes {
        segment_slots: 2,
        ..small_sizes()
    };
    let bench = Bench::with_sizes(3, 64 << 20, sizes);
    let (mut bench, _) = scrubbing_in(bench, MANY, true);
    let volume = bench.engine.volumes()[0].number;
    bench.seen.log.borrow_mut().clear();
    bench.seen.faults[0].set(Some((|_| true, ErrorKind::Media)));
    let request = bench.request(0, &[8; 16 * 4096]);
    bench.begin(volume, request);
    let mut answers = Answers::default();
    while bench.turn(&mut answers) {}
    assert!(bench.engine.is_rebuilding(), "it rests as the scrub has");
    bench.later(31 * MS);
    while bench.engine.is_rebuilding() && bench.turn(&mut answers) {}
    assert!(!bench.engine.is_rebuilding());
    // Two thirds of the slots lack a copy, and have another to be read.
    let seen = reads(&bench);
    assert!(seen < MANY as usize, "{seen} reads of {MANY} slots");
    bench.pass(1000 * MS);
    bench.pass(1000 * MS);
    assert_eq!(bench.engine.counters().scrubs, 1);
    assert!(!bench.engine.status().degraded);
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

/// Leaves of the map, more than are written anew at a time.
const LEAVES: u64 = 600;

/// A settled mirror with so large a map.
fn mapped() -> (Bench, u32) {
    let mut bench = Bench::new(2, 64 << 20);
    let layout = Layout::Mirror { copies: 2 };
    let volume = bench.volume_of(LEAVES * LEAF_GRANULES, layout, Some(Grain::K8));
    let volume = volume.expect("a volume");
    for leaf in 0..LEAVES {
        let data = [leaf as u8; 4096];
        bench
            .write(volume, leaf * LEAF_GRANULES, &data)
            .expect("write");
    }
    bench.manage(Manage::Drain).expect("settle");
    bench.pass(1000 * MS);
    (bench, volume)
}

#[test]
fn a_scrub_writes_the_map_anew_in_parts_and_rests_among_hosts() {
    /// What a look at the map finds at most, and tables, for each part.
    const PART: std::ops::Range<u64> = 256..400;
    let (mut bench, volume) = mapped();
    let before = bench.engine.counters().pages;
    // What a part has written takes 10 ms to be on the drives.
    bench.seen.held.set(Some(|op| op == Operation::Flush));
    bench.read(volume, 0, 1).expect("a host is here");
    let what = Manage::Scrub;
    bench.run(Event::Manage { id: 900, what });
    bench.pass(10 * MS);
    bench.seen.held.set(None);
    bench.pass(0);
    let first = bench.engine.counters().pages - before;
    assert!(PART.contains(&first), "{first}");
    // Leaves that were renewed change again.
    for leaf in 0..100 {
        let data = [3; 16 * 4096];
        bench
            .write(volume, leaf * LEAF_GRANULES + 16, &data)
            .expect("write");
    }
    bench.pass(29 * MS);
    assert_eq!(
        bench.engine.counters().pages - before,
        first,
        "it rests for three times as long"
    );
    bench.pass(MS);
    bench.pass(1000 * MS);
    assert_eq!(bench.engine.counters().scrubs, 1);
    let all = bench.engine.counters().pages - before;
    // Those that have changed are not written for it once more.
    assert!((LEAVES..LEAVES + 60).contains(&all), "{all}");
}

#[test]
fn the_map_moves_from_a_lost_drive_as_fast_as_hosts_let_it() {
    let (mut bench, volume) = mapped();
    bench.add_drive(64 << 20);
    bench.pass(1000 * MS);
    let before = bench.engine.counters().pages;
    bench.seen.faults[1].set(Some((|_| true, ErrorKind::Media)));
    bench.write(volume, 0, &[1; 4096]).expect("write");
    bench.pass(1000 * MS);
    let moved = bench.engine.counters().pages - before;
    assert!(moved >= LEAVES, "{moved}");
    let root = bench.root();
    let lacks = |columns: &[ChunkCopy]| columns.iter().any(|copy| copy.drive == 1);
    assert!(root.meta.iter().all(|segment| !lacks(&segment.columns)));
}
