//! What is interrupted on its way: leftovers, keys of nothing, copies without an order to start.

use ashlar_block::{ErrorKind as IoErrorKind, IoError};
use ashlar_store::Managed;

use super::super::convert::{make_first, wanted};
use super::super::make::Seat;
use super::super::orders::Order;
use super::super::waiting::NO_KEY;
use super::*;
use crate::manager::PoolManager;
use crate::manager::serve::nqn;
use crate::manager::volumes::plan_of;
use crate::model::{DeleteVolume, ReplaceState, VolumeState};

const HOST: &str = "nqn.2014-08.org.test:host";

fn name() -> VolumeName {
    VolumeName::new("tank", "db").expect("a name")
}

fn destroy() -> DeleteVolume {
    DeleteVolume {
        destroy_data: true,
        ..DeleteVolume::default()
    }
}

fn two() -> ReplicateVolume {
    ReplicateVolume {
        replicas: 2,
        nodes: vec!["n1".into(), "n2".into()],
    }
}

impl Nodes {
    fn manager(&self, node: usize) -> &PoolManager {
        &self.rooms[node].manager
    }

    /// Volume tank/db of the first node alone, and the copies that it is to have on two.
    fn plain(&self) -> [NewCopy; 2] {
        let request = CreateVolume::new(&name(), SIZE, LayoutSpec::Mirror { copies: 2 });
        let made = self.manager(0).create_volume(request).expect("made");
        let asked = wanted(&name(), &made);
        let copies = NewCopy::of(&asked, made.uuid, &[NodeId(1), NodeId(2)]);
        copies.expect("two").try_into().expect("two")
    }

    /// As `volume replicate` goes as far as this, and its node ends; the other has restarted.
    fn interrupted(&self, copies: &[NewCopy; 2], with_key: bool) {
        self.manager(1).make_copy(&copies[1]).expect("made");
        if with_key {
            let key = first_key(copies, 1).expect("a key");
            let replication = self.manager(0).replication().expect("in a cluster");
            let put = replication.put_first_key(copies[0].volume(), &key);
            put.expect("put");
        }
        let drives = self.export(1);
        self.import(1, drives);
    }

    fn has_key(&self, volume: uuid::Uuid) -> bool {
        let replication = self.manager(0).replication().expect("in a cluster");
        replication.read_key(volume).expect("read").is_some()
    }

    fn is_there(&self, node: usize) -> bool {
        let found = self.manager(node).volume(&name());
        found.is_ok_and(|found| found.state != VolumeState::Deleting)
    }
}

#[test]
fn a_leftover_of_an_interrupted_conversion_is_deleted_alone() {
    for with_key in [false, true] {
        let nodes = Nodes::new(2);
        let copies = nodes.plain();
        nodes.interrupted(&copies, with_key);
        let volume = copies[0].volume();
        let replication = nodes.manager(0).replication().expect("in a cluster");
        if with_key {
            replication.converting().insert(volume);
            let deleted = nodes.manager(1).delete_volume(&name(), destroy());
            let kind = deleted.expect_err("it goes on").kind;
            assert!(kind == ErrorKind::Conflict && nodes.has_key(volume));
            replication.converting().remove(&volume);
        }
        let deleted = nodes.manager(1).delete_volume(&name(), destroy());
        deleted.unwrap_or_else(|error| panic!("with a key {with_key}: {error}"));
        assert!(nodes.is_there(0), "with a key {with_key}: the volume stays");
        assert!(!nodes.is_there(1) && !nodes.has_key(volume));
    }
}

/// Its maker ended before the volume had a key: what is left says so, and goes alone.
#[test]
fn a_copy_of_a_volume_without_a_key_says_how_it_is_deleted() {
    let nodes = Nodes::new(2);
    let copies = nodes.plain();
    nodes.manager(1).make_copy(&copies[1]).expect("made");
    let is_told = |node: usize| {
        let view = nodes.manager(node).cluster_view().expect("in a cluster");
        let advice = view
            .volumes
            .first()
            .map(|one| one.replication.advice.clone());
        assert_eq!(advice, Some(Some(NO_KEY.to_owned())), "{view:?}");
    };
    nodes.manager(1).take_up_waiting();
    let status = nodes.look(1, &name());
    assert_eq!(
        (status.state, status.reason.as_deref()),
        (VolumeState::Failed, Some(NO_KEY))
    );
    is_told(1);
    // Its node starts anew, and takes it for a copy like others.
    let drives = nodes.export(1);
    nodes.import(1, drives);
    let status = nodes.look(1, &name());
    let advice = status.replication.and_then(|known| known.advice);
    assert_eq!(advice.as_deref(), Some(NO_KEY));
    is_told(1);
    let deleted = nodes.manager(1).delete_volume(&name(), destroy());
    deleted.expect("deleted");
    assert!(nodes.is_there(0) && !nodes.is_there(1));
    let view = nodes.manager(1).cluster_view().expect("in a cluster");
    assert!(view.volumes.is_empty());
}

