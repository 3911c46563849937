//! `ashlar lab trace`, `crash-image` and `torn-pages` as a script sees them.

mod common;

use serde_json::Value;

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
        assert_eq!(crashes["cuts"].as_array().map(Vec::len), Some(1), "{text}");
        assert!(crashes["commits"].as_u64() > Some(5), "{crashes}");
        assert_eq!(crashes["commits_not_made_durable"], 0, "{crashes}");
    }
    assert_eq!(result["volume"]["broken"], 0, "{text}");
    let writes = &result["disk"]["data_writes"];
    assert!(writes["writes"].as_u64() > Some(50), "{writes}");
    assert_eq!(writes["splitting_a_page"], 0, "{writes}");
    let steps = result["cost"]["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 2);
    assert!(steps.iter().all(|step| step["nopm"].as_f64() > Some(0.0)));
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
