//! The lab's part of the command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub(crate) enum LabCommand {
    /// Measure pattern x block x threads x depth on one or more devices, interleaved
    Sweep(SweepArguments),
    /// Run a scenario, by name or from a file, beside the figures that were published
    ///
    /// Of devices: nvmeof-local-vs-remote, virtual-device-scaling, drive-baseline, vsan-vs-s2d,
    /// vsan-vs-s2d-tiers, write-cache. Of a private PostgreSQL on one or more places: nvmeof-hammerdb,
    /// scan-concurrency, fixed-transactions, fci-vs-bag, flash-cache, statistics-self-test; of many of them at once: fleet. `lab show NAME` prints one, to be edited.
    Run(RunArguments),
    /// Make load for a sweep or scenario that another machine runs
    ///
    /// Waits for `lab sweep` or `lab run` with `--client` and this address, and does its part of the load, from its
    /// own network and processors, until killed. The token is made if the file is not there; give the other machine
    /// a copy. What is said is not encrypted, and a client with the token may have anything that this user may open
    /// overwritten: keep the network to yourself. Prints `ready ADDR`.
    Agent(AgentArguments),
    /// Drive a database with TPROC-C: new orders a minute, latency, consistency
    ///
    /// TPROC-C: the schema, the five transactions and the mix of TPC-C, without keying and thinking, as
    /// HammerDB drives it.
    ///
    /// Without an action: builds if nothing is there, then runs. Every step of users is ramped up from
    /// the last login, measured, and followed by consistency conditions 1 to 12.
    ///
    /// NOPM is the change of sum(d_next_o_id) over the minutes that passed; TPM is the database's own
    /// count of commits and rollbacks (SQLite keeps none: the client's). Exit code 1: a consistency
    /// condition does not hold; 2: the request; 3: the database or the machine; what was measured until
    /// then is in result.json, marked partial.
    Oltp(crate::args::OltpArguments),
    /// Read one table of a database by several readers at once: run time, MB/s
    ///
    /// One table of rows of 744 bytes, read from end to end by several readers at once; each lets the
    /// database add up the lengths of what it read, so that the storage and the database are measured and
    /// not this client. The table is made if it is not there in this size.
    ///
    /// Ctrl-C, or a server that dies, ends it: running queries are called off, and the steps before are in
    /// result.json, marked partial. Exit code 1: a reader found other data than was written.
    Scan(crate::args::ScanArguments),
    /// Kill a primary under TPROC-C, promote its standby, and look for everything that was acknowledged
    ///
    /// Makes a primary, loads it, seeds a synchronous standby, drives both, writes down what is
    /// acknowledged, kills all the primary's processes at once in the middle, promotes the standby, looks
    /// there for every new order, payment and delivery, checks conditions 1 to 12, and drives it on. Exit code 1:
    /// an acknowledged transaction is missing, or a condition does not hold.
    ///
    /// With --topology and --fault: clients in an open loop work through the listener of a database that is kept up,
    /// something fails under them, and it is told how long they were not served, what was lost, and whether two servers
    /// took writes; for each topology and fault, several times.
    Failover(crate::args::FailoverArguments),
    /// A private PostgreSQL (or MariaDB) in a directory: start, stop, kill, save, restore, promote
    ///
    /// `start` makes it if the directory is empty or not there, and prints what `lab oltp --db` takes.
    /// Everything is below the directory: data, socket, log, and the copy that `save` keeps and
    /// `restore` puts back (by reference where the file system can). As root, the server runs as the user
    /// `postgres`, or `nobody`. A server that was killed leaves no shared memory behind.
    Server(crate::args::ServerArguments),
    /// A cluster on this machine: nodes of Ashlar, or an availability group of PostgreSQL
    ///
    /// `up` makes nodes of Ashlar with an etcd, each with a pool `tank` on files, and as root each in a network namespace of
    /// its own; it prints their portals, API sockets and process numbers, and `down` leaves nothing. Needs etcd-server.
    ///
    /// `start` makes an availability group of others: three members of etcd, two PostgreSQL that replicate synchronously
    /// under Patroni, and HAProxy as the listener, all private: directories, ports and, as root, a network namespace for
    /// each node. `stop` leaves nothing. It needs etcd-server, patroni, python3-etcd and haproxy of Debian
    /// (`scripts/setup.sh test`).
    ///
    /// `fci` makes a failover cluster instance: two nodes of Ashlar with an etcd of three, a PostgreSQL as a service on a
    /// volume with a copy on each, and HAProxy as the listener. `stop` leaves nothing. It needs root, etcd-server and haproxy.
    Cluster(crate::args::GroupArguments),
    /// A replicated volume on nodes that are killed, stopped and cut off, under a load that checks everything
    ///
    /// Makes a cluster as `lab cluster up` does, a volume with copies on its nodes, and loads that through our own initiator
    /// over all portals. Something fails, and is mended when the cluster has found its way; then the next. At the end
    /// everything is read back. Exit code 1: something acknowledged is not there, something read came back older, an
    /// access failed, or the copies are not in sync.
    Ha(crate::args::HaArguments),
    /// Count what a device with `?record=TRACE` has recorded: writes, flushes, the longest run without
    Trace(crate::args::TraceArguments),
    /// Make an image of what recorded devices may hold after a power cut
    CrashImage(crate::args::CrashImageArguments),
    /// PostgreSQL's torn-page protection: what it costs, and power cuts without it
    ///
    /// PostgreSQL writes whole pages to its log after every checkpoint (full_page_writes), since a power cut
    /// may leave a page of the drive half written. This measures what that costs, and tries what happens
    /// without it: on a plain disk, and on a mirrored volume with atomic writes. Both are recorded while
    /// a load runs; for each image of what the drives may hold after a power cut, PostgreSQL recovers,
    /// all pages' checksums, consistency conditions 1 to 12 and all acknowledged commits are checked.
    ///
    /// Needs root (it attaches), PostgreSQL, xfsprogs. Exit code 1: the volume was found broken, commits were
    /// acknowledged without a flush, writes split pages on their way, or nothing broke on the plain disk, which
    /// proves nothing. Ctrl-C ends it in order; what was
    /// measured is kept, marked partial.
    TornPages(crate::args::TornPagesArguments),
    /// Compare two runs of one kind: sweeps, runs of `lab oltp`, scans, scenarios, or fleets
    ///
    /// Repeat by repeat, the second in that of the first: ratio, range, and whether there is a difference.
    Compare(CompareArguments),
    /// Make a run's report.html again, or one of two OLTP runs beside each other
    ///
    /// One directory: its report.html, or, of a directory whose folders are runs, index.html. Two, both of `lab oltp`: comparison.html in the second, with what
    /// their difference is worth, or the file that --out names; or, with --into, a section of the report of a
    /// sweep or scenario of devices, and `database` in its result.json.
    Report {
        /// Directory of the run; or of two
        #[arg(required = true, num_args = 1..=2, value_name = "DIR")]
        dirs: Vec<PathBuf>,
        /// Where a report of two goes
        #[arg(long, value_name = "FILE", conflicts_with = "into")]
        out: Option<PathBuf>,
        /// Directory of a run of devices that two OLTP runs, whose repeats took turns, become a part of
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
    },
    /// Show a scenario's text, to be edited and run as a file
    Show {
        /// Its name
        name: String,
    },
}

