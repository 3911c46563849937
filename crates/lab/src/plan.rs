//! What a run measures: configurations, cells, and how.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::access::{Access, Distribution};
use crate::procedure::{LONGEST, Procedure};
use crate::units::short_bytes;

/// The order and kind of a cell's accesses. The names are fio's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Reads of random blocks.
    RandRead,
    /// Writes of random blocks.
    RandWrite,
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Reads and writes of random blocks, mixed.
    RandRw,
    /// A sequential walk that reads or writes at each step.
    Rw,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Pattern; 6] = [
        Self::RandRead,
        Self::RandWrite,
        Self::Read,
        Self::Write,
        Self::RandRw,
        Self::Rw,
    ];

    /// Its name on the command line and in `result.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRw => "randrw",
            Self::Rw => "rw",
        }
    }

    /// Whether blocks are taken in random order.
    pub const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }

    /// Whether it mixes reads and writes, so that a read percentage means something.
    pub const fn is_mixed(self) -> bool {
        matches!(self, Self::RandRw | Self::Rw)
    }

    /// The read percentage that counts: fixed for the pure patterns, `asked` for the mixed ones.
    pub const fn read_pct(self, asked: u8) -> u8 {
        match self {
            Self::RandRead | Self::Read => 100,
            Self::RandWrite | Self::Write => 0,
            Self::RandRw | Self::Rw => asked,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Pattern {
    type Err = LabError;
    fn from_str(text: &str) -> Result<Self, LabError> {
        Self::ALL
            .into_iter()
            .find(|pattern| pattern.name() == text)
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|pattern| pattern.name()).collect();
                LabError::usage(format!(
                    "pattern {text:?}: must be one of {}",
                    names.join(", ")
                ))
            })
    }
}

/// One point of a matrix: what is asked of a device. Also the key by which runs and published
/// figures are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CellSpec {
    /// Kind and order of accesses.
    pub pattern: Pattern,
    /// Share of reads, 0 to 100.
    pub read_pct: u8,
    /// Bytes of one access.
    pub block_bytes: u32,
    /// Load threads.
    pub threads: u32,
    /// Accesses in flight for each thread.
    pub depth: u32,
    /// Every write is durable before it counts, whatever the plan says.
    #[serde(default)]
    pub sync: bool,
}

impl CellSpec {
    /// Whether any of its accesses writes.
    pub const fn writes(&self) -> bool {
        self.read_pct < 100
    }

    /// A short name without blanks: `randrw60-8k-t4-d16`.
    pub fn slug(&self) -> String {
        let mix = if self.pattern.is_mixed() {
            self.read_pct.to_string()
        } else {
            String::new()
        };
        let block = short_bytes(u64::from(self.block_bytes));
        let sync = if self.sync { "-sync" } else { "" };
        format!(
            "{}{mix}-{block}-t{}-d{}{sync}",
            self.pattern, self.threads, self.depth
        )
    }
}

/// Cells with a common pattern: every block size with every thread count and depth.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// What the cells stand for in the report (`mdf`, `ldf`); may be empty.
    pub role: String,
    /// Kind and order of accesses.
    pub pattern: Pattern,
    /// Share of reads for the mixed patterns.
    pub read_pct: u8,
    /// Bytes of one access.
    pub blocks: Vec<u32>,
    /// Load threads.
    pub threads: Vec<u32>,
    /// Accesses in flight for each thread.
    pub depths: Vec<u32>,
    /// How they are measured, where that is not as the plan has it.
    pub procedure: Procedure,
}

impl Matrix {
    /// Its cells: block by block, threads by threads, depth by depth.
    pub fn cells(&self) -> impl Iterator<Item = CellSpec> + '_ {
        let point = |block_bytes, threads, depth| CellSpec {
            pattern: self.pattern,
            read_pct: self.pattern.read_pct(self.read_pct),
            block_bytes,
            threads,
            depth,
            sync: self.procedure.sync,
        };
        self.blocks.iter().flat_map(move |&block| {
            self.threads.iter().flat_map(move |&threads| {
                self.depths
                    .iter()
                    .map(move |&depth| point(block, threads, depth))
            })
        })
    }
}

