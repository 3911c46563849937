//! Nodes of one process over a quorum in memory.

mod drained;
mod grow;
mod heads;
mod leave;
mod life;
mod services;
mod shown;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use ashlar_cluster::{Cluster, ClusterConfig, Key, Memory, NodeConfig, QuorumConfig, Trust};
use ashlar_reactor::Opener;
use ashlar_replica::quorum::Question;
use ashlar_replica::{NodeId, Position, Positions, ReplicaUuid, Revision, Seats};
use ashlar_store::{Manage, ReplicaIdentity};

use super::make::{NewCopy, first_key};
use super::{CopyPlace, CopyVolume};
use crate::Control;
use crate::manager::tests::Room;
use crate::manager::{Ending, Kept};
use crate::model::{
    AddDrive, ControlError, CreatePool, CreateVolume, DrainNode, ErrorKind, ExportPool, HostChange,
    ImportPool, LayoutSpec, MoveVolume, ReplaceNode, ReplicaState, ReplicateVolume, RunAlone,
    SetHosts, SetWhenDegraded, VolumeName, VolumeStatus, WhenDegraded,
};
use crate::pool::{ReplicaMail, VolumeOpener};
use crate::replica::ReplicaView;

const SIZE: u64 = 8 << 20;

/// Nodes, each with a pool tank.
pub(super) struct Nodes {
    quorum: Memory,
    pub(super) rooms: Vec<Room>,
}

impl Nodes {
    pub(super) fn new(count: u32) -> Self {
        let quorum = Memory::default();
        // All at once: a port that is let go is given to the next that asks.
        let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let listeners: Vec<TcpListener> = listeners.collect();
        let address = |id: u32| {
            let listener = &listeners[id as usize - 1];
            listener.local_addr().expect("an address")
        };
        let node = |id: u32| NodeConfig {
            id: NodeId(id),
            name: format!("n{id}"),
            replication: address(id),
            portal: None,
        };
        let config = ClusterConfig {
            name: "test".into(),
            nodes: (1..=count).map(node).collect(),
            quorum: QuorumConfig::Memory(quorum.clone()),
            trust: Trust::Key(Key::new(&[1; 32]).expect("a key")),
            versions: ashlar_cluster::Versions::OURS,
        };
        drop(listeners);
        let rooms = config.nodes.iter().map(|node| {
            let cluster = Cluster::start(config.clone(), &node.name).expect("it starts");
            let room = Room::of(Some(cluster));
            room.tank(2);
            room
        });
        let rooms = rooms.collect();
        Self { quorum, rooms }
    }

    /// Volume tank/db with copies on the first nodes.
    pub(super) fn volume(&self, replicas: u8) -> VolumeName {
        self.volume_named("db", replicas)
    }

    fn volume_named(&self, name: &str, replicas: u8) -> VolumeName {
        let name = VolumeName::new("tank", name).expect("a name");
        let layout = LayoutSpec::Mirror { copies: 2 };
        let nodes = (1..=replicas).map(|id| format!("n{id}")).collect();
        let request = CreateVolume {
            replicas,
            nodes,
            ..CreateVolume::new(&name, SIZE, layout)
        };
        self.rooms[0].manager.create_volume(request).expect("made");
        assert_eq!(self.owner(&name), 0, "who is asked has it first");
        self.await_all(&name, replicas);
        name
    }

    /// A node's pool goes out of service. Its drives.
    pub(super) fn export(&self, node: usize) -> Vec<String> {
        let manager = &self.rooms[node].manager;
        let drives = manager.pool("tank").expect("there").drives;
        let exported = manager.export_pool("tank", ExportPool { force: true });
        exported.expect("exported");
        drives.into_iter().map(|drive| drive.spec).collect()
    }

    pub(super) fn import(&self, node: usize, drives: Vec<String>) {
        let request = ImportPool {
            drives,
            ..ImportPool::default()
        };
        let imported = self.rooms[node].manager.import_pool("tank", request);
        imported.expect("the pool itself is in service");
    }

