//! States of pools, drives, volumes and work, and the way out of each that is advised (docs/operations.md).

use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use crate::common::eventually;
use crate::drives::{noise, scrubbed};
use crate::load::Load;
use crate::loss::{Mortal, written};
use crate::node::{Node, Room, text};
use crate::random::Random;

fn warnings(node: &Node) -> String {
    node.status()["warnings"].to_string()
}

/// The only work of a pool.
fn work(node: &Node) -> Value {
    node.status()["work"][0].clone()
}

#[test]
fn bad_copies_are_not_healthy_until_a_scrub_has_mended_them() {
    let mut random = Random::of_this_run("bad copies");
    let room = Room::new();
    let drives = room.drives(2, 96);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| round.more(500));
    node.end();
    noise(&room, "d1", 300, &mut random);
    node = Node::start(&room);
    eventually("bad copies are found", || {
        load.verify(node.place(&nqn));
        node.status()["counters"]["bad_copy_bytes"].as_u64() > Some(0)
    });
    let status = node.status();
    assert_eq!(status["state"], "degraded", "{status:#}");
    let reason = text(&status["reason"]);
    let says = ["bad copies were found", &drives[1], "`pool scrub`"];
    assert!(says.iter().all(|word| reason.contains(word)), "{reason}");
    assert_eq!(status["drives"][1]["state"], "online");
    scrubbed(&node);
    node.await_healthy();
    assert_eq!(node.status()["counters"]["lost_bytes"], 0);
    for word in [
        "bad copies of 4 KiB found on drive",
        "bad copies mended from good ones",
    ] {
        eventually(word, || node.said().contains(word));
    }
    // The file system gets back what was deleted.
    let taken = || room.path("d1").metadata().expect("there").blocks() * 512;
    let before = taken();
    node.ok(&["volume", "delete", "tank/db", "--destroy-data"]);
    eventually("its space comes back", || taken() + (1 << 20) < before);
    node.end();
}

#[test]
fn work_waits_is_stuck_and_ends_as_advised() {
    let room = Room::new();
    let mortal = Mortal::new(96);
    let drives = [room.drive("d0", 96), mortal.spec()];
    let node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    assert!(written(&node, &nqn).is_success());
    mortal.die();
    assert!(written(&node, &nqn).is_success());
    eventually("the repair waits, or has found no room", || {
        let work = work(&node);
        work["what"] == "rebuild" && (work["state"] == "waiting" || work["state"] == "stuck")
    });
    assert_eq!(node.state(), "degraded");
    node.ok(&["pool", "repair", "tank"]);
    eventually("it is stuck", || work(&node)["state"] == "stuck");
    let reason = text(&work(&node)["reason"]);
    assert!(reason.contains("add one"), "{reason}");
    assert_eq!(
        node.json(&["volume", "show", "tank/db"])["state"],
        "degraded"
    );
    let said = warnings(&node);
    let replace = format!("`pool replace tank --old '{}' --new DEVICE`", drives[1]);
    assert!(
        said.contains("is failed") && said.contains(&replace),
        "{said}"
    );
    let spare = room.drive("spare", 96);
    let replaced = node.json(&[
        "pool", "replace", "tank", "--old", &drives[1], "--new", &spare,
    ]);
    let said = replaced["warnings"].to_string();
    assert!(!said.contains(&replace), "it is being replaced: {said}");
    node.await_healthy();
    assert_eq!(node.json(&["volume", "show", "tank/db"])["state"], "online");
    let drives = node.status()["drives"].as_array().map(Vec::len);
    assert_eq!(
        (drives, warnings(&node).contains("is failed")),
        (Some(2), false)
    );
    node.end();
}

fn move_drive(room: &Room, from: &str, to: &str) {
    std::fs::rename(room.path(from), room.path(to)).expect("a file");
}

