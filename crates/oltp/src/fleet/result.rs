//! What a fleet has measured: `result.json`.

use std::collections::BTreeMap;
use std::fmt::Write;

use ashlar_lab::result::{ClientNote, ScenarioNote};
use ashlar_lab::short::Short;
use ashlar_lab::stats::median;
use ashlar_lab::units::grouped;
use ashlar_lab::{Head, Kind as ResultKind, LabError, ResultFile};
use serde::{Deserialize, Serialize};

use super::file::{Engine, FleetScenario};
use super::storage::{Accesses, VolumeAccesses};
use super::streams::told;
use crate::inputs::Kind;
use crate::result::{ClientShare, KindResult, LatencyUs, StepResult};

/// The table that stands beside it.
pub(crate) const PUBLISHED: &str = "s2d_fleet_144_databases.csv";
const TABLE: &str = include_str!("../../../../published/s2d_fleet_144_databases.csv");
/// A step is flagged if others use processors for more than this share of the time, percent.
const OTHERS_PCT: f64 = 20.0;
/// A median of databases that differ by more than this says little of each.
const UNEQUAL: f64 = 0.1;
/// Streams that had less than this share of what they asked for did not keep up.
pub(super) const KEPT_UP: f64 = 0.98;

/// A fleet's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetResult {
    /// What all results have.
    #[serde(flatten)]
    pub head: Head,
    /// What kind of database.
    pub engine: Engine,
    /// Warehouses of each.
    pub warehouses: i32,
    /// Sessions of each.
    pub sessions: usize,
    /// Transactions a second of each stream.
    pub rate: f64,
    /// Measured seconds of a step.
    pub seconds: f64,
    /// Memory of a server as asked for, in percent of its database; null: no limit.
    pub memory_pct: Option<f64>,
    /// The places; none in old results.
    #[serde(default)]
    pub places: Vec<FleetPlace>,
    pub databases: Vec<FleetDatabase>,
    /// The agents that had the streams; none if they were in the process that ran it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientNote>,
    /// The measurements, in the order in which they were made.
    pub steps: Vec<FleetStep>,
}

/// A place, when the databases were there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetPlace {
    pub name: String,
    /// The node that it is on.
    pub node: String,
    /// The volume that it is on, if a node tells.
    pub volume: Option<String>,
    /// How full its file system is, in percent.
    pub full_pct: f64,
    /// How much of that was written for it to be.
    pub ballast_bytes: u64,
    /// Why it is not as full as it was to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_reason: Option<String>,
}

/// A database, as it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetDatabase {
    pub name: String,
    /// Which place it is on.
    pub place: String,
    /// Which node that is on; empty in old results.
    #[serde(default)]
    pub node: String,
    /// Bytes when it was built.
    pub bytes: u64,
    /// Memory that its server has, page cache included; null: no limit.
    pub memory_bytes: Option<u64>,
    /// Why there is no limit, if one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_reason: Option<String>,
    /// Seconds that making it took.
    pub seconds: f64,
}

/// A step: so many percent of the streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetStep {
    /// Percent of the streams as written.
    pub percent: u32,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// Streams of a database, on average.
    pub streams: u32,
    /// Transactions a second that all streams ask for.
    pub offered_tps: f64,
    /// Transactions a second that all databases had.
    pub tps: f64,
    /// Measured seconds.
    pub elapsed_s: f64,
    /// Of all databases together, by kind.
    pub transactions: BTreeMap<String, KindResult>,
    /// How long after it was due a transaction began.
    pub lateness_us: Option<LatencyUs>,
    /// Due and not begun at the end.
    pub missed: u64,
    /// Processors of the machine in use, 0 to 100.
    pub machine_cpu_pct: Option<f64>,
    /// Processor seconds of this process, or of the agents.
    pub client_cpu_s: f64,
    /// What each agent had of it, if agents had the streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientShare>,
    /// Of all servers; null if it cannot be told.
    pub server_cpu_s: Option<f64>,
    /// What the block devices under the databases did.
    pub accesses: Vec<Accesses>,
    /// What the volumes under them did, as their nodes tell; none if there are none.
    #[serde(default)]
    pub volumes: Vec<VolumeAccesses>,
    /// Each node; none in old results.
    #[serde(default)]
    pub nodes: Vec<FleetNode>,
    /// Each database.
    pub databases: Vec<FleetShare>,
    /// Transactions completed in each second.
    pub series: Vec<u64>,
    /// Consistency conditions that do not hold.
    pub complaints: Vec<String>,
    /// A database or a session was lost.
    pub partial: bool,
    /// The first errors, in words.
    pub problems: Vec<String>,
}

