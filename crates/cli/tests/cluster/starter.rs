//! What `ashlar lab cluster up` starts also ends, whichever process ends first.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Running, ashlar, ended, eventually, ok, open_folder};
use crate::rig::{has_cluster, working_in};

fn namespaces_of(dir: &Path) -> Vec<String> {
    let mark = std::fs::read_to_string(dir.join("nodes.json")).expect("a mark");
    let mark: Value = serde_json::from_str(&mark).expect("JSON");
    let prefix = mark["network"]["namespaces"]["prefix"]
        .as_str()
        .expect("a prefix");
    let all = std::fs::read_dir("/run/netns")
        .expect("namespaces")
        .flatten();
    let names = all.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(prefix)).collect()
}

#[test]
fn what_a_killed_starter_leaves_is_found_and_ended() {
    if !has_cluster() {
        return;
    }
    let room = open_folder();
    let dir = room.path().join("c");
    let text = dir.display().to_string();
    let mut starter = Running::start(&mut ashlar(["lab", "cluster", "up", "--dir", &text]));
    eventually("a node is started", || {
        !working_in(&dir.join("a")).is_empty()
    });
    starter.kill();
    assert_eq!(namespaces_of(&dir).len(), 4);
    // Another starter does not take it for its own.
    let refused = ended(&mut ashlar(["lab", "cluster", "up", "--dir", &text]));
    assert!(
        refused.code == 2 && refused.error.contains("cluster down"),
        "{}",
        refused.error
    );
    ok(&mut ashlar(["lab", "cluster", "down", "--dir", &text]));
    assert!(!dir.exists() && working_in(room.path()).is_empty());
}

#[test]
fn ctrl_c_leaves_nothing() {
    if !has_cluster() {
        return;
    }
    let room = open_folder();
    let dir = room.path().join("c");
    let text = dir.display().to_string();
    let words = [
        "lab", "ha", "--dir", &text, "--rounds", "1000", "--size", "8MiB", "--out",
    ];
    let mut command = ashlar(words);
    command.arg(room.path().join("o"));
    let mut starter = Running::start(&mut command);
    eventually("a node is started", || {
        !working_in(&dir.join("b")).is_empty()
    });
    let names = namespaces_of(&dir);
    let status = starter.end(Signal::INT);
    assert_eq!(status.code(), Some(3));
    assert!(!dir.exists() && working_in(room.path()).is_empty());
    let left = names
        .iter()
        .find(|name| Path::new("/run/netns").join(name).exists());
    assert_eq!(left, None);
}

#[test]
fn a_cluster_on_loopback_says_what_it_is() {
    if !crate::common::is_there("/usr/bin/etcd", Path::new("/usr/bin/etcd").exists()) {
        return;
    }
    let room = open_folder();
    let dir = room.path().join("c").display().to_string();
    let words = [
        "lab",
        "cluster",
        "up",
        "--loopback",
        "--nodes",
        "1",
        "--dir",
        &dir,
        "--json",
    ];
    let up: Value = serde_json::from_str(&ok(&mut ashlar(words))).expect("JSON");
    assert_eq!(
        (&up["kind"], &up["network"]),
        (&"nodes".into(), &"loopback".into())
    );
    let node = &up["nodes"][0];
    assert!(node["ready"] == true && !node["pids"].as_array().expect("processes").is_empty());
    assert!(
        node["portal"]
            .as_str()
            .is_some_and(|portal| portal.starts_with("127.0.0.1:"))
    );
    let shown = ok(&mut ashlar(["lab", "cluster", "status", "--dir", &dir]));
    assert!(
        shown.contains("network: loopback") && shown.contains("a: portal"),
        "{shown}"
    );
    ok(&mut ashlar(["lab", "cluster", "down", "--dir", &dir]));
}
