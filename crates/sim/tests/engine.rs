//! The storage engine over drives that lose power, die and lie: some seeds of every profile, a crash
//! at every write of a small workload, and what is broken on purpose.

use ashlar_sim::engine::{Canary, Layout, Profile, run, run_every_crash};

/// The first of these seeds that fails, and what it says.
fn first_failure(seeds: std::ops::Range<u64>, profile: Profile) -> Option<String> {
    seeds
        .into_iter()
        .find_map(|seed| Some(run(seed, &profile).err()?.to_string()))
}

#[test]
fn crashes() {
    assert_eq!(first_failure(0..150, Profile::CRASH), None);
}

#[test]
fn bit_rot() {
    assert_eq!(first_failure(0..150, Profile::BITROT), None);
}

#[test]
fn drive_loss() {
    assert_eq!(first_failure(0..150, Profile::DRIVE_LOSS), None);
}

/// Seeds that once found something: see the history for what each was.
#[test]
fn seeds_that_found_something() {
    for seed in [3867, 6780, 25] {
        assert_eq!(first_failure(seed..seed + 1, Profile::CRASH), None);
    }
    for seed in [2680, 2761, 4381] {
        assert_eq!(first_failure(seed..seed + 1, Profile::BITROT), None);
    }
    for seed in [44, 273, 1565, 2438, 2903] {
        assert_eq!(first_failure(seed..seed + 1, Profile::DRIVE_LOSS), None);
    }
}

#[test]
fn a_crash_at_every_write_of_a_mirror() {
    let counts = run_every_crash(Layout::Mirror { copies: 2 }, 1, 29);
    let counts = counts.unwrap_or_else(|(case, what)| panic!("{case}: {what}"));
    assert!(
        counts.changes >= 60 && counts.recoveries > 100,
        "{counts:?}"
    );
}

#[test]
fn a_crash_at_every_write_of_a_single_copy() {
    let counts = run_every_crash(Layout::Mirror { copies: 1 }, 2, 31);
    let counts = counts.unwrap_or_else(|(case, what)| panic!("{case}: {what}"));
    assert!(counts.changes >= 40, "{counts:?}");
}

/// What is broken must be noticed within a hundred seeds.
fn sings(canary: Canary, profile: Profile) {
    let noticed = first_failure(0..100, profile.with_canary(canary));
    assert!(noticed.is_some(), "{canary:?} goes unnoticed in 100 seeds");
}

#[test]
fn acknowledging_before_the_second_copy_is_noticed() {
    sings(Canary::AcknowledgeBeforeSecondCopy, Profile::DRIVE_LOSS);
}

#[test]
fn publishing_before_durable_is_noticed() {
    sings(Canary::PublishBeforeDurable, Profile::CRASH);
}

#[test]
fn a_term_that_is_not_raised_is_noticed() {
    sings(Canary::NoTermBump, Profile::CRASH);
}

#[test]
fn a_tail_that_is_not_written_again_is_noticed() {
    sings(Canary::NoTailRewrite, Profile::DRIVE_LOSS);
}

#[test]
fn records_dropped_before_a_flush_are_noticed() {
    sings(Canary::TailBeforeFlush, Profile::CRASH);
}

#[test]
fn records_dropped_before_the_map_has_changed_are_noticed() {
    sings(Canary::TailBeforeMove, Profile::CRASH);
}

#[test]
fn a_map_log_that_passes_the_ring_is_noticed() {
    sings(Canary::MapPastRing, Profile::CRASH);
}
