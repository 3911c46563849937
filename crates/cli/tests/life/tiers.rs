//! Volumes on a class of drives, with a hot home on a faster one, and a cache on one class: as they are asked for, and as
//! they are shown.

use serde_json::Value;

use crate::common::eventually;
use crate::host::{BLOCK, Host};
use crate::node::{Node, Room, text};

/// Three slow drives and two fast ones.
const CLASSES: [&str; 5] = ["hdd", "hdd", "hdd", "nvme", "nvme"];

fn pool(room: &Room, node: &Node) {
    let drives = room.drives(CLASSES.len(), 192);
    let mut create = vec!["pool".to_owned(), "create".to_owned(), "tank".to_owned()];
    for (drive, class) in drives.iter().zip(CLASSES) {
        create.extend(["--drive".to_owned(), format!("{drive}?class={class}")]);
    }
    let words: Vec<&str> = create.iter().map(String::as_str).collect();
    node.ok(&words);
}

const CREATE: [&str; 8] = [
    "volume",
    "create",
    "tank/db",
    "--allow-any-host",
    "--size",
    "48MiB",
    "--layout",
    "parity:2+1",
];
const TIERED: [&str; 6] = [
    "--class",
    "hdd",
    "--hot",
    "mirror:2@nvme",
    "--hot-share",
    "25%",
];

fn shown(node: &Node) -> Value {
    node.json(&["volume", "show", "tank/db"])
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("a number: {value}"))
}

/// Writes all of the volume in whole slots, and the first blocks of it again and again; reads these.
fn load(node: &Node) {
    let mut host = Host::connect(node.address, &node.nqn()).expect("served");
    let blocks = (48 << 20) / BLOCK as u64;
    for at in (0..blocks).step_by(64) {
        one(
            &mut host,
            Ask {
                at,
                blocks: 64,
                write: true,
            },
        );
    }
    for round in 0..3 {
        for at in 0..256 {
            one(
                &mut host,
                Ask {
                    at: at * 2,
                    blocks: 1,
                    write: round < 2,
                },
            );
        }
    }
}

struct Ask {
    at: u64,
    blocks: u64,
    write: bool,
}

fn one(host: &mut Host, ask: Ask) {
    match ask.write {
        true => host.submit_write(0, ask.at, vec![7; ask.blocks as usize * BLOCK]),
        false => host.submit_read(0, ask.at, ask.blocks),
    }
    .expect("sent");
    let done = host.next().expect("an answer");
    assert!(done.status.is_success(), "{:?}", done.status);
}

/// What is shown in both ways, of one moment, when the hot home has something.
fn at_rest(node: &Node) -> (Value, String) {
    let mut found = None;
    eventually("what is small and hot is in the hot home", || {
        let tier = shown(node)["tier"].clone();
        let said = node.ok(&["volume", "show", "tank/db"]);
        let is_same = tier == shown(node)["tier"];
        found = Some((tier, said)).filter(|(tier, _)| is_same && number(&tier["hot_bytes"]) > 0);
        found.is_some()
    });
    found.expect("it was found")
}

fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.contains(line), "{line:?}: {text}");
    }
}