#[test]
fn an_order_deletes_the_copy_that_it_names_and_nothing_else() {
    let nodes = Nodes::new(2);
    let [ours, theirs] = nodes.plain();
    let volume = ours.volume();
    let kind = |node: usize, order| {
        let done = nodes.manager(node).obey(NodeId(2), order);
        done.map_err(|error| error.kind).err()
    };
    let any = Order::DropCopy {
        volume,
        replica: None,
        only_unused: false,
    };
    assert_eq!(kind(0, any), Some(ErrorKind::Conflict), "it is no copy");
    nodes.manager(1).make_copy(&theirs).expect("made");
    let other = ours.drop_order();
    assert_eq!(kind(1, other), Some(ErrorKind::Conflict), "another copy");
    assert!(nodes.is_there(0) && nodes.is_there(1));
    // A host that has come since the node was asked.
    nodes.manager(1).pretend_use(volume, Some(HOST));
    let unused = Order::DropCopy {
        volume,
        replica: None,
        only_unused: true,
    };
    assert_eq!(kind(1, unused), Some(ErrorKind::Refused), "a host uses it");
    assert!(nodes.is_there(1));
    // An order without a name that comes late, when another copy has the place.
    let key = first_key(&[ours, theirs.clone()], 1).expect("a key");
    let replication = nodes.manager(0).replication().expect("in a cluster");
    replication.put_first_key(volume, &key).expect("put");
    let late = Order::DropCopy {
        volume,
        replica: None,
        only_unused: false,
    };
    assert_eq!(kind(1, late), Some(ErrorKind::Conflict), "it has a place");
    assert_eq!(kind(1, theirs.drop_order()), None);
}

/// Wherever it was interrupted, the same order goes on.
#[test]
fn an_interrupted_conversion_goes_on() {
    for step in 0..3 {
        let nodes = Nodes::new(2);
        let copies = nodes.plain();
        match step {
            0 => half_made(nodes.manager(1), &copies[1]),
            _ => nodes.interrupted(&copies, step == 2),
        }
        let replicated = nodes.manager(0).replicate_volume(&name(), two());
        replicated.unwrap_or_else(|error| panic!("step {step}: {error}"));
        nodes.await_all(&name(), 2);
    }
}

#[test]
fn a_volume_that_became_a_copy_as_its_node_ended_fills_the_other() {
    let nodes = Nodes::new(2);
    let copies = nodes.plain();
    nodes.interrupted(&copies, true);
    let manager = nodes.manager(0);
    let pools = manager.lock();
    let Some(Kept::Live(pool)) = pools.get("tank") else {
        panic!("it is in service");
    };
    let number = pool.link.view().expect("a view").status.volumes[0].number;
    let remembered = manager.remember_copy(pool.id, copies[0].volume(), &copies[0].members);
    remembered.expect("remembered");
    make_first(&pool.link, number, &copies[0]).expect("made");
    drop(pools);
    let drives = nodes.export(0);
    nodes.import(0, drives);
    nodes.await_all(&name(), 2);
}

/// Copies begin unreserved: a host that is kept out would be let in.
#[test]
fn a_reserved_volume_is_given_no_copies() {
    let nodes = Nodes::new(2);
    let copies = nodes.plain();
    let volume = copies[0].volume();
    let drives = nodes.export(0);
    let file = nodes.rooms[0].path("reservations").join(volume.to_string());
    std::fs::write(&file, crate::manager::tests::reserved()).expect("written");
    nodes.import(0, drives);
    let refused = nodes.manager(0).replicate_volume(&name(), two());
    let error = refused.expect_err("a host is registered");
    assert!(error.message.contains("1 hosts are registered"), "{error}");
    let refused = nodes.manager(0).become_copy(&name(), volume, &copies[0]);
    let not_made = refused.expect_err("as above");
    assert!(!not_made.may_come && nodes.is_there(0));
    assert_eq!(nodes.look(0, &name()).state, VolumeState::Online);
}

