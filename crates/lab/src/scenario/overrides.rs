//! What the command line changes in a scenario, and in what two scenarios differ: key by key.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use crate::LabError;

/// A scenario's text, beside its results.
pub const FILE: &str = "scenario.toml";

/// A scenario's text with `KEY=VALUE` put into it. A key is a path with dots (`measure.seconds`); of several
/// configurations or matrices a part of it is a position from 0, a name or a role (`configuration.remote.stack`,
/// `matrix.4k write.seconds`). A value
/// is TOML's, or else text.
///
/// # Errors
/// A usage error that names what is no assignment, or a path that leads nowhere.
pub fn with_set(text: &str, set: &[String]) -> Result<String, LabError> {
    if set.is_empty() {
        return Ok(text.to_owned());
    }
    let mut table = parse(text)?;
    for assignment in set {
        let usage = |why: &str| LabError::usage(format!("--set {assignment}: {why}"));
        let (path, value) = assignment
            .split_once('=')
            .ok_or_else(|| usage("must be KEY=VALUE"))?;
        let mut parts: Vec<&str> = path.trim().split('.').collect();
        let key = parts.pop().filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| usage("must be KEY=VALUE"))?;
        let mut at = &mut table;
        let mut parts = parts.into_iter();
        while let Some(part) = parts.next() {
            let below = at.entry(part).or_insert_with(|| Value::Table(Table::new()));
            let below = match below {
                Value::Array(all) => {
                    let which = parts.next().unwrap_or_default();
                    let is = |of: &Value, key| of.get(key).and_then(Value::as_str) == Some(which);
                    let named = |of: &Value| is(of, "name") || is(of, "role");
                    let index = which.parse().ok().or_else(|| all.iter().position(named));
                    index.and_then(|index: usize| all.get_mut(index))
                }
                below => Some(below),
            };
            at = below
                .and_then(Value::as_table_mut)
                .ok_or_else(|| usage("there is no such section"))?;
        }
        at.insert(key.to_owned(), value_of(value));
    }
    toml::to_string(&table).map_err(|error| LabError::caused("--set", error))
}

fn value_of(text: &str) -> Value {
    let parsed = format!("it = {text}").parse::<Table>().ok();
    let value = parsed.and_then(|mut table| table.remove("it"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

pub(super) fn parse(text: &str) -> Result<Table, LabError> {
    text.parse()
        .map_err(|error: toml::de::Error| LabError::usage(format!("scenario: {error}")))
}

/// Whether the scenario beside a run's results, which a person may have edited, is still what was begun.
///
/// # Errors
/// A usage error that names the keys which differ.
pub fn refuse_changed(dir: &Path, begun: &str) -> Result<(), LabError> {
    let path = dir.join(FILE);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Ok(());
    };
    let differences = differences(begun, &text)?;
    if differences.is_empty() {
        return Ok(());
    }
    Err(LabError::usage(format!(
        "{}: cannot go on, the scenario is another one than was begun: {}",
        path.display(),
        differences.join("; ")
    )))
}

/// In what two scenarios' texts differ, besides comments and order.
///
/// # Errors
/// A usage error for a text that is no TOML.
fn differences(one: &str, other: &str) -> Result<Vec<String>, LabError> {
    let (mut keys, mut others) = (BTreeMap::new(), BTreeMap::new());
    flatten("", &Value::Table(parse(one)?), &mut keys);
    flatten("", &Value::Table(parse(other)?), &mut others);
    let all: std::collections::BTreeSet<&String> = keys.keys().chain(others.keys()).collect();
    let told = |values: &BTreeMap<String, String>, key: &String| {
        values.get(key).map_or("-".to_owned(), String::clone)
    };
    Ok(all
        .into_iter()
        .filter(|key| keys.get(*key) != others.get(*key))
        .map(|key| format!("{key} was {}, is {}", told(&keys, key), told(&others, key)))
        .collect())
}

fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    let below = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    match value {
        Value::Table(table) => table
            .iter()
            .for_each(|(key, value)| flatten(&below(key), value, into)),
        Value::Array(all) if all.iter().all(Value::is_table) => all
            .iter()
            .enumerate()
            .for_each(|(index, value)| flatten(&below(&index.to_string()), value, into)),
        value => {
            into.insert(path.to_owned(), value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = 'x' # a comment\n[measure]\nseconds = 10\n[[configuration]]\nname = 'a'\nstack = 's'\n\
                        [[configuration]]\nname = 'b'\nstack = 't'\n";

    fn set(assignments: &[&str]) -> Result<String, LabError> {
        let all: Vec<String> = assignments.iter().map(ToString::to_string).collect();
        with_set(TEXT, &all)
    }

    #[test]
    fn what_is_set_is_the_only_difference() {
        let changed = set(&[
            "measure.seconds=60",
            "configuration.b.stack=file:/x?a=1",
            "configuration.0.remote=true",
            "oltp.users=[1, 2]",
        ]);
        let differences = differences(TEXT, &changed.expect("set")).expect("both are TOML");
        assert_eq!(
            differences,
            [
                "configuration.0.remote was -, is true",
                "configuration.1.stack was \"t\", is \"file:/x?a=1\"",
                "measure.seconds was 10, is 60",
                "oltp.users was -, is [1, 2]",
            ]
        );
        assert_eq!(with_set(TEXT, &[]).as_deref(), Ok(TEXT), "comments stay");
    }

    #[test]
    fn what_leads_nowhere_is_refused_by_name() {
        for wrong in [
            "measure.seconds",
            "=3",
            "configuration.c.stack=x",
            "configuration.7.stack=x",
            "name.x=1",
            "configuration=3.",
            "a.=1",
        ] {
            match set(&[wrong]) {
                Err(error) => assert!(
                    error.exit_code() == 2 && error.to_string().contains(wrong),
                    "{error}"
                ),
                Ok(_) => assert_eq!(wrong, "configuration=3.", "its kind is looked at later"),
            }
        }
    }
}