/// One of the things compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Its name in tables.
    pub name: String,
    /// What [`Stacks`](crate::Stacks) opens.
    pub spec: String,
    /// Served on loopback by [`Services`](crate::Services) and reached over the network.
    pub remote: bool,
    /// A volume of a pool of its own, made in the folder that `spec` names and reached over the network.
    pub pool: Option<Pool>,
    /// Where its random accesses go, if not where the plan has them go.
    pub distribution: Option<Distribution>,
}

/// What a pool is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// The volume's layout: `mirror:2`, `parity:4+1`.
    pub layout: String,
    /// Drives that hold it.
    pub drives: u32,
    /// A media model that they keep time as: `ssd`, `hdd:model=10k`; as quick as the disk below without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<String>,
    /// Drives of a faster class besides, which have logs and map: as quick as the disk below.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fast: u32,
    /// How full the drives are with the volume, in percent; they have room to spare without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_pct: Option<u8>,
    /// Where what is small and hot of the volume lies: `mirror:2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<String>,
    /// Percent of the volume that may be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_share: Option<u8>,
    /// Nodes that have such a pool each, and a copy of the volume in it; one without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// At which of several nodes the load comes in; at the owner without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<ClientPlace>,
}

/// A node of a volume with copies on several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientPlace {
    /// The one that owns the volume.
    #[default]
    Owner,
    /// One that forwards to the owner.
    Other,
}

/// Most nodes that have a copy.
const MOST_COPIES: u32 = 3;

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What logs and map of a pool, and slots written elsewhere before old ones are free, take on each drive besides its
/// share of the volume.
const SPARE_BYTES: u64 = 512 << 20;
/// The share of a volume that may be hot, where none is named.
const USUAL_HOT_PCT: u8 = 20;
/// A drive that is to be full is no smaller than this: logs and map need their part of it.
const LEAST_DRIVE: u64 = 1 << 30;

