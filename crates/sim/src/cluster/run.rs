//! Lives worlds through.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::profile::Profile;
use super::report::Summary;
use super::world::World;
use crate::engine::panicked;
use crate::report::{Failure, Listener};

/// Lives a world through.
///
/// # Errors
/// The first promise that was broken.
pub fn run(seed: u64, profile: &Profile) -> Result<Summary, Failure> {
    run_traced(seed, profile, None)
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
    let mut world = World::draw(seed, profile, listener);
    let lived = catch_unwind(AssertUnwindSafe(|| world.live()));
    match lived.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))) {
        Ok(()) => Ok(world.summary()),
        Err(what) => {
            world.say(|| format!("FAILED {what}"));
            Err(Failure {
                seed,
                profile: profile.name,
                micros: world.summary().micros,
                what,
            })
        }
    }
}
