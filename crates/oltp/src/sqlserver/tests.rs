//! The T-SQL that ships, as far as it can be read without a server.

use std::collections::BTreeSet;

use super::session::CALLED;
use super::*;
use crate::schema::Table;

const MARIADB_TABLES: &str = include_str!("../../sql/mariadb_tables.sql");

/// Without comments and what is in quotes.
fn bare(text: &str) -> String {
    let lines = text.lines();
    let lines = lines.map(|line| line.split("--").next().unwrap_or_default());
    let text = lines.collect::<Vec<_>>().join("\n");
    let parts: Vec<&str> = text.split('\'').collect();
    assert!(parts.len() % 2 == 1, "a quote is open");
    parts
        .iter()
        .step_by(2)
        .copied()
        .collect::<Vec<_>>()
        .join("''")
}

/// Words: letters, digits, `_`, and `@` before them.
fn tokens(text: &str) -> Vec<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_@".contains(letter);
    let words = text.split(|letter: char| !is_part(letter));
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The procedures as they are sent: a batch each.
fn batches() -> Vec<String> {
    PROCEDURES.split(END).map(bare).collect()
}

/// What stands between a procedure's name and its body.
fn head(batch: &str) -> (&str, &str) {
    let (_, rest) = batch
        .split_once("CREATE OR ALTER PROCEDURE ")
        .expect("a procedure");
    let (head, _) = rest.split_once("\nAS\nBEGIN\n").expect("a body");
    let end = head.find(char::is_whitespace).unwrap_or(head.len());
    head.split_at(end)
}

fn variables(text: &str) -> Vec<String> {
    let words = tokens(text).into_iter();
    words.filter(|word| word.starts_with('@')).collect()
}

#[test]
fn every_procedure_that_is_called_is_there_with_its_parameters() {
    let batches = batches();
    assert_eq!(batches.len(), CALLED.len());
    for (name, parameters) in CALLED {
        let found = batches.iter().map(|batch| head(batch));
        let found: Vec<_> = found.filter(|(found, _)| *found == name).collect();
        let [(_, there)] = found[..] else {
            panic!("{name} is there {} times", found.len());
        };
        assert_eq!(variables(there), parameters, "{name}");
    }
}

#[test]
fn blocks_brackets_and_transactions_end() {
    for batch in batches() {
        let (name, _) = head(&batch);
        let words = tokens(&batch);
        let count = |word: &str| words.iter().filter(|found| *found == word).count();
        let pairs = words.windows(2);
        let begun = pairs
            .filter(|pair| pair[0] == "BEGIN" && pair[1] == "TRANSACTION")
            .count();
        assert_eq!(
            count("BEGIN") - begun + count("CASE"),
            count("END"),
            "{name}"
        );
        assert_eq!(count("COMMIT"), begun, "{name}");
        assert!(begun == 1 || name == "ashlar_stock_level", "{name}");
        assert_eq!(
            batch.matches('(').count(),
            batch.matches(')').count(),
            "{name}"
        );
        assert!(batch.contains("SET NOCOUNT, XACT_ABORT ON;"), "{name}");
    }
}

#[test]
fn every_variable_is_declared_and_used() {
    for batch in batches() {
        let (name, parameters) = head(&batch);
        let mut declared: BTreeSet<String> = variables(parameters).into_iter().collect();
        for text in batch.split("DECLARE ").skip(1) {
            let (text, _) = text.split_once(';').expect("an end");
            declared.extend(variables(text));
        }
        let used: BTreeSet<String> = variables(&batch).into_iter().collect();
        assert_eq!(used, declared, "{name}");
        for variable in &declared {
            let times = variables(&batch)
                .iter()
                .filter(|word| *word == variable)
                .count();
            assert!(times > 1, "{name}: {variable} is never used");
        }
    }
}

/// Columns' names by table, in their order.
fn columns(tables: &str) -> Vec<(String, Vec<String>)> {
    let tables = bare(tables);
    let creates = tables.split("CREATE TABLE ").skip(1);
    creates
        .map(|text| {
            let words = tokens(text);
            let is_column = |word: &&String| {
                let prefix = word.split_once('_').map(|(prefix, _)| prefix);
                let known = ["w", "d", "c", "h", "no", "o", "ol", "i", "s"];
                prefix.is_some_and(|prefix| known.contains(&prefix))
            };
            let (name, rest) = words.split_first().expect("a name");
            let named = rest.iter().filter(is_column).cloned();
            let mut seen = BTreeSet::new();
            // A primary key names them again.
            (
                name.clone(),
                named.filter(|word| seen.insert(word.clone())).collect(),
            )
        })
        .collect()
}

#[test]
fn tables_have_the_columns_of_mariadbs_in_their_order() {
    let (ours, theirs) = (columns(TABLES), columns(MARIADB_TABLES));
    assert_eq!(ours, theirs);
    for table in Table::ALL {
        let found = ours.iter().find(|(name, _)| name == table.name());
        let (_, columns) = found.expect("a table");
        assert_eq!(columns.len(), table.columns(), "{table:?}");
    }
}

#[test]
fn procedures_name_columns_that_there_are() {
    let known: BTreeSet<String> = columns(TABLES)
        .into_iter()
        .flat_map(|(_, names)| names)
        .collect();
    let prefixes = ["w_", "d_", "c_", "h_", "no_", "o_", "ol_", "i_", "s_"];
    let mut named = 0;
    for batch in batches() {
        for word in tokens(&batch) {
            if prefixes.iter().any(|prefix| word.starts_with(prefix)) {
                named += 1;
                assert!(known.contains(&word), "{word}");
            }
        }
    }
    assert!(named > 100, "{named} columns");
    for word in tokens(KEYS).iter().filter(|word| word.contains("_id")) {
        assert!(known.contains(word), "{word}");
    }
}

#[test]
fn rows_that_procedures_insert_are_whole() {
    let mut inserted = 0;
    for batch in batches() {
        for text in batch.split("INSERT INTO ").skip(1) {
            let Some((name, rest)) = text.split_once(" VALUES (") else {
                continue;
            };
            let Some(table) = Table::ALL.into_iter().find(|table| table.name() == name) else {
                continue;
            };
            let (mut depth, mut values) = (1, 1);
            for letter in rest.chars() {
                match letter {
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    ',' if depth == 1 => values += 1,
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
            assert_eq!(values, table.columns(), "{name}");
            inserted += 1;
        }
    }
    assert_eq!(inserted, 4, "orders, new_order, order_line, history");
}
