//! A cache without a mark knows its backing device by what names it: another is refused by name, or taken up with nothing
//! cached.
#![allow(clippy::unwrap_used)]

mod world;

use ashlar_block::{Durability, Operation};
use ashlar_cache::{GRANULE, Identity, Layout, Mode, Other};

use world::{GRANULES, Shape, World};

const BYTES: u64 = GRANULES * GRANULE as u64;

fn named(name: &str) -> Identity {
    Identity::new(BYTES, Some(name.to_owned()))
}

/// A cache that has something and knows its device by a name.
fn warm(seed: u64, mode: Mode) -> World {
    let mut world = World::new(seed, Shape::of(mode), None);
    for _ in 0..300 {
        if world.flying.len() < 24 {
            world.ask();
        }
        world.turn(4);
    }
    world.quiet();
    world.flush();
    // What was cached is recorded.
    for _ in 0..300 {
        world.turn(8);
    }
    // What is said of the device that an older program's cache has is taken for it.
    world.found = named("WWN 1");
    world.reopen();
    world.quiet();
    assert!(world.cache().status().cached_bytes > 0);
    world
}

/// It does not come into service, for these reasons.
fn is_refused(world: &mut World, reasons: &[&str]) {
    let before = world.backing.lasting.clone();
    world.reopen();
    world.turns(50);
    let why = world.cache().status().failure.unwrap();
    for reason in reasons {
        assert!(why.contains(reason), "{why}");
    }
    assert!(world.backing.lasting == before);
}

/// Nothing on the fast device says that something is cached, or takes room.
fn is_forgotten(world: &World) {
    let pages = Layout { granules: GRANULES }.page_granules();
    let mut left = (0..GRANULES).chain(pages);
    assert!(left.all(|at| world.fast.get(at).iter().all(|&byte| byte == 0)));
}

#[test]
fn another_device_is_refused_by_name_or_taken_up_with_nothing_cached() {
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        let mut world = warm(3, mode);
        let cached = world.cache().status().cached_bytes;
        let first = world.exchange();
        world.found = named("WWN 2");
        is_refused(&mut world, &["disk", "WWN 1", "WWN 2", "--other-device"]);
        world.found = Identity::new(BYTES, None);
        is_refused(&mut world, &["WWN 1", "nothing names"]);
        // The first one again, larger.
        let second = (std::mem::replace(&mut world.backing, first.0), world.model);
        world.model = first.1;
        world.found = Identity::new(BYTES + 4096, Some("WWN 1".to_owned()));
        world.reopen();
        world.quiet();
        assert_eq!(world.cache().status().cached_bytes, cached);
        world.read_all();
        (world.backing, world.model) = second;
        (world.found, world.other) = (named("WWN 2"), Other::TakenUp);
        world.reopen();
        world.quiet();
        assert_eq!(world.cache().status().cached_bytes, 0);
        is_forgotten(&world);
        world.read_all();
        // It is the one that is known now.
        world.other = Other::Refused;
        world.submit(Operation::Write(Durability::Durable), 300, 4);
        world.quiet();
        world.crash();
        world.quiet();
        world.read_all();
    }
}

#[test]
fn a_crash_while_what_is_cached_is_forgotten_leaves_nothing_of_the_other_device() {
    for seed in 0..30 {
        let mut world = warm(seed, Mode::WriteThrough);
        let first = world.exchange();
        (world.found, world.other) = (named("WWN 2"), Other::TakenUp);
        world.reopen();
        for _ in 0..seed % 15 {
            world.turn(1);
        }
        let back = world.rng.bool();
        if back {
            (world.backing, world.model) = first;
            (world.found, world.other) = (named("WWN 1"), Other::TakenUp);
        }
        world.crash();
        world.quiet();
        world.read_all();
    }
}

#[test]
fn a_device_that_nothing_names_is_known_by_its_size() {
    let mut world = World::new(3, Shape::of(Mode::WriteAround), None);
    world.submit(Operation::Read, 300, 4);
    world.quiet();
    world.reopen();
    world.quiet();
    world.found = Identity::new(BYTES + 4096, None);
    let sizes = [BYTES.to_string(), (BYTES + 4096).to_string()];
    is_refused(&mut world, &[&sizes[0], &sizes[1], "nothing names"]);
    world.found = Identity::new(BYTES, None);
    world.reopen();
    world.quiet();
    // A mark knows its device: write-back goes by that.
    let mut world = World::new(3, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Write(Durability::Durable), 300, 4);
    world.quiet();
    world.found = named("WWN 2");
    world.reopen();
    world.quiet();
    world.read_all();
}