impl FleetStep {
    /// That reads came from memory, although memory was limited, if they did.
    fn reads_from_memory(&self) -> Option<String> {
        let reads: f64 = self.accesses.iter().map(|of| of.read_iops).sum();
        let each = reads / self.tps.max(1e-9);
        (!self.accesses.is_empty() && each < 1.0).then(|| {
            format!("reads came from memory: {each:.2} a transaction reached the storage: larger databases (a larger scale)")
        })
    }

    /// That much of the processors' time was of something else, if it was.
    fn shared_processors(&self, cores: u32) -> Option<String> {
        let all = f64::from(cores) * self.elapsed_s;
        let daemons: f64 = self.volumes.iter().filter_map(|of| of.daemon_cpu_s).sum();
        let here = self.clients.iter().filter(|of| of.here);
        let load = match self.clients.is_empty() {
            true => self.client_cpu_s,
            false => here.map(|of| of.cpu_s).sum(),
        };
        let ours = load + self.server_cpu_s? + daemons;
        let others = self.machine_cpu_pct? - 100.0 * ours / all.max(1e-9);
        (others > OTHERS_PCT).then(|| {
            format!(
                "{others:.0} % of the processors' time was used by other processes than load, databases and daemons, or by \
                 the kernel"
            )
        })
    }
}

/// A node's share of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetNode {
    pub name: String,
    /// How many databases are on it.
    pub databases: usize,
    /// Transactions a second that these had.
    pub tps: f64,
    /// Measured seconds.
    pub elapsed_s: f64,
    /// Processor seconds of their servers; null if it cannot be told.
    pub server_cpu_s: Option<f64>,
    /// Processor seconds of the daemon that has the volumes; null without one on this machine.
    pub daemon_cpu_s: Option<f64>,
}

/// A database's share of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetShare {
    pub name: String,
    /// Its streams; 0 in old results, where all have as many.
    #[serde(default)]
    pub streams: u32,
    /// The agent that had its streams; absent without agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Transactions a second.
    pub tps: f64,
    /// 95th percentile of each kind of transaction, from when it was due, in microseconds.
    pub p95_us: BTreeMap<String, f64>,
    /// Due and not begun at the end.
    pub missed: u64,
    /// Transactions that failed.
    pub errors: u64,
    /// Processor seconds of its server.
    pub server_cpu_s: Option<f64>,
}

/// A row of the published table.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PublishedStep {
    pub(crate) users_per_database: u32,
    pub(crate) databases: u32,
    pub(crate) nodes: u32,
    pub(crate) total_tps: f64,
    pub(crate) p95_upper_bound_s: f64,
    pub(crate) cpu_pct: Option<f64>,
    pub(crate) read_latency_ms: Option<f64>,
    pub(crate) write_latency_ms: Option<f64>,
}

impl PublishedStep {
    pub(crate) fn rows() -> Result<Vec<Self>, LabError> {
        let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
        let rows: Result<_, _> = reader.deserialize().collect();
        rows.map_err(|error| LabError::caused(PUBLISHED, error))
    }

    /// What its streams asked for: a transaction a second each.
    pub(crate) fn offered_tps(&self) -> f64 {
        f64::from(self.users_per_database) * f64::from(self.databases)
    }
}