    /// As if a copy had been made while this node was away: it does not know of the other's.
    fn forget(&self, node: usize, other: usize) -> CopyPlace {
        let place = self.rooms[node].manager.copies().remove(0);
        let replication = self.rooms[node].manager.replication();
        let newest = replication.expect("in a cluster").read_newest(place.volume);
        let other = Position::new(other).expect("a place");
        let mail = ReplicaMail::Seats {
            revision: Revision(u64::MAX),
            members: newest.expect("read").key.members.without(other),
            size: None,
        };
        place.pool.post_to_replica(place.number, mail);
        until("it knows of one other", || {
            let look = |reply| ReplicaMail::Look { reply };
            let view = place.pool.ask_replica(place.number, look).expect("asked");
            view.expect("a copy").members.count() == 2
        });
        place
    }

    pub(super) fn look(&self, node: usize, name: &VolumeName) -> VolumeStatus {
        self.rooms[node].manager.volume(name).expect("there")
    }

    fn owner(&self, name: &VolumeName) -> usize {
        let owner = || {
            let mut known = self.rooms.iter();
            let owner = known.find_map(|room| {
                let status = room.manager.volume(name).ok()?.replication?;
                status.owner
            })?;
            let number: usize = owner.strip_prefix('n')?.parse().ok()?;
            Some(number - 1)
        };
        let found = std::cell::Cell::new(None);
        until("a node serves it", || {
            found.set(owner());
            found.get().is_some()
        });
        found.get().expect("one does")
    }

    /// Waits until so many copies are in sync.
    fn await_all(&self, name: &VolumeName, replicas: u8) {
        until("all copies are in sync", || {
            let status = self.look(self.owner(name), name);
            let known = status.replication.map(|known| known.replicas);
            let known = known.unwrap_or_default();
            let in_sync = known.iter().filter(|one| one.state == ReplicaState::InSync);
            in_sync.count() == usize::from(replicas)
        });
    }
}

pub(super) fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_copy_whose_quorum_was_away_at_import_comes_into_service_when_it_answers() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.look(0, &name).uuid;
    let other = &nodes.rooms[1].manager;
    let drives = nodes.export(1);
    nodes.quorum.set_away(true);
    nodes.import(1, drives);
    assert!(!other.is_copy(volume));
    // The order to bring it into service is as good as an import.
    let waiting = || other.replication().expect("in a cluster").waiting();
    assert!(waiting().remove(&volume));
    other.start_copy(volume).expect_err("the quorum is away");
    assert!(waiting().contains(&volume));
    nodes.quorum.set_away(false);
    until("it is in service", || other.is_copy(volume));
    nodes.await_all(&name, 2);
}

