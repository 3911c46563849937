//! Imports of what is damaged, short, mixed up or too new: refused with the drive's name and what to do,
//! and no byte is changed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use crate::common::eventually;
use crate::host::{BLOCK, Host};
use crate::load::Load;
use crate::node::{Node, Room, bytes_of};
use crate::random::Random;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LABELS: [u64; 2] = [0, 128 * KIB];
const ROOTS: [u64; 2] = [256 * KIB, 512 * KIB];

/// Overwrites 4 KiB at each of these places.
fn damage(room: &Room, drive: &str, places: &[u64]) {
    overwrite(room, drive, places, &[0xa5; 4096]);
}

fn overwrite(room: &Room, drive: &str, places: &[u64], with: &[u8]) {
    let file = OpenOptions::new().write(true).open(room.path(drive));
    let file = file.expect("a file");
    for at in places {
        file.write_all_at(with, *at).expect("a write");
    }
}

fn set_len(room: &Room, drive: &str, mib: u64) {
    let file = OpenOptions::new().write(true).open(room.path(drive));
    file.expect("a file").set_len(mib * MIB).expect("its size");
}

/// The words that import pool tank from these drives.
fn import<'a>(drives: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let named = drives.iter().flat_map(|drive| ["--drive", &drive[..]]);
    let words = ["pool", "import", "tank"].into_iter().chain(named);
    words.chain(more.iter().copied()).collect()
}

/// An import that is refused with this code, saying all of `names`: no drive is touched.
fn refused(node: &Node, room: &Room, import: &[&str], (code, names): (i32, &[&str])) {
    let mut drives: Vec<_> = std::fs::read_dir(room.dir.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.metadata().is_ok_and(|file| file.len() >= 16 * MIB))
        .collect();
    drives.sort();
    let before: Vec<_> = drives.iter().map(|path| bytes_of(path)).collect();
    node.refuses(import, code, names);
    for (path, before) in drives.iter().zip(before) {
        assert!(before == bytes_of(path), "{} was touched", path.display());
    }
}

/// Lets the pool go, as soon as the target has noticed that its hosts have gone.
fn export(node: &Node) {
    let mut export = node.command_to(&["pool", "export", "tank"]);
    let mut ends = || export.output().expect("it runs").status.success();
    eventually("no host is connected", &mut ends);
}

