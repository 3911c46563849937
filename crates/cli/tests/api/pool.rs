use crate::common::ended;
use crate::node::{Node, ashlar};

const CREATE: &str = "pool create tank --drive /dev/a --drive file:/b?size=8GiB&class=hdd";

#[test]
fn a_pool_from_its_making_to_its_export() {
    let node = Node::start();
    let made = node.json(CREATE);
    assert_eq!(made["drives"][1]["spec"], "file:/b?size=8GiB&class=hdd");
    assert_eq!(made["drives"][1]["class"], "hdd");
    assert_eq!(node.json("pool status tank"), made);
    assert_eq!(node.json("pool status"), node.json("pool list"));
    assert_eq!(
        node.json("pool add tank --drive /dev/c")["drives"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    let id = made["drives"][0]["id"].as_str().expect("an id").to_owned();
    let replaced = node.json(&format!("pool replace tank --old {id} --new /dev/d"));
    assert_eq!(replaced["work"][0]["what"], "evacuate");
    let removed = node.json("pool remove tank --drive /dev/c");
    assert_eq!(removed["drives"][2]["state"], "evacuating");
    let scrubbed = node.json("pool scrub tank");
    let work = scrubbed["work"].as_array().expect("a list");
    assert_eq!(work.last().expect("work")["what"], "scrub");
    assert_eq!(
        node.done("pool export tank"),
        "pool tank is let go; to take it up again: ashlar pool import tank --drive '/dev/d' --drive \
         'file:/b?size=8GiB&class=hdd' --drive '/dev/c'\n"
    );
    assert_eq!(node.done("pool list"), "there are no pools\n");
    assert_eq!(
        node.json("pool import tank --new-name lake")["id"],
        made["id"]
    );
    assert_eq!(node.json("pool status lake")["name"], "lake");
}

#[test]
fn people_can_read_it() {
    let node = Node::start();
    node.done(CREATE);
    node.done("pool scrub tank");
    let text = node.done("pool status tank");
    for line in [
        "pool:        tank",
        "state:       healthy",
        "raw:         128 GiB",
        "efficiency:  50.0 % with reserves, 50.0 % without",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line}\nis not in\n{text}"
        );
    }
    let has = |words: &[&str]| {
        let found = text
            .lines()
            .any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "{words:?} are not in a line of\n{text}");
    };
    has(&["DRIVE", "CHECKSUM", "SLOW", "STATE"]);
    has(&["file:/b?size=8GiB&class=hdd", "hdd", "64 GiB", "online"]);
    has(&["LAYOUT", "LOSSES", "POWER", "MISDIRECTED"]);
    has(&["mirror:2", "64 GiB", "survives"]);
    has(&["mirror:1", "detected"]);
    has(&["scrub", "50.0 %", "1 min 30 s", "running"]);
    let list = node.done("pool list");
    assert!(
        list.starts_with("POOL  STATE    DRIVES  ADVERTISED"),
        "{list}"
    );
}

#[test]
fn drives_are_named_so_that_the_daemon_finds_them() {
    let node = Node::start();
    let made = node.json("pool create tank --drive ./a --drive file:sub/b?size=8GiB");
    let spec = |n: usize| made["drives"][n]["spec"].as_str().expect("text").to_owned();
    let folder = node.dir.path().canonicalize().expect("there");
    let at = |spec: &str| std::path::PathBuf::from(spec.strip_prefix("file:").expect("a file"));
    assert_eq!(at(&spec(0)), folder.join("a"));
    assert_eq!(at(&spec(1)), folder.join("sub/b?size=8GiB"));
    let words = format!("pool add tank --drive ./c --api {}", node.url());
    let mut far = ashlar(node.dir.path(), &words);
    let far = ended(far.arg("--token-file").arg(node.token()));
    assert_eq!(far.code, 2, "{}", far.error);
    assert!(far.error.contains("whole path"), "{}", far.error);
}
