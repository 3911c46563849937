//! Space that is kept for repair, and when repair begins.

use std::time::Duration;

use crate::common::{Bench, fill};
use ashlar_block::ErrorKind;
use ashlar_store::format::Reserve;
use ashlar_store::{HomeStatus, ImportOptions, Layout, Manage};

/// A pool of three drives that keeps this for repair.
fn bench(drives: usize, reserve: Reserve) -> Bench {
    let mut bench = Bench::new(drives, 24 << 20);
    bench.manage(Manage::SetReserve { reserve }).expect("set");
    bench
}

fn home(bench: &Bench, layout: Layout) -> HomeStatus {
    let homes = bench.engine.status().homes;
    *homes
        .iter()
        .find(|home| home.layout == layout)
        .expect("home")
}

fn advertised(bench: &Bench, layout: Layout) -> u64 {
    let home = home(bench, layout);
    home.used_bytes + home.free_bytes + home.growth_bytes
}

const MIRROR: Layout = Layout::Mirror { copies: 2 };

/// Writes whole slots until there is no room; how many there are.
fn fill_up(bench: &mut Bench, volume: u32, slots: u64) -> u64 {
    let written = (0..slots).take_while(|slot| {
        let result = bench.write(volume, slot * 16, &fill(16, *slot as u8));
        let full = result
            .as_ref()
            .is_err_and(|e| e.kind() == ErrorKind::NoSpace);
        assert!(full || result.is_ok(), "{result:?}");
        !full
    });
    written.count() as u64
}

fn check(bench: &mut Bench, volume: u32, slots: u64) {
    for slot in 0..slots {
        let read = bench.read(volume, slot * 16 + 3, 2).expect("read");
        assert_eq!(read, fill(2, slot as u8), "slot {slot}");
    }
}

#[test]
fn users_do_not_get_what_is_kept() {
    let mut plain = bench(3, Reserve::None);
    let mut kept = bench(3, Reserve::Auto);
    let status = kept.engine.status();
    let drive = status.members[0].bytes;
    assert!((drive..drive + (6 << 20)).contains(&status.reserve_bytes));
    assert!(status.reserve_can_serve && !status.full_width);
    assert_eq!(plain.engine.status().reserve_bytes, 0);
    let (more, less) = (advertised(&plain, MIRROR), advertised(&kept, MIRROR));
    let expected = more - drive / 2;
    assert!(less.abs_diff(expected) <= 3 << 20, "{less}, not {expected}");
    let (a, b) = (plain.volume(8192, 2), kept.volume(8192, 2));
    let (a, b) = (fill_up(&mut plain, a, 512), fill_up(&mut kept, b, 512));
    assert!(
        a > b && (b * 65536).abs_diff(less) <= 1 << 20,
        "{a} {b} {less}"
    );
}

#[test]
fn a_full_pool_repairs_itself_and_promises_no_less() {
    let mut bench = bench(4, Reserve::Auto);
    let volume = bench.volume(16384, 2);
    let slots = fill_up(&mut bench, volume, 1024);
    bench.manage(Manage::Drain).expect("settle");
    bench.seen.faults[2].set(Some((|_| true, ErrorKind::Media)));
    bench.write(volume, 5, &fill(1, 0)).expect("goes on");
    bench.manage(Manage::Drain).expect("settle");
    let status = bench.engine.status();
    assert!(!status.members[2].in_service);
    assert!(!status.degraded, "everything has its copies again");
    check(&mut bench, volume, slots);
    let now = home(&bench, MIRROR);
    let used = now.used_bytes / 65536;
    assert!(used >= slots, "what was promised is still there: {now:?}");
    // It stays so after a restart without it, and a drive more brings the reserve back.
    bench.wipe(2);
    let mut bench = Bench::try_open(bench.media, false).expect("import");
    assert!(!bench.engine.status().degraded);
    check(&mut bench, volume, slots);
    assert!(bench.engine.status().reserve_bytes < 3 << 20);
    bench.add_drive(24 << 20);
    let status = bench.engine.status();
    assert!(status.reserve_bytes >= status.members[0].bytes);
}

