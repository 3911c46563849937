//! Drives that are taken out: what they leave behind, and that they do leave.
#![allow(clippy::unwrap_used)]

mod common;

use ashlar_store::format::MemberState;
use ashlar_store::{Layout, Manage};
use common::Bench;

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
    bench.manage(Manage::Settle).unwrap();
    for member in [0, 1] {
        bench.manage(Manage::RemoveDrive { member }).unwrap();
    }
    bench.manage(Manage::Settle).unwrap();
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
        bench.manage(Manage::Settle).unwrap();
        bench.manage(Manage::RemoveDrive { member }).unwrap();
        assert_eq!(bench.engine.members()[member].state, MemberState::Excluded);
    }
}
