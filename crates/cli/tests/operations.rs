//! docs/operations.md has a row for every state that `pool status`, `volume show` and `attach --list` print,
//! and each row names a test that is there. States are read from the sources: a new one needs a row.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Section of the document, the file with its states, and the type.
const STATES: &[(&str, &str, &str)] = &[
    ("Pools", "crates/node/src/model/pool.rs", "PoolState"),
    ("Drives", "crates/node/src/model/pool.rs", "DriveState"),
    ("Work", "crates/node/src/model/pool.rs", "WorkState"),
    ("Volumes", "crates/node/src/model/volume.rs", "VolumeState"),
    ("Copies", "crates/node/src/model/replica.rs", "ReplicaState"),
    ("Nodes", "crates/node/src/model/cluster.rs", "NodeState"),
    ("Quorum", "crates/node/src/model/cluster.rs", "QuorumRole"),
    (
        "Services",
        "crates/node/src/model/service.rs",
        "ServiceState",
    ),
    ("Attachments", "crates/attach/src/list.rs", "Condition"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

/// The variants of a type, as they are printed.
fn variants(file: &str, name: &str) -> BTreeSet<String> {
    let source = read(file);
    let (_, rest) = source
        .split_once(&format!("pub enum {name} {{"))
        .expect(name);
    let (body, _) = rest.split_once("\n}").expect("its end");
    let lines = body.lines().map(str::trim);
    let names = lines.filter(|line| line.starts_with(char::is_uppercase));
    let printed = names.map(|line| {
        let word: String = line.chars().take_while(|c| c.is_alphanumeric()).collect();
        let spaced = word
            .char_indices()
            .map(|(at, c)| match c.is_uppercase() && at > 0 {
                true => format!(" {}", c.to_lowercase()),
                false => c.to_lowercase().to_string(),
            });
        spaced.collect()
    });
    printed.collect()
}

/// The rows of a section's table: state, meaning, what to do, tests.
fn rows(document: &str, section: &str) -> Vec<Vec<String>> {
    let (_, rest) = document
        .split_once(&format!("\n## {section}\n"))
        .unwrap_or_else(|| panic!("docs/operations.md has no section {section}"));
    let body = rest.split("\n## ").next().unwrap_or_default();
    let lines = body.lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| {
        line.trim_matches('|')
            .split(" | ")
            .map(|c| c.trim().to_owned())
            .collect()
    };
    lines.map(cells).collect()
}

/// What stands between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn all_sources() -> String {
    let mut found = String::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable folder") {
            let path = entry.expect("entry").path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "rs" => {
                    found.push_str(&fs::read_to_string(&path).expect("readable source"));
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn every_state_has_a_row_with_a_way_out_and_a_test() {
    let (document, sources) = (read("docs/operations.md"), all_sources());
    for (section, file, name) in STATES {
        let states = variants(file, name);
        assert!(states.len() > 2, "{name}: {states:?}");
        let rows = rows(&document, section);
        let described: BTreeSet<String> = rows
            .iter()
            .map(|row| quoted(&row[0])[0].to_owned())
            .collect();
        assert_eq!(
            described, states,
            "{section} of docs/operations.md beside {name}"
        );
        for row in rows {
            let [state, means, do_this, tests] = &row[..] else {
                panic!("{section}: four columns, not {row:?}");
            };
            assert!(
                !means.is_empty() && !do_this.is_empty(),
                "{section}: {state}"
            );
            let tests = quoted(tests);
            assert!(!tests.is_empty(), "{section}: {state} names no test");
            for test in tests {
                let definition = format!("#[test]\nfn {test}()");
                let inside = format!("#[test]\n    fn {test}()");
                let is_there = sources.contains(&definition) || sources.contains(&inside);
                assert!(is_there, "{section}: {state}: there is no test {test}");
            }
        }
    }
}
