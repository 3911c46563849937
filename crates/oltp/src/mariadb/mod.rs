//! MariaDB, over its own protocol: TPROC-C as stored procedures on InnoDB.

mod load;
mod server;
mod session;
mod watcher;

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_lab::{LabError, Progress};
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder};

use crate::aside::until_ready;
use crate::database::{Database, Description, Loader, Session, Sought, Watcher};
use crate::schema::{MARKER_TABLE, Marker, State, Table};

pub use server::MariaServer;
pub(crate) use server::{LEAST_MEMORY, buffer_pool};

const TABLES: &str = include_str!("../../sql/mariadb_tables.sql");
const KEYS: &str = include_str!("../../sql/mariadb_keys.sql");
const PROCEDURES: &str = include_str!("../../sql/mariadb_procedures.sql");
/// What a statement of the procedures' file ends with.
const END: &str = "\n;;\n";

const MOST_LOADERS: usize = 16;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A server whose machine has gone is given up after this and three questions more.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Every connection's. Read committed is what PostgreSQL's default is; times are UTC.
const SESSION: [&str; 2] = [
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET time_zone = '+00:00'",
];

/// The server's settings that a result names.
const SETTINGS: [&str; 9] = [
    "innodb_buffer_pool_size",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_doublewrite",
    "innodb_log_file_size",
    "innodb_page_size",
    "sync_binlog",
    "log_bin",
    "max_connections",
];

/// A database of a MariaDB server.
pub struct MariaDb {
    opts: Opts,
    target: String,
}

impl MariaDb {
    /// The database that a URL names.
    ///
    /// # Errors
    /// A usage error if it names none. The text is not repeated: it may hold a password.
    pub fn new(url: &str) -> Result<Self, LabError> {
        let wrong = |why: String| {
            LabError::usage(format!(
                "--db mariadb://…: {why}: must be mariadb://USER:PASSWORD@HOST:PORT/NAME, or \
                 mariadb://USER@localhost/NAME?socket=/PATH, other characters as %XX"
            ))
        };
        let rest = url.split_once("://").map(|(_, rest)| rest);
        let rest = rest.ok_or_else(|| wrong("no ://".into()))?;
        let opts = Opts::from_url(&format!("mysql://{rest}"));
        let opts = opts.map_err(|error| wrong(error.to_string()))?;
        if opts.get_db_name().is_none_or(str::is_empty) {
            return Err(wrong("it names no database".into()));
        }
        // What a session calls is prepared once.
        let opts = OptsBuilder::from_opts(opts)
            .tcp_connect_timeout(Some(CONNECT_WITHIN))
            .tcp_keepalive_time_ms(Some(KEEP_ALIVE.as_millis() as u32))
            .tcp_keepalive_probe_interval_secs(Some(5))
            .tcp_keepalive_probe_count(Some(3))
            .stmt_cache_size(32)
            .init(SESSION.to_vec());
        let opts = Opts::from(opts);
        Ok(Self {
            target: target(&opts),
            opts,
        })
    }

    fn connect(&self) -> Result<Conn, LabError> {
        Conn::new(self.opts.clone()).map_err(|error| self.caused(&error))
    }

    fn caused(&self, error: &mysql::Error) -> LabError {
        LabError::caused(&self.target, words(error))
    }

    fn run<'a>(&self, statements: impl IntoIterator<Item = &'a str>) -> Result<(), LabError> {
        let mut connection = self.connect()?;
        for statement in statements {
            let done = connection.query_drop(statement);
            done.map_err(|error| self.caused(&error))?;
        }
        Ok(())
    }

    fn number(&self, sql: &str) -> Result<i64, LabError> {
        let mut connection = self.connect()?;
        watcher::number(&mut connection, sql).map_err(|error| self.caused(&error))
    }
}

/// Where it is, without a password.
fn target(opts: &Opts) -> String {
    let user = opts.get_user().unwrap_or("");
    let name = opts.get_db_name().unwrap_or("");
    match opts.get_socket() {
        Some(socket) => format!("mariadb://{user}@{socket}/{name}"),
        None => {
            let (host, port) = (opts.get_ip_or_hostname(), opts.get_tcp_port());
            format!("mariadb://{user}@{host}:{port}/{name}")
        }
    }
}

/// The statements of a file that end with semicolons.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    let all = text.split(";\n").map(str::trim);
    all.filter(|statement| !statement.is_empty())
}

/// An error as its reason, without the crate's own words around it.
fn words(error: &mysql::Error) -> String {
    match error {
        mysql::Error::MySqlError(of) => format!("{} ({}, {})", of.message, of.code, of.state),
        other => other.to_string(),
    }
}

impl Database for MariaDb {
    fn target(&self) -> String {
        self.target.clone()
    }

    fn describe(&self) -> Result<Description, LabError> {
        let mut connection = self.connect()?;
        let mut ask = |sql: &str| -> Result<Option<String>, LabError> {
            let found = connection.query_first::<Option<String>, _>(sql);
            Ok(found.map_err(|error| self.caused(&error))?.flatten())
        };
        let version = ask("SELECT version()")?.unwrap_or_default();
        let mut settings = BTreeMap::new();
        for name in SETTINGS {
            let sql = format!(
                "SELECT variable_value FROM information_schema.global_variables \
                 WHERE variable_name = '{name}'"
            );
            // Not every version has every setting.
            if let Some(value) = ask(&sql)? {
                settings.insert(name.to_owned(), value);
            }
        }
        settings.insert("transaction_isolation".into(), "READ-COMMITTED".into());
        Ok(Description {
            kind: "mariadb".into(),
            target: self.target.clone(),
            version: format!("MariaDB {version}"),
            sql: "functions".into(),
            settings,
        })
    }