#[derive(Args)]
pub(crate) struct AgentArguments {
    /// Address and port to listen at; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
    /// File with the token that lets a coordinator in
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// Where programs that it runs for a coordinator (`lab cluster start --host`) have a folder, with their data, until
    /// the coordinator is gone; a short path
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub(crate) dir: PathBuf,
}

/// Load from other machines.
#[derive(Args)]
pub(crate) struct ClientArguments {
    /// Address of an agent (`ashlar lab agent`) that makes the load, instead of this process; may be repeated. The
    /// threads of each cell, or the users of a database, are dealt out to all, which begin at one moment. Devices are
    /// opened by each agent, on its machine; with --verify it is refused
    #[arg(
        long = "client",
        value_name = "ADDR",
        value_delimiter = ',',
        requires = "token_file"
    )]
    pub(crate) clients: Vec<String>,
    /// File with the agents' token
    #[arg(long, value_name = "FILE", requires = "clients")]
    pub(crate) token_file: Option<PathBuf>,
    /// Address of this machine at which agents reach what the run itself serves: remote configurations, pools, the
    /// servers of databases
    #[arg(
        long,
        value_name = "IP",
        default_value = "127.0.0.1",
        requires = "clients"
    )]
    pub(crate) serve_on: IpAddr,
}

