//! `ashlar sim`: simulations, by seed.

use ashlar_sim::{Profile, run, run_traced};

use crate::args::WireArguments;
use crate::exit::Failure;
use crate::output::print;

/// Lives seeded worlds of target and initiator through. The last line is `seeds M failed K`, with a
/// line for each failing seed before it.
pub(crate) fn wire(arguments: &WireArguments) -> Result<(), Failure> {
    let profiles = profiles(&arguments.profile)?;
    if let Some(seed) = arguments.seed {
        return replay(seed, &profiles, arguments.trace);
    }
    let (mut seeds, mut failed) = (0u64, 0u64);
    for seed in arguments.first_seed..arguments.first_seed.saturating_add(arguments.seeds) {
        // Each seed is one world; profiles take turns, so that any number of seeds meets all.
        let profile = &profiles[(seed % profiles.len() as u64) as usize];
        seeds += 1;
        if let Err(failure) = run(seed, profile) {
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
    let profile = &profiles[(seed % profiles.len() as u64) as usize];
    let mut broken = None;
    let mut listener = |line: &str| {
        // A closed pipe ends the trace, not the run.
        if broken.is_none() {
            broken = print(&format!("{line}\n")).err();
        }
    };
    let outcome = if trace {
        run_traced(seed, profile, Some(&mut listener))
    } else {
        run(seed, profile)
    };
    match outcome {
        Ok(summary) => print(&format!(
            "profile {}: {summary}\nseeds 1 failed 0\n",
            profile.name
        )),
        Err(failure) => {
            print(&format!("{failure}\nseeds 1 failed 1\n"))?;
            Err(Failure::check(failure))
        }
    }
}
