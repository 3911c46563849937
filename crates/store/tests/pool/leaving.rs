//! Drives that are taken out: what they leave behind, and that they do leave.

use std::time::Duration;

use crate::common::Bench;
use ashlar_block::{ErrorKind, IoError, Operation};
use ashlar_store::format::MemberState;
use ashlar_store::{Event, ImportOptions, Layout, Manage, Managed};

fn used(bench: &Bench) -> Vec<u64> {
    let members = bench.engine.status().members.into_iter();
    let serving = members.filter(|member| member.in_service);
    serving.map(|member| member.used_bytes).collect()
}

/// Metadata segments that had a copy on the drive are written elsewhere, and their other copies' extents
/// are free at once: another import must not find more room than there was.
#[test]
fn what_the_map_leaves_is_free_at_once() {
    let mut bench = Bench::new(4, 32 << 20);
    let volume = bench.volume_as(400, Layout::Mirror { copies: 2 }).unwrap();
    bench.write(volume, 0, &vec![7; 300 * 4096]).unwrap();
    bench.manage(Manage::Drain).unwrap();
    for member in [0, 1] {
        bench.manage(Manage::RemoveDrive { member }).unwrap();
    }
    bench.manage(Manage::Drain).unwrap();
    let states: Vec<MemberState> = bench.engine.members().iter().map(|m| m.state).collect();
    assert_eq!(states[..2], [MemberState::Excluded; 2]);
    let before = used(&bench);
    assert_eq!(used(&bench.restart()), before);
}

/// A pool in which nothing else happens: the drive leaves all the same.
#[test]
fn a_drive_leaves_an_idle_pool() {
    for member in 0..4 {
        let mut bench = Bench::new(4, 32 << 20);
        let volume = bench.volume_as(40, Layout::Mirror { copies: 2 }).unwrap();
        bench.write(volume, 0, &vec![7; 4096]).unwrap();
        bench.manage(Manage::Drain).unwrap();
        bench.manage(Manage::RemoveDrive { member }).unwrap();
        assert_eq!(bench.engine.members()[member].state, MemberState::Excluded);
    }
}

/// The record of a volume's first segment is on its way when a drive is to be taken out.
fn remove_under_a_segment(
    (drives, member): (usize, usize),
    layout: Layout,
) -> (Bench, Result<Managed, IoError>) {
    let bench = Bench::new(3, 32 << 20);
    let options = ImportOptions {
        repair_after: Duration::from_secs(300),
        ..ImportOptions::default()
    };
    let mut bench = Bench::open_with(bench.media, &options).unwrap();
    for _ in 3..drives {
        // Nothing is on it yet.
        bench.add_drive(48 << 20);
    }
    let volume = bench.volume_as(400, layout).unwrap();
    let writes = |op| matches!(op, Operation::Write(_));
    bench.seen.held.set(Some(writes));
    // It needs a slot, and there is none yet.
    let request = bench.request(0, &vec![7; 16 * 4096]);
    let (done, _) = bench.run(Event::Command { volume, request });
    assert!(done.is_empty());
    let what = Manage::RemoveDrive { member };
    let (_, mut answers) = bench.run(Event::Manage { id: 1000, what });
    bench.seen.held.set(None);
    answers.append(&mut bench.run(Event::Tick).1);
    let answer = answers.pop().unwrap().1;
    (bench, answer)
}

#[test]
fn a_drive_waits_for_a_segment_that_is_about_to_be_there() {
    for member in 0..4 {
        let layout = Layout::Mirror { copies: 2 };
        let (mut bench, answer) = remove_under_a_segment((4, member), layout);
        answer.unwrap();
        let status = bench.engine.status();
        assert!(!status.members[member].in_service, "drive {member} stays");
        // It has left nothing behind that another would have to see to.
        assert!(!status.degraded && !status.members[member].holds);
        bench.write(16, 0, &vec![7; 300 * 4096]).unwrap();
        bench.manage(Manage::Drain).unwrap();
        assert!(!bench.engine.status().degraded);
    }
}

#[test]
fn a_segment_that_is_about_to_be_there_may_need_every_drive() {
    for member in 0..3 {
        let layout = Layout::Parity { data: 2, parity: 1 };
        let (bench, answer) = remove_under_a_segment((3, member), layout);
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::InvalidRequest);
        let state = bench.engine.members()[member].state;
        assert_eq!(state, MemberState::Active);
    }
}
