//! Volumes that cache a device: what was acknowledged is there whatever is killed, and after a flush the device has
//! it all by itself. What does not fit together is refused by name, and nothing is lost.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{Running, ended, eventually, send};
use crate::host::{BLOCK, Host};
use crate::load::Load;
use crate::node::{Node, Room, bytes_of, text};
use crate::random::{Random, rounds};

/// Bytes of the backing devices here.
const BACKING: u64 = 48 << 20;
/// Of these, in the middle, what was there before and stays.
const OLD: std::ops::Range<u64> = 20 << 20..40 << 20;
/// What the mark replaces.
pub const HEAD: usize = 128 << 10;

/// A file with old content, as a device is named.
pub fn backing(room: &Room, name: &str) -> (PathBuf, String) {
    let path = room.path(name);
    let file = File::create(&path).expect("a file");
    file.set_len(BACKING).expect("a sparse file");
    for at in OLD.step_by(1 << 20) {
        file.write_all_at(&old(at), at).expect("written");
    }
    (path, room.spec(name))
}

/// The mebibyte that was at `at` from the beginning.
fn old(at: u64) -> Vec<u8> {
    let words = (0..1u64 << 17)
        .flat_map(|word| (at ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
    words.collect()
}

pub fn check_old(path: &Path) {
    let file = File::open(path).expect("a file");
    for at in OLD.step_by(1 << 20) {
        let mut found = vec![0; 1 << 20];
        file.read_exact_at(&mut found, at).expect("read");
        assert!(found == old(at), "what was at {at} has changed");
    }
}

/// Pool tank, and the cache tank/db over a device.
pub fn make(room: &Room, node: &Node, spec: &str, more: &[&str]) {
    let drives = room.drives(2, 96);
    node.ok(&[
        "pool", "create", "tank", "--drive", &drives[0], "--drive", &drives[1],
    ]);
    let create = [
        "volume",
        "create",
        "tank/db",
        "--allow-any-host",
        "--backing",
        spec,
    ];
    node.ok(&[&create[..], more].concat());
}

pub fn shown(node: &Node) -> serde_json::Value {
    node.json(&["volume", "show", "tank/db"])
}

/// Writes a block of `byte` at `at`.
pub fn write(node: &Node, at: u64, byte: u8) {
    let mut host = Host::connect(node.address, &node.nqn()).expect("served");
    host.submit_write(0, at, vec![byte; BLOCK]).expect("sent");
    let done = host.next().expect("an answer");
    assert!(done.status.is_success(), "{:?}", done.status);
}

pub fn read(node: &Node, at: u64) -> Vec<u8> {
    let mut host = Host::connect(node.address, &node.nqn()).expect("served");
    host.submit_read(0, at, 1).expect("sent");
    let done = host.next().expect("an answer");
    assert!(done.status.is_success(), "{:?}", done.status);
    done.data
}

/// Whether the device says that what is newest of it is elsewhere.
pub fn is_marked(path: &Path) -> bool {
    let head = &bytes_of(path)[..HEAD];
    let text = b"ASHLAR CACHE";
    head.windows(text.len()).any(|window| window == text)
}

#[test]
fn a_killed_cache_loses_nothing_and_leaves_a_whole_device() {
    let mut random = Random::of_this_run("cache");
    let room = Room::new();
    let (path, spec) = backing(&room, "old");
    let mut node = Node::start(&room);
    make(&room, &node, &spec, &["--cache", "8MiB"]);
    let nqn = node.nqn();
    // Twice what the cache takes.
    let mut load = Load::new(4096, &mut random).whole_up_to(1);
    for round in 0..rounds(3, 60) {
        let before = load.acknowledged();
        let alive = Duration::from_millis(random.between(50, 800));
        let in_order = random.below(5) == 0;
        load.during(node.place(&nqn), |round| {
            round.more(30);
            std::thread::sleep(alive);
            round.will_be_killed();
            match in_order {
                true => node.end(),
                false => node.kill(),
            }
        });
        assert!(load.acknowledged() > before, "round {round} has written");
        assert!(is_marked(&path), "the device is not whole by itself");
        if random.below(2) == 0 {
            Node::stillborn(&room, Duration::from_millis(random.between(1, 200)));
        }
        node = Node::start(&room);
        load.verify(node.place(&nqn));
    }
    // A flush in the middle of a load ends, too.
    load.during(node.place(&nqn), |round| {
        round.more(100);
        node.ok(&["volume", "flush", "tank/db"]);
    });
    load.verify(node.place(&nqn));
    let cache = &shown(&node)["cache"];
    assert!(
        cache["written_back_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 0),
        "{cache:#}"
    );
    node.refuses(
        &["volume", "delete", "tank/db"],
        2,
        &["not on its backing device", "volume flush"],
    );
    node.ok(&["volume", "flush", "tank/db"]);
    node.ok(&["volume", "delete", "tank/db"]);
    load.verify_file(&path);
    check_old(&path);
    node.end();
    println!("{} writes acknowledged", load.acknowledged());
}

#[test]
fn a_device_that_does_not_fit_is_refused_by_name() {
    let room = Room::new();
    let (path, spec) = backing(&room, "old");
    let node = Node::start(&room);
    make(&room, &node, &spec, &[]);
    let create = |spec: &str, code: i32, names: &[&str]| {
        let create = ["volume", "create", "tank/other", "--backing", spec];
        node.refuses(&create, code, names);
        // Its name is free, and nothing is left of it.
        let volumes = node.json(&["volume", "list"]);
        assert_eq!(volumes.as_array().map(Vec::len), Some(1), "{volumes:#}");
    };
    create(&room.spec("nothing"), 3, &["nothing"]);
    assert!(!room.path("nothing").exists(), "nothing was made");
    create(
        &format!("file:{}", room.dir.path().display()),
        2,
        &["is a directory"],
    );
    create(&spec, 3, &["old", "in use by this process"]);
    let (_, other) = backing(&room, "other");
    for words in [["--replicas", "2"], ["--nodes", "a,b"]] {
        let create = ["volume", "create", "tank/other", "--backing", &other];
        node.refuses(&[&create[..], &words].concat(), 2, &["--backing", words[0]]);
    }
    create(&format!("{spec}?share=on"), 2, &["without share=on"]);
    create(&room.spec("d0"), 3, &["d0 is in pool tank"]);
    let (small, small_spec) = backing(&room, "small");
    File::options()
        .write(true)
        .open(&small)
        .expect("a file")
        .set_len(64 << 10)
        .expect("cut");
    create(&small_spec, 2, &["small", "too small"]);
    File::options()
        .write(true)
        .open(&small)
        .expect("a file")
        .set_len((1 << 20) + 100)
        .expect("cut");
    create(
        &small_spec,
        2,
        &["small", "1048676 bytes", "block size of 512"],
    );
    let (_, fine) = backing(&room, "fine");
    let create_large = [
        "volume",
        "create",
        "tank/other",
        "--backing",
        &fine,
        "--cache",
        "1TiB",
    ];
    node.refuses(&create_large, 3, &["room for a cache of", "1 TiB"]);
    // A copy of one that a cache has marked.
    write(&node, 1, 7);
    assert!(is_marked(&path));
    fs::copy(&path, room.path("copy")).expect("a copy");
    let cache = text(&shown(&node)["uuid"]);
    create(
        &room.spec("copy"),
        2,
        &["is the backing device of cache", &cache],
    );
    node.refuses(
        &["volume", "resize", "tank/db", "--size", "96MiB"],
        3,
        &["size of the device"],
    );
    node.refuses(
        &["volume", "create", "tank/db", "--backing", &fine],
        3,
        &["already"],
    );
    assert_eq!(read(&node, 1), vec![7; BLOCK]);
    assert_eq!(shown(&node)["bytes"], BACKING);
    node.end();
}

#[test]
fn a_device_that_has_changed_is_not_taken_up_and_comes_back_as_it_was() {
    let room = Room::new();
    let (path, spec) = backing(&room, "old");
    let node = Node::start(&room);
    make(&room, &node, &spec, &[]);
    let fails = |node: &Node, names: &[&str]| {
        let volume = shown(node);
        assert_eq!(volume["state"], "failed", "{volume:#}");
        let reason = text(&volume["reason"]);
        names
            .iter()
            .for_each(|name| assert!(reason.contains(name), "{reason}"));
        node.refuses(&["volume", "flush", "tank/db"], 3, &["not in service"]);
        node.refuses(&["volume", "delete", "tank/db"], 2, &["--accept-data-loss"]);
    };
    write(&node, 0, 9);
    write(&node, 3000, 9);
    node.end();
    // Shorter, and then as it was, under another name.
    let file = File::options().write(true).open(&path).expect("a file");
    file.set_len(BACKING / 2).expect("cut");
    let node = Node::start(&room);
    fails(&node, &["old", "made smaller"]);
    let newer = node.ok(&["volume", "newer", "tank/db"]);
    assert!(newer.contains("12288000 4096"), "{newer}");
    file.set_len(BACKING).expect("grown");
    for at in (BACKING / 2..OLD.end).step_by(1 << 20) {
        file.write_all_at(&old(at), at).expect("written");
    }
    let moved = room.path("moved");
    fs::rename(&path, &moved).expect("renamed");
    node.refuses(&["volume", "reopen", "tank/db"], 3, &["old"]);
    node.ok(&[
        "volume",
        "reopen",
        "tank/db",
        "--backing",
        &room.spec("moved"),
    ]);
    node.ok(&["volume", "reopen", "tank/db"]);
    assert_eq!(read(&node, 3000), vec![9; BLOCK]);
    node.ok(&["volume", "flush", "tank/db"]);
    node.end();
    // Written by something else: what is cached may be old.
    let file = File::options().write(true).open(&moved).expect("a file");
    file.write_all_at(&[1; 512], 4096).expect("written");
    let node = Node::start(&room);
    fails(&node, &["moved", "has changed since it was left"]);
    file.write_all_at(&[0; 512], 4096).expect("written");
    node.ok(&["volume", "reopen", "tank/db"]);
    assert_eq!(read(&node, 0), vec![9; BLOCK]);
    node.ok(&["volume", "delete", "tank/db"]);
    check_old(&moved);
    node.end();
}

#[test]
fn what_only_a_cache_has_is_given_up_when_that_is_said() {
    let room = Room::new();
    let (path, spec) = backing(&room, "old");
    let begins = bytes_of(&path)[..HEAD].to_vec();
    let node = Node::start(&room);
    make(&room, &node, &spec, &[]);
    write(&node, 5, 7);
    write(&node, 5000, 7);
    assert!(is_marked(&path));
    let lost = node.ok(&["volume", "delete", "tank/db", "--accept-data-loss"]);
    assert!(lost.contains("20480000 4096"), "{lost}");
    assert!(
        bytes_of(&path)[..HEAD] == begins,
        "the device begins as it did"
    );
    // A pool that is gone altogether.
    let create = [
        "volume",
        "create",
        "tank/db",
        "--allow-any-host",
        "--backing",
        &spec,
    ];
    node.ok(&create);
    // Slots of a cache that was deleted are not those of the next one.
    assert_eq!(read(&node, 5), vec![0; BLOCK]);
    write(&node, 5, 7);
    let give_up = ["cache", "give-up", &spec];
    node.refuses(&give_up, 3, &["old", "in use"]);
    node.kill();
    assert!(is_marked(&path));
    let refused = &mut crate::common::ashlar(give_up);
    crate::common::refuses(refused, 2, &["has the mark of cache", "--accept-data-loss"]);
    assert!(is_marked(&path));
    let accepted = [&give_up[..], &["--accept-data-loss"]].concat();
    crate::common::ok(&mut crate::common::ashlar(&accepted));
    assert!(
        bytes_of(&path)[..HEAD] == begins,
        "the device begins as it did"
    );
    let again = &mut crate::common::ashlar(&accepted);
    crate::common::refuses(again, 2, &["has no mark of a cache"]);
    check_old(&path);
}

#[test]
fn writes_that_go_through_or_around_leave_nothing_to_write_back() {
    for mode in ["write-through", "write-around"] {
        let room = Room::new();
        let (path, spec) = backing(&room, "old");
        let node = Node::start(&room);
        make(&room, &node, &spec, &["--mode", mode]);
        write(&node, 2, 7);
        assert!(!is_marked(&path));
        assert_eq!(bytes_of(&path)[2 * BLOCK..3 * BLOCK], vec![7; BLOCK]);
        // A read is answered before the cache has stored what it missed.
        eventually("a read is a hit", || {
            assert_eq!(read(&node, 2), vec![7; BLOCK]);
            let hits = &shown(&node)["cache"]["read_hits"];
            hits.as_u64().is_some_and(|hits| hits > 0)
        });
        let cache = &shown(&node)["cache"];
        assert_eq!(cache["newer_bytes"], 0);
        let parts = |name: &str| cache[name].as_u64().expect("a number") as f64;
        let ratio = parts("read_hits") / (parts("read_hits") + parts("read_misses"));
        assert_eq!(cache["hit_ratio"].as_f64(), Some(ratio), "{cache:#}");
        // Exported and imported, it goes on.
        node.ok(&["pool", "export", "tank"]);
        node.ok(&[
            "pool",
            "import",
            "tank",
            "--drive",
            &room.spec("d0"),
            "--drive",
            &room.spec("d1"),
        ]);
        assert_eq!(read(&node, 2), vec![7; BLOCK]);
        node.ok(&["volume", "delete", "tank/db"]);
        check_old(&path);
        node.end();
    }
}

#[test]
fn another_device_under_the_same_path_is_refused_or_taken_up_with_nothing_cached() {
    let room = Room::new();
    let (path, spec) = backing(&room, "old");
    let node = Node::start(&room);
    make(&room, &node, &spec, &["--mode", "write-through"]);
    let first = OLD.start / BLOCK as u64;
    for _ in 0..2 {
        assert_eq!(read(&node, first), old(OLD.start)[..BLOCK]);
    }
    node.end();
    // Of the same size; what lies where the first one has something is another.
    let moved = room.path("moved");
    fs::rename(&path, &moved).expect("renamed");
    let file = File::create(&path).expect("a file");
    file.set_len(BACKING).expect("a sparse file");
    let node = Node::start(&room);
    let volume = shown(&node);
    assert_eq!(volume["state"], "failed", "{volume:#}");
    let reason = text(&volume["reason"]);
    for name in ["old", "another one", "inode", "--other-device"] {
        assert!(reason.contains(name), "{reason}");
    }
    node.refuses(&["volume", "reopen", "tank/db"], 3, &["another one"]);
    // The first one under its new name is that which is known, across a restart, too.
    let moved = room.spec("moved");
    node.ok(&["volume", "reopen", "tank/db", "--backing", &moved]);
    assert_eq!(read(&node, first), old(OLD.start)[..BLOCK]);
    node.end();
    let node = Node::start(&room);
    assert_eq!(read(&node, first), old(OLD.start)[..BLOCK]);
    let reopen = ["volume", "reopen", "tank/db", "--backing", &spec];
    node.refuses(&reopen, 3, &["in service"]);
    node.end();
    fs::rename(room.path("moved"), room.path("gone")).expect("renamed");
    let node = Node::start(&room);
    node.refuses(&reopen, 3, &["another one"]);
    node.ok(&[&reopen[..], &["--other-device"]].concat());
    assert_eq!(read(&node, first), vec![0; BLOCK]);
    node.end();
}

/// Its flushes fail until it is opened again, as those of a disk that has failed one do.
#[test]
fn a_device_whose_flushes_fail_fails_writes_and_is_opened_again_by_reopen() {
    let room = Room::new();
    let (path, spec) = backing(&room, "old");
    let node = Node::start(&room);
    make(&room, &node, &format!("faulty:flush-error=1,{spec}"), &[]);
    let first = OLD.start / BLOCK as u64;
    assert_eq!(read(&node, first), old(OLD.start)[..BLOCK]);
    let mut host = Host::connect(node.address, &node.nqn()).expect("served");
    host.submit_write(0, 5, vec![7; BLOCK]).expect("sent");
    let done = host.next().expect("an answer");
    assert!(!done.status.is_success(), "without a mark");
    drop(host);
    assert_eq!(read(&node, first), old(OLD.start)[..BLOCK]);
    let volume = shown(&node);
    assert_eq!(volume["state"], "online", "{volume:#}");
    let warnings = volume["warnings"].to_string();
    assert!(warnings.contains("fails now"), "{warnings}");
    node.refuses(
        &["volume", "flush", "tank/db"],
        3,
        &["flush of volume tank/db failed"],
    );
    node.ok(&["volume", "reopen", "tank/db", "--backing", &spec]);
    write(&node, 5, 7);
    node.ok(&["volume", "flush", "tank/db"]);
    assert!(!shown(&node).to_string().contains("fails now"));
    node.ok(&["volume", "delete", "tank/db"]);
    assert_eq!(bytes_of(&path)[5 * BLOCK..6 * BLOCK], vec![7; BLOCK]);
    check_old(&path);
    node.end();
}

/// Where no sector is empty the mark has no text, and is known by what is under it.
#[test]
fn a_device_whose_head_has_no_empty_sector_begins_as_it_did() {
    let room = Room::new();
    let (path, spec) = backing(&room, "old");
    let begins: Vec<u8> = (0..HEAD).map(|at| (at % 251) as u8).collect();
    let file = fs::OpenOptions::new().write(true).open(&path);
    let written = file.expect("a file").write_all_at(&begins, 0);
    written.expect("written");
    let node = Node::start(&room);
    make(&room, &node, &spec, &[]);
    write(&node, 5, 7);
    assert!(bytes_of(&path)[..HEAD] != begins, "it is marked");
    node.ok(&["volume", "delete", "tank/db", "--accept-data-loss"]);
    assert!(bytes_of(&path)[..HEAD] == begins);
    check_old(&path);
    node.end();
}

/// What a device has not answered may still change it: the cache stays until it has.
#[test]
fn a_cache_is_not_taken_out_while_its_device_has_a_request() {
    let room = Room::new();
    let (_, device) = backing(&room, "old");
    let nqn = "nqn.2026-01.io.ashlar:backing";
    let serve = ["serve", "--allow-any-host", "--nqn", nqn, "--device"];
    let mut command = crate::common::ashlar(serve);
    command.args([&device, "--listen", "127.0.0.1:0"]);
    let mut target = Running::start(&mut command);
    let address = target.ready()[0].clone();
    let node = Node::start(&room);
    let url = format!("nvme-tcp://{address}/{nqn}?ns=1");
    make(&room, &node, &url, &[]);
    write(&node, 5000, 7);
    let pid = target.id().try_into().expect("a process");
    send(pid, Signal::STOP);
    // It goes back as soon as no host asks for anything.
    std::thread::sleep(Duration::from_secs(5));
    // Nor is its pool let go, by which another node might have the device.
    let silent = ended(&mut node.command_to(&["pool", "export", "tank"]));
    assert_eq!(silent.code, 3, "{}", silent.said());
    for words in [&url[..], "has not answered", "--force"] {
        assert!(silent.error.contains(words), "{}", silent.said());
    }
    assert!(node.ok(&["pool", "status", "tank"]).contains("online"));
    let delete = ["volume", "delete", "tank/db", "--accept-data-loss"];
    let forced = [&delete[..], &["--force"]].concat();
    let begun = Instant::now();
    let refused = ended(&mut node.command_to(&forced));
    // It is waited for once, for 10 s.
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(19), "{waited:?}");
    assert_eq!(refused.code, 3, "{}", refused.said());
    assert!(
        refused
            .error
            .contains("tank/db: a device has not answered a request"),
        "{}",
        refused.said()
    );
    send(pid, Signal::CONT);
    eventually("it is deleted", || {
        ended(&mut node.command_to(&forced)).code == 0
    });
    node.end();
}
