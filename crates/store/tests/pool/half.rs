//! Of two drives one is left: it goes on by itself if the node has stored that no other drive went on without it.

use std::cell::RefCell;
use std::rc::Rc;

use ashlar_block::ErrorKind;
use ashlar_store::{Event, ImportOptions, Membership, NodeMemory, PoolError};
use uuid::Uuid;

use crate::common::{Bench, Medium, fill};

const DRIVE: usize = 24 << 20;

/// A pool of two drives whose node remembers them.
fn two() -> Bench {
    remembered(Bench::new(2, DRIVE).media, None).expect("both are here")
}

/// What a node has stored.
#[derive(Debug)]
struct Stored(RefCell<Option<Membership>>);

impl NodeMemory for Stored {
    fn stored(&self, _: Uuid) -> Option<Membership> {
        self.0.borrow().clone()
    }

    fn store(&self, membership: &Membership) -> Result<(), PoolError> {
        self.0.replace(Some(membership.clone()));
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

fn remembered(media: Vec<Medium>, stored: Option<Membership>) -> Result<Bench, PoolError> {
    with(media, &Rc::new(Stored(RefCell::new(stored))))
}

/// What the node stores next.
fn store(pool: &mut Bench) -> Membership {
    pool.run(Event::Tick);
    let membership = pool.membership().expect("something to store");
    pool.run(Event::Remembered(membership.clone()));
    membership
}

/// Bytes of a drive as they are now.
fn copy(medium: &Medium) -> Medium {
    Rc::new(RefCell::new(medium.borrow().clone()))
}

fn refusal(opened: Result<Bench, PoolError>) -> String {
    opened.err().expect("refused").to_string()
}

#[test]
fn half_goes_on_with_what_was_acknowledged() {
    let mut pool = two();
    let known = store(&mut pool);
    let volume = pool.volume(64, 2);
    pool.write(volume, 3, &fill(2, 7)).expect("write");
    for left in 0..2 {
        let half = || vec![copy(&pool.media[left])];
        assert!(refusal(remembered(half(), None)).contains("--degraded"));
        let mut pool = remembered(half(), Some(known.clone())).expect("it has everything");
        assert_eq!(pool.read(volume, 3, 2).expect("read"), fill(2, 7));
        store(&mut pool);
        pool.write(volume, 3, &fill(1, 8)).expect("write");
    }
}

#[test]
fn what_is_remembered_of_another_import_counts_for_nothing() {
    let mut pool = two();
    let known = store(&mut pool);
    // Another node has had it meanwhile.
    let mut pool = pool.restart();
    let half = vec![copy(&pool.media[0])];
    assert!(refusal(remembered(half, Some(known.clone()))).contains("--degraded"));
    let newer = store(&mut pool);
    assert!(newer.term > known.term);
    let other = Membership {
        drives: known.drives.iter().copied().take(1).collect(),
        ..newer
    };
    let half = vec![copy(&pool.media[0])];
    assert!(refusal(remembered(half, Some(other))).contains("--degraded"));
}

#[test]
fn nothing_is_acknowledged_until_it_is_stored_that_a_drive_is_out() {
    let mut pool = two();
    let known = store(&mut pool);
    let volume = pool.volume(64, 2);
    let before = copy(&pool.media[1]);
    pool.seen.faults[1].set(Some((|_| true, ErrorKind::Media)));
    let request = pool.request(5, &fill(1, 9));
    let (done, _) = pool.run(Event::Command { volume, request });
    assert!(
        done.is_empty(),
        "the drive that failed would be let in: {done:?}"
    );
    assert!(pool.engine.waits_for_its_node());
    let now = pool.membership().expect("one drive is left");
    assert_eq!(now.drives.len(), 1);
    // Until then the other half would be let in, and has all that was acknowledged.
    remembered(vec![copy(&before)], Some(known.clone())).expect("nothing was acknowledged since");
    let (done, _) = pool.run(Event::Remembered(now.clone()));
    assert!(matches!(&done[..], [one] if one.result.is_ok()), "{done:?}");
    assert!(refusal(remembered(vec![before], Some(now.clone()))).contains("--degraded"));
    let mut pool = remembered(vec![copy(&pool.media[0])], Some(now)).expect("it went on");
    assert_eq!(pool.read(volume, 5, 1).expect("read"), fill(1, 9));
}

#[test]
fn half_that_goes_on_is_stored_before_it_answers_anything() {
    let mut pool = two();
    let memory = Rc::new(Stored(RefCell::new(Some(store(&mut pool)))));
    let [this, other] = [0, 1].map(|drive| copy(&pool.media[drive]));
    let mut cut = with(vec![copy(&this)], &memory).expect("it goes on");
    cut.run(Event::Tick);
    assert!(!cut.engine.waits_for_its_node(), "the import has stored it");
    assert!(refusal(with(vec![copy(&other)], &memory)).contains("--degraded"));
    // The import was cut off after it was stored, before any drive was written.
    with(vec![this], &memory).expect("it is the one that goes on");
}

#[test]
fn one_of_three_that_leaves_holds_up_nothing() {
    let mut pool = remembered(Bench::new(3, DRIVE).media, None).expect("all are here");
    store(&mut pool);
    let volume = pool.volume(64, 2);
    pool.seen.faults[1].set(Some((|_| true, ErrorKind::Media)));
    pool.write(volume, 5, &fill(1, 9))
        .expect("two of three are enough, stored or not");
    // Of the two that are left one goes, while the node still knows of three.
    pool.seen.faults[2].set(Some((|_| true, ErrorKind::Media)));
    let request = pool.request(6, &fill(1, 9));
    pool.may_fail = true;
    let (done, _) = pool.run(Event::Command { volume, request });
    let acknowledged = done.iter().any(|one| one.result.is_ok());
    assert!(!acknowledged, "{done:?}");
}
