use std::path::Path;

use serde::{Deserialize, Serialize};

use super::seconds;
use crate::units::{parse_block, parse_bytes, short_bytes};
use crate::{
    Access, CellSpec, Conditioning, Configuration, Distribution, LabError, Matrix, Pattern, Pool,
    Procedure, SweepPlan,
};

/// A scenario file. `docs/lab.md` has an annotated one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// Short name.
    pub name: String,
    /// Title of the report; the name if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// What is asked, of what, and where it comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// A file in `published/` to stand beside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// How to measure.
    pub measure: MeasureSection,
    /// What is compared; the first is the 100 %.
    pub configuration: Vec<ConfigurationSection>,
    #[serde(default)]
    pub matrix: Vec<MatrixSection>,
    /// Name the depth from which the second configuration doubles the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubles: Option<DoublesSection>,
    /// What configurations must reach beside the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim: Vec<ClaimSection>,
    /// What the first configuration must reach; each is a cell of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub promise: Vec<PromiseSection>,
}

/// `[measure]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasureSection {
    /// Bytes of each device that are used; all of it if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Measured seconds of a repeat.
    pub seconds: f64,
    /// Seconds of load before; a quarter of `seconds`, at most 5, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<f64>,
    #[serde(default = "three")]
    pub repeat: u32,
    /// Every write durable before it counts.
    #[serde(default)]
    pub sync: bool,
    /// Where random accesses go: `uniform`, `zipf:0.99`, `hot:80/20`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub distribution: Distribution,
    /// Sizes of accesses and their shares in percent, instead of the cells' blocks: `["4k:60", "64k:40"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<String>,
    /// A flush after so many writes of a thread.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fsync: u32,
    /// Seconds between the end of an access and the next of its slot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub think: f64,
    /// Percent of accesses that give space back.
    #[serde(default, skip_serializing_if = "is_default")]
    pub trim_pct: u8,
    /// Processes that make the load, each with its part of the threads: agents, on as many machines as are named, or all
    /// on this one. One if absent: the run itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Nodes that serve the storage, if it is the user's own: what IOPS for 1 % of a node's processors are told by.
    #[serde(default = "one_node")]
    pub nodes: u32,
    /// Stamp and check every block.
    #[serde(default)]
    pub verify: bool,
    /// Open loop: accesses a second in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Fill with random data first; if absent, when anything is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<bool>,
    /// Limit in seconds for bringing writes to a steady state; twice `seconds` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<f64>,
    /// Seed of addresses and data.
    #[serde(default = "one")]
    pub seed: u64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn three() -> u32 {
    3
}

fn one() -> u64 {
    1
}

fn one_node() -> u32 {
    1
}

fn one_thread() -> u32 {
    1
}

fn usual_depth() -> u32 {
    32
}

/// `[[configuration]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigurationSection {
    /// Its name in tables.
    pub name: String,
    /// What is opened. `{dir}` is a new folder for this run's files, `{size}` the measured size
    /// in bytes, `{size/2}` half of it. Nothing if it is a pool.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack: String,
    /// A volume of a pool of its own, of new drives in the run's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    /// The same, served on loopback and reached over NVMe/TCP.
    #[serde(default)]
    pub remote: bool,
    /// What the published table calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// Where its random accesses go, instead of `[measure]`'s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
}

/// `[[matrix]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixSection {
    /// What the cells stand for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Kind and order.
    pub pattern: Pattern,
    /// Share of reads, for mixed patterns.
    #[serde(default)]
    pub read_pct: u8,
    /// Block sizes.
    pub block: Vec<String>,
    /// Thread counts.
    pub threads: Vec<u32>,
    pub depth: Vec<u32>,
    /// Measured seconds of a repeat, instead of `[measure]`'s; so with all that follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Seconds of load before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u32>,
    /// Every write durable before it counts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sync: bool,
    /// Open loop: accesses a second in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// What is written before, instead of settling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precondition: Option<ConditioningSection>,
}

