//! A copy whose process is certified dead, or whose store has failed, is not waited for.

use super::*;
use crate::owner::{POWER_LOSS_WAIT, REMOVE_AFTER};

fn died() -> Event {
    Event::PeerDied { peer: at(1) }
}

#[test]
fn what_a_dead_member_was_to_acknowledge_is_written_without_it() {
    let mut rig = Rig::pair();
    rig.answers.clear();
    rig.write(1);
    rig.pass(TICK * 4);
    assert!(rig.answers.is_empty(), "its acknowledgement is waited for");
    rig.handle(died());
    rig.pass(TICK * 4);
    assert!(TICK * 8 < REMOVE_AFTER);
    assert_eq!(rig.answers, [Outcome::Written]);
    assert_eq!(rig.in_sync(), Positions::first(1));
    rig.obey(LONG);
    assert_eq!(rig.in_sync(), Positions::first(2), "it comes back");
}

#[test]
fn one_that_has_come_back_is_waited_for_again() {
    let mut rig = Rig::pair();
    rig.set_quorum(false);
    rig.handle(died());
    rig.obey(TICK * 8);
    rig.set_quorum(true);
    rig.obey(LONG);
    let swaps = rig.swaps;
    rig.obey(LONG);
    assert_eq!((rig.in_sync(), rig.swaps), (Positions::first(2), swaps));
}

/// After a loss of power everywhere another copy may know better what was acknowledged.
#[test]
fn an_owner_that_awaits_what_others_know_goes_on_waiting_for_a_dead_one() {
    let mut rig = Rig::begin(Plan {
        in_sync: Positions::first(2),
        ..Plan::default()
    });
    rig.pass(LONG);
    assert!(rig.replica.owner().is_some() && !rig.replica.is_serving());
    rig.handle(died());
    rig.pass(REMOVE_AFTER * 4);
    assert!(!rig.replica.is_serving());
    rig.pass(POWER_LOSS_WAIT);
    assert!(rig.replica.is_serving(), "not for ever");
}

#[test]
fn an_owner_serves_without_a_copy_that_answers_that_its_store_has_failed() {
    let mut rig = Rig::begin(Plan {
        in_sync: Positions::first(2),
        ..Plan::default()
    });
    rig.pass(LONG);
    let is_join = |said: &&Envelope| said.answer_of_failed().is_some();
    let join = rig.said.iter().rfind(is_join).expect("a session").clone();
    assert!(!rig.replica.is_serving());
    let answer = join.answer_of_failed().expect("to a JOIN");
    assert_eq!((answer.session, answer.number), (join.session, 0));
    assert_eq!(answer.answer_of_failed(), None);
    rig.handle(Event::Received {
        from: at(1),
        envelope: answer,
    });
    rig.pass(TICK * 4);
    assert!(rig.replica.is_serving());
    assert_eq!(rig.in_sync(), Positions::first(1));
}