impl FleetNode {
    /// Processors in use by its databases and its daemon, as if each were a whole one.
    pub fn processors(&self) -> Option<f64> {
        let used = self.server_cpu_s? + self.daemon_cpu_s.unwrap_or_default();
        Some(used / self.elapsed_s.max(1e-9))
    }
}

impl FleetShare {
    pub(crate) fn of(name: &str, tps: f64, step: &StepResult) -> Self {
        let p95 = |(name, kind): (&String, &KindResult)| (name.clone(), kind.latency_us.p95);
        Self {
            name: name.to_owned(),
            streams: 0,
            client: step.clients.first().map(|of| of.client.clone()),
            tps,
            p95_us: step.transactions.iter().map(p95).collect(),
            missed: step.missed,
            errors: step.transactions.values().map(|kind| kind.errors).sum(),
            server_cpu_s: step.server_cpu_s,
        }
    }
}

impl FleetStep {
    /// Streams of each database in words, from how many to how many.
    pub(crate) fn streams_told(&self) -> String {
        let known = self.databases.iter().map(|share| share.streams);
        let known = known.filter(|&streams| streams > 0);
        told(known).unwrap_or_else(|| self.streams.to_string())
    }

    /// How many databases had another share of what their streams asked for than most, by more than a tenth; none if
    /// they are as many.
    fn far_off(&self, rate: f64) -> Option<String> {
        let asked = |share: &FleetShare| match share.streams {
            0 => f64::from(self.streams) * rate,
            streams => f64::from(streams) * rate,
        };
        let kept = |share: &FleetShare| share.tps / asked(share).max(f64::MIN_POSITIVE);
        let all: Vec<f64> = self.databases.iter().map(kept).collect();
        let middle = median(&all);
        let is_far = |kept: &&f64| (*kept / middle.max(1e-9) - 1.0).abs() > UNEQUAL;
        let far = all.iter().filter(is_far).count();
        (far > 0).then(|| {
            format!(
                "{far} of {} databases are more than a tenth off their median, {:.0} % of what was asked for",
                all.len(),
                100.0 * middle
            )
        })
    }

    /// Of what was asked for, 0 to 1 (a little more, where what was late was made up for).
    pub fn kept(&self) -> f64 {
        self.tps / self.offered_tps.max(f64::MIN_POSITIVE)
    }

    /// The worst 95th percentile of a kind of transaction over all databases, and whose it is.
    pub(crate) fn worst(&self, kind: &str) -> Option<(f64, &str)> {
        let of = |share: &'_ FleetShare| share.p95_us.get(kind).copied();
        let all = self.databases.iter();
        let all = all.filter_map(|share| Some((of(share)?, share.name.as_str())));
        all.max_by(|a, b| a.0.total_cmp(&b.0))
    }

    pub(crate) fn line(&self) -> String {
        let p95 = self.transactions.get(Kind::NewOrder.name());
        let p95 = p95.map_or(0.0, |kind| kind.latency_us.p95 / 1000.0);
        format!(
            "{} of {} TPS, new orders' p95 {p95:.1} ms",
            grouped(self.tps),
            grouped(self.offered_tps)
        )
    }
}

impl ResultFile for FleetResult {
    const KIND: ResultKind = ResultKind::Fleet;

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
        crate::report::short::of_fleet(self)
    }

    fn html(&self) -> Result<String, LabError> {
        super::html(self)
    }

    fn complaint(&self) -> Option<String> {
        self.what_is_wrong()
    }
}

