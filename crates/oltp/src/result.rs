//! `result.json` of an OLTP run, key by key. `docs/oltp.md` documents it for readers; the two change
//! together.

use std::collections::BTreeMap;

use ashlar_lab::short::Short;
use ashlar_lab::stats::median;
use ashlar_lab::units::human_bytes;
use ashlar_lab::{Head, Interval, Kind, LabError, Latencies, LatencyLog, ResultFile};
use serde::{Deserialize, Serialize};

use crate::check::Consistency;
use crate::compare::repeat_by_repeat;
use crate::database::Description;
use crate::inputs::Mix;
use crate::load::BuildResult;
use crate::usage::DeviceBytes;

pub use ashlar_lab::result::LatencyUs;

/// A transaction touches tens of pages at random. Where the device reads less than one of them for each,
/// what is measured of reading is memory.
const A_PAGE: u64 = 8192;

/// A run: `result.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OltpResult {
    /// What all results have.
    #[serde(flatten)]
    pub head: Head,
    /// What was driven.
    pub database: Description,
    pub method: Method,
    /// What building the schema cost, if it was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildResult>,
    /// The measurements, in the order in which they were made.
    pub steps: Vec<StepResult>,
    /// Of each number of users, over its repeats.
    pub summary: Vec<Summary>,
    /// A check that failed and ended the run: what was put back is not what was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// How it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// Warehouses in the database.
    pub warehouses: i32,
    /// `timed`, `fixed:N`, `rate:R`.
    pub mode: String,
    pub mix: Mix,
    /// Seconds of load before measuring, from the last login on.
    pub ramp_s: f64,
    /// Measured seconds of a timed step.
    pub seconds: f64,
    /// Numbers of users, in the order of their steps; empty in results of before this was told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<usize>,
    /// Measurements of each number of users.
    pub repeats: u32,
    /// All warehouses were split over the users.
    pub all_warehouses: bool,
    /// Users keyed in and thought as clause 5.2.5 has it, or thought for the times of `think_s`.
    pub keying_and_thinking: bool,
    /// Mean seconds to think by kind of transaction, without keying, if they are not those of clause 5.2.5.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub think_s: BTreeMap<String, f64>,
    /// The database was put back, and checked to be what it was, before every step.
    #[serde(default)]
    pub restored: bool,
    /// Configurations took turns under one load, a second or so each: a step is two turns, and only the
    /// last of a number of users is followed by a check.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_turns: bool,
    /// Percent of the time in which no user began a transaction, on purpose (`--slow-down`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slow_down_pct: f64,
    /// Seed of the inputs.
    pub seed: u64,
}

/// An agent's part of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientShare {
    /// The agent's name: its address.
    pub client: String,
    /// It was on the machine of the databases.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub here: bool,
    /// Users that it had; of a fleet, sessions.
    pub users: usize,
    /// Transactions of these that ended as they should.
    pub transactions: u64,
    /// New orders of these that were committed.
    pub new_orders: u64,
    /// Processor seconds of the agent.
    pub cpu_s: f64,
    /// How long after the common moment it began, in microseconds, by its own clock.
    pub late_us: f64,
    /// It died, or ended early: its part is missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

impl ClientShare {
    /// Adds its part of another database, in the same time.
    pub(crate) fn add(&mut self, other: &Self) {
        self.users += other.users;
        self.transactions = self.transactions.saturating_add(other.transactions);
        self.new_orders = self.new_orders.saturating_add(other.new_orders);
        // Of one process.
        self.cpu_s = self.cpu_s.max(other.cpu_s);
        self.late_us = self.late_us.max(other.late_us);
        self.lost |= other.lost;
    }

