//! TPROC-C: an OLTP load on a database, wherever its files are.
//!
//! # What it is for
//!
//! "What does this storage do to my database?", in new orders a minute. [`build`] loads the schema of
//! TPC-C, [`run`] drives it with virtual users in steps, [`check`](check::check) asks the consistency
//! conditions, [`OltpResult`] is what is kept, and [`server`] keeps a private PostgreSQL to do it to, and a [`Job`](job::Job)
//! is all of it, as it is asked for. `docs/oltp.md` says what is measured and how.
//!
//! # Where it stands on a write's way
//!
//! Above everything: it is the database's client (PostgreSQL, MariaDB, SQL Server), or holds it (SQLite).
//!
//! ```text
//! plan -> run -> step -> user (a thread) -> Session -> database -> file system -> a volume
//!                  |-- Watcher: sum(d_next_o_id), commits, processor time, device traffic
//!                  `-- check: conditions 1-12 -> result
//! ```
//!
//! # Invariants
//!
//! * The ramp begins when the last user has logged in; what is measured ends while all still work.
//! * New orders are counted by the database (`d_next_o_id`), over the time that really passed.
//! * Errors, retries and the rollbacks that the specification demands are told apart.
//! * A schema is whole if its marker row is there: it is written last.
//! * Tables that are not ours are never dropped, and ours only when told to.
//! * What was measured is kept, and marked, whatever ends a run.
//!
//! # Deliberately not here
//!
//! The storage itself. Other kinds of databases are implementations of [`Database`](database::Database); a fleet
//! is many of them in one process.

// Unit tests share a fake database with those of `tests`, which know this crate by its name.
#[cfg(test)]
extern crate self as ashlar_oltp;

mod append;
mod aside;
mod calls;
pub mod check;
mod compare;
pub mod cut;
pub mod database;
mod failover;
pub mod faults;
mod files;
mod fleet;
pub mod generate;
pub mod group;
pub mod inputs;
pub mod job;
mod ledger;
mod load;
mod mariadb;
pub mod namespaces;
mod null;
mod postgres;
pub mod processes;
mod published;
pub mod random;
mod remote;
mod report;
pub mod result;
mod run;
pub mod scan;
pub mod scenario;
pub mod schema;
pub mod seat;
pub mod server;
mod socket;
mod sqlite;
mod sqlserver;
pub mod terminal;
mod text;
mod usage;
pub mod versus;

pub use compare::beside;
pub use failover::{FailoverPlan, FailoverResult, KeepFailover, failover};
pub use fleet::{FleetResult, FleetScenario, NoVolumes, Served, VolumeNow, Volumes, run_fleet};
pub use ledger::{Acknowledged, Audit, Count, Ledger};
pub use load::{BuildPlan, BuildResult, build};
pub use mariadb::{MariaDb, MariaServer};
pub use null::Null;
pub use postgres::{Logic, Postgres};
pub use remote::ports::Ports;
pub use remote::{RemoteUsers, Secret, UserLoad};
pub use report::{names, render_comparison, render_report};
pub use result::OltpResult;

pub use run::{
    Around, Keep, Mode, Restore, RunPlan, begin, built, planned, run, run_with, run_with_ledger,
};
pub use scenario::{OltpScenario, ScenarioRun, check_clients, run_scenario};
pub use sqlite::{SavedFile, Sqlite};
pub use sqlserver::SqlServer;
