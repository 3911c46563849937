//! Extents that are free are discarded on drives that give space back.

use std::cell::Cell;

use ashlar_block::{ErrorKind, Operation};
use ashlar_store::format::MemberState;
use ashlar_store::{Event, ImportOptions, Layout, Manage};

use crate::common::{Bench, Rule, Seen, pattern};

const MIRROR: Layout = Layout::Mirror { copies: 2 };

/// A pool of drives that give space back.
fn bench() -> Bench {
    bench_of(3)
}

fn bench_of(drives: usize) -> Bench {
    reopened(Bench::new(drives, 24 << 20), None)
}

/// The pool after a crash, with a rule of what its drives hold.
fn reopened(bench: Bench, held: Option<Rule>) -> Bench {
    let seen = Seen::default();
    seen.deallocates.set(true);
    seen.held.set(held);
    Bench::open_seen(bench.media, &ImportOptions::default(), seen).expect("import")
}

/// Fills a volume of so many slots.
fn filled(bench: &mut Bench, slots: u64) -> u32 {
    let volume = bench.volume_as(slots * 16, MIRROR).expect("a volume");
    for slot in 0..slots {
        bench
            .write(volume, slot * 16, &pattern(16, slot as u8))
            .expect("write");
    }
    bench.manage(Manage::Drain).expect("settle");
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
    bench.manage(Manage::Drain).expect("settle");
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
    bench.manage(Manage::Drain).expect("settle");
    let mut again = reopened(bench, None);
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
    bench.manage(Manage::Drain).expect("settle");
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
    let mut again = reopened(bench, Some(|op| op == Operation::Deallocate));
    wait(&mut again);
    assert_eq!(room(&again), settled);
    again.seen.held.set(None);
    wait(&mut again);
    assert!(discards(&again) > 0 && room(&again) == settled);
}

thread_local! {
    static LET_THROUGH: Cell<u32> = const { Cell::new(0) };
}

/// Holds discards once so many have been let through.
fn holds_discard(op: Operation) -> bool {
    let left = LET_THROUGH.get();
    let discards = op == Operation::Deallocate;
    LET_THROUGH.set(left.saturating_sub(u32::from(discards)));
    discards && left == 0
}

/// A run of extents is not free while it is discarded. What has looked for room meanwhile looks again.
#[test]
fn a_drive_leaves_though_the_room_for_it_was_being_discarded() {
    let mut through = 0;
    loop {
        let mut bench = bench_of(2);
        // So small that it has no room for what leaves while its longest run is discarded.
        bench.add_drive(11 << 20);
        let volume = filled(&mut bench, 1);
        bench.manage_cut(Manage::RemoveDrive { member: 0 }, 9);
        let mut bench = reopened(bench, None);
        assert_eq!(bench.engine.members()[0].state, MemberState::Leaving);
        LET_THROUGH.set(through);
        bench
            .seen
            .held
            .set(Some(|op| op != Operation::Deallocate || holds_discard(op)));
        wait(&mut bench);
        bench.seen.held.set(Some(holds_discard));
        bench
            .seen
            .released
            .set(Some(|op| op != Operation::Deallocate));
        wait(&mut bench);
        let was_held = discards(&bench) == through as usize && LET_THROUGH.get() == 0;
        bench.seen.held.set(None);
        wait(&mut bench);
        let left = !bench.engine.members()[0].state.in_service();
        assert!(left, "discard {through} held");
        assert_eq!(bench.read(volume, 0, 16).expect("read"), pattern(16, 0));
        if !was_held {
            break;
        }
        through += 1;
    }
    assert!(through > 5, "{through}");
}

/// A drive is lost while room for the copies it had is being discarded: there will be room, so nothing stops.
#[test]
fn a_volume_stops_for_no_discard() {
    for through in 0..3 {
        let mut bench = bench();
        wait(&mut bench);
        bench.stops = true;
        let volume = filled(&mut bench, 20);
        let mut bench = reopened(bench, Some(holds_discard));
        LET_THROUGH.set(through);
        wait(&mut bench);
        assert_eq!(discards(&bench), through as usize);
        bench.seen.faults[1].set(Some((|_| true, ErrorKind::Media)));
        bench.manage(Manage::Drain).expect("settle");
        for value in [1, 2] {
            let write = bench.write(volume, 0, &pattern(16, value));
            write.unwrap_or_else(|error| panic!("discard {through} held: {error}"));
        }
        assert!(!bench.engine.status().members[1].in_service);
    }
}

/// An order that waits for the room that is being discarded hears it when the pool stops.
#[test]
fn who_waits_for_a_discard_hears_that_the_pool_has_stopped() {
    let mut bench = bench();
    wait(&mut bench);
    filled(&mut bench, 20);
    let mut bench = reopened(bench, Some(holds_discard));
    LET_THROUGH.set(0);
    wait(&mut bench);
    let (id, what) = (91, Manage::CreateVolume(bench.plan(16, MIRROR)));
    let (_, told) = bench.run(Event::Manage { id, what });
    assert!(told.is_empty(), "it waits: {told:?}");
    bench.may_fail = true;
    for faults in &bench.seen.faults {
        faults.set(Some((|_| true, ErrorKind::Media)));
    }
    let (id, what) = (92, Manage::Drain);
    let (_, told) = bench.run(Event::Manage { id, what });
    let told = told.into_iter();
    let told: Vec<_> = told
        .map(|(id, answer)| (id, answer.map_err(|e| e.kind())))
        .collect();
    assert!(told.contains(&(91, Err(ErrorKind::Latched))), "{told:?}");
}
