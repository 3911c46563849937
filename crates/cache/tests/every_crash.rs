//! The power fails at every request of either device while a fixed script is followed: a mark is put, hosts write and write
//! over what goes back, something is zeroed, something goes, all is written back, the device is left; and again at what
//! follows. What is under way then is kept, lost, or torn.
//!
//! Here a sample of them. With `ASHLAR_SOAK=1` (`scripts/soak.sh`) all are tried, and many second ones.
#![allow(clippy::unwrap_used)]

mod world;

use std::time::Duration;

use ashlar_block::{Durability, Operation};
use ashlar_cache::{Defect, Mode, mark};

use world::{CACHE, Shape, World};

/// A step of the script. All but those that ask something wait for what was asked.
#[derive(Clone, Copy)]
enum Do {
    Ask(Operation, u64, u64),
    Wait,
    /// Hosts rest, and what is newer begins to go back.
    Rest,
    /// They rest until nothing is to be done any more.
    Sleep,
    /// Everything is written back, and the mark is taken away.
    Flush,
}

const WRITE: Operation = Operation::Write(Durability::Durable);
const CACHED: Operation = Operation::Write(Durability::Cached);
const ZERO: Operation = Operation::WriteZeroes {
    durability: Durability::Durable,
    deallocate: true,
};

fn script() -> Vec<Do> {
    use Do::{Ask, Flush, Rest, Sleep, Wait};
    let read = Operation::Read;
    let mut script = vec![
        Ask(read, 300, 8),
        Ask(read, 4, 4),
        Ask(read, 8188, 8),
        Sleep,
        // The mark is put; what is clean, what is not there, the head, and two pages.
        Ask(WRITE, 3, 2),
        Ask(WRITE, 300, 4),
        Ask(WRITE, 8190, 4),
        Ask(CACHED, 400, 6),
        Wait,
        Ask(WRITE, 301, 1),
        Wait,
        // It goes back, and some is written over on its way.
        Rest,
        Ask(WRITE, 302, 2),
        Ask(WRITE, 401, 1),
        Sleep,
        // What is clean now is written again; some becomes zeroes.
        Ask(WRITE, 301, 2),
        Wait,
        Ask(ZERO, 303, 3),
        Ask(WRITE, 404, 4),
        Wait,
    ];
    // Something has to go.
    script.extend((0..40).map(|place| Ask(read, 1000 + 6 * place, 4)));
    script.extend([
        Sleep,
        Ask(Operation::Flush, 0, 0),
        Ask(WRITE, 500, 3),
        Flush,
        // The device is as it would be without us; and all begins again.
        Ask(WRITE, 300, 2),
        Ask(WRITE, 2, 1),
        Wait,
        Flush,
    ]);
    script
}

/// Lets all act until this is so; false if the power fails before.
fn until(world: &mut World, is_so: impl Fn(&mut World) -> bool) -> bool {
    for _ in 0..20_000 {
        if world.is_out {
            return false;
        }
        if is_so(world) {
            return true;
        }
        world.turn(3);
    }
    panic!("stuck: {:?}", world.cache().status());
}

fn is_quiet(world: &mut World) -> bool {
    world.flying.is_empty() && world.cache().is_open()
}

fn follows(world: &mut World, step: Do) -> bool {
    match step {
        Do::Ask(op, first, count) => {
            world.submit(op, first, count);
            true
        }
        Do::Wait => until(world, is_quiet),
        Do::Rest => {
            world.now = world.now + Duration::from_secs(3);
            let before = world.served;
            until(world, |world| world.served > before)
        }
        Do::Sleep => {
            until(world, is_quiet)
                && (0..40).all(|_| {
                    world.now = world.now + Duration::from_millis(500);
                    world.turn(3);
                    !world.is_out
                })
        }
        Do::Flush => {
            world.cache().flush(5);
            until(world, |world| {
                let answers = world.cache().take_answers();
                answers
                    .iter()
                    .any(|(id, result)| *id == 5 && result.is_ok())
            })
        }
    }
}

