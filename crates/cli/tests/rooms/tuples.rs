//! No tuples as parameters: what belongs together has a name, and names its parts.

use std::collections::BTreeMap;

use super::{code_lines, sources};

/// Parameters that are tuples still, by crate and folder. These only go down; where none are named, there are none.
const LEFT: &[(&str, usize)] = &[
    ("cli/src", 8),
    ("cli/tests", 3),
    ("lab/src", 3),
    ("oltp/src", 35),
    ("store/src", 5),
    ("store/tests", 7),
    ("testbed/src", 2),
];

/// Parameters of a function, from behind the parenthesis that opens them.
fn parameters(code: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            ')' => {
                found.push(&code[from..at]);
                break;
            }
            ',' if depth == 0 => {
                found.push(&code[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    found.into_iter().map(str::trim).collect()
}

/// Of a source without its comments.
fn tuples_in(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let Some((head, rest)) = code[at..].split_once('(') else {
            continue;
        };
        // A type, or a word in a text.
        if head.contains(['\n', ';', '"']) {
            continue;
        }
        let is_tuple = |one: &&str| {
            let ty = one.split_once(": ").map_or("", |(_, ty)| ty);
            one.starts_with('(') || ty.starts_with('(')
        };
        let tuples = parameters(rest).into_iter().filter(is_tuple);
        found.extend(tuples.map(|one| format!("{head}: {one}")));
    }
    found
}

#[test]
fn what_belongs_together_has_a_name() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, source) in sources() {
        let code: Vec<&str> = code_lines(&source).map(|(_, line)| line).collect();
        let folder: Vec<&str> = path.split('/').skip(1).take(2).collect();
        let tuples = tuples_in(&code.join("\n")).into_iter();
        let of_folder = found.entry(folder.join("/")).or_default();
        of_folder.extend(tuples.map(|one| format!("{path}: {one}")));
    }
    for (folder, tuples) in found {
        let left = LEFT.iter().find(|(of, _)| *of == folder);
        let most = left.map_or(0, |&(_, most)| most);
        // Fewer are to be said, or others come in their place.
        assert!(
            tuples.len() == most,
            "crates/{folder}: {} parameters are tuples, {most} before: {tuples:#?}",
            tuples.len()
        );
    }
}
