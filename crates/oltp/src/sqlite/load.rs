//! Loads parts into SQLite: values are bound as they are made, a transaction a part.

use std::path::PathBuf;

use ashlar_lab::LabError;
use rusqlite::{Connection, Statement};

use crate::database::Loader;
use crate::generate::{Part, Recipe, RowSink};

pub(super) struct SqliteLoader {
    connection: Connection,
    path: PathBuf,
}

impl SqliteLoader {
    pub(super) fn new(connection: Connection, path: PathBuf) -> Self {
        Self { connection, path }
    }
}

impl Loader for SqliteLoader {
    fn load(&mut self, recipe: &Recipe, part: Part) -> Result<u64, LabError> {
        let path = self.path.display().to_string();
        let caused = |error: rusqlite::Error| {
            LabError::caused(
                format!("sqlite:{path}: loading {}", part.table.name()),
                error,
            )
        };
        let transaction = self.connection.transaction().map_err(caused)?;
        let rows = {
            let places = vec!["?"; part.table.columns()].join(",");
            let sql = format!("INSERT INTO {} VALUES ({places})", part.table.name());
            let statement = transaction.prepare(&sql).map_err(caused)?;
            let mut sink = Binder {
                statement,
                column: 0,
                failed: None,
            };
            let filled = recipe.fill(part, &mut sink);
            match sink.failed {
                Some(error) => return Err(caused(error)),
                None => filled?,
            }
        };
        transaction.commit().map_err(caused)?;
        Ok(rows)
    }
}

struct Binder<'a> {
    statement: Statement<'a>,
    column: usize,
    failed: Option<rusqlite::Error>,
}

impl Binder<'_> {
    fn bind(&mut self, value: impl rusqlite::ToSql) {
        self.column += 1;
        if let Err(error) = self.statement.raw_bind_parameter(self.column, value) {
            self.failed.get_or_insert(error);
        }
    }
}

impl RowSink for Binder<'_> {
    fn int(&mut self, value: i32) {
        self.bind(value);
    }

    fn decimal(&mut self, units: i64, _: u8) {
        self.bind(units);
    }

    fn text(&mut self, value: &[u8]) {
        self.bind(std::str::from_utf8(value).unwrap_or_default());
    }

    fn time(&mut self, unix_us: i64) {
        self.bind(unix_us);
    }

    fn null(&mut self) {
        self.bind(rusqlite::types::Null);
    }

    fn end_row(&mut self) -> Result<(), LabError> {
        self.column = 0;
        if self.failed.is_none() {
            self.failed = self.statement.raw_execute().err();
        }
        match &self.failed {
            Some(error) => Err(LabError::environment(error.to_string())),
            None => Ok(()),
        }
    }
}
