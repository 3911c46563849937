//! What `pool status` shows of drives and of the work on them.

use serde_json::Value;

use crate::common::eventually;
use crate::load::Load;
use crate::loss::{Mortal, written};
use crate::node::{Node, Room, text};
use crate::random::Random;

/// The drives that are shown, as they are named.
fn shown(node: &Node) -> Vec<String> {
    let status = node.status();
    let drives = status["drives"].as_array().expect("drives").iter();
    drives.map(|drive| text(&drive["spec"])).collect()
}

fn drive(node: &Node, spec: &str) -> Value {
    let status = node.status();
    let mut drives = status["drives"].as_array().expect("drives").iter();
    let found = drives.find(|drive| drive["spec"] == spec);
    found
        .unwrap_or_else(|| panic!("{spec} is not in {status:#}"))
        .clone()
}

#[test]
fn a_write_that_fails_is_an_error_of_a_write() {
    let room = Room::new();
    let mortal = Mortal::new(96);
    let drives = [room.drive("d0", 96), mortal.spec()];
    let node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    assert!(written(&node, &nqn).is_success());
    mortal.die();
    assert!(written(&node, &nqn).is_success());
    eventually("the drive is out", || {
        drive(&node, &drives[1])["state"] == "failed"
    });
    let errors = drive(&node, &drives[1])["errors"].clone();
    assert_eq!(errors["read"], 0, "{errors}");
    assert!(errors["write"].as_u64() > Some(0), "{errors}");
    node.end();
}

#[test]
fn a_missing_drive_has_its_name() {
    let room = Room::new();
    let mut drives = room.drives(3, 96);
    for (drive, class) in drives.iter_mut().zip(["ssd", "ssd", "hdd"]) {
        drive.push_str(&format!("?class={class}"));
    }
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    node.end();
    std::fs::remove_file(room.path("d2")).expect("a file");
    let is_known = |node: &Node| {
        let gone = drive(node, &drives[2]);
        assert_eq!(
            (&gone["state"], &gone["class"]),
            (&"missing".into(), &"hdd".into())
        );
        let back = format!("`pool add tank --drive '{}'` takes it back", drives[2]);
        let warnings = node.status()["warnings"].to_string();
        let fits = warnings.contains(&back) || warnings.contains("being made again");
        assert!(fits, "{warnings}");
    };
    node = Node::start(&room);
    is_known(&node);
    // It is remembered also when the pool's drives are written down anew.
    node.ok(&["pool", "add", "tank", "--drive", &room.drive("d3", 96)]);
    is_known(&node);
    node.kill();
    node = Node::start(&room);
    is_known(&node);
    assert_eq!(drive(&node, &drives[0])["class"], "ssd");
    // And when the pool has been away, and with the daemon's name for it.
    node.ok(&["pool", "export", "tank"]);
    let some = ["--drive", &drives[0], "--drive", &drives[1]];
    node.ok(&[
        &["pool", "import", "tank"],
        &some[..],
        &["--drive", &room.spec("d3")],
    ]
    .concat());
    is_known(&node);
    node.end();
}

#[test]
fn a_drive_that_was_removed_is_shown_no_more() {
    let mut random = Random::of_this_run("removed");
    let room = Room::new();
    let drives = room.drives(4, 96);
    let spare = room.drive("d4", 96);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| round.more(500));
    let answer = node.json(&["pool", "remove", "tank", "--drive", &drives[3]]);
    let evacuation = answer["work"].as_array().expect("work").iter();
    let evacuations: Vec<_> = evacuation
        .filter(|work| work["what"] == "evacuate")
        .collect();
    assert_eq!(evacuations.len(), 1, "{answer:#}");
    assert_eq!(evacuations[0]["subject"], drives[3][..], "{answer:#}");
    assert_eq!(answer["drives"][3]["state"], "evacuating", "{answer:#}");
    let shows = |node: &Node, expected: &[&String]| {
        eventually("the drive is gone", || {
            shown(node).iter().eq(expected.iter().copied())
        });
        node.await_healthy();
        let warnings = node.status()["warnings"].to_string();
        assert!(!warnings.contains("out of service"), "{warnings}");
    };
    let expected = [&drives[0], &drives[1], &drives[2]];
    shows(&node, &expected);
    node.refuses(
        &["pool", "remove", "tank", "--drive", &drives[3]],
        3,
        &["no drive"],
    );
    node.end();
    node = Node::start(&room);
    assert!(shown(&node).iter().eq(expected));
    // One that was lost stays until it is removed or replaced.
    node.end();
    std::fs::remove_file(room.path("d2")).expect("a file");
    node = Node::start(&room);
    node.await_healthy();
    assert_eq!(drive(&node, &drives[2])["state"], "missing");
    node.ok(&["pool", "remove", "tank", "--drive", &drives[2]]);
    shows(&node, &expected[..2]);
    let layouts = node.status()["layouts"].to_string();
    let three = ["mirror:3", "parity:2+1"];
    assert!(
        !three.iter().any(|layout| layouts.contains(layout)),
        "of two drives: {layouts}"
    );
    node.ok(&[
        "pool", "replace", "tank", "--old", &drives[1], "--new", &spare,
    ]);
    shows(&node, &[&drives[0], &spare]);
    node.kill();
    node = Node::start(&room);
    shows(&node, &[&drives[0], &spare]);
    load.verify(node.place(&nqn));
    node.end();
}
