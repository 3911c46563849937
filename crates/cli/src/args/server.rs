//! `ashlar lab server`'s part of the command line.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What to do with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerAction {
    /// Make it if it is not there, start it, print its URL
    Start,
    /// Stop it in order
    Stop,
    /// Kill all its processes at once, as a crash would; no shared memory of it is left behind
    Kill,
    /// Keep a copy of its data
    Save,
    /// Put the saved copy back, and check that it is the saved one
    Restore,
    /// Make a standby the primary
    Promote,
    /// Say what it is at
    Status,
}

/// What kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineWord {
    /// PostgreSQL
    Postgres,
    /// MariaDB
    Mariadb,
}

/// What a primary waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommitWord {
    /// The standby has it durably
    On,
    /// The standby shows it to readers
    RemoteApply,
    /// Nothing: what only the primary has is lost with it
    Local,
}

/// Which server, and how it runs.
#[derive(Args)]
#[command(after_help = "Examples:
  ashlar lab server start --dir /mnt/db/pg --memory 512MiB
  ashlar lab oltp --db 'postgres:///tpcc?host=/mnt/db/pg/run&user=owner' --warehouses 10 --users 4 --out /tmp/run
  ashlar lab server save --dir /mnt/db/pg        ashlar lab server restore --dir /mnt/db/pg
  ashlar lab server start --dir /mnt/db/pg --standby /mnt/other/pg --commit remote-apply
  ashlar lab server kill --dir /mnt/db/pg        ashlar lab server promote --dir /mnt/other/pg")]
pub(crate) struct ServerArguments {
    /// What to do
    #[arg(value_enum)]
    pub(crate) action: ServerAction,

    /// The server's directory
    #[arg(long)]
    pub(crate) dir: PathBuf,

    /// What kind of server start makes: postgres, or mariadb, which has start, stop, kill and status
    #[arg(long, value_enum, default_value = "postgres")]
    pub(crate) engine: EngineWord,

    /// Memory that it may use, page cache included (a memory cgroup; needs root); a quarter of it is
    /// shared_buffers. Kept for later starts; none: no limit any more
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,

    /// A setting of postgresql.conf, name=value; may be repeated. Each is kept for later starts, until it is
    /// given again
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,

    /// With start: make a synchronous standby in this directory, which must be empty or not there. It runs
    /// as its primary does; --memory and --set are of both
    #[arg(long, value_name = "DIR")]
    pub(crate) standby: Option<PathBuf>,

    /// What commits wait for with a standby
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) commit: CommitWord,

    /// Print status as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