#[test]
fn a_pool_that_is_not_in_service_is_imported_without_a_restart() {
    let room = Room::new();
    let drives = room.drives(3, 96);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    assert!(written(&node, &nqn).is_success());
    let leave = || ["d1", "d2"].map(|drive| move_drive(&room, drive, &format!("{drive}-away")));
    let return_ = || ["d1", "d2"].map(|drive| move_drive(&room, &format!("{drive}-away"), drive));
    node.end();
    leave();
    node = Node::start(&room);
    assert_eq!(node.state(), "failed");
    let said = warnings(&node);
    for way_out in ["`pool import tank`", "--degraded", "`pool export tank`"] {
        assert!(said.contains(way_out), "{said}");
    }
    node.refuses(&["volume", "show", "tank/db"], 3, &["missing"]);
    // Trying again changes nothing while the drives are away.
    node.refuses(&["pool", "import", "tank"], 2, &["missing"]);
    assert_eq!(node.state(), "failed");
    return_();
    node.ok(&["pool", "import", "tank"]);
    assert_eq!(node.state(), "healthy");
    assert!(written(&node, &nqn).is_success());
    node.end();
    // The other way out.
    leave();
    node = Node::start(&room);
    node.ok(&["pool", "export", "tank"]);
    assert_eq!(node.ok(&["pool", "list"]), "there are no pools\n");
    return_();
    let named = drives.iter().flat_map(|drive| ["--drive", drive]);
    let import: Vec<&str> = ["pool", "import", "tank"]
        .into_iter()
        .chain(named)
        .collect();
    node.ok(&import);
    assert_eq!(node.state(), "healthy");
    assert!(written(&node, &nqn).is_success());
    node.end();
}

#[test]
fn one_of_two_drives_goes_on_by_itself_and_then_not_the_other() {
    let mut random = Random::of_this_run("half");
    let room = Room::new();
    let drives = room.drives(2, 96);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| round.more(300));
    node.kill();
    move_drive(&room, "d0", "away");
    node = Node::start(&room);
    assert_eq!(node.state(), "degraded");
    load.during(node.place(&nqn), |round| round.more(300));
    node.kill();
    // The other one lacks what was written since.
    move_drive(&room, "d1", "away-too");
    move_drive(&room, "away", "d0");
    node = Node::start(&room);
    assert_eq!(node.state(), "failed");
    node.refuses(&["pool", "import", "tank"], 2, &["missing", "--degraded"]);
    move_drive(&room, "away-too", "d1");
    node.ok(&["pool", "import", "tank"]);
    load.verify(node.place(&nqn));
    node.await_healthy();
    node.end();
}

#[test]
fn a_stripe_that_has_lost_a_drive_is_deleted_and_its_space_comes_back() {
    let room = Room::new();
    let mortal = Mortal::new(96);
    let drives = [room.drive("d0", 96), room.drive("d1", 96), mortal.spec()];
    let node = Node::start(&room);
    node.make(&drives, "mirror:3", "16MiB");
    let stripe = ["volume", "create", "tank/raw", "--layout", "stripe"];
    node.ok(&[&stripe[..], &["--size", "8MiB"]].concat());
    mortal.die();
    assert!(written(&node, &node.nqn()).is_success());
    let show = || node.json(&["volume", "show", "tank/raw"]);
    eventually("it has failed", || show()["state"] == "failed");
    let reason = text(&show()["reason"]);
    assert!(reason.contains("`volume delete`"), "{reason}");
    eventually("the log says so", || {
        node.said().contains("volume tank/raw: ")
    });
    node.ok(&["volume", "delete", "tank/raw", "--destroy-data"]);
    eventually("its space is given back", || {
        let list = node.json(&["volume", "list"]);
        let volumes = list.as_array().expect("a list").iter();
        let mut left = volumes.filter(|volume| volume["name"] == "raw");
        left.all(|volume| volume["state"] == "deleting") && volumes_are(&node, 1)
    });
    eventually("the log says so", || {
        node.said()
            .contains("volume tank/raw is gone, and its space is free")
    });
    node.end();
}

fn volumes_are(node: &Node, count: usize) -> bool {
    let list = node.json(&["volume", "list"]);
    list.as_array()
        .is_some_and(|volumes| volumes.len() == count)
}

#[test]
fn a_volume_larger_than_the_pool_says_so_when_it_is_made() {
    let room = Room::new();
    let drives = room.drives(2, 96);
    let node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let fits = node.json(&["volume", "show", "tank/db"]);
    assert_eq!(fits["warnings"], Value::Null, "it has room");
    let large = [
        "volume",
        "create",
        "tank/large",
        "--size",
        "1GiB",
        "--layout",
    ];
    let said = node.ok(&[&large[..], &["mirror:2"]].concat());
    for word in [
        "warning: ",
        "1 GiB of its 1 GiB are not written yet",
        "as mirror:2",
        "pool add",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let stripe = [
        "volume", "create", "tank/raw", "--size", "1GiB", "--layout", "stripe",
    ];
    node.refuses(
        &stripe,
        3,
        &["1 GiB more are asked for", "MiB are free as a stripe"],
    );
    let listed = node.ok(&["volume", "list"]);
    assert!(!listed.contains("tank/raw"), "{listed}");
    node.end();
}
