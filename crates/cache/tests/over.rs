//! A cache that has more than it is to have comes back to what it may have, with nothing to wake it but its own deadlines.
#![allow(clippy::unwrap_used)]

mod world;

use std::time::Duration;

use ashlar_block::{Durability, Operation};
use ashlar_cache::Mode;

use world::{Shape, World};

const WRITE: Operation = Operation::Write(Durability::Durable);
/// Blocks that may be cached.
const MOST: u64 = 64;

/// Lets it act when a device has answered, and when it has said that it will.
fn act_when_it_is_time(world: &mut World) {
    for _ in 0..20_000 {
        let now = world.now;
        world.turn(8);
        world.now = now;
        let waits = world.fast.pending.len() + world.backing.pending.len() + world.flying.len();
        if waits > 0 {
            continue;
        }
        match world.cache().next_deadline() {
            Some(at) => world.now = at.max(now + Duration::from_micros(1)),
            None => return,
        }
    }
    panic!("it does not come to rest: {:?}", world.cache().status());
}

/// Units of which a part is newer take all that hosts write to them; so more comes in than there is room for. Of each
/// unit one block goes at a time.
#[test]
fn what_came_in_without_room_goes() {
    let mut world = World::with_room(MOST, 1, Shape::of(Mode::WriteBack), None);
    world.quiet();
    for count in [1, 16] {
        for unit in 0..12 {
            world.submit(WRITE, 320 + 16 * unit, count);
        }
        world.quiet();
    }
    let has = |world: &mut World| world.cache().held_blocks() - 16;
    assert!(has(&mut world) > MOST);
    act_when_it_is_time(&mut world);
    assert!(has(&mut world) < MOST, "{} blocks", has(&mut world));
}