/// A pool tank of so many drives, d0 and so on, that holds something and is let go.
fn let_go(room: &Room, layout: &str, count: usize) -> (Node, Vec<String>, String, Load) {
    let mut random = Random::of_this_run(layout);
    let drives = room.drives(count, 64);
    let node = Node::start(room);
    node.make(&drives, layout, "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| round.more(300));
    export(&node);
    (node, drives, nqn, load)
}

#[test]
fn halves_that_have_left_each_other_out_are_not_put_together() {
    let room = Room::new();
    let (node, drives, nqn, mut load) = let_go(&room, "mirror:2", 2);
    for half in ["d1", "d0"] {
        let other = if half == "d0" { "d1" } else { "d0" };
        std::fs::rename(room.path(other), room.path("away")).expect("a file");
        let drive = [room.spec(half)];
        refused(
            &node,
            &room,
            &import(&drive, &[]),
            (2, &[other, "missing", "--degraded"]),
        );
        node.ok(&import(&drive, &["--degraded"]));
        if half == "d0" {
            // What only this half has.
            load.during(node.place(&nqn), |round| round.more(300));
        }
        export(&node);
        std::fs::rename(room.path("away"), room.path(other)).expect("a file");
    }
    let says = [
        "separate ways",
        "d0",
        "d1",
        "one side alone",
        "naming its drives",
    ];
    refused(&node, &room, &import(&drives, &[]), (2, &says));
    refused(&node, &room, &import(&drives, &["--degraded"]), (2, &says));
    // As it says.
    node.ok(&import(&drives[..1], &[]));
    load.verify(node.place(&nqn));
    node.ok(&[
        "pool",
        "add",
        "tank",
        "--destroy-data",
        "--drive",
        &drives[1],
    ]);
    node.await_healthy();
    load.verify(node.place(&nqn));
    node.end();
}

#[test]
fn a_drive_that_is_short_is_named() {
    let room = Room::new();
    let (node, drives, nqn, mut load) = let_go(&room, "mirror:2", 3);
    set_len(&room, "d1", 48);
    let says = ["d1", "cut short", "its size", "without it"];
    refused(&node, &room, &import(&drives, &[]), (2, &says));
    refused(&node, &room, &import(&drives, &["--degraded"]), (2, &says));
    set_len(&room, "d1", 0);
    refused(
        &node,
        &room,
        &import(&drives, &[]),
        (3, &["d1", "is empty", "leave it out", "--degraded"]),
    );
    // Without it the others are enough.
    node.ok(&import(&[drives[0].clone(), drives[2].clone()], &[]));
    load.verify(node.place(&nqn));
    node.await_healthy();
    node.end();
}

#[test]
fn two_pools_of_one_name_are_told_apart() {
    let room = Room::new();
    let node = Node::start(&room);
    let drives = room.drives(2, 64);
    let ids: Vec<String> = drives
        .iter()
        .map(|drive| {
            node.ok(&["pool", "create", "tank", "--drive", drive]);
            let id = crate::node::text(&node.status()["id"]);
            node.ok(&["pool", "export", "tank"]);
            id
        })
        .collect();
    let says = ["d1", "same name", &ids[0], &ids[1], "--id", "--as"];
    refused(&node, &room, &import(&drives, &[]), (3, &says));
    let by_id = ["--id", &ids[1][..]];
    refused(
        &node,
        &room,
        &import(&drives, &by_id),
        (3, &["d0", "same name", "--as"]),
    );
    node.ok(&import(&drives[1..], &by_id));
    assert_eq!(node.status()["id"], ids[1][..]);
    // That one is in service, so it is not the other that is asked for.
    let says = ["d0", "in service already", "--as", "pool add"];
    refused(&node, &room, &import(&drives[..1], &[]), (3, &says));
    node.ok(&import(&drives[1..], &[]));
    // Nor is it when it is known and its drive is gone.
    node.end();
    std::fs::rename(room.path("d1"), room.path("away")).expect("a file");
    let node = Node::start(&room);
    assert_eq!(node.state(), "failed");
    refused(
        &node,
        &room,
        &import(&drives[..1], &[]),
        (3, &["d0", "not in service", "--as", "export"]),
    );
    node.ok(&import(&drives[..1], &["--as", "lake"]));
    let lake = node.json(&["pool", "status", "lake"]);
    assert_eq!(lake["id"], ids[0][..]);
    std::fs::rename(room.path("away"), room.path("d1")).expect("a file");
    node.ok(&["pool", "import", "tank"]);
    assert_eq!(node.status()["id"], ids[1][..]);
    node.end();
}

#[test]
fn roots_that_are_damaged_on_one_drive_are_on_the_other() {
    let room = Room::new();
    let (node, drives, nqn, mut load) = let_go(&room, "mirror:2", 2);
    damage(&room, "d1", &ROOTS);
    node.ok(&import(&drives, &[]));
    assert_eq!(node.state(), "healthy");
    load.verify(node.place(&nqn));
    export(&node);
    // It has got its roots back.
    damage(&room, "d0", &ROOTS);
    node.ok(&import(&drives, &[]));
    load.verify(node.place(&nqn));
    export(&node);
    damage(&room, "d0", &ROOTS);
    damage(&room, "d1", &ROOTS);
    let says = ["d0", "d1", "no root", "Nothing was changed", "backup"];
    refused(&node, &room, &import(&drives, &[]), (3, &says));
    node.end();
}

#[test]
fn a_drive_without_a_label_is_not_left_out_in_silence() {
    let room = Room::new();
    let (node, drives, nqn, mut load) = let_go(&room, "mirror:2", 3);
    damage(&room, "d1", &LABELS);
    let says = ["d1", "no label", "for good", "leave it out", "--degraded"];
    refused(&node, &room, &import(&drives, &[]), (2, &says));
    // Of ours, and damaged.
    overwrite(&room, "d1", &LABELS, b"ASHLABEL");
    let says = ["d1", "checksum", "for good", "leave it out", "--degraded"];
    refused(&node, &room, &import(&drives, &[]), (2, &says));
    // One that is not there.
    let typo = [drives[0].clone(), drives[2].clone(), room.spec("d7")];
    refused(
        &node,
        &room,
        &import(&typo, &[]),
        (3, &["d7", "leave it out", "--degraded"]),
    );
    node.ok(&import(&drives, &["--degraded"]));
    load.verify(node.place(&nqn));
    node.await_healthy();
    node.end();
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, byte)
}

