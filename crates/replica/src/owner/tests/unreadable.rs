//! What a learner is to be given, and its owner cannot read.

use super::*;

const LOST: u64 = 17;

fn lost() -> Extent {
    Extent::new(LOST, 1).expect("an extent")
}

fn told() -> Alarm {
    let (position, extent) = (at(1), lost());
    Alarm::Unreadable { position, extent }
}

impl Rig {
    /// The other copy misses everything, and a granule of it is lost here.
    fn lacking() -> Self {
        let mut rig = Self::new();
        rig.local.lost.insert(lost());
        rig.obey(LONG);
        rig
    }
}

/// The only copy in sync does not stop for a block of it.
#[test]
fn an_owner_that_cannot_read_what_a_learner_lacks_serves_on_and_gives_it_the_rest() {
    let mut rig = Rig::lacking();
    assert!(rig.replica.is_serving());
    assert_eq!(rig.alarms, [told()]);
    assert_eq!(rig.replica.missing(at(1)), Some(1), "it has all else");
    assert_eq!(rig.in_sync(), Positions::first(1));
    let before = rig.local.lost_reads;
    rig.obey(Duration::from_secs(300));
    let tries = rig.local.lost_reads - before;
    assert!((4..12).contains(&tries), "{tries} tries in 5 minutes");
    assert_eq!(rig.alarms, [told()], "it is told once");
    rig.write(LOST);
    rig.obey(LONG);
    assert_eq!(rig.answers, [Outcome::Written]);
    assert_eq!(rig.in_sync(), Positions::first(2), "a host wrote it");
}

#[test]
fn what_can_be_read_again_is_given() {
    let mut rig = Rig::lacking();
    rig.local.lost = ExtentSet::new();
    rig.obey(LONG * 4);
    assert_eq!(rig.in_sync(), Positions::first(2));
}

/// Who was in sync may have it.
#[test]
fn an_owner_with_another_copy_in_sync_hands_over_once() {
    let mut rig = Rig::of(Plan {
        copies: 3,
        in_sync: Positions::first(2),
        ..Plan::default()
    });
    rig.local.lost.insert(lost());
    let mut handed = 0;
    for _ in 0..400 {
        rig.pass(TICK);
        let is_handoff = |said: &&Envelope| matches!(said.message, Message::Handoff);
        handed += rig.said.iter().filter(is_handoff).count();
        rig.other_answers();
    }
    assert_eq!(handed, 1);
    // The other could not do better, and this one owns again: hosts are served.
    assert!(rig.replica.is_serving());
}
