//! Of two drives one is left: it goes on by itself if the node has stored that no other drive went on without it.

use std::cell::RefCell;
use std::rc::Rc;

use ashlar_block::ErrorKind;
use ashlar_store::{Event, ImportOptions, Membership, NodeMemory, PoolError};
use uuid::Uuid;

use crate::common::{Bench, Medium, fill};

const DRIVE: usize = 24 << 20;

/// What a node has stored.
#[derive(Debug, Default)]
struct Stored {
    now: RefCell<Option<Membership>>,
    /// Its disk takes nothing now.
    is_stuck: bool,
}

impl Stored {
    fn of(membership: &Membership) -> Rc<Self> {
        Rc::new(Self {
            now: RefCell::new(Some(membership.clone())),
            is_stuck: false,
        })
    }

    fn known(&self) -> Membership {
        self.now.borrow().clone().expect("something is stored")
    }
}

impl NodeMemory for Stored {
    fn stored(&self, _: Uuid) -> Vec<Membership> {
        self.now.borrow().iter().cloned().collect()
    }

    fn store(&self, membership: &Membership) -> Result<(), PoolError> {
        if self.is_stuck {
            return Err(PoolError::Refused("as told".into()));
        }
        self.now.replace(Some(membership.clone()));
        Ok(())
    }
}

fn with(media: Vec<Medium>, memory: &Rc<Stored>) -> Result<Bench, PoolError> {
    let options = ImportOptions {
        memory: Some(memory.clone()),
        ..ImportOptions::default()
    };
    Bench::open_with(media, &options)
}

/// A pool of so many drives, and its node's memory of it.
fn remembered(drives: usize) -> (Bench, Membership) {
    let memory = Rc::new(Stored::default());
    let pool = with(Bench::new(drives, DRIVE).media, &memory).expect("all are here");
    (pool, memory.known())
}

/// Bytes of a drive as they are now.
fn copy(medium: &Medium) -> Medium {
    Rc::new(RefCell::new(medium.borrow().clone()))
}

fn copies(pool: &Bench, drives: &[usize]) -> Vec<Medium> {
    drives
        .iter()
        .map(|&drive| copy(&pool.media[drive]))
        .collect()
}

fn break_drive(pool: &Bench, drive: usize) {
    pool.seen.faults[drive].set(Some((|_| true, ErrorKind::Media)));
}

fn refusal(opened: Result<Bench, PoolError>) -> String {
    let refusal = opened.err().expect("refused").to_string();
    assert!(refusal.contains("--degraded"), "{refusal}");
    refusal
}

#[test]
fn half_goes_on_with_what_was_acknowledged() {
    let (mut pool, known) = remembered(2);
    let volume = pool.volume(64, 2);
    pool.write(volume, 3, &fill(2, 7)).expect("write");
    for left in 0..2 {
        refusal(with(copies(&pool, &[left]), &Rc::new(Stored::default())));
        let memory = Stored::of(&known);
        let mut half = with(copies(&pool, &[left]), &memory).expect("it has everything");
        assert_eq!(half.read(volume, 3, 2).expect("read"), fill(2, 7));
        half.write(volume, 3, &fill(1, 8))
            .expect("it is stored who goes on");
        // The other one has not got that.
        refusal(with(copies(&pool, &[1 - left]), &memory));
        let mut both = copies(&pool, &[1 - left]);
        both.extend(copies(&half, &[0]));
        let mut both = with(both, &memory).expect("both are here");
        assert_eq!(both.read(volume, 3, 1).expect("read"), fill(1, 8));
    }
}

#[test]
fn what_is_remembered_of_another_import_counts_for_nothing() {
    let (pool, known) = remembered(2);
    // Another node has had it meanwhile.
    let pool = pool.restart();
    refusal(with(copies(&pool, &[0]), &Stored::of(&known)));
    let (pool, newer) = remembered(2);
    let other = Membership {
        drives: newer.drives.iter().copied().take(1).collect(),
        ..newer
    };
    refusal(with(copies(&pool, &[1]), &Stored::of(&other)));
}

