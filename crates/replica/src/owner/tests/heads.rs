//! How far copies had come, as others remember.

use super::*;
use crate::heads::HeadBook;
use crate::ids::Nonce;

/// What is remembered of the copy at a place.
fn marked(position: Position, head: u64) -> Heads {
    let mut marks = [Mark::default(); 3];
    marks[position.index()] = Mark {
        replica: member(position.index() as u8).replica,
        head: Head(head),
    };
    Heads::new(marks)
}

/// Two copies in sync; what this one remembers of the other, and what that one claims.
fn pair(remembered: u64, claims: u64) -> Rig {
    let mut rig = Rig::begin(Plan {
        in_sync: Positions::first(2),
        head: 5,
        heads: marked(at(1), remembered),
        ..Plan::default()
    });
    rig.head_there = Head(claims);
    rig
}

#[test]
fn a_copy_that_claims_less_than_before_is_left_out_before_hosts_are_served() {
    let mut rig = pair(10, 9);
    while !rig.replica.is_serving() {
        rig.obey(TICK);
    }
    assert_eq!(rig.in_sync(), Positions::first(1));
    assert_eq!(rig.alarms, [Alarm::Lags(at(1))]);
    rig.obey(LONG);
    assert_eq!(rig.in_sync(), Positions::first(2), "it was made equal");
    for claims in [10, 11, 0] {
        let mut rig = pair(10, claims);
        rig.obey(LONG);
        assert!(rig.replica.is_serving());
        assert_eq!(rig.in_sync(), Positions::first(2), "{claims}");
        assert!(rig.alarms.is_empty(), "{claims}: {:?}", rig.alarms);
    }
}

/// An owner that is not followed stops, and takes no other epoch.
#[test]
fn an_owner_that_lags_owns_nothing() {
    let mut rig = pair(0, 0);
    rig.pass(LONG);
    let epoch = rig.replica.owns().expect("it waits for the other");
    let reason = Refusal::Lags;
    let promised = Epoch(1);
    rig.hear(Message::Refuse { promised, reason });
    assert_eq!(rig.alarms, [Alarm::Lags(at(0))]);
    assert!(rig.replica.lags());
    rig.pass(LONG * 4);
    assert_eq!(rig.replica.owns(), None);
    let key = Key::decode(&rig.stored().value).expect("a key");
    assert_eq!(key.epoch, epoch, "nor asks for one");
}

/// The owner of another epoch, at position 1, says JOIN, and claims this.
fn joined_by(rig: &mut Rig, claim: u64, absent: Positions) -> Option<Message> {
    let mut key = Key::decode(&rig.stored().value).expect("a key");
    key.epoch = Epoch(2);
    key.owner = OwnerId {
        node: member(1).node,
        incarnation: Incarnation(1),
    };
    rig.quorum.put(VOLUME, key.encode());
    let join = Join {
        owner: member(1).node,
        incarnation: Incarnation(1),
        absent,
        members: Positions::first(2),
        claim: Mark {
            replica: member(1).replica,
            head: Head(claim),
        },
    };
    let envelope = Envelope {
        volume: VOLUME,
        shard: ShardId(0),
        epoch: Epoch(2),
        session: SessionId(1),
        number: 0,
        message: Message::Join(join),
    };
    let from = at(1);
    rig.handle(Event::Received { from, envelope });
    rig.said.pop().map(|said| said.message)
}

#[test]
fn an_owner_that_claims_less_than_before_is_not_followed_and_left_out() {
    let mut rig = pair(10, 0);
    let said = joined_by(&mut rig, 9, Positions::NONE);
    let is_refused = |said: &Option<Message>| {
        let reason = Refusal::Lags;
        matches!(said, Some(Message::Refuse { reason: is, .. }) if *is == reason)
    };
    assert!(is_refused(&said), "{said:?}");
    rig.pass(LONG);
    let key = Key::decode(&rig.stored().value).expect("a key");
    assert_eq!((key.epoch, key.owner.node), (Epoch(3), member(0).node));
    assert_eq!(rig.in_sync(), Positions::first(1));
    assert_eq!(rig.alarms, [Alarm::Lags(at(1))]);
    assert!(rig.replica.is_serving());
    let me = Positions::NONE.with(at(0));
    for (claim, absent) in [(10, Positions::NONE), (0, Positions::NONE), (9, me)] {
        let mut rig = pair(10, 0);
        let said = joined_by(&mut rig, claim, absent);
        assert!(!is_refused(&said) && rig.alarms.is_empty(), "{claim}");
        rig.pass(TICK);
        assert!(rig.replica.follows(), "{claim} {absent:?}");
    }
}

