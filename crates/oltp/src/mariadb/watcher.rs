//! Looks on: the database's counters, its process and its storage.

use std::path::{Path, PathBuf};

use ashlar_lab::LabError;
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, Row, Value};

use crate::database::{Canceller, ServerPlace, Watcher, with_decimals};

pub(super) struct MariaWatcher {
    connection: Conn,
    opts: Opts,
    target: String,
}

impl MariaWatcher {
    pub(super) fn new(connection: Conn, opts: Opts, target: String) -> Self {
        Self {
            connection,
            opts,
            target,
        }
    }

    fn text(&mut self, sql: &str) -> Result<String, String> {
        let found: Result<Option<String>, _> = self.connection.query_first(sql);
        found
            .map(Option::unwrap_or_default)
            .map_err(|error| super::words(&error))
    }

    fn process(&mut self) -> Result<u32, String> {
        let file = self.text("SELECT @@pid_file")?;
        let none = || format!("the server is not on this machine: no process is named in {file}");
        // The same path on this machine may be another server's: only one that is called so is taken.
        let text = std::fs::read_to_string(&file).map_err(|_| none())?;
        let process: u32 = text.trim().parse().map_err(|_| none())?;
        let name = std::fs::read_to_string(format!("/proc/{process}/comm"));
        match name.is_ok_and(|name| ["mariadbd", "mysqld"].contains(&name.trim())) {
            true => Ok(process),
            false => Err(none()),
        }
    }
}

/// The number that a query gives: sums of whole numbers come as decimals.
pub(super) fn number(connection: &mut Conn, sql: &str) -> Result<i64, mysql::Error> {
    let row: Option<Row> = connection.query_first(sql)?;
    let value = row.and_then(|row| row.as_ref(0).cloned());
    Ok(match value {
        Some(Value::Int(number)) => number,
        Some(Value::UInt(number)) => i64::try_from(number).unwrap_or(i64::MAX),
        Some(Value::Double(number)) => number as i64,
        Some(Value::Bytes(bytes)) => {
            let text = String::from_utf8_lossy(&bytes);
            let whole = text.split('.').next().unwrap_or_default();
            whole.parse().unwrap_or_default()
        }
        _ => 0,
    })
}

impl Watcher for MariaWatcher {
    fn transactions(&mut self) -> Result<Option<u64>, LabError> {
        let count = self.number(
            "SELECT sum(variable_value) FROM information_schema.global_status \
             WHERE variable_name IN ('com_commit', 'com_rollback')",
        )?;
        Ok(Some(count.max(0) as u64))
    }

    fn number(&mut self, sql: &str) -> Result<i64, LabError> {
        number(&mut self.connection, sql)
            .map_err(|error| LabError::caused(&self.target, super::words(&error)))
    }

    fn amount(&self, cents: i64) -> String {
        with_decimals(cents)
    }

    fn integer(&self) -> &'static str {
        "signed"
    }

    fn canceller(&self) -> Canceller {
        let (opts, id) = (self.opts.clone(), self.connection.connection_id());
        // One that cannot be reached has ended, or is asked again.
        Box::new(move || {
            if let Ok(mut connection) = Conn::new(opts.clone()) {
                let _ = connection.query_drop(format!("KILL QUERY {id}"));
            }
        })
    }

    fn place(&mut self) -> ServerPlace {
        let process = self.process();
        let folder = self.text("SELECT @@datadir");
        let storage = match (&process, folder) {
            // The same path on this machine would be another one.
            (Err(reason), _) => Err(reason.clone()),
            (Ok(_), Ok(folder)) if Path::new(&folder).is_absolute() => Ok(PathBuf::from(folder)),
            (Ok(_), Ok(folder)) => Err(format!("{folder}: no path")),
            (Ok(_), Err(error)) => Err(error),
        };
        ServerPlace {
            process,
            is_inside: false,
            storage,
        }
    }
}
