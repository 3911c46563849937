//! A cache over two devices that lose power: whatever moment it comes at, what was acknowledged is there, a value that
//! was read stays, and after a flush the backing device has everything by itself.
#![allow(clippy::unwrap_used)]

mod world;

use std::time::Duration;

use ashlar_block::{BlockSize, Durability, Operation};
use ashlar_cache::{Defect, GRANULE, Layout, Mark, Mode, mark};

use world::{CACHE, GRANULES, Shape, World};

fn live(seed: u64, shape: Shape, defect: Option<Defect>) {
    live_in(World::new(seed, shape, defect));
}

fn live_in(mut world: World) {
    let shape = world.shape;
    for _ in 0..4 {
        for _ in 0..world.rng.usize(50..400) {
            if world.flying.len() < 24 {
                world.ask();
            }
            let answers = world.rng.usize(..4);
            world.turn(answers);
            if world.rng.u16(..400) == 0 {
                world.now = world.now + Duration::from_secs(3);
            }
        }
        let dirty = world.cache().status().dirty_bytes > 32 * 4096;
        if dirty && shape.mode == Mode::WriteBack && world.cache().is_open() {
            let marked = world.backing.head();
            assert!(mark::whose(&marked) == Some(CACHE) || world.rng.bool());
        }
        match world.rng.u8(..4) {
            0 => {
                world.quiet();
                world.flush();
                world.check_backing();
            }
            _ => {
                world.crash();
                // While it looks for what is left behind, hosts are there.
                for _ in 0..world.rng.usize(..60) {
                    world.ask();
                    world.turn(2);
                }
                world.check_space();
                world.read_all();
            }
        }
    }
    world.quiet();
    world.flush();
    world.check_backing();
    world.crash();
    world.check_space();
    world.read_all();
}

#[test]
fn nothing_acknowledged_is_lost_and_the_backing_device_is_whole_after_a_flush() {
    let seeds = match std::env::var_os("ASHLAR_SOAK") {
        Some(_) => 2000,
        None => 12,
    };
    // In that one a write is refused beside what gives its block back.
    for seed in (0..seeds).chain([113]) {
        live(seed, Shape::of(Mode::WriteBack), None);
    }
}

#[test]
fn so_it_is_when_writes_go_through_or_around() {
    for seed in 0..4 {
        live(seed, Shape::of(Mode::WriteThrough), None);
        live(seed, Shape::of(Mode::WriteAround), None);
    }
}

#[test]
fn so_it_is_when_hosts_write_parts_of_granules() {
    for (seed, mode) in [
        (0, Mode::WriteBack),
        (1, Mode::WriteBack),
        (2, Mode::WriteThrough),
        (3, Mode::WriteAround),
    ] {
        let blocks = BlockSize::B512;
        live(seed, Shape { mode, blocks }, None);
    }
}

#[test]
fn so_it_is_when_memory_is_short() {
    for (seed, mode) in
        (0..6).flat_map(|seed| [Mode::WriteBack, Mode::WriteThrough].map(|mode| (seed, mode)))
    {
        // The mark takes 256 KiB.
        live_in(World::new(seed, Shape::of(mode), None).in_memory_of(272 << 10));
    }
}

/// Share of what was cached that is there after a crash.
fn warm_after_crash(seed: u64, defect: Option<Defect>) -> f64 {
    let mut world = World::new(seed, Shape::of(Mode::WriteBack), defect);
    for _ in 0..400 {
        if world.flying.len() < 24 {
            world.ask();
        }
        world.turn(3);
    }
    world.quiet();
    // What has come in is recorded soon.
    world.flush();
    for _ in 0..100 {
        world.turn(8);
    }
    let before = world.cache().status().cached_bytes;
    assert!(before > 64 * 4096);
    world.crash();
    world.quiet();
    world.cache().status().cached_bytes as f64 / before as f64
}

#[test]
fn a_cache_is_as_warm_after_a_crash() {
    for seed in 0..4 {
        let share = warm_after_crash(seed, None);
        assert!(share >= 0.95, "{share}");
    }
    let cold = warm_after_crash(0, Some(Defect::ColdAfterCrash));
    assert!(cold < 0.95, "{cold}: what is dropped goes unnoticed");
}

/// Granules that are written back in four seconds in which hosts only read: what is cached, or what is not. They have
/// written before the cache was taken up, so nothing is owed for that.
fn written_back_beside(reads_cached: bool) -> u64 {
    let mut world = World::with_room(700, 1, Shape::of(Mode::WriteBack), None);
    for place in 0..560 {
        world.submit(Operation::Write(Durability::Durable), 300 + 4 * place, 2);
        if place == 0 {
            // The mark is put.
            world.quiet();
        }
    }
    // More than three quarters, and none of it has gone back.
    world.backing.hangs = true;
    while world.cache().status().dirty_bytes < 1090 * GRANULE as u64 {
        world.turn(8);
    }
    world.backing.hangs = false;
    world.crash();
    world.quiet();
    let (from, before) = (world.now, world.cache().status().written_back_bytes);
    while world.now.since(from) < Duration::from_secs(4) {
        let place = match reads_cached {
            true => 300,
            false => 3000 + 2 * world.rng.u64(..2500),
        };
        world.submit(Operation::Read, place, 1);
        world.turn(8);
    }
    (world.cache().status().written_back_bytes - before) / GRANULE as u64
}

