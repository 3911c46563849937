//! Carries a plan out: prepares the configurations, measures every cell on all of them in turn,
//! repeat by repeat, and checks what was written.

mod endure;
mod generator;
mod pass;
mod setup;
mod summary;
mod threads;
mod turn;

use std::time::Duration;

use hdrhistogram::Histogram;

pub use endure::{Endurance, EndurePlan, Endured, Found, Pulse};
use generator::Generator;
pub(crate) use setup::Fill;
use setup::Setup;
pub(crate) use threads::{Outcome, Threads};

use crate::agent::Clients;
use crate::ceiling::ceilings;
use crate::cpu::usable_cpus;
use crate::head::{Head, Kind};
use crate::journal::Journal;
use crate::machine::Machine;
use crate::measure::{Packed, Sample};
use crate::result::{Ceiling, Check, ConfigurationResult, Method, RepeatResult, RunResult};
use crate::schedule::{Asked, Nest, Schedule, carry_out};
use crate::{CellSpec, LabError, Progress, Service, Services, Stacks, SweepPlan};

/// What [`run_sweep`] brings home: the result, and what is too large for it.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// `result.json`.
    pub result: RunResult,
    /// The plan that was carried out.
    pub plan: SweepPlan,
    /// The scenario's text, if it was one.
    pub source: Option<String>,
    /// Every turn was measured, and everything was checked: there is nothing to go on with.
    pub is_complete: bool,
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
        if self.result.head.checks.iter().any(|check| !check.passed) {
            1
        } else if self.result.head.partial {
            3
        } else {
            0
        }
    }

    /// All repeats of a cell on a configuration, merged: reads, writes, and measured time.
    pub(crate) fn merged(
        &self,
        configuration: usize,
        cell: &CellSpec,
    ) -> Result<Option<Merged>, LabError> {
        let measure = self.plan.measuring(cell).measure;
        let mut merged: Option<Merged> = None;
        for detail in &self.details {
            if detail.configuration != configuration || detail.cell != *cell {
                continue;
            }
            let (reads, writes) = (detail.reads.unpack()?, detail.writes.unpack()?);
            match &mut merged {
                Some(merged) => {
                    // Same bounds, so adding cannot fail.
                    let _ = merged.reads.add(reads);
                    let _ = merged.writes.add(writes);
                    merged.measured += measure;
                }
                None => {
                    merged = Some(Merged {
                        reads,
                        writes,
                        measured: measure,
                    })
                }
            }
        }
        Ok(merged)
    }
}

/// Repeats put together.
pub(crate) struct Merged {
    pub(crate) reads: Histogram<u64>,
    pub(crate) writes: Histogram<u64>,
    pub(crate) measured: Duration,
}

/// What a run needs besides its plan.
pub struct Means<'a> {
    /// Opens what is measured.
    pub stacks: &'a dyn Stacks,
    /// Serves configurations that are remote.
    pub services: &'a dyn Services,
    /// Agents that make the load, if this process does not.
    pub clients: Option<&'a Clients>,
    /// Where progress goes, and what ends the run before its end.
    pub progress: &'a Progress,
    /// Where every turn goes as soon as it was measured.
    pub journal: &'a mut Journal,
}

/// Carries out `plan` without remote configurations, and keeps nothing before its end.
///
/// # Errors
/// Usage errors for a plan that makes no sense or would destroy data, environment errors for
/// what cannot be opened. What goes wrong *while* measuring is in the outcome instead.
pub fn run_sweep(
    plan: &SweepPlan,
    stacks: &dyn Stacks,
    progress: &Progress,
) -> Result<RunOutcome, LabError> {
    let means = Means {
        stacks,
        services: &crate::NoServices,
        clients: None,
        progress,
        journal: &mut Journal::none(),
    };
    run_plan(plan, means)
}

/// Carries out `plan`, or what the journal does not have of it. One that is interrupted gives what was measured.
///
/// # Errors
/// As [`run_sweep`]'s.
pub fn run_plan(plan: &SweepPlan, means: Means<'_>) -> Result<RunOutcome, LabError> {
    plan.check()?;
    let Means {
        stacks,
        services,
        clients,
        progress,
        journal,
    } = means;
    let cpus = if plan.pin { usable_cpus() } else { Vec::new() };
    let generator = Generator::new(stacks, clients);
    generator.check(plan)?;
    let prepare =
        |configuration| Setup::prepare(configuration, plan, (&generator, services), journal);
    // The servers run until the end of the function.
    let (setups, served): (Vec<_>, Vec<_>) = plan
        .configurations
        .iter()
        .map(prepare)
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    for (setup, configuration) in setups.iter().zip(&plan.configurations) {
        if setup.fresh {
            journal.was_fresh(&configuration.spec)?;
        }
    }
    let mut run = Run {
        plan,
        generator: &generator,
        progress,
        cpus,
        cells: plan.cells(),
        setups,
        served: &served,
        details: Vec::new(),
        problems: Vec::new(),
        is_complete: false,
    };
    run.announce();
    let mut threads: Vec<u32> = run.cells.iter().map(|cell| cell.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    // What this machine could do says nothing of others.
    let ceiling = match clients {
        Some(_) => Vec::new(),
        None => ceilings(&threads, &run.cpus)?,
    };
    let ended = run.measure_all(journal);
    match ended {
        // What was measured before is not lost with what comes after.
        Err(error)
            if (!run.details.is_empty() || !generator.dead().is_empty())
                && error.exit_code() == 3 =>
        {
            run.problem(error.to_string());
        }
        ended => ended?,
    }
    progress.finish();
    Ok(run.outcome(ceiling))
}

/// A run in progress.
struct Run<'a> {
    plan: &'a SweepPlan,
    generator: &'a Generator<'a>,
    progress: &'a Progress,
    cpus: Vec<usize>,
    cells: Vec<CellSpec>,
    setups: Vec<Setup>,
    /// By configuration.
    served: &'a [Option<Box<dyn Service>>],
    details: Vec<Detail>,
    problems: Vec<String>,
    is_complete: bool,
}

