//! What a database must be able to do to be loaded, driven and checked. Another kind of database is
//! another implementation of these traits; nothing else knows which one it is.
//!
//! Calls block: a user is a thread. A fleet is many [`Database`]s in one process, each with its own
//! users, whose histograms merge as those of one database's users do.

use std::path::PathBuf;
use std::time::Duration;

use ashlar_lab::{LabError, Progress};
use serde::{Deserialize, Serialize};

use crate::generate::{Part, Recipe};
use crate::inputs::Transaction;
use crate::schema::{DISTRICTS, Marker, State};

/// What `check_users` is asked.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'a> {
    /// The option that asks for them.
    pub option: &'a str,
    pub users: usize,
}

/// A database, reachable.
pub trait Database: Send + Sync {
    /// Where it is, without a password.
    fn target(&self) -> String;

    /// What it is, for the result.
    fn describe(&self) -> Result<Description, LabError>;

    /// What it holds.
    fn state(&self) -> Result<State, LabError>;

    /// Waits while it is starting up, after a crash for instance; `progress` is told what it waits for, once.
    ///
    /// # Errors
    /// It is not ready after that time, or the run is interrupted.
    fn await_ready(&self, limit: Duration, progress: &Progress) -> Result<(), LabError> {
        let _ = (limit, progress);
        Ok(())
    }

    /// Whether so many sessions and a watcher fit; the option that asks for them is named if not.
    ///
    /// # Errors
    /// An error that names the limit.
    fn check_users(&self, sought: Sought<'_>) -> Result<(), LabError>;

    /// Makes the tables; those of our names that are there are dropped first.
    fn create(&self) -> Result<(), LabError>;

    /// Whether there is a table of this name.
    fn has_table(&self, name: &str) -> Result<bool, LabError>;

    /// Runs statements that give nothing and that every database understands.
    fn execute(&self, sql: &str) -> Result<(), LabError>;

    /// The type of a column for text of up to a thousand letters.
    fn long_text(&self) -> &'static str {
        "text"
    }

    /// How many loaders are of use at once.
    fn most_loaders(&self) -> usize;

    /// Something that loads parts; one for each thread.
    fn loader(&self) -> Result<Box<dyn Loader>, LabError>;

    /// Makes keys, indexes, statistics and functions, and writes the marker last.
    fn finish(&self, marker: &Marker) -> Result<(), LabError>;

    /// Whether it keeps what it is told, so that its consistency can be looked at.
    fn holds_rows(&self) -> bool {
        true
    }

    /// Makes ready what a run needs besides the tables (functions of this version).
    fn prepare_run(&self) -> Result<(), LabError>;

    /// A user's login.
    fn session(&self) -> Result<Box<dyn Session>, LabError>;

    /// A connection that looks on.
    fn watcher(&self) -> Result<Box<dyn Watcher>, LabError>;
}

/// Loads parts.
pub trait Loader {
    /// Loads one part durably; how many rows it had.
    fn load(&mut self, recipe: &Recipe, part: Part) -> Result<u64, LabError>;
}

/// A user's connection.
pub trait Session {
    /// Runs one transaction to its end.
    fn run(&mut self, transaction: &Transaction) -> Result<Outcome, Failure>;

    /// Has the database add what this session did to [`Watcher::transactions`], where it does that only now
    /// and then by itself. Best effort: a session that is lost is noticed by its next transaction.
    fn have_counted(&mut self) {}

    /// Which life of which primary this session is with; nothing if that takes no writes, or cannot tell.
    fn server_start(&mut self) -> Option<ServerStart> {
        None
    }
}

/// A life of a server as a primary, told apart from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerStart {
    /// Goes up when another becomes the primary: of a service on a volume with copies the volume's epoch, which its start
    /// command was told (`ashlar.epoch`), otherwise the timeline.
    pub epoch: i64,
    /// When it was started, in microseconds since 1970.
    pub started_us: i64,
}

/// How a transaction ended that went as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    /// A new order was committed, under this number.
    Ordered(i32),
    /// A payment was committed, of this customer; one of a name that no customer has is [`Self::Committed`].
    Paid(i32),
    /// A delivery was committed, of the order of this number in each district, if one was there.
    Delivered(Delivered),
    /// A new order of an item that does not exist was rolled back, as it must be.
    RolledBack,
}

/// The order that was delivered in each district, if one was.
pub type Delivered = [Option<i32>; DISTRICTS as usize];

/// How a transaction failed. In every case but [`Failure::Lost`] it was rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A deadlock, a serialization failure, a busy database: the same again may succeed.
    Retry(String),
    /// An error of this transaction.
    Error(String),
    /// The connection or the database is gone, or has no more room.
    Lost(String),
}

/// Calls a query off, if the database can be reached.
pub type Canceller = Box<dyn Fn() + Send>;

/// Looks on while others work.
pub trait Watcher: Send {
    /// `sum(d_next_o_id)`: its change is the number of new orders.
    fn next_orders(&mut self) -> Result<i64, LabError> {
        self.number("SELECT sum(d_next_o_id) FROM district")
    }

    /// The database's own count of transactions (commits and rollbacks), if it keeps one.
    fn transactions(&mut self) -> Result<Option<u64>, LabError>;

    /// The number that a query gives.
    fn number(&mut self, sql: &str) -> Result<i64, LabError>;

    /// An amount of money as the number that its columns hold, in the words of SQL.
    fn amount(&self, cents: i64) -> String {
        cents.to_string()
    }

    /// The type of a whole number in a CAST.
    fn integer(&self) -> &'static str {
        "bigint"
    }

    /// What follows WITH where a list of rows is a table `told` of these columns.
    fn told(&self, columns: &str, rows: &str) -> String {
        format!("told({columns}) AS (VALUES {rows})")
    }

    /// How many letters a column has in all rows.
    fn letters(&self, column: &str) -> String {
        format!("sum(length({column}))")
    }

    /// What ends the query that this runs, from another thread; nothing if it runs none.
    fn canceller(&self) -> Canceller;

    /// Where the database's processor time and device traffic are found.
    fn place(&mut self) -> ServerPlace;
}

/// An amount of money in words of SQL where columns have two decimals.
pub(crate) fn with_decimals(cents: i64) -> String {
    let (whole, part) = (cents.unsigned_abs() / 100, cents.unsigned_abs() % 100);
    let sign = if cents < 0 { "-" } else { "" };
    format!("{sign}{whole}.{part:02}")
}

/// Where a database's processor time and device traffic can be read on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerPlace {
    /// Its first process; or why there is none to look at.
    pub process: Result<u32, String>,
    /// It runs inside this process.
    pub is_inside: bool,
    /// A path on its storage; or why there is none to look at.
    pub storage: Result<PathBuf, String>,
}

/// What a database is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// `sqlite`, `postgres`, `mariadb` or `sqlserver`.
    pub kind: String,
    /// Where, without a password.
    pub target: String,
    /// The version that it tells.
    pub version: String,
    /// How the logic is run: `embedded`, `functions`, `client`.
    pub sql: String,
    /// The settings that decide what a figure means.
    pub settings: std::collections::BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_two_decimals() {
        assert_eq!(with_decimals(123_405), "1234.05");
        assert_eq!(with_decimals(7), "0.07");
        assert_eq!(with_decimals(-10), "-0.10");
    }
}
