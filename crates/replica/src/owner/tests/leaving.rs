//! A copy whose node ends in order leaves the in-sync set, and hosts wait for nothing.

use super::*;

fn leaves() -> Event {
    Event::PeerLeaves { peer: at(1) }
}

fn is_join(said: &Envelope) -> bool {
    matches!(said.message, Message::Join(_))
}

#[test]
fn a_copy_that_leaves_acknowledges_until_it_has_left_and_is_given_nothing_then() {
    let mut rig = Rig::pair();
    rig.answers.clear();
    rig.set_quorum(false);
    rig.handle(leaves());
    rig.write(1);
    assert!(rig.answers.is_empty(), "it is waited for");
    rig.obey(LONG);
    assert_eq!(rig.answers, [Outcome::Written], "it goes on");
    assert_eq!(rig.in_sync(), Positions::first(2));
    rig.set_quorum(true);
    rig.obey(LONG / 2);
    assert_eq!(rig.in_sync(), Positions::first(1));
    rig.said.clear();
    rig.write(2);
    assert_eq!(rig.answers, [Outcome::Written, Outcome::Written]);
    rig.pass(LONG / 2);
    assert_eq!(rig.said, [], "to a process that ends");
    rig.handle(Event::PeerGone { peer: at(1) });
    rig.obey(LONG);
    assert_eq!(
        rig.in_sync(),
        Positions::first(2),
        "the next one comes back"
    );
}

#[test]
fn it_leaves_at_once_and_is_handed_nothing_meanwhile() {
    let mut rig = Rig::pair();
    rig.handle(Event::Move { to: at(1) });
    rig.handle(leaves());
    assert!(!rig.gives(TICK * 3), "it could not keep it");
    assert_eq!(rig.in_sync(), Positions::first(1));
}

/// What it has is asked for first: it may know better what was acknowledged.
#[test]
fn an_owner_that_does_not_serve_yet_goes_on_waiting_for_it() {
    let mut rig = Rig::begin(Plan {
        in_sync: Positions::first(2),
        ..Plan::default()
    });
    rig.pass(LONG);
    assert!(rig.said.iter().any(is_join) && !rig.replica.is_serving());
    rig.handle(leaves());
    rig.pass(TICK * 8);
    assert_eq!(rig.in_sync(), Positions::first(2));
    rig.obey(LONG);
    assert!(rig.replica.is_serving());
    assert_eq!(rig.in_sync(), Positions::first(1), "now it may go");
}