#[test]
fn write_back_makes_way_for_hosts() {
    let (beside, alone) = (written_back_beside(false), written_back_beside(true));
    // Runs that were under way before hosts came, two granules each; and then one each second.
    assert!(alone >= 130 && beside <= 80, "{beside} and {alone}");
}

#[test]
fn a_flush_makes_durable_what_went_around() {
    for seed in 0..20 {
        for mode in [Mode::WriteAround, Mode::WriteThrough] {
            let mut world = World::new(seed, Shape::of(mode), None);
            for place in 0..20 {
                world.submit(Operation::Write(Durability::Cached), 100 + 3 * place, 2);
            }
            world.quiet();
            world.submit(Operation::Flush, 0, 0);
            world.quiet();
            world.crash();
            world.quiet();
            world.read_all();
        }
    }
}

/// A process is killed, the next one reads, and then the power fails.
#[test]
fn what_a_killed_life_wrote_around_is_not_clean_before_a_flush() {
    for seed in 0..20 {
        let mut world = World::new(seed, Shape::of(Mode::WriteAround), None);
        world.submit(Operation::Write(Durability::Cached), 100, 2);
        world.quiet();
        world.reopen();
        world.quiet();
        world.submit(Operation::Read, 100, 2);
        world.quiet();
        world.now = world.now + Duration::from_secs(5);
        world.turns(100);
        world.cut(Some(false));
        world.start();
        world.quiet();
        world.read_all();
    }
}

#[test]
fn a_flush_does_not_wait_for_the_disk_when_nothing_went_around() {
    let mut world = World::new(1, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Write(Durability::Cached), 300, 2);
    world.quiet();
    world.submit(Operation::Flush, 0, 0);
    // No device answers.
    world.turn(0);
    world.turn(0);
    assert!(world.flying.is_empty(), "{:?}", world.flying);
    world.crash();
    world.quiet();
    world.read_all();
}

#[test]
fn who_waits_for_room_hears_of_a_cache_that_fails() {
    let mut world = World::new(3, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Write(Durability::Durable), 300, 2);
    world.quiet();
    world.backing.hangs = true;
    for place in 1..80 {
        world.submit(Operation::Write(Durability::Durable), 300 + 4 * place, 2);
    }
    while world.cache().status().dirty_bytes < 140 * GRANULE as u64 {
        world.turn(1);
    }
    assert!(world.flying.len() > 10, "none waits");
    world.fast.fails = true;
    world.tolerates = true;
    world.backing.hangs = false;
    for _ in 0..200 {
        world.turn(8);
    }
    assert!(world.cache().status().failure.is_some());
    assert!(world.flying.is_empty(), "{:?}", world.flying);
}

#[test]
fn what_is_gone_and_revived_is_noticed() {
    sings(Defect::AroundBeforeRecord);
}

fn sings(defect: Defect) {
    std::panic::set_hook(Box::new(|_| {}));
    let noticed = (0..150).find(|&seed| {
        std::panic::catch_unwind(|| live(seed, Shape::of(Mode::WriteBack), Some(defect))).is_err()
    });
    let _ = std::panic::take_hook();
    assert!(noticed.is_some(), "{defect:?} goes unnoticed");
}

#[test]
fn what_is_newer_before_it_is_written_is_noticed() {
    sings(Defect::DirtyBeforeData);
}

#[test]
fn what_is_clean_before_a_flush_is_noticed() {
    sings(Defect::CleanBeforeFlush);
}

#[test]
fn an_answer_before_the_record_is_noticed() {
    sings(Defect::AcknowledgeBeforeRecord);
}

#[test]
fn data_over_what_is_recorded_as_clean_is_noticed() {
    sings(Defect::DataBeforeDirty);
}

#[test]
fn dropping_before_the_record_is_noticed() {
    sings(Defect::DropBeforeRecord);
}

#[test]
fn what_a_host_writes_over_a_run_on_its_way_back_is_not_taken_for_clean() {
    sings(Defect::OvertakenIsClean);
}

#[test]
fn two_runs_of_the_same_are_noticed() {
    sings(Defect::TwoRunsOfTheSame);
}

#[test]
fn space_that_a_crash_has_left_behind_is_noticed() {
    sings(Defect::NothingIsSwept);
}

#[test]
fn what_is_being_put_where_space_is_given_back_is_not_given_back() {
    sings(Defect::SweptWithoutLock);
}

/// What the mark replaces is recorded as kept, and no header says so yet.
#[test]
fn a_head_that_was_kept_for_a_mark_is_not_newer_without_one() {
    let mut world = World::with_room(64, 5, Shape::of(Mode::WriteBack), None);
    world.quiet();
    world.submit(Operation::Read, 40, 4);
    world.quiet();
    world.rest();
    world.submit(Operation::Write(Durability::Durable), 300, 1);
    let header = Layout::header_of(Layout::of_granules(GRANULES).fast_granules());
    let asks = |world: &World| {
        let mut fast = world.fast.pending.iter();
        fast.any(|request| request.range.start.0 == header)
    };
    for _ in 0..200 {
        world.turn(0);
        if asks(&world) {
            break;
        }
        world.turn(1);
    }
    assert!(asks(&world), "no mark is put");
    world.cut(Some(false));
    world.start();
    world.quiet();
    let status = world.cache().status();
    assert_eq!(status.header.unwrap().mark, Mark::Off);
    assert_eq!(status.dirty_bytes, 0);
    world.submit(Operation::Write(Durability::Durable), 300, 1);
    world.quiet();
    assert_eq!(mark::whose(&world.backing.head()), Some(CACHE));
    world.flush();
    world.check_backing();
    world.check_space();
}
