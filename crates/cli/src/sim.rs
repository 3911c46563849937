//! `ashlar sim`: simulations, by seed.

use ashlar_sim::{Listener, Profile, cluster, engine, run, run_traced};

use crate::args::{ClusterArguments, EngineArguments, WireArguments};
use crate::exit::Failure;
use crate::log;
use crate::output::print;

/// Lives seeded worlds of target and initiator through. The last line is `seeds M failed K`, with a
/// line for each failing seed before it.
pub(crate) fn wire(arguments: &WireArguments) -> Result<(), Failure> {
    let profiles = profiles(&arguments.profile)?;
    if let Some(seed) = arguments.seed {
        return replay(seed, &profiles, arguments.trace);
    }
    let seeds = range(arguments.first_seed, arguments.seeds)?;
    each(seeds, |seed| run(seed, turn(&profiles, seed)).err())
}

/// Lives seeded worlds of the storage engine through, and tells as [`wire`] does.
pub(crate) fn engine(arguments: &EngineArguments) -> Result<(), Failure> {
    let name = &arguments.profile;
    let profiles = engine::Profile::named(name).ok_or_else(|| {
        let names: Vec<&str> = engine::Profile::EVERY.iter().map(|p| p.name).collect();
        let names = names.join(", ");
        Failure::usage(format!("--profile {name}: there are all, {names}"))
    })?;
    let seeds = range(arguments.first_seed, arguments.seeds)?;
    let Some(seed) = arguments.seed else {
        return each(seeds, |seed| engine::run(seed, turn(&profiles, seed)).err());
    };
    let profile = turn(&profiles, seed);
    one(profile.name, arguments.trace, |listener| {
        engine::run_traced(seed, profile, listener)
    })
}

/// Lives seeded worlds of the replication protocol through, and tells as [`wire`] does.
pub(crate) fn cluster(arguments: &ClusterArguments) -> Result<(), Failure> {
    let name = &arguments.profile;
    let profiles = cluster::Profile::named(name).ok_or_else(|| {
        let known = cluster::Profile::EVERY
            .iter()
            .chain(&cluster::Profile::BY_NAME);
        let names: Vec<&str> = known.map(|p| p.name).collect();
        let names = names.join(", ");
        Failure::usage(format!("--profile {name}: there are all, {names}"))
    })?;
    let seeds = range(arguments.first_seed, arguments.seeds)?;
    let Some(seed) = arguments.seed else {
        return each(seeds, |seed| {
            cluster::run(seed, turn(&profiles, seed)).err()
        });
    };
    let profile = turn(&profiles, seed);
    one(profile.name, arguments.trace, |listener| {
        cluster::run_traced(seed, profile, listener)
    })
}

/// The seeds that are asked for. A run of none would say that none has failed.
fn range(first: u64, seeds: u64) -> Result<std::ops::Range<u64>, Failure> {
    if seeds == 0 {
        return Err(Failure::usage("--seeds 0: at least one"));
    }
    let end = first.checked_add(seeds);
    let end = end.ok_or_else(|| {
        Failure::usage(format!(
            "--first-seed {first} --seeds {seeds}: there are no seeds from {} on",
            u64::MAX
        ))
    })?;
    Ok(first..end)
}

/// Each seed is one world; profiles take turns, so that any number of seeds meets all.
fn turn<P>(profiles: &[P], seed: u64) -> &P {
    &profiles[(seed % profiles.len() as u64) as usize]
}

/// Tries seeds, tells which fail, and how many.
fn each<F: std::fmt::Display>(
    range: std::ops::Range<u64>,
    run: impl Fn(u64) -> Option<F>,
) -> Result<(), Failure> {
    let (mut seeds, mut failed) = (0u64, 0u64);
    for seed in range {
        seeds += 1;
        if let Some(failure) = run(seed) {
            failed += 1;
            print(&format!("{failure}\n"))?;
        }
    }
    print(&format!("seeds {seeds} failed {failed}\n"))?;
    if failed > 0 {
        Err(Failure::check(format!("{failed} of {seeds} seeds failed")))
    } else {
        Ok(())
    }
}

fn profiles(name: &str) -> Result<Vec<Profile>, Failure> {
    if name == "every" {
        return Ok(Profile::EVERY.to_vec());
    }
    let names: Vec<&str> = Profile::EVERY.iter().map(|profile| profile.name).collect();
    let found = Profile::named(name).ok_or_else(|| {
        Failure::usage(format!(
            "--profile {name}: there are every, {}",
            names.join(", ")
        ))
    })?;
    Ok(vec![found])
}

fn replay(seed: u64, profiles: &[Profile], trace: bool) -> Result<(), Failure> {
    let profile = turn(profiles, seed);
    one(profile.name, trace, |listener| {
        run_traced(seed, profile, listener)
    })
}

/// Lives one world through, telling what happens in it if it is to be traced.
fn one<S: std::fmt::Display, F: std::fmt::Display>(
    profile: &str,
    trace: bool,
    run: impl FnOnce(Option<Listener<'_>>) -> Result<S, F>,
) -> Result<(), Failure> {
    let mut broken = None;
    let mut listener = |line: &str| {
        // A closed pipe ends the trace, not the run.
        if broken.is_none() {
            broken = print(&format!("{line}\n")).err();
        }
    };
    // The engine's own trace points, between what the world says.
    let engine = trace.then(|| tracing::subscriber::set_default(log::tracer()));
    let result = run(trace.then_some(&mut listener));
    drop(engine);
    match result {
        Ok(summary) => print(&format!("profile {profile}: {summary}\nseeds 1 failed 0\n")),
        Err(failure) => {
            print(&format!("{failure}\nseeds 1 failed 1\n"))?;
            Err(Failure::check(failure))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;

    #[test]
    fn a_run_of_no_seeds_is_no_success() {
        assert_eq!(range(7, 3).ok(), Some(7..10));
        for (first, seeds) in [(0, 0), (u64::MAX, 5), (1, u64::MAX)] {
            let refused = range(first, seeds).expect_err("no such seeds");
            assert_eq!(refused.code(), 2, "{}", refused.message());
        }
    }

    #[test]
    fn every_profile_of_a_cluster_is_in_the_help() {
        let mut command = ClusterArguments::augment_args(Command::new("cluster"));
        let help = command.render_long_help().to_string();
        let profiles = cluster::Profile::EVERY
            .iter()
            .chain(&cluster::Profile::BY_NAME);
        for profile in profiles {
            assert!(help.contains(profile.name), "{}: {help}", profile.name);
        }
    }
}