/// What becomes of what is under way when the power fails.
const FATES: [Option<bool>; 3] = [Some(true), Some(false), None];

/// The script until its end, or until the power fails; whether the device was left then.
fn lives(world: &mut World) -> bool {
    let mut is_left = true;
    for step in script() {
        is_left &= !matches!(step, Do::Ask(op, ..) if op.modifies());
        if !follows(world, step) {
            return is_left;
        }
        is_left |= matches!(step, Do::Flush);
    }
    is_left
}

fn begin(seed: u64, defect: Option<Defect>) -> World {
    let mut world = World::with_room(64, seed, Shape::of(Mode::WriteBack), defect);
    world.quiet();
    world.served = 0;
    world
}

/// What is on the devices after the power has failed.
fn is_found(world: &World, is_left: bool) {
    if is_left {
        return world.check_raw();
    }
    // Nothing mounts it that has not the newest.
    if world.first_that_is_not_raw(32).is_some() {
        assert_eq!(mark::whose(&world.backing.head()), Some(CACHE));
    }
}

/// The cache is taken up, and all is there; false if the power fails again at a request of that.
fn is_taken_up(world: &mut World, again_at: Option<u64>) -> bool {
    world.start();
    world.fuse = again_at.map(|at| world.served + at);
    let reads = [
        (0, 40),
        (296, 24),
        (396, 16),
        (496, 16),
        (1000, 64),
        (8180, 24),
    ];
    let reads = reads.map(|(first, count)| Do::Ask(Operation::Read, first, count));
    let steps = [Do::Wait].into_iter().chain(reads);
    let mut steps = steps.chain([Do::Wait, Do::Flush]);
    let ends = steps.all(|step| follows(world, step));
    if ends {
        world.fuse = None;
        world.check_backing();
        world.check_space();
    }
    ends
}

/// The power fails at a request, and after that at another one, if there is one.
fn dies_at(at: u64, fate: Option<bool>, again_at: Option<u64>, defect: Option<Defect>) {
    let mut world = begin(7, defect);
    world.fuse = Some(at);
    let is_left = lives(&mut world);
    world.rng = fastrand::Rng::with_seed(at);
    world.cut(fate);
    is_found(&world, is_left);
    if !is_taken_up(&mut world, again_at) {
        world.cut(fate);
        is_taken_up(&mut world, None);
    }
}

fn requests_of_all() -> u64 {
    let mut world = begin(7, None);
    assert!(lives(&mut world));
    // It is left: the pool's volume can go.
    world.cut(Some(false));
    world.check_raw();
    world.served
}

fn is_soak() -> bool {
    std::env::var_os("ASHLAR_SOAK").is_some()
}

#[test]
fn the_power_fails_at_every_request() {
    let all = requests_of_all();
    assert!(all > 150, "{all}");
    let (step, second) = if is_soak() { (1, 7) } else { (9, 61) };
    for at in (0..all).step_by(step) {
        for fate in FATES {
            dies_at(at, fate, None, None);
            let again_at = (at as usize % second..90).step_by(second);
            for again_at in again_at {
                dies_at(at, fate, Some(again_at as u64), None);
            }
        }
    }
}

/// Each order that is broken on purpose is noticed at one of them; here, of one.
#[test]
fn what_is_broken_on_purpose_is_noticed() {
    let all = requests_of_all();
    std::panic::set_hook(Box::new(|_| {}));
    let missed: Vec<Defect> = [
        Defect::DirtyBeforeData,
        Defect::DataBeforeDirty,
        Defect::AcknowledgeBeforeRecord,
        Defect::CleanBeforeFlush,
        Defect::OvertakenIsClean,
    ]
    .into_iter()
    .take(if is_soak() { usize::MAX } else { 1 })
    .filter(|&defect| {
        let dies = |(at, fate)| dies_at(at, fate, None, Some(defect));
        let mut all = (0..all).flat_map(|at| FATES.map(|fate| (at, fate)));
        !all.any(|case| std::panic::catch_unwind(|| dies(case)).is_err())
    })
    .collect();
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "{missed:?}");
}
