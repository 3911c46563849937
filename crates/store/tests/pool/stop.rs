//! Volumes that stop when a copy is missing that no drive can take; pools that are idle; pools with
//! another name.

use crate::common::{Bench, fill};
use ashlar_block::{ErrorKind, Operation};
use ashlar_store::{Event, ImportOptions, Manage};

fn lose(bench: &mut Bench, drive: usize) {
    bench.seen.faults[drive].set(Some((|_| true, ErrorKind::Media)));
    bench.manage(Manage::Drain).expect("settle");
    bench.manage(Manage::Scrub).expect("scrub");
    assert!(!bench.engine.status().members[drive].in_service);
}

#[test]
fn a_volume_set_to_stop_takes_no_writes_without_its_copies() {
    let mut bench = Bench::new(2, 24 << 20);
    let goes_on = bench.volume(512, 2);
    bench.stops = true;
    let stops = bench.volume(512, 2);
    for volume in [goes_on, stops] {
        bench.write(volume, 0, &fill(16, 1)).expect("write");
    }
    lose(&mut bench, 1);
    bench.write(goes_on, 0, &fill(16, 2)).expect("goes on");
    let refused = bench.write(stops, 0, &fill(16, 2)).expect_err("stopped");
    assert_eq!(refused.kind(), ErrorKind::ReadOnly);
    let refused = bench.clear(stops, 0, 16).expect_err("stopped");
    assert_eq!(refused.kind(), ErrorKind::ReadOnly);
    assert_eq!(bench.read(stops, 0, 16).expect("read"), fill(16, 1));
    // It is still so after a restart, and until it is changed.
    let mut bench = Bench::try_open(bench.media[..1].to_vec(), true).expect("import");
    assert!(bench.write(stops, 0, &fill(1, 2)).is_err());
    let set = |stops: u32, to| Manage::SetStops {
        volume: stops,
        stops: to,
    };
    bench.manage(set(stops, false)).expect("set");
    bench.write(stops, 0, &fill(16, 3)).expect("goes on");
    bench.manage(set(stops, true)).expect("set");
    assert!(bench.write(stops, 0, &fill(1, 4)).is_err());
    assert!(bench.manage(set(99, true)).is_err());
}

#[test]
fn with_a_drive_to_spare_nothing_stops() {
    let mut bench = Bench::new(3, 24 << 20);
    bench.stops = true;
    let volume = bench.volume(512, 2);
    bench.write(volume, 0, &fill(64, 1)).expect("write");
    lose(&mut bench, 1);
    bench.write(volume, 0, &fill(16, 2)).expect("goes on");
    lose(&mut bench, 2);
    assert!(bench.write(volume, 0, &fill(16, 3)).is_err());
    assert_eq!(bench.read(volume, 0, 1).expect("read"), fill(1, 2));
    assert!(
        bench
            .volume_as(64, ashlar_store::Layout::Mirror { copies: 1 })
            .is_err()
    );
}

#[test]
fn an_idle_pool_empties_its_map_log_once_and_is_quiet() {
    let mut bench = Bench::new(2, 24 << 20);
    let volume = bench.volume(2048, 2);
    for slot in 0..100 {
        bench.write(volume, slot * 16, &fill(16, 1)).expect("write");
        bench
            .write(volume, slot * 16 + 3, &fill(1, 2))
            .expect("write");
    }
    let second = 1_000_000_000;
    bench.pass(second);
    assert!(
        bench.engine.log_fill().1 > 0.1,
        "{:?}",
        bench.engine.log_fill()
    );
    bench.pass(4 * second);
    bench.pass(4 * second);
    assert!(
        bench.engine.log_fill().1 < 0.3,
        "{:?}",
        bench.engine.log_fill()
    );
    let (roots, pages) = (bench.engine.counters().roots, bench.engine.counters().pages);
    assert_eq!(bench.engine.next_deadline(), None, "nothing is due");
    bench.seen.log.borrow_mut().clear();
    for _ in 0..20 {
        bench.pass(30 * second);
    }
    assert!(bench.seen.log.borrow().is_empty(), "no I/O");
    let now = bench.engine.counters();
    assert_eq!((now.roots, now.pages), (roots, pages));
    let mut bench = bench.restart();
    assert_eq!(bench.read(volume, 3, 1).expect("read"), fill(1, 2));
}

#[test]
fn a_pool_gets_another_name() {
    let mut bench = Bench::new(3, 24 << 20);
    let volume = bench.volume(512, 2);
    bench.write(volume, 5, &fill(1, 7)).expect("write");
    let named = |name: &str| ImportOptions {
        rename: Some(name.to_owned()),
        ..ImportOptions::default()
    };
    let bench = Bench::open_with(bench.media, &named("lake")).expect("import");
    assert_eq!(bench.engine.label().pool_name, "lake");
    assert!(Bench::open_with(bench.media.clone(), &named("a/b")).is_err());
    // One drive has the old name, as if it had been interrupted.
    let media = bench.media.clone();
    let old = Bench::open_with(media, &named("tank")).expect("import");
    let label = old.media[2].borrow()[..4096].to_vec();
    let bench = Bench::open_with(old.media, &named("lake")).expect("import");
    bench.media[2].borrow_mut()[..4096].copy_from_slice(&label);
    bench.media[2].borrow_mut()[128 << 10..(128 << 10) + 4096].copy_from_slice(&label);
    let mut bench = Bench::open_with(bench.media, &named("lake")).expect("again");
    assert_eq!(bench.read(volume, 5, 1).expect("read"), fill(1, 7));
    let mut bench = bench.restart();
    assert_eq!(bench.engine.label().pool_name, "lake");
    assert_eq!(bench.read(volume, 5, 1).expect("read"), fill(1, 7));
}

/// Each writes the whole entry of the volume: the next one must not begin before the last is there.
#[test]
fn changes_of_a_volume_on_their_way_together_do_not_undo_each_other() {
    let mut bench = Bench::new(2, 24 << 20);
    let volume = bench.volume(256, 2);
    let stops = |stops| Manage::SetStops { volume, stops };
    let resize = |granules| Manage::ResizeVolume { volume, granules };
    // The second is asked for while the first is on its way, and the first ends while the second, had it been let
    // in, is on its own.
    bench.seen.held.set(Some(|op| op != Operation::Read));
    let id = 900;
    let what = stops(true);
    assert!(bench.run(Event::Manage { id, what }).1.is_empty());
    let refused = bench.manage(resize(512)).expect_err("on its way");
    assert!(
        refused.to_string().contains("still being changed"),
        "{refused}"
    );
    bench.seen.held.set(None);
    assert_eq!(bench.run(Event::Tick).1.len(), 1);
    bench.manage(resize(512)).expect("resized");
    bench.manage(stops(false)).expect("set");
    assert_eq!(bench.engine.geometry(volume).expect("there").blocks, 512);
}
