//! The database that a URL names.

use std::sync::Arc;

use ashlar_lab::{LabError, Progress};

use crate::database::Database;
use crate::{Logic, MariaDb, Null, Postgres, SqlServer, Sqlite};

/// The database; what goes on with it ends when `progress` is to end.
///
/// # Errors
/// A usage error: there is no such kind, or its URL makes no sense.
pub fn open(url: &str, logic: Logic, progress: &Progress) -> Result<Arc<dyn Database>, LabError> {
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(Arc::new(Sqlite::new(path))),
        Some(("postgres" | "postgresql", _)) => {
            Ok(Arc::new(Postgres::new(url, logic)?.until(progress)))
        }
        Some(("mariadb" | "mysql", _)) => Ok(Arc::new(MariaDb::new(url)?)),
        Some(("sqlserver", _)) => Ok(Arc::new(SqlServer::new(url)?.until(progress))),
        Some(("null", warehouses)) => Ok(Arc::new(Null::new(warehouses)?)),
        // The rest is not repeated: it may hold a password.
        kind => Err(LabError::usage(format!(
            "--db {}…: must be sqlite:PATH, postgres://…, mariadb://…, sqlserver://… or null:WAREHOUSES",
            kind.map_or("", |(kind, _)| kind)
        ))),
    }
}
