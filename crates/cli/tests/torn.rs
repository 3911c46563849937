//! `ashlar lab trace`, `crash-image` and `torn-pages` as a script sees them.

mod common;
#[path = "common/typed.rs"]
mod typed;

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use typed::{Typed, processes_in};

use common::{can_attach, has_postgresql, lab, open_folder};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn what_a_sweep_wrote_is_recorded_and_may_be_lost() {
    let dir = tempfile::tempdir().expect("a folder");
    let lab = |words: &[&str]| lab(dir.path(), words);
    let sweep = [
        "sweep",
        "--on",
        "file:d?size=16MiB&record=t",
        "--pattern",
        "randwrite",
        "--block",
        "8k",
        "--seconds",
        "0.2",
        "--repeat",
        "1",
        "--out",
        "o",
    ];
    let (code, text) = lab(&sweep);
    assert_eq!(code, 0, "{text}");
    let (code, text) = lab(&["trace", "t", "--json"]);
    assert_eq!(code, 0, "{text}");
    let counted = json(&text);
    assert_eq!(counted["device_bytes"], 16 << 20);
    let writes = counted["writes"].as_u64().expect("a number");
    assert!(writes > 100 && counted["unfinished"] == 0, "{counted}");
    let image = |out: &str, more: &[&str]| {
        lab(&[
            &["crash-image", "--trace", "t", "--out", out, "--json"],
            more,
        ]
        .concat())
    };
    let (code, text) = image("a", &["--seed", "5"]);
    assert_eq!(code, 0, "{text}");
    let made = json(&text);
    let (code, text) = image("b", &["--seed", "5"]);
    assert!(code == 0 && json(&text)["at"] == made["at"], "{text}");
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).expect("an image");
    assert!(bytes("a") == bytes("b"), "the same seed, another image");
    let (code, text) = image("c", &["--seed", "6", "--at", "end"]);
    assert_eq!(code, 0, "{text}");
    assert!(bytes("a") != bytes("c"));
    assert_eq!(bytes("c").len(), 16 << 20);
    let (code, text) = lab(&["trace", "t"]);
    assert!(code == 0 && text.contains("longest run"), "{text}");
    for (words, why) in [
        (vec!["--seed", "7", "--at", "x"], "is no stamp"),
        (vec!["--tear", "1k"], "a drive writes 512 or 4096 bytes"),
        (vec!["--base", "d", "--base", "d"], "--base once for each"),
        (vec!["--trace", "t"], "--out once for each --trace"),
    ] {
        let (code, text) = image("e", &words);
        assert!(code == 2 && text.contains(why), "{words:?}: {text}");
    }
    let (code, text) = lab(&["trace", "d"]);
    assert!(code == 2 && text.contains("d: is no trace"), "{text}");
    let (code, text) = lab(&["trace", "missing"]);
    assert!(code == 3 && text.contains("cannot be opened"), "{text}");
}

