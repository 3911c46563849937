use ashlar_store::Layout;

use super::{Liar, Lie, Toy};
use crate::engine::enumerate::{Sweep, Work, enumerate};
use crate::engine::profile::Profile;
use crate::engine::run::live;

/// The toy's log never wraps, so it takes only so much.
const SHORT: Profile = Profile {
    commands: 120,
    stalls: 1,
    hangs: 0,
    tiers: 0,
    caches: 0,
    overcommits: 0,
    changes: 0,
    // The toy takes what a drive cannot do now for a failure.
    shortages: 0,
    ..Profile::CRASH
};

macro_rules! liar {
    ($name:ident) => {{
        struct L;
        impl Liar for L {
            const LIE: Lie = Lie::$name;
        }
        |seed: u64| {
            live::<Toy<L>>(seed, &SHORT, None)
                .err()
                .map(|failure| failure.what)
        }
    }};
}

/// What the first seeds that notice say; panics if none of a hundred does.
fn noticed(lives: impl Fn(u64) -> Option<String>, words: &[&str]) {
    let mut heard = Vec::new();
    for seed in 0..100 {
        let Some(what) = lives(seed) else { continue };
        if words.iter().any(|word| what.contains(word)) {
            return;
        }
        heard.push(what);
    }
    panic!("nothing says {words:?}, but: {heard:#?}");
}

#[test]
fn an_honest_engine_passes() {
    let lives = liar!(None);
    for seed in 0..200 {
        assert_eq!(lives(seed), None, "seed {seed}");
    }
}

#[test]
fn the_same_seed_lives_the_same_life() {
    struct L;
    impl Liar for L {
        const LIE: Lie = Lie::None;
    }
    for seed in 0..10 {
        let mut traces = [Vec::new(), Vec::new()];
        for trace in &mut traces {
            let mut listener = |line: &str| trace.push(line.to_owned());
            let lived = live::<Toy<L>>(seed, &SHORT, Some(&mut listener));
            assert!(lived.is_ok_and(|summary| summary.commands > 20 && summary.crashes > 0));
        }
        assert!(traces[0].len() > 100 && traces[0] == traces[1]);
        let lived = live::<Toy<L>>(seed, &SHORT, None);
        assert!(lived.is_ok());
    }
}

#[test]
fn lost_writes_are_noticed() {
    noticed(liar!(AnswerEarly), &["lost:"]);
    noticed(liar!(NoForce), &["lost:"]);
}

#[test]
fn stale_data_is_noticed() {
    noticed(liar!(Stale), &["lost:"]);
}

#[test]
fn reverted_reads_are_noticed() {
    noticed(liar!(PublishEarly), &["reverted:"]);
}

#[test]
fn torn_writes_are_noticed() {
    noticed(liar!(Split), &["torn:"]);
    noticed(liar!(TrustTail), &["torn:", "strange:", "lost:"]);
}

#[test]
fn misplaced_data_is_noticed() {
    noticed(liar!(Neighbour), &["misplaced"]);
}

#[test]
fn commands_that_are_never_answered_are_noticed() {
    noticed(liar!(Forget), &["never:"]);
}

#[test]
fn commands_that_are_answered_twice_are_noticed() {
    noticed(liar!(Twice), &["not on its way"]);
}

#[test]
fn every_crash_is_tried() {
    struct L;
    impl Liar for L {
        const LIE: Lie = Lie::None;
    }
    let counts = enumerate::<Toy<L>>(&Sweep::every(Work::Data, Layout::Mirror { copies: 1 }));
    let counts = counts.expect("an honest engine survives");
    assert!(counts.changes > 10 && counts.lives > 4 * counts.changes);
}

#[test]
fn one_crash_of_all_is_noticed() {
    struct L;
    impl Liar for L {
        const LIE: Lie = Lie::Split;
    }
    let noticed = enumerate::<Toy<L>>(&Sweep::every(Work::Data, Layout::Mirror { copies: 1 }));
    assert!(noticed.is_err_and(|(_, what)| what.contains("torn:")));
}
