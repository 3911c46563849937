//! Some hundred seeds of every profile.

use ashlar_sim::{Profile, run};

fn seeds(profile: &Profile, seeds: std::ops::Range<u64>) {
    let failures: Vec<String> = seeds
        .filter_map(|seed| run(seed, profile).err())
        .map(|failure| failure.to_string())
        .collect();
    assert!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn stream() {
    seeds(&Profile::STREAM, 0..200);
}

#[test]
fn cut() {
    seeds(&Profile::CUT, 0..200);
}

#[test]
fn restart() {
    seeds(&Profile::RESTART, 0..200);
}

#[test]
fn flip() {
    seeds(&Profile::FLIP, 0..200);
}

#[test]
fn starve() {
    seeds(&Profile::STARVE, 0..200);
}

#[test]
fn all() {
    seeds(&Profile::ALL_FAULTS, 0..200);
}