#[derive(Args)]
pub(crate) struct CompareArguments {
    /// Directory of the first run, the 100 %
    pub(crate) first: PathBuf,
    /// Directory of the second run
    pub(crate) second: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit code 1 if the second run is, anywhere and beyond the noise, below this share of the first: 0.95. Of run
    /// times and percentiles, which are better short, the inverse counts
    #[arg(long, value_name = "SHARE")]
    pub(crate) fail_below: Option<f64>,
}

/// Every cell is measured on every device in turn, `--repeat` times, after filling the device with
/// random data and warming up if anything is written. A device that holds data is refused.
#[derive(Args)]
pub(crate) struct SweepArguments {
    /// A device to measure; the first is the 100 % of the tables. file:/p, memory:1GiB, null:1TiB,
    /// stripe:…, nvme-tcp://ADDR:PORT/NQN?ns=1; NAME=DEVICE gives it a name, else it is a, b, …
    #[arg(long = "on", value_name = "DEVICE")]
    pub(crate) on: Vec<String>,

    /// What the first device is called in tables, then the second, …
    #[arg(long = "name", value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// randread, randwrite, read, write, randrw, rw
    #[arg(long, value_delimiter = ',', default_value = "randread")]
    pub(crate) pattern: Vec<String>,

    /// Share of reads in randrw and rw, in percent
    #[arg(long, default_value_t = 50, value_name = "PERCENT")]
    pub(crate) read_pct: u8,

    /// Sizes of an access: 4k, 8k, 64k, 1m, …
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "4k",
        value_name = "SIZE,…"
    )]
    pub(crate) block: Vec<String>,

    /// Numbers of load threads
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,…")]
    pub(crate) threads: Vec<u32>,

    /// Accesses in flight for each thread
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,…")]
    pub(crate) depth: Vec<u32>,

    /// Measured time of a repeat, in seconds; instead of what other tools' words say [default: 2]
    #[arg(long)]
    pub(crate) seconds: Option<f64>,

    /// How often each cell is measured on each device [default: 3; of other tools' words, 1]
    #[arg(long, value_name = "N")]
    pub(crate) repeat: Option<u32>,

    /// Bytes of each device to use; a missing file is made of this size
    #[arg(long)]
    pub(crate) size: Option<String>,

    /// Every write is durable before it counts
    #[arg(long)]
    pub(crate) sync: bool,

    /// Stamp every block with address, generation and checksum, and check everything that is read
    #[arg(long)]
    pub(crate) verify: bool,

    /// Open loop: accesses a second in total, latency counted from when each was due
    #[arg(long, value_name = "IOPS")]
    pub(crate) rate: Option<f64>,

    /// Where random accesses go: uniform; zipf:THETA; hot:80/20, 80 % of them to 20 % of the space
    #[arg(long, default_value = "uniform", value_name = "HOW")]
    pub(crate) distribution: String,

    /// Sizes of accesses and their shares in percent, mixed in one cell, instead of --block: 4k:60,64k:40
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SIZE:PCT,…",
        conflicts_with = "block"
    )]
    pub(crate) sizes: Vec<String>,

    /// A flush after every so many writes of a thread; it takes one of the accesses in flight
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) fsync: u32,

    /// Milliseconds between the end of an access and the next one of its slot
    #[arg(long, default_value_t = 0.0, value_name = "MS")]
    pub(crate) think: f64,

    /// Percent of the accesses that give space back (trim, deallocate)
    #[arg(long, default_value_t = 0, value_name = "PERCENT")]
    pub(crate) trim: u8,

    /// Overwrite what the devices hold
    #[arg(long)]
    pub(crate) destroy_data: bool,

    /// The sweep in the words of fio or DISKSPD instead: "-b8K -r -w30 -t4 -o8", or
    /// "bs=8k rw=randrw iodepth=8"
    #[arg(long, value_name = "WORDS", conflicts_with_all = ["pattern", "block", "sizes", "threads", "depth", "read_pct", "distribution", "fsync", "think"])]
    pub(crate) words: Option<String>,

    /// The sweep as a fio job file: its jobs, one after the other, are the cells. A key that has no counterpart here is
    /// refused with its line
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["words", "pattern", "block", "sizes", "threads", "depth", "read_pct", "distribution", "fsync", "think"]
    )]
    pub(crate) fio_job: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) agents: ClientArguments,

    /// Directory for result.json, report.html and the exports
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// A scenario is a file: what is compared, in which cells, for how long, and what is claimed.
#[derive(Args)]
pub(crate) struct RunArguments {
    /// Name of a scenario that ships, or a file
    #[arg(value_name = "NAME|FILE", required_unless_present = "resume")]
    pub(crate) scenario: Option<String>,

