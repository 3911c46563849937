//! Drives that have no space, or no memory, for what they are asked.

use crate::common::{Bench, Rule, Seen, pattern};
use ashlar_block::{BlockRange, Durability, ErrorKind, Operation, Request};
use ashlar_store::{Event, ImportOptions, Layout};

const DRIVE: usize = 32 << 20;
const MS: u64 = 1_000_000;
const IS_WRITE: Rule = |op| matches!(op, Operation::Write(_));
const IS_READ: Rule = |op| op == Operation::Read;
const IS_FLUSH: Rule = |op| op == Operation::Flush;

fn write(bench: &Bench, volume: u32, data: &[u8]) -> Event {
    let mut buffer = bench.buffers.get(data.len()).expect("memory");
    buffer.copy_from_slice(data);
    let range = BlockRange::new(0, data.len() as u32 / 4096);
    let request = Request::write(1, range, buffer, Durability::Cached);
    Event::Command { volume, request }
}

/// Until there is space nothing is answered, nothing is lost, and the drive stays.
#[test]
fn a_drive_without_space_is_waited_for_and_stays() {
    for kind in [ErrorKind::NoSpace, ErrorKind::Exhausted] {
        let mut bench = Bench::new(3, DRIVE);
        let volume = bench.volume(64, 2);
        bench.write(volume, 0, &pattern(2, 1)).unwrap();
        for drive in 0..2 {
            bench.seen.faults[drive].set(Some((IS_WRITE, kind)));
        }
        let (done, _) = bench.run(write(&bench, volume, &pattern(2, 2)));
        assert!(done.is_empty(), "{done:?}");
        // Longer than a drive may take for an answer.
        for _ in 0..60 {
            let (done, _) = bench.pass(300 * MS);
            assert!(done.is_empty(), "{done:?}");
        }
        let status = bench.engine.status();
        let wait = status.members[0].wait.clone().expect("it waits");
        assert!(wait.why.contains("as told"), "{wait:?}");
        assert!(wait.lasts.as_secs() >= 17, "{wait:?}");
        assert_eq!(status.members[2].wait, None);
        assert!(status.members.iter().all(|member| member.in_service));
        assert_eq!(bench.read(volume, 0, 2).unwrap(), pattern(2, 1));
        for drive in 0..2 {
            bench.seen.faults[drive].set(None);
        }
        let (done, _) = bench.pass(300 * MS);
        assert!(matches!(&done[..], [one] if one.result.is_ok()), "{done:?}");
        let status = bench.engine.status();
        let is_well = |member: &ashlar_store::MemberStatus| member.in_service;
        assert!(status.members.iter().all(is_well));
        assert!(status.members.iter().all(|member| member.wait.is_none()));
        assert!(!status.degraded);
        let mut bench = bench.restart();
        assert_eq!(bench.read(volume, 0, 2).unwrap(), pattern(2, 2));
    }
}

/// What waits for a drive that leaves does not go there any more.
#[test]
fn what_waits_for_a_drive_that_fails_goes_on_without_it() {
    let mut bench = Bench::new(3, DRIVE);
    let volume = bench.volume(64, 2);
    bench.seen.faults[0].set(Some((IS_WRITE, ErrorKind::NoSpace)));
    let (done, _) = bench.run(write(&bench, volume, &pattern(2, 2)));
    assert!(done.is_empty(), "{done:?}");
    bench.seen.faults[0].set(Some((IS_WRITE, ErrorKind::Media)));
    let (done, _) = bench.pass(300 * MS);
    assert!(matches!(&done[..], [one] if one.result.is_ok()), "{done:?}");
    let status = bench.engine.status();
    assert!(!status.members[0].in_service && status.members[0].wait.is_none());
    assert_eq!(bench.read(volume, 0, 2).unwrap(), pattern(2, 2));
}

