//! One turn: a cell on a configuration, after its writes have settled.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::setup::Setup;
use super::threads::{Outcome, Threads};
use super::{Detail, Run, summary};
use crate::journal::Turn;
use crate::live::watched;
use crate::measure::{Measured, Packed, Sample, SeriesShape};
use crate::result::RepeatResult;
use crate::schedule::{Measurement, Workload};
use crate::steady::is_steady;
use crate::verify::Tally;
use crate::workload::{Area, Job};
use crate::{CellSpec, Conditioning, LabError};

/// Whether throughput is steady is asked so often, of preconditioning that may take hours.
const CONDITIONING_ROUND: Duration = Duration::from_secs(60);

/// What a turn has given: all that a result needs of it.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    result: RepeatResult,
    series: Vec<Sample>,
    reads: Packed,
    writes: Packed,
    /// Whether throughput had settled before, if that was asked for.
    settled: Option<bool>,
    found: Found,
}

/// What came to light besides figures.
#[derive(Default, Serialize, Deserialize)]
struct Found {
    tally: Tally,
    problems: Vec<String>,
}

/// Warm-up and measured time, and how much is due.
#[derive(Clone, Copy)]
struct Times {
    warmup: Duration,
    measure: Duration,
    /// Accesses a second in total; none: as many as there can be.
    rate: Option<f64>,
}

impl Workload for Run<'_> {
    type Outcome = Kept;

    fn name(&self, turn: &Turn) -> String {
        let name = &self.setups[turn.configuration].name;
        format!("{name} {} #{}", turn.cell, turn.repeat)
    }

    fn measure(&mut self, turn: &Turn) -> Result<Measurement<Kept>, LabError> {
        let cell = self.cell(turn)?;
        let what = self.name(turn);
        let mut found = Found::default();
        let measuring = self.plan.measuring(&cell);
        let settled = match measuring.precondition {
            Some(before) => self.condition(turn.configuration, before, &mut found)?,
            None => self.settle(turn.configuration, cell, &mut found)?,
        };
        let setup = &self.setups[turn.configuration];
        let times = Times {
            warmup: measuring.warmup,
            measure: measuring.measure,
            rate: measuring.rate,
        };
        let jobs = self.jobs(setup, cell, u64::from(turn.repeat), times)?;
        let outcome = match self.load(setup, &jobs) {
            Ok(outcome) => outcome,
            // Once something has been measured, a configuration that no longer opens ends its
            // own figures, not those of all.
            Err(error)
                if !self.details.is_empty()
                    && error.exit_code() == 3
                    && self.generator.dead().is_empty() =>
            {
                self.problem(format!("{what}: {error}"));
                return Ok(Measurement::Failed("failed".to_owned()));
            }
            Err(error) => return Err(error),
        };
        let clients = outcome.clients.clone();
        let served = self.served.get(turn.configuration);
        let unlike = served.and_then(|served| served.as_ref()?.unlike());
        let measured = found.take(outcome, &what);
        // What was cut short is not a measurement; what it found out about blocks counts.
        if let Err(interrupted) = self.progress.go_on() {
            self.setups[turn.configuration].tally.merge(found.tally);
            return Err(interrupted);
        }
        let series = measured.series.iter().filter(|_| measuring.rate.is_some());
        let result = RepeatResult {
            clients,
            unlike,
            series: series.map(|of| of.reads + of.writes).collect(),
            ..summary::repeat(&measured, turn.repeat, measuring.measure)
        };
        let (iops, mean_us) = (crate::units::grouped(result.iops), result.latency_us.mean);
        let kept = Kept {
            result,
            reads: Packed::new(&measured.reads)?,
            writes: Packed::new(&measured.writes)?,
            series: measured.series,
            settled,
            found,
        };
        // A part of the load was missing, and would be in every turn that follows.
        if !self.generator.dead().is_empty() {
            return Ok(Measurement::Part(kept));
        }
        Ok(Measurement::Whole(
            kept,
            format!("{iops} IOPS, {mean_us:.0} us"),
        ))
    }

    fn take(&mut self, turn: &Turn, kept: Kept) -> Result<(), LabError> {
        let cell = self.cell(turn)?;
        for problem in kept.found.problems {
            self.problem(problem);
        }
        let setup = &mut self.setups[turn.configuration];
        setup.tally.merge(kept.found.tally);
        if let Some(settled) = kept.settled {
            setup.told_settled.insert(kind(&cell), settled);
        }
        self.details.push(Detail {
            configuration: turn.configuration,
            cell,
            repeat: turn.repeat - 1,
            result: kept.result,
            reads: kept.reads,
            writes: kept.writes,
            series: kept.series,
            interval: SeriesShape::of(self.plan.measuring(&cell).measure).interval,
        });
        Ok(())
    }
}

/// What settles together: random or sequential writes of a size.
pub(super) fn kind(cell: &CellSpec) -> (bool, u32) {
    (cell.pattern.is_random(), cell.block_bytes)
}

