//! The nodes of a service: each is let in to its volumes, and they are those that have copies.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::cluster::{A, B, Rig};
use crate::common::{can_attach, eventually, is_there, ok, refuses};

fn rig() -> Option<Rig> {
    let has_etcd = is_there("etcd", Path::new("/usr/bin/etcd").exists());
    (has_etcd && can_attach()).then(Rig::new)
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

fn hosts(rig: &Rig, node: usize) -> Vec<String> {
    let text = rig.ok(node, &["volume", "show", "tank/s", "--json"]);
    let volume: Value = serde_json::from_str(&text).expect("JSON");
    let hosts = volume["allow_hosts"].as_array().expect("a list").iter();
    hosts
        .map(|host| host.as_str().expect("a name").to_owned())
        .collect()
}

/// A service that stays, on node a.
fn create(rig: &Rig) {
    let mount = rig.path("mnt").display().to_string();
    let create = ["service", "create", "s", "--volume", "tank/s", "--mount"];
    rig.ok(
        A,
        &[&create[..], &[&mount, "--start", "exec sleep 1000"]].concat(),
    );
    rig.becomes(A, "s", "running");
}

#[test]
fn a_node_that_never_had_a_service_takes_it_over_and_lets_hosts_in_alone() {
    let Some(mut rig) = rig() else { return };
    rig.ok(
        A,
        &words("volume create tank/s --size 400MiB --layout mirror:2 --replicas 2"),
    );
    rig.await_in_sync(A, "tank/s");
    rig.ok(A, &words("volume move tank/s --to a"));
    create(&rig);
    let both = hosts(&rig, A);
    assert_eq!(
        (both.len(), hosts(&rig, B)),
        (2, both.clone()),
        "of both machines"
    );

    rig.daemon(A).kill();
    rig.becomes(B, "s", "running");
    let guest = "nqn.2026-01.test:guest";
    let said = rig.ok(B, &["volume", "allow", "tank/s", "--host", guest]);
    assert!(said.contains(guest), "{said}");
    let told = rig.ok(B, &words("volume show tank/s"));
    assert!(
        told.contains("node a has not heard who may connect"),
        "{told}"
    );
    let deny = ["volume", "deny", "tank/s", "--host", guest];
    refuses(
        &mut rig.command(B, &deny),
        3,
        &["node a", "Nothing was changed"],
    );

    rig.start(A);
    let all = hosts(&rig, B);
    eventually("the other has heard", || {
        let mut there = hosts(&rig, A);
        there.sort();
        let mut here = all.clone();
        here.sort();
        there == here
    });
    rig.ok(B, &deny);
    assert!(!hosts(&rig, A).iter().any(|host| host == guest));
    rig.ok(B, &words("service stop s"));
    rig.becomes(B, "s", "stopped");
    for node in [A, B] {
        rig.daemon(node).end(Signal::TERM);
    }
}

#[test]
fn a_service_is_known_where_its_volumes_have_copies_since_and_nowhere_else() {
    let Some(mut rig) = rig() else { return };
    rig.ok(
        A,
        &words("volume create tank/s --size 400MiB --layout mirror:2"),
    );
    create(&rig);
    let stays = |why: &str| {
        let drained = rig
            .command(A, &words("node drain a"))
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&drained.stdout).into_owned();
        assert_eq!(drained.status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("tank/s: stays: {why}")), "{said}");
    };
    stays("it has one copy, here, and is used by nqn.");
    rig.ok(A, &words("service stop s"));
    rig.becomes(A, "s", "stopped");
    // Something is in the way on the other node.
    let mount = rig.path("mnt").display().to_string();
    let there = format!("--mount=/proc/{}/ns/mnt", rig.nodes[B].mounts.id());
    let inside = |words: &[&str]| {
        let mut command = Command::new("nsenter");
        command.arg(&there).args(words);
        command
    };
    ok(inside(&["mount", "-t", "tmpfs", "none"]).arg(&mount));
    rig.ok(A, &words("volume replicate tank/s --replicas 2"));
    rig.await_in_sync(A, "tank/s");
    eventually("the other says what is in its way", || {
        let warnings = rig.show(A, "s")["warnings"].to_string();
        warnings.contains("node b has copies of its volumes") && warnings.contains("in use")
    });
    ok(inside(&["umount"]).arg(&mount));
    eventually("the other knows it", || {
        rig.show(A, "s")["nodes"].as_array().map(Vec::len) == Some(2)
    });
    rig.ok(A, &words("service start s"));
    eventually("it can move", || {
        let now = rig.show(A, "s");
        now["state"] == "running" && now["highly_available"] == true
    });

    rig.daemon(A).kill();
    rig.becomes(B, "s", "running");
    rig.start(A);
    rig.await_in_sync(B, "tank/s");
    rig.ok(B, &words("service move s --to a"));
    rig.becomes(A, "s", "running");
    rig.await_in_sync(A, "tank/s");
    rig.ok(A, &words("volume replicate tank/s --replicas 1 --nodes a"));
    eventually("the other has forgotten it", || {
        rig.ok(B, &["service", "list", "--json"]).trim() == "[]"
    });
    assert_eq!(rig.becomes(A, "s", "running")["highly_available"], false);
    rig.ok(A, &words("service stop s"));
    rig.becomes(A, "s", "stopped");
    for node in [A, B] {
        rig.daemon(node).end(Signal::TERM);
    }
}
