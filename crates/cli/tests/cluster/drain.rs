//! Nodes that are drained, and pools that are on another node than theirs.

use crate::common::{ended, eventually, ok, refuses};
use crate::rig::{Cluster, begin, has_cluster};

fn state_of(cluster: &Cluster, node: &str) -> String {
    let shown = cluster.volume("a");
    let copies = shown["replicas"].as_array().expect("copies");
    let copy = copies.iter().find(|copy| copy["node"] == node);
    let state = copy.expect("a copy")["state"].as_str();
    state.expect("a word").to_owned()
}

#[test]
fn a_volume_whose_other_copy_is_not_in_sync_keeps_its_node_from_being_drained() {
    if !has_cluster() {
        return;
    }
    let cluster = Cluster::up();
    cluster.make_volume();
    cluster.serve_from("a");
    cluster.kill("b");
    eventually("it is left out", || state_of(&cluster, "b") == "absent");
    let of = |name: &str, labels: &str| {
        let series = format!("ashlar_replica_{name}{{pool=\"tank\",volume=\"db\"{labels}}}");
        cluster.metrics("a").get(&series).copied()
    };
    assert_eq!(of("owner", ""), Some(1.0), "{:?}", cluster.metrics("a"));
    let state = |word: &str| of("state", &format!(",node=\"b\",state=\"{word}\""));
    assert_eq!((state("absent"), state("in_sync")), (Some(1.0), Some(0.0)));
    let drain = ["node", "drain", "a"];
    let says = [
        "tank/db: stays: node b is not reached",
        "node a is not drained: 1 of",
    ];
    let said = ended(&mut cluster.to("a", &drain));
    let all = said.out + &said.error;
    assert_eq!(said.code, 3, "{all}");
    for word in says {
        assert!(all.contains(word), "{word}: {all}");
    }
    assert_eq!(cluster.volume("a")["owner"], "a", "it serves on");
    begin(&mut cluster.daemon("b", &cluster.path("cluster.toml")));
    eventually(
        "it is given what it missed, and the node is drained",
        || {
            let said = ended(&mut cluster.to("a", &drain));
            assert!(said.code == 0 || said.code == 3, "{}", said.error);
            said.code == 0
        },
    );
    eventually("the other serves", || cluster.volume("b")["owner"] == "b");
    eventually("this one owns it no more", || of("owner", "") == Some(0.0));
    let epoch = cluster.volume("b")["epoch"].as_f64();
    let seen = cluster.metrics("b");
    let seen = |name: &str| {
        seen.get(&format!(
            "ashlar_replica_{name}{{pool=\"tank\",volume=\"db\"}}"
        ))
    };
    assert_eq!((seen("owner"), seen("epoch").copied()), (Some(&1.0), epoch));
    ok(&mut cluster.to("b", &["node", "undrain", "a"]));
}

#[test]
fn a_third_node_with_the_pool_of_another_serves_nothing_of_it_and_harms_nothing() {
    if !has_cluster() {
        return;
    }
    let cluster = Cluster::of("3");
    cluster.make_volume();
    cluster.serve_from("a");
    eventually("both are in sync", || state_of(&cluster, "b") == "in_sync");
    cluster.kill("b");
    let mut import = vec!["pool", "import", "tank", "--as", "theirs"];
    let drives = ["drive-0", "drive-1"].map(|name| {
        let to = cluster.path("c").join(format!("theirs-{name}"));
        std::fs::copy(cluster.path("b").join(name), &to).expect("copied");
        to.display().to_string()
    });
    drives
        .iter()
        .for_each(|drive| import.extend(["--drive", drive]));
    let epoch = cluster.volume("a")["epoch"].clone();
    // The pool is in service; of the copy it says why that is not.
    let said = ended(&mut cluster.to("c", &import));
    let shown = ended(&mut cluster.to("c", &["volume", "show", "theirs/db"]));
    let all = said.out + &said.error + &shown.out + &shown.error;
    assert!(all.contains("another node's"), "{all}");
    let move_here = ["volume", "move", "tank/db", "--to", "c"];
    refuses(&mut cluster.to("a", &move_here), 3, &["node c has no copy"]);
    assert_eq!(cluster.volume("a")["owner"], "a");
    // What is deleted there is nothing of the others.
    ok(&mut cluster.to("c", &["volume", "delete", "theirs/db", "--destroy-data"]));
    begin(&mut cluster.daemon("b", &cluster.path("cluster.toml")));
    eventually("its own node has it in sync", || {
        state_of(&cluster, "b") == "in_sync"
    });
    assert_eq!(cluster.volume("a")["epoch"], epoch);
}