/// `precondition` of a `[[matrix]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditioningSection {
    /// Kind and order.
    pub pattern: Pattern,
    /// Block size.
    pub block: String,
    /// Load threads.
    #[serde(default = "one_thread")]
    pub threads: u32,
    #[serde(default = "usual_depth")]
    pub depth: u32,
    /// For so long, or at most so long.
    pub seconds: f64,
    /// It ends when throughput is steady.
    #[serde(default, skip_serializing_if = "is_default")]
    pub until_steady: bool,
}

/// `[doubles]`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DoublesSection {
    /// From this ratio on it counts as doubling.
    pub at_least: f64,
}

/// `[[claim]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSection {
    /// Of which configuration.
    pub configuration: String,
    /// Of cells of this role only; of all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    pub figure: ClaimedFigure,
    /// At least so much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// At most so much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

/// What is claimed of a configuration, in every cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimedFigure {
    /// Its accesses a second, to the first configuration's.
    Iops,
    /// The 95th percentile of its writes, to the first configuration's.
    WriteP95,
    /// How many accesses took longer than a stall does.
    Stalled,
}

/// `[[promise]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromiseSection {
    /// Kind and order.
    pub pattern: Pattern,
    /// Share of reads, for mixed patterns.
    #[serde(default)]
    pub read_pct: u8,
    /// Block size.
    pub block: String,
    pub threads: u32,
    pub depth: u32,
    /// At least so many accesses a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<f64>,
    /// At least so many MiB a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mib_s: Option<f64>,
    /// A mean latency of at most so many microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<f64>,
    /// A 99th percentile of at most so many microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// How far a figure may miss, in percent.
    #[serde(default)]
    pub tolerance_pct: f64,
}

impl PromiseSection {
    /// The cell that it speaks of.
    pub fn cell(&self) -> Result<CellSpec, LabError> {
        Ok(CellSpec {
            pattern: self.pattern,
            read_pct: self.pattern.read_pct(self.read_pct),
            block_bytes: parse_block(&self.block)?,
            threads: self.threads,
            depth: self.depth,
            sync: false,
        })
    }
}

