//! A backing device that does not answer: reads of what is cached go on, whatever waits for it.
#![allow(clippy::unwrap_used)]

mod world;

use std::time::Duration;

use ashlar_block::{Durability, Operation};
use ashlar_cache::{Mark, Mode};

use world::{GRANULES, Shape, World};

const WRITE: Operation = Operation::Write(Durability::Durable);

/// A cache that has some, 32 granules from 300 on, and nothing newer.
fn warm(mode: Mode) -> World {
    let mut world = World::with_room(700, 5, Shape::of(mode), None);
    for first in (300..332).step_by(4) {
        world.submit(Operation::Read, first, 4);
        world.quiet();
    }
    world.turns(20);
    world
}

/// It hangs, and cached reads are answered; nothing else of so many requests is.
fn reads_are_answered(world: &mut World, others: usize) {
    world.backing.hangs = true;
    world.turns(20);
    for first in 300..310 {
        world.submit(Operation::Read, first, 20);
    }
    world.turns(20);
    let left = world.flying.len();
    assert_eq!(left, others, "not answered");
}

fn ends_well(mut world: World) {
    world.backing.hangs = false;
    world.quiet();
    world.read_all();
    world.flush();
    world.check_backing();
    world.crash();
    world.quiet();
    world.read_all();
}

#[test]
fn cached_reads_pass_what_waits_for_a_device_that_hangs() {
    // A write waits for the mark, and that for a read that is on its way.
    let mut world = warm(Mode::WriteBack);
    world.backing.hangs = true;
    world.submit(Operation::Read, 5000, 1);
    world.turn(8);
    world.submit(WRITE, 400, 1);
    reads_are_answered(&mut world, 2);
    ends_well(world);
    // The device is looked at before the mark.
    let mut world = warm(Mode::WriteBack);
    world.backing.hangs = true;
    world.submit(WRITE, 400, 1);
    reads_are_answered(&mut world, 1);
    ends_well(world);
}

#[test]
fn cached_reads_pass_a_half_put_mark_that_waits_for_another_read() {
    let mut world = warm(Mode::WriteBack);
    world.backing.bad = 0..32;
    world.tolerates = true;
    world.submit(WRITE, 400, 1);
    world.quiet();
    let mark = world.cache().status().header.unwrap().mark;
    assert_eq!(mark, Mark::Arming);
    world.backing.bad = 0..0;
    world.backing.hangs = true;
    world.submit(Operation::Read, 5000, 1);
    world.turn(8);
    world.submit(WRITE, 400, 1);
    reads_are_answered(&mut world, 2);
    world.tolerates = false;
    ends_well(world);
}

#[test]
fn cached_reads_pass_what_is_being_zeroed_beside_them() {
    let mut world = warm(Mode::WriteThrough);
    world.backing.hangs = true;
    let zeroes = Operation::WriteZeroes {
        durability: Durability::Durable,
        deallocate: true,
    };
    world.submit(zeroes, 320, 600);
    world.turns(20);
    assert_eq!(world.backing.pending.len(), 1, "it is at the device");
    reads_are_answered(&mut world, 10);
    ends_well(world);
}

/// More reads than may be under way wait for the device, and what is cached need not.
#[test]
fn cached_reads_pass_any_number_of_others() {
    for mode in [Mode::WriteBack, Mode::WriteAround] {
        let mut world = warm(mode);
        world.backing.hangs = true;
        for place in 0..700 {
            world.submit(Operation::Read, 1000 + 10 * place, 1);
        }
        for place in 0..10 {
            world.submit(WRITE, GRANULES - 100 + place, 1);
        }
        reads_are_answered(&mut world, 710);
        ends_well(world);
    }
}

/// What waits for a flush waits for what is done alone before that: nothing is due meanwhile, so the core can sleep.
#[test]
fn nothing_is_due_while_a_device_hangs() {
    let mut world = warm(Mode::WriteBack);
    world.submit(WRITE, 400, 1);
    world.quiet();
    // It comes in clean, and is recorded after a flush.
    world.submit(Operation::Read, 5000, 2);
    world.quiet();
    world.backing.hangs = true;
    let durability = Durability::Durable;
    let zero = Operation::WriteZeroes {
        durability,
        deallocate: true,
    };
    world.submit(zero, 6000, 4);
    world.turns(20);
    world.now = world.now + Duration::from_secs(5);
    world.turns(20);
    let now = world.now;
    let due = world.cache().next_deadline().filter(|&at| at <= now);
    assert_eq!(due, None);
    ends_well(world);
}
