//! Seventy seeds of every profile; `make soak` runs many more.

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
    seeds(&Profile::STREAM, 0..70);
}

#[test]
fn cut() {
    seeds(&Profile::CUT, 0..70);
}

#[test]
fn restart() {
    seeds(&Profile::RESTART, 0..70);
}

#[test]
fn flip() {
    seeds(&Profile::FLIP, 0..70);
}

#[test]
fn starve() {
    seeds(&Profile::STARVE, 0..70);
}

#[test]
fn all() {
    seeds(&Profile::ALL_FAULTS, 0..70);
}

#[test]
fn late() {
    seeds(&Profile::LATE, 0..70);
}

/// Seeds that once failed, by what they found.
#[test]
fn regressions() {
    // A damaged Identify Namespace Descriptors was taken for a namespace without UUID.
    seeds(&Profile::FLIP, 93..94);
    // The model forgot what a first power loss had left when it judged the next one.
    seeds(&Profile::RESTART, 144..145);
    // The model held a later flush to writes that a failed one had already spoken for.
    seeds(&Profile::RESTART, 109..110);
    seeds(&Profile::RESTART, 1080..1081);
    // An I/O queue refused because its controller was gone meanwhile ended the session for good.
    seeds(&Profile::LATE, 111..112);
    // A flush from before a loss, failed by it, was taken to speak for writes acknowledged after it.
    seeds(&Profile::RESTART, 294..295);
}
