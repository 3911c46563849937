//! The concurrent scan: one table, read from end to end by more and more readers at once.

mod compare;
mod elsewhere;
mod readers;

use std::fmt;

use ashlar_lab::short::Short;
use ashlar_lab::units::{grouped, human_bytes};
use ashlar_lab::{
    Asked, Head, Journal, Kind, LabError, Measurement, Nest, Progress, ResultFile, Schedule, Turn,
    Workload, carry_out,
};
use serde::{Deserialize, Serialize};

use crate::database::{Database, Description, Sought};
use crate::generate::{Recipe, SCAN_FILLER};
use crate::load::load;
use crate::random::Constants;
use crate::result::ClientShare;
use crate::schema::{SCAN_TABLE, Shape};
use crate::usage::{DeviceBytes, Usage, Used, unix_us};
pub(crate) use elsewhere::Elsewhere;
pub(crate) use readers::Readers;
use readers::Times;

/// Most rows: 0.75 TB.
const MOST_ROWS: i32 = 1_000_000_000;
const MOST_READERS: usize = 1000;
const MB: f64 = 1e6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPlan {
    /// Rows of the table.
    pub rows: i32,
    /// Numbers of readers, a step each.
    pub readers: Vec<usize>,
    /// How often each step is measured.
    pub repeats: u32,
    /// Loaders at once, if the table is not there.
    pub build_users: usize,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanResult {
    /// What all results have.
    #[serde(flatten)]
    pub head: Head,
    /// What was read.
    pub database: Description,
    /// Rows of the table.
    pub rows: i32,
    /// Bytes of its rows, without what the database puts around them.
    pub bytes: u64,
    /// The measurements, in the order in which they were made.
    pub steps: Vec<ScanStep>,
}

/// A number of readers, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanStep {
    pub readers: usize,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// When reading began, in seconds of Unix time; 0 in results of before this was told.
    #[serde(default)]
    pub began_unix_s: f64,
    /// Seconds until the last reader had read everything.
    pub run_time_s: f64,
    /// Seconds of the quickest reader.
    pub quickest_s: f64,
    /// 10^6 bytes of rows a second, all readers together.
    pub mb_s: f64,
    /// Processor seconds of the database's processes; null if it cannot be told.
    pub server_cpu_s: Option<f64>,
    /// Processor seconds of this process, or of the agents.
    pub client_cpu_s: f64,
    /// What each agent had of it, if readers were at agents; its transactions are scans.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientShare>,
    /// Share of the machine's processors in use by all processes, 0 to 100; null if it cannot be told.
    #[serde(default)]
    pub machine_cpu_pct: Option<f64>,
    /// What the device of the database's files transferred.
    pub device: DeviceBytes,
}

/// Makes the table if it is not there in this size; an empty result.
///
/// # Errors
/// Usage errors of the plan; environment errors from the database.
pub fn begin(
    database: &dyn Database,
    plan: &ScanPlan,
    progress: &Progress,
) -> Result<ScanResult, LabError> {
    plan.check()?;
    let sought = Sought {
        option: "--readers",
        users: plan.most_readers(),
    };
    database.check_users(sought)?;
    make(database, plan, progress)?;
    ScanResult::new(database, plan)
}

/// Keeps what there is of a result.
pub type Keep<'a> = &'a mut dyn FnMut(&ScanResult) -> Result<(), LabError>;

/// Reads the table, step by step, into a result that was begun. What ends it early is told there as well.
/// What there is, marked as partial, is given to `keep` before the first step and after each.
///
/// # Errors
/// A failed check if a reader finds other data than was written; environment errors from the
/// database, and an interruption. The steps before are in the result.
pub fn scan(
    database: &dyn Database,
    plan: &ScanPlan,
    result: &mut ScanResult,
    (progress, keep): (&Progress, Keep<'_>),
) -> Result<(), LabError> {
    keep(&result.so_far())?;
    let mut steps = Steps {
        database,
        result,
        keep,
        progress,
    };
    let ran = carry_out(
        &plan.schedule(1, 0),
        &mut steps,
        &mut Journal::none(),
        progress,
    );
    progress.finish();
    ran.inspect_err(|error| match result.head.partial {
        true => {}
        false => result.head.broke_off(error.to_string()),
    })
}

/// A scan as a workload: a turn is a number of readers.
struct Steps<'a> {
    database: &'a dyn Database,
    result: &'a mut ScanResult,
    keep: Keep<'a>,
    progress: &'a Progress,
}

