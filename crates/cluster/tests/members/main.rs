//! Nodes that join a cluster, and leave it; the quorum is a store in memory.

#[path = "../common/mod.rs"]
mod common;
mod rig;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use ashlar_cluster::{Kind, Memory, PeerSocket, Versions};
use ashlar_replica::{NodeId, VolumeId};
use bytes::BytesMut;

use rig::{Room, dial, until};

const HOUR: Duration = Duration::from_secs(3600);

/// Sends over one end, and reads at the other.
fn carries(from: &mut PeerSocket, to: &mut PeerSocket, text: &[u8]) {
    let sealed = from.cipher.as_mut().expect("TLS").seal(text, b"");
    let sealed = sealed.expect("sealed");
    let clear = text.len() > 32 && sealed.windows(32).any(|part| part == &text[..32]);
    assert!(!clear, "it is not as it was");
    let stream = |socket: &PeerSocket| {
        let fd = socket.fd.try_clone().expect("a descriptor");
        let stream = TcpStream::from(fd);
        stream.set_nonblocking(false).expect("an option");
        stream
    };
    let (mut there, mut here) = (stream(from), stream(to));
    let write = std::thread::spawn(move || there.write_all(&sealed).expect("sent"));
    let mut got = BytesMut::new();
    let mut buffer = vec![0; 10_000];
    while got.len() < text.len() {
        let read = here.read(&mut buffer).expect("received");
        assert!(read > 0, "ended after {} bytes", got.len());
        let cipher = to.cipher.as_mut().expect("TLS");
        cipher.open(&buffer[..read], &mut got).expect("opened");
    }
    write.join().expect("written");
    assert_eq!(&got[..], text);
}

#[test]
fn a_token_makes_a_machine_a_node_and_all_between_them_is_encrypted() {
    let room = Room::new("prod");
    let a = room.found("a");
    let token = a.cluster.token(HOUR).expect("a token").token;
    let b = room.join(&token, "b").expect("let in");
    until("a knows b", || a.cluster.config().node("b").is_some());
    let id = NodeId(2);
    let mut ours = dial(&a, id, VolumeId(9)).expect("let in");
    let mut theirs = b.accepted();
    carries(&mut ours, &mut theirs, b"there");
    carries(&mut theirs, &mut ours, &vec![7; 3 << 20]);
    carries(&mut ours, &mut theirs, b"and again");
    let order = serde_json::json!({ "hello": 1 });
    let said = b.cluster.order(NodeId(1), &order, HOUR).expect("obeyed");
    assert_eq!(said, order);
    // The directory alone says all: it starts again, and is who it was.
    drop((ours, theirs));
    let dir = b.stop();
    let b = room.start(&dir);
    assert_eq!((b.cluster.me(), b.cluster.incarnation().0), (id, 2));
    dial(&b, NodeId(1), VolumeId(1)).expect("let in");
}

/// Everything below a directory.
fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

#[test]
fn a_token_is_good_once_for_a_while_and_for_its_cluster() {
    let room = Room::new("prod");
    let a = room.found("a");
    let token = a.cluster.token(HOUR).expect("a token").token;
    let _b = room.join(&token, "b").expect("let in");
    let late = a
        .cluster
        .token(Duration::from_secs(1))
        .expect("a token")
        .token;
    let good = a.cluster.token(HOUR).expect("a token").token;
    std::thread::sleep(Duration::from_millis(2100));
    let elsewhere = Room::new("prod");
    let other = elsewhere.found("z");
    let foreign = other.cluster.token(HOUR).expect("a token").token;
    // The secret of one cluster, and the nodes of another.
    let cut = &good[..good.len() - 6];
    for (token, name, says, kind) in [
        (token.as_str(), "c", "used already, by b", Kind::Conflict),
        (token.as_str(), "b", "used already, by b", Kind::Conflict),
        (late.as_str(), "c", "too late", Kind::Conflict),
        (cut, "c", "this is no token", Kind::Usage),
        (good.as_str(), "b", "has b already", Kind::Conflict),
        (good.as_str(), "no name", "a name has", Kind::Usage),
    ] {
        let before = a.cluster.config().nodes.len();
        let dir = room.dir();
        let problem = room.try_join(&dir, token, name).expect_err(says);
        assert!(problem.message.contains(says), "{problem}");
        assert_eq!(problem.kind, kind, "{problem}");
        assert_eq!(files(&dir), 0, "nothing is left of {says}");
        assert_eq!(a.cluster.config().nodes.len(), before);
    }
    // What was refused has not used it up.
    let c = room.join(&good, "c").expect("let in");
    assert_eq!(c.cluster.me(), NodeId(3));
    // A directory is one node's, whatever came of its cluster.
    let dir = c.stop();
    let problem = room.try_join(&dir, &foreign, "c").expect_err("taken");
    assert!(
        problem
            .message
            .contains("is node c of cluster prod already"),
        "{problem}"
    );
    std::fs::remove_dir_all(dir.join("cluster")).expect("removed");
    let problem = room.try_join(&dir, &foreign, "c").expect_err("of another");
    assert!(
        problem.message.contains("was a node of cluster"),
        "{problem}"
    );
}

