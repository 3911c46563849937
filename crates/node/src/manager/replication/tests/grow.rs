//! A replicated volume becomes larger.

use super::*;
use crate::manager::live;
use crate::manager::replication::orders::Order;
use crate::model::{ControlError, ResizeVolume};
use ashlar_store::{Committed, OwnPlane, ReplicaChange, ReplicaPromise};

const LARGER: u64 = 3 * SIZE;

fn resize(
    nodes: &Nodes,
    node: usize,
    name: &VolumeName,
    bytes: u64,
) -> Result<VolumeStatus, ControlError> {
    let request = ResizeVolume {
        bytes,
        destroy_data: true,
    };
    nodes.rooms[node].manager.resize_volume(name, request)
}

fn granules_in_pool(nodes: &Nodes, node: usize) -> u64 {
    let pools = nodes.rooms[node].manager.lock();
    let pool = live(&pools, "tank").expect("in service");
    pool.link.view().expect("a view").status.volumes[0].granules
}

#[test]
fn a_volume_grows_on_all_its_nodes_and_goes_on_from_where_a_command_has_ended() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.look(0, &name).uuid;
    let refused = resize(&nodes, 0, &name, SIZE / 2).expect_err("smaller");
    assert!(refused.message.contains("not smaller"), "{refused}");
    // Before the key says the size that there is, what a pool has would be taken for it.
    let manager = &nodes.rooms[1].manager;
    let granules = LARGER / 4096;
    let order = Order::GrowCopy { volume, granules };
    let refused = manager.obey(NodeId(1), order).expect_err("not yet");
    assert!(
        refused.message.contains("does not say its size"),
        "{refused}"
    );
    // A command that has died when the copies had grown.
    let owner = &nodes.rooms[0].manager;
    let key = || {
        owner
            .replication()
            .expect("in a cluster")
            .read_newest(volume)
            .expect("a key")
            .key
    };
    let size = owner.size_of(volume, &key()).expect("a size");
    let members = key().members;
    let said = owner.wish_size(volume, size, members);
    said.expect("it is said");
    for room in &nodes.rooms {
        room.manager
            .grow_copy(volume, granules + 100)
            .expect("room");
    }
    for node in [0, 1] {
        assert_eq!(nodes.look(node, &name).bytes, SIZE);
    }
    let drives = nodes.export(1);
    nodes.import(1, drives);
    nodes.await_all(&name, 2);
    assert_eq!(nodes.look(1, &name).bytes, SIZE);
    // It is given again, for less than those have, and at the other node.
    let grown = resize(&nodes, 1, &name, LARGER).expect("it grows");
    assert_eq!(grown.bytes, LARGER);
    assert_eq!(nodes.look(0, &name).bytes, LARGER);
    assert_eq!(key().size.map(|size| size.hosts() * 4096), Some(LARGER));
    resize(&nodes, 0, &name, LARGER).expect("again");
}

#[test]
fn a_volume_grows_only_with_all_copies_in_sync_and_a_copy_that_is_given_is_as_large() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let drives = nodes.export(1);
    nodes.await_all(&name, 1);
    let refused = resize(&nodes, 0, &name, LARGER).expect_err("one is away");
    assert!(refused.message.contains("that of n2 is not"), "{refused}");
    nodes.import(1, drives);
    nodes.await_all(&name, 2);
    resize(&nodes, 0, &name, LARGER).expect("it grows");
    for replicas in [1, 2] {
        let request = ReplicateVolume {
            replicas,
            nodes: Vec::new(),
        };
        let changed = nodes.rooms[0].manager.replicate_volume(&name, request);
        changed.unwrap_or_else(|error| panic!("{replicas}: {error}"));
        nodes.await_all(&name, replicas);
    }
    assert_eq!(granules_in_pool(&nodes, 1), granules_in_pool(&nodes, 0));
    assert_eq!(nodes.look(1, &name).bytes, LARGER);
}

/// A copy that has come since the others got the room lacks it: the volume does not become larger without it.
#[test]
fn a_volume_does_not_grow_beyond_a_copy_that_came_meanwhile() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.look(0, &name).uuid;
    let owner = &nodes.rooms[0].manager;
    let key = || {
        let read = owner.replication().expect("in a cluster");
        read.read_newest(volume).expect("a key").key
    };
    let (members, size) = (key().members, owner.size_of(volume, &key()));
    let size = size.expect("a size");
    owner.wish_size(volume, size, members).expect("it is said");
    let larger = size.grown(LARGER / 4096).expect("larger");
    for room in &nodes.rooms {
        let grown = room.manager.grow_copy(volume, larger.granules);
        grown.expect("room");
    }
    // Another copy takes the place of one of them.
    for replicas in [1, 2] {
        let request = ReplicateVolume {
            replicas,
            nodes: Vec::new(),
        };
        let changed = owner.replicate_volume(&name, request);
        changed.unwrap_or_else(|error| panic!("{replicas}: {error}"));
        nodes.await_all(&name, replicas);
    }
    assert!(granules_in_pool(&nodes, 1) < larger.granules);
    let refused = owner.wish_size(volume, larger, members);
    let refused = refused.expect_err("it lacks the room");
    assert!(refused.message.contains("another copy"), "{refused}");
    assert_eq!(key().size, Some(size));
    let grown = resize(&nodes, 0, &name, LARGER).expect("it grows");
    assert_eq!(grown.bytes, LARGER);
    assert_eq!(granules_in_pool(&nodes, 1), larger.granules);
}

