//! What all of these tests need: a PostgreSQL, a folder that it may enter, the program.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Whether there is a PostgreSQL; loudly if not, and a failure under CI=true.
pub fn is_here() -> bool {
    let is_here = Path::new("/usr/lib/postgresql").exists();
    let is_ci = std::env::var("CI").as_deref() == Ok("true");
    assert!(is_here || !is_ci, "CI=true, and there is no PostgreSQL");
    if !is_here {
        eprintln!("SKIPPED: there is no PostgreSQL in /usr/lib/postgresql");
    }
    is_here
}

/// A folder that others may enter: the servers are not this user's.
pub fn open_folder() -> tempfile::TempDir {
    let dir = tempfile::TempDir::new().expect("folder");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).expect("opened");
    dir
}

/// `ashlar lab WORDS`, to be run in a folder.
pub fn command(dir: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashlar"));
    command.arg("lab").args(words.split_whitespace());
    command.current_dir(dir).stdin(Stdio::null());
    command
}

/// The same, run to its end: its exit code, and what it prints.
pub fn lab(dir: &Path, words: &str) -> (i32, String) {
    let out = command(dir, words).output().expect("it runs");
    let text = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (out.status.code().expect("an end"), text.concat())
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
