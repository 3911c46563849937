//! `result.json`, key by key. `docs/lab.md` documents it for readers; the two change together.

use serde::{Deserialize, Serialize};

use crate::compare::{
    A_RUN_IS_PARTIAL, Comparable, Figure, Figures, Row, differ, machine_cautions,
};
use crate::head::{Head, Kind};
use crate::machine::Machine;
use crate::plan::is_label;
use crate::report::short::Short;
use crate::result_file::ResultFile;
use crate::stats::Ratio;
use crate::verify::{Example, Failures};
use crate::{CellSpec, LabError, Pattern};

pub use crate::latency::LatencyUs;

/// A run: `result.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// What all results have.
    #[serde(flatten)]
    pub head: Head,
    /// How it was measured.
    pub method: Method,
    /// What the lab itself can do here.
    pub ceiling: Vec<Ceiling>,
    /// The agents that made the load; none if the machine above made it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientNote>,
    /// What was measured.
    pub configurations: Vec<ConfigurationResult>,
    /// What the scenario asked and is told, without a pass or a fail: the depth from which it
    /// doubles.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// A database on two storages, measured beside the devices and put in later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseResult>,
}

/// How a run was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// Measured seconds of a repeat.
    pub seconds: f64,
    /// Seconds of load before each that are not counted.
    pub warmup_s: f64,
    /// Repeats of a cell on a configuration.
    pub repeats: u32,
    /// Bytes of each device that were used.
    pub size_bytes: u64,
    /// Every write durable before it counted.
    pub sync: bool,
    /// Open loop: accesses a second in total.
    pub rate: Option<f64>,
    /// What accesses are like besides pattern, size and depth; absent if nothing is to be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// Blocks were stamped and checked.
    pub verify: bool,
    /// The range was filled with random data first.
    pub filled: bool,
    /// Load threads were pinned to processors.
    pub pinned: bool,
    /// Seed of addresses and data.
    pub seed: u64,
}

/// Where a run's cells come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioNote {
    pub name: String,
    pub about: String,
    /// The scale it was run at (1 is as written).
    pub scale: f64,
    /// What scaling changed, in words.
    pub scaled: String,
    /// Where the published figures are from; empty if there are none.
    pub source: String,
    /// What the command line changed in it, as it was given: `--set measure.seconds=60`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

/// The load generator's own limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Load threads.
    pub threads: u32,
    /// Accesses a second against a device that does nothing.
    pub null_iops: f64,
    /// MiB a second against a device that only copies memory (64 KiB reads).
    pub copy_mib_s: f64,
}

/// One of the things compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigurationResult {
    pub name: String,
    /// What was opened.
    pub spec: String,
    /// The stack as a tree.
    pub description: String,
    /// Reached over the network.
    pub remote: bool,
    /// Of a pool of the run's own: what of its drives could be data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    pub cells: Vec<CellResult>,
    /// What verification found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyResult>,
}

/// How much of a pool's drives can be data, with a copy on each node counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// Percent of the drives' bytes, by the layout alone.
    pub layout_pct: f64,
    /// Percent, without what a pool that is to last keeps for repair, for logs and for its map.
    pub with_reserves_pct: f64,
    /// Bytes of the drives of a node.
    pub raw_bytes: u64,
    /// Of these, kept so that a lost drive can be rebuilt.
    pub repair_bytes: u64,
    /// Of these, for labels, logs and the map.
    pub metadata_bytes: u64,
}