/// The long rounds are `scripts/soak.sh`'s.
#[test]
fn without_torn_page_protection_a_volume_lives_through_power_cuts() {
    if !has_postgresql() || !can_attach() {
        return;
    }
    let dir = open_folder();
    let run = [
        "torn-pages",
        "--warehouses",
        "0",
        "--images",
        "1",
        "--seconds",
        "2",
        "--cost-seconds",
        "1",
        "--repeat",
        "1",
        "--out",
        "out",
    ];
    let (code, text) = lab(dir.path(), run);
    assert_eq!(code, 0, "{text}");
    let result = std::fs::read_to_string(dir.path().join("out/result.json"));
    let result = json(&result.expect("a result"));
    for place in ["disk", "volume"] {
        let crashes = &result[place];
        // The disk's power is cut until something breaks.
        let cuts = crashes["cuts"].as_array().map(Vec::len);
        assert!(
            cuts == Some(1) || (place == "disk" && cuts > Some(1)),
            "{text}"
        );
        assert!(crashes["commits"].as_u64() > Some(5), "{crashes}");
        assert_eq!(crashes["commits_not_made_durable"], 0, "{crashes}");
    }
    assert_eq!(result["volume"]["broken"], 0, "{text}");
    assert!(result["disk"]["broken"].as_u64() > Some(0), "{text}");
    assert!(text.contains("passed: the disk breaks: "), "{text}");
    // What the engine promises, and what is asked of a drive.
    assert_eq!(result["volume"]["advertised_atomic_bytes"], 65_536);
    let checks = result["checks"].as_array().expect("checks");
    assert!(
        checks.len() == 5 && checks.iter().all(|check| check["passed"] == true),
        "{checks:?}"
    );
    assert!(text.contains("passed: split writes: 0 of "), "{text}");
    let writes = &result["disk"]["data_writes"];
    assert!(writes["writes"].as_u64() > Some(50), "{writes}");
    assert_eq!(writes["splitting_a_page"], 0, "{writes}");
    let steps = result["cost"]["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 2);
    assert!(steps.iter().all(|step| step["nopm"].as_f64() > Some(0.0)));
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().expect("a folder");
    for (words, why) in [
        (
            "--tear 1k",
            "--tear 1k: a drive writes 512 or 4096 bytes whole",
        ),
        ("--tear x", "--tear x: "),
        ("--seconds 0", "--seconds 0: must be above 0"),
        ("--seconds NaN", "--seconds NaN: must be above 0"),
        ("--seconds=-3", "--seconds -3: must be above 0"),
        (
            "--cost-seconds 1e9",
            "--cost-seconds 1000000000: must be above 0 and at most a day",
        ),
        ("--images 0", "--images 0: must be at least 1"),
        ("--repeat 0", "--repeat 0: must be at least 1"),
        ("--users 0", "--users 0: must be 1 to"),
        ("--warehouses 5", "--warehouses 5: must be 0 to 4"),
    ] {
        let all = format!("torn-pages {words} --out out");
        let (code, text) = lab(dir.path(), all.split_whitespace());
        assert!(code == 2 && text.contains(why), "{words}: {text}");
        let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a folder").collect();
        assert!(left.is_empty(), "{words}: {left:?}");
    }
}

/// Nothing of a run below a folder is left in this system: no process, no mount, no loop device.
fn is_gone(dir: &Path, moment: &str) {
    let place = dir.display().to_string();
    assert_eq!(processes_in(dir), [0; 0], "{moment}");
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in all {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        assert!(!words.contains(&place), "{moment}: {words}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(&place), "{moment}: {mounts}");
    let devices = std::fs::read_dir("/sys/block").expect("devices").flatten();
    for device in devices {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file"));
        assert!(
            !file.is_ok_and(|file| file.contains(&place)),
            "{moment}: {device:?}"
        );
    }
}

#[test]
fn torn_pages_that_is_interrupted_leaves_nothing_behind() {
    if !has_postgresql() || !can_attach() {
        return;
    }
    for (part, moment, signal) in [
        ("cost", "the database", Signal::INT),
        ("cost", "full_page_writes", Signal::TERM),
        ("disk", "the load", Signal::INT),
        ("volume", "the load", Signal::INT),
        ("volume", "power cut", Signal::TERM),
    ] {
        let seconds = if moment == "power cut" { "1" } else { "600" };
        let dir = open_folder();
        let words = format!(
            "torn-pages --warehouses 0 --images 1000 --seconds {seconds} --cost-seconds 1 --repeat 1000 \
             --only {part} --out out"
        );
        let mut typed = Typed::start(dir.path(), &words);
        typed.says(moment);
        std::thread::sleep(Duration::from_secs(2));
        typed.interrupt(signal);
        let moment = format!("{part}, {moment}");
        is_gone(dir.path(), &moment);
        let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a folder").collect();
        assert_eq!(left.len(), 1, "{moment}: {left:?}");
        let result = std::fs::read_to_string(dir.path().join("out/result.json"));
        let result = json(&result.expect("a result"));
        assert_eq!(result["partial"], true, "{moment}");
        let problem = result["problems"][0].as_str().expect("a problem");
        assert!(problem.contains("interrupted"), "{moment}: {problem}");
    }
}
