//! kill -9 of the daemon at random moments: what was acknowledged is there, nothing else is, and
//! writes are whole.

use std::time::Duration;

use crate::load::Load;
use crate::node::{Node, Room};
use crate::random::{Random, is_soak, rounds};

fn survives_kills(layout: &str, drives: usize) {
    let mut random = Random::of_this_run(layout);
    let room = Room::new();
    let drives = room.drives(drives, 96);
    let mut node = Node::start(&room);
    node.make(&drives, layout, "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    for round in 0..rounds(5, 100) {
        let before = load.acknowledged();
        let alive = Duration::from_millis(random.between(20, 700));
        let in_order = random.below(6) == 0;
        let place = node.place(&nqn);
        load.during(place, |round| {
            round.more(30);
            std::thread::sleep(alive);
            round.will_be_killed();
            match in_order {
                true => node.end(),
                false => node.kill(),
            }
        });
        assert!(load.acknowledged() > before, "round {round} has written");
        // Recovery is interrupted, too.
        for _ in 0..random.below(3) {
            Node::stillborn(&room, Duration::from_millis(random.between(1, 150)));
        }
        node = Node::start(&room);
        assert_eq!(node.nqn(), nqn);
        assert_eq!(node.state(), "healthy", "after round {round}");
        load.verify(node.place(&nqn));
    }
    node.end();
    println!("{} writes acknowledged", load.acknowledged());
}

#[test]
fn one_drive_survives_kills() {
    survives_kills("mirror:1", 1);
}

#[test]
fn a_mirror_on_two_drives_survives_kills() {
    survives_kills("mirror:2", 2);
}

#[test]
fn parity_survives_kills() {
    survives_kills("parity:2+1", 4);
}

#[test]
fn a_mirror_over_four_drives_survives_kills() {
    survives_kills("mirror:2", 4);
}

/// Those below are run by `make soak` only.
fn survives_kills_in_a_soak(layout: &str, drives: usize) {
    if is_soak() {
        survives_kills(layout, drives);
    }
}

#[test]
fn three_copies_survive_kills() {
    survives_kills_in_a_soak("mirror:3", 3);
}

#[test]
fn four_copies_survive_kills() {
    survives_kills_in_a_soak("mirror:4", 5);
}

#[test]
fn wide_parity_survives_kills() {
    survives_kills_in_a_soak("parity:4+1", 5);
}

#[test]
fn double_parity_survives_kills() {
    survives_kills_in_a_soak("parity:2+2", 5);
}