/// No other node could take it over.
#[test]
fn a_volume_stays_where_it_is_while_the_quorum_is_away() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    nodes.quorum.set_away(true);
    let drain = || {
        let request = DrainNode {
            node: "n1".into(),
            drain: true,
        };
        nodes.rooms[0].manager.drain_node(&request).expect("heard")
    };
    let moved = || {
        let request = MoveVolume { to: "n2".into() };
        nodes.rooms[0].manager.move_volume(&name, request)
    };
    // It may take a while until it is noticed: nothing is given away even then.
    let error = moved().expect_err("no other could take it over");
    assert_eq!(error.kind, ErrorKind::Environment, "{error:?}");
    let manager = &nodes.rooms[0].manager;
    let quorum = || manager.cluster_view().expect("a cluster").quorum;
    until("it is noticed", || !quorum().reachable);
    let error = moved().expect_err("no other could take it over");
    assert!(
        error.message.contains("the quorum does not answer"),
        "{error:?}"
    );
    let kept = drain().kept;
    assert!(
        kept[0].reason.contains("the quorum does not answer"),
        "{kept:?}"
    );
    // Nor is it said that it goes, or waited for as the daemon ends.
    let volume = manager.one_volume(&name).expect("there").uuid;
    let place = Position::new(1).expect("a position");
    let error = manager.followed(volume, place).expect_err("nor for hosts");
    assert!(
        error.message.contains("the quorum does not answer"),
        "{error:?}"
    );
    let begun = Instant::now();
    for kept in manager.lock().values() {
        if let Kept::Live(pool) = kept {
            manager.hand_over(pool);
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(nodes.owner(&name), 0);
    nodes.quorum.set_away(false);
    until("it is noticed", || quorum().reachable);
    moved().expect("moved");
    assert_eq!(nodes.owner(&name), 1);
}

/// What the others lack is marked for all that the key names, though this node was told of fewer.
#[test]
fn a_copy_that_goes_on_alone_marks_all_others_of_the_key() {
    let nodes = Nodes::new(3);
    let name = nodes.volume(3);
    let drives = nodes.export(1);
    nodes.export(2);
    nodes.await_all(&name, 1);
    nodes.export(0);
    nodes.import(1, drives);
    let place = nodes.forget(1, 2);
    let alone = RunAlone {
        accept_data_loss: true,
        force: false,
    };
    let manager = &nodes.rooms[1].manager;
    manager
        .run_alone(&name, &alone)
        .expect("it is the only one");
    let look = |reply| ReplicaMail::Look { reply };
    let view = place.pool.ask_replica(place.number, look).expect("asked");
    let missing = view.expect("a copy").missing_bytes;
    let all = SIZE + 4096;
    assert_eq!((missing[0], missing[2]), (all, all));
}

/// The connection between two copies may be cut where the nodes are not.
#[test]
fn a_copy_goes_on_alone_while_another_serves_only_by_force() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let manager = &nodes.rooms[1].manager;
    let place = manager.copies().remove(0);
    let look = |reply| ReplicaMail::Look { reply };
    let seen = place.pool.ask_replica(place.number, look).expect("asked");
    let cut = ReplicaView {
        connected: Positions::NONE,
        ..seen.expect("a copy")
    };
    let replication = manager.replication().expect("in a cluster");
    let asked = || {
        let key = replication.read_newest(place.volume).expect("read").key;
        let none = replication.none_has_more(&place, &cut, &key);
        none.map_err(|error| (error.kind, error.message))
    };
    let drives = nodes.export(1);
    nodes.await_all(&name, 1);
    let (kind, why) = asked().expect_err("it is served");
    assert!(
        kind == ErrorKind::Conflict && why.contains("node n1 is there, and serves it"),
        "{why}"
    );
    // A pool that is lost on a node that lives.
    nodes.export(0);
    assert_eq!(asked(), Ok(()));
    nodes.import(1, drives);
    nodes.rooms[0]
        .manager
        .replication()
        .expect("in a cluster")
        .cluster
        .stop();
    assert_eq!(asked(), Ok(()), "a node that does not answer");
}

#[test]
fn hosts_lose_a_copy_that_the_node_which_is_asked_was_not_told_of() {
    let nodes = Nodes::new(3);
    let name = nodes.volume(3);
    nodes.forget(1, 2);
    let hosts = vec!["nqn.2014-08.org.test:host".to_owned()];
    let change = SetHosts {
        allow_hosts: hosts.clone(),
        ..SetHosts::default()
    };
    nodes.rooms[1]
        .manager
        .change_hosts(&name, HostChange::Set(change))
        .expect("changed");
    for node in 0..3 {
        assert_eq!(nodes.look(node, &name).allow_hosts, hosts, "node {node}");
    }
}

#[test]
fn what_a_volume_does_when_degraded_is_set_on_all_its_nodes() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let request = SetWhenDegraded {
        when_degraded: WhenDegraded::Stop,
    };
    let set = nodes.rooms[1].manager.set_when_degraded(&name, request);
    set.expect("set");
    let rules = [0, 1].map(|node| nodes.look(node, &name).when_degraded);
    assert_eq!(rules, [WhenDegraded::Stop; 2]);
}

