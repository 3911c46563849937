//! What is broken on purpose must be noticed, each within a hundred seeds.

use ashlar_sim::{Canary, Profile, run};

/// The first seed that notices, and what it says.
fn sings(canary: Canary, profile: Profile) -> (u64, String) {
    let profile = profile.with_canary(canary);
    let noticed = (0..100).find_map(|seed| Some((seed, run(seed, &profile).err()?.what)));
    noticed.unwrap_or_else(|| panic!("{canary:?} goes unnoticed in 100 seeds"))
}

fn check(canary: Canary, profile: Profile, says: &[&str]) {
    let (seed, what) = sings(canary, profile);
    assert!(
        says.iter().any(|word| what.contains(word)),
        "{canary:?} seed {seed}: {what}"
    );
}

#[test]
fn early_acknowledgement() {
    check(
        Canary::EarlyAck,
        Profile::STREAM,
        &["reads as write", "ends as write"],
    );
}

#[test]
fn dropped_completion() {
    check(
        Canary::DroppedCompletion,
        Profile::STREAM,
        &["never:", "it failed"],
    );
}

#[test]
fn data_in_the_wrong_place() {
    check(
        Canary::WrongPlace,
        Profile::STREAM,
        &["misplaced", "reads as write", "ends as write"],
    );
}

#[test]
fn no_drain_at_connect() {
    check(
        Canary::NoDrain,
        Profile::CUT,
        &["reads as write", "ends as write"],
    );
}

#[test]
fn ignored_flush() {
    check(
        Canary::IgnoredFlush,
        Profile::RESTART,
        &["past a durable one"],
    );
}

#[test]
fn shifted_payload() {
    let says = [
        "torn",
        "misplaced",
        "reads as write",
        "changed",
        "it failed",
        "no namespace",
    ];
    check(Canary::ShiftedPayload, Profile::STREAM, &says);
}

#[test]
fn undetected_flip() {
    let says = [
        "torn",
        "misplaced",
        "reads as write",
        "never made",
        "ends as write",
        "it failed",
    ];
    check(Canary::UndetectedFlip, Profile::FLIP, &says);
}

#[test]
fn replay_after_a_newer_write() {
    check(
        Canary::LateReplay,
        Profile::STREAM,
        &["reads as write", "ends as write"],
    );
}

#[test]
fn leaked_buffer() {
    check(Canary::LeakedBuffer, Profile::STREAM, &["bytes"]);
}

#[test]
fn forgotten_close() {
    check(Canary::ForgottenClose, Profile::STREAM, &["connections"]);
}

#[test]
fn a_predecessor_that_is_not_ended() {
    check(
        Canary::LivingPredecessor,
        Profile::LATE,
        &["reads as write", "ends as write"],
    );
}