    /// Adds its part of a later time, of the same users.
    pub(crate) fn follow(&mut self, later: &Self) {
        self.transactions = self.transactions.saturating_add(later.transactions);
        self.new_orders = self.new_orders.saturating_add(later.new_orders);
        self.cpu_s += later.cpu_s;
        self.late_us = self.late_us.max(later.late_us);
        self.lost |= later.lost;
    }
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    pub users: usize,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// New orders a minute: change of `sum(d_next_o_id)` over the elapsed minutes.
    pub nopm: f64,
    /// Where `nopm` is from: `d_next_o_id`, or `client` if the database could not be asked.
    pub nopm_source: String,
    /// Transactions a minute.
    pub tpm: f64,
    /// Where `tpm` is from: the database's own count, or `client`.
    pub tpm_source: String,
    /// When measuring began, in seconds of Unix time; 0 in results of before this was told.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub began_unix_s: f64,
    /// Measured seconds.
    pub elapsed_s: f64,
    /// By kind of transaction.
    pub transactions: BTreeMap<String, KindResult>,
    /// `pass`, or what is wrong, for each of the conditions 1 to 12.
    pub consistency: Consistency,
    /// Open loop: how long after it was due a transaction began, in microseconds; absent of closed loops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_us: Option<LatencyUs>,
    /// Processor seconds of the database's processes; null if it cannot be told.
    pub server_cpu_s: Option<f64>,
    /// Why `server_cpu_s` is null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu_reason: Option<String>,
    /// Processor seconds of the load: of this process, or of the agents that made it.
    pub client_cpu_s: f64,
    /// Share of the machine's processors in use by all processes, 0 to 100; null if it cannot be told.
    #[serde(default)]
    pub machine_cpu_pct: Option<f64>,
    /// What the device of the database's files transferred.
    pub device: DeviceBytes,
    /// New orders for each of the load's processor seconds.
    pub new_orders_per_client_cpu_s: f64,
    /// New orders for each of the server's processor seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_orders_per_server_cpu_s: Option<f64>,
    /// Bytes read and written by the device for each transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_bytes_per_transaction: Option<(f64, f64)>,
    /// Transactions completed in each second.
    pub series: Vec<u64>,
    /// Bytes read and written by the device in each second; empty if it cannot be told.
    #[serde(default)]
    pub device_series: Vec<(u64, u64)>,
    /// Open loop: arrivals that were due and not begun when it ended.
    pub missed: u64,
    /// What each agent had of it, if agents made the load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientShare>,
    /// Users that did not reach the end.
    pub lost_users: usize,
    /// A user was lost, or the database was.
    pub partial: bool,
    /// The first errors, in words.
    pub problems: Vec<String>,
    /// Latencies by kind of transaction, until they are in the run's log.
    #[serde(skip)]
    pub(crate) latencies: Latencies,
}

/// What was measured of a kind of transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KindResult {
    /// Completed, those rolled back as they must be included.
    pub count: u64,
    /// Of these, new orders of an item that does not exist.
    pub rolled_back: u64,
    pub errors: u64,
    /// Tried again after a deadlock, a serialization failure, a busy database.
    pub retries: u64,
    /// From the first try (open loop: from when it was due) to the end.
    pub latency_us: LatencyUs,
}

/// A number of users, over its repeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub users: usize,
    /// Repeats that reached their end.
    pub repeats: usize,
    /// Median new orders a minute.
    pub nopm: f64,
    /// Median transactions a minute.
    pub tpm: f64,
    /// (largest - smallest) / median of the new orders a minute.
    pub spread: f64,
}

impl ResultFile for OltpResult {
    const KIND: Kind = Kind::Oltp;

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn text(&self) -> String {
        self.table()
    }

    fn short(&self) -> Vec<Short> {
        vec![crate::report::short::of_run(self, &self.database.target)]
    }

    fn html(&self) -> Result<String, LabError> {
        crate::report::html(self)
    }

    fn complaint(&self) -> Option<String> {
        self.what_is_wrong()
    }
}

impl StepResult {
    /// Puts its latencies into a run's log, as those of a configuration, if it has several; of a step that is told for
    /// good, so that its name is there once.
    pub(crate) fn log(
        &mut self,
        log: &LatencyLog,
        configuration: Option<usize>,
    ) -> Result<(), LabError> {
        let name = configuration.map_or_else(String::new, |at| format!("c{}.", at + 1));
        self.log_as(log, &format!("{name}{}u.r{}", self.users, self.repeat))
    }

    /// The same of a run that is added to one that has so many repeats.
    pub(crate) fn log_after(&mut self, log: &LatencyLog, repeats: u32) -> Result<(), LabError> {
        self.log_as(log, &format!("{}u.r{}", self.users, repeats + self.repeat))
    }

    fn log_as(&mut self, log: &LatencyLog, name: &str) -> Result<(), LabError> {
        let at = Interval {
            began_unix_s: self.began_unix_s,
            seconds: self.elapsed_s,
        };
        log.add(name, at, &std::mem::take(&mut self.latencies))
    }
}

impl OltpResult {
    /// How many repeats it has.
    pub(crate) fn repeats(&self) -> u32 {
        self.steps.iter().map(|step| step.repeat).max().unwrap_or(0)
    }

    /// The steps of a number of users that reached their end.
    pub fn whole_steps(&self, users: usize) -> impl Iterator<Item = &StepResult> {
        let wanted = move |step: &&StepResult| step.users == users && !step.partial;
        self.steps.iter().filter(wanted)
    }

