//! Drives that die, under load: the pool goes on with the others, says so, and makes the copies anew.

use std::fs::File;
use std::path::Path;

use ashlar_nvme::Status;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::common::eventually;
use crate::host::{BLOCK, Host};
use crate::load::Load;
use crate::node::{Node, Room};
use crate::random::Random;

/// A drive that can be made to fail everything: a file in memory, cut off and sealed.
pub struct Mortal(File);

impl Mortal {
    pub fn new(mib: u64) -> Self {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        let file = File::from(memfd_create("drive", flags).expect("memory"));
        file.set_len(mib << 20).expect("a file");
        Self(file)
    }

    /// As a daemon that this process has started names it.
    pub fn spec(&self) -> String {
        format!("file:{}", self.path())
    }

    fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        let fd = self.0.as_raw_fd();
        format!("/proc/{}/fd/{fd}", std::process::id())
    }

    /// What it holds.
    pub fn content(&self) -> Vec<u8> {
        use std::os::unix::fs::FileExt;
        let mut content = vec![0; self.0.metadata().expect("a file").len() as usize];
        self.0.read_exact_at(&mut content, 0).expect("a file");
        content
    }

    /// From now on reads find nothing and writes fail, for good.
    pub fn die(&self) {
        self.0.set_len(0).expect("a file");
        fcntl_add_seals(&self.0, SealFlags::GROW).expect("a seal");
    }
}

#[test]
fn a_pool_that_loses_a_drive_goes_on_says_so_and_heals() {
    loses_a_drive("mirror:2", 3);
}

#[test]
fn a_pool_with_parity_that_loses_a_drive_heals_as_well() {
    loses_a_drive("parity:2+1", 4);
}

/// One of so many drives dies; those left are enough for the layout.
fn loses_a_drive(layout: &str, count: usize) {
    let mut random = Random::of_this_run(&format!("loss {layout}"));
    let room = Room::new();
    let mortal = Mortal::new(96);
    let mut drives = room.drives(count, 96);
    let spare = drives.pop().expect("a drive");
    drives.push(mortal.spec());
    let mut node = Node::start(&room);
    node.make(&drives, layout, "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| {
        round.more(500);
        mortal.die();
        eventually("the pool says that a drive is gone", || {
            let status = node.status();
            let drives = status["drives"].as_array().cloned().unwrap_or_default();
            let is_lost = |drive: &serde_json::Value| drive["state"] != "online";
            drives.iter().any(is_lost) && status.to_string().contains("reason")
        });
        let said = node.said();
        assert!(said.contains("is out of service"), "{said}");
        round.more(300);
        // Those left are enough for every copy.
        eventually("every copy is made anew", || {
            let status = node.status();
            status["work"].as_array().is_some_and(Vec::is_empty)
        });
        round.more(300);
    });
    load.verify(node.place(&nqn));
    // Again without that drive, in order and not.
    node.kill();
    node = Node::start(&room);
    load.verify(node.place(&nqn));
    // Any one of those left is enough now: all copies are there twice.
    load.during(node.place(&nqn), |round| {
        node.ok(&["pool", "add", "tank", "--drive", &spare]);
        round.more(300);
    });
    node.await_healthy();
    node.end();
    std::fs::remove_file(room.path("d0")).expect("a file");
    node = Node::start(&room);
    let missing = format!("drive {} is missing", room.spec("d0"));
    assert!(node.said().contains(&missing), "{}", node.said());
    load.during(node.place(&nqn), |round| round.more(300));
    load.verify(node.place(&nqn));
    node.await_healthy();
    node.end();
}

/// What is to be told cannot be: that ends neither the daemon nor the core that serves the pool.
#[test]
fn a_log_that_is_full_costs_nothing_but_what_it_would_say() {
    let mut random = Random::of_this_run("full log");
    let room = Room::new();
    let mortal = Mortal::new(96);
    let mut drives = room.drives(1, 96);
    drives.push(mortal.spec());
    let full = Path::new("/dev/full");
    let node = Node::telling(&room, full);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| {
        round.more(100);
        mortal.die();
        eventually("the drive has left", || node.state() == "degraded");
        round.more(100);
    });
    load.verify(node.place(&nqn));
    node.end();
    std::fs::remove_file(room.path("d0")).expect("a file");
    let node = Node::telling(&room, full);
    assert_eq!(node.state(), "failed", "no drive is left");
    node.end();
}

#[test]
fn a_drive_replaced_behind_the_daemons_back_is_a_lost_drive() {
    let mut random = Random::of_this_run("replaced file");
    let room = Room::new();
    let drives = room.drives(3, 96);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| {
        round.more(300);
        // The daemon has the old file open, and goes on.
        std::fs::remove_file(room.path("d1")).expect("a file");
        room.drive("d1", 96);
        round.more(300);
        round.will_be_killed();
        node.kill();
    });
    node = Node::start(&room);
    load.verify(node.place(&nqn));
    load.during(node.place(&nqn), |round| round.more(300));
    node.await_healthy();
    // What is there now is an empty drive, which may come back as such.
    node.ok(&["pool", "add", "tank", "--drive", &drives[1]]);
    node.await_healthy();
    load.verify(node.place(&nqn));
    node.kill();
    node = Node::start(&room);
    node.await_healthy();
    load.verify(node.place(&nqn));
    node.end();
}