/// A cell on a configuration. `iops`, `mib_s`, `latency_us`, `cpu_pct` are medians over the
/// repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Kind and order of accesses.
    pub pattern: Pattern,
    /// Share of reads, 0 to 100.
    pub read_pct: u8,
    /// Bytes of an access.
    pub block_bytes: u32,
    /// Load threads.
    pub threads: u32,
    /// Accesses in flight a thread.
    pub depth: u32,
    /// Every write durable before it counts, in this cell; absent if it is as the method has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sync: bool,
    /// How it was measured, if not as the method has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procedure: Option<ProcedureNote>,
    /// Nodes that serve the storage.
    pub nodes: u32,
    /// Accesses a second.
    pub iops: f64,
    /// MiB a second.
    pub mib_s: f64,
    pub latency_us: LatencyUs,
    /// Processor time in use, of the whole machine, 0 to 100.
    pub cpu_pct: Option<f64>,
    /// `iops / cpu_pct` of one machine: nodes of one's own storage are machines each; those that the lab makes are
    /// together on one. Old results have `iops / nodes / cpu_pct` of these, too.
    pub iops_per_cpu_pct: Option<f64>,
    /// What of `cpu_pct` was neither the load threads' nor other processes'; absent in old results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_cpu_pct: Option<f64>,
    /// Likewise of `storage_cpu_pct`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops_per_storage_cpu_pct: Option<f64>,
    /// Reads of a mixed load, medians over the repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Apart>,
    /// Writes of a mixed load, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Apart>,
    /// The repeats, in order.
    pub repeats: Vec<RepeatResult>,
    /// Mean of the repeats' IOPS.
    pub mean: f64,
    /// Median of the repeats' IOPS.
    pub median: f64,
    /// (largest - smallest) / median of the repeats' IOPS.
    pub spread: f64,
    /// Every repeat was steady.
    pub steady: bool,
    /// What the cell stands for in its scenario.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Throughput had settled before the first measurement; absent if settling was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<bool>,
    /// Accesses that failed.
    #[serde(default)]
    pub errors: u64,
    /// A repeat did not finish or lost a worker.
    #[serde(default)]
    pub partial: bool,
    /// Comparison with the first configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versus_first: Option<Ratio>,
    /// What the source published for this cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<PublishedFigures>,
}

/// How the cells of a matrix were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcedureNote {
    /// Measured seconds of a repeat.
    pub seconds: f64,
    /// Seconds of load before each that are not counted.
    pub warmup_s: f64,
    /// Open loop: accesses a second in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// What was written before, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precondition: Option<String>,
}

impl CellResult {
    /// The cell's key.
    pub fn spec(&self) -> CellSpec {
        CellSpec {
            pattern: self.pattern,
            read_pct: self.read_pct,
            block_bytes: self.block_bytes,
            threads: self.threads,
            depth: self.depth,
            sync: self.sync,
        }
    }

    /// IOPS of this cell and of another one in the repeats that both have.
    pub fn pairs(&self, other: &Self) -> (Vec<f64>, Vec<f64>) {
        self.pairs_of(other, |repeat| repeat.iops)
    }

    /// A figure of this cell and of another one in the repeats that both have. A repeat that failed shifts no other;
    /// results from before repeats had numbers are taken in order.
    pub(crate) fn pairs_of(
        &self,
        other: &Self,
        figure: fn(&RepeatResult) -> f64,
    ) -> (Vec<f64>, Vec<f64>) {
        let number = |(index, of): (usize, &RepeatResult)| match of.repeat {
            0 => index as u32 + 1,
            number => number,
        };
        let theirs: Vec<u32> = other.repeats.iter().enumerate().map(number).collect();
        let pair = |(index, of): (usize, &RepeatResult)| {
            let wanted = number((index, of));
            let at = theirs.iter().position(|&theirs| theirs == wanted)?;
            Some((figure(of), figure(&other.repeats[at])))
        };
        self.repeats.iter().enumerate().filter_map(pair).unzip()
    }
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RepeatResult {
    /// Which repeat, from 1; 0 in results of versions that did not number them.
    #[serde(default)]
    pub repeat: u32,
    /// Accesses a second.
    pub iops: f64,
    /// Of these, reads.
    pub read_iops: f64,
    /// Of these, writes.
    pub write_iops: f64,
    /// MiB a second.
    pub mib_s: f64,
    pub latency_us: LatencyUs,
    /// Longest latency, in microseconds.
    pub max_us: f64,
    /// Processor time in use, of the whole machine, 0 to 100.
    pub cpu_pct: Option<f64>,
    /// What of it the load threads used; absent in old results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_cpu_pct: Option<f64>,
    /// What of it processes used that are neither load nor storage; absent in old results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_cpu_pct: Option<f64>,
    /// Reads of a mixed load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Apart>,
    /// Writes of a mixed load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<Apart>,
    /// Throughput was steady.
    pub steady: bool,
    /// Accesses that failed.
    pub errors: u64,
    /// Accesses that took longer than 100 ms.
    #[serde(default)]
    pub stalled: u64,
    /// Open loop: most arrivals that waited at once.
    pub backlog_max: u64,
    /// Open loop: arrivals that were given up, or still waited at the end.
    pub missed: u64,
    /// Workers that did not finish.
    pub lost_workers: u32,
    /// Flushes between writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushes: Option<Apart>,
    /// Space that was given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trims: Option<Apart>,
    /// Open loop: accesses that ended in each of as many equal parts of the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<u64>,
    /// What each client had of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientPart>,
    /// How what was measured is not what was asked for, as with a copy that was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlike: Option<String>,
}

impl RepeatResult {
    /// The 95th percentile of its writes, in microseconds.
    pub(crate) fn write_p95_us(&self) -> f64 {
        let of = self
            .writes
            .map_or(self.latency_us, |writes| writes.latency_us);
        of.p95
    }

