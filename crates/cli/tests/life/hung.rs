//! Drives that do not answer, and drives that are not there when the daemon starts.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::eventually;
use crate::load::{Load, Round};
use crate::node::{Node, Room, text};
use crate::random::Random;

fn drive_of(node: &Node, name: &str) -> Value {
    let status = node.status();
    let drives = status["drives"].as_array().cloned().unwrap_or_default();
    let mut drives = drives.into_iter();
    let is_it = |drive: &Value| text(&drive["spec"]).contains(name);
    drives.find(is_it).expect("the drive is shown")
}

/// The longest time in which no command has ended, until `is_over`.
fn longest_pause(round: &Round, is_over: impl Fn() -> bool) -> Duration {
    let (mut done, mut since, mut longest) = (round.done(), Instant::now(), Duration::ZERO);
    eventually("it is over", || {
        // Asking takes its time, too.
        let over = is_over();
        let now = round.done();
        longest = longest.max(since.elapsed());
        if now > done {
            (done, since) = (now, Instant::now());
        }
        over
    });
    longest
}

#[test]
fn a_drive_that_hangs_is_left_out_and_nothing_is_lost() {
    let mut random = Random::of_this_run("hung");
    let room = Room::new();
    room.set("repair_after_seconds = 1\ndrive_timeout_seconds = 2\ndrive_wait_seconds = 0\n");
    let mut drives = room.drives(3, 96);
    drives[0] = format!("faulty:hang-after=3000,{}", room.spec("d0"));
    let node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| {
        round.more(200);
        let told = Cell::new(false);
        let is_out = || {
            let warnings = node.status()["warnings"].to_string();
            told.set(told.get() || warnings.contains("has not answered for"));
            drive_of(&node, "d0")["state"] == "failed"
        };
        let pause = longest_pause(round, is_out);
        println!("the longest pause was {} ms", pause.as_millis());
        assert!(told.get(), "no warning while it did not answer");
        // The drive's time, and as much again for what follows from it.
        assert!(
            pause < Duration::from_secs(4),
            "{pause:?} without a command"
        );
        round.more(300);
    });
    let drive = drive_of(&node, "d0");
    assert!(
        text(&drive["reason"]).contains("no answer for 2 s"),
        "{drive}"
    );
    assert!(drive["slow_requests"].as_u64() > Some(0), "{drive}");
    let slow = node.ok(&["pool", "status", "tank"]);
    let row = slow
        .lines()
        .find(|line| line.starts_with("faulty:"))
        .expect("its row");
    let requests = drive["slow_requests"].to_string();
    assert!(
        row.split_whitespace().any(|word| word == requests),
        "{slow}"
    );
    let said = node.said();
    assert!(said.contains("longer than a second"), "{said}");
    load.verify(node.place(&nqn));
    node.await_healthy();
    // It hangs at an import, too, which goes on without it, but only if that is said.
    node.ok(&["pool", "export", "--force", "tank"]);
    let hung = format!("faulty:hang-after=1,{}", room.spec("d1"));
    let import = [
        "pool", "import", "tank", "--drive", &hung, "--drive", &drives[2],
    ];
    node.refuses(&import, 3, &["d1", "no answer for 2 s", "--degraded"]);
    node.ok(&[&import[..], &["--degraded"]].concat());
    load.verify(node.place(&nqn));
    load.during(node.place(&nqn), |round| round.more(100));
    node.end();
}

#[test]
fn a_drive_that_is_late_at_the_start_is_waited_for_and_never_made_anew() {
    let mut random = Random::of_this_run("late drive");
    let room = Room::new();
    room.set("drive_wait_seconds = 60\n");
    let mut drives = room.drives(3, 96);
    drives[0].push_str("?size=96MiB&allocate=off");
    let node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| round.more(200));
    let others = ["w0", "w1"].map(|name| room.drive(name, 96));
    let pair = ["--drive", &others[0], "--drive", &others[1]];
    node.ok(&[&["pool", "create", "well"][..], &pair].concat());
    let volume = ["volume", "create", "well/db", "--allow-any-host"];
    node.ok(&[&volume[..], &["--size", "16MiB", "--layout", "mirror:2"]].concat());
    let well = text(&node.json(&["volume", "show", "well/db"])["nqn"]);
    let mut load_of_well = Load::new(4096, &mut random);
    load_of_well.during(node.place(&well), |round| round.more(100));
    node.end();
    let (path, away) = (room.path("d0"), room.path("away"));
    std::fs::rename(&path, &away).expect("it is there");
    // The daemon is there for other pools, and they serve meanwhile.
    let node = Node::start(&room);
    let state_of_well = || text(&node.json(&["pool", "status", "well"])["state"]);
    eventually("the other pool serves", || state_of_well() == "healthy");
    load_of_well.verify(node.place(&well));
    load_of_well.during(node.place(&well), |round| round.more(100));
    let status = node.status();
    assert_eq!(status["state"], "failed");
    let reason = text(&status["reason"]);
    let goes_on_by_itself = reason.starts_with("nothing has to be done: it waits for drive");
    assert!(goes_on_by_itself && reason.contains("d0"), "{reason}");
    assert_eq!(status["warnings"], serde_json::json!([]));
    assert!(!path.exists(), "it was made anew");
    std::fs::rename(&away, &path).expect("it comes");
    node.await_healthy();
    load.verify(node.place(&nqn));
    node.end();
    // Not for ever.
    room.set("drive_wait_seconds = 1\n");
    std::fs::rename(&path, &away).expect("it is there");
    let node = Node::start(&room);
    eventually("it goes on without", || node.state() == "degraded");
    assert!(!path.exists(), "it was made anew");
    let said = node.said();
    assert!(said.contains("goes on without"), "{said}");
    load.verify(node.place(&nqn));
    node.end();
}

#[test]
fn drives_that_are_there_after_the_wait_are_taken_up() {
    let mut random = Random::of_this_run("late drives");
    let room = Room::new();
    room.set("drive_wait_seconds = 1\n");
    let drives = room.drives(2, 96);
    let node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| round.more(200));
    node.end();
    let places = ["d0", "d1"].map(|name| (room.path(name), room.path(&format!("away-{name}"))));
    let take_away = || {
        for (here, away) in &places {
            std::fs::rename(here, away).expect("it is there");
        }
    };
    let bring = || {
        for (here, away) in &places {
            std::fs::rename(away, here).expect("it comes");
        }
    };
    let await_reason = |node: &Node, expected: &str| {
        eventually("it has waited its time", || {
            text(&node.status()["reason"]).contains(expected)
        });
    };
    take_away();
    let node = Node::start(&room);
    await_reason(&node, "looked for every 2 s");
    let warnings = node.status()["warnings"].to_string();
    assert!(warnings.contains("`pool import tank`"), "{warnings}");
    bring();
    eventually("it comes into service", || node.state() == "healthy");
    load.verify(node.place(&nqn));
    // What was let go of is not taken up again by itself.
    node.end();
    take_away();
    let node = Node::start(&room);
    await_reason(&node, "looked for every 2 s");
    node.ok(&["pool", "export", "tank"]);
    bring();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(node.ok(&["pool", "list"]), "there are no pools\n");
    node.end();
}