/// What is heard is remembered, and forgotten when its copy leaves the in-sync set: it may come back with less.
#[test]
fn what_is_heard_of_a_copy_counts_while_it_is_in_sync() {
    let mut rig = pair(0, 7);
    rig.obey(LONG);
    assert!(rig.replica.is_serving());
    assert_eq!(rig.local.remembered.last(), Some(&marked(at(1), 7)));
    let told = rig.local.remembered.len();
    rig.obey(LONG);
    assert_eq!(rig.local.remembered.len(), told, "nothing is new");
    rig.write(3);
    rig.head_there = Head(8);
    rig.obey(LONG);
    assert_eq!(rig.local.remembered.last(), Some(&marked(at(1), 8)));
    rig.head_there = Head(6);
    rig.obey(LONG);
    assert_eq!(rig.local.remembered.last(), Some(&marked(at(1), 8)));
    rig.pass(LONG);
    assert_eq!(rig.in_sync(), Positions::first(1), "it is silent");
    assert_eq!(rig.local.remembered.last(), Some(&Heads::default()));
}

/// Members hear of all in sync, the owner too.
#[test]
fn an_owner_says_how_far_copies_in_sync_have_come() {
    let mut rig = pair(0, 7);
    rig.obey(LONG);
    rig.write(3);
    rig.obey(LONG);
    rig.pass(TICK * 8);
    let asks = rig.said.iter().filter_map(|said| match said.message {
        Message::GrantAsk { heads, .. } => Some(heads),
        _ => None,
    });
    let heads = asks.last().expect("it asks");
    assert_eq!(heads.of(at(1), member(1).replica), Head(7));
    assert_eq!(heads.of(at(0), member(0).replica), Head(rig.local.head));
    assert!(rig.local.head > 5, "a write counts");
}

/// An owner of three copies, and what it remembers.
fn three(heads: Heads) -> Rig {
    let mut rig = Rig::begin(Plan {
        in_sync: Positions::first(3),
        copies: 3,
        heads,
        ..Plan::default()
    });
    rig.head_there = Head(5);
    rig.pass(LONG);
    rig
}

/// A copy answers JOIN, claims 5, and says this of the others.
fn joins(rig: &mut Rig, from: Position, heads: Heads) {
    let is_it = |said: &&Envelope| {
        let is_join = matches!(said.message, Message::Join(_));
        is_join && rig.sessions[&said.session].0 == from
    };
    let said = rig.said.iter().rfind(is_it).expect("JOIN").clone();
    let joined = Message::Joined(Attach {
        head: Head(5),
        heads,
        ..attach_of(from)
    });
    rig.hear_in(&said, joined);
}

/// What one copy remembers of another counts before hosts are served, whichever of them joins first.
#[test]
fn a_third_copy_says_what_another_had() {
    let mut rig = three(Heads::default());
    joins(&mut rig, at(1), Heads::default());
    joins(&mut rig, at(2), marked(at(1), 10));
    assert_eq!(rig.alarms, [Alarm::Lags(at(1))]);
    while !rig.replica.is_serving() {
        rig.obey(TICK);
    }
    assert_eq!(rig.in_sync(), Positions::first(3).without(at(1)));
}

/// It would believe less, and keep that.
#[test]
fn a_copy_that_joins_is_told_no_less_than_it_knows() {
    let mut rig = three(marked(at(2), 4));
    joins(&mut rig, at(1), marked(at(2), 9));
    let told = rig.said.iter().filter_map(|said| match said.message {
        Message::GrantAsk { heads, .. } => Some(heads.of(at(2), member(2).replica)),
        _ => None,
    });
    let told: Vec<Head> = told.filter(|&head| head != Head(0)).collect();
    assert_eq!(told, [Head(9)]);
}

#[test]
fn what_is_remembered_of_a_place_is_not_heard_of_another_copy_there() {
    let mut rig = three(marked(at(1), 7));
    let mut marks = [Mark::default(); 3];
    marks[1] = Mark {
        replica: ReplicaUuid([9; 16]),
        head: Head(99),
    };
    joins(&mut rig, at(2), Heads::new(marks));
    joins(&mut rig, at(1), Heads::default());
    assert_eq!(rig.alarms, [Alarm::Lags(at(1))]);
}

