//! A cache whose pool is written full, by it or by others: hosts hear nothing of that, nothing is lost, and space that was
//! taken in vain comes back.
#![allow(clippy::unwrap_used)]

mod world;

use std::time::Duration;

use ashlar_block::{BlockSize, Durability, Operation};
use ashlar_cache::{GRANULE, HEAD_BYTES, Layout, Mark, Mode};

use world::{Flushes, GRANULES, Shape, World};

const WRITE: Operation = Operation::Write(Durability::Durable);

/// No slot more than there are, and so many.
fn fill_up(world: &mut World, more: usize) {
    world.fast.room = world.fast.taken.len() + more;
}

fn is_in_order(world: &mut World) {
    let status = world.cache().status();
    assert_eq!(status.failure, None);
    assert!(world.failed.is_empty(), "hosts hear of it");
}

/// Room for none of what the mark replaces, for some, and for all but the page that says so.
#[test]
fn a_pool_that_is_full_at_the_first_write_has_writes_go_around() {
    for (more, crashes) in [(0, false), (7, true), (16, false), (16, true)] {
        let mut world = World::new(3, Shape::of(Mode::WriteBack), None);
        world.quiet();
        fill_up(&mut world, more);
        for round in 0..4 {
            // In the head, and elsewhere.
            for place in [2, 5, 300, 5000] {
                world.submit(WRITE, place + round, 3);
                world.quiet();
            }
            world.submit(Operation::Read, 300, 8);
            world.quiet();
            world.now = world.now + Duration::from_secs(3);
        }
        is_in_order(&mut world);
        let status = world.cache().status();
        assert_eq!(status.header.unwrap().mark, Mark::Off);
        let says = status.no_room.is_some_and(|why| why.contains("as told"));
        assert!(says || more > 0);
        assert_eq!(status.dirty_bytes, 0);
        match crashes {
            true => world.crash(),
            false => world.reopen(),
        }
        world.quiet();
        world.read_all();
        world.check_backing();
        // There is room again: it is kept, and the mark is put.
        world.fast.room = usize::MAX;
        world.now = world.now + Duration::from_secs(10);
        world.submit(WRITE, 300, 4);
        world.quiet();
        let status = world.cache().status();
        assert_eq!(
            (status.header.unwrap().mark, status.no_room),
            (Mark::On, None)
        );
        is_in_order(&mut world);
        world.crash();
        world.quiet();
        world.read_all();
        world.flush();
        world.check_backing();
    }
}

fn live(seed: u64, shape: Shape) {
    let mut world = World::new(seed, shape, None);
    if seed.is_multiple_of(2) {
        world.quiet();
        let more = world.rng.usize(..40);
        fill_up(&mut world, more);
    }
    for _ in 0..6 {
        for _ in 0..world.rng.usize(50..250) {
            if world.flying.len() < 24 {
                world.ask();
                world.fast.full_below = 0;
            }
            let answers = world.rng.usize(..4);
            world.turn(answers);
            match world.rng.u8(..60) {
                0 => {
                    let more = world.rng.usize(..40);
                    fill_up(&mut world, more);
                }
                1 => world.fast.room = usize::MAX,
                2 => world.now = world.now + Duration::from_secs(3),
                _ => {}
            }
        }
        match world.rng.u8(..4) {
            0 => {
                world.quiet();
                world.flush();
                world.check_backing();
            }
            1 => world.reopen(),
            _ => world.crash(),
        }
        world.quiet();
        world.read_all();
        is_in_order(&mut world);
    }
    world.flush();
    world.check_backing();
}

#[test]
fn a_pool_that_fills_at_any_moment_loses_nothing_and_fails_nothing() {
    let seeds = match std::env::var_os("ASHLAR_SOAK") {
        Some(_) => 1000,
        None => 6,
    };
    for seed in 0..seeds {
        let mode = [Mode::WriteBack, Mode::WriteBack, Mode::WriteThrough][seed as usize % 3];
        live(seed, Shape::of(mode));
    }
    let blocks = BlockSize::B512;
    let mode = Mode::WriteBack;
    live(3, Shape { mode, blocks });
}

