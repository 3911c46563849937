//! What these tests share: a folder's runs and results.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{self, ashlar};

/// `ashlar lab WORDS`, to be run in a folder.
pub fn command(dir: &Path, words: &str) -> Command {
    let mut command = ashlar(["lab"]);
    command.args(words.split_whitespace()).current_dir(dir);
    command
}

/// The same, run to its end: its exit code, and what it prints.
pub fn lab(dir: &Path, words: &str) -> (i32, String) {
    common::lab(dir, words.split_whitespace())
}

/// The `result.json` of a run.
pub fn result(dir: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(dir.join(name).join("result.json")).expect("a result");
    serde_json::from_str(&text).expect("JSON")
}

/// Nothing of a run is left where it was.
pub fn is_left_empty(dir: &Path) {
    let left: Vec<_> = std::fs::read_dir(dir).expect("list").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// All twelve conditions were checked, and hold.
pub fn all_hold(conditions: &Value) -> bool {
    let conditions = conditions.as_object();
    conditions.is_some_and(|all| all.len() == 12 && all.values().all(|c| c == "pass"))
}