impl Workload for Steps<'_> {
    type Outcome = ScanStep;

    fn name(&self, turn: &Turn) -> String {
        format!("{} readers, repeat {}", turn.cell, turn.repeat)
    }

    fn measure(&mut self, turn: &Turn) -> Result<Measurement<ScanStep>, LabError> {
        let at = ScanAt {
            readers: turn.number()?,
            repeat: turn.repeat,
        };
        let step = self.result.step((self.database, None), at, self.progress);
        let what = self.name(turn);
        let step =
            step.inspect_err(|error| self.result.head.broke_off(format!("{what}: {error}")))?;
        let line = step.line();
        Ok(Measurement::Whole(step, line))
    }

    fn take(&mut self, _: &Turn, step: ScanStep) -> Result<(), LabError> {
        self.result.steps.push(step);
        (self.keep)(&self.result.so_far())
    }
}

impl ScanPlan {
    /// Its turns, with so many configurations.
    pub(crate) fn schedule(&self, configurations: usize, seed: u64) -> Schedule {
        Schedule {
            configurations,
            cells: Asked::all(&self.readers, self.repeats),
            nest: Nest::RepeatByRepeat,
            seed,
        }
    }

    fn most_readers(&self) -> usize {
        self.readers.iter().copied().max().unwrap_or(1)
    }

    /// # Errors
    /// A usage error that names what cannot be.
    pub fn check(&self) -> Result<(), LabError> {
        if !(1..=MOST_ROWS).contains(&self.rows) {
            return Err(LabError::usage(format!(
                "--rows {}: must be 1 to {MOST_ROWS}",
                self.rows
            )));
        }
        if self.readers.is_empty() || self.repeats == 0 {
            return Err(LabError::usage("--readers, --repeat: at least one"));
        }
        self.readers.iter().copied().try_for_each(check_readers)
    }
}

fn check_readers(readers: usize) -> Result<(), LabError> {
    match (1..=MOST_READERS).contains(&readers) {
        true => Ok(()),
        false => Err(LabError::usage(format!(
            "--readers {readers}: must be 1 to {MOST_READERS}"
        ))),
    }
}

/// Makes the table; how many rows it has is written last, so that half a table is known as such.
pub(crate) fn make(
    database: &dyn Database,
    plan: &ScanPlan,
    progress: &Progress,
) -> Result<(), LabError> {
    let counted = format!("{SCAN_TABLE}_rows");
    if database.has_table(&counted)? {
        let mut watcher = database.watcher()?;
        let sql = format!("SELECT coalesce(max(counted), 0) FROM {counted}");
        if watcher.number(&sql)? == i64::from(plan.rows) {
            return Ok(());
        }
    }
    database.execute(&format!(
        "DROP TABLE IF EXISTS {SCAN_TABLE}; DROP TABLE IF EXISTS {counted}; \
         CREATE TABLE {SCAN_TABLE} (id integer NOT NULL, filler {} NOT NULL); \
         CREATE TABLE {counted} (counted bigint NOT NULL)",
        database.long_text()
    ))?;
    let recipe = Recipe {
        shape: Shape {
            warehouses: 0,
            items: plan.rows,
            customers: 0,
        },
        seed: 1,
        constants: Constants {
            last: 0,
            customer: 0,
            item: 0,
        },
        now_us: 0,
    };
    let users = plan.build_users.clamp(1, database.most_loaders());
    load(database, &recipe, &recipe.scan_parts(), users, progress)?;
    database.execute(&format!("INSERT INTO {counted} VALUES ({})", plan.rows))
}

impl ResultFile for ScanResult {
    const KIND: Kind = Kind::Scan;

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn short(&self) -> Vec<Short> {
        vec![crate::report::short::of_scan(self, &self.database.target)]
    }

    fn html(&self) -> Result<String, LabError> {
        crate::report::of_scan(self)
    }
}

impl ScanResult {
    /// An empty result of `plan`.
    pub(crate) fn new(database: &dyn Database, plan: &ScanPlan) -> Result<Self, LabError> {
        Ok(Self {
            head: Head::new(Kind::Scan, "Concurrent scan"),
            database: database.describe()?,
            rows: plan.rows,
            bytes: plan.rows as u64 * (SCAN_FILLER as u64 + 4),
            steps: Vec::new(),
        })
    }

    /// What there is of a scan that goes on, marked as one that has not reached its end.
    fn so_far(&self) -> Self {
        let mut result = self.clone();
        result.head.unfinished();
        result
    }

    /// Marks what there was of a scan that goes on as one that has ended, and why.
    pub fn ended(&mut self, why: &str) {
        self.head.ended(why);
    }