/// As docs/cluster.md says it of a machine that comes back without its drives.
#[test]
fn a_copy_whose_drives_are_lost_is_given_up_and_made_anew() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    nodes.export(1);
    nodes.await_all(&name, 1);
    nodes.rooms[1].tank(2);
    for replicas in [1, 2] {
        let request = ReplicateVolume {
            replicas,
            nodes: Vec::new(),
        };
        let changed = nodes.rooms[0].manager.replicate_volume(&name, request);
        changed.unwrap_or_else(|error| panic!("{replicas}: {error}"));
    }
    nodes.await_all(&name, 2);
}

#[test]
fn a_copy_that_was_taken_away_can_be_given_again_at_once() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    for replicas in [1, 2, 1, 2] {
        let owner = nodes.owner(&name);
        let request = ReplicateVolume {
            replicas,
            nodes: Vec::new(),
        };
        let changed = nodes.rooms[owner].manager.replicate_volume(&name, request);
        changed.unwrap_or_else(|error| panic!("{replicas}: {error}"));
        nodes.await_all(&name, replicas);
    }
}

#[test]
fn a_key_that_cannot_be_read_holds_up_no_other_volume() {
    let nodes = Nodes::new(2);
    let names = ["a", "b", "c"].map(|name| nodes.volume_named(name, 2));
    let mut volumes = names.each_ref().map(|name| nodes.look(0, name).uuid);
    volumes.sort_unstable();
    let other = &nodes.rooms[1].manager;
    let drives = nodes.export(1);
    let replication = other.replication().expect("in a cluster");
    until("the first has a key of a newer format", || {
        let Ok(newest) = replication.read_newest(volumes[0]) else {
            return true;
        };
        let question = Question::Swap {
            revision: newest.revision,
            value: br#"{"format":99}"#.to_vec(),
        };
        replication.ask(volumes[0], question);
        false
    });
    nodes.quorum.set_away(true);
    nodes.import(1, drives);
    nodes.quorum.set_away(false);
    until("the others are in service", || {
        volumes[1..].iter().all(|volume| other.is_copy(*volume))
    });
}

#[test]
fn a_volume_that_is_given_copies_twice_at_once_has_them_once() {
    let nodes = Nodes::new(2);
    let name = VolumeName::new("tank", "db").expect("a name");
    let manager = &nodes.rooms[0].manager;
    let request = CreateVolume::new(&name, SIZE, LayoutSpec::Mirror { copies: 2 });
    manager.create_volume(request).expect("made");
    let replicate = || {
        let request = ReplicateVolume {
            replicas: 2,
            nodes: Vec::new(),
        };
        manager.replicate_volume(&name, request)
    };
    let done = std::thread::scope(|scope| {
        let both = [scope.spawn(replicate), scope.spawn(replicate)];
        both.map(|one| one.join().expect("no panic").is_ok())
    });
    assert!(done.contains(&true));
    nodes.await_all(&name, 2);
    let volume = nodes.look(0, &name).uuid;
    let key = manager
        .replication()
        .expect("in a cluster")
        .read_key(volume);
    assert!(
        key.expect("read").is_some(),
        "no call takes another's key away"
    );
}