    fn state(&self) -> Result<State, LabError> {
        let mut connection = self.connect()?;
        let caused = |error: mysql::Error| self.caused(&error);
        let names: Vec<String> = connection
            .query(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = database()",
            )
            .map_err(caused)?;
        let marker = match names.iter().any(|name| name == MARKER_TABLE) {
            true => connection
                .query_first::<Option<String>, _>("SELECT max(marker) FROM ashlar_oltp")
                .map_err(caused)?
                .flatten(),
            false => None,
        };
        Ok(State::of(names, marker))
    }

    fn await_ready(&self, limit: Duration, progress: &Progress) -> Result<(), LabError> {
        let reason = || {
            let error = Conn::new(self.opts.clone()).err()?;
            is_starting(&error).then(|| words(&error))
        };
        until_ready(&self.target, limit, progress, reason)
    }

    fn check_users(&self, sought: Sought<'_>) -> Result<(), LabError> {
        let Sought { option, users } = sought;
        let most = self.number("SELECT @@max_connections")?;
        let others = self.number(
            "SELECT variable_value - 1 FROM information_schema.global_status \
             WHERE variable_name = 'threads_connected'",
        )?;
        let free = most - others;
        if (users as i64) < free {
            return Ok(());
        }
        Err(LabError::environment(format!(
            "{option} {users}: {} allows {free} more connections, {} are needed \
             (max_connections {most}, {others} in use): ask for fewer, or raise max_connections",
            self.target,
            users + 1
        )))
    }

    fn create(&self) -> Result<(), LabError> {
        let names: Vec<&str> = Table::ALL.iter().map(|table| table.name()).collect();
        let drop = format!("DROP TABLE IF EXISTS {}, {MARKER_TABLE}", names.join(", "));
        self.run([&*drop].into_iter().chain(statements(TABLES)))
    }

    fn has_table(&self, name: &str) -> Result<bool, LabError> {
        let mut connection = self.connect()?;
        let sql = "SELECT table_name FROM information_schema.tables \
                   WHERE table_schema = database() AND table_name = ?";
        let found: Option<String> = connection
            .exec_first(sql, (name,))
            .map_err(|error| self.caused(&error))?;
        Ok(found.is_some())
    }

    fn execute(&self, sql: &str) -> Result<(), LabError> {
        self.run([sql])
    }

    fn most_loaders(&self) -> usize {
        MOST_LOADERS
    }

    fn loader(&self) -> Result<Box<dyn Loader>, LabError> {
        let connection = self.connect()?;
        Ok(Box::new(load::InsertLoader::new(
            connection,
            self.target.clone(),
        )))
    }

    fn finish(&self, marker: &Marker) -> Result<(), LabError> {
        self.run(statements(KEYS))?;
        let tables: Vec<&str> = Table::ALL.iter().map(|table| table.name()).collect();
        self.run([&*format!("ANALYZE TABLE {}", tables.join(", "))])?;
        let mut connection = self.connect()?;
        let insert = "INSERT INTO ashlar_oltp VALUES (?)";
        connection
            .exec_drop(insert, (marker.to_text()?,))
            .map_err(|error| self.caused(&error))
    }

    fn prepare_run(&self) -> Result<(), LabError> {
        self.run(PROCEDURES.split(END).map(str::trim))
    }

    fn session(&self) -> Result<Box<dyn Session>, LabError> {
        Ok(Box::new(session::ProcedureSession::new(self.connect()?)))
    }

    fn watcher(&self) -> Result<Box<dyn Watcher>, LabError> {
        Ok(Box::new(watcher::MariaWatcher::new(
            self.connect()?,
            self.opts.clone(),
            self.target.clone(),
        )))
    }
}

/// Whether a server may be there in a moment.
fn is_starting(error: &mysql::Error) -> bool {
    match error {
        mysql::Error::IoError(error) => matches!(
            error.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
        ),
        mysql::Error::DriverError(error) => error.to_string().contains("connect"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_never_shows_the_password() {
        let of = |url: &str| MariaDb::new(url).expect("a URL").target();
        assert_eq!(
            of("mariadb://me:secret@db.example:3307/tpcc"),
            "mariadb://me@db.example:3307/tpcc"
        );
        assert_eq!(
            of("mariadb://me:secret@localhost/tpcc?socket=/run/m%20y/s"),
            "mariadb://me@/run/m y/s/tpcc"
        );
    }

    #[test]
    fn what_is_no_url_is_refused_without_its_text() {
        for url in [
            "mariadb:x",
            "mariadb://me:secret@h",
            "mariadb://h/db?nonsense=secret",
        ] {
            let error = MariaDb::new(url).err().expect(url);
            assert_eq!(error.exit_code(), 2);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn files_are_cut_into_statements() {
        assert_eq!(statements(TABLES).count(), 10);
        assert_eq!(statements(KEYS).count(), 2);
        let procedures: Vec<&str> = PROCEDURES.split(END).collect();
        assert_eq!(procedures.len(), 10);
        assert!(procedures.iter().all(|text| text.contains("PROCEDURE")));
    }
}