    /// Processor time in use that was neither the load's nor that of processes which have nothing to do with it, 0 to
    /// 100. The load of agents on other machines is not in it.
    pub(crate) fn storage_cpu_pct(&self) -> Option<f64> {
        let others = self.others_cpu_pct.unwrap_or(0.0);
        Some((self.cpu_pct? - self.load_cpu_pct? - others).max(0.0))
    }
}

/// What is told apart: accesses of one kind, or what came between them and does not count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Apart {
    /// How many a second.
    pub per_s: f64,
    pub latency_us: LatencyUs,
}

/// A client's part of a repeat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientPart {
    pub client: String,
    /// Load threads that it had.
    pub threads: u32,
    /// Accesses a second of these.
    pub iops: f64,
    /// Processor time in use, of its whole machine, 0 to 100.
    pub cpu_pct: Option<f64>,
    /// How long after the common moment it began, in microseconds, by its own clock.
    pub late_us: f64,
    /// It died: its part is missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// An agent that made load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientNote {
    /// Its name: its address.
    pub name: String,
    pub machine: Machine,
    /// How far its clock of the wall is ahead of the coordinator's, in microseconds.
    pub clock_ahead_us: f64,
    /// By how much that may be wrong: half of what the quickest answer took.
    pub clock_error_us: f64,
    /// By how much its steady clock has gone ahead of the coordinator's since the run began.
    pub clock_drift_us: f64,
    /// Why there was nothing to be had of it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died: Option<String>,
}

/// What verification found on a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VerifyResult {
    /// The run's number in its stamps, in hexadecimal.
    pub run: String,
    /// Blocks checked by reads of the load.
    pub blocks_checked: u64,
    /// Blocks checked by reading everything back at the end.
    pub blocks_read_back: u64,
    /// Accesses that could not be read back.
    pub unreadable: u64,
    /// Failed blocks by class.
    pub failures: Failures,
    /// The first of them.
    pub examples: Vec<Example>,
}

/// What a source published for a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigures {
    /// Accesses a second.
    pub iops: f64,
    /// MiB a second.
    pub mib_s: f64,
    /// Mean latency in microseconds.
    pub latency_us: f64,
    /// Its IOPS for 1 % of a node's processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops_per_cpu_pct: Option<f64>,
    /// Its IOPS as a share of the first configuration's, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pct_of_first: Option<f64>,
    /// Its latency as a share of the first configuration's, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_pct_of_first: Option<f64>,
    /// Its IOPS times its latency are not the accesses in flight that other rows of the table have: it contradicts
    /// itself, as does what is divided by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contradicts: bool,
}

/// Something that was checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    /// Whether it held.
    pub passed: bool,
    /// What was found.
    pub text: String,
}

