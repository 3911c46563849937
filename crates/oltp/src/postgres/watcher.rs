//! Looks on: the database's counters, its processes and its storage.

use std::path::PathBuf;

use ashlar_lab::LabError;

use super::connection::{Connection, words};
use crate::database::{Canceller, ServerPlace, Watcher, with_decimals};
use crate::usage::parent_named;

pub(super) struct PostgresWatcher {
    connection: Connection,
    target: String,
}

impl PostgresWatcher {
    pub(super) fn new(connection: Connection, target: String) -> Self {
        Self { connection, target }
    }
}

impl Watcher for PostgresWatcher {
    /// Servers add to this count within a second or so.
    fn transactions(&mut self) -> Result<Option<u64>, LabError> {
        let count = self.number(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database \
             WHERE datname = current_database()",
        )?;
        Ok(Some(count.max(0) as u64))
    }

    fn number(&mut self, sql: &str) -> Result<i64, LabError> {
        self.connection
            .value(sql)
            .map_err(|error| LabError::caused(&self.target, words(&error)))
    }

    /// They are `numeric(…,2)`.
    fn amount(&self, cents: i64) -> String {
        with_decimals(cents)
    }

    fn canceller(&self) -> Canceller {
        let cancel = self.connection.canceller();
        // One that cannot be reached has ended, or is asked again.
        Box::new(move || drop(cancel()))
    }

    fn place(&mut self) -> ServerPlace {
        let backend: Result<i32, _> = self.connection.value("SELECT pg_backend_pid()");
        let process = match backend {
            Ok(backend) => parent_named(backend.unsigned_abs(), "postgres"),
            Err(error) => Err(words(&error)),
        };
        let folder: Result<String, _> = self.connection.value("SHOW data_directory");
        let storage = match (&process, folder) {
            // The same path on this machine would be another one.
            (Err(reason), _) => Err(format!("the server is not on this machine: {reason}")),
            (Ok(_), Ok(folder)) => Ok(PathBuf::from(folder)),
            (Ok(_), Err(error)) => Err(words(&error)),
        };
        ServerPlace {
            process,
            is_inside: false,
            storage,
        }
    }
}
