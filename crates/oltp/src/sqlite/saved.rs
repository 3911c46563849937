//! A database file that is kept aside and put back.

use std::path::{Path, PathBuf};

use ashlar_lab::LabError;
use rusqlite::Connection;

use super::Sqlite;
use crate::database::Database;
use crate::files;
use crate::schema::{Marker, State};

/// What SQLite keeps beside a database file.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A database file, and the copy of it that is put back. No connection may have the database open while it is
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

    /// Whether there is a copy: of a database that was built here.
    ///
    /// # Errors
    /// A usage error if there is something else, which must not be put in the database's place.
    pub fn is_saved(&self) -> Result<bool, LabError> {
        self.marker().map(|marker| marker.is_some())
    }

    /// What the copy is of, if there is one.
    ///
    /// # Errors
    /// As [`is_saved`](Self::is_saved)'s.
    pub fn marker(&self) -> Result<Option<Marker>, LabError> {
        let copy = self.copy.display();
        let there = std::fs::symlink_metadata(&self.copy);
        match there {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LabError::caused(copy, error)),
            Ok(_) => {}
        }
        let found = match Sqlite::new(&self.copy).state() {
            Ok(State::Built(marker)) => return Ok(Some(marker)),
            Ok(State::Empty) => "it is empty".to_owned(),
            Ok(State::HalfBuilt) => "its schema is half-built".to_owned(),
            Ok(State::Unreadable(why)) => format!("its schema cannot be used ({why})"),
            Ok(State::Foreign(tables)) => {
                let some: Vec<&str> = tables.iter().take(3).map(String::as_str).collect();
                format!("it has other tables ({})", some.join(", "))
            }
            Err(error) => error.to_string(),
        };
        Err(LabError::usage(format!(
            "--restore {copy}: is no copy of a database that was built by `lab oltp`, and would be put in the \
             place of {}: {found}",
            self.database.display()
        )))
    }

    /// The copy's file.
    pub fn copy(&self) -> &Path {
        &self.copy
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
                "{database}: another connection has it open, so it cannot be copied"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_copy_of_ours_is_named() {
        let dir = tempfile::tempdir().expect("folder");
        let (database, copy) = (dir.path().join("a.db"), dir.path().join("kept"));
        let saved = SavedFile::new(&database, &copy).expect("two files");
        assert_eq!(saved.is_saved(), Ok(false));
        let refused = |what: &str| {
            let error = saved.is_saved().expect_err(what);
            assert!(
                error.exit_code() == 2 && error.to_string().contains(what),
                "{error}"
            );
        };
        std::fs::write(&copy, "").expect("written");
        refused("it is empty");
        std::fs::write(&copy, "precious text, not a database. ".repeat(200)).expect("written");
        refused("not a database");
        std::fs::remove_file(&copy).expect("removed");
        let other = Connection::open(&copy).expect("opens");
        other.execute_batch("CREATE TABLE mine (x)").expect("made");
        refused("other tables (mine)");
        other
            .execute_batch("CREATE TABLE ashlar_oltp (marker)")
            .expect("made");
        refused("half-built");
    }
}
