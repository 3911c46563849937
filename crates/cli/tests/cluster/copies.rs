//! Copies of a volume that is in service are added and taken away, and one node takes another's place.

use std::time::Duration;

use serde_json::Value;

use crate::common::{eventually, ok, refuses};
use crate::rig::{Cluster, begin, has_cluster};

/// Longer than a copy waits before it takes a volume over whose owner it does not hear.
const TAKES_OVER: Duration = Duration::from_secs(5);

fn nodes(shown: &Value) -> Vec<&str> {
    let copies = shown["replicas"].as_array().expect("copies");
    let mut names: Vec<&str> = copies
        .iter()
        .map(|copy| copy["node"].as_str().expect("a name"))
        .collect();
    names.sort_unstable();
    names
}

fn are_in_sync(cluster: &Cluster, node: &str, expected: &[&str]) {
    eventually("these copies are in sync", || {
        let shown = cluster.volume(node);
        let copies = shown["replicas"].as_array().expect("copies");
        nodes(&shown) == expected && copies.iter().all(|copy| copy["state"] == "in_sync")
    });
}

#[test]
fn copies_come_and_go_and_a_node_takes_the_place_of_one_that_is_lost() {
    if !has_cluster() {
        return;
    }
    let cluster = Cluster::of("4");
    cluster.make_volume();
    cluster.serve_from("a");
    let replicate = |replicas: &str, more: &[&str]| {
        let words = ["volume", "replicate", "tank/db", "--replicas", replicas];
        cluster.to("a", &[&words[..], more].concat())
    };
    refuses(&mut replicate("2", &[]), 3, &["has copies on a, b already"]);
    refuses(&mut replicate("4", &[]), 2, &["4 replicas"]);
    refuses(&mut replicate("2", &["--nodes", "a,z"]), 3, &["no node z"]);
    refuses(&mut replicate("2", &["--nodes", "a,d"]), 2, &["copy of b"]);
    refuses(
        &mut replicate("1", &["--nodes", "b"]),
        2,
        &["this node's copy"],
    );
    ok(&mut replicate("3", &[]));
    are_in_sync(&cluster, "c", &["a", "b", "c"]);
    ok(&mut replicate("1", &[]));
    are_in_sync(&cluster, "a", &["a"]);
    assert!(!ok(&mut cluster.to("b", &["volume", "list"])).contains("tank/db"));
    ok(&mut replicate("3", &["--nodes", "a,b,c"]));
    are_in_sync(&cluster, "b", &["a", "b", "c"]);
    // A node without a copy is asked.
    cluster.kill("b");
    let replace = |old: &str, new: &str| cluster.to("d", &["node", "replace", old, "--with", new]);
    refuses(&mut replace("b", "b"), 2, &["its own place"]);
    refuses(&mut replace("z", "d"), 3, &["no node z"]);
    refuses(&mut replace("a", "b"), 3, &["node b is not reached"]);
    // What it has missed must not be waited for by its silence.
    eventually("it is left out", || {
        let shown = cluster.volume("a");
        let copies = shown["replicas"].as_array().expect("copies");
        copies.iter().any(|copy| copy["state"] == "absent")
    });
    ok(&mut replace("b", "d"));
    are_in_sync(&cluster, "d", &["a", "c", "d"]);
    // The old copy comes back: what counts at its place is another's, and nothing of it is its own.
    let epoch = cluster.volume("a")["epoch"].clone();
    begin(&mut cluster.daemon("b", &cluster.path("cluster.toml")));
    eventually("it says so", || {
        cluster.log("b").contains("place was given up")
    });
    std::thread::sleep(TAKES_OVER);
    assert_eq!(cluster.volume("a")["epoch"], epoch);
    let alone = ["volume", "run-alone", "tank/db", "--accept-data-loss"];
    refuses(&mut cluster.to("b", &alone), 3, &["place was given up"]);
    ok(&mut cluster.to("b", &["volume", "delete", "tank/db", "--destroy-data"]));
    are_in_sync(&cluster, "a", &["a", "c", "d"]);
    ok(&mut cluster.to("c", &["volume", "verify", "tank/db"]));
}
