use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use ashlar_block::Geometry;
use serde::{Deserialize, Serialize};

use super::generator::Generator;
use super::pass::{BUFFER_BYTES, DEPTH, Pass};
use crate::journal::Journal;
use crate::result::{Capacity, VerifyResult};
use crate::units::human_bytes;
use crate::verify::{Model, Tally};
use crate::{
    Access, CellSpec, Conditioning, Configuration, LabError, OpenOptions, PoolStack,
    PrepareOptions, Prepared, Progress, Service, Services, Stacks, SweepPlan,
};

/// A configuration that is ready to be measured.
pub(super) struct Setup {
    pub(super) name: String,
    /// What to open: the configuration's spec, or where it is served.
    pub(super) spec: String,
    pub(super) description: String,
    pub(super) capacity: Option<Capacity>,
    pub(super) file_system: Option<String>,
    pub(super) remote: bool,
    /// Nodes that serve it.
    pub(super) nodes: u32,
    /// Machines that they are on.
    pub(super) machines: u32,
    /// Made for this run, or known to be.
    pub(super) fresh: bool,
    /// Bytes used.
    pub(super) bytes: u64,
    /// What its accesses are like.
    pub(super) access: Access,
    pub(super) model: Option<Arc<Model>>,
    pub(super) tally: Tally,
    /// Kinds of write cells (random, block size) whose writes have had their time to settle in this process.
    pub(super) settled: HashSet<(bool, u32)>,
    /// Whether they did, in this process or in one that the run began in.
    pub(super) told_settled: HashMap<(bool, u32), bool>,
    /// What was written last to bring it into a state.
    pub(super) conditioned: Option<Conditioning>,
    geometry: Geometry,
    read_back: Option<VerifyResult>,
}