impl ScenarioFile {
    /// Reads a scenario's text.
    ///
    /// # Errors
    /// A usage error that names the line.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        super::read(text)
    }

    pub fn text(&self) -> Result<String, LabError> {
        toml::to_string_pretty(self).map_err(|error| LabError::caused("scenario", error))
    }

    /// The title, or the name.
    pub fn heading(&self) -> String {
        if self.title.is_empty() {
            self.name.clone()
        } else {
            self.title.clone()
        }
    }

    /// The plan at full scale. Placeholders in stacks are left as they are.
    pub fn plan(&self) -> Result<SweepPlan, LabError> {
        let mut configurations = Vec::new();
        for (index, section) in self.configuration.iter().enumerate() {
            configurations.push(Configuration {
                name: section.name.clone(),
                spec: section.spec(index)?,
                remote: section.remote,
                pool: section.own_pool(),
                distribution: section.distribution,
            });
        }
        if self.measure.size.is_none() && configurations.iter().any(|c| c.pool.is_some()) {
            return Err(LabError::usage("scenario: a pool needs [measure] size"));
        }
        let mut matrices = self
            .matrix
            .iter()
            .map(matrix)
            .collect::<Result<Vec<_>, _>>()?;
        self.check_claims()?;
        for promise in &self.promise {
            let cell = promise.cell()?;
            matrices.push(Matrix {
                role: "promised".to_owned(),
                pattern: cell.pattern,
                read_pct: cell.read_pct,
                blocks: vec![cell.block_bytes],
                threads: vec![cell.threads],
                depths: vec![cell.depth],
                procedure: Procedure::default(),
            });
        }
        let measure = &self.measure;
        let mut plan = SweepPlan::new(configurations, matrices);
        plan.set_measure(seconds("seconds", measure.seconds)?);
        if let Some(warmup) = measure.warmup {
            plan.warmup = seconds("warmup", warmup)?;
        }
        if let Some(settle) = measure.settle {
            plan.precondition.settle_limit = seconds("settle", settle)?;
        }
        plan.precondition.fill = measure.fill.unwrap_or(plan.precondition.fill);
        plan.repeats = measure.repeat;
        plan.size = measure.size.as_deref().map(parse_bytes).transpose()?;
        plan.sync = measure.sync;
        let sizes = measure.sizes.iter().map(|text| text.parse());
        plan.access = Access {
            distribution: measure.distribution,
            flush_every: measure.fsync,
            think: seconds("think", measure.think)?,
            sizes: sizes.collect::<Result<_, _>>()?,
            trim_pct: measure.trim_pct,
        };
        plan.nodes = measure.nodes;
        plan.verify = measure.verify;
        plan.rate = measure.rate;
        plan.seed = measure.seed;
        plan.check()?;
        Ok(plan)
    }

    /// Refuses claims of what is not measured.
    fn check_claims(&self) -> Result<(), LabError> {
        for claim in &self.claim {
            let refused = |what: String| Err(LabError::usage(format!("scenario: claim: {what}")));
            let known = self.configuration.iter().skip(1);
            let is_one = claim.figure == ClaimedFigure::Stalled;
            let mut known = known.chain(self.configuration.first().filter(|_| is_one));
            let name = &claim.configuration;
            if !known.any(|of| of.name == *name) {
                return refused(format!(
                    "{name:?} is no configuration that could stand beside the first"
                ));
            }
            let mut roles = self.matrix.iter().map(|matrix| &matrix.role);
            if let Some(role) = claim
                .role
                .as_ref()
                .filter(|&of| !roles.any(|role| role == of))
            {
                return refused(format!("{role:?} is the role of no matrix"));
            }
        }
        Ok(())
    }

    /// The scenario file that repeats `plan`.
    pub fn of(plan: &SweepPlan) -> Self {
        Self {
            name: "sweep".to_owned(),
            title: String::new(),
            about: String::new(),
            published: None,
            measure: MeasureSection {
                size: plan.size.map(|size| size.to_string()),
                seconds: plan.measure.as_secs_f64(),
                warmup: Some(plan.warmup.as_secs_f64()),
                repeat: plan.repeats,
                sync: plan.sync,
                distribution: plan.access.distribution,
                sizes: plan.access.sizes.iter().map(ToString::to_string).collect(),
                fsync: plan.access.flush_every,
                think: plan.access.think.as_secs_f64(),
                trim_pct: plan.access.trim_pct,
                clients: None,
                nodes: plan.nodes,
                verify: plan.verify,
                rate: plan.rate,
                fill: Some(plan.precondition.fill),
                settle: Some(plan.precondition.settle_limit.as_secs_f64()),
                seed: plan.seed,
            },
            configuration: plan
                .configurations
                .iter()
                .map(|c| ConfigurationSection {
                    name: c.name.clone(),
                    stack: c.spec.clone(),
                    pool: None,
                    remote: c.remote,
                    published: None,
                    distribution: c.distribution,
                })
                .collect(),
            matrix: plan.matrices.iter().map(section).collect(),
            doubles: None,
            claim: Vec::new(),
            promise: Vec::new(),
        }
    }
}

impl ConfigurationSection {
    /// The pool that is made for it: none where a stack is named instead, as with `--set configuration.NAME.stack=URL`.
    fn own_pool(&self) -> Option<Pool> {
        self.pool.clone().filter(|_| self.stack.is_empty())
    }

    /// What is opened; for a pool, the folder that it is made in.
    fn spec(&self, index: usize) -> Result<String, LabError> {
        let name = &self.name;
        match (&self.pool, &*self.stack, self.remote) {
            (None, "", _) => Err(LabError::usage(format!(
                "scenario: configuration {name}: needs a stack or a pool"
            ))),
            (Some(_), "", false) => Ok(format!("{{dir}}/pool-{index}")),
            (Some(_), "", true) => Err(LabError::usage(format!(
                "scenario: configuration {name}: a pool is reached over NVMe/TCP in any case"
            ))),
            (_, stack, _) => Ok(stack.to_owned()),
        }
    }
}

