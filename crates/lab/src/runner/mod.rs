//! Carries a plan out: prepares the configurations, measures every cell on all of them in turn,
//! repeat by repeat, and checks what was written.

mod crew;
mod pass;
mod setup;
mod summary;

use std::time::Duration;

use ashlar_block::Durability;
use hdrhistogram::Histogram;

pub(crate) use crew::Crew;
use crew::Outcome;
use setup::Setup;

use crate::ceiling::ceilings;
use crate::cpu::usable_cpus;
use crate::machine::Machine;
use crate::measure::{Measured, Packed, Sample, SeriesShape};
use crate::result::{Check, ConfigurationResult, Method, RepeatResult, RunResult, SCHEMA};
use crate::steady::is_steady;
use crate::workload::{Area, Job};
use crate::{CellSpec, LabError, Progress, Services, Stacks, SweepPlan};

/// What [`run_sweep`] brings home: the result, and what is too large for it.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// `result.json`.
    pub result: RunResult,
    /// The plan that was carried out.
    pub plan: SweepPlan,
    /// The scenario's text, if it was one.
    pub source: Option<String>,
    pub(crate) details: Vec<Detail>,
}

/// A repeat in full.
#[derive(Clone, Debug)]
pub(crate) struct Detail {
    pub(crate) configuration: usize,
    pub(crate) cell: CellSpec,
    pub(crate) repeat: u32,
    pub(crate) result: RepeatResult,
    pub(crate) series: Vec<Sample>,
    pub(crate) interval: Duration,
    pub(crate) reads: Packed,
    pub(crate) writes: Packed,
}

impl RunOutcome {
    /// The process's exit code: 1 if a check failed, 3 if something did not finish or an access
    /// failed, otherwise 0.
    pub fn exit_code(&self) -> i32 {
        if self.result.checks.iter().any(|check| !check.passed) {
            1
        } else if self.result.partial {
            3
        } else {
            0
        }
    }

    /// All repeats of a cell on a configuration, merged: reads, writes, and measured time.
    pub(crate) fn merged(&self, configuration: usize, cell: &CellSpec) -> Option<Merged> {
        let mut merged: Option<Merged> = None;
        for detail in &self.details {
            if detail.configuration != configuration || detail.cell != *cell {
                continue;
            }
            let (reads, writes) = (detail.reads.unpack(), detail.writes.unpack());
            match &mut merged {
                Some(merged) => {
                    // Same bounds, so adding cannot fail.
                    let _ = merged.reads.add(reads);
                    let _ = merged.writes.add(writes);
                    merged.measured += self.plan.measure;
                }
                None => {
                    merged = Some(Merged {
                        reads,
                        writes,
                        measured: self.plan.measure,
                    })
                }
            }
        }
        merged
    }
}

/// Repeats put together.
pub(crate) struct Merged {
    pub(crate) reads: Histogram<u64>,
    pub(crate) writes: Histogram<u64>,
    pub(crate) measured: Duration,
}

/// Carries out `plan` without remote configurations.
///
/// # Errors
/// Usage errors for a plan that makes no sense or would destroy data, environment errors for
/// what cannot be opened. What goes wrong *while* measuring is in the outcome instead.
pub fn run_sweep(
    plan: &SweepPlan,
    stacks: &dyn Stacks,
    progress: &Progress,
) -> Result<RunOutcome, LabError> {
    run_plan(plan, stacks, &crate::NoServices, progress)
}

/// As [`run_sweep`], with `services` for the configurations that are remote.
pub fn run_plan(
    plan: &SweepPlan,
    stacks: &dyn Stacks,
    services: &dyn Services,
    progress: &Progress,
) -> Result<RunOutcome, LabError> {
    plan.check()?;
    let cpus = if plan.pin { usable_cpus() } else { Vec::new() };
    let prepare = |configuration| Setup::prepare(configuration, plan, stacks, services);
    // The servers run until the end of the function.
    let (mut setups, _services): (Vec<_>, Vec<_>) = plan
        .configurations
        .iter()
        .map(prepare)
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let mut run = Run {
        plan,
        stacks,
        progress,
        cpus,
        cells: plan.cells(),
        details: Vec::new(),
        problems: Vec::new(),
    };
    run.announce(&setups);
    let mut threads: Vec<u32> = run.cells.iter().map(|cell| cell.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let ceiling = ceilings(&threads, &run.cpus)?;
    for setup in &mut setups {
        run.fill(setup)?;
    }
    for cell in run.cells.clone() {
        for repeat in 0..plan.repeats {
            for (index, setup) in setups.iter_mut().enumerate() {
                run.measure(index, setup, cell, repeat)?;
            }
        }
    }
    for setup in &mut setups {
        run.read_back(setup)?;
    }
    progress.finish();
    let machine = run.machine(&setups);
    let mut result = RunResult {
        schema: SCHEMA.to_owned(),
        title: "Sweep".to_owned(),
        machine,
        method: run.method(&setups),
        scenario: None,
        ceiling,
        configurations: run.configurations(&setups),
        checks: verification_checks(&setups),
        findings: Vec::new(),
        database: None,
        flags: Vec::new(),
        partial: !run.problems.is_empty(),
        problems: run.problems,
    };
    summary::compare_and_flag(&mut result);
    Ok(RunOutcome {
        result,
        plan: plan.clone(),
        source: None,
        details: run.details,
    })
}

/// A run in progress.
struct Run<'a> {
    plan: &'a SweepPlan,
    stacks: &'a dyn Stacks,
    progress: &'a Progress,
    cpus: Vec<usize>,
    cells: Vec<CellSpec>,
    details: Vec<Detail>,
    problems: Vec<String>,
}

