//! Copies that go bad under load, on one drive of a mirror: no wrong read, and they are made good.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::OFlags;

use crate::load::{Load, Round};
use crate::node::{Node, Room};
use crate::random::{Random, rounds};

const DRIVE: u64 = 96 << 20;
const PAGE: usize = 4096;
const MOST_NOISE: usize = 256 << 10;

/// Opens a drive past the page cache, as the daemon does. A page that is written through the cache
/// while the daemon writes to the same place makes the kernel fail the daemon's next flush ("Page
/// cache invalidation failure on direct I/O"), and then the drive is rightly out.
fn file(room: &Room, name: &str) -> File {
    let path = room.path(name);
    let open = |flags: OFlags| {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(flags.bits() as i32);
        options.open(&path)
    };
    // Where files cannot be opened so, the daemon's are not either.
    open(OFlags::DIRECT)
        .or_else(|_| open(OFlags::empty()))
        .expect("a file")
}

/// Overwrites `count` stretches, anywhere behind the labels and roots.
pub fn noise(room: &Room, name: &str, count: u64, random: &mut Random) {
    let file = file(room, name);
    let mut buffer = vec![0; MOST_NOISE + PAGE];
    for _ in 0..count {
        let length = PAGE * random.between(1, (MOST_NOISE / PAGE) as u64) as usize;
        let pages = (DRIVE - (1 << 20) - length as u64) / PAGE as u64;
        let at = (1 << 20) + random.below(pages) * PAGE as u64;
        let start = buffer.as_ptr().align_offset(PAGE);
        let noise = &mut buffer[start..start + length];
        for word in noise.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        file.write_all_at(noise, at).expect("a write");
    }
}

pub fn scrubbed(node: &Node) {
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
    for _ in 0..rounds(1, 20) {
        survives("noise", make_noise);
    }
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
    assert_eq!(node.state(), "degraded");
    load.verify(node.place(&nqn));
    node.end();
}

#[test]
fn a_copy_that_is_cut_short_is_made_good() {
    for _ in 0..rounds(1, 20) {
        survives("cut short", |room, round, random| {
            let file = file(room, "d1");
            file.set_len((1 << 20) + random.below(DRIVE / 2))
                .expect("a file");
            round.more(100);
            file.set_len(DRIVE).expect("a file");
        });
    }
}
