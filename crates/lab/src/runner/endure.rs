//! A checking load that goes on, whatever happens to the storage meanwhile, until it is told to end; then everything is
//! read back.

use std::ops::Add;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::pass::Pass;
use super::setup::{Fill, on_own_thread, pass_options};
use super::threads::{Outcome, Threads};
use crate::access::{Access, Distribution};
use crate::result::VerifyResult;
use crate::verify::{Failures, Model, Tally};
use crate::workload::{Area, Job};
use crate::{CellSpec, LabError, Pattern, PrepareOptions, Progress, Stacks};

/// A load ends when it is told to; this is only later than any of them. It has a place in memory for each second.
const FOREVER: Duration = Duration::from_secs(7 * 86_400);

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
    /// Each may be a host of its own: one that hangs is not made up for by others.
    threads: Vec<Beat>,
}

/// What a load thread is at.
#[derive(Debug, Default)]
struct Beat {
    answers: AtomicU64,
    /// When the last answer came, and the longest time between two, in nanoseconds.
    last: AtomicU64,
    longest: AtomicU64,
    found: Mutex<Found>,
}

/// What a load has found wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Blocks that did not hold what was acknowledged.
    pub lost: u64,
    /// Blocks that held less than what was read of them before.
    pub reverted: u64,
    /// Accesses that ended with an error.
    pub errors: u64,
}

impl Found {
    pub(crate) fn of(failures: &Failures, errors: u64) -> Self {
        Self {
            lost: failures.total() - failures.stale,
            reverted: failures.stale,
            errors,
        }
    }
}

impl Add for Found {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            lost: self.lost + other.lost,
            reverted: self.reverted + other.reverted,
            errors: self.errors + other.errors,
        }
    }
}

impl Pulse {
    fn new(threads: u32) -> Self {
        Self {
            begun: Instant::now(),
            threads: (0..threads).map(|_| Beat::default()).collect(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Accesses of a thread have ended well.
    pub(crate) fn answered(&self, thread: u32, count: u64) {
        let Some(beat) = self.threads.get(thread as usize).filter(|_| count > 0) else {
            return;
        };
        let now = self.now();
        let before = beat.last.swap(now, Ordering::SeqCst);
        beat.longest
            .fetch_max(now.saturating_sub(before), Ordering::SeqCst);
        beat.answers.fetch_add(count, Ordering::SeqCst);
    }

    /// What a thread has found wrong since it began.
    pub(crate) fn found_so_far(&self, thread: u32, found: Found) {
        if let Some(beat) = self.threads.get(thread as usize) {
            *beat.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
    }

    /// What all of them have found wrong so far.
    pub fn found(&self) -> Found {
        let each = self.threads.iter().map(|beat| &beat.found);
        let each = each.map(|found| *found.lock().unwrap_or_else(PoisonError::into_inner));
        each.fold(Found::default(), Add::add)
    }

    /// Accesses that have ended well so far, by thread.
    pub fn answers(&self) -> Vec<u64> {
        let each = self.threads.iter().map(|beat| &beat.answers);
        each.map(|answers| answers.load(Ordering::SeqCst)).collect()
    }

    /// How long there has been no answer to a thread now: to the one that waits longest.
    pub fn silence(&self) -> Duration {
        let now = self.now();
        let each = self
            .threads
            .iter()
            .map(|beat| beat.last.load(Ordering::SeqCst));
        let longest = each.map(|last| now.saturating_sub(last)).max();
        Duration::from_nanos(longest.unwrap_or_default())
    }

    /// The longest time in which a thread had no answer since this was asked last, up to now.
    pub fn take_gap(&self) -> Duration {
        let open = self.silence();
        let each = self.threads.iter().map(|beat| &beat.longest);
        let longest = each.map(|longest| longest.swap(0, Ordering::SeqCst)).max();
        open.max(Duration::from_nanos(longest.unwrap_or_default()))
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
            measured,
            tally,
            losses,
            ..
        }) => {
            let wrong = tally.examples.iter().map(|one| {
                let (lba, expected, found) = (one.lba, &one.expected, &one.found);
                format!("block {lba}: {expected} was expected, {found} found")
            });
            let examples = wrong.chain(measured.examples.iter().cloned());
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
        let (stop, pulse) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(Pulse::new(self.plan.threads)),
        );
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
                answers: pulse.answers().iter().sum(),
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

    #[test]
    fn a_thread_that_hangs_is_not_made_up_for_by_another() {
        let pulse = Pulse::new(2);
        // The later bound is of time in which this thread may not run.
        let (early, late) = (Duration::from_millis(20), Duration::from_millis(700));
        pulse.answered(1, 1);
        while pulse.begun.elapsed() < late {
            pulse.answered(0, 1);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(pulse.silence() > early && pulse.take_gap() > early);
        let answers = pulse.answers();
        assert!(answers[0] > 1 && answers[1] == 1, "{answers:?}");
        pulse.answered(1, 1);
        assert!(pulse.take_gap() > early, "the longest since it was asked");
        pulse.answered(0, 1);
        pulse.answered(1, 1);
        assert!(pulse.take_gap() < late);
    }

    #[test]
    fn what_is_found_under_load_is_known_while_it_goes_on_and_told_if_that_fails() {
        // Reads come back older than what was acknowledged.
        let mut model = crate::simulated::Model::new(1 << 20, Duration::from_micros(100), 4);
        model.lose_every = 7;
        let stacks = crate::simulated::Simulated::new().with("a", model);
        let plan = EndurePlan {
            spec: "a".into(),
            bytes: 1 << 20,
            block_bytes: 4096,
            threads: 2,
            depth: 2,
            read_pct: 50,
            think: Duration::ZERO,
            seed: 1,
        };
        let mut load = Endurance::begin(&stacks, plan, &Progress::silent()).expect("filled");
        let mut seen = Found::default();
        let failed = load.during(|pulse| {
            let begun = Instant::now();
            while seen.lost == 0 && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(5));
                seen = pulse.found();
            }
            Err::<(), _>(LabError::environment("interrupted"))
        });
        assert!(seen.lost > 0, "{seen:?}");
        let text = failed.expect_err("it was").to_string();
        assert!(text.contains("the load met block "), "{text}");
    }
}