/// More problems than this are not written down one by one.
const MOST_PROBLEMS: usize = 100;

impl Run<'_> {
    fn announce(&self, setups: &[Setup]) {
        let measurements = self.cells.len() as u64 * u64::from(self.plan.repeats);
        self.progress.start(measurements * setups.len() as u64);
        for setup in setups {
            let tree = setup.description.replace('\n', "\n  ");
            self.progress.say(&format!("{}: {tree}", setup.name));
        }
    }

    fn fill(&mut self, setup: &mut Setup) -> Result<(), LabError> {
        if self.plan.precondition.fill || self.plan.verify || setup.fresh {
            self.progress
                .say(&format!("{}: filling {}", setup.name, setup.size_words()));
            setup.fill(self.stacks, self.plan.seed, self.progress)?;
        }
        Ok(())
    }

    fn jobs(
        &self,
        setup: &Setup,
        cell: CellSpec,
        salt: u64,
        times: (Duration, Duration),
    ) -> Result<Vec<Job>, LabError> {
        let job = |thread| {
            Ok(Job {
                cell,
                thread,
                logical: setup.logical(),
                area: Area::of(&cell, thread, setup.bytes, self.plan.verify)?,
                durability: if self.plan.sync {
                    Durability::Durable
                } else {
                    Durability::Cached
                },
                rate: self.plan.rate.map(|rate| rate / f64::from(cell.threads)),
                warmup: times.0,
                measure: times.1,
                seed: seed_of(self.plan.seed, salt, thread),
            })
        };
        (0..cell.threads).map(job).collect()
    }

    fn crew<'s>(&'s self, setup: &'s Setup) -> Crew<'s> {
        Crew {
            stacks: self.stacks,
            spec: &setup.spec,
            size: self.plan.size,
            cpus: &self.cpus,
            model: setup.model.as_ref(),
        }
    }

    fn measure(
        &mut self,
        index: usize,
        setup: &mut Setup,
        cell: CellSpec,
        repeat: u32,
    ) -> Result<(), LabError> {
        let what = format!("{} {} #{}", setup.name, cell.slug(), repeat + 1);
        self.progress.doing(&what);
        self.settle(setup, cell)?;
        let salt = u64::from(repeat) + 1;
        let jobs = self.jobs(setup, cell, salt, (self.plan.warmup, self.plan.measure))?;
        let outcome = match self.crew(setup).run(&jobs) {
            Ok(outcome) => outcome,
            // Once something has been measured, a configuration that no longer opens ends its
            // own figures, not everybody's.
            Err(error) if !self.details.is_empty() && error.exit_code() == 3 => {
                self.problem(format!("{what}: {error}"));
                self.progress.step(&format!("{what}: failed"));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let measured = self.take(setup, outcome, &what);
        let result = summary::repeat(&measured, &cell, self.plan.measure);
        let (iops, mean_us) = (crate::units::grouped(result.iops), result.latency_us.mean);
        self.progress
            .step(&format!("{what}: {iops} IOPS, {mean_us:.0} us"));
        self.details.push(Detail {
            configuration: index,
            cell,
            repeat,
            result,
            reads: Packed::new(&measured.reads)?,
            writes: Packed::new(&measured.writes)?,
            series: measured.series,
            interval: SeriesShape::of(self.plan.measure).interval,
        });
        Ok(())
    }

    /// Brings throughput of a write cell's kind to its steady state, once.
    fn settle(&mut self, setup: &mut Setup, cell: CellSpec) -> Result<(), LabError> {
        let limit = self.plan.precondition.settle_limit;
        let key = (cell.pattern.is_random(), cell.block_bytes);
        if !cell.writes() || limit.is_zero() || setup.settled.contains_key(&key) {
            return Ok(());
        }
        let what = format!("{} settling for {}", setup.name, cell.slug());
        self.progress.doing(&what);
        let round = (self.plan.measure / 2).max(Duration::from_millis(10));
        let mut before: Vec<f64> = Vec::new();
        let mut settled = false;
        let most = (limit.as_secs_f64() / round.as_secs_f64()).ceil() as u64;
        for number in 0..most.max(2) {
            let jobs = self.jobs(setup, cell, 1000 + number, (Duration::ZERO, round))?;
            let outcome = self.crew(setup).run(&jobs)?;
            let measured = self.take(setup, outcome, &what);
            let rates = measured.rates(SeriesShape::of(round).interval);
            settled = !before.is_empty() && is_steady(&[before, rates.clone()].concat());
            if settled {
                break;
            }
            before = rates;
        }
        setup.settled.insert(key, settled);
        Ok(())
    }

    /// Takes a repeat's findings and troubles; gives its figures.
    fn take(&mut self, setup: &mut Setup, outcome: Outcome, what: &str) -> Measured {
        setup.tally.merge(outcome.tally);
        for loss in outcome.losses {
            self.problem(format!("{what}: {loss}"));
        }
        if outcome.measured.errors > 0 {
            let first = outcome.measured.examples.first().map_or("", String::as_str);
            let errors = outcome.measured.errors;
            self.problem(format!(
                "{what}: {errors} accesses failed, the first: {first}"
            ));
        }
        outcome.measured
    }

    fn problem(&mut self, text: String) {
        self.progress.say(&text);
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(text);
        }
    }

    fn read_back(&mut self, setup: &mut Setup) -> Result<(), LabError> {
        if setup.model.is_none() {
            return Ok(());
        }
        self.progress
            .say(&format!("{}: reading everything back", setup.name));
        match setup.read_back(self.stacks, self.progress) {
            Ok(unreadable) => {
                for text in unreadable.into_iter().take(10) {
                    self.problem(format!("{}: {text}", setup.name));
                }
            }
            Err(error) => self.problem(format!("{}: reading back: {error}", setup.name)),
        }
        Ok(())
    }

    fn machine(&self, setups: &[Setup]) -> Machine {
        let mut machine = Machine::here();
        for kind in setups.iter().filter_map(|setup| setup.file_system.clone()) {
            if !machine.file_systems.contains(&kind) {
                machine.file_systems.push(kind);
            }
        }
        machine
    }

    fn method(&self, setups: &[Setup]) -> Method {
        let plan = self.plan;
        Method {
            seconds: plan.measure.as_secs_f64(),
            warmup_s: plan.warmup.as_secs_f64(),
            repeats: plan.repeats,
            size_bytes: setups.iter().map(|setup| setup.bytes).min().unwrap_or(0),
            sync: plan.sync,
            rate: plan.rate,
            verify: plan.verify,
            filled: plan.precondition.fill || plan.verify || setups.iter().all(|setup| setup.fresh),
            pinned: plan.pin,
            seed: plan.seed,
        }
    }

    fn configurations(&self, setups: &[Setup]) -> Vec<ConfigurationResult> {
        let of = |(index, setup): (usize, &Setup)| ConfigurationResult {
            name: setup.name.clone(),
            spec: setup.spec.clone(),
            description: setup.description.clone(),
            remote: setup.remote,
            cells: self
                .cells
                .iter()
                .filter_map(|cell| summary::cell(self, setup, index, cell))
                .collect(),
            verify: setup.verified(),
        };
        setups.iter().enumerate().map(of).collect()
    }
}

