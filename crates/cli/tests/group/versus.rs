//! An instance against a group: killed at any moment it goes on, on storage made anew, and leaves nothing.

use std::path::Path;

use rustix::process::geteuid;

use crate::common::{eventually_within, open_folder};
use crate::typed::{RUN_TIMEOUT, Typed};
use crate::{has_group, result, words, working_in};

const SMALL: &str = "--users 1 --set measure.repeat=2 --set cluster.drive=2GiB --set scan-concurrency.scan.rows=2000 \
                     --set fixed-transactions.oltp.small=true --set fixed-transactions.oltp.warehouses=1 \
                     --set fixed-transactions.oltp.transactions=20";

/// Lines of the kernel's or a tool's list that name something of this run.
fn naming(list: &str, what: &str) -> Vec<String> {
    let named = list.lines().filter(|line| line.contains(what));
    named.map(str::to_owned).collect()
}

fn is_all_gone(dir: &Path) {
    let place = dir.display().to_string();
    assert_eq!(working_in(dir), [""; 0]);
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert_eq!(naming(&mounts, &place), [""; 0]);
    let loops = std::process::Command::new("losetup").arg("--list").output();
    let loops = String::from_utf8_lossy(&loops.expect("losetup").stdout).into_owned();
    assert_eq!(naming(&loops, &place), [""; 0]);
    let left: Vec<_> = std::fs::read_dir(dir.join("d")).expect("list").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Network namespaces of a run's nodes that was killed.
fn namespaces(dir: &Path) -> Vec<std::path::PathBuf> {
    let folders = std::fs::read_dir(dir.join("d")).expect("list").flatten();
    let nodes = folders.map(|folder| folder.path().join("n"));
    let prefixes = nodes.filter_map(|nodes| {
        let text = std::fs::read_to_string(nodes.join("nodes.json")).ok()?;
        let nodes: serde_json::Value = serde_json::from_str(&text).ok()?;
        let prefix = &nodes["network"]["namespaces"]["prefix"];
        Some(prefix.as_str()?.to_owned())
    });
    prefixes
        .map(|prefix| Path::new("/run/netns").join(prefix + "a"))
        .collect()
}

#[test]
fn a_run_that_is_killed_in_either_part_goes_on_and_leaves_nothing() {
    if !has_group() || !geteuid().is_root() {
        return;
    }
    let room = open_folder();
    let dir = room.path();
    let mut apart = Vec::new();
    let turns = |part: &str| {
        let journal = dir.join("out").join(part).join("journal.jsonl");
        let text = std::fs::read_to_string(journal).unwrap_or_default();
        text.matches("{\"turn\"").count()
    };
    let mut kill_in = |part: &str, run: &str| {
        let mut typed = Typed::start(dir, run);
        // The second turn is the group's: all that there is runs when it is killed.
        let what = format!("a turn of {part}");
        eventually_within(RUN_TIMEOUT * 3, &what, || turns(part) == 1);
        typed.kill();
        assert_ne!(working_in(dir), [""; 0], "nothing is left");
        apart.extend(namespaces(dir));
    };
    let begin = format!("run fci-vs-bag --dir d --out out {SMALL}");
    kill_in("scan-concurrency", &begin);
    assert_eq!(result(dir, "out")["partial"], true);
    for (text, says) in [
        (&*begin, "--resume out`"),
        (
            "run --resume out/scan-concurrency",
            "a part of a run of fci-vs-bag",
        ),
    ] {
        let (code, said) = words(dir, text);
        assert!(code == 2 && said.contains(says), "{text}: {code} {said}");
    }
    kill_in("fixed-transactions", "run --resume out");
    let (code, said) = words(dir, "run --resume out");
    assert_eq!(code, 0, "{said}");
    is_all_gone(dir);
    assert!(
        apart.len() == 2 && !apart.iter().any(|one| one.exists()),
        "{apart:?}"
    );
    let whole = result(dir, "out");
    assert_eq!(whole["partial"], false);
    for (part, kind) in [("scan-concurrency", "scan"), ("fixed-transactions", "oltp")] {
        let measured = result(dir, &format!("out/{part}"));
        for of in measured["configurations"].as_array().expect("both sides") {
            let steps = of[kind]["steps"].as_array().expect("steps");
            let repeats: Vec<_> = steps.iter().map(|step| step["repeat"].as_u64()).collect();
            assert_eq!(repeats, [Some(1), Some(2)], "{part}");
        }
        let parts = whole["parts"].as_array().expect("parts");
        let row = &parts.iter().find(|one| one["name"] == part).expect("it")["rows"][0];
        assert_eq!(row["moved"].as_array().expect("moved").len(), 5, "{row}");
    }
    let (code, said) = words(dir, "run --resume out");
    assert!(code == 2 && said.contains("reached its end"), "{said}");
}