/// The quorum is silent when the volume is a copy already: its key stays.
#[test]
fn a_copy_that_cannot_be_served_at_once_keeps_its_key() {
    let nodes = Nodes::new(2);
    let copies = nodes.plain();
    let (volume, manager) = (copies[0].volume(), nodes.manager(0));
    nodes.interrupted(&copies, true);
    nodes.quorum.set_away(true);
    let mut not_made = manager
        .become_copy(&name(), volume, &copies[0])
        .expect_err("no quorum");
    assert!(not_made.may_come, "{}", not_made.why);
    assert!(
        not_made.why.message.contains("by itself"),
        "{}",
        not_made.why
    );
    nodes.quorum.set_away(false);
    // What the pool says counts, whatever the error is taken for.
    not_made.may_come = false;
    let key = first_key(&copies, 1).expect("a key");
    let cleaned = manager.clean_up(&not_made, &copies[1..], &key);
    cleaned.expect("in a cluster");
    nodes.await_all(&name(), 2);
}

/// One that waits for the quorum counts: it does not go alone.
#[test]
fn a_volume_is_deleted_whole_also_where_its_copy_is_not_in_service() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.look(0, &name).uuid;
    let drives = nodes.export(1);
    nodes.quorum.set_away(true);
    nodes.import(1, drives);
    let deleted = nodes.manager(1).delete_volume(&name, destroy());
    deleted.expect_err("the quorum is away");
    assert!(nodes.is_there(0) && nodes.is_there(1));
    nodes.quorum.set_away(false);
    let deleted = nodes.manager(1).delete_volume(&name, destroy());
    deleted.expect("deleted");
    assert!(!nodes.is_there(0) && !nodes.is_there(1) && !nodes.has_key(volume));
}

/// Its pool has not said so in time, and does it after all.
#[test]
fn a_volume_that_becomes_a_copy_late_comes_into_service_as_one() {
    let nodes = Nodes::new(2);
    let copies = nodes.plain();
    let volume = copies[0].volume();
    nodes.interrupted(&copies, true);
    let manager = nodes.manager(0);
    let mut pools = manager.lock();
    let Some(Kept::Live(pool)) = pools.get_mut("tank") else {
        panic!("it is in service");
    };
    let view = pool.link.view().expect("a view");
    let of_copy = CopyVolume::of(&view.status.volumes[0], "tank");
    let granules = view.status.volumes[0].granules;
    let remembered = manager.remember_copy(pool.id, volume, &copies[0].members);
    remembered.expect("remembered");
    let served = manager.target.remove(&nqn(volume));
    served.expect("served until then");
    pool.volumes.remove(&of_copy.number);
    let late = IoError::new(IoErrorKind::Timeout, "no answer");
    let said = manager.not_made(pool, &of_copy, granules, late);
    assert!(said.may_come, "{}", said.why);
    assert!(said.why.message.contains("comes by itself"), "{}", said.why);
    make_first(&pool.link, of_copy.number, &copies[0]).expect("made");
    drop(pools);
    nodes.await_all(&name(), 2);
    assert!(manager.is_copy(volume) && nodes.has_key(volume));
}

/// A volume that was to become a copy, and has not.
fn half_made(manager: &PoolManager, copy: &NewCopy) {
    let pools = manager.lock();
    let Some(Kept::Live(pool)) = pools.get("tank") else {
        panic!("it is in service");
    };
    let view = pool.link.view().expect("a view");
    let remembered = manager.remember_copy(pool.id, copy.volume(), &copy.members);
    remembered.expect("remembered");
    let plan = plan_of(&copy.wanted, copy.volume(), &view).expect("a plan");
    let made = pool.link.manage(Manage::CreateVolume(plan)).expect("made");
    assert!(matches!(made, Managed::Volume(_)));
}