/// Zeroes that were let in while there was no mark, one of them where the next one goes, wait when that is to be put.
#[test]
fn zeroes_that_came_before_a_mark_do_not_come_over_it() {
    let zeroes = Operation::WriteZeroes {
        durability: Durability::Durable,
        deallocate: true,
    };
    let mut world = World::new(3, Shape::of(Mode::WriteBack), None);
    world.quiet();
    fill_up(&mut world, 0);
    world.submit(WRITE, 300, 3);
    world.quiet();
    world.fast.room = usize::MAX;
    world.backing.hangs = true;
    world.submit(zeroes, 64, 256);
    world.submit(zeroes, 0, 64);
    world.turns(10);
    world.submit(WRITE, 400, 1);
    world.turns(10);
    world.now = world.now + Duration::from_secs(6);
    world.backing.hangs = false;
    world.quiet();
    world.turns(100);
    is_in_order(&mut world);
    assert_eq!(world.cache().status().header.unwrap().mark, Mark::On);
    assert!(world.backing.head().iter().any(|&byte| byte != 0));
    world.crash();
    world.quiet();
    world.read_all();
    world.flush();
    world.check_backing();
}

/// A write of which some is newer, some cached, some neither; and the pool has room for none of the rest.
#[test]
fn a_write_over_what_is_newer_and_beside_it_goes_both_ways() {
    for memory in [usize::MAX, 272 << 10] {
        let world = World::new(9, Shape::of(Mode::WriteBack), None);
        let mut world = world.in_memory_of(memory);
        world.submit(Operation::Read, 308, 2);
        world.quiet();
        for first in [302, 306] {
            world.submit(WRITE, first, 1);
            world.quiet();
        }
        let before = world.cache().status().written_around;
        fill_up(&mut world, 0);
        for _ in 0..2 {
            world.submit(WRITE, 298, 14);
            world.quiet();
        }
        is_in_order(&mut world);
        assert!(world.cache().status().written_around > before);
        world.crash();
        world.quiet();
        world.read_all();
        world.flush();
        world.check_backing();
    }
}

/// What goes around is not in the cache, nor in what it tries to see what is best kept.
#[test]
fn what_goes_around_leaves_no_names() {
    for (mode, leaves_some) in [(Mode::WriteAround, false), (Mode::WriteBack, true)] {
        let mut world = World::new(5, Shape::of(mode), None);
        world.quiet();
        let before = world.cache().status().policy_bytes;
        for place in 0..60 {
            world.submit(Operation::Write(Durability::Cached), 300 + 4 * place, 2);
        }
        world.quiet();
        let after = world.cache().status().policy_bytes;
        assert_eq!(after > before, leaves_some, "{before} {after}");
    }
}

/// Of a full pool, too, the cache keeps what is asked for now, in place of what was.
#[test]
fn a_cache_in_a_full_pool_makes_do_with_what_it_has() {
    let mut world = World::with_room(2000, 5, Shape::of(Mode::WriteAround), None);
    for place in 0..100 {
        world.submit(Operation::Read, 300 + 4 * place, 2);
    }
    world.quiet();
    world.turns(400);
    fill_up(&mut world, 0);
    let taken = world.fast.taken.len();
    for _ in 0..6 {
        for place in 0..30 {
            world.submit(Operation::Read, 4000 + 4 * place, 2);
        }
        world.quiet();
        world.turns(50);
    }
    let before = world.cache().status().read_hits;
    for place in 0..30 {
        world.submit(Operation::Read, 4000 + 4 * place, 2);
    }
    world.quiet();
    assert_eq!(world.cache().status().read_hits - before, 30);
    assert!(world.fast.taken.len() <= taken);
    is_in_order(&mut world);
}

/// Slots of the fast device that hold what a page says is cached, when each holds a granule; and all that are taken.
fn used_and_taken(world: &mut World) -> (usize, usize) {
    let data = world.fast.taken.range(..GRANULES / 2).count();
    (world.cache().status().cached_bytes as usize / GRANULE, data)
}

