//! Lives worlds through.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::plan::Plan;
use super::profile::Profile;
use super::report::Summary;
use super::seam::Subject;
use super::world::World;
use crate::chance::Chance;
use crate::report::{Failure, Listener};

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