/// A volume of the same identity that is no leftover is not touched.
#[test]
fn a_copy_takes_no_place_of_what_holds_or_counts() {
    let nodes = Nodes::new(2);
    let copy = nodes.plain()[0].clone();
    let made = nodes.manager(0).make_copy(&copy).expect_err("it is there");
    assert_eq!(made.kind, ErrorKind::Conflict);
    nodes
        .manager(0)
        .delete_volume(&name(), destroy())
        .expect("deleted");
    let counts = nodes.volume(2);
    let volume = nodes.look(1, &counts).uuid;
    let again = NewCopy::of(&copy.wanted, volume, &[NodeId(1), NodeId(2)]).expect("two");
    let made = nodes
        .manager(1)
        .make_copy(&again[1])
        .expect_err("it counts");
    assert_eq!(made.kind, ErrorKind::Conflict);
    nodes.await_all(&counts, 2);
}

#[test]
fn nothing_is_deleted_before_all_nodes_have_said_that_it_may_be() {
    let nodes = Nodes::new(3);
    let name = nodes.volume(3);
    let volume = nodes.look(0, &name).uuid;
    let refused = |why: &str| {
        let error = nodes.manager(0).delete_volume(&name, destroy());
        let error = error.expect_err(why);
        assert!((0..2).all(|node| nodes.is_there(node)), "{why}: {error}");
        assert!(nodes.has_key(volume), "{why}");
        error
    };
    nodes.manager(2).pretend_use(volume, Some(HOST));
    let error = refused("a host of another node");
    assert!(
        error.kind == ErrorKind::Refused && error.message.contains(HOST),
        "{error}"
    );
    nodes.manager(2).pretend_use(volume, None);
    // Its pool waits for a drive.
    let drives = nodes.export(2);
    let waits = Kept::Failed {
        id: uuid::Uuid::nil(),
        drives: drives.clone(),
        why: "it waits for a drive".into(),
        ending: Ending::ByItself,
    };
    nodes.manager(2).lock().insert("tank".into(), waits);
    let error = refused("a pool that is not in service");
    assert!(
        error.kind == ErrorKind::Environment && error.message.contains("waits"),
        "{error}"
    );
    nodes.manager(2).lock().remove("tank");
    nodes.import(2, drives);
    let deleted = nodes.manager(0).delete_volume(&name, destroy());
    deleted.expect("deleted");
    assert!((0..3).all(|node| !nodes.is_there(node)) && !nodes.has_key(volume));
}

/// The other copies go first, then the key, then the copy here: there is a volume to be deleted until nothing else is left.
#[test]
fn an_interrupted_deletion_goes_on() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.look(0, &name).uuid;
    let any = super::super::delete::Doomed::default();
    nodes.manager(1).drop_copy(volume, any).expect("deleted");
    nodes.quorum.set_loses_answers(true);
    let deleted = nodes.manager(0).delete_volume(&name, destroy());
    assert_eq!(deleted.expect_err("lost").kind, ErrorKind::Environment);
    assert!(nodes.is_there(0));
    nodes.quorum.set_loses_answers(false);
    assert!(!nodes.has_key(volume));
    let deleted = nodes.manager(0).delete_volume(&name, destroy());
    deleted.expect("deleted");
    assert!(!nodes.is_there(0));
}

#[test]
fn a_deletion_that_stops_halfway_says_which_copies_are_gone() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    nodes.quorum.set_loses_answers(true);
    let deleted = nodes.manager(0).delete_volume(&name, destroy());
    let error = deleted.expect_err("lost");
    let told = error.message.contains("The copies on n2 are deleted");
    assert!(told && nodes.is_there(0), "{error}");
}

#[test]
fn what_nothing_came_of_is_unmade() {
    let nodes = Nodes::new(2);
    let copies = nodes.plain();
    nodes.interrupted(&copies, true);
    let key = first_key(&copies, 1).expect("a key");
    let replication = nodes.manager(0).replication().expect("in a cluster");
    nodes.manager(0).unmake(replication, &copies, &key);
    assert!(nodes.is_there(0) && !nodes.is_there(1) && !nodes.has_key(copies[0].volume()));
}

