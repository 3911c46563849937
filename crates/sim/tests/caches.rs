//! Volumes that cache a device, in worlds of the storage engine: some seeds of every profile, and each defect of the cache
//! that can be built in on purpose.

use ashlar_sim::engine::{Canary, Defect, Profile, run};

/// In every world volumes cache devices.
const CACHED: Profile = Profile {
    caches: 1000,
    overcommits: 0,
    ..Profile::CRASH
};

/// An operator has other volumes cache devices, again and again, and the node fails while what was before is being given
/// back.
const REVIVED: Profile = Profile {
    commands: 1500,
    crashes: 0,
    agains: 16,
    hangs: 0,
    shortages: 0,
    alone: 0,
    orders: 0,
    ..CACHED
};

/// The first of these seeds that fails, and what it says.
fn first_failure(seeds: std::ops::Range<u64>, profile: Profile) -> Option<String> {
    seeds
        .into_iter()
        .find_map(|seed| Some(run(seed, &profile).err()?.to_string()))
}

#[test]
fn cached_volumes() {
    for profile in Profile::EVERY {
        let cached = Profile {
            caches: 1000,
            ..profile
        };
        assert_eq!(first_failure(6000..6040, cached), None, "{}", profile.name);
    }
}

/// Caches have something to do in these worlds.
#[test]
fn caches_have_hits_and_write_back_and_are_left() {
    let lives = (0..30).map(|seed| run(seed, &CACHED).unwrap_or_else(|why| panic!("{why}")));
    let (mut hits, mut back, mut left) = (0, 0, 0);
    for life in lives {
        hits += life.hits;
        back += life.written_back;
        left += life.left;
    }
    assert!(
        hits > 1000 && back > 4 << 20 && left > 30,
        "{hits} hits, {back} bytes written back, {left} left"
    );
}

/// Worlds that have failed once: all that a drive has free is being discarded while a volume waits for copies of the logs;
/// the mark is written over by what was kept for it, after a crash before a header said so; an answer that says that a
/// write-back has failed comes when the faults are over; and a cache rests with more than it may have.
#[test]
fn what_has_failed_once() {
    for seed in [1743, 3028, 3588, 3512] {
        assert_eq!(first_failure(seed..seed + 1, CACHED), None);
    }
}

/// A slot that is written while destage gives it its first home is counted once: with the home, and not with what is
/// counted on for it besides.
#[test]
fn a_slot_that_gets_its_home_is_counted_once() {
    assert_eq!(first_failure(900_191..900_192, Profile::BITROT), None);
}

/// What is broken must be noticed within three hundred seeds.
fn sings(defect: Defect, profile: Profile) {
    let noticed = first_failure(0..300, profile.with_defect(defect));
    assert!(noticed.is_some(), "{defect:?} goes unnoticed in 300 seeds");
}

#[test]
fn what_is_newer_before_it_is_written_is_noticed() {
    sings(Defect::DirtyBeforeData, CACHED);
}

#[test]
fn data_over_what_is_recorded_as_clean_is_noticed() {
    sings(Defect::DataBeforeDirty, CACHED);
}

#[test]
fn an_answer_before_the_record_is_noticed() {
    sings(Defect::AcknowledgeBeforeRecord, CACHED);
}

#[test]
fn what_is_clean_before_a_flush_is_noticed() {
    sings(Defect::CleanBeforeFlush, CACHED);
}

#[test]
fn what_a_host_has_written_over_a_run_is_not_taken_for_clean() {
    sings(Defect::OvertakenIsClean, CACHED);
}

#[test]
fn two_runs_of_the_same_are_noticed() {
    sings(Defect::TwoRunsOfTheSame, CACHED);
}

#[test]
fn dropping_before_the_record_is_noticed() {
    sings(Defect::DropBeforeRecord, CACHED);
}

#[test]
fn what_is_gone_and_revived_is_noticed() {
    sings(Defect::AroundBeforeRecord, CACHED);
}

#[test]
fn what_is_brought_in_over_a_newer_write_is_noticed() {
    sings(Defect::FillOverNewer, CACHED);
}

#[test]
fn a_cache_that_is_cold_after_a_crash_is_noticed() {
    sings(Defect::ColdAfterCrash, CACHED);
}

#[test]
fn what_a_killed_life_has_not_flushed_is_not_clean() {
    sings(Defect::KilledLifeWasFlushed, CACHED);
}

/// A host is told that what a flush has lost is there, or what was lost is taken for clean.
#[test]
fn flushes_that_cross_are_noticed() {
    sings(Defect::FlushesCross, CACHED);
}

#[test]
fn what_was_on_its_way_when_a_flush_failed_is_not_taken_for_there() {
    // One world in some two hundred has a write on its way when a flush fails, and asks whether it is there.
    sings(Defect::LostOnItsWay, CACHED);
}

#[test]
fn a_loss_that_is_forgotten_in_a_crash_is_noticed() {
    sings(Defect::LossIsForgotten, CACHED);
}

#[test]
fn space_that_a_crash_has_left_behind_is_noticed() {
    sings(Defect::NothingIsSwept, CACHED);
}

#[test]
fn what_is_being_put_where_space_is_given_back_is_not_given_back() {
    sings(Defect::SweptWithoutLock, CACHED);
}

#[test]
fn devices_are_cached_again_and_again() {
    assert_eq!(first_failure(0..12, REVIVED), None);
}

#[test]
fn slots_of_a_deleted_cache_that_are_revived_are_noticed() {
    let noticed = first_failure(0..300, REVIVED.with_canary(Canary::NumberInUse));
    assert!(noticed.is_some(), "they go unnoticed in 300 seeds");
}
