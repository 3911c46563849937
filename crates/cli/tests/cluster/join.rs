//! A cluster from nothing, as docs/cluster.md has it: three directories on addresses of loopback, each started from what
//! joining has left in it.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::common::{
    Running, TEST_TIMEOUT, ashlar, can_attach, ended, eventually, eventually_within, ok, refuses,
    send,
};
use crate::machines::{Machines, can_join};
use crate::rig::working_in;

/// The daemon of a node: the child that is no etcd.
fn daemon_of(parent: i32) -> i32 {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(children).expect("a process");
    let mut children = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    let is_ours = |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim() == "ashlar")
    };
    children.find(is_ours).expect("a daemon")
}

/// The volume as a file system of node a's machine.
struct Mounted<'a>(&'a Machines);

impl<'a> Mounted<'a> {
    fn new(machines: &'a Machines) -> Self {
        let mounted = Self(machines);
        std::fs::create_dir(mounted.path("")).expect("a folder");
        let words = ["attach", "tank/db", "--via", "initiator", "--fs", "ext4"];
        let mut attach = mounted.command(&words);
        ok(attach.arg("--mount").arg(mounted.path("")));
        mounted
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.room.path().join("mnt").join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.0.to("a", words);
        command.env("ASHLAR_ATTACH_STATE", self.0.room.path().join("attached"));
        command
    }

    /// Durable when this returns.
    fn write(&self, name: &str) {
        let mut file = std::fs::File::create(self.path(name)).expect("a file");
        file.write_all(name.as_bytes()).expect("written");
        file.sync_all().expect("durable");
    }

    fn has(&self, name: &str) -> bool {
        std::fs::read_to_string(self.path(name)).is_ok_and(|text| text == name)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Another test's namespace may hold the mount for a moment.
        ended(self.command(&["detach", "--force"]).arg(self.path("")));
    }
}

#[test]
fn two_nodes_and_a_witness_join_outlive_a_daemon_and_leave() {
    if !can_join() {
        return;
    }
    let machines = Machines::new(0);
    let mut elsewhere = ashlar(["cluster", "init", "prod", "--address", "192.0.2.7", "--dir"]);
    let named = ["192.0.2.7", "none of this machine's addresses"];
    refuses(elsewhere.arg(machines.dir("a")), 2, &named);
    assert!(!machines.dir("a").exists(), "nothing is left");
    ok(&mut machines.place(&["cluster", "init", "prod"], "a"));
    let a = machines.node("a");
    let token = machines.token();
    ok(&mut machines.place(&["cluster", "join", &token], "b"));
    let b = machines.node("b");
    let again = machines.place(&["cluster", "join", &token], "x");
    refuses(
        &mut { again },
        3,
        &["used already, by b", "ashlar cluster token"],
    );
    assert!(!machines.dir("x").exists(), "nothing is left");
    let token = machines.token();
    let witness = machines.witness(&token);
    machines.volume();
    let mut owner = None;
    eventually("all copies are in sync", || {
        owner = machines.owner("a");
        owner.is_some()
    });
    let owner = owner.expect("one");
    let (parent, other) = match owner.as_str() {
        "a" => (a.id(), "b"),
        _ => (b.id(), "a"),
    };
    let parent = i32::try_from(parent).expect("a process");
    let seen = machines.room.path().join("events");
    let mut follow = machines.to(&owner, &["events", "--follow"]);
    let out = std::fs::File::create(&seen).expect("a file");
    let follow = Running::start_into(&mut follow, out);
    let is_seen = |what: &str| {
        let seen = std::fs::read_to_string(&seen).expect("a file");
        seen.matches(what).count()
    };
    eventually("the nodes are named", || {
        is_seen("in sync: a, b") + is_seen("in sync: b, a") > 0
    });
    let mounted = can_attach().then(|| Mounted::new(&machines));
    let files = |name: &str| mounted.iter().for_each(|mounted| mounted.write(name));
    files("before");
    let served = is_seen("this node serves it");
    // Its parent begins it anew; until then the other serves.
    send(daemon_of(parent), Signal::KILL);
    eventually("the other node serves", || {
        let volume = machines.json(other, &["volume", "show", "tank/db"]);
        volume["owner"] == other
    });
    files("after");
    if let Some(mounted) = &mounted {
        assert!(mounted.has("before") && mounted.has("after"));
    }
    drop(mounted);
    eventually("what died is in sync again", || {
        machines.owner(other).is_some()
    });
    assert!(
        working_in(&machines.dir(&owner)).contains(&parent),
        "the parent stays"
    );
    // Who follows the events of a daemon follows those of the next one.
    ok(&mut machines.to(other, &["volume", "move", "tank/db", "--to", &owner]));
    eventually("that is seen", || is_seen("this node serves it") > served);
    drop(follow);
    // All lose power at once, and start again in any order.
    for name in ["a", "b", "w"] {
        for pid in working_in(&machines.dir(name)) {
            send(pid, Signal::KILL);
        }
    }
    drop((a, b, witness));
    let mut witness = ashlar(["witness", "--dir"]);
    let witness = machines.run("w", witness.arg(machines.dir("w")));
    let (_a, mut b) = (machines.node("a"), machines.node("b"));
    eventually("all copies are in sync", || machines.owner("a").is_some());
    // A node with a copy does not leave; without one it goes for good.
    let leave = &["cluster", "leave"];
    refuses(&mut machines.to("b", leave), 3, &["has copies of tank/db"]);
    ok(&mut machines.to("a", &["volume", "delete", "tank/db", "--destroy-data"]));
    ok(&mut machines.to("b", leave));
    assert_eq!(b.wait().code(), Some(0));
    assert!(!machines.dir("b").join("cluster").exists());
    assert!(!machines.dir("b").join("etcd").exists());
    // While it runs: of two that vote, etcd needs both to take one out.
    ok(&mut machines.to("a", &["node", "forget", "w"]));
    eventually("a is alone", || machines.quorum() == ["a leader"]);
    drop(witness);
}

