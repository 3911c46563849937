//! What is refused, with the code and the reason, and nothing is touched.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use crate::load::Load;
use crate::node::{Node, Room, bytes_of, does_not_start};
use crate::random::Random;

const MIB: usize = 1 << 20;

#[test]
fn a_directory_and_its_drives_have_one_daemon() {
    let room = Room::new();
    let drives = room.drives(2, 64);
    let node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    does_not_start(&room, "node", 3, &["one daemon a directory"]);
    // Another daemon, which tries to have the same drives.
    let other = Room::new();
    let second = Node::start(&other);
    let import = ["pool", "import", "tank", "--drive", &drives[0]];
    second.refuses(&import, 3, &["d0", "in use"]);
    let create = [
        "pool",
        "create",
        "mine",
        "--destroy-data",
        "--drive",
        &drives[1],
    ];
    second.refuses(&create, 3, &["d1", "in use"]);
    // Nor does it help to call one's own drive something else.
    let same = format!("file:{}/./d0", room.dir.path().display());
    let create = ["pool", "create", "mine", "--destroy-data", "--drive", &same];
    node.refuses(&create, 3, &["d0", "in use"]);
    assert_eq!(node.state(), "healthy");
}

#[test]
fn drives_that_hold_something_are_not_taken() {
    let room = Room::new();
    let drives = room.drives(2, 64);
    let spare = room.drive("spare", 64);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    std::fs::write(room.path("spare"), vec![7; 64 * MIB]).expect("a file");
    let short = room.drive("short", 10);
    for (order, pool) in [("create", "other"), ("add", "tank")] {
        let occupied = ["pool", order, pool, "--drive", &spare];
        node.refuses(&occupied, 2, &["spare", "holds data", "--destroy-data"]);
        let too_short = ["pool", order, pool, "--drive", &short];
        node.refuses(&too_short, 2, &["64 MiB"]);
        let gone = ["pool", order, pool, "--drive", &room.spec("nowhere")];
        node.refuses(&gone, 3, &["nowhere"]);
    }
    assert!(bytes_of(&room.path("spare")) == vec![7; 64 * MIB]);
    assert!(bytes_of(&room.path("short")) == vec![0; 10 * MIB]);
    assert!(!room.path("nowhere").exists());
    // Drives of a pool, let go: their pool is named, and a pool of another name is not imported.
    node.ok(&["pool", "export", "tank"]);
    let before = drives.iter().zip(["d0", "d1"]);
    let before: Vec<_> = before.map(|(_, name)| bytes_of(&room.path(name))).collect();
    let create = ["pool", "create", "other", "--drive", &drives[0]];
    node.refuses(&create, 2, &["d0", "pool tank", "--destroy-data"]);
    let import = [
        "pool", "import", "lake", "--drive", &drives[0], "--drive", &drives[1],
    ];
    node.refuses(&import, 3, &["holds pool tank"]);
    // Half a pool may be the older half.
    let half = ["pool", "import", "tank", "--drive", &drives[0]];
    node.refuses(&half, 2, &["missing"]);
    node.refuses(
        &["pool", "import", "tank", "--drive", &spare],
        2,
        &["no label"],
    );
    // A drive of another pool among them.
    let third = room.drive("third", 64);
    node.ok(&["pool", "create", "lake", "--drive", &third]);
    node.ok(&["pool", "export", "lake"]);
    let mixed = [&half[..], &["--drive", &drives[1], "--drive", &third]].concat();
    node.refuses(&mixed, 3, &["third", "lake"]);
    node.end();
    node = Node::start(&room);
    for (before, name) in before.iter().zip(["d0", "d1"]) {
        assert!(*before == bytes_of(&room.path(name)), "{name} was touched");
    }
    node.ok(&[&half[..], &["--drive", &drives[1]]].concat());
    assert_eq!(node.state(), "healthy");
}

