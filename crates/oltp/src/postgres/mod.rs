//! PostgreSQL, over its own protocol.

mod blocking;
mod client;
mod connection;
mod decimal;
mod functions;
mod load;
mod picked;
mod socket;
mod statements;
mod watcher;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{LabError, Progress};
use serde::{Deserialize, Serialize};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::aside::until_ready;
use crate::database::{Database, Description, Loader, Session, Sought, Watcher};
use crate::schema::{MARKER_TABLE, Marker, State, Table};
use connection::{Connection, target, words};
pub(crate) use connection::{EPOCH, STARTED};

const TABLES: &str = include_str!("../../sql/postgres_tables.sql");
const KEYS: &str = include_str!("../../sql/postgres_keys.sql");
const FUNCTIONS: &str = include_str!("../../sql/postgres_functions.sql");

/// More loaders than this make loading no faster.
const MOST_LOADERS: usize = 64;

/// The server's settings that a result names.
const SETTINGS: [&str; 14] = [
    "max_parallel_workers_per_gather",
    "shared_buffers",
    "synchronous_commit",
    "fsync",
    "full_page_writes",
    "wal_compression",
    "max_wal_size",
    "checkpoint_timeout",
    "checkpoint_completion_target",
    "wal_sync_method",
    "max_connections",
    "default_transaction_isolation",
    "autovacuum",
    "synchronous_standby_names",
];

/// Where the logic of a transaction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Logic {
    /// In the database, as functions.
    Functions,
    /// Here, as SQL statements.
    Client,
}

/// A database of a PostgreSQL server.
pub struct Postgres {
    config: Config,
    target: String,
    logic: Logic,
    /// Every wait for an answer looks at this.
    until: Arc<Progress>,
}

impl Postgres {
    /// The database that a URL (or a list of `key=value`) names.
    ///
    /// # Errors
    /// A usage error if it names none. The text is not repeated: it may hold a password.
    pub fn new(url: &str, logic: Logic) -> Result<Self, LabError> {
        let config: Config = url.parse().map_err(|error| {
            LabError::usage(format!(
                "--db postgres://…: {error}: must be postgres://USER:PASSWORD@HOST:PORT/NAME, or \
                     postgres:///NAME?host=/SOCKET/DIR&user=USER, other characters as %XX"
            ))
        })?;
        Ok(Self {
            target: target(&config),
            config,
            logic,
            until: Arc::new(Progress::silent()),
        })
    }

    /// The same; once `progress` is not to go on, an answer is waited for no longer than a few seconds,
    /// whatever has become of the server.
    pub fn until(self, progress: &Progress) -> Self {
        Self {
            until: Arc::new(progress.quiet()),
            ..self
        }
    }

    /// The folder of the unix socket that leads there, if one does.
    pub fn socket_dir(&self) -> Option<&Path> {
        match self.config.get_hosts().first() {
            Some(Host::Unix(folder)) if self.config.get_hostaddrs().is_empty() => Some(folder),
            _ => None,
        }
    }

    fn connect(&self) -> Result<Connection, LabError> {
        Connection::open(&self.config, &self.until)
    }

    fn caused(&self, error: &tokio_postgres::Error) -> LabError {
        LabError::caused(&self.target, words(error))
    }

    fn run(&self, sql: &str) -> Result<(), LabError> {
        self.connect()?
            .run(sql)
            .map_err(|error| self.caused(&error))
    }
}

/// Tables outside the system's schemas; those that plain names lead to by their plain names.
const TABLE_NAMES: &str = "SELECT array_agg(CASE WHEN pg_table_is_visible(c.oid) THEN c.relname::text \
    ELSE n.nspname || '.' || c.relname END) FROM pg_class c JOIN pg_namespace n \
    ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'f') AND n.nspname !~ '^pg_' \
    AND n.nspname <> 'information_schema'";

impl Database for Postgres {
    fn target(&self) -> String {
        self.target.clone()
    }

    fn describe(&self) -> Result<Description, LabError> {
        let connection = self.connect()?;
        let version: String = connection
            .value("SHOW server_version")
            .map_err(|error| self.caused(&error))?;
        let mut settings = std::collections::BTreeMap::new();
        for name in SETTINGS {
            // Not every version has every setting.
            if let Ok(value) = connection.value::<String>(&format!("SHOW {name}")) {
                settings.insert(name.to_owned(), value);
            }
        }
        let sql = match self.logic {
            Logic::Functions => "functions",
            Logic::Client => "client",
        };
        Ok(Description {
            kind: "postgres".into(),
            target: self.target.clone(),
            version: format!("PostgreSQL {version}"),
            sql: sql.into(),
            settings,
        })
    }

