//! A pool that is full: writes fail and say why, nothing is lost, and room that is made is room.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use ashlar_nvme::Status;

use crate::common::eventually;
use crate::host::{BLOCK, Host};
use crate::ledger::{fill, read_back};
use crate::node::{Node, Room, text};

/// A small file system, unmounted at the end.
struct Mounted(PathBuf);

impl Mounted {
    fn new(path: PathBuf, mib: u64) -> Self {
        std::fs::create_dir(&path).expect("a folder");
        let size = format!("size={mib}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path);
        assert!(mount.status().expect("mount").success());
        Self(path)
    }

    /// Takes all the space that is left.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut file = File::create(&path).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

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

#[test]
fn a_drive_without_space_on_its_file_system_is_waited_for() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting takes root");
        return;
    }
    let room = Room::new();
    let small = Mounted::new(room.path("small"), 64);
    let drives = [room.drive("d0", 96), room.drive("small/d1", 96)];
    let node = Node::start(&room);
    node.make(&drives, "mirror:2", "32MiB");
    let nqn = node.nqn();
    let mut host = Host::connect(node.address, &nqn).expect("the volume is served");
    assert!(call_write(&mut host, 0, 1).is_success());
    let ballast = small.fill();
    let part = 4096;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut writer = Host::connect(node.address, &nqn).expect("the volume is served");
            let all = (STEP..part).step_by(STEP as usize);
            all.for_each(|at| assert!(call_write(&mut writer, at, 2).is_success()));
        });
        let warned = || node.status()["warnings"].to_string();
        eventually("it is said what the drive lacks", || {
            warned().contains("Make room on the file system")
        });
        eventually("the log says so", || {
            node.said().contains("is asked again until it can")
        });
        let status = node.status();
        let drive = &status["drives"][1];
        assert_eq!(drive["state"], "online", "{status}");
        let reason = text(&drive["reason"]);
        for word in ["waits for", "no space", "small/d1"] {
            assert!(reason.contains(word), "{reason}");
        }
        assert_eq!(drive["errors"]["write"], 0, "{status}");
        holds(&mut host, 0, &[1]);
        assert!(!writer.is_finished(), "something was acknowledged");
        // What the operator is told to do.
        std::fs::remove_file(&ballast).expect("a file");
        writer.join().expect("every write is answered");
        eventually("nothing is lacked any more", || {
            !warned().contains("Make room on the file system")
        });
    });
    assert_eq!(node.state(), "healthy");
    eventually("the log says that it is over", || {
        node.said().contains("does again what it is asked")
    });
    let all = (STEP..part).step_by(STEP as usize);
    all.for_each(|at| holds(&mut host, at, &[2]));
    node.end();
}
