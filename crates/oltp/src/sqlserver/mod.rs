//! SQL Server, over its own protocol (TDS): TPROC-C as stored procedures, which is what the published papers measured.
//!
//! No SQL Server has been driven by this code where it was written: its tests are against a server of their own that
//! speaks the protocol (`tests/sqlserver`). The driver is asynchronous, its stream blocks: a user is a thread.

mod link;
mod load;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod url;
mod watcher;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{LabError, Progress};
use tiberius::error::Error;

use crate::aside::until_ready;
use crate::database::{Database, Description, Loader, Session, Sought, Watcher};
use crate::schema::{MARKER_TABLE, Marker, State, Table};
use link::{Link, Refused, words};
use url::Target;

const TABLES: &str = include_str!("../../sql/sqlserver_tables.sql");
const KEYS: &str = include_str!("../../sql/sqlserver_keys.sql");
const PROCEDURES: &str = include_str!("../../sql/sqlserver_procedures.sql");
/// What a batch of the procedures' file ends with.
const END: &str = "\nGO\n";

const MOST_LOADERS: usize = 16;

/// What a server says that takes no logins yet: it starts up, or recovers the database.
const STARTING: [u32; 4] = [921, 922, 927, 18401];

/// The database's settings that a result names: columns of `sys.databases`.
const OF_DATABASE: [&str; 8] = [
    "compatibility_level",
    "collation_name",
    "recovery_model_desc",
    "delayed_durability_desc",
    "is_read_committed_snapshot_on",
    "snapshot_isolation_state_desc",
    "page_verify_option_desc",
    "is_encrypted",
];

/// The server's: rows of `sys.configurations`.
const OF_SERVER: [&str; 4] = [
    "max server memory (MB)",
    "max degree of parallelism",
    "recovery interval (min)",
    "user connections",
];

/// A setting, and the expression that gives its value.
struct Setting {
    name: &'static str,
    value: String,
}

/// A database of a SQL Server.
pub struct SqlServer {
    target: Target,
    /// A thread that waits for an answer looks at this.
    until: Arc<Progress>,
}

impl SqlServer {
    /// The database that a URL names.
    ///
    /// # Errors
    /// A usage error if it names none. The text is not repeated: it may hold a password.
    pub fn new(url: &str) -> Result<Self, LabError> {
        Ok(Self {
            target: Target::parse(url)?,
            until: Arc::new(Progress::silent()),
        })
    }

    /// The same; once `progress` is not to go on, no thread waits for an answer longer than a few seconds,
    /// whatever has become of the server.
    pub fn until(self, progress: &Progress) -> Self {
        Self {
            until: Arc::new(progress.quiet()),
            ..self
        }
    }

    fn connect(&self) -> Result<Link, LabError> {
        Link::open(&self.target, &self.until)
            .map_err(|refused| LabError::caused(&self.target, refused.told()))
    }

    fn caused(&self, error: &Error) -> LabError {
        LabError::caused(&self.target, words(error))
    }

    fn run<'a>(&self, batches: impl IntoIterator<Item = &'a str>) -> Result<(), LabError> {
        let mut link = self.connect()?;
        for batch in batches {
            link.run(batch).map_err(|error| self.caused(&error))?;
        }
        Ok(())
    }

    /// The one value of a query as text, if it is not null.
    fn text(&self, link: &mut Link, expression: &str) -> Result<Option<String>, LabError> {
        let sql = format!("SELECT CAST({expression} AS nvarchar(4000))");
        let rows = link.rows(&sql).map_err(|error| self.caused(&error))?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let found = row.try_get::<&str, _>(0);
        let found = found.map_err(|error| self.caused(&error))?;
        Ok(found.map(str::to_owned))
    }
}

impl Database for SqlServer {
    fn target(&self) -> String {
        self.target.to_string()
    }

    fn describe(&self) -> Result<Description, LabError> {
        let mut link = self.connect()?;
        let mut settings = BTreeMap::new();
        let of_database = OF_DATABASE.map(|name| Setting {
            name,
            value: format!("(SELECT {name} FROM sys.databases WHERE database_id = DB_ID())"),
        });
        let of_server = OF_SERVER.map(|name| Setting {
            name,
            value: format!("(SELECT value_in_use FROM sys.configurations WHERE name = '{name}')"),
        });
        for Setting { name, value } in of_database.iter().chain(&of_server) {
            if let Some(value) = self.text(&mut link, value)? {
                settings.insert((*name).to_owned(), value);
            }
        }
        settings.insert("transaction_isolation".into(), "READ COMMITTED".into());
        let mut property = |name: &str| {
            let found = self.text(&mut link, &format!("SERVERPROPERTY('{name}')"))?;
            Ok::<_, LabError>(found.unwrap_or_default())
        };
        let (version, edition) = (property("ProductVersion")?, property("Edition")?);
        Ok(Description {
            kind: "sqlserver".into(),
            target: self.target(),
            version: format!("SQL Server {version}, {edition}"),
            sql: "functions".into(),
            settings,
        })
    }