    fn state(&self) -> Result<State, LabError> {
        let connection = self.connect()?;
        let caused = |error| self.caused(&error);
        let names: Option<Vec<String>> = connection.value(TABLE_NAMES).map_err(caused)?;
        let names = names.unwrap_or_default();
        let marker = if names.iter().any(|name| name == MARKER_TABLE) {
            connection
                .value("SELECT max(marker) FROM ashlar_oltp")
                .map_err(caused)?
        } else {
            None
        };
        Ok(State::of(names, marker))
    }

    fn await_ready(&self, limit: Duration, progress: &Progress) -> Result<(), LabError> {
        let reason = || Connection::not_yet(&self.config, &self.until);
        until_ready(&self.target, limit, progress, reason)
    }

    fn check_users(&self, sought: Sought<'_>) -> Result<(), LabError> {
        let Sought { option, users } = sought;
        let connection = self.connect()?;
        let number = |sql: &str| -> Result<i64, LabError> {
            connection.value(sql).map_err(|error| self.caused(&error))
        };
        let most = number("SELECT current_setting('max_connections')::bigint")?;
        let reserved = number(
            "SELECT CASE WHEN rolsuper THEN 0 ELSE \
             current_setting('superuser_reserved_connections')::bigint END \
             FROM pg_roles WHERE rolname = current_user",
        )?;
        // This connection is one of them, and is closed before the watcher's is opened.
        let others = number(
            "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'",
        )?;
        let free = most - reserved - others;
        if (users as i64) < free {
            return Ok(());
        }
        Err(LabError::environment(format!(
            "{option} {users}: {} allows {free} more connections, {} are needed \
             (max_connections {most}, {reserved} reserved, {others} in use): ask for fewer, or raise \
             max_connections (`lab server start --set max_connections=N`)",
            self.target,
            users + 1
        )))
    }

    fn create(&self) -> Result<(), LabError> {
        let names: Vec<&str> = Table::ALL.iter().map(|table| table.name()).collect();
        let names = names.join(", ");
        self.run(&format!(
            "BEGIN; DROP TABLE IF EXISTS {names}, {MARKER_TABLE}; {TABLES} COMMIT;"
        ))
    }

    fn has_table(&self, name: &str) -> Result<bool, LabError> {
        let connection = self.connect()?;
        let query = async {
            let sql = "SELECT to_regclass($1) IS NOT NULL";
            connection.client.query_one(sql, &[&name]).await?.try_get(0)
        };
        connection
            .driver
            .block_on(query)
            .map_err(|error| self.caused(&error))
    }

    fn execute(&self, sql: &str) -> Result<(), LabError> {
        self.run(sql)
    }

    fn most_loaders(&self) -> usize {
        MOST_LOADERS
    }

    fn loader(&self) -> Result<Box<dyn Loader>, LabError> {
        let connection = self.connect()?;
        // The marker's commit makes everything before it durable.
        connection
            .run("SET synchronous_commit = off")
            .map_err(|error| self.caused(&error))?;
        Ok(Box::new(load::CopyLoader::new(
            connection,
            self.target.clone(),
        )))
    }

    fn finish(&self, marker: &Marker) -> Result<(), LabError> {
        let connection = self.connect()?;
        let caused = |error| self.caused(&error);
        connection.run(KEYS).map_err(caused)?;
        let tables: Vec<&str> = Table::ALL.iter().map(|table| table.name()).collect();
        // Hint bits and the visibility map are part of a load, not of the first run after it.
        connection
            .run(&format!("VACUUM ANALYZE {}", tables.join(", ")))
            .map_err(caused)?;
        let text = marker.to_text()?;
        let insert = async {
            let sql = "INSERT INTO ashlar_oltp VALUES ($1)";
            connection.client.execute(sql, &[&text]).await
        };
        connection.driver.block_on(insert).map(drop).map_err(caused)
    }

    fn prepare_run(&self) -> Result<(), LabError> {
        match self.logic {
            Logic::Functions => self.run(&format!("BEGIN; {FUNCTIONS} COMMIT;")),
            Logic::Client => Ok(()),
        }
    }

    fn session(&self) -> Result<Box<dyn Session>, LabError> {
        let connection = self.connect()?;
        let caused = |error| self.caused(&error);
        Ok(match self.logic {
            Logic::Functions => {
                Box::new(functions::FunctionSession::new(connection).map_err(caused)?)
            }
            Logic::Client => Box::new(client::ClientSession::new(connection).map_err(caused)?),
        })
    }

    fn watcher(&self) -> Result<Box<dyn Watcher>, LabError> {
        let connection = self.connect()?;
        Ok(Box::new(watcher::PostgresWatcher::new(
            connection,
            self.target.clone(),
        )))
    }
}
