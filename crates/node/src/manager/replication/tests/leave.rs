//! The copies of a node that ends, or exports its pool.

use std::sync::atomic::Ordering;

use super::*;

#[test]
fn copies_that_end_leave_unless_their_owner_ends_too_and_come_back() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.look(0, &name).uuid;
    let [owner, member] = [0, 1].map(|node| &nodes.rooms[node].manager);
    let in_sync = || {
        let replication = owner.replication().expect("in a cluster");
        let key = replication.read_key(volume).expect("read");
        key.expect("a key").in_sync
    };
    owner.stopping.store(true, Ordering::Release);
    member.leave_owners();
    owner.leave_owners();
    assert_eq!(in_sync(), Positions::first(2));
    owner.stopping.store(false, Ordering::Release);
    member.leave_owners();
    assert_eq!(in_sync(), Positions::first(1));
    let copy = member.copies().remove(0);
    let look = |reply| ReplicaMail::Look { reply };
    let view = copy.pool.ask_replica(copy.number, look);
    assert!(view.expect("asked").is_none(), "it is out of service");
    let drives = nodes.export(1);
    nodes.import(1, drives);
    nodes.await_all(&name, 2);
    nodes.export(1);
    assert_eq!(in_sync(), Positions::first(1));
}
