//! SQLite, inside this process.

mod load;
mod orders;
mod saved;
mod session;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashlar_lab::LabError;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::database::{
    Canceller, Database, Description, Loader, ServerPlace, Session, Sought, Watcher,
};
use crate::schema::{MARKER_TABLE, Marker, State, Table};

pub use saved::SavedFile;

const TABLES: &str = include_str!("../../sql/sqlite_tables.sql");
const KEYS: &str = include_str!("../../sql/sqlite_keys.sql");

/// What every connection of a run is set to. `synchronous = FULL` makes each commit durable.
const RUN_PRAGMAS: [(&str, &str); 5] = [
    ("journal_mode", "WAL"),
    ("synchronous", "FULL"),
    ("cache_size", "-65536"),
    ("wal_autocheckpoint", "1000"),
    ("temp_store", "MEMORY"),
];

/// Other processes may hold the database for this long before a transaction is retried.
const BUSY: Duration = Duration::from_secs(10);

/// A database file.
pub struct Sqlite {
    path: PathBuf,
    /// SQLite has one writer. Those of this process take turns here, where they wake each other,
    /// instead of in its busy handler, which sleeps and looks again.
    writer: Arc<Mutex<()>>,
}

impl Sqlite {
    /// The database in the file at `path`, which need not be there yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            writer: Arc::default(),
        }
    }

    fn caused(&self, error: impl std::fmt::Display) -> LabError {
        LabError::caused(format!("sqlite:{}", self.path.display()), error)
    }

    fn open(&self, flags: OpenFlags) -> Result<Connection, LabError> {
        // Each connection belongs to one thread.
        let flags = flags | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        self.check_path()?;
        let connection =
            Connection::open_with_flags(&self.path, flags).map_err(|error| self.caused(error))?;
        let set = connection.busy_timeout(BUSY);
        set.map_err(|error| self.caused(error))?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }

    /// SQLite says of anything that it cannot open only that it cannot.
    fn check_path(&self) -> Result<(), LabError> {
        if self.path.is_dir() {
            return Err(
                self.caused("is a directory: name a file, which is made if it is not there")
            );
        }
        let folder = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        match folder {
            Some(folder) if !folder.is_dir() => {
                let folder = folder.display();
                Err(self.caused(format!("there is no directory {folder}: make it first")))
            }
            _ => Ok(()),
        }
    }

    fn open_for_run(&self) -> Result<Connection, LabError> {
        let connection = self.open(OpenFlags::empty())?;
        for (name, value) in RUN_PRAGMAS {
            let set = connection.pragma_update(None, name, value);
            set.map_err(|error| self.caused(format!("{name} = {value}: {error}")))?;
        }
        Ok(connection)
    }

    fn is_absent(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|meta| meta.is_file() && meta.len() == 0)
            || matches!(self.path.try_exists(), Ok(false))
    }

    fn found(&self) -> rusqlite::Result<(Vec<String>, Option<String>)> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY)?;
        let mut names =
            connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
        let names: Vec<String> = names
            .query_map([], |row| row.get::<_, String>(0))?
            .filter(|name| !name.as_ref().is_ok_and(|name| name.starts_with("sqlite_")))
            .collect::<rusqlite::Result<_>>()?;
        if !names.iter().any(|name| name == MARKER_TABLE) {
            return Ok((names, None));
        }
        let marker =
            connection.query_row("SELECT max(marker) FROM ashlar_oltp", [], |r| r.get(0))?;
        Ok((names, marker))
    }
}

impl Database for Sqlite {
    fn target(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }

    fn describe(&self) -> Result<Description, LabError> {
        let connection = self.open_for_run()?;
        let mut settings = std::collections::BTreeMap::new();
        for name in RUN_PRAGMAS
            .iter()
            .map(|(name, _)| *name)
            .chain(["page_size", "mmap_size"])
        {
            let value = connection
                .pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0));
            if let Ok(value) = value {
                settings.insert(name.to_owned(), words(&value));
            }
        }
        Ok(Description {
            kind: "sqlite".into(),
            target: self.target(),
            version: format!("SQLite {}", rusqlite::version()),
            sql: "embedded".into(),
            settings,
        })
    }

    fn state(&self) -> Result<State, LabError> {
        self.check_path()?;
        if self.is_absent() {
            return Ok(State::Empty);
        }
        let (tables, marker) = self.found().map_err(|error| self.caused(error))?;
        Ok(State::of(tables, marker))
    }

    fn check_users(&self, _: Sought<'_>) -> Result<(), LabError> {
        Ok(())
    }

    fn create(&self) -> Result<(), LabError> {
        let connection = self.open(OpenFlags::SQLITE_OPEN_CREATE)?;
        let drops: String = Table::ALL
            .iter()
            .map(|table| table.name())
            .chain([MARKER_TABLE])
            .map(|name| format!("DROP TABLE IF EXISTS {name};"))
            .collect();
        // A crash while loading leaves a half-built schema, so nothing needs to be durable before
        // the end.
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF; \
                 BEGIN; {drops} {TABLES} COMMIT; VACUUM;"
            ))
            .map_err(|error| self.caused(error))
    }

    fn has_table(&self, name: &str) -> Result<bool, LabError> {
        if self.is_absent() {
            return Ok(false);
        }
        let (tables, _) = self.found().map_err(|error| self.caused(error))?;
        Ok(tables.iter().any(|table| table == name))
    }

    fn execute(&self, sql: &str) -> Result<(), LabError> {
        let connection = self.open(OpenFlags::SQLITE_OPEN_CREATE)?;
        connection
            .execute_batch(sql)
            .map_err(|error| self.caused(error))
    }

    fn most_loaders(&self) -> usize {
        1
    }

    fn loader(&self) -> Result<Box<dyn Loader>, LabError> {
        let connection = self.open(OpenFlags::empty())?;
        connection
            .execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;")
            .map_err(|error| self.caused(error))?;
        Ok(Box::new(load::SqliteLoader::new(
            connection,
            self.path.clone(),
        )))
    }

    fn finish(&self, marker: &Marker) -> Result<(), LabError> {
        let text = marker.to_text()?;
        let build = || -> rusqlite::Result<()> {
            let connection = Connection::open(&self.path)?;
            connection.execute_batch(&format!("PRAGMA synchronous = OFF; {KEYS}"))
        };
        build().map_err(|error| self.caused(error))?;
        let file = std::fs::File::open(&self.path).map_err(|error| self.caused(error))?;
        file.sync_all().map_err(|error| self.caused(error))?;
        let connection = self.open_for_run()?;
        connection
            .execute("INSERT INTO ashlar_oltp VALUES (?1)", [text])
            .and_then(|_| connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);"))
            .map_err(|error| self.caused(error))
    }

    fn prepare_run(&self) -> Result<(), LabError> {
        Ok(())
    }

    fn session(&self) -> Result<Box<dyn Session>, LabError> {
        let connection = self.open_for_run()?;
        Ok(Box::new(session::SqliteSession::new(
            connection,
            Arc::clone(&self.writer),
        )))
    }

    fn watcher(&self) -> Result<Box<dyn Watcher>, LabError> {
        // Before a build there is no file; its device is its folder's.
        let connection = (!self.is_absent())
            .then(|| self.open(OpenFlags::empty()))
            .transpose()?;
        Ok(Box::new(SqliteWatcher {
            path: self.path.clone(),
            connection,
        }))
    }
}

fn words(value: &rusqlite::types::Value) -> String {
    match value {
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

struct SqliteWatcher {
    path: PathBuf,
    connection: Option<Connection>,
}

impl Watcher for SqliteWatcher {
    fn transactions(&mut self) -> Result<Option<u64>, LabError> {
        Ok(None)
    }

    fn number(&mut self, sql: &str) -> Result<i64, LabError> {
        let told = |error: &dyn std::fmt::Display| {
            LabError::caused(format!("sqlite:{}", self.path.display()), error)
        };
        let connection = self
            .connection
            .as_ref()
            .ok_or_else(|| told(&"no such file"))?;
        connection
            .query_row(sql, [], |row| row.get(0))
            .map_err(|error| told(&error))
    }

    fn canceller(&self) -> Canceller {
        let handle = self
            .connection
            .as_ref()
            .map(Connection::get_interrupt_handle);
        Box::new(move || {
            if let Some(handle) = &handle {
                handle.interrupt();
            }
        })
    }

    fn place(&mut self) -> ServerPlace {
        let folder = self
            .path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        ServerPlace {
            is_inside: true,
            process: Err("SQLite runs inside the client: its time is client_cpu_s".into()),
            storage: Ok(folder.unwrap_or(Path::new(".")).to_owned()),
        }
    }
}

/// Whether an error means that the same again may succeed, or that nothing will.
fn failure(error: &rusqlite::Error) -> crate::database::Failure {
    use crate::database::Failure;
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Failure::Retry(text),
        Some(
            ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::ReadOnly
            | ErrorCode::CannotOpen,
        ) => Failure::Lost(text),
        _ => Failure::Error(text),
    }
}