fn refuses() -> Message {
    Message::Refuse {
        promised: Epoch(1),
        reason: Refusal::Lags,
    }
}

/// A refusal that comes late, of a copy that is being left out or has been: it may not own, and another that stops for it
/// leaves none that serves.
#[test]
fn a_refusal_of_a_copy_that_does_not_count_ends_no_owner() {
    let mut rig = pair(0, 0);
    rig.pass(LONG);
    while !rig.replica.is_serving() {
        rig.pass(TICK);
    }
    assert_eq!(rig.in_sync(), Positions::first(1));
    let join =
        |said: &&Envelope| matches!(said.message, Message::Join(join) if !join.absent.has(at(1)));
    let join = rig.said.iter().rfind(join).expect("of before").clone();
    rig.hear_in(&join, refuses());
    rig.hear(refuses());
    rig.obey(LONG);
    assert!(rig.replica.is_serving() && !rig.replica.lags());
    assert_eq!(rig.in_sync(), Positions::first(2));
    // The quorum takes no changes, so the removal is under way.
    let mut rig = pair(0, 0);
    rig.pass(LONG);
    (rig.is_full, rig.swaps) = (true, 0);
    while rig.swaps == 0 {
        rig.pass(TICK);
    }
    rig.hear(refuses());
    assert!(rig.replica.owns().is_some() && !rig.replica.lags());
    rig.is_full = false;
    rig.pass(LONG);
    assert!(rig.replica.is_serving());
}

/// What the only copy in sync lacks, no other can give it.
#[test]
fn a_copy_that_lags_owns_if_it_is_the_only_one_in_sync() {
    let mut rig = pair(0, 0);
    rig.pass(LONG);
    rig.hear(refuses());
    rig.pass(LONG);
    assert_eq!(rig.replica.owns(), None);
    let mut key = rig.key();
    key.in_sync = Positions::first(1);
    rig.quorum.put(VOLUME, key.encode());
    rig.pass(LONG);
    assert!(rig.replica.is_serving() && !rig.replica.lags());
    rig.obey(LONG);
    assert_eq!(rig.in_sync(), Positions::first(2));
}

/// Until then its pool stays one that an older program takes.
#[test]
fn counts_are_given_to_the_store_when_all_have_agreed_on_that() {
    let mut rig = Rig::begin(Plan {
        in_sync: Positions::first(2),
        is_agreed: false,
        ..Plan::default()
    });
    rig.head_there = Head(7);
    rig.obey(LONG);
    rig.pass(TICK * 8);
    assert!(
        rig.local.remembered.is_empty(),
        "{:?}",
        rig.local.remembered
    );
    let is_told = |said: &Envelope| matches!(said.message, Message::GrantAsk { heads, .. } if heads.marks()[1].head == Head(7));
    assert!(rig.said.iter().any(is_told), "it is known nevertheless");
    rig.replica.keep_heads();
    rig.obey(TICK);
    assert_eq!(rig.local.remembered, [marked(at(1), 7)]);
    // A pool that has some is none for an older program.
    let mut rig = Rig::begin(Plan {
        in_sync: Positions::first(2),
        is_agreed: false,
        heads: marked(at(1), 6),
        ..Plan::default()
    });
    rig.head_there = Head(7);
    rig.obey(LONG);
    assert_eq!(rig.local.remembered, [marked(at(1), 7)]);
}

/// What was forgotten when a copy left does not come back by one that has not heard of that.
#[test]
fn what_others_remember_of_a_copy_that_has_left_is_not_heard() {
    let imported = Imported {
        heads: marked(at(1), 9),
        ..Imported::default()
    };
    let mark = imported.heads.marks()[1];
    let known = |book: &HeadBook| book.of(at(1), mark.replica);
    let mut book = HeadBook::new(at(0), &imported);
    book.settle(Positions::NONE.with(at(1)));
    book.hear(at(1), mark);
    book.believe(&imported.heads);
    assert_eq!(known(&book), Head(0), "it is absent");
    book.settle(Positions::NONE.with(at(0)));
    book.hear(at(1), mark);
    assert_eq!(known(&book), Head(0), "this one is");
    book.settle(Positions::NONE);
    book.hear(at(1), mark);
    assert_eq!(known(&book), Head(9));
    book.believe(&Heads::default());
    assert_eq!(known(&book), Head(9), "nothing is said");
    book.believe(&marked(at(1), 4));
    assert_eq!(known(&book), Head(4), "it was made equal meanwhile");
}