    fn state(&self) -> Result<State, LabError> {
        let mut link = self.connect()?;
        let caused = |error: Error| self.caused(&error);
        let rows = link.rows("SELECT name FROM sys.tables WHERE is_ms_shipped = 0");
        let names: Result<Vec<String>, Error> = rows
            .map_err(caused)?
            .iter()
            .map(|row| Ok(row.try_get::<&str, _>(0)?.unwrap_or_default().to_owned()))
            .collect();
        let names = names.map_err(caused)?;
        let marker = match names.iter().any(|name| name == MARKER_TABLE) {
            true => self.text(&mut link, "(SELECT max(marker) FROM ashlar_oltp)")?,
            false => None,
        };
        Ok(State::of(names, marker))
    }

    fn await_ready(&self, limit: Duration, progress: &Progress) -> Result<(), LabError> {
        let reason = || {
            let refused = Link::open(&self.target, &self.until).err()?;
            is_starting(&refused).then(|| refused.told())
        };
        until_ready(&self.target(), limit, progress, reason)
    }

    fn check_users(&self, sought: Sought<'_>) -> Result<(), LabError> {
        let Sought { option, users } = sought;
        let mut link = self.connect()?;
        let mut number = |sql| link.number(sql).map_err(|error| self.caused(&error));
        let most = number("SELECT @@MAX_CONNECTIONS")?;
        // This connection is one of them, and is closed before the watcher's is opened.
        let others =
            number("SELECT count(*) - 1 FROM sys.dm_exec_sessions WHERE is_user_process = 1")?;
        let free = most - others;
        if (users as i64) < free {
            return Ok(());
        }
        Err(LabError::environment(format!(
            "{option} {users}: {} allows {free} more connections, {} are needed ({most} at most, {others} in use): \
             ask for fewer, or raise the server's `user connections`",
            self.target,
            users + 1
        )))
    }

    fn create(&self) -> Result<(), LabError> {
        let names: Vec<&str> = Table::ALL.iter().map(|table| table.name()).collect();
        let drop = format!("DROP TABLE IF EXISTS {}, {MARKER_TABLE}", names.join(", "));
        self.run([&*drop, TABLES])
    }

    fn has_table(&self, name: &str) -> Result<bool, LabError> {
        let mut link = self.connect()?;
        let name = name.replace('\'', "''");
        let sql = format!("SELECT count(*) FROM sys.tables WHERE name = '{name}'");
        let found = link.number(&sql).map_err(|error| self.caused(&error))?;
        Ok(found > 0)
    }

    fn execute(&self, sql: &str) -> Result<(), LabError> {
        self.run([sql])
    }

    /// `text` is outdated, and is kept outside the rows.
    fn long_text(&self) -> &'static str {
        "varchar(1000)"
    }

    fn most_loaders(&self) -> usize {
        MOST_LOADERS
    }

    fn loader(&self) -> Result<Box<dyn Loader>, LabError> {
        Ok(Box::new(load::BulkLoader::new(
            self.connect()?,
            self.target(),
        )))
    }

    fn finish(&self, marker: &Marker) -> Result<(), LabError> {
        self.run([KEYS])?;
        let statistics = Table::ALL.map(|table| format!("UPDATE STATISTICS {};", table.name()));
        self.run([&*statistics.concat()])?;
        let mut link = self.connect()?;
        let text = marker.to_text()?;
        link.told("INSERT INTO ashlar_oltp VALUES (@P1)", &text)
            .map_err(|error| self.caused(&error))
    }

    fn prepare_run(&self) -> Result<(), LabError> {
        self.run(PROCEDURES.split(END))
    }

    fn session(&self) -> Result<Box<dyn Session>, LabError> {
        Ok(Box::new(session::ProcedureSession::new(self.connect()?)))
    }

    fn watcher(&self) -> Result<Box<dyn Watcher>, LabError> {
        let (target, until) = (self.target.clone(), Arc::clone(&self.until));
        let watcher = watcher::SqlServerWatcher::new(self.connect()?, target, until);
        Ok(Box::new(watcher.map_err(|error| self.caused(&error))?))
    }
}

/// Whether a server may be there in a moment.
fn is_starting(refused: &Refused) -> bool {
    match refused {
        Refused::Server(Error::Server(error)) => STARTING.contains(&error.code()),
        _ => false,
    }
}
