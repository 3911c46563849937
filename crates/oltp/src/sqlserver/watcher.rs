//! Looks on: the database's counters, its process and its storage.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ashlar_lab::{LabError, Progress};
use tiberius::error::Error;

use super::link::{Link, words};
use super::url::Target;
use crate::database::{Canceller, ServerPlace, Watcher, with_decimals};

pub(super) struct SqlServerWatcher {
    link: Link,
    /// The server's number of this connection.
    number: i64,
    target: Target,
    until: Arc<Progress>,
}

impl SqlServerWatcher {
    pub(super) fn new(mut link: Link, target: Target, until: Arc<Progress>) -> Result<Self, Error> {
        Ok(Self {
            number: link.number("SELECT @@SPID")?,
            link,
            target,
            until,
        })
    }

    fn process(&mut self) -> Result<u32, String> {
        let found = self
            .link
            .number("SELECT CAST(SERVERPROPERTY('ProcessID') AS int)");
        let number = found.map_err(|error| words(&error))?;
        // The same number on this machine may be another process.
        let name = std::fs::read_to_string(format!("/proc/{number}/comm"));
        match (u32::try_from(number), name) {
            (Ok(process), Ok(name)) if name.trim() == "sqlservr" => Ok(process),
            _ => Err(format!(
                "the server is not on this machine: process {number} here is not sqlservr"
            )),
        }
    }

    fn folder(&mut self) -> Result<PathBuf, String> {
        let sql = "SELECT physical_name FROM sys.database_files WHERE file_id = 1";
        let found = self.link.rows(sql).map_err(|error| words(&error))?;
        let file = match found.first() {
            Some(row) => row.try_get::<&str, _>(0).map_err(|error| words(&error))?,
            None => None,
        };
        let file = Path::new(file.unwrap_or_default());
        match file.parent() {
            Some(folder) if file.is_absolute() => Ok(folder.to_owned()),
            _ => Err(format!("{}: no path", file.display())),
        }
    }
}

impl Watcher for SqlServerWatcher {
    /// Beyond 2^31 the sum of an `int` column is an error.
    fn next_orders(&mut self) -> Result<i64, LabError> {
        self.number("SELECT sum(CAST(d_next_o_id AS bigint)) FROM district")
    }

    /// What the published papers count: batches of all databases of the server. A call of a procedure is one.
    fn transactions(&mut self) -> Result<Option<u64>, LabError> {
        let count = self.number(
            "SELECT max(cntr_value) FROM sys.dm_os_performance_counters \
             WHERE counter_name = 'Batch Requests/sec'",
        )?;
        Ok(Some(count.max(0).unsigned_abs()))
    }

    fn number(&mut self, sql: &str) -> Result<i64, LabError> {
        let found = self.link.number(sql);
        found.map_err(|error| LabError::caused(&self.target, words(&error)))
    }

    fn amount(&self, cents: i64) -> String {
        with_decimals(cents)
    }

    /// A list of values is no query of its own here.
    fn told(&self, columns: &str, rows: &str) -> String {
        format!("told({columns}) AS (SELECT * FROM (VALUES {rows}) AS listed({columns}))")
    }

    fn letters(&self, column: &str) -> String {
        format!("sum(CAST(len({column}) AS bigint))")
    }

    /// The connection ends with its query.
    fn canceller(&self) -> Canceller {
        let (target, until, number) = (self.target.clone(), Arc::clone(&self.until), self.number);
        // One that cannot be reached has ended, or is asked again.
        Box::new(move || {
            if let Ok(mut link) = Link::open(&target, &until) {
                let _ = link.run(&format!("KILL {number}"));
            }
        })
    }

    fn place(&mut self) -> ServerPlace {
        let process = self.process();
        let storage = match &process {
            // The same path on this machine would be another one.
            Err(reason) => Err(reason.clone()),
            Ok(_) => self.folder(),
        };
        ServerPlace {
            process,
            is_inside: false,
            storage,
        }
    }
}
