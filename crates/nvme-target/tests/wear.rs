//! What comings and goings leave behind. A process of its own: others' files and memory would count.

#[path = "server/disk.rs"]
#[allow(dead_code)] // Shared with tests that use more of it.
mod disk;
#[path = "server/rig.rs"]
#[allow(dead_code)]
mod rig;

use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BlockDevice, BlockRange, Request};

use disk::{Disk, Door};
use rig::{Rig, eventually, export, serve, stop};

const NQN: &str = "nqn.2026-01.io.ashlar:pool:one";
const OTHER: &str = "nqn.2026-01.io.ashlar:pool:two";

fn door(disk: &Arc<Disk>) -> Arc<Door> {
    Arc::new(Door(disk.clone()))
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    let digits = line.and_then(|l| l.split_whitespace().nth(1));
    digits.and_then(|d| d.parse().ok()).expect("a number")
}

#[test]
fn a_hundred_comings_and_goings_leave_nothing() {
    let server = serve();
    let keeper = Disk::new(100);
    server.add(export(OTHER, door(&keeper))).expect("added");
    let mut steady = Rig::connect(&server, OTHER, "").expect("connected");
    let (mut files, mut memory) = (0, 0);
    for round in 0..120 {
        let disk = Disk::new(64);
        server.add(export(NQN, door(&disk))).expect("added");
        let mut rig = Rig::connect(&server, NQN, "?queues=2").expect("connected");
        rig.write(round % 64, round as u8);
        if round % 3 == 0 {
            disk.resize(65 + round);
            server.resized(NQN).expect("resized");
        }
        if round % 2 == 0 {
            // In mid-I/O, and without a farewell.
            let buffer = rig.buffer(4096);
            let request = Request::read(1, BlockRange::new(0, 1), buffer);
            rig.device.submit(request);
        } else {
            drop(rig);
        }
        server.remove(NQN).expect("removed");
        assert_eq!(Arc::strong_count(&disk), 1, "round {round}");
        steady.write(1, round as u8);
        if round == 20 {
            eventually("sockets close", || {
                files = open_files();
                std::thread::sleep(Duration::from_millis(50));
                open_files() == files
            });
            memory = resident_kib();
        }
    }
    let grown = |now: u64| now.saturating_sub(memory);
    println!(
        "{files} files, {memory} KiB, then {} KiB more",
        grown(resident_kib())
    );
    eventually("files are closed", || open_files() <= files);
    assert!(grown(resident_kib()) < 4096);
    assert_eq!(steady.device.inner_mut().losses(), 0);
    drop(steady);
    stop(server);
}