    /// Median over repeats of the 95th percentile of new orders, microseconds; nothing without a whole step.
    pub(crate) fn p95_us(&self, users: usize) -> Option<f64> {
        let of = |step: &StepResult| Some(step.transactions.get("new_order")?.latency_us.p95);
        let values: Vec<f64> = self.whole_steps(users).filter_map(of).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    /// A figure of the steps of a number of users, here and there, repeat by repeat.
    pub(crate) fn pairs(
        &self,
        other: &Self,
        users: usize,
        figure: impl Fn(&StepResult) -> f64,
    ) -> (Vec<f64>, Vec<f64>) {
        let of = |of: &Self| -> Vec<(u32, f64)> {
            let steps = of.whole_steps(users);
            steps.map(|step| (step.repeat, figure(step))).collect()
        };
        repeat_by_repeat(&of(self), &of(other))
    }

    /// What there is of a run that goes on, marked as one that has not reached its end: what is kept if
    /// nothing comes after it.
    pub fn so_far(&self) -> Self {
        let mut result = self.clone();
        result.sum_up();
        result.head.unfinished();
        result
    }

    /// Marks what there was of a run that goes on as one that has ended, and why.
    pub fn ended(&mut self, why: &str) {
        self.head.ended(why);
    }

    /// The numbers of users that there are steps of.
    pub(crate) fn users(&self) -> Vec<usize> {
        let mut users: Vec<usize> = self.steps.iter().map(|step| step.users).collect();
        users.sort_unstable();
        users.dedup();
        users
    }

    /// Fills [`OltpResult::summary`] and what follows from the steps.
    pub(crate) fn sum_up(&mut self) {
        self.summary = self
            .users()
            .into_iter()
            .map(|users| self.summary_of(users))
            .collect();
        if self.method.in_turns {
            let users = self.users().into_iter();
            let told: Vec<String> = users.filter_map(|n| self.reads_of_turns(n)).collect();
            self.head.flags.extend(told);
        }
        for step in &self.steps {
            let what = format!("{} users, repeat {}", step.users, step.repeat);
            self.head.partial |= step.partial;
            let problems = step
                .problems
                .iter()
                .map(|problem| format!("{what}: {problem}"));
            self.head.problems.extend(problems);
            let errors: u64 = step.transactions.values().map(|kind| kind.errors).sum();
            if errors > 0 {
                self.head
                    .flags
                    .push(format!("{what}: {errors} transactions failed"));
            }
            let done: u64 = step.transactions.values().map(|kind| kind.count).sum();
            if !self.method.in_turns {
                self.head
                    .flags
                    .extend(from_memory(&what, step.device.reads(), done));
            }
            if step.missed > 0 {
                let missed = step.missed;
                self.head.flags.push(format!(
                    "{what}: {missed} arrivals of the rate were not begun"
                ));
            }
        }
    }

    /// A second or so says little of reads: turns are told together.
    fn reads_of_turns(&self, users: usize) -> Option<String> {
        let (mut read, mut done) = (Some(0), 0);
        for step in self.whole_steps(users) {
            read = read.zip(step.device.reads()).map(|(a, b)| a + b);
            done += step
                .transactions
                .values()
                .map(|kind| kind.count)
                .sum::<u64>();
        }
        from_memory(&format!("{users} users"), read, done)
    }

    fn summary_of(&self, users: usize) -> Summary {
        let steps: Vec<&StepResult> = self.whole_steps(users).collect();
        let nopm: Vec<f64> = steps.iter().map(|step| step.nopm).collect();
        let tpm: Vec<f64> = steps.iter().map(|step| step.tpm).collect();
        Summary {
            users,
            repeats: steps.len(),
            nopm: median(&nopm),
            tpm: median(&tpm),
            spread: ashlar_lab::stats::spread(&nopm),
        }
    }

    /// Which check ended it, and what consistency conditions were violated; nothing if all is well.
    fn what_is_wrong(&self) -> Option<String> {
        let texts: Vec<String> = self
            .steps
            .iter()
            .filter_map(|step| {
                let complaint = step.consistency.complaint()?;
                Some(format!(
                    "after {} users, repeat {}: {complaint}",
                    step.users, step.repeat
                ))
            })
            .collect();
        let texts: Vec<String> = self.failed.iter().cloned().chain(texts).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// That reads came from memory, if they did.
fn from_memory(what: &str, read: Option<u64>, done: u64) -> Option<String> {
    let read = read.filter(|&read| read < A_PAGE * done)?;
    Some(format!(
        "{what}: reads came from memory: {} a transaction reached the storage, less than a page",
        human_bytes(read / done.max(1))
    ))
}

#[cfg(test)]
impl OltpResult {
    /// A run of this many users that measured these NOPM, a minute each.
    pub(crate) fn sample(users: usize, nopm: &[f64]) -> Self {
        let empty = r#"{"schema":"ashlar-oltp-1","title":"t","machine":{"cpu_model":"","cores":1,
            "memory_bytes":1,"kernel":"","file_systems":[],"lab_version":"","started_unix_s":0},
            "database":{"kind":"","target":"a","version":"","sql":"","settings":{}},
            "method":{"warehouses":1,"mode":"timed","mix":"tproc-c","ramp_s":1.0,"seconds":60.0,
            "repeats":1,"all_warehouses":false,"keying_and_thinking":false,"seed":1},
            "steps":[],"summary":[],"flags":[],"partial":false,"problems":[]}"#;
        let mut result: Self = serde_json::from_str(empty).expect("a result");
        let step = |(repeat, &nopm): (u32, &f64)| StepResult {
            users,
            repeat,
            nopm,
            elapsed_s: 60.0,
            ..StepResult::default()
        };
        result.steps = (1..).zip(nopm).map(step).collect();
        result.method.repeats = nopm.len() as u32;
        result.sum_up();
        result
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}