/// What a pool's drives hold, to be put back.
fn image(drives: &[String]) -> Vec<(String, Vec<u8>)> {
    let path = |spec: &String| spec.trim_start_matches("file:").to_owned();
    let paths = drives.iter().map(path);
    paths
        .map(|path| (path.clone(), std::fs::read(&path).expect("an image")))
        .collect()
}

/// The last copy that is left is of an old image: from before the volume grew, and from when the other one was away.
#[test]
fn an_old_image_that_kept_what_others_missed_gets_its_room_and_may_go_on_alone() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let (manager, volume) = (&nodes.rooms[1].manager, nodes.look(1, &name).uuid);
    let kept = manager.with_copy(volume, |pool, number| {
        let known = pool.link.view().expect("a view").status.volumes.remove(0);
        let change = ReplicaChange {
            promise: ReplicaPromise {
                absent: 1,
                ..known.promise.expect("a copy")
            },
            marks_uncertain: false,
            marks: std::iter::once(0..8).collect(),
            own: OwnPlane::Until(Committed::default()),
        };
        let volume = number;
        let wish = Manage::ChangeReplica { volume, change };
        Ok(pool.link.manage(wish))
    });
    kept.expect("a pool").expect("marked");
    let drives = nodes.export(1);
    let old = image(&drives);
    nodes.import(1, drives);
    nodes.await_all(&name, 2);
    resize(&nodes, 0, &name, LARGER).expect("it grows");
    let drives = nodes.export(1);
    for (path, bytes) in old {
        std::fs::write(path, bytes).expect("put back");
    }
    nodes.export(0);
    nodes.import(1, drives);
    assert_eq!(granules_in_pool(&nodes, 1) * 4096, LARGER + 16 * 4096);
    let alone = |force, accept_data_loss| {
        let request = RunAlone {
            force,
            accept_data_loss,
        };
        manager.run_alone(&name, &request)
    };
    let refused = alone(false, false).expect_err("what was written since is lost");
    assert!(refused.message.contains("--accept-data-loss"), "{refused}");
    let status = alone(true, true).expect("it goes on");
    assert_eq!(status.bytes, LARGER);
    let owner = status.replication.expect("several copies").owner;
    assert_eq!(owner.as_deref(), Some("n2"));
}

/// A key from a backup, of before the volume grew and with the same epoch: what lies behind its end would be lost, or
/// elsewhere.
#[test]
fn a_key_of_before_the_volume_grew_serves_nothing_and_loses_nothing() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.look(0, &name).uuid;
    let read = || {
        let replication = nodes.rooms[0].manager.replication().expect("in a cluster");
        let read = replication.read_newest(volume).expect("a key");
        (read.revision, read.key)
    };
    resize(&nodes, 0, &name, LARGER).expect("it grows");
    let grown = read().1.size.expect("a size");
    let drives = [0, 1].map(|node| nodes.export(node));
    let put = |size| {
        let (revision, key) = read();
        let value = ashlar_replica::Key { size, ..key }.encode();
        let replication = nodes.rooms[0].manager.replication().expect("in a cluster");
        let reply = replication.ask(volume, Question::Swap { revision, value });
        assert!(
            matches!(reply, ashlar_replica::quorum::Reply::Swapped(_)),
            "{reply:?}"
        );
    };
    let before = ashlar_replica::Size {
        granules: grown.register + 1,
        ..grown
    };
    for older in [None, Some(before)] {
        put(older);
        for (node, drives) in drives.iter().enumerate() {
            nodes.import(node, drives.clone());
            let why = nodes.rooms[node].manager.why_no_copy(volume);
            for says in [
                "from a backup",
                "Nothing is lost",
                "etcdctl",
                &format!("{}", grown.granules),
            ] {
                assert!(why.contains(says), "{why}");
            }
        }
        for node in [0, 1] {
            nodes.export(node);
        }
    }
    put(Some(grown));
    for (node, drives) in drives.into_iter().enumerate() {
        nodes.import(node, drives);
    }
    nodes.await_all(&name, 2);
    assert_eq!(nodes.look(0, &name).bytes, LARGER);
}

/// Should a copy be smaller than what its owner speaks of, it fails, gets the room, and comes back by itself.
#[test]
fn a_copy_that_lacks_the_room_gets_it_and_comes_back() {
    let nodes = Nodes::new(2);
    let name = nodes.volume(2);
    let volume = nodes.look(0, &name).uuid;
    let owner = &nodes.rooms[0].manager;
    let key = || {
        let read = owner.replication().expect("in a cluster");
        read.read_newest(volume).expect("a key").key
    };
    let (members, size) = (key().members, owner.size_of(volume, &key()));
    let size = size.expect("a size");
    let larger = size.grown(LARGER / 4096).expect("larger");
    owner.wish_size(volume, size, members).expect("it is said");
    owner.grow_copy(volume, larger.granules).expect("room");
    // As if the other had it, too.
    owner.wish_size(volume, larger, members).expect("it grows");
    assert!(granules_in_pool(&nodes, 1) < larger.granules);
    // The owner asks for digests of all of it.
    let _ = owner.verify_volume(&name);
    until("it has the room", || {
        granules_in_pool(&nodes, 1) == larger.granules
    });
    nodes.await_all(&name, 2);
}
