//! What these tests share: a folder's runs and results.

use std::path::Path;

use serde_json::Value;

use crate::common::{self, has_postgresql, open_folder};

/// A folder with these in it, to be storage places; none where there is no PostgreSQL for them.
pub fn places(names: &[&str]) -> Option<tempfile::TempDir> {
    if !has_postgresql() {
        return None;
    }
    let room = open_folder();
    for name in names {
        std::fs::create_dir(room.path().join(name)).expect("made");
    }
    Some(room)
}

/// `ashlar lab WORDS`, run to its end in a folder: its exit code, and what it prints.
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
