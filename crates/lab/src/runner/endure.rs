//! A checking load that goes on, whatever happens to the storage meanwhile, until it is told to end; then everything is
//! read back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::pass::Pass;
use super::setup::{Fill, on_own_thread, pass_options};
use super::threads::{Outcome, Threads};
use crate::access::{Access, Distribution};
use crate::result::VerifyResult;
use crate::verify::{Model, Tally};
use crate::workload::{Area, Job};
use crate::{CellSpec, LabError, Pattern, PrepareOptions, Progress, Stacks};

/// A load ends when it is told to; this is only later than any of them.
const FOREVER: Duration = Duration::from_secs(86_400);

/// What a load does.
#[derive(Clone, Debug)]
pub struct EndurePlan {
    /// What is loaded; what it holds is overwritten.
    pub spec: String,
    /// Bytes of it that are used, from its beginning.
    pub bytes: u64,
    /// Bytes of an access.
    pub block_bytes: u32,
    /// Load threads.
    pub threads: u32,
    /// Accesses in flight, for each thread.
    pub depth: u32,
    /// Share of reads, 0 to 100.
    pub read_pct: u8,
    /// Between the end of an access and the next of its slot.
    pub think: Duration,
    /// Where accesses go.
    pub seed: u64,
}

/// What a load is at. All times are those of the client.
#[derive(Debug)]
pub struct Pulse {
    begun: Instant,
    answers: AtomicU64,
    /// When the last answer came, and the longest time between two, in nanoseconds.
    last: AtomicU64,
    longest: AtomicU64,
}

impl Pulse {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            answers: AtomicU64::new(0),
            last: AtomicU64::new(0),
            longest: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Accesses have ended well.
    pub(crate) fn answered(&self, count: u64) {
        if count == 0 {
            return;
        }
        let now = self.now();
        let before = self.last.swap(now, Ordering::SeqCst);
        self.longest
            .fetch_max(now.saturating_sub(before), Ordering::SeqCst);
        self.answers.fetch_add(count, Ordering::SeqCst);
    }

    /// Accesses that have ended well so far.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::SeqCst)
    }

    /// How long there has been no answer now.
    pub fn silence(&self) -> Duration {
        let last = self.last.load(Ordering::SeqCst);
        Duration::from_nanos(self.now().saturating_sub(last))
    }

    /// The longest time without an answer since this was asked last, up to now.
    pub fn take_gap(&self) -> Duration {
        let open = self.silence();
        open.max(Duration::from_nanos(self.longest.swap(0, Ordering::SeqCst)))
    }
}

/// What came of a load.
#[derive(Clone, Debug)]
pub struct Endured {
    /// Accesses that ended well.
    pub answers: u64,
    /// The slowest of them.
    pub slowest: Duration,
    /// Accesses that ended with an error.
    pub errors: u64,
    /// Some of the errors, and why load threads ended before they were told to.
    pub problems: Vec<String>,
}

/// What has failed, and what the load has met: it may be why.
fn with_load(error: LabError, outcome: Result<&Outcome, &LabError>) -> LabError {
    let met: Vec<String> = match outcome {
        Ok(Outcome {
            measured, losses, ..
        }) => {
            let examples = measured.examples.iter();
            let met = examples.map(|one| format!("the load met {one}"));
            let ended = losses
                .iter()
                .map(|why| format!("a load thread ended: {why}"));
            met.chain(ended).collect()
        }
        Err(why) => vec![format!("the load ended: {why}")],
    };
    error.and(&met)
}

/// A device that is loaded, and what it must hold.
pub struct Endurance<'a> {
    stacks: &'a dyn Stacks,
    plan: EndurePlan,
    logical: u32,
    model: Arc<Model>,
    tally: Tally,
}

impl<'a> Endurance<'a> {
    /// Writes all of the range once.
    ///
    /// # Errors
    /// The device cannot be opened, is too small, or does not take what is written.
    pub fn begin(
        stacks: &'a dyn Stacks,
        plan: EndurePlan,
        progress: &Progress,
    ) -> Result<Self, LabError> {
        let prepared = stacks.prepare(
            &plan.spec,
            &PrepareOptions {
                size: Some(plan.bytes),
                writes: true,
                destroy_data: true,
            },
        )?;
        let has = prepared.geometry.bytes();
        if plan.bytes > has {
            return Err(LabError::usage(format!(
                "{} has {has} bytes, of which {} are to be used",
                plan.spec, plan.bytes
            )));
        }
        let logical = prepared.geometry.block_size.bytes();
        let run = fastrand::Rng::new().u64(1..);
        let endurance = Self {
            stacks,
            model: Arc::new(Model::new(run, logical, plan.bytes / u64::from(logical))),
            plan,
            logical,
            tally: Tally::default(),
        };
        let fill = Fill {
            name: "load".into(),
            spec: endurance.plan.spec.clone(),
            bytes: endurance.plan.bytes,
            seed: endurance.plan.seed,
        };
        fill.stamp(stacks, &endurance.model, progress)?;
        Ok(endurance)
    }

