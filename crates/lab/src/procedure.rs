//! How the cells of a matrix are measured, where that is not as the whole plan has it: published procedures have
//! times, repeats and preconditioning of their own for each kind of cell.

use std::time::Duration;

use crate::units::short_bytes;
use crate::{CellSpec, LabError, Pattern, SweepPlan};

/// What a matrix has of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Procedure {
    /// Measured time of a repeat.
    pub measure: Option<Duration>,
    /// Load before each measurement that is not counted.
    pub warmup: Option<Duration>,
    pub repeats: Option<u32>,
    /// Every write is durable before it counts.
    pub sync: bool,
    /// Open loop: accesses a second in total.
    pub rate: Option<f64>,
    /// What is written before.
    pub precondition: Option<Conditioning>,
}

/// Writes that bring a device into the state in which cells are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditioning {
    /// Kind and order.
    pub pattern: Pattern,
    /// Bytes of a write.
    pub block_bytes: u32,
    /// Load threads.
    pub threads: u32,
    /// Writes in flight a thread.
    pub depth: u32,
    /// So long, or at most so long.
    pub time: Duration,
    /// It ends when throughput is steady.
    pub until_steady: bool,
}

/// How a cell is measured, all told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measuring {
    pub(crate) measure: Duration,
    pub(crate) warmup: Duration,
    pub(crate) repeats: u32,
    pub(crate) rate: Option<f64>,
    pub(crate) precondition: Option<Conditioning>,
}

const SHORTEST: Duration = Duration::from_millis(10);
pub(crate) const LONGEST: Duration = Duration::from_secs(86_400);

impl Conditioning {
    /// Its writes as a cell.
    pub(crate) const fn cell(&self) -> CellSpec {
        CellSpec {
            pattern: self.pattern,
            read_pct: 0,
            block_bytes: self.block_bytes,
            threads: self.threads,
            depth: self.depth,
            sync: false,
        }
    }

    /// In words.
    pub fn words(&self) -> String {
        let (pattern, block) = (self.pattern, short_bytes(u64::from(self.block_bytes)));
        let (threads, depth) = (self.threads, self.depth);
        let seconds = self.time.as_secs_f64();
        match self.until_steady {
            true => {
                format!("{pattern} {block} {threads} x {depth} until steady, at most {seconds} s")
            }
            false => format!("{seconds} s of {pattern} {block} {threads} x {depth}"),
        }
    }

    fn check(&self) -> Result<(), LabError> {
        let refuse = |why: &str| Err(LabError::usage(format!("precondition: {why}")));
        if self.pattern.read_pct(0) > 0 {
            return refuse("its pattern must write");
        }
        if !(SHORTEST..=LONGEST).contains(&self.time) {
            return refuse("seconds must be between 0.01 and 86400");
        }
        Ok(())
    }
}

impl Procedure {
    /// Refuses what makes no sense, naming it.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let refuse = |why: &str| Err(LabError::usage(format!("matrix: {why}")));
        if self
            .measure
            .is_some_and(|time| !(SHORTEST..=LONGEST).contains(&time))
        {
            return refuse("seconds must be between 0.01 and 86400");
        }
        if self.warmup.is_some_and(|time| time > LONGEST) {
            return refuse("warmup must be at most 86400");
        }
        if self
            .repeats
            .is_some_and(|repeats| !(1..=1000).contains(&repeats))
        {
            return refuse("repeat must be between 1 and 1000");
        }
        if self.rate.is_some_and(|rate| !(1.0..=1e9).contains(&rate)) {
            return refuse("rate must be between 1 and 1e9 accesses a second");
        }
        self.precondition
            .as_ref()
            .map_or(Ok(()), Conditioning::check)
    }

    /// Times and repeats times the factor, neither below what is the least nor above what is written.
    pub(crate) fn scale(&mut self, factor: f64, least: Duration, least_repeats: u32) {
        let shrink = |time: Duration| time.mul_f64(factor).max(least).min(time);
        if let Some(time) = &mut self.measure {
            let before = *time;
            *time = shrink(before);
            let share = time.as_secs_f64() / before.as_secs_f64();
            self.warmup = self.warmup.map(|warmup| warmup.mul_f64(share));
        }
        if let Some(repeats) = &mut self.repeats {
            let fewer = (f64::from(*repeats) * factor).ceil() as u32;
            *repeats = fewer.max(least_repeats).min(*repeats);
        }
        if let Some(before) = &mut self.precondition {
            before.time = shrink(before.time);
        }
    }
}

impl SweepPlan {
    /// How a cell is measured: as the first matrix that has it says, and otherwise as the plan does.
    pub(crate) fn measuring(&self, cell: &CellSpec) -> Measuring {
        let of = |matrix: &&crate::Matrix| matrix.cells().any(|one| one == *cell);
        let own = self
            .matrices
            .iter()
            .find(of)
            .map(|matrix| &matrix.procedure);
        let own = own.cloned().unwrap_or_default();
        let measure = own.measure.unwrap_or(self.measure);
        // A warm-up that is not said goes with the time that is.
        let warmup = match own.measure {
            Some(_) => SweepPlan::usual_warmup(measure),
            None => self.warmup,
        };
        Measuring {
            measure,
            warmup: own.warmup.unwrap_or(warmup),
            repeats: own.repeats.unwrap_or(self.repeats),
            rate: own.rate.or(self.rate),
            precondition: own.precondition,
        }
    }

    /// What is written before any cell is measured, as cells.
    pub(crate) fn conditionings(&self) -> impl Iterator<Item = CellSpec> + '_ {
        let all = self.matrices.iter();
        all.filter_map(|matrix| Some(matrix.procedure.precondition?.cell()))
    }
}