/// A third copy has missed that one left and was made equal: it does not know how far that one counts now.
#[test]
fn a_copy_that_was_added_is_judged_by_no_memory_of_before() {
    let mut rig = Rig::begin(Plan {
        in_sync: Positions::first(3).without(at(1)),
        copies: 3,
        ..Plan::default()
    });
    rig.head_there = Head(5);
    rig.obey(LONG);
    assert_eq!(rig.in_sync(), Positions::first(3), "it was made equal");
    rig.heads_there = marked(at(1), 10);
    rig.handle(Event::PeerGone { peer: at(2) });
    rig.obey(LONG);
    assert_eq!(rig.in_sync(), Positions::first(3));
    assert!(rig.alarms.is_empty(), "{:?}", rig.alarms);
    rig.pass(TICK * 8);
    let asks = rig.said.iter().filter_map(|said| match said.message {
        Message::GrantAsk { heads, .. } => Some(heads.of(at(1), member(1).replica)),
        _ => None,
    });
    assert_eq!(asks.last(), Some(Head(5)), "and that one is told");
}

/// Before it has said what it knows, a member is told nothing that it would believe.
#[test]
fn only_who_has_joined_is_told_how_far_others_have_come() {
    let mut rig = pair(10, 10);
    rig.pass(LONG);
    let told = |rig: &Rig| {
        let says = |said: &Envelope| matches!(said.message, Message::GrantAsk { heads, .. } if heads != Heads::default());
        rig.said.iter().any(says)
    };
    assert!(!told(&rig));
    rig.obey(TICK);
    rig.pass(TICK * 8);
    assert!(told(&rig));
}

/// Another copy may have taken an epoch in between, and have nothing to do with it.
#[test]
fn the_owner_that_was_denied_is_left_out_and_not_the_one_after_it() {
    let mut rig = Rig::begin(Plan {
        in_sync: Positions::first(3),
        copies: 3,
        heads: marked(at(1), 10),
        ..Plan::default()
    });
    joined_by(&mut rig, 9, Positions::NONE).expect("an answer");
    let mut key = rig.key();
    key.epoch = Epoch(3);
    key.owner.node = member(2).node;
    rig.quorum.put(VOLUME, key.encode());
    while rig.key().owner.node != member(0).node {
        rig.pass(TICK);
    }
    assert_eq!(rig.in_sync(), Positions::first(3).without(at(1)));
}

/// While the quorum takes no changes, one that lags begins many sessions.
#[test]
fn that_a_copy_lags_is_said_once() {
    let mut rig = pair(10, 9);
    rig.pass(LONG);
    rig.is_full = true;
    rig.obey(LONG);
    assert_eq!(rig.alarms, [Alarm::Lags(at(1))]);
}

/// While its removal is not made it is asked to join again and again.
#[test]
fn a_copy_that_lags_says_so_once() {
    let mut rig = pair(0, 0);
    rig.pass(LONG);
    rig.hear(refuses());
    rig.pass(LONG);
    let said = joined_by(&mut rig, 0, Positions::NONE);
    let is_refused = matches!(
        said,
        Some(Message::Refuse {
            reason: Refusal::OldImage,
            ..
        })
    );
    assert!(is_refused, "{said:?}");
    assert_eq!(rig.alarms, [Alarm::Lags(at(0))]);
}

/// Its owner has seen who was made equal, and a member may have missed it.
#[test]
fn a_member_believes_its_owner() {
    let mut rig = Rig::begin(Plan {
        in_sync: Positions::first(3),
        copies: 3,
        heads: marked(at(2), 10),
        ..Plan::default()
    });
    joined_by(&mut rig, 0, Positions::NONE);
    rig.pass(TICK);
    let ask = Envelope {
        volume: VOLUME,
        shard: ShardId(0),
        epoch: Epoch(2),
        session: SessionId(1),
        number: 1,
        message: Message::GrantAsk {
            nonce: Nonce(1),
            heads: marked(at(2), 4),
        },
    };
    rig.handle(Event::Received {
        from: at(1),
        envelope: ask,
    });
    assert_eq!(rig.local.remembered.last(), Some(&marked(at(2), 4)));
}