    /// How much of it: min, or 0.01 to 1 (as written)
    #[arg(long, default_value = "1")]
    pub(crate) scale: String,

    /// Where the scenario's own files are made, and removed afterwards
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// A storage place for databases: a directory on it, which every user may enter; may be repeated. The
    /// first is the 100 %. A new folder is made there, and removed afterwards. [default: here=DIR]
    #[arg(long = "place", value_name = "NAME=DIR", conflicts_with = "dir")]
    pub(crate) places: Vec<String>,

    /// Put a value into the scenario: measure.seconds=60, configuration.local.stack=file:/x, oltp.warehouses=8. A key
    /// is a path with dots; of several configurations a part of it is a name, or a position from 0. Of a scenario of
    /// scenarios: measure.… for all of them, NAME.… for one
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Another pool under a configuration of a scenario of devices: 'mirror=mirror:3,drives=6'. Keys are drives, fast,
    /// full_pct, hot, hot_share, media, nodes and place; what is not named stays, and a key without a value goes
    #[arg(long = "pool", value_name = "CONFIGURATION=LAYOUT[,KEY=VALUE…]")]
    pub(crate) pools: Vec<String>,

    /// Numbers of users, or of a scan's readers, instead of the scenario's; for databases
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub(crate) users: Vec<usize>,

    /// Number of databases instead of the scenario's, whatever the scale; for fleets
    #[arg(long, value_name = "N")]
    pub(crate) databases: Option<usize>,

    /// Streams of each database instead of the scenario's, whatever the scale: as many for all, a list that is dealt out
    /// to the databases in turn (100,200,250), or a range from the first to the last (100..250); for fleets
    #[arg(long, value_name = "N|N,…|N..N")]
    pub(crate) streams: Option<String>,

    /// Of a scenario of devices: all its pools are on so many nodes, each with a copy of the volume. Of a fleet: nodes
    /// that the places are on, dealt out in turn, instead of one for each place
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,

    /// Overwrite what devices named in the scenario hold
    #[arg(long)]
    pub(crate) destroy_data: bool,

    #[command(flatten)]
    pub(crate) agents: ClientArguments,

    /// Directory for result.json, report.html and the exports
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    pub(crate) out: Option<PathBuf>,

    /// Go on with the run in a directory, a scenario's or a sweep's, that was interrupted or killed: what was
    /// measured is not measured again. On another machine, or with another scenario.toml, it is refused
    #[arg(long, value_name = "DIR", exclusive = true)]
    pub(crate) resume: Option<PathBuf>,
}

impl RunArguments {
    /// What they change in the scenario, as it was given.
    pub(crate) fn changed(&self) -> Vec<String> {
        let users: Vec<String> = self.users.iter().map(ToString::to_string).collect();
        let users = (!users.is_empty()).then(|| format!("--users {}", users.join(",")));
        let set = self.set.iter().map(|one| format!("--set {one}"));
        let pools = self.pools.iter().map(|one| format!("--pool {one}"));
        let counts = [
            self.databases.map(|count| format!("--databases {count}")),
            self.streams.as_ref().map(|of| format!("--streams {of}")),
            self.nodes.map(|count| format!("--nodes {count}")),
        ];
        let counts = counts.into_iter().flatten();
        set.chain(pools).chain(users).chain(counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sweep: SweepArguments,
    }

    #[test]
    fn what_another_tool_s_words_say_is_refused_beside_them() {
        let of = |words: &[&str]| {
            let line = Line::try_parse_from([&["sweep", "--out", "o"], words].concat());
            line.map(|line| line.sweep)
                .map_err(|error| error.to_string())
        };
        let refused = [
            ["--read-pct", "70"],
            ["--sizes", "4k:100"],
            ["--distribution", "hot:80/20"],
            ["--fsync", "3"],
            ["--think", "1"],
        ];
        for source in ["--words", "--fio-job"] {
            for [flag, value] in refused {
                let error = of(&[source, "x", flag, value]).err().expect("both");
                assert!(error.contains(flag), "{error}");
            }
            let sweep = of(&[source, "x", "--repeat", "4", "--seconds", "3"]).expect("valid");
            assert_eq!((sweep.repeat, sweep.seconds), (Some(4), Some(3.0)));
        }
    }
}