#[test]
fn a_volume_lies_on_its_class_and_what_is_hot_of_it_on_a_faster_one() {
    let room = Room::new();
    let mut node = Node::start(&room);
    pool(&room, &node);
    let bad = |more: &[&str], code: i32, names: &[&str]| {
        node.refuses(&[&CREATE[..], more].concat(), code, names);
        assert_eq!(
            node.json(&["volume", "list"]).as_array().map(Vec::len),
            Some(0)
        );
    };
    bad(&["--class", "tape"], 2, &["tape", "nvme"]);
    bad(&["--class", "ssd"], 2, &["class ssd", "the pool has 0"]);
    bad(
        &["--hot", "parity:2+1@nvme"],
        2,
        &["hot home", "it is a mirror"],
    );
    bad(&["--hot", "mirror:2@tape"], 2, &["class `tape`"]);
    bad(&["--hot", "mirror:3@nvme"], 2, &["nvme"]);
    bad(&["--hot", "mirror:1@nvme"], 2, &["mirror:1"]);
    bad(&["--hot-share", "20%"], 2, &["--hot"]);
    for share in ["0%", "91%", "much"] {
        bad(
            &["--hot", "mirror:2@nvme", "--hot-share", share],
            2,
            &[share, "1% to 90%"],
        );
    }

    node.ok(&[&CREATE[..], &TIERED].concat());
    let volume = shown(&node);
    assert_eq!(volume["class"], "hdd");
    let tier = &volume["tier"];
    assert_eq!(tier["hot"], "mirror:2@nvme");
    assert_eq!(
        (number(&tier["share_percent"]), number(&tier["share_bytes"])),
        (25, 12 << 20)
    );
    assert_eq!((number(&tier["hot_bytes"]), number(&tier["reads"])), (0, 0));
    let said = node.ok(&["volume", "show", "tank/db"]);
    has(
        &said,
        &[
            "hdd",
            "mirror:2@nvme",
            "0 B of 12 MiB (25 %)",
            "no reads yet",
            "no writes yet",
        ],
    );

    load(&node);
    let (tier, said) = at_rest(&node);
    let (reads, hits) = (number(&tier["reads"]), number(&tier["read_hits"]));
    assert!(0 < hits && hits <= reads, "{tier:#}");
    let cost = tier["device_bytes_per_user_byte"].as_f64();
    let cost = cost.expect("a number");
    // Parity of two columns costs 1.5; what moves and what is small costs more.
    assert!((1.5..3.0).contains(&cost), "{tier:#}");
    let share = 100.0 * hits as f64 / reads as f64;
    has(
        &said,
        &[
            "MiB of 12 MiB (25 %)",
            &format!("{share:.1} % of {reads} slots read"),
            "MiB to the hot home, 0 B from it",
            &format!("{cost:.2} (ring, homes and moves)"),
        ],
    );

    node.end();
    node = Node::start(&room);
    let after = shown(&node);
    assert_eq!(after["class"], "hdd");
    // What it is stays, and what is there; what has happened is counted from the import on.
    for same in ["hot", "share_percent", "share_bytes"] {
        assert_eq!(after["tier"][same], tier[same], "{same}");
    }
    assert!(number(&after["tier"]["hot_bytes"]) >= number(&tier["hot_bytes"]));
    for new in ["reads", "read_hits", "promoted_bytes", "demoted_bytes"] {
        assert_eq!(number(&after["tier"][new]), 0, "{new}");
    }
    node.end();
}

#[test]
fn a_cache_is_laid_out_where_and_as_it_is_asked_for() {
    let room = Room::new();
    let mut node = Node::start(&room);
    pool(&room, &node);
    let (_, spec) = crate::cache::backing(&room, "old");
    let create = [
        "volume",
        "create",
        "tank/db",
        "--allow-any-host",
        "--backing",
        &spec,
    ];
    let flags = [
        "--cache",
        "8MiB",
        "--mode",
        "write-through",
        "--layout",
        "mirror:1",
        "--class",
        "nvme",
    ];
    for (more, names) in [
        (["--mode", "write-behind"], ["write-behind", "write-back"]),
        (["--layout", "stripe"], ["stripe", "cache"]),
        (["--hot", "mirror:2@nvme"], ["--hot", "--backing"]),
        (["--size", "48MiB"], ["--size", "--backing"]),
    ] {
        node.refuses(&[&create[..], &more].concat(), 2, &names);
    }
    node.ok(&[&create[..], &flags].concat());
    for life in 0..2 {
        let volume = shown(&node);
        assert_eq!(volume["class"], "nvme", "life {life}");
        assert_eq!(volume["layout"], "mirror:1", "life {life}");
        assert_eq!(volume["cache"]["mode"], "write-through", "life {life}");
        assert_eq!(volume["cache"]["cache_bytes"], 8 << 20, "life {life}");
        let said = node.ok(&["volume", "show", "tank/db"]);
        has(
            &said,
            &[
                "write-through",
                "8 MiB",
                "mirror:1",
                "nvme",
                &text(&volume["cache"]["backing"]),
            ],
        );
        node.kill();
        node = Node::start(&room);
    }
    node.ok(&["volume", "delete", "tank/db"]);
    node.end();
}