fn seed_of(seed: u64, salt: u64, thread: u32) -> u64 {
    // Distinct streams for distinct parts, the same on every configuration.
    fastrand::Rng::with_seed(seed ^ (salt << 20) ^ (u64::from(thread) << 48)).u64(..)
}

fn verification_checks(setups: &[Setup]) -> Vec<Check> {
    let check = |setup: &Setup| {
        let found = setup.verified()?;
        let bad = found.failures.total();
        let blocks = found.blocks_checked + found.blocks_read_back;
        let text = if bad + found.unreadable == 0 {
            format!("{blocks} blocks checked, all as written")
        } else {
            let f = found.failures;
            format!(
                "{bad} of {blocks} blocks wrong: {} lost, {} stale, {} torn, {} misplaced, \
                 {} foreign, {} corrupt; {} accesses unreadable",
                f.lost, f.stale, f.torn, f.misplaced, f.foreign, f.corrupt, found.unreadable
            )
        };
        let passed = bad == 0 && found.unreadable == 0;
        Some(Check {
            name: format!("verify {}", setup.name),
            passed,
            text,
        })
    };
    setups.iter().filter_map(check).collect()
}

impl Merged {
    /// Reads and writes in one histogram.
    pub(crate) fn all(&self) -> Histogram<u64> {
        let mut all = self.reads.clone();
        // Same bounds, so adding cannot fail.
        let _ = all.add(&self.writes);
        all
    }
}

#[cfg(test)]
mod tests;
