//! Drives that leave a pool, and what the map has had on them.
#![allow(clippy::unwrap_used)]

mod common;

use ashlar_store::Manage;
use ashlar_store::format::MemberState;
use common::Bench;

fn fill(granules: usize, value: u8) -> Vec<u8> {
    vec![value; granules * 4096]
}

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
        bench.manage(Manage::Settle).unwrap();
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
        // What the map had there is nobody's any more, with or without another import.
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