#[test]
fn nothing_is_kept_that_could_not_be_used() {
    let mut two = bench(2, Reserve::Auto);
    assert_eq!(two.engine.status().reserve_bytes, 0);
    assert!(!two.engine.status().reserve_can_serve);
    let mut three = bench(3, Reserve::Auto);
    assert!(three.engine.status().reserve_bytes > 0);
    three
        .volume_as(512, Layout::Parity { data: 2, parity: 1 })
        .expect("create");
    let status = three.engine.status();
    assert_eq!((status.reserve_bytes, status.full_width), (0, true));
    // What takes fewer drives can be served.
    three.volume(512, 2);
    let status = three.engine.status();
    assert!(status.reserve_bytes > 0 && status.full_width);
    two.volume(512, 2);
    two.add_drive(24 << 20);
    assert!(two.engine.status().reserve_bytes > 0);
}

#[test]
fn a_reserve_is_said_in_drives_or_extents() {
    let mut bench = bench(4, Reserve::Drives(2));
    let drive = bench.engine.status().members[0].bytes;
    assert!(bench.engine.status().reserve_bytes >= 2 * drive);
    let reserve = Reserve::Extents(64);
    bench.manage(Manage::SetReserve { reserve }).expect("set");
    let kept = bench.engine.status().reserve_bytes;
    assert!((64 << 16..200 << 16).contains(&kept), "{kept}");
    let mut bench = bench.restart();
    assert_eq!(bench.engine.status().reserve, reserve);
    for reserve in [Reserve::Drives(4), Reserve::Extents(1 << 20)] {
        let refused = bench.manage(Manage::SetReserve { reserve });
        let kind = refused.expect_err("too much").kind();
        assert_eq!(kind, ErrorKind::InvalidRequest);
    }
}

/// A pool of three drives whose repair waits for a minute.
fn patient() -> (Bench, u32) {
    let mut bench = Bench::new(3, 24 << 20);
    let volume = bench.volume(2048, 2);
    for slot in 0..64 {
        bench
            .write(volume, slot * 16, &fill(16, slot as u8))
            .expect("write");
    }
    bench.manage(Manage::Drain).expect("settle");
    let options = ImportOptions {
        repair_after: Duration::from_secs(60),
        ..ImportOptions::default()
    };
    (
        Bench::open_with(bench.media, &options).expect("import"),
        volume,
    )
}

fn lose(bench: &mut Bench, volume: u32, drive: usize) {
    bench.seen.faults[drive].set(Some((|_| true, ErrorKind::Media)));
    bench.write(volume, 3, &fill(1, 0)).expect("goes on");
    bench.manage(Manage::Drain).expect("settle");
    assert!(!bench.engine.status().members[drive].in_service);
}

#[test]
fn repair_begins_by_itself_after_its_time() {
    let (mut bench, volume) = patient();
    assert_eq!(bench.engine.status().repair_in, None);
    lose(&mut bench, volume, 1);
    let status = bench.engine.status();
    assert_eq!(status.repair_in, Some(Duration::from_secs(60)));
    assert!(status.degraded && !status.rebuilding);
    bench.pass(59_000_000_000);
    assert!(bench.engine.status().degraded);
    bench.pass(1_000_000_000);
    let status = bench.engine.status();
    assert!(!status.degraded && status.repair_in.is_none());
    check(&mut bench, volume, 64);
}

#[test]
fn repair_begins_at_once_when_an_operator_says_so() {
    let (mut bench, volume) = patient();
    lose(&mut bench, volume, 1);
    bench.manage(Manage::Repair).expect("repair");
    assert!(!bench.engine.status().degraded);
    let (mut bench, volume) = patient();
    lose(&mut bench, volume, 0);
    bench.add_drive(24 << 20);
    assert!(!bench.engine.status().degraded);
    check(&mut bench, volume, 64);
    // An emptied drive does not wait either.
    bench
        .manage(Manage::RemoveDrive { member: 2 })
        .expect("remove");
    assert!(!bench.engine.status().members[2].in_service);
    check(&mut bench, volume, 64);
}

#[test]
fn logs_get_their_copies_back_at_once() {
    let (mut bench, volume) = patient();
    lose(&mut bench, volume, 1);
    bench.manage(Manage::Drain).expect("settle");
    assert!(bench.engine.status().degraded, "homes wait");
    // Another loss does not touch what was written since.
    bench.write(volume, 3, &fill(1, 77)).expect("write");
    bench.seen.faults[0].set(Some((|_| true, ErrorKind::Media)));
    assert_eq!(bench.read(volume, 3, 1).expect("read"), fill(1, 77));
}