impl Pool {
    /// Refuses what cannot be.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.full_pct {
            Some(pct) if !(1..=90).contains(&pct) => {
                Err(format!("full_pct = {pct}: must be 1 to 90"))
            }
            Some(_) if self.usable_pct().is_none() => Err(format!(
                "full_pct: how much {} takes is not known",
                self.layout
            )),
            _ if self.hot_share.is_some() && self.hot.is_none() => {
                Err("hot_share: of what? say hot = \"mirror:2\"".to_owned())
            }
            _ if !(1..=MOST_COPIES).contains(&self.nodes()) => Err(format!(
                "nodes = {}: must be 1 to {MOST_COPIES}",
                self.nodes()
            )),
            _ if self.place.is_some() && self.nodes() == 1 => {
                Err("place: at which of its nodes? say nodes = 2".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// How many nodes have a copy of the volume.
    pub fn nodes(&self) -> u32 {
        self.nodes.unwrap_or(1)
    }

    /// Drives that hold it, of all nodes.
    fn all_drives(&self) -> f64 {
        f64::from(self.drives.max(1)) * f64::from(self.nodes())
    }

    /// Bytes of each drive that holds the volume.
    pub fn drive_bytes(&self, volume: u64) -> u64 {
        match self.full_pct.zip(self.usable_pct()) {
            Some((full, usable)) => {
                let all = volume as f64 * 100.0 / usable * 100.0 / f64::from(full);
                let each = all / self.all_drives() / f64::from(1 << 20);
                ((each.round() as u64) << 20).max(LEAST_DRIVE)
            }
            // Room for all of it, whatever the layout makes of it.
            None => volume + volume / 2 + SPARE_BYTES,
        }
    }

    /// In words, with a volume of so many bytes.
    pub(crate) fn words(&self, volume: u64) -> String {
        let Self { layout, drives, .. } = self;
        let usable = self.usable_pct();
        let full = self.full_pct.zip(usable).map(|(asked, usable)| {
            let all = self.drive_bytes(volume) as f64 * self.all_drives();
            let full = 100.0 * volume as f64 * 100.0 / usable / all;
            let least = LEAST_DRIVE >> 30;
            match full + 1.0 < f64::from(asked) {
                true => format!(
                    ", {full:.0} % full instead of {asked}, since a drive has at least {least} GiB"
                ),
                false => format!(", {full:.0} % full"),
            }
        });
        let media = self
            .media
            .as_ref()
            .map(|media| format!(" that keep time as {media}"));
        let hot = self.hot.as_ref().map(|hot| {
            let share = self
                .hot_share
                .map_or(String::new(), |pct| format!(" for {pct} % of it"));
            format!(", hot {hot}{share}")
        });
        let copies = (self.nodes() > 1).then(|| {
            let at = match self.place.unwrap_or_default() {
                ClientPlace::Owner => "the owner",
                ClientPlace::Other => "another node, which forwards to the owner",
            };
            let nodes = self.nodes();
            format!(" of each of {nodes} nodes, a copy on each, clients at {at}")
        });
        let parts = [
            Some(format!("pool: {layout} on {drives} drives")),
            copies,
            media,
            (self.fast > 0).then(|| format!(", logs and map on {} faster ones", self.fast)),
            usable.map(|pct| format!(", {pct:.0} % of their bytes are data by the layout")),
            hot,
            full,
        ];
        parts.into_iter().flatten().collect()
    }

    /// The part of the volume that may lie where what is hot does, 0 to 1.
    pub fn hot_part(&self) -> f64 {
        f64::from(self.hot_share.unwrap_or(USUAL_HOT_PCT)) / 100.0
    }

    /// Percent of all nodes' drives' bytes that data may take, what is hot in its own layout; none for a layout that is not
    /// known here.
    pub fn usable_pct(&self) -> Option<f64> {
        let cold = bytes_a_byte(&self.layout)?;
        let all = match &self.hot {
            Some(hot) => {
                let share = self.hot_part();
                share * bytes_a_byte(hot.split('@').next()?)? + (1.0 - share) * cold
            }
            None => cold,
        };
        Some(100.0 / all / f64::from(self.nodes()))
    }
}

/// Bytes of drives for a byte of data in a layout.
fn bytes_a_byte(layout: &str) -> Option<f64> {
    let (kind, shape) = layout.split_once(':')?;
    let number = |text: &str| text.parse::<f64>().ok().filter(|&n| n > 0.0);
    match (kind, shape.split_once('+')) {
        ("mirror", None) => number(shape),
        ("parity", Some((data, parity))) => {
            let data = number(data)?;
            Some((data + number(parity)?) / data)
        }
        _ => None,
    }
}

impl Configuration {
    /// Nodes that serve it: those of its own pool, or as many as the plan has for storage of the user's own.
    pub(crate) fn nodes(&self, plan: &SweepPlan) -> u32 {
        let own = self.pool.as_ref().and_then(|pool| pool.nodes);
        own.unwrap_or(plan.nodes)
    }

    /// Machines whose processors serve it. Nodes of a pool that the lab makes are processes of one machine, whose
    /// processor time has the work of all of them.
    pub(crate) fn machines(&self, plan: &SweepPlan) -> u32 {
        match self.pool {
            Some(_) => 1,
            None => plan.nodes,
        }
    }

    /// A configuration for what `--on` names: its name is the spec.
    pub fn on(spec: impl Into<String>) -> Self {
        let spec = spec.into();
        Self {
            name: spec.clone(),
            spec,
            remote: false,
            pool: None,
            distribution: None,
        }
    }

    /// The same with a label for a name, `a` for the first and so on: a URL on each line hides the figures.
    pub fn labelled(position: usize, spec: impl Into<String>) -> Self {
        let letter = u8::try_from(position).ok().filter(|&at| at < 26);
        Self {
            name: match letter {
                Some(at) => char::from(b'a' + at).to_string(),
                None => format!("d{}", position + 1),
            },
            ..Self::on(spec)
        }
    }
}

/// Whether a configuration's name is a label that says nothing of what it is.
pub(crate) fn is_label(name: &str) -> bool {
    matches!(name.as_bytes(), [b'a'..=b'z'])
}

/// How a device is brought into the state in which it is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precondition {
    /// Fill the measured range with random data first (implied by verify mode).
    pub fill: bool,
    /// Before the first write cell of a kind (random or sequential, block size): write as that
    /// cell does until throughput is steady, at most this long. Zero: do not.
    pub settle_limit: Duration,
}

/// A sweep: what [`run_sweep`](crate::run_sweep) carries out.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepPlan {
    /// What is compared; the first one is the 100 % of the tables.
    pub configurations: Vec<Configuration>,
    pub matrices: Vec<Matrix>,
    /// Measured time of one repeat.
    pub measure: Duration,
    /// Load before each measurement that is not counted.
    pub warmup: Duration,
    /// How often each cell is measured on each configuration, interleaved A, B, A, B ….
    pub repeats: u32,
    /// Bytes of each device that are used; `None`: all of it.
    pub size: Option<u64>,
    /// Every write is durable before it counts (NVMe's FUA).
    pub sync: bool,
    /// Where accesses go, of which sizes, and what comes between them.
    pub access: Access,
    /// Stamp and check every block.
    pub verify: bool,
    /// Open loop: accesses a second in total, spread over the threads. `None`: closed loop.
    pub rate: Option<f64>,
    /// Overwrite data that is found on a device.
    pub destroy_data: bool,
    /// Fill and settle.
    pub precondition: Precondition,
    /// Pin each load thread to a processor.
    pub pin: bool,
    /// How many nodes serve the storage, for IOPS per node and 1 % CPU.
    pub nodes: u32,
    /// Seed of addresses and data.
    pub seed: u64,
}