fn matrix(section: &MatrixSection) -> Result<Matrix, LabError> {
    let blocks = section.block.iter().map(|block| parse_block(block));
    Ok(Matrix {
        role: section.role.clone(),
        pattern: section.pattern,
        read_pct: section.read_pct,
        blocks: blocks.collect::<Result<_, _>>()?,
        threads: section.threads.clone(),
        depths: section.depth.clone(),
        procedure: section.procedure()?,
    })
}

impl MatrixSection {
    /// What it has of its own.
    fn procedure(&self) -> Result<Procedure, LabError> {
        let time = |name, of: Option<f64>| of.map(|of| seconds(name, of)).transpose();
        let before = self.precondition.as_ref();
        Ok(Procedure {
            measure: time("matrix: seconds", self.seconds)?,
            warmup: time("matrix: warmup", self.warmup)?,
            repeats: self.repeat,
            sync: self.sync,
            rate: self.rate,
            precondition: before.map(ConditioningSection::read).transpose()?,
        })
    }
}

impl ConditioningSection {
    fn read(&self) -> Result<Conditioning, LabError> {
        Ok(Conditioning {
            pattern: self.pattern,
            block_bytes: parse_block(&self.block)?,
            threads: self.threads,
            depth: self.depth,
            time: seconds("precondition: seconds", self.seconds)?,
            until_steady: self.until_steady,
        })
    }

    fn of(before: &Conditioning) -> Self {
        Self {
            pattern: before.pattern,
            block: short_bytes(u64::from(before.block_bytes)),
            threads: before.threads,
            depth: before.depth,
            seconds: before.time.as_secs_f64(),
            until_steady: before.until_steady,
        }
    }
}

fn section(matrix: &Matrix) -> MatrixSection {
    let own = &matrix.procedure;
    MatrixSection {
        role: matrix.role.clone(),
        pattern: matrix.pattern,
        read_pct: matrix.read_pct,
        block: matrix
            .blocks
            .iter()
            .map(|&block| short_bytes(u64::from(block)))
            .collect(),
        threads: matrix.threads.clone(),
        depth: matrix.depths.clone(),
        seconds: own.measure.map(|time| time.as_secs_f64()),
        warmup: own.warmup.map(|time| time.as_secs_f64()),
        repeat: own.repeats,
        sync: own.sync,
        rate: own.rate,
        precondition: own.precondition.as_ref().map(ConditioningSection::of),
    }
}

/// Fills in `{dir}`, `{size}` and `{size/N}`; parts are whole MiB.
pub(super) fn fill_in(
    stack: &str,
    dir: Option<&Path>,
    size: Option<u64>,
) -> Result<String, LabError> {
    let mut out = String::new();
    let mut rest = stack;
    while let Some((before, after)) = rest.split_once('{') {
        let unknown = || LabError::usage(format!("stack {stack:?}: unknown placeholder"));
        let (word, after) = after.split_once('}').ok_or_else(unknown)?;
        out.push_str(before);
        match (word.split_once('/'), word) {
            (_, "dir") => out.push_str(&dir.ok_or_else(unknown)?.display().to_string()),
            (_, "size") => out.push_str(&size.ok_or_else(unknown)?.to_string()),
            (Some(("size", parts)), _) => {
                let parts: u64 = parts.parse().ok().filter(|&n| n > 0).ok_or_else(unknown)?;
                let mib = size.ok_or_else(unknown)?.div_ceil(parts).div_ceil(1 << 20);
                out.push_str(&(mib << 20).to_string());
            }
            _ => return Err(unknown()),
        }
        rest = after;
    }
    Ok(out + rest)
}
