//! Extents that are free are discarded on drives that give space back.

use ashlar_block::{ErrorKind, Operation};
use ashlar_store::{ImportOptions, Layout, Manage};

use crate::common::{Bench, Seen, pattern};

const MIRROR: Layout = Layout::Mirror { copies: 2 };

/// A pool of drives that give space back.
fn bench() -> Bench {
    let plain = Bench::new(3, 24 << 20);
    let seen = Seen::default();
    seen.deallocates.set(true);
    Bench::open_seen(plain.media, &ImportOptions::default(), seen).expect("import")
}

/// Fills a volume of so many slots.
fn filled(bench: &mut Bench, slots: u64) -> u32 {
    let volume = bench.volume_as(slots * 16, MIRROR).expect("a volume");
    for slot in 0..slots {
        bench
            .write(volume, slot * 16, &pattern(16, slot as u8))
            .expect("write");
    }
    bench.manage(Manage::Settle).expect("settle");
    volume
}

fn slots_on_drives(bench: &Bench, slots: u64) -> usize {
    let granule = |slot| pattern(16, slot as u8)[..4096].to_vec();
    let places = (0..slots).map(|slot| bench.places(&granule(slot)).len());
    places.sum()
}

fn discards(bench: &Bench) -> usize {
    let log = bench.seen.log.borrow();
    log.iter()
        .filter(|(_, op)| *op == Operation::Deallocate)
        .count()
}

/// Lets time pass, in steps.
fn wait(bench: &mut Bench) {
    for _ in 0..100 {
        bench.pass(10_000_000);
    }
}

#[test]
fn what_was_deleted_is_gone_from_the_drives_and_nothing_else() {
    let mut bench = bench();
    wait(&mut bench);
    let (stays, goes) = (filled(&mut bench, 20), filled(&mut bench, 60));
    let before = bench.engine.status();
    bench
        .manage(Manage::DeleteVolume { volume: goes })
        .expect("delete");
    bench.manage(Manage::Settle).expect("settle");
    let begun = discards(&bench);
    wait(&mut bench);
    assert!(discards(&bench) > begun, "nothing was discarded");
    // The volume that stays has the same patterns in its first slots, and shares a segment with the other.
    assert!((2 * 20..2 * 40).contains(&slots_on_drives(&bench, 60)));
    let used = |bench: &Bench| -> u64 {
        let members = bench.engine.status().members;
        members.iter().map(|member| member.used_bytes).sum()
    };
    let before: u64 = before.members.iter().map(|member| member.used_bytes).sum();
    assert!(used(&bench) < before);
    for slot in 0..20 {
        let read = bench.read(stays, slot * 16, 16).expect("read");
        assert_eq!(read, pattern(16, slot as u8), "slot {slot}");
    }
    let settled = discards(&bench);
    wait(&mut bench);
    assert_eq!(discards(&bench), settled, "again and again");
}

#[test]
fn what_a_crash_has_left_is_discarded_by_the_next_import() {
    let mut bench = bench();
    let volume = filled(&mut bench, 40);
    bench
        .manage(Manage::DeleteVolume { volume })
        .expect("delete");
    bench.manage(Manage::Settle).expect("settle");
    let seen = Seen::default();
    seen.deallocates.set(true);
    let mut again = Bench::open_seen(bench.media, &ImportOptions::default(), seen).expect("import");
    wait(&mut again);
    assert_eq!(slots_on_drives(&again, 40), 0);
}

#[test]
fn who_needs_the_room_waits_for_a_discard_and_a_failed_one_harms_nothing() {
    let mut bench = bench();
    wait(&mut bench);
    let volume = filled(&mut bench, 60);
    bench
        .manage(Manage::DeleteVolume { volume })
        .expect("delete");
    bench.manage(Manage::Settle).expect("settle");
    let fails = |op: Operation| op == Operation::Deallocate;
    for fault in &bench.seen.faults {
        fault.set(Some((fails, ErrorKind::Media)));
    }
    wait(&mut bench);
    assert!(!bench.engine.is_degraded());
    let again = filled(&mut bench, 100);
    let read = bench.read(again, 99 * 16, 16).expect("read");
    assert_eq!(read, pattern(16, 99));
}

/// A cache takes a share of what its pool has room for at that moment.
#[test]
fn what_is_being_discarded_is_room() {
    let mut bench = bench();
    wait(&mut bench);
    let room = |bench: &Bench| {
        let homes = bench.engine.status().homes;
        let mirror = homes.iter().find(|home| home.layout == MIRROR);
        mirror.map_or(0, |home| home.free_bytes + home.growth_bytes)
    };
    let settled = room(&bench);
    let seen = Seen::default();
    seen.deallocates.set(true);
    seen.held.set(Some(|op| op == Operation::Deallocate));
    let mut again = Bench::open_seen(bench.media, &ImportOptions::default(), seen).expect("import");
    wait(&mut again);
    assert_eq!(room(&again), settled);
    again.seen.held.set(None);
    wait(&mut again);
    assert!(discards(&again) > 0 && room(&again) == settled);
}