impl SweepPlan {
    /// A plan with the defaults: 2 s after 0.5 s warm-up, 3 repeats, closed loop, fill and settle
    /// for at most 4 s if anything is written.
    pub fn new(configurations: Vec<Configuration>, matrices: Vec<Matrix>) -> Self {
        let mut plan = Self {
            configurations,
            matrices,
            measure: Duration::ZERO,
            warmup: Duration::ZERO,
            repeats: 3,
            size: None,
            sync: false,
            access: Access::default(),
            verify: false,
            rate: None,
            destroy_data: false,
            precondition: Precondition {
                fill: false,
                settle_limit: Duration::ZERO,
            },
            pin: true,
            nodes: 1,
            seed: 1,
        };
        plan.precondition.fill = plan.cells().iter().any(CellSpec::writes);
        plan.set_measure(Duration::from_secs(2));
        plan
    }

    /// Sets the measured time, and the warm-up (a quarter of it, at most 5 s) and the limit for
    /// settling (twice, at most 10 min) that go with it.
    pub fn set_measure(&mut self, measure: Duration) {
        self.measure = measure;
        self.warmup = Self::usual_warmup(measure);
        self.precondition.settle_limit = measure.saturating_mul(2).min(Duration::from_secs(600));
    }

    /// A quarter of the measured time, at most 5 s.
    pub(crate) fn usual_warmup(measure: Duration) -> Duration {
        (measure / 4).min(Duration::from_secs(5))
    }

    /// All cells, in order, without duplicates.
    pub fn cells(&self) -> Vec<CellSpec> {
        let mut cells = Vec::new();
        for cell in self.matrices.iter().flat_map(Matrix::cells) {
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        cells
    }

    /// Whether a device's content changes.
    pub fn writes(&self) -> bool {
        self.verify
            || self.precondition.fill
            || self.access.trim_pct > 0
            || self.cells().iter().any(CellSpec::writes)
            || self.conditionings().next().is_some()
    }

    /// Refuses a plan that makes no sense, naming the part.
    pub fn check(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::usage(why));
        if self.configurations.is_empty() {
            return refuse("nothing to measure: name at least one device with --on".into());
        }
        for (index, one) in self.configurations.iter().enumerate() {
            if self.configurations[..index]
                .iter()
                .any(|other| other.name == one.name)
            {
                return refuse(format!("configuration {} is named twice", one.name));
            }
        }
        let cells = self.cells();
        if cells.is_empty() {
            return refuse("no cells: pattern, block, threads and depth need a value each".into());
        }
        if self.measure < Duration::from_millis(10) || self.measure > Duration::from_secs(86_400) {
            return refuse("seconds: must be between 0.01 and 86400".into());
        }
        let settle = self.precondition.settle_limit;
        for (what, time) in [("warmup", self.warmup), ("settle", settle)] {
            if time > LONGEST {
                return refuse(format!("{what}: must be at most 86400"));
            }
        }
        if !(1..=1000).contains(&self.repeats) {
            return refuse("repeat: must be between 1 and 1000".into());
        }
        if self.nodes == 0 {
            return refuse("nodes: must be at least 1".into());
        }
        if self.rate.is_some_and(|rate| !(1.0..=1e9).contains(&rate)) {
            return refuse("rate: must be between 1 and 1e9 accesses a second".into());
        }
        self.access.check()?;
        for of in &self.configurations {
            let checked = of.pool.as_ref().map_or(Ok(()), Pool::check);
            checked.map_err(|why| LabError::usage(format!("configuration {}: {why}", of.name)))?;
        }
        if self.verify && self.access.trim_pct > 0 {
            return refuse("trim: not with verify, which knows what a block must hold".into());
        }
        let skews = |of: Distribution| of != Distribution::Uniform;
        // What a configuration has of its own is of its random accesses.
        let is_meant = cells.iter().any(|cell| cell.pattern.is_random());
        let mut own = self.configurations.iter().filter_map(|of| of.distribution);
        let in_vain = skews(self.access.distribution) || (!is_meant && own.any(skews));
        if let Some(cell) = cells.iter().find(|cell| !cell.pattern.is_random()) {
            let what = match (in_vain, self.access.sizes.is_empty()) {
                (true, _) => Some("distribution"),
                (_, false) => Some("sizes"),
                _ => None,
            };
            if let Some(what) = what {
                return refuse(format!("{what}: {} is sequential", cell.slug()));
            }
        }
        let procedures = self.matrices.iter().map(|matrix| &matrix.procedure);
        procedures.clone().try_for_each(Procedure::check)?;
        cells
            .into_iter()
            .chain(self.conditionings())
            .try_for_each(|cell| check_cell(&cell))
    }
}