#[test]
fn no_root_leaves_half_out_until_that_is_stored() {
    let (mut pool, known) = remembered(2);
    let volume = pool.volume(64, 2);
    let before = copies(&pool, &[1]);
    break_drive(&pool, 1);
    let request = pool.request(5, &fill(1, 9));
    let (done, _) = pool.run(Event::Command { volume, request });
    assert!(
        done.is_empty(),
        "the drive that failed would be let in: {done:?}"
    );
    assert!(pool.engine.waits_for_its_node());
    let now = pool.membership().expect("one drive is left");
    assert_eq!(now.drives.len(), 1);
    // The power fails now: either half may go on, and the other one not any more.
    for (this, other) in [
        (copies(&pool, &[0]), vec![copy(&before[0])]),
        (vec![copy(&before[0])], copies(&pool, &[0])),
    ] {
        let memory = Stored::of(&known);
        with(this, &memory).expect("nothing was acknowledged since");
        refusal(with(other, &memory));
    }
    let (done, _) = pool.run(Event::Remembered(now.clone()));
    assert!(matches!(&done[..], [one] if one.result.is_ok()), "{done:?}");
    refusal(with(before, &Stored::of(&now)));
    let mut pool = with(copies(&pool, &[0]), &Stored::of(&now)).expect("it went on");
    assert_eq!(pool.read(volume, 5, 1).expect("read"), fill(1, 9));
}

#[test]
fn what_may_be_stored_counts_as_stored() {
    let stuck = Rc::new(Stored {
        is_stuck: true,
        ..Stored::default()
    });
    let mut pool = with(Bench::new(2, DRIVE).media, &stuck).expect("both are here");
    let volume = pool.volume(64, 2);
    break_drive(&pool, 1);
    let request = pool.request(5, &fill(1, 9));
    let (done, _) = pool.run(Event::Command { volume, request });
    assert!(
        done.is_empty(),
        "that both serve may be stored any time: {done:?}"
    );
    let now = pool.membership().expect("one drive is left");
    let (done, _) = pool.run(Event::Remembered(now));
    assert_eq!(done.len(), 1);
}

#[test]
fn half_that_goes_on_is_stored_before_its_root() {
    let (pool, known) = remembered(2);
    let stuck = Rc::new(Stored {
        now: RefCell::new(Some(known.clone())),
        is_stuck: true,
    });
    let refused = with(copies(&pool, &[0]), &stuck);
    assert!(
        refused
            .err()
            .expect("refused")
            .to_string()
            .contains("as told")
    );
    with(copies(&pool, &[1]), &Stored::of(&known)).expect("nothing was changed");
}

#[test]
fn a_majority_that_others_went_on_without_is_refused() {
    let (pool, known) = remembered(4);
    // A root of the pool's last moment is on one drive, and counts out another: with a third they are two of three.
    let of = |drives: &[usize], name: &[usize]| {
        let mut lone = Bench::open(copies(&pool, &[0, 1, 2, 3]));
        (0..4)
            .filter(|one| !name.contains(one))
            .for_each(|gone| break_drive(&lone, gone));
        let volume = lone.volume(64, 2);
        lone.write(volume, 1, &fill(1, 1)).expect("three are left");
        copies(&lone, drives)
    };
    let mut two = of(&[1], &[1, 2, 3]);
    two.extend(copies(&pool, &[3]));
    let went_on = Membership {
        term: known.term + 2,
        drives: known
            .drives
            .iter()
            .copied()
            .enumerate()
            .filter(|(at, _)| at % 2 == 0)
            .map(|(_, one)| one)
            .collect(),
        ..known
    };
    refusal(with(two, &Stored::of(&went_on)));
}

#[test]
fn one_of_three_that_leaves_holds_up_nothing() {
    let (mut pool, _) = remembered(3);
    let volume = pool.volume(64, 2);
    break_drive(&pool, 1);
    pool.write(volume, 5, &fill(1, 9))
        .expect("two of three are enough, stored or not");
    assert!(!pool.engine.waits_for_its_node());
}