impl Setup {
    /// Looks at a configuration, and starts its server if it is remote; the server stops when
    /// dropped.
    pub(super) fn prepare(
        configuration: &Configuration,
        plan: &SweepPlan,
        (generator, services): (&Generator<'_>, &dyn Services),
        journal: &Journal,
    ) -> Result<(Self, Option<Box<dyn Service>>), LabError> {
        let Configuration {
            name, spec, remote, ..
        } = configuration;
        // A run that goes on finds what it has filled itself, and a new pool holds nothing.
        let is_own = journal.has_filled(spec) || configuration.pool.is_some();
        let options = PrepareOptions {
            size: plan.size,
            writes: plan.writes(),
            destroy_data: plan.destroy_data || is_own,
        };
        let (mut opened, mut service) = (spec.clone(), None);
        let mut prepared = match &configuration.pool {
            Some(pool) => {
                let running = services.pool(&PoolStack {
                    pool: pool.clone(),
                    bytes: plan.size.unwrap_or_default(),
                    dir: PathBuf::from(spec),
                })?;
                opened = running.url().to_owned();
                service = Some(running);
                let reached = generator.prepare(&opened, &options)?;
                Prepared {
                    description: format!(
                        "{}\n{}",
                        reached.description,
                        pool.words(plan.size.unwrap_or_default())
                    ),
                    ..reached
                }
            }
            // It is opened here, by the server.
            None if *remote => generator.stacks().prepare(spec, &options)?,
            None => generator.prepare(spec, &options)?,
        };
        if options.writes && !options.destroy_data {
            refuse_to_destroy(spec, prepared.holds.as_deref())?;
        }
        if *remote {
            let running = services.serve(spec, &options)?;
            opened = running.url().to_owned();
            service = Some(running);
            let reached = generator.prepare(&opened, &options)?;
            prepared.geometry = reached.geometry;
            prepared.description = format!("{}\n{}", reached.description, prepared.description);
        }
        let geometry = prepared.geometry;
        let bytes = usable(spec, &geometry, plan)?;
        plan.cells()
            .iter()
            .flat_map(|cell| plan.access.cells(*cell))
            .chain(plan.conditionings())
            .try_for_each(|cell| fits(&cell, spec, &geometry))?;
        let logical = geometry.block_size.bytes();
        if plan.access.trim_pct > 0 && !geometry.deallocates {
            return Err(LabError::usage(format!(
                "trim {} %: {spec} gives no space back",
                plan.access.trim_pct
            )));
        }
        let run = fastrand::Rng::new().u64(1..);
        let model = || Arc::new(Model::new(run, logical, bytes / u64::from(logical)));
        let setup = Self {
            name: name.clone(),
            spec: opened,
            description: prepared.description,
            capacity: service.as_ref().and_then(|service| service.capacity()),
            file_system: prepared.file_system,
            remote: *remote || configuration.pool.is_some(),
            nodes: configuration.nodes(plan),
            machines: configuration.machines(plan),
            fresh: prepared.fresh || is_own,
            bytes,
            access: plan.access.on(configuration),
            model: plan.verify.then(model),
            tally: Tally::default(),
            settled: HashSet::new(),
            told_settled: HashMap::new(),
            conditioned: None,
            geometry,
            read_back: None,
        };
        Ok((setup, service))
    }

    pub(super) fn logical(&self) -> u32 {
        self.geometry.block_size.bytes()
    }

    pub(super) fn size_words(&self) -> String {
        human_bytes(self.bytes)
    }

    fn blocks(&self) -> u64 {
        self.bytes / u64::from(self.logical())
    }

    /// Writes the whole range once.
    pub(super) fn fill(
        &mut self,
        generator: &Generator<'_>,
        seed: u64,
        progress: &Progress,
    ) -> Result<(), LabError> {
        let fill = Fill {
            name: self.name.clone(),
            spec: self.spec.clone(),
            bytes: self.bytes,
            seed,
        };
        match &self.model {
            Some(model) => fill.stamp(generator.stacks(), model, progress),
            None => generator.fill(&fill, progress),
        }
    }

    /// Reads the whole range and compares it with the model; what could not be read.
    pub(super) fn read_back(
        &mut self,
        stacks: &dyn Stacks,
        progress: &Progress,
    ) -> Result<Vec<String>, LabError> {
        let Some(model) = self.model.clone() else {
            return Ok(Vec::new());
        };
        let mut found = VerifyResult {
            run: format!("{:016x}", model.run()),
            blocks_checked: self.tally.checked,
            ..VerifyResult::default()
        };
        let mut tally = std::mem::take(&mut self.tally);
        let result = on_own_thread(|| {
            let mut worker = stacks.open(&self.spec, &pass_options(self.bytes, false))?;
            let mut meter = Meter::new(progress, &self.name, "read back", self.blocks());
            let pass = Pass::new(&mut *worker, self.blocks())?;
            pass.read_back(&model, &mut tally, &mut |blocks| meter.add(blocks))
        });
        if let Err(interrupted) = progress.go_on() {
            self.tally = tally;
            return Err(interrupted);
        }
        found.blocks_read_back = tally.checked - found.blocks_checked;
        found.unreadable = result
            .as_ref()
            .map_or(1, |unreadable| unreadable.len() as u64);
        found.failures = tally.failures;
        found.examples = tally.examples;
        self.read_back = Some(found);
        result
    }

    /// What verification found; of a run that was interrupted, what it found until then.
    pub(super) fn verified(&self) -> Option<VerifyResult> {
        let model = self.model.as_ref()?;
        Some(self.read_back.clone().unwrap_or_else(|| VerifyResult {
            run: format!("{:016x}", model.run()),
            blocks_checked: self.tally.checked,
            failures: self.tally.failures,
            examples: self.tally.examples.clone(),
            ..VerifyResult::default()
        }))
    }
}

/// A range that is to be filled with random data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fill {
    /// The configuration, for people.
    pub(crate) name: String,
    pub(crate) spec: String,
    pub(crate) bytes: u64,
    pub(crate) seed: u64,
}

impl Fill {
    /// Whether every machine that opens this opens the same.
    pub(crate) fn is_shared(&self) -> bool {
        self.spec.starts_with("nvme-tcp://")
    }