#[test]
fn a_node_of_another_cluster_is_refused_by_its_certificate() {
    let room = Room::new("prod");
    let a = room.found("a");
    let token = a.cluster.token(HOUR).expect("a token").token;
    let b = room.join(&token, "b").expect("let in");
    let at = a.cluster.config().nodes[0].replication;
    a.stop();
    // Another cluster of this name is where a was.
    let elsewhere = Room::new("prod");
    let z = elsewhere.found_at("a", at);
    let mut why = String::new();
    until("it is told apart", || {
        why = dial(&b, NodeId(1), VolumeId(1)).expect_err("another cluster's");
        why.contains("belongs to another cluster")
    });
    assert!(why.contains("another authority"), "{why}");
    assert!(z.heard_nothing());
}

#[test]
fn who_says_another_name_than_its_certificate_is_refused() {
    let room = Room::new("prod");
    let a = room.found("a");
    let join = |name: &str| {
        let token = a.cluster.token(HOUR).expect("a token").token;
        room.join(&token, name).expect("let in")
    };
    let (b, c) = (join("b"), join("c"));
    until("b is reached", || a.reaches("b"));
    b.stop();
    let dir = c.stop();
    let file = dir.join("cluster/cluster.toml");
    let text = std::fs::read_to_string(&file).expect("a file");
    assert!(text.contains("this = \"c\""), "{text}");
    let text = text.replace("this = \"c\"", "this = \"b\"");
    std::fs::write(&file, text).expect("written");
    std::fs::remove_file(dir.join("incarnation")).expect("removed");
    let impostor = room.start(&dir);
    let why = dial(&impostor, NodeId(1), VolumeId(1)).expect_err("refused");
    assert!(why.contains("do not have the certificates"), "{why}");
    assert!(a.heard_nothing());
    // Neither is it taken for b when it is called.
    let why = dial(&a, NodeId(2), VolumeId(1)).expect_err("another's");
    assert!(why.contains("do not have the certificates"), "{why}");
}

#[test]
fn who_leaves_or_is_forgotten_is_let_in_no_more() {
    let room = Room::new("prod");
    let a = room.found("a");
    let last = a.cluster.leave().expect_err("it is alone");
    assert!(last.message.contains("is the last one"), "{last}");
    let join = |name: &str| {
        let token = a.cluster.token(HOUR).expect("a token").token;
        room.join(&token, name).expect("let in")
    };
    let (b, c) = (join("b"), join("c"));
    until("b is reached", || a.reaches("b"));
    let there = a.cluster.forget("b").expect_err("it is there");
    assert!(
        there.message.contains("`ashlar cluster leave` on it"),
        "{there}"
    );
    let unknown = a.cluster.forget("x").expect_err("unknown");
    assert_eq!(unknown.kind, Kind::NotFound);
    // A volume's copy keeps it.
    let key = br#"{"format":1,"members":[{"node":2,"replica":[]}]}"#;
    let volume = a.put_volume(key);
    let b_dir = b.stop();
    until("b is away", || !a.reaches("b"));
    let kept = a.cluster.forget("b").expect_err("it has a copy");
    assert!(kept.message.contains(&volume.to_string()), "{kept}");
    a.cluster.delete_key(volume).expect("deleted");
    a.cluster.forget("b").expect("forgotten");
    let problem = room.try_start(&b_dir).expect_err("no member");
    assert!(
        problem.message.contains("no member of cluster prod"),
        "{problem}"
    );
    c.cluster.leave().expect("it leaves");
    let c_dir = c.stop();
    assert!(!c_dir.join("cluster").exists() && !c_dir.join("incarnation").exists());
    until("a is alone", || a.cluster.config().nodes.len() == 1);
    // Its number is never given again.
    let token = a.cluster.token(HOUR).expect("a token").token;
    let again = room.join_in(&c_dir, &token, "c").expect("let in");
    assert_eq!(again.cluster.me(), NodeId(4));
}