impl FleetResult {
    pub(crate) fn new(title: &str, scenario: ScenarioNote, file: &FleetScenario) -> Self {
        let fleet = &file.fleet;
        Self {
            head: Head {
                scenario: Some(scenario),
                ..Head::new(ResultKind::Fleet, title)
            },
            engine: fleet.engine,
            warehouses: fleet.warehouses,
            sessions: fleet.sessions,
            rate: fleet.rate,
            seconds: file.measure.seconds,
            memory_pct: fleet.memory_pct,
            places: Vec::new(),
            databases: Vec::new(),
            clients: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// The published table that stands beside it; empty if none does.
    pub(crate) fn source(&self) -> &str {
        let scenario = self.head.scenario.as_ref();
        scenario.map_or("", |scenario| &scenario.source)
    }

    pub(crate) fn so_far(&self) -> Self {
        let mut result = self.clone();
        result.head.unfinished();
        result
    }

    /// What follows from the steps.
    pub(crate) fn sum_up(&mut self) {
        for database in &self.databases {
            if let Some(reason) = &database.memory_reason {
                let name = &database.name;
                self.head
                    .flags
                    .push(format!("{name}: its memory has no limit: {reason}"));
            }
        }
        for place in &self.places {
            if let Some(reason) = &place.full_reason {
                let (name, full) = (&place.name, place.full_pct);
                self.head
                    .flags
                    .push(format!("{name} is {full:.0} % full: {reason}"));
            }
        }
        let cores = self.head.machine.cores;
        for step in &self.steps {
            let what = format!("{} % of the streams, repeat {}", step.percent, step.repeat);
            let of_storage = self.memory_pct.and_then(|_| step.reads_from_memory());
            let flags = of_storage.into_iter().chain(step.shared_processors(cores));
            self.head
                .flags
                .extend(flags.map(|flag| format!("{what}: {flag}")));
            self.head.partial |= step.partial;
            let problems = step.problems.iter().map(|text| format!("{what}: {text}"));
            self.head.problems.extend(problems);
            if step.kept() < KEPT_UP {
                self.head.flags.push(format!(
                    "{what}: {:.0} % of what was asked for: the databases did not keep up, and latencies, counted from \
                     when a transaction was due, grow with time",
                    100.0 * step.kept()
                ));
            }
            let far = step.far_off(self.rate);
            self.head
                .flags
                .extend(far.map(|far| format!("{what}: {far}")));
            let errors: u64 = step.databases.iter().map(|share| share.errors).sum();
            if errors > 0 {
                self.head
                    .flags
                    .push(format!("{what}: {errors} transactions failed"));
            }
        }
    }

    /// What consistency conditions do not hold, and which checks failed; nothing if all is well.
    fn what_is_wrong(&self) -> Option<String> {
        let all = self.steps.iter().flat_map(|step| &step.complaints);
        let failed = self.head.failed_checks();
        let all: Vec<String> = all.cloned().chain(failed).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// As text: a line for each step.
    fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        if let Some(scenario) = &self.head.scenario {
            writeln!(out, "{}: {}", scenario.name, scenario.scaled)?;
        }
        writeln!(
            out,
            "| streams | TPS | of asked | CPU % | p95 ms, slowest kind | worst database | late p95 ms |"
        )?;
        writeln!(out, "|---:|---:|---:|---:|---|---|---:|")?;
        for step in &self.steps {
            let slowest = slowest(&step.transactions);
            let worst = slowest.and_then(|(kind, _)| step.worst(kind));
            let ms = |us: f64| us / 1000.0;
            writeln!(
                out,
                "| {} x {} | {} | {:.1} % | {} | {} | {} | {:.1} |",
                step.databases.len(),
                step.streams_told(),
                grouped(step.tps),
                100.0 * step.kept(),
                step.machine_cpu_pct
                    .map_or("-".into(), |pct| format!("{pct:.0}")),
                slowest.map_or("-".into(), |(kind, p95)| format!("{kind} {:.1}", ms(p95))),
                worst.map_or("-".into(), |(p95, name)| format!("{name} {:.1}", ms(p95))),
                step.lateness_us.map_or(0.0, |late| ms(late.p95)),
            )?;
        }
        self.head.write_end(out)
    }
}

/// The kind of transaction whose 95th percentile is longest.
pub(crate) fn slowest(of: &BTreeMap<String, KindResult>) -> Option<(&str, f64)> {
    let all = of.iter().filter(|(_, kind)| kind.count > 0);
    let all = all.map(|(name, kind)| (name.as_str(), kind.latency_us.p95));
    all.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// A run of two databases, one of which is behind.
#[cfg(test)]
pub(crate) fn sample() -> FleetResult {
    let kind = |p95: f64, count| KindResult {
        count,
        latency_us: LatencyUs {
            p95,
            ..LatencyUs::default()
        },
        ..KindResult::default()
    };
    let share = |name: &str, tps, p95| FleetShare {
        name: name.to_owned(),
        streams: 100,
        tps,
        p95_us: BTreeMap::from([("payment".to_owned(), p95)]),
        ..FleetShare::default()
    };
    let file = include_str!("../../../../scenarios/fleet.toml");
    let file = FleetScenario::parse(file).expect("sound");
    let note = ScenarioNote {
        name: "fleet".into(),
        about: String::new(),
        scale: 1.0,
        scaled: "as written".into(),
        source: PUBLISHED.into(),
        changed: vec!["--streams 5".into()],
    };
    let mut result = FleetResult::new("t", note, &file);
    result.places = vec![FleetPlace {
        name: "here".into(),
        node: "node-1".into(),
        volume: Some("tank/db".into()),
        full_pct: 12.0,
        ballast_bytes: 0,
        full_reason: Some("no mount point".into()),
    }];
    result.databases = vec![FleetDatabase {
        name: "db-1".into(),
        memory_reason: Some("no cgroup".into()),
        ..FleetDatabase::default()
    }];
    result.steps = vec![FleetStep {
        percent: 100,
        repeat: 1,
        streams: 100,
        offered_tps: 200.0,
        tps: 150.0,
        elapsed_s: 10.0,
        transactions: BTreeMap::from([("payment".to_owned(), kind(2000.0, 1500))]),
        lateness_us: Some(LatencyUs::default()),
        accesses: vec![Accesses {
            device: "8:0".into(),
            read_iops: 10.0,
            read_ms: Some(0.5),
            ..Accesses::default()
        }],
        volumes: vec![VolumeAccesses {
            accesses: Accesses {
                device: "tank/db".into(),
                read_iops: 20.0,
                ..Accesses::default()
            },
            daemon_cpu_s: Some(5.0),
            pool_full_pct: 71.0,
        }],
        nodes: vec![FleetNode {
            name: "node-1".into(),
            databases: 2,
            tps: 150.0,
            elapsed_s: 10.0,
            server_cpu_s: Some(15.0),
            daemon_cpu_s: Some(5.0),
        }],
        databases: vec![share("db-1", 100.0, 1000.0), share("db-2", 50.0, 3000.0)],
        ..FleetStep::default()
    }];
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_keep_up_is_told() {
        let mut result = sample();
        let step = &mut result.steps[0];
        // 20 s of two processors, of which 7 were the run's.
        (step.machine_cpu_pct, step.server_cpu_s) = (Some(100.0), Some(2.0));
        result.head.machine.cores = 2;
        result.sum_up();
        let said = result.head.flags.join("\n");
        for words in [
            "75 % of what was asked for",
            "2 of 2 databases",
            "db-1: its memory has no limit",
            "here is 12 % full: no mount point",
            "reads came from memory: 0.07 a transaction",
            "65 % of the processors' time was used by other",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let step = &result.steps[0];
        assert_eq!(step.worst("payment"), Some((3000.0, "db-2")));
        assert_eq!(slowest(&step.transactions), Some(("payment", 2000.0)));
        assert_eq!(step.nodes[0].processors(), Some(2.0));
        assert!(result.text().contains("db-2 3.0"), "{}", result.text());
        let page = super::super::html(&result).expect("a page");
        assert!(page.contains("tank/db") && page.contains("node-1"));
        assert!(page.contains("75.0 %") && page.contains("25,920") && page.contains("98.0 %"));
    }
}
