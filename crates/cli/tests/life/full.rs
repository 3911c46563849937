//! A pool that is full: writes fail and say why, nothing is lost, and room that is made is room.

use ashlar_nvme::Status;

use crate::common::eventually;
use crate::host::{BLOCK, Host};
use crate::ledger::{fill, read_back};
use crate::node::{Node, Room};

/// Blocks of a write.
const STEP: u64 = 16;

fn call_write(host: &mut Host, at: u64, seq: u64) -> Status {
    let mut data = vec![0; STEP as usize * BLOCK];
    let blocks = data.chunks_exact_mut(BLOCK).zip(at..);
    blocks.for_each(|(bytes, block)| fill(block, seq, bytes));
    host.submit_write(0, at, data).expect("connected");
    host.next().expect("an answer").status
}

fn holds(host: &mut Host, at: u64, allowed: &[u64]) {
    host.submit_read(0, at, STEP).expect("connected");
    let done = host.next().expect("an answer");
    assert!(done.status.is_success(), "read at {at}: {:?}", done.status);
    for (bytes, block) in done.data.chunks_exact(BLOCK).zip(at..) {
        let seq = read_back(block, bytes).expect("something that was written");
        assert!(
            allowed.contains(&seq),
            "block {block} holds {seq}, not one of {allowed:?}"
        );
    }
}

/// Writes `seq` from `at` on until the pool is full; where it was refused.
fn fill_up(host: &mut Host, mut at: u64, end: u64, seq: u64) -> u64 {
    loop {
        assert!(at < end, "a pool of 64 MiB has taken {end} blocks");
        let status = call_write(host, at, seq);
        if status.is(Status::CAPACITY_EXCEEDED) {
            return at;
        }
        assert!(status.is_success(), "write at {at}: {status:?}");
        at += STEP;
    }
}

#[test]
fn a_full_pool_refuses_writes_reads_on_and_recovers() {
    let room = Room::new();
    let drives = room.drives(1, 64);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:1", "256MiB");
    let nqn = node.nqn();
    let mut host = Host::connect(node.address, &nqn).expect("the volume is served");
    let full = fill_up(&mut host, 0, 65_536, 1);
    // At least half of a drive of 64 MiB holds data.
    assert!(full >= 8192, "full after {full} blocks");
    (0..full)
        .step_by(STEP as usize)
        .for_each(|at| holds(&mut host, at, &[1]));
    holds(&mut host, full, &[0, 1]);
    eventually("it is told that the pool is nearly full", || {
        node.said().contains("pool tank is nearly full")
    });
    let warnings = node.status()["warnings"].to_string();
    for word in ["nearly full", "are promised 268435456 bytes"] {
        assert!(warnings.contains(word), "{warnings}");
    }
    assert!(!node.said().contains("has room again"));
    // It is full also for those who come later, and after a crash.
    node.kill();
    node = Node::start(&room);
    assert_eq!(node.nqn(), nqn);
    host = Host::connect(node.address, &nqn).expect("the volume is served");
    (0..full)
        .step_by(STEP as usize)
        .for_each(|at| holds(&mut host, at, &[1]));
    let full = fill_up(&mut host, full, 65_536, 1);
    let half = full / 2 / STEP * STEP;
    host.submit_deallocate(0, 0, half).expect("connected");
    assert!(host.next().expect("an answer").status.is_success());
    (0..half)
        .step_by(STEP as usize)
        .for_each(|at| holds(&mut host, at, &[0]));
    eventually("there is room again", || {
        call_write(&mut host, 0, 2).is_success()
    });
    eventually("it is told that there is room", || {
        node.said().contains("pool tank has room again")
    });
    // Most of what was given back can be written.
    for at in (0..half * 3 / 4).step_by(STEP as usize) {
        eventually("there is room", || {
            call_write(&mut host, at, 3).is_success()
        });
    }
    (0..half * 3 / 4)
        .step_by(STEP as usize)
        .for_each(|at| holds(&mut host, at, &[3]));
    (half..full)
        .step_by(STEP as usize)
        .for_each(|at| holds(&mut host, at, &[1]));
    drop(host);
    node.end();
}
