use ashlar_node::model::VolumeName;

use crate::node::Node;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
const OTHER: &str = "nqn.2026-01.io.example:other";

fn with_pool() -> Node {
    let node = Node::start();
    node.done("pool create tank --drive /dev/a --drive /dev/b --drive /dev/c");
    node
}

#[test]
fn a_volume_from_its_making_to_its_end() {
    let node = with_pool();
    let made = node.json(&format!(
        "volume create tank/db --size 100GiB --layout parity:2+1 --grain 16k --allow-host {HOST} \
         --when-degraded stop"
    ));
    assert_eq!(made["bytes"], 100u64 << 30);
    assert_eq!(
        (&made["layout"], &made["grain_bytes"]),
        (&"parity:2+1".into(), &16384.into())
    );
    assert_eq!(
        (&made["allow_hosts"][0], &made["when_degraded"]),
        (&HOST.into(), &"stop".into())
    );
    assert_eq!(node.json("volume show tank/db"), made);
    assert_eq!(node.json("volume list"), serde_json::json!([made]));
    assert_eq!(node.json("volume list tank"), serde_json::json!([made]));
    assert_eq!(
        node.json("volume resize tank/db --size 200g")["bytes"],
        200u64 << 30
    );
    let more = node.json(&format!("volume allow tank/db --any-host --host {OTHER}"));
    assert_eq!(more["allow_any_host"], true);
    assert_eq!(more["allow_hosts"], serde_json::json!([HOST, OTHER]));
    let fewer = node.json(&format!("volume deny tank/db --any-host --host {HOST}"));
    assert_eq!(fewer["allow_hosts"], serde_json::json!([OTHER]));
    assert_eq!(node.json("volume hosts tank/db"), fewer);
    assert_eq!(node.json("volume stats tank/db")["write"]["bytes"], 40_960);
    let deleted = node.done("volume delete tank/db --destroy-data");
    assert_eq!(deleted, "volume tank/db is deleted\n");
    assert_eq!(node.done("volume list"), "there are no volumes\n");
}

#[test]
fn people_can_read_it() {
    let node = with_pool();
    let lonely = node.run("volume create tank/db --size 1GiB --layout mirror:2");
    assert_eq!(lonely.code, 0);
    for says in [
        "no host may connect",
        "volume allow tank/db --host NQN",
        "ashlar attach",
    ] {
        assert!(lonely.error.contains(says), "{says}: {}", lonely.error);
    }
    assert_eq!(
        node.done("volume hosts tank/db"),
        "no host may connect to tank/db\n"
    );
    let text = node.done("volume show tank/db");
    for (key, value) in [
        ("volume", "tank/db"),
        ("state", "online"),
        ("nqn", "nqn.2014-08.org.nvmexpress:uuid:"),
        ("nsid", "1"),
        ("address", "127.0.0.1:4420"),
        ("layout", "mirror:2"),
        ("size", "1 GiB (1073741824 bytes)"),
        ("atomic", "16 KiB"),
        ("allowed hosts", "none"),
    ] {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{key}:")));
        let line = line.unwrap_or_else(|| panic!("no {key} in\n{text}"));
        assert!(line.contains(value), "{line}");
    }
    let list = node.done("volume list");
    assert!(
        list.lines()
            .any(|line| line.starts_with("tank/db  online  mirror:2")),
        "{list}"
    );
    let stats = node.done("volume stats tank/db");
    assert!(
        stats
            .lines()
            .any(|line| line.contains("read") && line.contains("100 us")),
        "{stats}"
    );
    node.done(&format!("volume allow tank/db --host {HOST}"));
    let name: VolumeName = "tank/db".parse().expect("a name");
    node.control.use_volume(&name, HOST, 4096);
    let hosts = node.done(&format!("volume allow tank/db --host {OTHER}"));
    let rows: Vec<Vec<&str>> = hosts
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    assert_eq!(
        rows[1..],
        [[HOST, "by name", "yes"], [OTHER, "by name", "no"]],
        "{hosts}"
    );
    node.done("volume create tank/raw --size 1GiB --layout stripe --allow-any-host");
    let stripe = node.done("volume show tank/raw");
    assert!(stripe.contains("hosts must flush"), "{stripe}");
}

#[test]
fn data_and_hosts_are_not_lost_unasked() {
    let node = with_pool();
    node.done("volume create tank/db --size 1GiB --layout mirror:2 --allow-any-host");
    let name: VolumeName = "tank/db".parse().expect("a name");
    node.control.use_volume(&name, HOST, 4096);
    for (words, word) in [
        ("volume deny tank/db --any-host", "--disconnect"),
        ("volume delete tank/db --destroy-data", HOST),
        ("volume delete tank/db --force", "4096 bytes"),
        ("volume resize tank/db --size 4k", "--destroy-data"),
        ("pool export tank", "--force"),
    ] {
        let ended = node.run(words);
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{words}");
        assert!(ended.error.contains(word), "{words}: {}", ended.error);
    }
    node.done("volume show tank/db");
    let out = node.json("volume deny tank/db --any-host --disconnect");
    assert_eq!(out["connected_hosts"], serde_json::json!([]));
    node.done("volume delete tank/db --destroy-data --force");
}