/// The device takes a write, or some of it, and says that it has not; or takes it, and not the page.
#[test]
fn a_write_that_was_refused_gives_back_what_it_took() {
    let layout = Layout::of_granules(GRANULES);
    for (mode, pages) in [
        (Mode::WriteBack, false),
        (Mode::WriteBack, true),
        (Mode::WriteThrough, false),
    ] {
        let mut world = World::with_room(400, 7, Shape::of(mode), None);
        world.submit(WRITE, 300, 1);
        world.quiet();
        world.flush();
        world.turns(200);
        // The mark is there in what follows, and its head takes 16 slots of 32 granules.
        world.submit(WRITE, 302, 1);
        world.quiet();
        world.turns(400);
        let (used, taken) = used_and_taken(&mut world);
        match pages {
            // No room for what is not in the first page.
            true => fill_up(&mut world, 1),
            false => world.fast.bad = 400..layout.page_granules().start,
        }
        for place in 0..100 {
            let first = if pages { 8200 } else { 1000 };
            world.submit(WRITE, first + 2 * place, 1);
            world.quiet();
        }
        world.turns(400);
        let (used_now, taken_now) = used_and_taken(&mut world);
        assert_eq!(taken_now + used, used_now + taken, "{mode:?} {pages}");
        is_in_order(&mut world);
    }
}

/// What was clean, and is to be recorded as newer on a page for which there is no room.
#[test]
fn what_was_clean_and_goes_around_gives_back_its_space() {
    let mut world = World::with_room(400, 7, Shape::of(Mode::WriteBack), None);
    world.submit(WRITE, 300, 1);
    world.quiet();
    world.turns(400);
    let (used, taken) = used_and_taken(&mut world);
    // Room for what is read, and not for its page.
    fill_up(&mut world, 4);
    for place in 0..4 {
        world.submit(Operation::Read, 8200 + 2 * place, 1);
    }
    world.quiet();
    assert_eq!(used_and_taken(&mut world).1, taken + 4);
    world.now = world.now + Duration::from_secs(3);
    world.fast.hangs = true;
    while world.fast.pending.is_empty() {
        world.turn(8);
    }
    for place in 0..4 {
        world.submit(WRITE, 8200 + 2 * place, 1);
    }
    world.turn(8);
    world.fast.hangs = false;
    world.quiet();
    world.turns(400);
    let (used_now, taken_now) = used_and_taken(&mut world);
    assert_eq!(taken_now + used, used_now + taken);
    is_in_order(&mut world);
    world.crash();
    world.quiet();
    world.read_all();
}

/// A write of which some is newer goes to the cache as a whole. What it brings with it leaves like all else.
#[test]
fn a_cache_that_is_full_of_what_is_newer_comes_back_to_its_size() {
    const BLOCKS: u64 = 64;
    let mut world = World::with_room(BLOCKS, 7, Shape::of(Mode::WriteBack), None);
    let units = (0..50).map(|at| 1008 + 16 * at);
    for first in units.clone() {
        world.submit(WRITE, first, 1);
        if first == 1008 {
            // The mark is put.
            world.quiet();
            world.backing.hangs = true;
        }
        world.turns(20);
    }
    for first in units {
        world.submit(WRITE, first, 16);
        world.turns(20);
    }
    let most = BLOCKS * 2 * GRANULE as u64;
    assert!(world.cache().status().cached_bytes > 5 * most);
    world.backing.hangs = false;
    world.quiet();
    for _ in 0..40 {
        world.now = world.now + Duration::from_secs(1);
        world.turns(50);
    }
    // What the mark replaces is beside that.
    let cached = world.cache().status().cached_bytes - HEAD_BYTES as u64;
    assert!(cached <= most, "{cached} bytes of {most} are cached");
    is_in_order(&mut world);
    world.crash();
    world.quiet();
    world.read_all();
    world.flush();
    world.check_backing();
}

/// One whose life before has brought in 60 blocks of which no page says so: its pool is full of them.
fn left_behind(from: u64) -> World {
    let mut world = World::with_room(400, 7, Shape::of(Mode::WriteAround), None);
    world.submit(Operation::Read, 300, 2);
    world.quiet();
    world.rest();
    for place in 0..60 {
        world.submit(Operation::Read, from + 4 * place, 2);
    }
    world.quiet();
    world.cut(Some(true));
    world.start();
    fill_up(&mut world, 0);
    let [known, taken] = world.slots();
    assert_eq!((known.len(), taken.len()), (1, 61));
    world
}