#[test]
fn a_node_that_is_not_there_is_not_found_whatever_it_is_named_for() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let manager = &nodes.rooms[0].manager;
    let nosuch = || "nosuch".to_owned();
    let both = vec!["n1".to_owned(), nosuch()];
    let layout = LayoutSpec::Mirror { copies: 2 };
    let other = VolumeName::new("tank", "other").expect("a name");
    let create = CreateVolume {
        replicas: 2,
        nodes: both.clone(),
        ..CreateVolume::new(&other, SIZE, layout)
    };
    let replicate = ReplicateVolume {
        replicas: 2,
        nodes: both,
    };
    let replace = |node: String, with: String| ReplaceNode { node, with };
    let drain = DrainNode {
        node: nosuch(),
        drain: true,
    };
    for refused in [
        manager.drain(drain).map(drop),
        manager
            .move_volume(&name, MoveVolume { to: nosuch() })
            .map(drop),
        manager.create_volume(create).map(drop),
        manager.replicate_volume(&name, replicate).map(drop),
        manager
            .replace_node(replace(nosuch(), "n2".into()))
            .map(drop),
        manager
            .replace_node(replace("n2".into(), nosuch()))
            .map(drop),
    ] {
        let error = refused.expect_err("it is not there");
        assert!(
            error.kind == ErrorKind::NotFound && error.message.contains("no node nosuch"),
            "{error}"
        );
    }
}

/// Nodes are upgraded one after the other.
#[test]
fn an_order_of_another_version_is_refused_with_what_to_do() {
    let nodes = Nodes::new(2);
    let asked = nodes.rooms[0].manager.replication().expect("in a cluster");
    let order = serde_json::json!({ "order": "dance", "volume": 1 });
    let wait = Duration::from_secs(10);
    let said = asked.cluster.order(NodeId(2), &order, wait);
    let error = super::refused("n2", said.expect_err("it does not know it"));
    assert_eq!(error.kind, ErrorKind::Conflict);
    for says in [
        "node n2: it runs Ashlar",
        "the order dance",
        "install the same version",
    ] {
        assert!(error.message.contains(says), "{error}");
    }
}

/// A copy that has nothing yet is another than the key knows, so it is given everything, whatever checksums say.
#[test]
fn a_first_key_names_only_copies_that_have_everything() {
    let name = VolumeName::new("tank", "db").expect("a name");
    let wanted = CreateVolume::new(&name, SIZE, LayoutSpec::Mirror { copies: 2 });
    let copies = NewCopy::of(&wanted, uuid::Uuid::new_v4(), &[NodeId(1), NodeId(2)]);
    let copies = copies.expect("two");
    let named = |in_sync| {
        let key = first_key(&copies, in_sync).expect("a key");
        let is_new =
            |(_, member): (_, ashlar_replica::MemberId)| member.replica == ReplicaUuid::NEW;
        key.members.iter().map(is_new).collect::<Vec<_>>()
    };
    assert_eq!(named(1), [false, true]);
    assert_eq!(named(2), [false, false]);
}

#[test]
fn all_copies_of_an_older_image_are_marked_also_where_they_are_not_known() {
    let nodes = Nodes::new(2);
    for name in ["a", "b"] {
        nodes.volume_named(name, 2);
    }
    let manager = &nodes.rooms[1].manager;
    let pool = manager.copies()[0].pool_id;
    let drives = nodes.export(1);
    // None that has everything brings them up to date.
    nodes.export(0);
    let cluster = &manager.replication().expect("in a cluster").cluster;
    until("the pool had come further", || {
        let mut held = cluster.head(pool).expect("held");
        held.head.published += 1000;
        cluster.put_head(pool, &held).is_ok()
    });
    let forget = manager.state.update(|state| state.replicas.clear());
    forget.expect("as one that never had it");
    nodes.import(1, drives);
    let look = |reply| ReplicaMail::Look { reply };
    let is_old = |place: CopyPlace| {
        let view = place.pool.ask_replica(place.number, look).expect("asked");
        view.expect("a copy").is_old_image
    };
    let copies: Vec<bool> = manager.copies().into_iter().map(is_old).collect();
    assert_eq!(copies, [true, true]);
}