    /// Loads the device while `meanwhile` happens.
    ///
    /// # Errors
    /// The load's, or those of `meanwhile`.
    pub fn during<T>(
        &mut self,
        meanwhile: impl FnOnce(&Pulse) -> Result<T, LabError>,
    ) -> Result<(T, Endured), LabError> {
        let (stop, pulse) = (Arc::new(AtomicBool::new(false)), Arc::new(Pulse::new()));
        let jobs = self.jobs(&stop, &pulse)?;
        let threads = Threads {
            stacks: self.stacks,
            spec: &self.plan.spec,
            size: Some(self.plan.bytes),
            cpus: &[],
            model: Some(&self.model),
        };
        let (told, outcome) = std::thread::scope(|scope| {
            let load = scope.spawn(|| threads.run(&jobs));
            let told = meanwhile(&pulse);
            stop.store(true, Ordering::SeqCst);
            let lost = || Err(LabError::environment("a load thread panicked"));
            (told, load.join().unwrap_or_else(|_| lost()))
        });
        let told = told.map_err(|error| with_load(error, outcome.as_ref()))?;
        let outcome = outcome?;
        self.tally.merge(outcome.tally);
        let measured = outcome.measured;
        let slowest = measured.reads.max().max(measured.writes.max());
        let losses = outcome.losses.iter().map(LabError::to_string);
        Ok((
            told,
            Endured {
                answers: pulse.answers(),
                slowest: Duration::from_nanos(slowest),
                errors: measured.errors,
                problems: measured.examples.iter().cloned().chain(losses).collect(),
            },
        ))
    }

    fn jobs(&self, stop: &Arc<AtomicBool>, pulse: &Arc<Pulse>) -> Result<Vec<Job>, LabError> {
        let plan = &self.plan;
        let cell = CellSpec {
            pattern: Pattern::RandRw,
            read_pct: plan.read_pct,
            block_bytes: plan.block_bytes,
            threads: plan.threads,
            depth: plan.depth,
            sync: false,
        };
        let job = |thread| {
            Ok(Job {
                cell,
                thread,
                logical: self.logical,
                area: Area::of(&cell, thread, plan.bytes, true)?,
                sync: true,
                access: Access {
                    distribution: Distribution::Uniform,
                    think: plan.think,
                    ..Access::default()
                },
                rate: None,
                warmup: Duration::ZERO,
                measure: FOREVER,
                seed: plan.seed.wrapping_add(u64::from(thread) << 32),
                stop: Some(stop.clone()),
                pulse: Some(pulse.clone()),
                live: None,
            })
        };
        (0..plan.threads).map(job).collect()
    }

    /// Reads everything back, when nothing is under way.
    ///
    /// # Errors
    /// The device cannot be opened any more.
    pub fn read_back(&mut self) -> Result<VerifyResult, LabError> {
        let blocks = self.plan.bytes / u64::from(self.logical);
        let checked = self.tally.checked;
        let tally = &mut self.tally;
        let (stacks, model) = (self.stacks, &self.model);
        let options = pass_options(self.plan.bytes, false);
        let unreadable = on_own_thread(|| {
            let mut worker = stacks.open(&self.plan.spec, &options)?;
            let pass = Pass::new(&mut *worker, blocks)?;
            pass.read_back(model, tally, &mut |_| Ok(()))
        })?;
        Ok(VerifyResult {
            run: format!("{:016x}", self.model.run()),
            blocks_checked: checked,
            blocks_read_back: self.tally.checked - checked,
            unreadable: unreadable.len() as u64,
            failures: self.tally.failures,
            examples: self.tally.examples.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Measured, SeriesShape};

    #[test]
    fn what_fails_beside_a_load_says_what_the_load_has_met() {
        let failed = || LabError::check("no answers");
        let ended = LabError::environment("the path is gone");
        let all = with_load(failed(), Err(&ended));
        let whole = LabError::check("no answers\nthe load ended: the path is gone");
        assert_eq!(all, whole);
        let mut outcome = Outcome {
            measured: Measured::new(SeriesShape::of(Duration::from_secs(1))).expect("histograms"),
            tally: Tally::default(),
            losses: Vec::new(),
            clients: Vec::new(),
        };
        assert_eq!(with_load(failed(), Ok(&outcome)), failed());
        outcome.measured.examples.push("a failed read".into());
        outcome.losses.push(ended);
        let all = with_load(failed(), Ok(&outcome)).to_string();
        let met = "the load met a failed read\na load thread ended: the path is gone";
        assert_eq!(all, format!("no answers\n{met}"));
    }
}