#[test]
fn a_pool_is_not_full_of_what_a_crash_has_left_behind() {
    let mut world = left_behind(1000);
    world.check_space();
    // What needs room finds some.
    for place in 0..60 {
        world.submit(Operation::Read, 5000 + 4 * place, 2);
    }
    world.quiet();
    let status = world.cache().status();
    assert_eq!((status.no_room, status.cached_bytes), (None, 61 * 8192));
    is_in_order(&mut world);
    world.check_space();
}

/// While hosts ask for something it takes a part of the time; and what they have in use comes later.
#[test]
fn space_that_was_left_behind_comes_back_beside_hosts() {
    let mut world = left_behind(1000);
    world.fast.room = usize::MAX;
    world.quiet();
    world.backing.hangs = true;
    // Reads that last, beside what is cached, and where something is left behind.
    world.submit(Operation::Read, 303, 1);
    world.submit(Operation::Read, 1008, 1);
    for _ in 0..400 {
        world.submit(Operation::Read, 300, 2);
        world.turn(8);
    }
    assert_eq!(world.flying.len(), 3, "what is cached waits");
    let unit = 16 * GRANULE as u64;
    assert_eq!(world.cache().status().unswept_bytes, 2 * unit);
    let [known, taken] = world.slots();
    // Of the unit that is in use four are left.
    assert_eq!((known.len(), taken.len()), (1, 5));
    world.backing.hangs = false;
    world.check_space();
}

/// A pool that is stopped, or has no room for its map.
#[test]
fn space_that_a_pool_does_not_give_back_is_left_to_sweep() {
    let mut world = left_behind(1000);
    world.fast.keeps_space = true;
    world.quiet();
    world.turns(400);
    let left = world.cache().status().unswept_bytes;
    assert!(left >= 60 * 8192 && world.slots()[1].len() == 61, "{left}");
    world.fast.keeps_space = false;
    world.check_space();
}

/// Also of the last part.
#[test]
fn space_is_left_to_sweep_until_it_is_back() {
    let mut world = left_behind(8300);
    world.quiet();
    while world.cache().status().unswept_bytes > 0 {
        let answers = world.fast.pending.len();
        world.turn(answers);
    }
    let [known, taken] = world.slots();
    assert_eq!(known, taken);
}

/// Each has what came in forgotten, whose space is given back, too.
#[test]
fn flushes_that_fail_keep_no_space_from_coming_back() {
    let mut world = left_behind(8300);
    world.fast.room = usize::MAX;
    world.tolerates = true;
    world.quiet();
    world.backing.flushes = Flushes::Fail;
    for turn in 0.. {
        world.submit(Operation::Read, 2000 + turn % 1500 * 4, 2);
        world.submit(Operation::Write(Durability::Cached), 1000, 1);
        world.submit(Operation::Flush, 0, 0);
        world.turn(8);
        if world.fast.taken.range(4150..GRANULES / 2).next().is_none() {
            break;
        }
        assert!(turn < 2000, "{}", world.cache().status().unswept_bytes);
    }
    let failed = world.failed.len();
    assert!(failed > 5, "{failed}");
    world.backing.flushes = Flushes::Served;
    world.check_space();
}

/// The fast device gives back whole blocks: also where zeroes, or a part of them, end in one of which the rest is not cached.
#[test]
fn zeroes_give_back_whole_blocks() {
    let zeroes = Operation::WriteZeroes {
        durability: Durability::Durable,
        deallocate: true,
    };
    for (cached, zeroed) in [
        (301..302, 301..340),
        (300..301, 200..301),
        (556..558, 301..700),
    ] {
        let mut world = World::with_room(400, 7, Shape::of(Mode::WriteBack), None);
        world.submit(Operation::Read, cached.start, cached.end - cached.start);
        world.quiet();
        assert_eq!(world.slots()[1].len(), 1);
        world.submit(zeroes, zeroed.start, zeroed.end - zeroed.start);
        world.check_space();
    }
}