    pub(crate) fn carry_out(
        &self,
        stacks: &dyn Stacks,
        progress: &Progress,
    ) -> Result<(), LabError> {
        self.write(stacks, None, progress)
    }

    /// The same, with stamps instead of random data.
    pub(super) fn stamp(
        &self,
        stacks: &dyn Stacks,
        model: &Model,
        progress: &Progress,
    ) -> Result<(), LabError> {
        self.write(stacks, Some(model), progress)
    }

    fn write(
        &self,
        stacks: &dyn Stacks,
        model: Option<&Model>,
        progress: &Progress,
    ) -> Result<(), LabError> {
        // On a thread of its own: a worker's thread belongs to its event loop.
        on_own_thread(|| {
            let mut worker = stacks.open(&self.spec, &pass_options(self.bytes, true))?;
            let logical = u64::from(worker.device().geometry().block_size.bytes());
            let blocks = self.bytes / logical;
            let mut meter = Meter::new(progress, &self.name, "filled", blocks);
            let pass = Pass::new(&mut *worker, blocks)?;
            pass.fill(self.seed, model, &mut |blocks| meter.add(blocks))
        })
    }
}

pub(super) fn pass_options(bytes: u64, writes: bool) -> OpenOptions {
    OpenOptions {
        thread: 0,
        threads: 1,
        cpu: None,
        size: Some(bytes),
        depth: DEPTH,
        buffer_bytes: BUFFER_BYTES,
        writes,
    }
}

pub(super) fn on_own_thread<T: Send>(
    work: impl FnOnce() -> Result<T, LabError> + Send,
) -> Result<T, LabError> {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err(LabError::environment("a thread panicked")))
}

fn refuse_to_destroy(spec: &str, holds: Option<&str>) -> Result<(), LabError> {
    match holds {
        Some(found) => Err(LabError::usage(format!(
            "{spec} holds data ({found}) that this run would overwrite; \
             say --destroy-data if that is meant"
        ))),
        None => Ok(()),
    }
}

fn usable(spec: &str, geometry: &Geometry, plan: &SweepPlan) -> Result<u64, LabError> {
    let has = geometry.bytes();
    match plan.size {
        Some(size) if size > has => Err(LabError::usage(format!(
            "size {} is more than {spec} has ({})",
            human_bytes(size),
            human_bytes(has)
        ))),
        Some(size) => Ok(size - size % u64::from(geometry.block_size.bytes())),
        None => Ok(has),
    }
}

fn fits(cell: &CellSpec, spec: &str, geometry: &Geometry) -> Result<(), LabError> {
    let logical = geometry.block_size.bytes();
    if !cell.block_bytes.is_multiple_of(logical) {
        return Err(LabError::usage(format!(
            "{}: {spec} has blocks of {logical} bytes, of which the block must be a multiple",
            cell.slug()
        )));
    }
    if cell.block_bytes / logical > geometry.max_blocks {
        let most = u64::from(geometry.max_blocks) * u64::from(logical);
        return Err(LabError::usage(format!(
            "{}: the largest request that {spec} takes is {}",
            cell.slug(),
            human_bytes(most)
        )));
    }
    Ok(())
}

/// Tells progress of a pass, by tenths.
struct Meter<'a> {
    progress: &'a Progress,
    name: &'a str,
    verb: &'a str,
    total: u64,
    done: u64,
}

impl<'a> Meter<'a> {
    fn new(progress: &'a Progress, name: &'a str, verb: &'a str, total: u64) -> Self {
        Self {
            progress,
            name,
            verb,
            total: total.max(1),
            done: 0,
        }
    }

    fn add(&mut self, blocks: u64) -> Result<(), LabError> {
        let before = self.done * 10 / self.total;
        self.done += blocks;
        let tenths = self.done * 10 / self.total;
        if tenths > before {
            self.progress
                .doing(&format!("{}: {}0 % {}", self.name, tenths, self.verb));
        }
        self.progress.go_on()
    }
}
