//! What keeps the database of a home: PostgreSQL's servers, which may be two, or a MariaDB.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ashlar_lab::{LabError, Progress};
use serde::{Deserialize, Serialize};

use crate::database::Database;
use crate::mariadb::{self, MariaDb, MariaServer};
use crate::postgres::{Logic, Postgres};
use crate::server::{Commit, DATABASE, Door, Pair, Settings, Topology, limited, limited_by};

/// A PostgreSQL's processes take so much memory, whatever the size of its database.
const POSTGRES_MEMORY: u64 = 40 << 20;
const MEMORY_EACH_USER: u64 = 6 << 20;

/// What kind of database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OltpEngine {
    /// PostgreSQL.
    #[default]
    Postgres,
    /// MariaDB: one server, and its logic in stored procedures.
    Mariadb,
}

impl OltpEngine {
    /// Less memory than this is not given to a server with so many users.
    pub(super) const fn least_memory(self, users: u64) -> u64 {
        let own = match self {
            Self::Postgres => POSTGRES_MEMORY,
            Self::Mariadb => mariadb::LEAST_MEMORY,
        };
        own + MEMORY_EACH_USER * users
    }

    /// Settings with a limit of memory, where there can be one.
    pub(super) fn limited(self, set: Vec<String>, bytes: u64) -> (Settings, Option<String>) {
        match self {
            Self::Postgres => limited(set, bytes),
            Self::Mariadb => limited_by(mariadb::buffer_pool, set, bytes),
        }
    }

    const fn bytes_sql(self) -> &'static str {
        match self {
            Self::Postgres => "SELECT pg_database_size(current_database())",
            Self::Mariadb => {
                "SELECT CAST(sum(data_length + index_length) AS signed) FROM information_schema.tables \
                 WHERE table_schema = database()"
            }
        }
    }
}

/// Servers of a home. They end when it is dropped.
pub(super) enum Keeper {
    Postgres(Pair),
    Mariadb(Ended),
}

/// Killed when it is dropped: nothing of a run must stay.
pub(super) struct Ended(MariaServer);

impl Drop for Ended {
    fn drop(&mut self) {
        // What cannot be killed is not there.
        let _ = self.0.kill();
    }
}

impl Keeper {
    /// Makes the primary in the first folder and starts it; with a door it listens there besides its socket.
    pub(super) fn start(
        engine: OltpEngine,
        [primary, standby]: &[PathBuf; 2],
        settings: Settings,
        door: Option<Door>,
    ) -> Result<Self, LabError> {
        Ok(match engine {
            OltpEngine::Postgres => {
                Self::Postgres(Pair::start_listening([primary, standby], settings, door)?)
            }
            OltpEngine::Mariadb => {
                let server = Ended(MariaServer::at(primary)?.listening(door));
                server.0.start(Some(settings))?;
                Self::Mariadb(server)
            }
        })
    }

    pub(super) fn open(
        &self,
        logic: Logic,
        progress: &Progress,
    ) -> Result<Arc<dyn Database>, LabError> {
        Ok(match self {
            Self::Postgres(pair) => Arc::new(Postgres::new(&pair.url(), logic)?.until(progress)),
            Self::Mariadb(server) => Arc::new(MariaDb::new(&server.0.url(DATABASE))?),
        })
    }

    /// Where clients on other machines reach it.
    pub(super) fn listens(&self) -> Option<SocketAddr> {
        match self {
            Self::Postgres(pair) => pair.primary().listens(),
            Self::Mariadb(server) => server.0.listens(),
        }
    }

    /// Bytes of its database.
    pub(super) fn bytes(&self, database: &dyn Database) -> Result<u64, LabError> {
        let engine = match self {
            Self::Postgres(_) => OltpEngine::Postgres,
            Self::Mariadb(_) => OltpEngine::Mariadb,
        };
        let bytes = database.watcher()?.number(engine.bytes_sql())?;
        Ok(bytes.max(0).unsigned_abs())
    }

    /// Ends what Patroni keeps: another group's own things are where its are.
    pub(super) fn end_group(&self) -> Result<(), LabError> {
        match self {
            Self::Postgres(pair) if pair.is_kept() => pair.stop(),
            _ => Ok(()),
        }
    }

    /// Patroni keeps them wherever they are a group.
    pub(super) fn keep_by_patroni(&mut self, dir: &Path) {
        if let Self::Postgres(pair) = self {
            pair.keep_by_patroni(dir);
        }
    }

    /// Seeds the standby.
    pub(super) fn seed(&mut self, settings: Settings, commit: Commit) -> Result<(), LabError> {
        match self {
            Self::Postgres(pair) => pair.seed(settings, commit),
            Self::Mariadb(_) => Err(LabError::usage("a standby: PostgreSQL's alone")),
        }
    }

    /// Stops and saves what there is.
    pub(super) fn save(&self) -> Result<(), LabError> {
        match self {
            Self::Postgres(pair) => pair.save(),
            Self::Mariadb(server) => {
                server.0.stop()?;
                server.0.save()
            }
        }
    }

    /// Puts back what was saved and starts it with these settings.
    pub(super) fn restore(&self, topology: Topology, settings: &Settings) -> Result<(), LabError> {
        match self {
            Self::Postgres(pair) => pair.restore(topology, settings),
            Self::Mariadb(server) => {
                server.0.stop()?;
                server.0.restore()?;
                server.0.start(Some(settings.clone())).map(drop)
            }
        }
    }

    /// Takes the limit of the primary's memory away until its next start.
    pub(super) fn lift_limit(&self) -> Result<(), LabError> {
        match self {
            Self::Postgres(pair) => pair.primary().lift_limit(),
            Self::Mariadb(server) => server.0.lift_limit(),
        }
    }
}
