//! A database file that is kept aside and put back.

use std::path::{Path, PathBuf};

use ashlar_lab::LabError;
use rusqlite::Connection;

use crate::files;

/// What SQLite keeps beside a database file.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A database file, and the copy of it that is put back. Nobody may have the database open while it is
/// saved or put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedFile {
    database: PathBuf,
    copy: PathBuf,
}

impl SavedFile {
    /// The database in a file, and where its copy is or will be.
    ///
    /// # Errors
    /// A usage error if both are the same.
    pub fn new(database: impl Into<PathBuf>, copy: impl Into<PathBuf>) -> Result<Self, LabError> {
        let (database, copy) = (database.into(), copy.into());
        let whole = |path: &Path| std::path::absolute(path).ok();
        if whole(&database) == whole(&copy) || copy.is_dir() {
            let copy = copy.display();
            return Err(LabError::usage(format!(
                "--restore {copy}: for SQLite the file of a copy, beside the database's own"
            )));
        }
        Ok(Self { database, copy })
    }

    /// Whether there is a copy.
    pub fn is_saved(&self) -> bool {
        self.copy.exists()
    }

    /// Makes the copy.
    ///
    /// # Errors
    /// The database cannot be read, the copy cannot be made.
    pub fn save(&self) -> Result<(), LabError> {
        let caused = |e: rusqlite::Error| LabError::caused(self.database.display(), e);
        let connection = Connection::open(&self.database).map_err(caused)?;
        // What is in the log goes into the file: the copy is the file alone.
        let busy: i64 = connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
            .map_err(caused)?;
        if busy != 0 {
            let database = self.database.display();
            return Err(LabError::environment(format!(
                "{database}: somebody else has it open, so it cannot be copied"
            )));
        }
        connection.close().map_err(|(_, error)| caused(error))?;
        files::copy(&self.database, &self.copy)
    }

    /// Puts the copy in the database's place.
    ///
    /// # Errors
    /// There is none, it cannot be copied, or what was copied is not the same.
    pub fn restore(&self) -> Result<(), LabError> {
        for suffix in BESIDE {
            let mut path = self.database.as_os_str().to_owned();
            path.push(suffix);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(LabError::caused(path.display(), error));
                }
                _ => {}
            }
        }
        files::copy(&self.copy, &self.database)
    }
}
