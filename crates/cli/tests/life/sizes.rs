//! Drives of different sizes in one pool.

use serde_json::Value;

use crate::node::{Node, Room};

const MIB: u64 = 1 << 20;

/// What cannot be matched of each drive.
fn unmatched(status: &Value) -> Vec<u64> {
    let drives = status["drives"].as_array().expect("drives").iter();
    let unmatched = drives.filter(|drive| drive["state"] == "online");
    let unmatched = unmatched.map(|drive| drive["unmatched_bytes"].as_u64());
    unmatched.map(|bytes| bytes.expect("a number")).collect()
}

#[test]
fn what_the_small_drive_of_two_keeps_from_use_is_said() {
    let room = Room::new();
    let drives = [room.drive("small", 96), room.drive("large", 512)];
    let node = Node::start(&room);
    let create = [
        "pool", "create", "tank", "--drive", &drives[0], "--drive", &drives[1],
    ];
    let warning = "cannot be used by volumes that survive the loss of a drive";
    let said = node.ok(&create);
    assert!(said.contains(warning) && said.contains("large"), "{said}");
    let status = node.status();
    assert!(
        status["warnings"].to_string().contains(warning),
        "{status:#}"
    );
    let left = unmatched(&status);
    assert!(
        left[0] == 0 && left[1] > 400 * MIB && left[1] < 430 * MIB,
        "{left:?}"
    );
    let third = room.drive("third", 512);
    let grown = node.json(&["pool", "add", "tank", "--drive", &third]);
    assert_eq!(unmatched(&grown), [0, 0, 0], "{grown:#}");
    assert!(
        !grown["warnings"].to_string().contains(warning),
        "{grown:#}"
    );
    // A smaller one in its place is taken, and that is said.
    let small = room.drive("fourth", 96);
    let replace = ["pool", "replace", "tank", "--old", &third, "--new", &small];
    let said = node.ok(&replace);
    for part in [
        "fourth is smaller than drive",
        "third, which it replaces",
        warning,
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let log = node.said();
    assert!(log.contains("is smaller than drive"), "{log}");
    node.await_healthy();
    let left = unmatched(&node.status());
    assert!(left[1] > 300 * MIB, "{left:?}");
    node.end();
}
