//! Copies that go bad under load, on one drive of a mirror: no wrong read, and they are made good.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::load::{Load, Round};
use crate::node::{Node, Room};
use crate::random::Random;

const DRIVE: u64 = 96 << 20;

fn file(room: &Room, name: &str) -> File {
    let file = OpenOptions::new().write(true).open(room.path(name));
    file.expect("a file")
}

/// Overwrites `count` stretches, anywhere behind the labels and roots.
fn noise(room: &Room, name: &str, count: u64, random: &mut Random) {
    let file = file(room, name);
    for _ in 0..count {
        let length = random.between(1, 256) << 10;
        let at = (1 << 20) + random.below(DRIVE - (1 << 20) - length);
        let noise: Vec<u8> = (0..length / 8)
            .flat_map(|_| random.next().to_le_bytes())
            .collect();
        file.write_all_at(&noise, at).expect("a write");
    }
}

fn scrubbed(node: &Node) {
    let scrubs = |node: &Node| node.status()["counters"]["scrubs"].as_u64();
    let before = scrubs(node);
    node.ok(&["pool", "scrub", "tank"]);
    let start = std::time::Instant::now();
    while scrubs(node) <= before {
        let patient = start.elapsed().as_secs() < 20;
        assert!(patient, "the scrub does not end: {:#}", node.status());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A mirror of two drives, one of which is harmed under load.
fn survives(what: &str, harm: impl Fn(&Room, &Round, &mut Random)) -> (Room, String, Load) {
    let mut random = Random::of_this_run(what);
    let room = Room::new();
    let drives = room.drives(2, DRIVE >> 20);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| {
        round.more(500);
        harm(&room, round, &mut random);
        round.more(500);
    });
    load.verify(node.place(&nqn));
    node.kill();
    node = Node::start(&room);
    load.verify(node.place(&nqn));
    load.during(node.place(&nqn), |round| round.more(300));
    load.verify(node.place(&nqn));
    node.end();
    (room, nqn, load)
}

#[test]
fn noise_on_one_copy_is_seen_and_made_good() {
    survives("noise", make_noise);
}

fn make_noise(room: &Room, round: &Round, random: &mut Random) {
    for _ in 0..10 {
        noise(room, "d1", 10, random);
        round.more(50);
    }
}

#[test]
fn after_a_scrub_the_harmed_drive_serves_alone() {
    let (room, nqn, mut load) = survives("alone", make_noise);
    let node = Node::start(&room);
    scrubbed(&node);
    node.await_healthy();
    node.end();
    std::fs::remove_file(room.path("d0")).expect("a file");
    let node = Node::start(&room);
    node.refuses(&["volume", "show", "tank/db"], 3, &["missing"]);
    node.ok(&["pool", "import", "tank", "--degraded"]);
    assert_eq!(node.state(), "degraded");
    load.verify(node.place(&nqn));
    node.end();
}

#[test]
fn a_copy_that_is_cut_short_is_made_good() {
    survives("cut short", |room, round, random| {
        let file = file(room, "d1");
        file.set_len((1 << 20) + random.below(DRIVE / 2))
            .expect("a file");
        round.more(100);
        file.set_len(DRIVE).expect("a file");
    });
}