#[test]
fn a_key_of_a_volume_that_is_nowhere_goes_with_its_nodes() {
    let nodes = Nodes::new(2);
    let copies = nodes.plain();
    let volume = copies[0].volume();
    let put = || {
        let replication = nodes.manager(0).replication().expect("in a cluster");
        let key = first_key(&copies, 1).expect("a key");
        replication.put_first_key(volume, &key).expect("put");
    };
    let replace = || {
        let request = ReplaceNode {
            node: "n2".into(),
            with: "n1".into(),
        };
        let reply = nodes.manager(0).replace_node(request).expect("asked");
        reply.volumes.len()
    };
    put();
    // The volume is one of its node alone.
    assert_eq!(replace(), 0);
    assert!(!nodes.has_key(volume) && nodes.is_there(0));
    nodes
        .manager(0)
        .delete_volume(&name(), destroy())
        .expect("deleted");
    put();
    nodes.manager(1).make_copy(&copies[1]).expect("made");
    assert_eq!(replace(), 1, "a copy is there");
    assert!(nodes.has_key(volume));
    // A node that is forgotten is not asked about a key that was never used.
    let forgotten = |gone| {
        let swept = nodes.manager(0).drop_orphaned_keys_of(NodeId(2), gone);
        swept.expect("asked")
    };
    assert!(!forgotten(None) && forgotten(Some(NodeId(2))));
    assert!(!nodes.has_key(volume));
}

#[test]
fn a_copy_whose_order_to_start_was_lost_is_started() {
    let nodes = Nodes::new(3);
    let name = nodes.volume(2);
    let status = nodes.look(0, &name);
    let replication = nodes.manager(0).replication().expect("in a cluster");
    let newest = replication.read_newest(status.uuid).expect("read");
    let place = newest.key.members.free().expect("a place");
    let member = ashlar_replica::MemberId {
        node: NodeId(3),
        replica: ReplicaUuid::NEW,
    };
    let members = newest.key.members.with(place, member);
    let asked = wanted(&name, &status);
    let seats = members.map(|member| member.node);
    let node = NodeId(3);
    let seat = Seat { place, node };
    let copy = NewCopy::at(&asked, status.uuid, seat, seats);
    nodes.manager(2).make_copy(&copy).expect("made");
    // Without a place it is none of the volume's; and who may connect changes meanwhile.
    nodes.manager(2).take_up_waiting();
    assert!(!nodes.manager(2).is_copy(status.uuid));
    let change = SetHosts {
        allow_hosts: vec![HOST.to_owned()],
        ..SetHosts::default()
    };
    let changed = nodes
        .manager(0)
        .change_hosts(&name, HostChange::Set(change));
    changed.expect("changed");
    let reseated = nodes.manager(0).reseat(status.uuid, members, |_| Ok(()));
    reseated.expect("it has its place");
    nodes.await_all(&name, 3);
    assert_eq!(nodes.look(2, &name).allow_hosts, [HOST]);
}

#[test]
fn a_copy_is_taken_away_for_another_when_that_was_made() {
    let nodes = Nodes::new(4);
    let name = nodes.volume(3);
    let volume = nodes.look(0, &name).uuid;
    let replace = |old: &str| {
        let request = ReplaceNode {
            node: old.into(),
            with: "n4".into(),
        };
        nodes
            .manager(0)
            .replace_node(request)
            .expect("asked")
            .volumes
    };
    let drives = nodes.export(3);
    let reply = replace("n2");
    assert_eq!(reply[0].state, ReplaceState::Refused);
    nodes.await_all(&name, 3);
    nodes.import(3, drives);
    // The owner's own copy goes: it has the new one's hosts from before.
    until("it is replaced", || {
        let states = replace("n1");
        let states: Vec<ReplaceState> = states.iter().map(|one| one.state).collect();
        assert!(!states.contains(&ReplaceState::Refused));
        !states.contains(&ReplaceState::Copying)
    });
    let replication = nodes.manager(1).replication().expect("in a cluster");
    let key = replication.read_newest(volume).expect("read").key;
    assert!(key.position(NodeId(1)).is_none() && key.position(NodeId(4)).is_some());
    until("it is in sync", || {
        let newest = replication.read_newest(volume).expect("read");
        newest.key.in_sync.count() == 3
    });
}

#[test]
fn a_copy_is_refused_by_a_pool_without_room_for_what_the_volume_holds() {
    let nodes = Nodes::new(2);
    let copy = nodes.plain()[1].clone();
    let made = nodes.manager(1).make_copy(&copy.clone().holding(1 << 40));
    assert_eq!(made.expect_err("no room").kind, ErrorKind::Environment);
    assert!(!nodes.is_there(1));
    nodes
        .manager(1)
        .make_copy(&copy.holding(SIZE))
        .expect("made");
}