fn check_cell(cell: &CellSpec) -> Result<(), LabError> {
    let refuse = |why: &str| Err(LabError::usage(format!("{}: {why}", cell.slug())));
    match cell {
        c if c.read_pct > 100 => refuse("read percentage must be 0 to 100"),
        c if !(1..=1024).contains(&c.threads) => refuse("threads must be 1 to 1024"),
        c if !(1..=65_536).contains(&c.depth) => refuse("depth must be 1 to 65536"),
        c if !(512..=2 << 20).contains(&c.block_bytes) || c.block_bytes % 512 != 0 => {
            refuse("block must be a multiple of 512 bytes, at most 2 MiB")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(pattern: Pattern) -> Matrix {
        Matrix {
            role: String::new(),
            pattern,
            read_pct: 60,
            blocks: vec![8192, 65536],
            threads: vec![1, 2],
            depths: vec![1, 8],
            procedure: Procedure::default(),
        }
    }

    #[test]
    fn a_matrix_is_the_product_of_its_axes() {
        let cells: Vec<_> = matrix(Pattern::RandRw).cells().collect();
        assert_eq!(cells.len(), 8);
        assert_eq!(cells[1].slug(), "randrw60-8k-t1-d8");
        assert_eq!(cells[7].slug(), "randrw60-64k-t2-d8");
        assert!(
            matrix(Pattern::RandRead)
                .cells()
                .all(|c| c.read_pct == 100 && !c.writes())
        );
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let on = || vec![Configuration::on("a")];
        let good = SweepPlan::new(on(), vec![matrix(Pattern::Read)]);
        assert_eq!(good.check(), Ok(()));
        assert!(!good.writes());
        let text = |plan: &SweepPlan| plan.check().err().map(|e| (e.exit_code(), e.to_string()));
        let mut plan = good.clone();
        plan.configurations.push(Configuration::on("a"));
        assert_eq!(
            text(&plan),
            Some((2, "configuration a is named twice".into()))
        );
        let mut plan = good.clone();
        plan.matrices[0].depths = vec![0];
        assert!(text(&plan).is_some_and(|(_, t)| t.contains("depth must be")));
        let mut plan = good.clone();
        plan.rate = Some(f64::NAN);
        assert!(text(&plan).is_some_and(|(_, t)| t.starts_with("rate")));
        let mut plan = good.clone();
        plan.set_measure(Duration::MAX);
        assert!(text(&plan).is_some_and(|(_, t)| t.starts_with("seconds: must be between")));
        let mut plan = good.clone();
        plan.warmup = Duration::MAX;
        assert!(text(&plan).is_some_and(|(_, t)| t.starts_with("warmup")));
        let mut plan = good.clone();
        plan.precondition.settle_limit = Duration::MAX;
        assert!(text(&plan).is_some_and(|(_, t)| t.starts_with("settle")));
        let mut plan = good;
        plan.matrices.clear();
        assert!(plan.check().is_err());
    }
}