/// Writes one block and gives what became of it.
pub fn written(node: &Node, nqn: &str) -> Status {
    let mut host = Host::connect(node.address, nqn).expect("a host");
    // Behind the load's blocks.
    host.submit_write(0, 4095, vec![7; BLOCK]).expect("a write");
    host.next().expect("an answer").status
}

#[test]
fn a_volume_that_stops_when_degraded_reads_on_until_redundancy_is_back() {
    let mut random = Random::of_this_run("stop");
    let room = Room::new();
    let drives = room.drives(3, 96);
    let mut node = Node::start(&room);
    node.make(&drives[..2], "mirror:2", "16MiB");
    let set = |node: &Node, what| node.ok(&["volume", "set", "tank/db", "--when-degraded", what]);
    set(&node, "stop");
    let nqn = node.nqn();
    let mut load = Load::new(4095, &mut random);
    load.during(node.place(&nqn), |round| round.more(300));
    assert!(written(&node, &nqn).is_success());
    node.end();
    std::fs::remove_file(room.path("d1")).expect("a file");
    node = Node::start(&room);
    let state = |node: &Node| node.json(&["volume", "show", "tank/db"])["state"].clone();
    assert_eq!(state(&node), "stopped");
    assert_eq!(written(&node, &nqn), Status::WRITE_PROTECTED.with_dnr());
    load.verify(node.place(&nqn));
    // It is the operator's to say, and it outlives the daemon.
    set(&node, "continue");
    assert_eq!(state(&node), "degraded");
    assert!(written(&node, &nqn).is_success());
    set(&node, "stop");
    node.kill();
    node = Node::start(&room);
    assert!(!written(&node, &nqn).is_success());
    node.ok(&["pool", "add", "tank", "--drive", &drives[2]]);
    node.await_healthy();
    assert_eq!(state(&node), "online");
    for told in [
        "volume tank/db takes no writes: ",
        "volume tank/db takes writes again",
    ] {
        eventually("the log says so", || node.said().contains(told));
    }
    load.during(node.place(&nqn), |round| round.more(300));
    load.verify(node.place(&nqn));
    node.end();
}

/// A pool that has stopped is imported again, or let go of, by what its status says.
#[test]
fn a_pool_that_has_stopped_is_taken_up_again_without_a_restart() {
    let mut random = Random::of_this_run("stopped");
    let room = Room::new();
    let mortal = Mortal::new(96);
    let (name, path) = ("mortal", room.path("mortal"));
    std::os::unix::fs::symlink(mortal.path(), &path).expect("a link");
    let node = Node::start(&room);
    node.make(&[room.spec(name)], "mirror:1", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| round.more(200));
    node.ok(&["pool", "export", "--force", "tank"]);
    node.ok(&["pool", "import", "tank", "--drive", &room.spec(name)]);
    let content = mortal.content();
    mortal.die();
    let mut host = Host::connect(node.address, &nqn).expect("connected");
    host.submit_write(1, 4090, vec![0; BLOCK]).expect("sent");
    let done = host.next().expect("an answer");
    assert_ne!(done.status, Status::SUCCESS);
    let advised = |order: &str| {
        let status = node.status();
        assert_eq!(status["state"], "failed", "{status}");
        let said = status.to_string();
        assert!(said.contains(&format!("`{order}`")), "{said}");
    };
    // Nothing has changed: the advice may be followed, and says what is wrong.
    advised("pool import tank");
    node.refuses(&["pool", "import", "tank"], 3, &["mortal"]);
    // The drive is back, with what it held.
    std::fs::remove_file(&path).expect("a link");
    std::fs::write(&path, content).expect("a file");
    advised("pool import tank");
    node.ok(&["pool", "import", "tank"]);
    assert_eq!(node.state(), "healthy");
    load.verify(node.place(&nqn));
    load.during(node.place(&nqn), |round| round.more(100));
    node.end();
}

/// The other order that a stopped pool's status names.
#[test]
fn a_pool_that_has_stopped_is_let_go_of_without_a_restart() {
    let room = Room::new();
    let mortal = Mortal::new(96);
    let node = Node::start(&room);
    node.make(&[mortal.spec()], "mirror:1", "16MiB");
    let mut host = Host::connect(node.address, &node.nqn()).expect("connected");
    mortal.die();
    host.submit_write(1, 0, vec![0; BLOCK]).expect("sent");
    assert_ne!(host.next().expect("an answer").status, Status::SUCCESS);
    let reason = node.status()["reason"].to_string();
    assert!(reason.contains("`pool export --force tank`"), "{reason}");
    node.ok(&["pool", "export", "--force", "tank"]);
    // The name, and the daemon, are free for another.
    let drive = room.drive("d1", 96);
    node.make(&[drive], "mirror:1", "16MiB");
    assert_eq!(node.state(), "healthy");
    node.end();
}
