//! What is put back before every step: a private server, or a file.

use std::path::Path;

use ashlar_lab::{LabError, Progress};

use crate::database::Database;
use crate::schema::State;
use crate::server::Server;
use crate::{Logic, Postgres, SavedFile, built};

/// What is restored is not what was just built.
pub(super) const WOULD_REPLACE: &str = "--restore names what was saved before, which would be put in the place of what is \
    built: remove that copy, or name another";

/// What is put back before every step.
pub enum Saved {
    /// A private PostgreSQL.
    Server(Server),
    /// A database of SQLite.
    File(SavedFile),
}

impl Saved {
    /// What a database is put back from.
    ///
    /// # Errors
    /// A usage error: it is not of this database.
    pub fn of(db: &str, path: &Path) -> Result<Self, LabError> {
        if let Some(("sqlite", file)) = db.split_once(':') {
            return SavedFile::new(file, path).map(Self::File);
        }
        check_restore(db, path)?;
        Server::at(path).map(Self::Server)
    }

    fn is_saved(&self) -> Result<bool, LabError> {
        match self {
            Self::Server(server) => server.status().map(|status| status.saved),
            Self::File(file) => file.is_saved(),
        }
    }

    /// The warehouses of a copy that is there, and its name. A server's are in a cluster that does not run.
    pub(super) fn warehouses(&self) -> Result<Option<(i32, String)>, LabError> {
        match self {
            Self::Server(_) => Ok(None),
            Self::File(file) => {
                let marker = file.marker()?;
                Ok(marker
                    .map(|marker| (marker.shape.warehouses, file.copy().display().to_string())))
            }
        }
    }

    fn save(&self) -> Result<(), LabError> {
        match self {
            Self::Server(server) => server.save(),
            Self::File(file) => file.save(),
        }
    }

    fn restore(&self) -> Result<(), LabError> {
        match self {
            Self::Server(server) => server.restore(),
            Self::File(file) => file.restore(),
        }
    }

    /// Puts back what was saved, if something was, so that everything is asked of that; whether it did.
    /// What is not ours is left alone.
    pub(super) fn put_back_first(
        &self,
        database: &dyn Database,
        destroys: bool,
    ) -> Result<bool, LabError> {
        if !self.is_saved()? {
            return Ok(false);
        }
        if destroys {
            return Err(LabError::usage(format!("--destroy-data: {WOULD_REPLACE}")));
        }
        if let State::Foreign(_) = database.state()? {
            // Says what is there.
            built(database)?;
        }
        self.restore()?;
        Ok(true)
    }

    /// Puts the database back to what it was when it was saved, or is now.
    pub(super) fn ready(&self, progress: &Progress) -> Result<(), LabError> {
        if !self.is_saved()? {
            progress.doing("the database is saved");
            self.save()?;
        }
        self.restore()
    }
}

/// Putting another server back than the one that is driven would spoil both.
fn check_restore(db: &str, dir: &Path) -> Result<(), LabError> {
    let socket = Server::at(dir)?.socket_dir();
    let database = Postgres::new(db, Logic::Client)?;
    if database.socket_dir() == Some(&socket) {
        return Ok(());
    }
    Err(LabError::usage(format!(
        "--restore {}: --db {} is no database of that server (host={})",
        dir.display(),
        database.target(),
        socket.display()
    )))
}