/// More problems than this are not written down one by one.
const MOST_PROBLEMS: usize = 100;

impl Run<'_> {
    fn announce(&self) {
        for setup in &self.setups {
            let tree = setup.description.replace('\n', "\n  ");
            self.progress.say(&format!("{}: {tree}", setup.name));
        }
    }

    /// From the first fill to the last block that is read back.
    fn measure_all(&mut self, journal: &mut Journal) -> Result<(), LabError> {
        let asked = |cell: &CellSpec| Asked {
            cell: cell.slug(),
            repeats: self.plan.measuring(cell).repeats,
        };
        let schedule = Schedule {
            configurations: self.setups.len(),
            cells: self.cells.iter().map(asked).collect(),
            nest: Nest::CellByCell,
            seed: self.plan.seed,
        };
        for setup in &mut self.setups {
            if self.plan.precondition.fill || self.plan.verify || setup.fresh {
                self.progress
                    .say(&format!("{}: filling {}", setup.name, setup.size_words()));
                setup.fill(self.generator, self.plan.seed, self.progress)?;
            }
        }
        let progress = self.progress;
        carry_out(&schedule, self, journal, progress)?;
        for index in 0..self.setups.len() {
            self.read_back(index)?;
        }
        self.is_complete =
            self.details.len() == schedule.turns().len() && self.generator.dead().is_empty();
        Ok(())
    }

    fn outcome(mut self, ceiling: Vec<Ceiling>) -> RunOutcome {
        let place = |cells: &[CellSpec], of: &CellSpec| cells.iter().position(|cell| cell == of);
        let cells = &self.cells;
        self.details
            .sort_by_key(|of| (place(cells, &of.cell), of.repeat, of.configuration));
        let mut result = RunResult {
            head: Head {
                machine: self.machine(),
                checks: self.checks(),
                partial: !self.problems.is_empty(),
                problems: std::mem::take(&mut self.problems),
                ..Head::new(Kind::Devices, "Sweep")
            },
            method: self.method(),
            ceiling,
            clients: self.generator.notes(),
            configurations: self.configurations(),
            findings: Vec::new(),
            database: None,
        };
        summary::compare_and_flag(&mut result);
        RunOutcome {
            result,
            plan: self.plan.clone(),
            source: None,
            is_complete: self.is_complete,
            details: self.details,
        }
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = verification_checks(&self.setups);
        checks.extend(self.generator.check_of_clients());
        checks
    }

    fn problem(&mut self, text: String) {
        self.progress.say(&text);
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(text);
        }
    }

    fn read_back(&mut self, index: usize) -> Result<(), LabError> {
        let setup = &mut self.setups[index];
        if setup.model.is_none() {
            return Ok(());
        }
        let name = setup.name.clone();
        self.progress
            .say(&format!("{name}: reading everything back"));
        let read = setup.read_back(self.generator.stacks(), self.progress);
        self.progress.go_on()?;
        match read {
            Ok(unreadable) => {
                for text in unreadable.into_iter().take(10) {
                    self.problem(format!("{name}: {text}"));
                }
            }
            Err(error) => self.problem(format!("{name}: reading back: {error}")),
        }
        Ok(())
    }

    fn machine(&self) -> Machine {
        let mut machine = Machine::here();
        for kind in self.setups.iter().filter_map(|of| of.file_system.clone()) {
            if !machine.file_systems.contains(&kind) {
                machine.file_systems.push(kind);
            }
        }
        machine
    }

    fn method(&self) -> Method {
        let plan = self.plan;
        let setups = &self.setups;
        Method {
            seconds: plan.measure.as_secs_f64(),
            warmup_s: plan.warmup.as_secs_f64(),
            repeats: plan.repeats,
            size_bytes: setups.iter().map(|setup| setup.bytes).min().unwrap_or(0),
            sync: plan.sync,
            rate: plan.rate,
            access: plan.access.words(),
            verify: plan.verify,
            filled: plan.precondition.fill || plan.verify || setups.iter().all(|setup| setup.fresh),
            pinned: plan.pin,
            seed: plan.seed,
        }
    }

    fn configurations(&self) -> Vec<ConfigurationResult> {
        let of = |(index, setup): (usize, &Setup)| ConfigurationResult {
            name: setup.name.clone(),
            spec: setup.spec.clone(),
            description: setup.description.clone(),
            capacity: setup.capacity.clone(),
            remote: setup.remote,
            cells: self
                .cells
                .iter()
                .filter_map(|cell| summary::cell(self, setup, index, cell))
                .collect(),
            verify: setup.verified(),
        };
        self.setups.iter().enumerate().map(of).collect()
    }
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
