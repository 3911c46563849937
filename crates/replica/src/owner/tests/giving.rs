//! Ownership is given away only while the quorum could give it to another.

use super::*;
use crate::lease::GRANT;

impl Rig {
    /// Two copies in sync.
    pub(super) fn pair() -> Self {
        let mut rig = Self::new();
        rig.obey(LONG);
        assert_eq!(rig.in_sync(), Positions::first(2));
        rig
    }

    pub(super) fn set_quorum(&mut self, is_there: bool) {
        self.quorum.set_members_down(usize::from(!is_there));
    }

    /// The same as [`Rig::obey`], which forgets what was said: whether the volume is handed over meanwhile.
    pub(super) fn gives(&mut self, time: Duration) -> bool {
        let end = self.now + time;
        let mut is_given = false;
        while self.now < end {
            let handoff = |said: &Envelope| matches!(said.message, Message::Handoff);
            is_given |= self.said.iter().any(handoff);
            self.obey(TICK);
        }
        is_given
    }

    fn is_written(&mut self, granule: u64) -> bool {
        self.answers.clear();
        self.write(granule);
        self.obey(TICK * 4);
        self.answers == [Outcome::Written]
    }

    /// What its store was asked for is not done.
    fn hang(&mut self) {
        self.local.takes = Duration::from_secs(3600);
        self.write(9);
    }

    fn go_on(&mut self) {
        self.local.takes = Duration::ZERO;
        for (_, event) in std::mem::take(&mut self.local.later) {
            self.handle(event);
        }
    }
}

#[test]
fn a_move_that_the_quorum_could_not_carry_out_does_not_begin() {
    let mut rig = Rig::pair();
    rig.set_quorum(false);
    rig.handle(Event::Move { to: at(1) });
    assert!(rig.is_written(1), "hosts do not wait for the quorum");
    assert!(!rig.gives(LONG));
    assert!(rig.is_written(2));
    rig.set_quorum(true);
    assert!(!rig.gives(LONG), "it is not wanted any more");
    rig.handle(Event::Move { to: at(1) });
    assert!(rig.gives(TICK * 8));
    assert!(!rig.replica.is_serving());
}

#[test]
fn an_owner_whose_store_hangs_hands_over_if_the_quorum_answers() {
    let mut rig = Rig::pair();
    rig.hang();
    assert!(!rig.gives(Duration::from_millis(1900)));
    assert!(rig.gives(Duration::from_millis(400)));
    assert!(!rig.replica.is_serving());
}

/// There is no other that could serve, and the store may go on.
#[test]
fn an_owner_whose_store_hangs_while_the_quorum_is_away_serves_when_it_goes_on() {
    let mut rig = Rig::pair();
    rig.set_quorum(false);
    rig.hang();
    assert!(!rig.gives(Duration::from_secs(7)));
    assert!(rig.replica.is_serving());
    rig.go_on();
    assert!(rig.is_written(1));
    // What was asked meanwhile counts for nothing now.
    rig.set_quorum(true);
    assert!(!rig.gives(LONG));
    assert!(rig.is_written(2));
}

/// It may answer to the other.
#[test]
fn an_owner_whose_store_is_dead_hands_over_even_if_the_quorum_does_not_answer_it() {
    let mut rig = Rig::pair();
    rig.set_quorum(false);
    rig.hang();
    assert!(rig.gives(Duration::from_secs(9)));
}

/// Three copies in sync, of which the last has left; and the key from before that, in a quorum that was written to since.
fn left_out_since_a_backup() -> (Rig, Held) {
    let all = Positions::first(3);
    let mut rig = Rig::begin(Plan {
        copies: 3,
        in_sync: all,
        ..Plan::default()
    });
    rig.obey(LONG);
    let mut backup = rig.stored();
    rig.silent = Positions::NONE.with(at(2));
    rig.write(1);
    rig.obey(LONG);
    assert_eq!(rig.in_sync(), Positions::first(2), "silent, and left out");
    backup.revision.0 += 100;
    (rig, backup)
}

/// Who takes over goes by what the key says, and the copy that it names lacks what was acknowledged.
#[test]
fn nothing_is_given_away_by_a_key_that_names_a_copy_which_has_left() {
    let (mut rig, backup) = left_out_since_a_backup();
    let mut newer = rig.stored();
    newer.revision.0 = backup.revision.0 + 1;
    rig.quorum.restore(VOLUME, backup);
    rig.handle(Event::Move { to: at(1) });
    assert!(!rig.gives(LONG));
    assert_eq!(rig.alarms, [Alarm::StoreAdds(Positions::NONE.with(at(2)))]);
    rig.hang();
    assert!(!rig.gives(Duration::from_secs(7)));
    rig.go_on();
    assert!(rig.is_written(2), "it serves on");
    rig.quorum.restore(VOLUME, newer);
    rig.handle(Event::Move { to: at(1) });
    assert!(rig.gives(TICK * 8), "the newer key is back");
}

/// The owner has asked, a copy leaves, and only then the answer comes that still names it.
#[test]
fn an_answer_from_before_the_key_has_changed_is_no_backup() {
    let mut rig = Rig::begin(Plan {
        copies: 3,
        in_sync: Positions::first(3),
        ..Plan::default()
    });
    rig.obey(LONG);
    rig.silent = Positions::NONE.with(at(2));
    rig.write(1);
    rig.obey(Duration::from_millis(240));
    let quick = std::mem::replace(&mut rig.question_takes, Duration::from_millis(200));
    rig.handle(Event::Move { to: at(1) });
    rig.question_takes = quick;
    assert!(rig.gives(LONG));
    assert_eq!(rig.alarms, []);
}

/// It may not be one that the other copy could take over by.
#[test]
fn a_key_that_is_another_in_any_way_is_settled_before_anything_is_given() {
    let (mut rig, mut other) = left_out_since_a_backup();
    let alone = Key {
        in_sync: Positions::first(1),
        ..rig.key()
    };
    other.value = alone.encode();
    rig.quorum.restore(VOLUME, other);
    rig.silent = Positions::first(3);
    rig.handle(Event::Move { to: at(1) });
    assert!(!rig.gives(TICK * 8));
    assert!(rig.replica.is_serving());
    rig.silent = Positions::NONE;
    rig.handle(Event::PeerGone { peer: at(1) });
    rig.handle(Event::PeerGone { peer: at(2) });
    rig.obey(LONG);
    assert_eq!(
        rig.in_sync(),
        Positions::first(3),
        "it goes by that, and on"
    );
    rig.handle(Event::Move { to: at(1) });
    assert!(rig.gives(TICK * 8));
}

/// What the process before this one has promised does not count any more.
#[test]
fn a_process_that_has_just_begun_takes_over_at_once_from_an_owner_that_hands_over() {
    let both = Positions::first(2);
    let mut rig = Rig::begin(Plan {
        in_sync: both,
        ..Plan::default()
    });
    let join = Message::Join(Join {
        owner: member(1).node,
        incarnation: Incarnation(1),
        absent: Positions::NONE,
        members: both,
        claim: Mark::default(),
    });
    for (number, message) in [(0, join), (1, Message::Handoff)] {
        let envelope = Envelope {
            volume: VOLUME,
            shard: ShardId(0),
            epoch: Epoch(1),
            session: SessionId(1),
            number,
            message,
        };
        let from = at(1);
        rig.handle(Event::Received { from, envelope });
    }
    rig.obey(TICK * 8);
    assert!(TICK * 8 < GRANT);
    assert!(rig.replica.is_serving());
    assert_eq!(rig.in_sync(), both);
}