/// By a directory of nothing, and by its own.
#[test]
fn a_node_comes_back_with_its_number_at_another_address() {
    let room = Room::new("prod");
    let a = room.found("a");
    let token = || a.cluster.token(HOUR).expect("a token").token;
    let first = room.dir();
    let b = room.join_in(&first, &token(), "b").expect("let in");
    until("b is reached", || a.reaches("b"));
    let empty = room.dir();
    let tries = |dir: &Path, name: &str| {
        let problem = room.try_rejoin(dir, &token(), name).expect_err("refused");
        (problem.kind, problem.message)
    };
    for (name, kind, says) in [
        ("b", Kind::Conflict, "b is there, its daemon answers"),
        ("a", Kind::Conflict, "a is there, and was asked itself"),
        ("c", Kind::NotFound, "no node c that could come back"),
    ] {
        let (was, said) = tries(&empty, name);
        assert!(was == kind && said.contains(says), "{said}");
        assert!(!empty.exists());
    }
    a.put_volume(br#"{"format":1,"members":[{"node":2,"replica":[]}]}"#);
    b.stop();
    assert!(tries(&first, "a").1.contains("is b of cluster prod, not a"));
    let before = a.cluster.config();
    for dir in [&empty, &first] {
        std::fs::create_dir_all(dir.join("etcd/member")).expect("made");
        let token = token();
        room.try_rejoin(dir, &token, "b").expect("let in");
        assert!(!dir.join("etcd").exists(), "of a former member");
        let again = room.try_rejoin(&room.dir(), &token, "b").expect_err("used");
        assert!(again.message.contains("used already, by b"), "{again}");
        let b = room.start(dir);
        let life = b.cluster.incarnation().0;
        assert_eq!((b.cluster.me(), life > 1), (NodeId(2), true));
        until("it is reached where it is", || a.reaches("b"));
        dial(&b, NodeId(1), VolumeId(1)).expect("let in");
        let after = a.cluster.config();
        let at = |config: &ashlar_cluster::ClusterConfig| config.node("b").map(|b| b.replication);
        assert!(after.nodes.len() == 2 && at(&after) != at(&before));
        b.stop();
    }
}

#[test]
fn a_file_that_others_may_read_or_that_is_damaged_is_refused_by_its_name() {
    use std::os::unix::fs::PermissionsExt;
    let room = Room::with("prod", Memory::default());
    let dir = room.found("a").stop();
    let key = dir.join("cluster/node.key");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o640)).expect("mode");
    let problem = room.try_start(&dir).expect_err("readable");
    assert!(
        problem.message.contains("node.key has mode 0640"),
        "{problem}"
    );
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("mode");
    for (file, says) in [
        ("node.pem", "no certificate"),
        ("node.key", "no private key"),
        ("cluster.toml", "cluster.toml"),
    ] {
        let path = dir.join("cluster").join(file);
        let text = std::fs::read(&path).expect("there");
        std::fs::write(&path, "damaged").expect("written");
        let problem = room.try_start(&dir).expect_err(file);
        assert!(
            problem.message.contains(says) && problem.message.contains(file),
            "{problem}"
        );
        std::fs::write(&path, text).expect("written");
    }
    room.start(&dir);
}

/// What the next program speaks, beside this one's.
fn next() -> Versions {
    let ours = Versions::OURS.newest();
    Versions::new(ours, ours + 1).expect("a range")
}

#[test]
fn a_new_version_rolls_through_a_cluster_and_is_agreed_on_when_all_speak_it() {
    let room = Room::new("prod");
    let (a, (one, other)) = (room.found("a"), (NodeId(1), NodeId(2)));
    let ours = Versions::OURS.newest();
    let token = || a.cluster.token(HOUR).expect("a token").token;
    let (first, second, third) = (token(), token(), token());
    let b = room.join_as(&first, "b", next()).expect("let in");
    until("a knows b", || a.cluster.config().node("b").is_some());
    // Both at once, each at the other.
    let speak = |a: &rig::Node, b: &rig::Node, version| {
        for (from, to, called) in [(a, other, b), (b, one, a)] {
            let ours = dial(from, to, VolumeId(9)).expect("let in");
            assert_eq!(
                (ours.version, called.accepted().version),
                (version, version)
            );
        }
    };
    speak(&a, &b, ours);
    assert_eq!(b.cluster.status().agreed, Some(ours));
    let order = serde_json::json!({ "hello": 1 });
    let said = b.cluster.order(one, &order, HOUR).expect("obeyed");
    assert_eq!(said, order);
    assert_eq!(b.cluster.config().versions, next(), "nothing is agreed on");
    let may_leave = |node: &rig::Node| node.cluster.config().has_agreed_on(ours + 1);
    assert!(!may_leave(&b));
    // It may be started from the old program again.
    let dir = b.stop();
    let b = room.start(&dir);
    until("they meet", || a.reaches("b") && b.reaches("a"));
    let dir = b.stop();
    let b = room.try_start_as(&dir, next()).expect("it starts");
    // The last one is upgraded.
    let dir = a.stop();
    let a = room.try_start_as(&dir, next()).expect("it starts");
    let only = Versions::new(ours + 1, ours + 1).expect("one");
    for node in [&a, &b] {
        until("it is agreed on", || node.cluster.config().versions == only);
    }
    until("they meet", || a.reaches("b") && b.reaches("a"));
    speak(&a, &b, ours + 1);
    assert_eq!(a.cluster.status().agreed, Some(ours + 1));
    assert!(may_leave(&a) && may_leave(&b));
    // What speaks only the old one is told so, by name, whether it joins or is started again.
    let refused = room.join_as(&second, "c", Versions::OURS).expect_err("old");
    let speaks = format!("speaks {}", Versions::OURS);
    let agreed = format!("agreed on version {}", ours + 1);
    for says in ["c (Ashlar", &speaks, "cluster prod have", &agreed] {
        assert!(refused.message.contains(says), "{refused}");
    }
    let c = room.join_as(&third, "c", next()).expect("let in");
    let dir = c.stop();
    let refused = room.try_start_as(&dir, Versions::OURS).expect_err("old");
    for says in [&agreed, "of node c", &speaks, "newer"] {
        assert!(refused.message.contains(says), "{refused}");
    }
}
