//! Loads parts with INSERTs of many rows, a transaction a part.

use std::fmt::Write;

use ashlar_lab::LabError;
use mysql::Conn;
use mysql::prelude::Queryable;

use crate::database::Loader;
use crate::generate::{Part, Recipe, RowSink};

/// Rows are sent in statements of about this many bytes; the server takes 16 MiB.
const PIECE: usize = 512 << 10;
const MICROS: i64 = 1_000_000;

pub(super) struct InsertLoader {
    connection: Conn,
    target: String,
}

impl InsertLoader {
    pub(super) fn new(connection: Conn, target: String) -> Self {
        Self { connection, target }
    }
}

impl Loader for InsertLoader {
    fn load(&mut self, recipe: &Recipe, part: Part) -> Result<u64, LabError> {
        let table = part.table.name();
        let target = self.target.clone();
        let caused = |error: mysql::Error| {
            let what = format!("{target}: loading {table}");
            LabError::caused(what, super::words(&error))
        };
        let connection = &mut self.connection;
        connection.query_drop("START TRANSACTION").map_err(caused)?;
        let mut rows = Rows {
            head: format!("INSERT INTO {table} VALUES "),
            text: String::with_capacity(PIECE + 4096),
            is_first: true,
            connection,
            failed: None,
        };
        let filled = recipe.fill(part, &mut rows);
        let sent = match filled {
            Ok(_) => rows.send(),
            Err(_) => Ok(()),
        };
        if let Some(error) = rows.failed.take() {
            return Err(caused(error));
        }
        let count = filled?;
        sent.map_err(caused)?;
        self.connection.query_drop("COMMIT").map_err(caused)?;
        Ok(count)
    }
}

struct Rows<'a> {
    connection: &'a mut Conn,
    head: String,
    text: String,
    /// The next value is its row's first.
    is_first: bool,
    failed: Option<mysql::Error>,
}

impl Rows<'_> {
    fn value(&mut self, value: std::fmt::Arguments<'_>) {
        let before = match (self.is_first, self.text.is_empty()) {
            (false, _) => ",",
            (true, true) => "(",
            (true, false) => ",(",
        };
        self.is_first = false;
        self.text.push_str(before);
        // Writing to a string cannot fail.
        let _ = self.text.write_fmt(value);
    }

    fn send(&mut self) -> Result<(), mysql::Error> {
        if self.text.is_empty() {
            return Ok(());
        }
        let statement = format!("{}{}", self.head, self.text);
        self.text.clear();
        self.connection.query_drop(statement)
    }
}

impl RowSink for Rows<'_> {
    fn int(&mut self, value: i32) {
        self.value(format_args!("{value}"));
    }

    fn decimal(&mut self, units: i64, scale: u8) {
        self.value(format_args!("{units}e-{scale}"));
    }

    fn text(&mut self, value: &[u8]) {
        let text = std::str::from_utf8(value).unwrap_or_default();
        match text.contains(['\'', '\\']) {
            true => {
                let text = text.replace('\\', "\\\\").replace('\'', "''");
                self.value(format_args!("'{text}'"));
            }
            false => self.value(format_args!("'{text}'")),
        }
    }

    fn time(&mut self, unix_us: i64) {
        let (seconds, micros) = (unix_us.div_euclid(MICROS), unix_us.rem_euclid(MICROS));
        self.value(format_args!("from_unixtime({seconds}.{micros:06})"));
    }

    fn null(&mut self) {
        self.value(format_args!("NULL"));
    }

    fn end_row(&mut self) -> Result<(), LabError> {
        self.text.push(')');
        self.is_first = true;
        if self.text.len() < PIECE {
            return Ok(());
        }
        self.send().map_err(|error| {
            let told = LabError::environment(super::words(&error));
            self.failed = Some(error);
            told
        })
    }
}