/// Its system disk was replaced, and it has another address: its pool, and the copies in it, are still its own.
#[test]
fn a_node_or_witness_that_has_lost_its_directory_comes_back() {
    if !can_join() {
        return;
    }
    let machines = Machines::new(50);
    ok(&mut machines.place(&["cluster", "init", "prod"], "a"));
    let a = machines.node("a");
    let token = machines.token();
    ok(&mut machines.place(&["cluster", "join", &token], "b"));
    let b = machines.node("b");
    let witness = machines.witness(&machines.token());
    machines.volume();
    let host = "nqn.2014-08.org.test:host";
    ok(&mut machines.to("a", &["volume", "allow", "tank/db", "--host", host]));
    eventually("all copies are in sync", || machines.owner("b").is_some());
    let file = std::fs::read_to_string(machines.dir("a").join("cluster/cluster.toml"));
    let is_told = file.expect("a file").contains("is_first = false");
    assert!(
        is_told,
        "without its data it would begin an etcd of its own"
    );
    let lose = |name: &str, running: Running| {
        for pid in working_in(&machines.dir(name)) {
            send(pid, Signal::KILL);
        }
        drop(running);
        let drive = machines.dir(name).join("drive");
        // Drives are no part of what is lost.
        let kept = machines.room.path().join(format!("{name}.drive"));
        let is_kept = drive.exists();
        if is_kept {
            std::fs::rename(&drive, &kept).expect("kept");
        }
        std::fs::remove_dir_all(machines.dir(name)).expect("lost");
        std::fs::create_dir(machines.dir(name)).expect("a new one");
        if is_kept {
            std::fs::rename(&kept, &drive).expect("there");
        }
    };
    let votes = |asked: &str| {
        let quorum = machines.quorum_of(asked);
        let votes = quorum.iter();
        let votes = votes.filter(|one| one.ends_with("leader") || one.ends_with("voter"));
        votes.count()
    };
    let comes_back = |name: &str, asked: &str, at: &str| {
        let token = ok(&mut machines.to(asked, &["cluster", "token"]));
        let mut join = ashlar(["cluster", "join", token.trim(), "--rejoin", "--name", name]);
        join.args(["--address", at, "--dir"])
            .arg(machines.dir(name));
        ok(&mut join);
        let node = machines.node(name);
        let drive = format!("file:{}", machines.dir(name).join("drive").display());
        ok(&mut machines.to(name, &["pool", "import", "tank", "--drive", &drive]));
        eventually_within(
            2 * TEST_TIMEOUT,
            "it votes, and its copy is in sync",
            || votes(asked) == 3 && machines.owner(asked).is_some(),
        );
        node
    };
    lose("b", b);
    let elsewhere = machines.address_at("b", 10);
    let b = comes_back("b", "a", &elsewhere);
    eventually("hosts hear of it", || {
        let portal = format!("{}:4420", machines.address("a"));
        let words = ["nvme", "discover", &portal, "--hostnqn", host];
        ok(&mut ashlar(words)).contains(&elsewhere)
    });
    // The one that began the cluster.
    lose("a", a);
    let _a = comes_back("a", "b", &machines.address("a"));
    ok(&mut machines.to("a", &["volume", "verify", "tank/db"]));
    let shown = machines.json("a", &["volume", "show", "tank/db"]);
    assert!(
        shown["replicas"]
            .as_array()
            .is_some_and(|all| all.len() == 2),
        "{shown}"
    );
    lose("w", witness);
    let token = machines.token();
    let mut join = machines.place(&["witness", "--rejoin", "--join", &token], "w");
    let _witness = machines.run("w", &mut join);
    eventually_within(2 * TEST_TIMEOUT, "three vote", || votes("a") == 3);
    drop(b);
}