#[test]
fn what_is_refused_leaves_no_file_of_its_own() {
    let room = Room::new();
    let drives = room.drives(2, 64);
    let node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let occupied = room.drive("occupied", 64);
    std::fs::write(room.path("occupied"), vec![7; MIB]).expect("a file");
    let new = |name: &str, size: &str| format!("{}?size={size}", room.spec(name));
    let (fit, short, odd) = (
        new("fit", "64MiB"),
        new("short", "10MiB"),
        new("odd", "64MiB&x=1"),
    );
    // The first drive is made before the second is refused.
    for (second, code, why) in [
        (&short, 2, "64 MiB"),
        (&odd, 2, "x"),
        (&occupied, 2, "occupied"),
        (&drives[0], 3, "in pool tank"),
    ] {
        let create = [
            "pool", "create", "other", "--drive", &fit, "--drive", second,
        ];
        node.refuses(&create, code, &[why]);
    }
    node.refuses(&["pool", "add", "tank", "--drive", &short], 2, &["64 MiB"]);
    let replace = [
        "pool", "replace", "tank", "--old", &drives[0], "--new", &short,
    ];
    node.refuses(&replace, 2, &["64 MiB"]);
    for name in ["fit", "short", "odd"] {
        assert!(!room.path(name).exists(), "{name} was left");
    }
    assert_eq!(
        std::fs::read(room.path("occupied")).expect("it stays")[0],
        7
    );
    // What is done keeps its file.
    node.ok(&["pool", "add", "tank", "--drive", &fit]);
    node.ok(&["pool", "create", "other", "--drive", &new("more", "64MiB")]);
    assert!(room.path("fit").exists() && room.path("more").exists());
    node.end();
}

#[test]
fn a_daemon_that_cannot_listen_leaves_no_directory() {
    let room = Room::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for option in ["--listen", "--api"] {
        let dir = room.path("base/dir").display().to_string();
        let mut words = vec!["node", "--dir", &dir, option, &address];
        if option == "--api" {
            words.extend(["--listen", "127.0.0.1:0"]);
        }
        crate::common::refuses(&mut crate::common::ashlar(words), 3, &[&address]);
        assert!(!room.path("base").exists(), "{option}");
    }
}

#[test]
fn nothing_is_promised_that_is_not_kept() {
    let room = Room::new();
    let drives = room.drives(4, 64);
    let node = Node::start(&room);
    let reserve = [
        "pool", "create", "tank", "--drive", &drives[0], "--drive", &drives[1],
    ];
    node.refuses(
        &[&reserve[..], &["--reserve", "drives:2"]].concat(),
        2,
        &["reserve"],
    );
    node.ok(&reserve);
    node.ok(&["pool", "add", "tank", "--drive", &drives[2]]);
    let volume = |pool: &str, layout: &'static str| {
        let name = format!("{pool}/v");
        move |node: &Node, says: &[&str]| {
            let create = [
                "volume", "create", &name, "--size", "8MiB", "--layout", layout,
            ];
            node.refuses(&create, 2, says);
        }
    };
    volume("tank", "mirror:4")(&node, &["mirror:4", "needs 4 drives"]);
    volume("tank", "parity:2+2")(&node, &["parity:2+2", "needs 4 drives"]);
    volume("tank", "parity:8+1")(&node, &["parity:8+1", "8 drives at most"]);
    node.ok(&["pool", "create", "single", "--drive", &drives[3]]);
    volume("single", "mirror:2")(&node, &["mirror:2", "needs 2 drives"]);
    // A pool that began with one drive has its logs once, until a volume needs them twice.
    node.ok(&["pool", "add", "single", "--drive", &room.drive("late", 64)]);
    let create = [
        "volume", "create", "single/v", "--size", "8MiB", "--layout", "mirror:2",
    ];
    node.ok(&create);
    node.end();
}

/// Overwrites one of a drive's two labels, or both.
fn damage_labels(room: &Room, drive: &str, labels: &[u64]) {
    let file = OpenOptions::new().write(true).open(room.path(drive));
    let file = file.expect("a file");
    for at in labels {
        file.write_all_at(&[0xa5; 4096], *at).expect("a write");
    }
}

#[test]
fn one_label_is_enough_and_without_one_a_drive_is_missing() {
    let mut random = Random::of_this_run("labels");
    let room = Room::new();
    let drives = room.drives(3, 96);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| round.more(500));
    node.kill();
    damage_labels(&room, "d0", &[0]);
    damage_labels(&room, "d1", &[128 << 10]);
    node = Node::start(&room);
    load.verify(node.place(&nqn));
    node.await_healthy();
    node.end();
    // Both of one: the pool goes on without it, as without any drive, and says so.
    damage_labels(&room, "d1", &[0, 128 << 10]);
    node = Node::start(&room);
    load.during(node.place(&nqn), |round| round.more(300));
    load.verify(node.place(&nqn));
    let status = node.status().to_string();
    assert!(status.contains("missing"), "{status}");
    node.end();
}