/// A load of a database on two storages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatabaseResult {
    pub title: String,
    /// What the database says that it is.
    pub version: String,
    /// What the two are called; the first is the 100 %.
    pub names: [String; 2],
    /// One for each number of users that both have.
    pub steps: Vec<DatabaseStep>,
    /// What makes the two hard to compare.
    pub cautions: Vec<String>,
}

/// A number of users on both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatabaseStep {
    pub users: usize,
    /// Median new orders a minute, of the first and of the second.
    pub nopm: [f64; 2],
    /// Median of the 95th percentile of new orders, microseconds.
    pub p95_us: [f64; 2],
    /// New orders a minute of each pair of repeats.
    pub pairs: Vec<[f64; 2]>,
    /// The second to the first, pair by pair; null if the first did nothing.
    pub ratio: Option<Ratio>,
    /// The comparison in words.
    pub text: String,
}

/// Something that was found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// About what.
    pub name: String,
    /// What was found.
    pub text: String,
}

impl ResultFile for RunResult {
    const KIND: Kind = Kind::Devices;

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
        crate::report::in_short(self)
    }

    fn html(&self) -> Result<String, LabError> {
        Ok(crate::report::html(self))
    }
}

impl Comparable for RunResult {
    /// Configurations of the same name, or, if no name is common, of the same position.
    fn rows(&self, other: &Self) -> Vec<Row> {
        let (ours, theirs) = (&self.configurations, &other.configurations);
        let named = |of: &ConfigurationResult| theirs.iter().position(|o| o.name == of.name);
        let any = ours.iter().any(|of| named(of).is_some());
        let partner = |(index, of): (usize, &ConfigurationResult)| match any {
            true => named(of),
            false => Some(index),
        };
        let mut rows = Vec::new();
        for (index, of) in ours.iter().enumerate() {
            let Some(partner) = partner((index, of)).and_then(|at| theirs.get(at)) else {
                continue;
            };
            for cell in &of.cells {
                let found = partner.cells.iter().find(|c| c.spec() == cell.spec());
                let row = found.and_then(|other| cell.row(other));
                rows.extend(row.map(|row| Row {
                    configuration: of.name.clone(),
                    ..row
                }));
            }
        }
        rows
    }

    fn cautions(&self, other: &Self) -> Vec<String> {
        let (m, n) = (&self.method, &other.method);
        let words = |of: &Method| of.access.clone().unwrap_or_default();
        let method = [
            differ("size", m.size_bytes, n.size_bytes),
            differ("seconds", m.seconds, n.seconds),
            differ("sync", m.sync, n.sync),
            differ("verify", m.verify, n.verify),
            differ("accesses", words(m), words(n)),
            differ("rate", format!("{:?}", m.rate), format!("{:?}", n.rate)),
            (self.head.partial || other.head.partial).then(|| A_RUN_IS_PARTIAL.to_owned()),
        ];
        // A label says nothing of what it is.
        let device = |of: &ConfigurationResult| {
            let theirs = other.configurations.iter().find(|o| o.name == of.name)?;
            differ(&of.name, &of.spec, &theirs.spec)
        };
        let labelled = self.configurations.iter().filter(|of| is_label(&of.name));
        machine_cautions(&self.head.machine, &other.head.machine)
            .chain(method.into_iter().flatten())
            .chain(labelled.filter_map(device))
            .collect()
    }

    fn contents(&self) -> String {
        let cells = self.configurations.iter().map(|of| of.cells.len());
        format!("{} cells of devices", cells.sum::<usize>())
    }
}

impl CellResult {
    fn row(&self, other: &Self) -> Option<Row> {
        let iops = |of: &Self| of.repeats.iter().map(|repeat| repeat.iops).collect();
        let figures = Figures {
            all: [iops(self), iops(other)],
            pairs: self.pairs(other),
        };
        let latency = [self.latency_us.mean, other.latency_us.mean];
        let row = Row::of(self.spec().slug(), Figure::Iops, &figures)?;
        Some(row.with_latency(Some(latency)))
    }
}
