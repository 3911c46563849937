//! Every defect that the engine can be built with is noticed within 100 seeds. Only with
//! `--features canary`: a build that serves cannot be broken on purpose.
#![cfg(feature = "canary")]

use ashlar_sim::engine::{Canary, Profile, run};

/// Seeds that a defect may stay unnoticed.
const SEEDS: u64 = 100;

fn noticed(canary: Canary) -> Option<(u64, String)> {
    let profiles = [Profile::CRASH, Profile::DRIVE_LOSS, Profile::BITROT];
    (0..SEEDS).find_map(|seed| {
        profiles.iter().find_map(|profile| {
            let failure = run(seed, &profile.with_canary(canary)).err()?;
            Some((seed, failure.to_string()))
        })
    })
}

#[test]
fn every_canary_is_noticed() {
    let mut unnoticed = Vec::new();
    for canary in Canary::ALL {
        match noticed(canary) {
            Some((seed, what)) => println!("{canary:?}: seed {seed}: {what}"),
            None => unnoticed.push(canary),
        }
    }
    assert!(
        unnoticed.is_empty(),
        "unnoticed in {SEEDS} seeds: {unnoticed:?}"
    );
}