/// So does what is passed through.
#[test]
fn a_stripe_waits_as_well() {
    let mut bench = Bench::new(2, DRIVE);
    let volume = bench.volume_as(64, Layout::Stripe { columns: 2 }).unwrap();
    for drive in 0..2 {
        bench.seen.faults[drive].set(Some((IS_WRITE, ErrorKind::NoSpace)));
    }
    let (done, _) = bench.run(write(&bench, volume, &pattern(32, 2)));
    assert!(done.is_empty(), "{done:?}");
    for drive in 0..2 {
        bench.seen.faults[drive].set(None);
    }
    let (done, _) = bench.pass(300 * MS);
    assert!(matches!(&done[..], [one] if one.result.is_ok()), "{done:?}");
    assert_eq!(bench.read(volume, 0, 32).unwrap(), pattern(32, 2));
}

/// What a flush was for may be lost when it fails: it is not asked for once more.
#[test]
fn a_flush_that_fails_is_never_asked_for_again() {
    let mut bench = Bench::new(3, DRIVE);
    let volume = bench.volume(64, 2);
    bench.write(volume, 0, &pattern(2, 2)).unwrap();
    bench.seen.faults[0].set(Some((IS_FLUSH, ErrorKind::NoSpace)));
    bench.manage(ashlar_store::Manage::Drain).unwrap();
    assert!(!bench.engine.status().members[0].in_service);
}

/// Another copy is read, and none counts as bad.
#[test]
fn a_read_that_finds_no_memory_goes_to_another_copy() {
    let mut bench = Bench::new(2, DRIVE);
    let volume = bench.volume(64, 2);
    bench.write(volume, 0, &pattern(16, 1)).unwrap();
    bench.manage(ashlar_store::Manage::Drain).unwrap();
    let mut bench = bench.restart();
    // The map is here from now on.
    assert_eq!(bench.read(volume, 0, 16).unwrap(), pattern(16, 1));
    for drive in 0..2 {
        bench.seen.faults[drive].set(Some((IS_READ, ErrorKind::Exhausted)));
        assert_eq!(bench.read(volume, 0, 16).unwrap(), pattern(16, 1));
        bench.seen.faults[drive].set(None);
    }
    let status = bench.engine.status();
    assert_eq!(status.counters.bad_copies, 0);
    // Where there is none, it waits.
    for drive in 0..2 {
        bench.seen.faults[drive].set(Some((IS_READ, ErrorKind::Exhausted)));
    }
    let buffer = bench.buffers.get(4096).expect("memory");
    let request = Request::read(1, BlockRange::new(3, 1), buffer);
    let (done, _) = bench.run(Event::Command { volume, request });
    assert!(done.is_empty(), "{done:?}");
    bench.seen.faults[1].set(None);
    bench.seen.faults[0].set(None);
    let (done, _) = bench.pass(300 * MS);
    assert!(matches!(&done[..], [one] if one.result.is_ok()), "{done:?}");
    assert_eq!(bench.engine.status().counters.bad_copies, 0);
}

/// An import that finds no space on a drive is refused and says so: the drive stays in, whatever the others allow.
#[test]
fn an_import_leaves_out_no_drive_that_has_no_space_now() {
    for kind in [ErrorKind::NoSpace, ErrorKind::Exhausted] {
        let mut bench = Bench::new(3, DRIVE);
        let volume = bench.volume(64, 2);
        bench.write(volume, 0, &pattern(2, 1)).unwrap();
        let media = bench.media;
        let seen = Seen::default();
        seen.faults[1].set(Some((IS_WRITE, kind)));
        let options = ImportOptions {
            degraded: true,
            ..ImportOptions::default()
        };
        let refused = Bench::open_seen(media.clone(), &options, seen).err();
        let refused = refused.expect("an import without space").to_string();
        assert!(refused.contains("as told"), "{refused}");
        let mut bench = Bench::open(media);
        let status = bench.engine.status();
        assert!(status.members.iter().all(|member| member.in_service));
        assert!(!status.degraded);
        assert_eq!(bench.read(volume, 0, 2).unwrap(), pattern(2, 1));
    }
}