impl Run<'_> {
    fn cell(&self, turn: &Turn) -> Result<CellSpec, LabError> {
        let found = self.cells.iter().find(|cell| cell.slug() == turn.cell);
        let none = || LabError::environment(format!("journal: {} is no cell of this", turn.cell));
        found.copied().ok_or_else(none)
    }

    fn jobs(
        &self,
        setup: &Setup,
        cell: CellSpec,
        salt: u64,
        times: Times,
    ) -> Result<Vec<Job>, LabError> {
        let places = CellSpec {
            block_bytes: self.plan.access.largest(cell.block_bytes),
            ..cell
        };
        let is_shown = self.progress.shows_tempo() && self.generator.is_here();
        let job = |thread| {
            Ok(Job {
                cell,
                thread,
                logical: setup.logical(),
                area: Area::of(&places, thread, setup.bytes, self.plan.verify)?,
                access: setup.access.clone(),
                sync: self.plan.sync || cell.sync,
                rate: times.rate.map(|rate| rate / f64::from(cell.threads)),
                warmup: times.warmup,
                measure: times.measure,
                seed: seed_of(self.plan.seed, salt, thread),
                stop: self.progress.stopper(),
                pulse: None,
                live: is_shown.then(Arc::default),
            })
        };
        (0..cell.threads).map(job).collect()
    }

    fn load(&self, setup: &Setup, jobs: &[Job]) -> Result<Outcome, LabError> {
        let threads = Threads {
            stacks: self.generator.stacks(),
            spec: &setup.spec,
            size: self.plan.size,
            cpus: &self.cpus,
            model: setup.model.as_ref(),
        };
        let counters: Vec<_> = jobs.iter().filter_map(|job| job.live.clone()).collect();
        watched(self.progress, &counters, || {
            self.generator.run(&threads, jobs, self.progress)
        })
    }

    /// Brings throughput of a write cell's kind to its steady state, once in the life of this process; whether it
    /// did.
    fn settle(
        &mut self,
        configuration: usize,
        cell: CellSpec,
        found: &mut Found,
    ) -> Result<Option<bool>, LabError> {
        let limit = self.plan.precondition.settle_limit;
        let setup = &self.setups[configuration];
        if !cell.writes() || limit.is_zero() || setup.settled.contains(&kind(&cell)) {
            return Ok(None);
        }
        let what = format!("{} settling for {}", setup.name, cell.slug());
        let writes = Writes {
            what: &what,
            cell,
            round: (self.plan.measure / 2).max(Duration::from_millis(10)),
            limit,
            until_steady: true,
        };
        let settled = self.write_on(configuration, &writes, found)?;
        self.setups[configuration].settled.insert(kind(&cell));
        Ok(Some(settled))
    }

    /// Writes what a cell's procedure asks for before it, unless that was what was written last; whether throughput
    /// became steady, if it was to.
    fn condition(
        &mut self,
        configuration: usize,
        before: Conditioning,
        found: &mut Found,
    ) -> Result<Option<bool>, LabError> {
        let setup = &self.setups[configuration];
        if setup.conditioned == Some(before) {
            return Ok(None);
        }
        let what = format!("{}: {}", setup.name, before.words());
        let writes = Writes {
            what: &what,
            cell: before.cell(),
            round: before.time.min(CONDITIONING_ROUND),
            limit: before.time,
            until_steady: before.until_steady,
        };
        let is_steady = self.write_on(configuration, &writes, found)?;
        self.setups[configuration].conditioned = Some(before);
        Ok(before.until_steady.then_some(is_steady))
    }

    /// Writes round by round to the limit, or until throughput is steady; whether it was.
    fn write_on(
        &self,
        configuration: usize,
        writes: &Writes<'_>,
        found: &mut Found,
    ) -> Result<bool, LabError> {
        let Writes { cell, round, .. } = *writes;
        let setup = &self.setups[configuration];
        let times = Times {
            warmup: Duration::ZERO,
            measure: round,
            rate: None,
        };
        self.progress.doing(writes.what);
        let mut before: Vec<f64> = Vec::new();
        let mut settled = false;
        let rounds = (writes.limit.as_secs_f64() / round.as_secs_f64()).ceil() as u64;
        let least = if writes.until_steady { 2 } else { 1 };
        for number in 0..rounds.max(least) {
            let jobs = self.jobs(setup, cell, 1000 + number, times)?;
            let outcome = self.load(setup, &jobs)?;
            let measured = found.take(outcome, writes.what);
            self.progress.go_on()?;
            let rates = measured.rates(SeriesShape::of(round).interval);
            settled = !before.is_empty() && is_steady(&[before, rates.clone()].concat());
            if settled && writes.until_steady {
                break;
            }
            before = rates;
        }
        Ok(settled)
    }
}

/// Writes that are not measured.
struct Writes<'a> {
    what: &'a str,
    cell: CellSpec,
    round: Duration,
    limit: Duration,
    until_steady: bool,
}

impl Found {
    /// Takes a load's findings and troubles; gives its figures.
    fn take(&mut self, outcome: Outcome, what: &str) -> Measured {
        self.tally.merge(outcome.tally);
        for loss in outcome.losses {
            self.problems.push(format!("{what}: {loss}"));
        }
        if outcome.measured.errors > 0 {
            let first = outcome.measured.examples.first().map_or("", String::as_str);
            let errors = outcome.measured.errors;
            self.problems.push(format!(
                "{what}: {errors} accesses failed, the first: {first}"
            ));
        }
        outcome.measured
    }
}

fn seed_of(seed: u64, salt: u64, thread: u32) -> u64 {
    // Distinct streams for distinct parts, the same on every configuration.
    fastrand::Rng::with_seed(seed ^ (salt << 20) ^ (u64::from(thread) << 48)).u64(..)
}
