//! A connection that a thread waits for, and what its errors mean.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ashlar_lab::Progress;
use tiberius::error::Error;
use tiberius::{AuthMethod, Client, ColumnData, Command, Config, EncryptionLevel, Row};

use super::stream::Blocking;
use super::url::Target;
use crate::socket::{Limits, Socket, at_once};

/// Rows are sent in packets of this size: the most that a server takes, since a load is many.
const PACKET: u32 = 32767;

/// Why there is no connection.
pub(super) enum Refused {
    /// This address does not answer.
    Unreachable(io::Error),
    /// The server did not let us in.
    Server(Error),
}

impl Refused {
    /// Why, and what may help.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Unreachable(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                format!("{error}: is the server running, and is this where it listens?")
            }
            Self::Unreachable(error) => error.to_string(),
            Self::Server(error) => words(error),
        }
    }
}

/// A connection that has logged in.
pub(super) struct Link {
    pub(super) client: Client<Blocking>,
}

impl Link {
    /// Logs in. What waits for an answer does so until `until` is not to go on.
    pub(super) fn open(target: &Target, until: &Arc<Progress>) -> Result<Self, Refused> {
        let address = (target.host.as_str(), target.port);
        let socket =
            Socket::tcp(address, Limits::default(), until).map_err(Refused::Unreachable)?;
        let is_login = Arc::new(AtomicBool::new(true));
        let stream = Blocking::new(socket, &is_login);
        let client = at_once(Client::connect(config(target), stream)).map_err(Refused::Server)?;
        is_login.store(false, Ordering::Relaxed);
        Ok(Self { client })
    }

    /// Runs a batch that gives nothing.
    pub(super) fn run(&mut self, sql: &str) -> Result<(), Error> {
        self.rows(sql).map(drop)
    }

    /// The first row's first value, whatever kind of number it is.
    pub(super) fn number(&mut self, sql: &str) -> Result<i64, Error> {
        let rows = self.rows(sql)?;
        let value = rows.first().map(|row| row.get_column_data(0)).transpose()?;
        value.map_or(Ok(0), whole)
    }

    /// The rows that a batch gives first.
    pub(super) fn rows(&mut self, sql: &str) -> Result<Vec<Row>, Error> {
        at_once(async { self.client.simple_query(sql).await?.into_results().await })
            .map(|results| results.into_iter().next().unwrap_or_default())
    }

    /// Runs a statement that is told a text (`@P1`) and gives nothing.
    pub(super) fn told(&mut self, sql: &str, text: &str) -> Result<(), Error> {
        at_once(self.client.execute(sql, &[&text])).map(drop)
    }

    /// Calls a procedure; the first row that it gives. The rest is received and let go.
    pub(super) fn call(&mut self, command: Command<'_>) -> Result<Option<Row>, Error> {
        let results = at_once(async {
            let stream = command.exec(&mut self.client).await?;
            stream.into_command_result().await
        })?;
        Ok(results.into_iter().flatten().next())
    }
}

fn config(target: &Target) -> Config {
    let mut config = Config::new();
    config.host(&target.host);
    config.port(target.port);
    config.database(&target.database);
    config.application_name("ashlar-oltp");
    config.authentication(AuthMethod::sql_server(&target.user, &target.password));
    config.encryption(EncryptionLevel::NotSupported);
    config.packet_size(PACKET);
    // The stream has its own.
    config.handshake_timeout(None);
    config.command_timeout(None);
    config
}

/// A whole number of any type; none is 0, as `sum` of nothing is.
fn whole(value: &ColumnData<'_>) -> Result<i64, Error> {
    let number = match value {
        ColumnData::U8(number) => number.map(i64::from),
        ColumnData::I16(number) => number.map(i64::from),
        ColumnData::I32(number) => number.map(i64::from),
        ColumnData::I64(number) => *number,
        ColumnData::Numeric(number) => number.map(|number| {
            let limit = number.int_part().clamp(i64::MIN.into(), i64::MAX.into());
            limit as i64
        }),
        other => {
            let text = format!("a number was asked for, and {other:?} came");
            return Err(Error::Conversion(text.into()));
        }
    };
    Ok(number.unwrap_or(0))
}

/// An error as its reason, without the crate's own words around it.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::Server(of) if of.procedure().is_empty() => {
            format!("{} ({})", of.message(), of.code())
        }
        Error::Server(of) => {
            let (procedure, line) = (of.procedure(), of.line());
            format!("{} ({}, {procedure} line {line})", of.message(), of.code())
        }
        Error::Io { kind, message } => match kind {
            io::ErrorKind::UnexpectedEof => format!("the server closed the connection: {message}"),
            _ => message.clone(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tiberius::numeric::Numeric;

    use super::*;

    #[test]
    fn numbers_of_all_types_are_whole() {
        let of = |value| whole(&value).ok();
        assert_eq!(of(ColumnData::I32(Some(-7))), Some(-7));
        assert_eq!(of(ColumnData::I64(None)), Some(0));
        let decimal = |value| ColumnData::Numeric(Some(Numeric::new_with_scale(value, 2)));
        assert_eq!(of(decimal(-1250)), Some(-12));
        assert_eq!(of(decimal(i128::MAX)), Some(i64::MAX));
        assert_eq!(of(ColumnData::Bit(Some(true))), None);
    }
}
