//! Drives that leave a pool, and what the map has had on them.

use crate::common::{Bench, fill};
use ashlar_block::{BlockRange, BufferPool, Durability, ErrorKind, Operation, Request};
use ashlar_store::format::{MemberState, Reserve};
use ashlar_store::{Event, Manage};

fn used(bench: &Bench) -> Vec<u64> {
    let members = bench.engine.status().members;
    let here = members.iter().filter(|member| member.in_service);
    here.map(|member| member.used_bytes).collect()
}

#[test]
fn a_drive_that_leaves_has_left_after_any_crash_without_another_write() {
    let mut crashes = 0;
    for budget in 1.. {
        let mut bench = Bench::new(4, 32 << 20);
        let volume = bench.volume(512, 2);
        bench.write(volume, 0, &fill(64, 1)).unwrap();
        bench.manage(Manage::Drain).unwrap();
        let copy = bench.root().meta[0].columns[0];
        let member = usize::from(copy.drive);
        bench.manage_cut(Manage::RemoveDrive { member }, budget);
        let done = !bench.engine.members()[member].state.in_service();
        let mut bench = bench.restart();
        if bench.engine.members()[member].state == MemberState::Active {
            continue;
        }
        crashes += 1;
        bench.pass(0);
        assert!(
            !bench.engine.members()[member].state.in_service(),
            "{budget}"
        );
        // What the map had there is free, with or without another import.
        let here = used(&bench);
        let mut bench = bench.restart();
        assert_eq!(used(&bench), here, "{budget}");
        assert_eq!(bench.read(volume, 0, 64).unwrap(), fill(64, 1));
        if done {
            break;
        }
    }
    assert!(crashes > 5, "{crashes}");
}

/// A segment that is being made has a column on a drive that is removed meanwhile: the drive stays until that
/// is somewhere else.
#[test]
fn a_drive_stays_while_a_segment_is_made_on_it() {
    let mut found = 0;
    for slots in 0..16 {
        let mut bench = Bench::new(2, 32 << 20);
        let volume = bench.volume(512, 2);
        // What the map takes is on the other two.
        bench.manage(Manage::Drain).unwrap();
        bench.add_drive(32 << 20);
        for slot in 0..slots {
            bench.write(volume, slot * 16, &fill(16, 1)).unwrap();
        }
        if bench.engine.status().members[2].used_bytes > 0 {
            continue;
        }
        let is_write: crate::common::Rule = |op| matches!(op, Operation::Write(_));
        bench.seen.held.set(Some(is_write));
        let mut buffer = BufferPool::new(1 << 20).get(16 << 12).unwrap();
        buffer.fill(1);
        let range = BlockRange::new(slots * 16, 16);
        let request = Request::write(1, range, buffer, Durability::Cached);
        bench.run(Event::Command { volume, request });
        if bench.engine.status().members[2].used_bytes == 0 {
            continue;
        }
        found += 1;
        let what = Manage::RemoveDrive { member: 2 };
        bench.run(Event::Manage { id: 900, what });
        assert_eq!(bench.engine.members()[2].state, MemberState::Leaving);
        bench.seen.held.set(None);
        bench.pass(0);
        bench.manage(Manage::Drain).unwrap();
        assert_eq!(bench.engine.members()[2].state, MemberState::Excluded);
        assert!(!bench.engine.status().degraded);
    }
    assert!(found > 0);
}

/// A drive is lost as another leaves: of the three that the last root names one is left, but the one that
/// leaves is there to hold what it says, so the pool goes on.
#[test]
fn a_drive_that_leaves_counts_until_it_has_left() {
    for fails_too in [false, true] {
        let mut bench = Bench::new(2, 32 << 20);
        let volume = bench.volume(512, 2);
        bench.write(volume, 0, &fill(64, 1)).unwrap();
        bench.add_drive(32 << 20);
        bench.manage(Manage::Drain).unwrap();
        bench.may_fail = fails_too;
        bench
            .seen
            .held
            .set(Some(|op| matches!(op, Operation::Write(_))));
        let what = Manage::RemoveDrive { member: 2 };
        bench.run(Event::Manage { id: 900, what });
        let leaves =
            |bench: &Bench, drive: usize| !bench.engine.members()[drive].state.in_service();
        assert!(leaves(&bench, 2) && !leaves(&bench, 1), "it is on its way");
        let always: fn(Operation) -> bool = |_| true;
        let lost = Some((always, ErrorKind::Disconnected));
        bench.seen.faults[1].set(lost);
        bench.seen.faults[2].set(lost.filter(|_| fails_too));
        bench.seen.held.set(None);
        bench.pass(0);
        assert!(leaves(&bench, 1));
        assert_eq!(bench.engine.failure().is_some(), fails_too);
        let written = bench.write(volume, 0, &fill(64, 2));
        assert_eq!(written.is_err(), fails_too);
        if fails_too {
            continue;
        }
        // Those that have gone are no pool without the one that went on, and that one is.
        let [first, second, third] = &bench.media[..] else {
            panic!("three drives");
        };
        let gone = Bench::try_open(vec![second.clone(), third.clone()], false);
        assert!(gone.is_err());
        let mut bench = Bench::open(vec![first.clone()]);
        assert_eq!(bench.read(volume, 0, 64).unwrap(), fill(64, 2));
    }
}

/// What is asked for while the root is on its way that a drive leaves with needs another root, and that is not
/// the business of the drive that has left by then.
#[test]
fn a_drive_is_asked_for_nothing_when_it_is_durable_that_it_has_left() {
    let mut bench = Bench::new(2, 32 << 20);
    bench.add_drive(32 << 20);
    bench.manage(Manage::Drain).unwrap();
    // The root that says that it leaves is written, and the one that says that it has left is on its way.
    bench.seen.hold_after(3);
    let before = bench.engine.counters().roots;
    let reserve = Reserve::Drives(0);
    for (id, what) in [
        (900, Manage::RemoveDrive { member: 2 }),
        (901, Manage::SetReserve { reserve }),
    ] {
        let (_, answers) = bench.run(Event::Manage { id, what });
        assert!(answers.is_empty(), "{answers:?}");
    }
    let left = |bench: &Bench| {
        let shown = &bench.engine.status().members[2];
        let used = bench.engine.uses(2);
        assert_eq!((shown.in_service, shown.leaving), (used, used));
        assert!(!bench.engine.members()[2].state.in_service());
        !used
    };
    assert!(!left(&bench), "it still counts");
    bench.seen.writes.borrow_mut().clear();
    bench.seen.held.set(None);
    let (_, answers) = bench.run(Event::Tick);
    assert!(left(&bench) && answers.len() == 2, "{answers:?}");
    assert_eq!(bench.engine.counters().roots - before, 3);
    let writes = bench.seen.writes.borrow();
    let roots = |drive: usize| writes.iter().filter(|(on, ..)| *on == drive).count();
    assert_eq!([0, 1, 2].map(roots), [2, 2, 1]);
}