/// What could not become a copy is in service as before: its size, its state, and what is remembered of it.
#[test]
fn a_volume_that_cannot_become_a_copy_stays_as_it_was() {
    let nodes = Nodes::new(1);
    let manager = &nodes.rooms[0].manager;
    let name = VolumeName::new("tank", "db").expect("a name");
    let request = CreateVolume::new(&name, SIZE, LayoutSpec::Mirror { copies: 2 });
    let made = manager.create_volume(request).expect("made");
    let mut pools = manager.lock();
    let Some(Kept::Live(pool)) = pools.get_mut("tank") else {
        panic!("it is in service");
    };
    let view = pool.link.view().expect("a view");
    let volume = CopyVolume::of(&view.status.volumes[0], "tank");
    let before = view.status.volumes[0].granules;
    // As far as it goes before the engine refuses.
    let members = Seats::first([NodeId(1)]).expect("one");
    let remembered = manager.remember_copy(pool.id, volume.uuid, &members);
    remembered.expect("remembered");
    manager.target.remove(&made.nqn).expect("served until then");
    pool.volumes.remove(&volume.number);
    let larger = Manage::ResizeVolume {
        volume: volume.number,
        granules: before + 1,
    };
    pool.link.manage(larger).expect("resized");
    let identity = ReplicaIdentity {
        position: u8::MAX,
        uuid: volume.uuid,
    };
    let copy = Manage::MakeReplica {
        volume: volume.number,
        identity,
        granules: None,
    };
    assert!(pool.link.manage(copy).is_err(), "there is no such place");
    let why = ControlError::environment("no room for its planes");
    let said = manager.stay_alone(pool, &volume, before, why);
    assert_eq!(said.message, "no room for its planes");
    let opener = VolumeOpener::new(pool.link.clone(), volume.number, volume.name.clone());
    let blocks = opener.expect("opened").geometry().blocks;
    assert_eq!(blocks, before, "hosts have all of it");
    assert!(pool.volumes.contains_key(&volume.number));
    assert!(manager.state.read().replica(pool.id, volume.uuid).is_none());
    drop(pools);
    let after = manager.volume(&name).expect("there");
    assert_eq!((after.bytes, after.state), (made.bytes, made.state));
    assert!(manager.target.remove(&made.nqn).is_ok(), "it is served");
}

/// The nodes that have a copy, as one of them sees it.
fn nodes_of(status: VolumeStatus) -> Vec<String> {
    let copies = status.replication.expect("several copies").replicas;
    let mut names: Vec<String> = copies.into_iter().map(|copy| copy.node).collect();
    names.sort_unstable();
    names
}

#[test]
fn copies_go_where_there_is_room_and_not_to_a_drained_node() {
    let nodes = Nodes::new(3);
    let manager = &nodes.rooms[0].manager;
    // What a third drive adds is kept for repair.
    for name in ["d2", "d3"] {
        let request = AddDrive {
            drive: nodes.rooms[2].drive(name),
            ..AddDrive::default()
        };
        let added = nodes.rooms[2].manager.add_drive("tank", request);
        added.expect("added");
    }
    let make = |name: &str, nodes: &[&str]| {
        let name = VolumeName::new("tank", name).expect("a name");
        let request = CreateVolume {
            replicas: 2,
            nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
            ..CreateVolume::new(&name, SIZE, LayoutSpec::Mirror { copies: 2 })
        };
        nodes_of(manager.create_volume(request).expect("made"))
    };
    assert_eq!(make("a", &[]), ["n1", "n3"], "by room");
    assert_eq!(make("b", &["n2", "n3"]), ["n2", "n3"], "as named");
    let none = VolumeName::new("tank", "b").expect("a name");
    assert!(
        manager.volume(&none).is_err(),
        "this node has nothing of it"
    );
    let drain = DrainNode {
        node: "n1".into(),
        drain: true,
    };
    let drained = manager.drain_node(&drain).expect("drained");
    assert!(drained.kept.is_empty(), "{drained:?}");
    assert_eq!(make("c", &[]), ["n2", "n3"], "the drained node is left out");
}