/// Of two nodes the first has the only vote: it has lost nothing, and a recovery that is refused leaves nothing behind.
#[test]
fn a_quorum_of_one_vote_is_not_recovered_and_nothing_is_in_doubt() {
    if !can_join() {
        return;
    }
    let machines = Machines::new(125);
    ok(&mut machines.place(&["cluster", "init", "prod"], "a"));
    let a = machines.node("a");
    ok(&mut machines.place(&["cluster", "join", &machines.token()], "b"));
    let b = machines.node("b");
    machines.volume();
    eventually("all copies are in sync", || machines.owner("a").is_some());
    let mut recover = ashlar(["cluster", "recover", "--others-are-lost", "--dir"]);
    recover.arg(machines.dir("a"));
    let is_expected = || machines.dir("a").join("recovered").exists();
    // Its etcd runs, and does not answer.
    let stopped = working_in(&machines.dir("a"));
    for pid in &stopped {
        send(*pid, Signal::STOP);
    }
    refuses(
        &mut recover,
        3,
        &["nothing was changed", "Does the node run?"],
    );
    assert!(!is_expected(), "as it runs");
    for pid in stopped {
        send(pid, Signal::CONT);
        send(pid, Signal::KILL);
    }
    drop(a);
    refuses(&mut recover, 3, &["nothing was changed. Start the node"]);
    assert!(!is_expected(), "it has the only vote");
    let _a = machines.node("a");
    eventually("it is served", || machines.owner("a").is_some());
    drop(b);
}

#[test]
fn a_node_goes_on_when_all_others_of_the_quorum_are_lost() {
    if !can_join() {
        return;
    }
    let machines = Machines::new(100);
    ok(&mut machines.place(&["cluster", "init", "prod"], "a"));
    let a = machines.node("a");
    let token = machines.token();
    ok(&mut machines.place(&["cluster", "join", &token], "b"));
    let b = machines.node("b");
    let witness = machines.witness(&machines.token());
    machines.volume();
    let recover = |words: &[&str]| {
        let mut command = ashlar(["cluster", "recover", "--dir"]);
        command.arg(machines.dir("b")).args(words);
        command
    };
    refuses(
        &mut recover(&["--others-are-lost"]),
        3,
        &["the quorum answers"],
    );
    // At last: on a busy machine a copy may leave the set for a moment, and would not serve alone.
    eventually("all copies are in sync", || machines.owner("a").is_some());
    for name in ["a", "b", "w"] {
        for pid in working_in(&machines.dir(name)) {
            send(pid, Signal::KILL);
        }
    }
    drop((a, b, witness));
    refuses(&mut recover(&[]), 2, &["--others-are-lost"]);
    ok(&mut recover(&["--others-are-lost"]));
    // The first daemon after that, and the next: what the lost machines have acknowledged is not known here.
    let alone = ["volume", "run-alone", "tank/db", "--accept-data-loss"];
    for _ in 0..2 {
        let b = machines.node("b");
        eventually("it is in doubt", || {
            let shown = machines.json("b", &["volume", "show", "tank/db"]);
            let states = shown["replicas"].as_array().into_iter().flatten();
            let states: Vec<_> = states.map(|copy| copy["state"].clone()).collect();
            shown["owner"].is_null() && states == ["in_doubt", "in_doubt"]
        });
        for words in [&["volume", "show", "tank/db"][..], &["cluster", "status"]] {
            let shown = ok(&mut machines.to("b", words));
            assert!(
                shown.contains(&format!("`ashlar {}`", alone.join(" "))),
                "{shown}"
            );
        }
        drop(b);
    }
    let _b = machines.node("b");
    refuses(
        &mut machines.to("b", &alone[..3]),
        2,
        &["--accept-data-loss"],
    );
    ok(&mut machines.to("b", &alone));
    eventually("its copy serves", || {
        machines.json("b", &["volume", "show", "tank/db"])["owner"] == "b"
    });
    ok(&mut machines.to("b", &["volume", "replicate", "tank/db", "--replicas", "1"]));
    for gone in ["a", "w"] {
        ok(&mut machines.to("b", &["node", "forget", gone]));
    }
    assert_eq!(machines.owner("b").as_deref(), Some("b"));
}
