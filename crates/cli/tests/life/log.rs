//! What the daemon's log says of a pool's life.

use serde_json::Value;

use crate::common::eventually;
use crate::load::Load;
use crate::loss::Mortal;
use crate::node::{Node, Room, text};
use crate::random::Random;

/// The lines of a log in JSON.
fn lines(said: &str) -> Vec<Value> {
    let objects = said.lines().filter(|line| line.starts_with('{'));
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    objects.map(parse).collect()
}

/// The lines whose text has all of these words.
fn with<'a>(lines: &'a [Value], words: &[&str]) -> Vec<&'a Value> {
    let has = |line: &&Value| {
        words
            .iter()
            .all(|word| text(&line["message"]).contains(word))
    };
    lines.iter().filter(has).collect()
}

#[test]
fn the_log_of_a_pool_that_loses_a_drive_tells_its_story() {
    let mut random = Random::of_this_run("log");
    let room = Room::new();
    let mortal = Mortal::new(96);
    let mut drives = room.drives(3, 96);
    let spare = drives.pop().expect("a drive");
    drives.push(mortal.spec());
    // Of one class, or what the spare is for would depend on the machine's disk.
    let of_one_class = |drive: &String| format!("{drive}?class=ssd");
    let node = Node::logging(&room, &["--log-format", "json"]);
    let classed: Vec<_> = drives.iter().map(of_one_class).collect();
    node.make(&classed, "mirror:2", "16MiB");
    let nqn = node.nqn();
    let mut load = Load::new(4096, &mut random);
    load.during(node.place(&nqn), |round| {
        round.more(200);
        mortal.die();
        eventually("the log says that a drive is gone", || {
            node.said().contains("is out of service")
        });
        node.ok(&["pool", "add", "tank", "--drive", &of_one_class(&spare)]);
        round.more(200);
        eventually("the log says that no copy is missing any more", || {
            node.said().contains("no copy is missing any more")
        });
        round.more(200);
    });
    node.ok(&["pool", "scrub", "tank"]);
    eventually("the log says that the scrub has ended", || {
        node.said().contains("scrub has ended")
    });
    node.ok(&["pool", "remove", "tank", "--drive", &classed[0]]);
    eventually("the log says that the drive is empty", || {
        node.said().contains("it was emptied and removed")
    });
    node.end();
    let node = Node::logging(&room, &["--log-format", "json"]);
    std::fs::remove_file(room.path("d1")).expect("a file");
    eventually("the log says that a drive's file is gone", || {
        node.said().contains("d1 was deleted or renamed")
    });
    let said = node.said();
    node.end();
    let lines = lines(&said);
    let one = |level: &str, words: &[&str]| {
        let found = with(&lines, words);
        let [line] = &found[..] else {
            panic!("{words:?}: {} lines in {said}", found.len());
        };
        assert_eq!(line["level"], level, "{line}");
        assert!(line["timestamp"].is_string(), "{line}");
        (*line).clone()
    };
    one("INFO", &["d0", "is being emptied"]);
    one("INFO", &["d0", "is out of service: it was emptied"]);
    one("INFO", &["pool tank is in service: 2 drives, 1 volumes"]);
    let memory = &mortal.spec()[5..];
    let lost = one("ERROR", &["is out of service", memory]);
    assert_eq!(lost["pool"], "tank");
    assert!(text(&lost["drive"]).contains(memory), "{lost}");
    one("WARN", &["pool tank is degraded"]);
    one("INFO", &["has joined", "d2"]);
    one("INFO", &["pool tank: no copy is missing any more"]);
    assert!(!with(&lines, &["rebuild has begun"]).is_empty(), "{said}");
    assert!(!with(&lines, &["rebuild has ended"]).is_empty(), "{said}");
    one("WARN", &["pool tank: drive", "d1 was deleted or renamed"]);
    one("INFO", &["scrub has begun"]);
    one("INFO", &["scrub has ended: 0 bad copies found"]);
    assert!(
        !with(&lines, &["host \"nqn.", "has connected to", &nqn]).is_empty(),
        "{said}"
    );
    assert!(
        !with(&lines, &["host \"nqn.", "has left", &nqn]).is_empty(),
        "{said}"
    );
    let order = one(
        "INFO",
        &["order by uid", "pid", "POST /v1/pools ", "d0", "done"],
    );
    assert_eq!(order["target"], "ashlar_node::orders");
    one("INFO", &["POST /v1/pools/tank/scrub"]);
    // What is read is no order.
    assert!(with(&lines, &["GET /v1"]).is_empty(), "{said}");
}

#[test]
fn a_filter_and_its_mistakes_are_heard() {
    let room = Room::new();
    let node = Node::logging(&room, &["--log", "warn,ashlar_store=trace"]);
    node.make(&room.drives(2, 96), "mirror:2", "16MiB");
    let said = node.said();
    assert!(said.contains("TRACE ashlar_store::engine"), "{said}");
    assert!(said.contains("batch published"), "{said}");
    assert!(!said.contains("order by"), "{said}");
    node.end();
    crate::common::refuses(
        crate::common::ashlar(["node", "--dir", "/nowhere"]).env("ASHLAR_LOG", "loud"),
        2,
        &["`loud`", "debug"],
    );
}

#[test]
fn the_simulator_prints_the_engine_s_trace_points_and_the_same_ones_each_time() {
    let run = |words: &[&str]| {
        let seed = ["sim", "engine", "--profile", "crash", "--seed", "5"];
        crate::common::ok(&mut crate::common::ashlar([&seed[..], words].concat()))
    };
    let traced = run(&["--trace"]);
    for point in [
        "command",
        "I/O sent",
        "batch sealed",
        "batch durable",
        "batch published",
        "root durable",
    ] {
        let is_it = |line: &str| line.starts_with("ashlar_store::engine") && line.contains(point);
        assert!(traced.lines().any(is_it), "{point}");
    }
    assert!(traced == run(&["--trace"]), "a seed is a world");
    assert!(!run(&[]).contains("ashlar_store"));
}