#[test]
fn a_label_of_another_version_is_refused_by_name() {
    let room = Room::new();
    let (mut node, drives, nqn, mut load) = let_go(&room, "mirror:2", 3);
    let old = bytes_of(&room.path("d2"))[..4096].to_vec();
    for version in [0u32, 2] {
        let mut label = old.clone();
        label[8..12].copy_from_slice(&version.to_le_bytes());
        label[12..16].fill(0);
        let crc = crc32c(&label);
        label[12..16].copy_from_slice(&crc.to_le_bytes());
        overwrite(&room, "d2", &LABELS, &label);
        let version = format!("version {version}");
        let says = ["d2", &version, "version 1", "another version of Ashlar"];
        refused(&node, &room, &import(&drives, &[]), (2, &says));
    }
    let newer = bytes_of(&room.path("d2"))[..4096].to_vec();
    overwrite(&room, "d2", &LABELS, &old);
    node.ok(&import(&drives, &[]));
    assert_eq!(node.state(), "healthy");
    load.verify(node.place(&nqn));
    node.end();
    // Nor does a daemon that starts leave it out, as it would one that is damaged.
    overwrite(&room, "d2", &LABELS, &newer);
    overwrite(&room, "d2", &LABELS[1..], &[7; 4096]);
    node = Node::start(&room);
    let status = node.status();
    assert_eq!(status["state"], "failed");
    let reason = crate::node::text(&status["reason"]);
    for word in ["d2", "version 2", "version of Ashlar"] {
        assert!(reason.contains(word), "{reason}");
    }
    overwrite(&room, "d2", &LABELS, &old);
    node.ok(&["pool", "import", "tank"]);
    assert_eq!(node.state(), "healthy");
    load.verify(node.place(&nqn));
    node.end();
}

/// The places of leaves that map 2 MiB of blocks which are all the same.
fn leaves(bytes: &[u8]) -> Vec<u64> {
    let is_leaf = |granule: &[u8]| {
        let (crcs, rest) = granule.split_at(2048);
        let same = crcs.chunks(4).all(|crc| *crc == crcs[..4]);
        same && crcs[..4] != [0; 4] && rest[..4] != crcs[..4] && rest.ends_with(&[0; 4])
    };
    let granules = bytes.chunks_exact(4096).enumerate();
    let found = granules.filter(|(_, granule)| is_leaf(granule));
    found.map(|(number, _)| number as u64 * 4096).collect()
}

#[test]
fn a_leaf_without_a_good_copy_is_lost_blocks_until_they_are_written() {
    let room = Room::new();
    let drives = room.drives(2, 64);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let write = |node: &Node| {
        let mut host = Host::connect(node.address, &nqn).expect("a host");
        for at in (0..512).step_by(16) {
            host.submit_write(0, at, vec![0x5a; 16 * BLOCK])
                .expect("a write");
            assert!(host.next().expect("an answer").status.is_success());
        }
    };
    let read = |node: &Node| {
        let mut host = Host::connect(node.address, &nqn).expect("a host");
        host.submit_read(0, 0, 1).expect("a read");
        host.next().expect("an answer")
    };
    write(&node);
    node.end();
    let harm = |name: &str| {
        let found = leaves(&bytes_of(&room.path(name)));
        assert!(!found.is_empty(), "{name} has no leaf");
        damage(&room, name, &found);
    };
    harm("d1");
    node = Node::start(&room);
    let done = read(&node);
    assert!(done.status.is_success() && done.data == vec![0x5a; BLOCK]);
    assert_eq!(node.state(), "healthy");
    node.end();
    harm("d0");
    for name in ["d0", "d1"] {
        let left = leaves(&bytes_of(&room.path(name)));
        damage(&room, name, &left);
    }
    node = Node::start(&room);
    assert!(!read(&node).status.is_success());
    assert_eq!(node.state(), "degraded");
    let status = node.status();
    let reason = crate::node::text(&status["reason"]);
    assert!(reason.contains("2097152 bytes are lost"), "{reason}");
    let lost = &status["lost"][0];
    assert_eq!(
        (&lost["offset_bytes"], &lost["lost_bytes"]),
        (&0.into(), &(2 << 20).into())
    );
    // The pool serves on, and what is written is there again.
    write(&node);
    let done = read(&node);
    assert!(done.status.is_success() && done.data == vec![0x5a; BLOCK]);
    assert!(node.status().get("lost").is_none(), "{}", node.status());
    node.end();
    node = Node::start(&room);
    assert!(read(&node).status.is_success());
    node.kill();
}
