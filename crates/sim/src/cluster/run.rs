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
    live(World::draw(seed, profile, listener), seed, profile)
}

/// A process dies at a certain step: a message arrives, or a store does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Which step, from 0.
    pub step: u64,
    /// Whose process.
    pub node: usize,
}

/// How many steps a world has until all hosts are done, if nothing strikes it, and how many nodes.
///
/// # Errors
/// The first promise that was broken.
pub fn steps(seed: u64, profile: &Profile) -> Result<(u64, usize), Failure> {
    let lived = run(seed, profile)?;
    Ok((lived.steps, lived.nodes))
}

/// Lives a world through in which processes die at these steps.
///
/// # Errors
/// The first promise that was broken, with what struck.
pub fn run_struck(seed: u64, profile: &Profile, strikes: &[Strike]) -> Result<Summary, Failure> {
    let mut world = World::draw(seed, profile, None);
    world.strike_at(strikes);
    live(world, seed, profile).map_err(|failure| Failure {
        what: format!("{strikes:?}: {}", failure.what),
        ..failure
    })
}

fn live(mut world: World<'_>, seed: u64, profile: &Profile) -> Result<Summary, Failure> {
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
