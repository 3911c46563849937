//! A quorum that comes from a backup says less than it has said, and that counts for nothing.

use super::*;
use crate::ids::Revision;

/// In sync were both, and that is in the backup; then the other copy was left out.
fn alone_after_a_backup() -> (Rig, Held) {
    let mut rig = Rig::new();
    rig.obey(LONG);
    let both = Positions::first(2);
    assert_eq!((rig.in_sync(), rig.told), (both, Positions::NONE), "added");
    let backup = rig.stored();
    rig.pass(LONG);
    assert_eq!(rig.in_sync(), Positions::first(1), "silent, and left out");
    rig.told = Positions::NONE.with(at(1));
    (rig, backup)
}

/// A key that names a copy which has left since must not bring that copy back without what it has missed.
#[test]
fn an_older_key_from_a_backup_counts_for_nothing() {
    let (mut rig, backup) = alone_after_a_backup();
    rig.quorum.restore(VOLUME, backup);
    rig.obey(LONG);
    assert_eq!(rig.told, Positions::NONE.with(at(1)), "it stays absent");
    assert!(rig.replica.is_serving());
    assert!(
        matches!(rig.alarms[..], [Alarm::StoreWentBack { .. }]),
        "told once: {:?}",
        rig.alarms
    );
}

/// The revision of a store that was written to since it was restored says nothing.
#[test]
fn a_key_from_a_backup_adds_no_copy_that_the_owner_has_not_added() {
    let (mut rig, mut backup) = alone_after_a_backup();
    backup.revision.0 += 100;
    rig.quorum.restore(VOLUME, backup);
    let newcomer = MemberId {
        replica: ReplicaUuid::NEW,
        ..member(2)
    };
    let members = Members::first([member(0), member(1), newcomer]).expect("three");
    rig.handle(Event::Reseat(Wish {
        members,
        in_sync: Positions::first(1),
        until: rig.now + LONG,
    }));
    rig.pass(LONG);
    assert!(rig.replica.is_serving());
    assert_eq!(rig.alarms, [Alarm::StoreAdds(Positions::NONE.with(at(1)))]);
    let tells =
        |said: &Envelope| matches!(said.message, Message::Join(join) if !join.absent.has(at(1)));
    assert!(!rig.said.iter().any(tells), "it stays absent");
}

/// Who restores an etcd may have its revisions count on from higher ones than clients have seen.
#[test]
fn a_key_of_an_earlier_epoch_ends_no_owner_whatever_its_revision() {
    let mut rig = Rig::new();
    let mut backup = rig.stored();
    rig.obey(LONG);
    backup.revision.0 += 100;
    let mut key = Key::decode(&backup.value).expect("a key");
    key.epoch = Epoch(key.epoch.0 - 1);
    let known = rig.key().epoch;
    let stored = key.epoch;
    backup.value = key.encode();
    let newest = rig.stored();
    rig.quorum.restore(VOLUME, backup);
    rig.obey(LONG);
    rig.handle(Event::Move { to: at(1) });
    assert!(!rig.gives(LONG), "by such a key nothing is given away");
    assert!(rig.replica.is_serving());
    // One whose change is settled by what it says.
    rig.silent = Positions::NONE.with(at(1));
    rig.pass(LONG);
    assert!(rig.replica.is_serving());
    assert_eq!(rig.alarms, [Alarm::StoreIsEarlier { stored, known }]);
    rig.quorum.restore(
        VOLUME,
        Held {
            revision: Revision(newest.revision.0 + 200),
            ..newest
        },
    );
    rig.obey(LONG);
    assert!(rig.replica.is_serving(), "it is as it was");
}

/// By that key a copy that had left takes the next epoch, which is the owner's number.
#[test]
fn an_epoch_that_a_backup_hands_out_twice_ends_who_had_it_first() {
    let mut rig = Rig::new();
    rig.obey(LONG);
    let mut twice = rig.stored();
    let mut key = rig.key();
    key.owner.node = NodeId(9);
    twice.value = key.encode();
    twice.revision.0 += 100;
    rig.quorum.restore(VOLUME, twice);
    rig.obey(LONG);
    assert!(!rig.replica.is_serving());
}
