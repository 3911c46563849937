//! A connection that a thread waits for, and what its errors mean.

use std::sync::Arc;

use ashlar_lab::{LabError, Progress};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, Statement};

use super::blocking::{Driver, Refused, cancel, connect};
use crate::database::{Failure, ServerStart};

/// The epoch in which a server takes writes: `ashlar.epoch` if its start command has set it, otherwise the timeline. One that
/// follows cannot tell its own.
pub(crate) const EPOCH: &str = "coalesce(nullif(current_setting('ashlar.epoch', true), '')::bigint, \
                                ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint)";
/// When a server was started, in microseconds since 1970.
pub(crate) const STARTED: &str = "(extract(epoch FROM pg_postmaster_start_time()) * 1e6)::bigint";

/// A connection. The client is dropped before its driver, which then says goodbye.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) driver: Driver,
    config: Config,
    until: Arc<Progress>,
}

impl Connection {
    /// Logs in. What waits for an answer does so until `until` is not to go on.
    pub(super) fn open(config: &Config, until: &Arc<Progress>) -> Result<Self, LabError> {
        let mut config = config.clone();
        config.application_name("ashlar-oltp");
        match connect(&config, until) {
            Ok((client, driver)) => Ok(Self {
                client,
                driver,
                config,
                until: Arc::clone(until),
            }),
            Err(refused) => Err(LabError::caused(target(&config), refused.told())),
        }
    }

    /// Why a server that is there lets no client in yet: it starts up, recovers, or shuts down.
    pub(super) fn not_yet(config: &Config, until: &Arc<Progress>) -> Option<String> {
        match connect(config, until) {
            Err(Refused::Server(error)) if error.code() == Some(&SqlState::CANNOT_CONNECT_NOW) => {
                Some(words(&error))
            }
            _ => None,
        }
    }

    /// Runs statements that give nothing.
    pub(super) fn run(&self, sql: &str) -> Result<(), Error> {
        self.driver.block_on(self.client.batch_execute(sql))
    }

    /// The one value of a query.
    pub(super) fn value<T>(&self, sql: &str) -> Result<T, Error>
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        let row = self.driver.block_on(self.client.query_one(sql, &[]))?;
        row.try_get(0)
    }

    /// Has the server add what was done on this connection to `pg_stat_database` at once; by itself it does
    /// so after a transaction that ends at least a second after the last time. Since version 15; others
    /// complain, and nothing is changed.
    pub(super) fn have_counted(&self) {
        let _ = self.run("SELECT pg_stat_force_next_flush()");
    }

    /// Which life of which primary this is; a server that follows cannot tell.
    pub(super) fn server_start(&self) -> Option<ServerStart> {
        let number = |sql| self.value::<i64>(sql).ok();
        Some(ServerStart {
            epoch: number(&format!("SELECT {EPOCH}"))?,
            started_us: number(&format!("SELECT {STARTED}"))?,
        })
    }

    /// What asks the server, over a connection of its own, to end the query that this one runs.
    pub(super) fn canceller(&self) -> impl Fn() -> Result<(), Refused> + Send + use<> {
        let (token, config) = (self.client.cancel_token(), self.config.clone());
        let until = Arc::clone(&self.until);
        move || cancel(&token, &config, &until)
    }

    /// A prepared statement.
    pub(super) fn prepare(&self, sql: &str) -> Result<Statement, Error> {
        self.driver.block_on(self.client.prepare(sql))
    }
}

impl Refused {
    /// Why there is no connection, and what may help.
    fn told(&self) -> String {
        use std::io::ErrorKind;
        let (text, advice) = match self {
            Self::Unreachable(error) => {
                let advice = match error.kind() {
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                        "is the server running, and is this where it listens?"
                    }
                    _ => "",
                };
                (error.to_string(), advice)
            }
            Self::Server(error) => (words(error), advice(error)),
        };
        match advice {
            "" => text,
            advice => format!("{text}: {advice}"),
        }
    }
}

/// What may help against an error at login.
fn advice(error: &Error) -> &'static str {
    match error.code() {
        Some(&SqlState::INVALID_CATALOG_NAME) => "create it first, or name another in --db",
        Some(&SqlState::INVALID_PASSWORD) => {
            "--db has it as postgres://USER:PASSWORD@…, or as password=…"
        }
        Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
            "--db has the role as postgres://USER@…, or as user=…"
        }
        Some(&SqlState::TOO_MANY_CONNECTIONS) => "ask for fewer users, or raise max_connections",
        None if error.to_string().contains("configuration") => {
            "--db has a password as postgres://USER:PASSWORD@…, or as password=…"
        }
        _ => "",
    }
}

/// Where a configuration leads, without its password.
pub(super) fn target(config: &Config) -> String {
    use tokio_postgres::config::Host;
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => config
            .get_hostaddrs()
            .first()
            .map_or(String::new(), ToString::to_string),
    };
    let port = config
        .get_ports()
        .first()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let user = config
        .get_user()
        .map(|user| format!("{user}@"))
        .unwrap_or_default();
    format!(
        "postgres://{user}{host}{port}/{}",
        config.get_dbname().unwrap_or_default()
    )
}

/// An error in words: the server's own where it has some, with its code.
pub(super) fn words(error: &Error) -> String {
    use std::error::Error as _;
    if let Some(told) = error.as_db_error() {
        let detail = told
            .detail()
            .map(|detail| format!(" ({detail})"))
            .unwrap_or_default();
        return format!("{}{detail} [{}]", told.message(), told.code().code());
    }
    if error.is_closed() {
        return "connection closed: the server has ended it, or has died, or does not answer; its log \
                says why"
            .to_owned();
    }
    let mut text = error.to_string();
    if let Some(source) = error.source().map(ToString::to_string)
        && !text.contains(&source)
    {
        text = format!("{text}: {source}");
    }
    text
}

/// Whether an error means that the same again may succeed, or that nothing will.
pub(super) fn failure(error: &Error) -> Failure {
    let text = words(error);
    match error.code() {
        None => Failure::Lost(text),
        Some(code) if RETRY.contains(code) => Failure::Retry(text),
        Some(code) if LOST.contains(code) || error.is_closed() => Failure::Lost(text),
        Some(_) => Failure::Error(text),
    }
}

const RETRY: [SqlState; 3] = [
    SqlState::T_R_SERIALIZATION_FAILURE,
    SqlState::T_R_DEADLOCK_DETECTED,
    SqlState::LOCK_NOT_AVAILABLE,
];

const LOST: [SqlState; 8] = [
    SqlState::DISK_FULL,
    SqlState::OUT_OF_MEMORY,
    SqlState::IO_ERROR,
    SqlState::ADMIN_SHUTDOWN,
    SqlState::CRASH_SHUTDOWN,
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::DATABASE_DROPPED,
    SqlState::READ_ONLY_SQL_TRANSACTION,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_never_shows_the_password() {
        let of = |url: &str| target(&url.parse().expect("a URL"));
        let url = "postgres://me:secret@db.example:5433/tpcc";
        assert_eq!(of(url), "postgres://me@db.example:5433/tpcc");
        let url = "postgres:///tpcc?host=/run/pg&user=me&password=secret";
        assert_eq!(of(url), "postgres://me@/run/pg/tpcc");
    }
}
