//! A rebuild that is cut off: the next engine does not begin it anew.

use std::cell::RefCell;

use crate::common::{Bench, Seen, small_sizes};
use ashlar_block::{ErrorKind, Operation};
use ashlar_store::{Engine, Event, ImportOptions, Layout, Manage, Sizes};

const SLOTS: u64 = 480;

fn fill(slot: u64) -> Vec<u8> {
    vec![slot as u8 | 1; 16 * 4096]
}

/// A pool of three drives that has just found out that one is gone, and repairs at once.
fn lost(layout: Layout) -> (Bench, u32) {
    let sizes = Sizes {
        segment_slots: 4,
        ..small_sizes()
    };
    let mut bench = Bench::with_sizes(layout.drives() + 1, 96 << 20, sizes);
    let volume = bench.volume_as(SLOTS * 16, layout).unwrap();
    for slot in 0..SLOTS {
        bench.write(volume, slot * 16, &fill(slot)).unwrap();
    }
    bench.manage(Manage::Drain).unwrap();
    bench.seen.log.borrow_mut().clear();
    (bench, volume)
}

/// How many reads and writes drives have been asked for.
fn asked(seen: &Seen) -> usize {
    let log = seen.log.borrow();
    let counts = |op: &Operation| matches!(op, Operation::Read | Operation::Write(_));
    log.iter().filter(|(_, op)| counts(op)).count()
}

fn lose(bench: &mut Bench, volume: u32) {
    bench.seen.faults[1].set(Some((|_| true, ErrorKind::Media)));
    let request = bench.request(0, &fill(0)[..4096]);
    bench.run(Event::Command { volume, request });
}

#[test]
fn what_a_rebuild_has_recorded_is_not_done_again() {
    for layout in [
        Layout::Mirror { copies: 2 },
        Layout::Parity { data: 2, parity: 1 },
    ] {
        let (mut bench, volume) = lost(layout);
        lose(&mut bench, volume);
        bench.manage(Manage::Drain).unwrap();
        assert!(!bench.engine.status().degraded);
        let whole = asked(&bench.seen);
        // The same again, and the process dies when four fifths are done.
        let (mut bench, volume) = lost(layout);
        bench.budget = Some(whole * 4 / 5);
        lose(&mut bench, volume);
        assert_eq!(bench.budget, Some(0));
        let seen = Seen::default();
        let options = ImportOptions::default();
        let mut bench = Bench::open_seen(bench.media, &options, seen.clone()).unwrap();
        let imported = asked(&seen);
        assert!(bench.engine.status().degraded);
        bench.manage(Manage::Drain).unwrap();
        assert!(!bench.engine.status().degraded);
        let again = asked(&seen) - imported;
        assert!(again * 2 < whole, "{layout}: {again} of {whole}");
        println!("{layout}: {again} of {whole}");
        // Everything has its copies: another may go.
        bench.seen.faults[0].set(Some((|_| true, ErrorKind::Media)));
        for slot in 1..SLOTS {
            assert!(
                bench.read(volume, slot * 16, 16).unwrap() == fill(slot),
                "{slot}"
            );
        }
    }
}

/// Under a load that goes on writing, in slots that have a home and in those of fresh segments.
#[test]
fn the_progress_of_a_rebuild_does_not_go_backwards() {
    for layout in [
        Layout::Mirror { copies: 2 },
        Layout::Parity { data: 2, parity: 1 },
    ] {
        let (mut bench, volume) = lost(layout);
        let scrub = Event::Manage {
            id: u64::MAX,
            what: Manage::Scrub,
        };
        bench.post(scrub);
        bench.seen.faults[1].set(Some((|_| true, ErrorKind::Media)));
        let seen = RefCell::new(Vec::new());
        let is_over = |engine: &Engine| {
            let mut seen = seen.borrow_mut();
            if engine.is_rebuilding() {
                seen.extend(engine.walk_progress());
            }
            !seen.is_empty() && !engine.is_rebuilding() && !engine.status().degraded
        };
        assert!(bench.run_loaded((volume, SLOTS * 16), 100_000, is_over));
        let seen = seen.into_inner();
        let back = seen.windows(2).position(|pair| pair[1] < pair[0]);
        assert_eq!(back.map(|at| &seen[at..at + 2]), None, "{layout}");
        let last = seen.last().copied().unwrap_or_default();
        assert!(
            last > 0.8 && seen[0] < 0.2,
            "{layout}: {} to {last}",
            seen[0]
        );
    }
}
