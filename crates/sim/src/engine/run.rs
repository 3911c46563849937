//! Lives worlds through.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ashlar_store::{Engine, Grain, Layout};

use super::enumerate::{self, Case, Counts, Sweep, Work};
use super::plan::Plan;
use super::profile::Profile;
use super::report::Summary;
use super::seam::Subject;
use super::world::World;
use crate::chance::Chance;
use crate::report::{Failure, Listener};

/// Lives a world through.
///
/// # Errors
/// The first promise that was broken.
pub fn run(seed: u64, profile: &Profile) -> Result<Summary, Failure> {
    live::<Engine>(seed, profile, None)
}

/// The same, telling what happens.
///
/// # Errors
/// The first promise that was broken.
pub fn run_traced(
    seed: u64,
    profile: &Profile,
    listener: Option<Listener<'_>>,
) -> Result<Summary, Failure> {
    live::<Engine>(seed, profile, listener)
}

/// Tries a crash at every write and flush of a small workload on volumes of this layout and grain, with every
/// drive missing that it can miss, and another crash at every `stride`th write or flush after that.
///
/// # Errors
/// The first case that broke a promise, and what it broke.
pub fn run_every_crash(
    work: Work,
    layout: Layout,
    grain: Option<Grain>,
    seed: u64,
    stride: u64,
) -> Result<Counts, (Case, String)> {
    run_crashes(&Sweep {
        grain,
        stride,
        seed,
        ..Sweep::every(work, layout)
    })
}

/// Tries the crashes of a sweep.
///
/// # Errors
/// The first case that broke a promise, and what it broke.
pub fn run_crashes(sweep: &Sweep) -> Result<Counts, (Case, String)> {
    enumerate::enumerate::<Engine>(sweep)
}

/// Replays one of these crashes.
///
/// # Errors
/// What it broke.
pub fn run_case(case: &Case, listener: Option<Listener<'_>>) -> Result<(), String> {
    enumerate::live::<Engine>(case, listener).map(drop)
}

/// Lives a world of `S` through.
///
/// # Errors
/// The first promise that was broken.
pub(crate) fn live<S: Subject>(
    seed: u64,
    profile: &Profile,
    listener: Option<Listener<'_>>,
) -> Result<Summary, Failure> {
    let mut chance = Chance::new(seed);
    let plan = Plan::draw(&mut chance, profile);
    let mut world = World::<S>::new(plan, chance, listener);
    world.say_plan();
    let lived = catch_unwind(AssertUnwindSafe(|| world.live()));
    match lived.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))) {
        Ok(()) => Ok(world.count()),
        Err(what) => {
            world.say(|| format!("FAILED {what}"));
            Err(Failure {
                seed,
                profile: profile.name,
                micros: world.micros(),
                what,
            })
        }
    }
}

/// What a panic says.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("of an unknown kind"))
}
