//! Drives that come and go by order, under load.

use crate::common::{ended, eventually};
use crate::load::Load;
use crate::node::{Node, Room, text};
use crate::random::Random;

/// Names of the pool's drives that are in service.
fn specs(node: &Node) -> Vec<String> {
    let status = node.status();
    let drives = status["drives"].as_array().cloned().unwrap_or_default();
    let online = drives.iter().filter(|drive| drive["state"] == "online");
    online.map(|drive| text(&drive["spec"])).collect()
}

fn await_gone(node: &Node, drive: &str) {
    eventually("the drive has left", || {
        !specs(node).iter().any(|spec| spec == drive)
    });
}

#[test]
fn drives_are_added_replaced_and_removed_under_load() {
    let mut random = Random::of_this_run("add, replace, remove");
    let room = Room::new();
    let drives = room.drives(5, 96);
    let mut node = Node::start(&room);
    node.make(&drives[..2], "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| {
        round.more(300);
        node.ok(&["pool", "add", "tank", "--drive", &drives[2]]);
        round.more(300);
        let replace = [
            "pool", "replace", "tank", "--old", &drives[0], "--new", &drives[3],
        ];
        node.ok(&replace);
        round.more(100);
        await_gone(&node, &drives[0]);
        node.await_healthy();
        round.more(100);
        node.ok(&["pool", "remove", "tank", "--drive", &drives[1]]);
        await_gone(&node, &drives[1]);
        node.await_healthy();
        round.more(100);
    });
    load.verify(node.place(&nqn));
    assert_eq!(specs(&node), drives[2..4]);
    // What has left may be anything from now on.
    std::fs::remove_file(room.path("d0")).expect("a file");
    room.drive("d1", 1);
    node.kill();
    node = Node::start(&room);
    node.await_healthy();
    load.verify(node.place(&nqn));
    // Without a second drive there is nowhere to go.
    node.refuses(
        &["pool", "remove", "tank", "--drive", &drives[2]],
        2,
        &["add one first"],
    );
    load.verify(node.place(&nqn));
    node.end();
}

#[test]
fn a_daemon_killed_while_drives_come_and_go_takes_up_the_work() {
    let mut random = Random::of_this_run("killed at work");
    let room = Room::new();
    let drives = room.drives(3, 96);
    let mut node = Node::start(&room);
    node.make(&drives[..2], "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    // The drive that is not in the pool goes in, and another one out.
    let mut outside = 2;
    for _ in 0..crate::random::rounds(3, 40) {
        let leaving = (outside + 1 + random.below(2) as usize) % 3;
        let wait = std::time::Duration::from_millis(random.below(400));
        load.during(node.place(&nqn), |round| {
            round.more(100);
            let new = &drives[outside];
            let add = ["pool", "add", "tank", "--destroy-data", "--drive", new];
            node.ok(&add);
            node.ok(&["pool", "remove", "tank", "--drive", &drives[leaving]]);
            std::thread::sleep(wait);
            round.will_be_killed();
            node.kill();
        });
        node = Node::start(&room);
        load.verify(node.place(&nqn));
        await_removed(&node, &drives[leaving]);
        node.await_healthy();
        load.verify(node.place(&nqn));
        outside = leaving;
    }
    node.end();
}

/// An evacuation is durable when it is ordered, so it goes on after a restart.
fn await_removed(node: &Node, drive: &str) {
    eventually("the drive has left after a restart", || {
        !specs(node).iter().any(|spec| spec == drive)
    });
}

#[test]
fn a_pool_is_let_go_and_taken_up_under_other_names() {
    let mut random = Random::of_this_run("export, import");
    let room = Room::new();
    let drives = room.drives(2, 96);
    let node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| {
        round.more(500);
        node.refuses(&["pool", "export", "tank"], 2, &["--force"]);
        round.more(100);
    });
    eventually("the hosts have gone", || {
        ended(&mut node.command_to(&["pool", "export", "tank"])).code == 0
    });
    std::fs::rename(room.path("d0"), room.path("moved")).expect("a file");
    std::fs::rename(room.path("d1"), room.path("d0")).expect("a file");
    let (one, two) = (room.spec("d0"), room.spec("moved"));
    node.ok(&["pool", "import", "tank", "--drive", &one, "--drive", &two]);
    // Who may connect is the daemon's to know, and went with the pool.
    node.ok(&["volume", "allow", "tank/db", "--any-host"]);
    assert_eq!(node.nqn(), nqn);
    load.verify(node.place(&nqn));
    node.await_healthy();
    load.during(node.place(&nqn), |round| round.more(300));
    node.kill();
    let node = Node::start(&room);
    load.verify(node.place(&nqn));
    node.end();
}