    /// One number of readers, once; they are here, or elsewhere.
    pub(crate) fn step(
        &mut self,
        (database, elsewhere): (&dyn Database, Option<&Elsewhere<'_>>),
        at: ScanAt,
        progress: &Progress,
    ) -> Result<ScanStep, LabError> {
        progress.go_on()?;
        let ScanAt { readers, repeat } = at;
        let wanted = Wanted {
            readers,
            rows: self.rows,
        };
        let read = match elsewhere {
            None => Read::here(database, wanted, progress)?,
            Some(agents) => agents.read(database, wanted, progress)?,
        };
        let used = read.used;
        let all = self.bytes * readers as u64;
        if used
            .device
            .reads()
            .is_some_and(|read| read < self.bytes / 2)
        {
            self.head.flags.push(format!(
                "{readers} readers, repeat {repeat}: most of the {} came from memory",
                human_bytes(all)
            ));
        }
        let run_time_s = read.times.run.as_secs_f64();
        Ok(ScanStep {
            readers,
            repeat,
            began_unix_s: read.began_unix_s,
            run_time_s,
            quickest_s: read.times.quickest.as_secs_f64(),
            mb_s: all as f64 / MB / run_time_s.max(1e-9),
            server_cpu_s: used.server_cpu_s,
            client_cpu_s: used.client_cpu_s,
            clients: read.clients,
            machine_cpu_pct: used.machine_cpu_pct,
            device: used.device,
        })
    }

    /// Run times with so many readers, by repeat.
    pub(crate) fn run_times(&self, readers: usize) -> Vec<(u32, f64)> {
        let steps = self.steps.iter().filter(|step| step.readers == readers);
        steps.map(|step| (step.repeat, step.run_time_s)).collect()
    }

    /// The numbers of readers, ascending.
    pub fn readers(&self) -> Vec<usize> {
        let mut readers: Vec<usize> = self.steps.iter().map(|step| step.readers).collect();
        readers.sort_unstable();
        readers.dedup();
        readers
    }
}

/// Which step of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanAt {
    pub(crate) readers: usize,
    /// From 1.
    pub(crate) repeat: u32,
}

/// How many read how much.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    readers: usize,
    /// Of the table.
    rows: i32,
}

/// What readers took, and what that used.
struct Read {
    times: Times,
    used: Used,
    began_unix_s: f64,
    clients: Vec<ClientShare>,
}

impl Read {
    fn here(
        database: &dyn Database,
        wanted: Wanted,
        progress: &Progress,
    ) -> Result<Self, LabError> {
        let mut all_readers = Readers::open(database, wanted.readers)?;
        let place = all_readers.place()?;
        let usage = Usage::now(&place);
        let began_unix_s = now_s();
        let times = all_readers.read(wanted.rows, progress)?;
        Ok(Self {
            times,
            used: Usage::now(&place).since(&usage),
            began_unix_s,
            clients: Vec::new(),
        })
    }
}

/// Seconds of Unix time.
fn now_s() -> f64 {
    unix_us() as f64 / 1e6
}

impl ScanStep {
    /// Two scans as one step: the means of both.
    pub(crate) fn with(self, other: &Self) -> Self {
        let mean = |one: f64, other: f64| f64::midpoint(one, other);
        let both = |one: Option<f64>, other: Option<f64>| Some(mean(one?, other?));
        let run_time_s = mean(self.run_time_s, other.run_time_s);
        Self {
            // As many bytes in the mean time.
            mb_s: self.mb_s * self.run_time_s / run_time_s.max(f64::MIN_POSITIVE),
            run_time_s,
            quickest_s: mean(self.quickest_s, other.quickest_s),
            server_cpu_s: both(self.server_cpu_s, other.server_cpu_s),
            client_cpu_s: mean(self.client_cpu_s, other.client_cpu_s),
            clients: self
                .clients
                .into_iter()
                .zip(&other.clients)
                .map(|(one, other)| ClientShare {
                    cpu_s: mean(one.cpu_s, other.cpu_s),
                    late_us: one.late_us.max(other.late_us),
                    ..one
                })
                .collect(),
            machine_cpu_pct: both(self.machine_cpu_pct, other.machine_cpu_pct),
            device: self.device.with(&other.device),
            ..self
        }
    }

    /// The step in a line.
    pub(crate) fn line(&self) -> String {
        let (readers, repeat) = (self.readers, self.repeat);
        let mb_s = grouped(self.mb_s);
        let seconds = self.run_time_s;
        format!("{readers} readers, repeat {repeat}: {seconds:.2} s, {mb_s} MB/s")
    }
}

impl fmt::Display for ScanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = self.device.read_bytes.map_or("-".into(), human_bytes);
        write!(
            f,
            "{:>7} {:>6} {:>10.2} {:>10} {:>12}",
            self.readers,
            self.repeat,
            self.run_time_s,
            grouped(self.mb_s),
            read
        )
    }
}

impl fmt::Display for ScanResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Description {
            target, version, ..
        } = &self.database;
        let rows = grouped(f64::from(self.rows));
        writeln!(
            f,
            "{target}, {version}: {rows} rows, {}",
            human_bytes(self.bytes)
        )?;
        writeln!(f, "readers repeat run time s       MB/s  device read")?;
        self.steps
            .iter()
            .try_for_each(|step| writeln!(f, "{step}"))?;
        self.head
            .flags
            .iter()
            .try_for_each(|flag| writeln!(f, "flag: {flag}"))?;
        self.head
            .problems
            .iter()
            .try_for_each(|problem| writeln!(f, "problem: {problem}"))
    }
}
