//! `ashlar lab oltp`'s part of the command line.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OltpAction {
    /// Make the tables of TPC-C and fill them
    Build,
    /// Drive what is built, in steps of users; check after each
    Run,
    /// Check the consistency conditions, and nothing else
    Check,
}

/// Where the logic of a transaction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SqlLogic {
    /// In the database, as functions: one round trip a transaction
    Functions,
    /// Here, as SQL statements: two or three round trips a transaction
    Client,
}

/// What to drive, how, and for how long.
#[derive(Args, Clone)]
#[command(after_help = "Examples:
  ashlar lab oltp --db sqlite:/mnt/volume/tpcc.db --warehouses 4 --users 1,2,4 --out /tmp/run
  ashlar lab oltp build --db 'postgres:///tpcc?host=/run/postgresql&user=me' --warehouses 100 --build-users 8
  ashlar lab oltp run --db postgres://me@db.example/tpcc --sql client --users 8 --mode rate:500 --out /tmp/run")]
pub(crate) struct OltpArguments {
    /// Only this part (default: build if nothing is there, then run)
    #[arg(value_enum)]
    pub(crate) action: Option<OltpAction>,

    /// The database: sqlite:PATH, or postgres://USER:PASSWORD@HOST:PORT/NAME, or
    /// postgres:///NAME?host=/SOCKET/DIR&user=USER for a unix socket; or mariadb://USER:PASSWORD@HOST:PORT/NAME, or
    /// mariadb://USER@localhost/NAME?socket=/PATH; or sqlserver://USER:PASSWORD@HOST:PORT/NAME, without TLS
    #[arg(long, value_name = "URL")]
    pub(crate) db: String,

    /// Warehouses to build, about 100 MB each; a built database knows its own
    #[arg(long, value_name = "N")]
    pub(crate) warehouses: Option<i32>,

    /// Numbers of virtual users, a step each
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,…")]
    pub(crate) users: Vec<usize>,

    /// Load before measuring, from the last login on: 500ms, 10s, 2m
    #[arg(long, default_value = "10s", value_name = "TIME")]
    pub(crate) ramp: String,

    /// Measured time of a step, in seconds
    #[arg(long, default_value_t = 60.0)]
    pub(crate) seconds: f64,

    /// timed; fixed:N, a number of transactions a user, without a ramp; rate:R, an open loop of R
    /// transactions a second by all users together, latency counted from when each was due; streams:N@R, an
    /// open loop of N streams with R transactions a second each, which the users' sessions run; streams:N, which think
    /// between their transactions for the times of --think
    #[arg(long, default_value = "timed", value_name = "MODE")]
    pub(crate) mode: String,

    /// As pgbench's: the same as --mode rate:R. How late transactions began is told
    #[arg(long, value_name = "R", conflicts_with = "mode")]
    pub(crate) rate: Option<f64>,

    /// Where the logic runs on PostgreSQL
    #[arg(long, value_enum, default_value = "functions")]
    pub(crate) sql: SqlLogic,

    /// tproc-c: 10/10/1/1/1 of 23, as HammerDB; tpc-c: 45/43/4/4/4, as go-tpc and BenchBase
    #[arg(long, default_value = "tproc-c", value_name = "MIX")]
    pub(crate) mix: String,

    /// Split all warehouses over the users, instead of one home warehouse each
    #[arg(long)]
    pub(crate) all_warehouses: bool,

    /// Key in and think as TPC-C's terminals do (about 21 s a transaction); or think, without keying in, for so many
    /// seconds on average after each kind of transaction: new-order=0.5,payment=1,delivery=0. Kinds are new-order,
    /// payment, order-status, delivery, stock-level; one that is not named has none
    #[arg(
        long,
        num_args = 0..=1,
        default_missing_value = "tpc-c",
        value_name = "KIND=SECONDS,…"
    )]
    pub(crate) think: Option<String>,

    /// Loaders at once (SQLite has one writer: 1) [default: the processors]
    #[arg(long, value_name = "N")]
    pub(crate) build_users: Option<usize>,

    /// How often every step is measured; repeats are interleaved: 1,2,4, 1,2,4, …
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) repeat: u32,

    /// Put the database back before every step: the server of this directory (`lab server`), or for
    /// SQLite the file of a copy. To what it was when it was saved, or, if nothing is saved yet, when this
    /// run begins
    #[arg(long, value_name = "DIR|FILE")]
    pub(crate) restore: Option<PathBuf>,

    /// How long to wait for a database that is starting up, after a crash for instance
    #[arg(long, default_value = "60s", value_name = "TIME")]
    pub(crate) wait: String,

    /// A self-test of the statistics: for so much of the time no user begins a transaction. `lab compare`
    /// with a run without it must find it
    #[arg(long, value_name = "PERCENT")]
    pub(crate) slow_down: Option<String>,

    /// Seed of data and inputs
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Build although there are tables: those of TPC-C are dropped, no others
    #[arg(long)]
    pub(crate) destroy_data: bool,

    /// Directory for result.json and report.html; a run needs one
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Add to the run of the same options that is in --out, as further repeats: runs on two databases can
    /// take turns
    #[arg(long, requires = "out")]
    pub(crate) append: bool,
}

/// What to read, and by how many.
#[derive(Args, Clone)]
pub(crate) struct ScanArguments {
    /// The database, as for `lab oltp`
    #[arg(long, value_name = "URL")]
    pub(crate) db: String,

    /// Rows of the table
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub(crate) rows: i32,

    /// Numbers of readers, a step each
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,2,4",
        value_name = "N,…"
    )]
    pub(crate) readers: Vec<usize>,

    /// How often every step is measured; repeats are interleaved
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) repeat: u32,

    /// How long to wait for a database that is starting up, after a crash for instance
    #[arg(long, default_value = "60s", value_name = "TIME")]
    pub(crate) wait: String,

    /// Directory for result.json and report.html
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}
