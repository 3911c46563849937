//! The death of a primary under load, and the proof that nothing that was acknowledged is lost: new orders, payments
//! and deliveries are written down as they are acknowledged, the primary is killed with all its processes, its
//! synchronous standby is promoted, and each of them is looked for there.
//!
//! A test that never finds anything shows nothing. The standby can be cut off a while before the primary
//! dies: where commits wait for it, the load then stands still and nothing is lost; where they do not
//! ([`Commit::Local`]), whatever is acknowledged meanwhile is lost, and must be found missing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ashlar_lab::short::Short;
use ashlar_lab::{Head, Kind, LabError, Machine, OwnFolder, Progress, ResultFile};
use serde::{Deserialize, Serialize};

use crate::check::{Consistency, check};
use crate::database::{Database, Description};
use crate::inputs::Mix;
use crate::ledger::{Count, Ledger};
use crate::load::{BuildPlan, BuildResult, build};
use crate::postgres::{Logic, Postgres};
use crate::result::StepResult;
use crate::run::{Mode, RunPlan, at_most_a_day, begin, run_with_ledger};
use crate::schema::Shape;
use crate::server::{Commit, DATABASE, Pair, Server, Settings};

/// A load that the death of its database does not end goes on for so long at most.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Orders that only a primary has that is about to die, at least; and how long they may take.
const ENOUGH_TO_LOSE: usize = 10;
/// The wait for the first order looks this often.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What is to be done.
#[derive(Clone, Debug)]
pub struct FailoverPlan {
    /// Where a new folder for the primary is made, and removed afterwards.
    pub primary: PathBuf,
    /// The same for the standby.
    pub standby: PathBuf,
    pub shape: Shape,
    pub users: usize,
    /// From the first order to the death of the primary.
    pub before: Duration,
    /// How long before that the standby receives nothing any more; zero: it does until the end.
    pub cut_off: Duration,
    /// Load on the promoted server.
    pub after: Duration,
    /// What commits wait for.
    pub commit: Commit,
    /// Where the logic runs.
    pub logic: Logic,
    /// PostgreSQL's settings, `name=value`.
    pub set: Vec<String>,
    /// Seed of data and inputs.
    pub seed: u64,
}

/// What came of it: `result.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FailoverResult {
    /// What all results have.
    #[serde(flatten)]
    pub head: Head,
    /// The primary, with its settings while it had a standby.
    pub database: Description,
    /// What commits waited for.
    pub commit: Commit,
    pub warehouses: i32,
    pub users: usize,
    /// Seed of data and inputs.
    pub seed: u64,
    /// What building cost.
    pub build: Option<BuildResult>,
    /// The load that the death of the primary ended.
    pub before: StepResult,
    /// Seconds from the first acknowledged transaction to the kill.
    pub killed_after_s: f64,
    /// Seconds for which the standby had received nothing then; 0 if it was not cut off.
    #[serde(default)]
    pub cut_off_s: f64,
    /// What was acknowledged in these seconds.
    #[serde(default)]
    pub acknowledged_cut_off: usize,
    /// Seconds from the kill until the standby was the primary.
    pub promoted_after_s: f64,
    /// New orders, payments and deliveries that were acknowledged before that.
    pub acknowledged: usize,
    /// Of these, how many the promoted server does not have as they were acknowledged.
    pub missing: usize,
    /// Both, by kind of transaction.
    #[serde(default)]
    pub kinds: BTreeMap<String, Count>,
    /// The first of them.
    pub examples: Vec<String>,
    /// Conditions 1 to 12 on the promoted server, before there is a load on it.
    pub consistency: Consistency,
    /// The load on the promoted server, with conditions 1 to 12 after it.
    pub after: StepResult,
}

/// The death of the primary.
struct Killed {
    /// When the first transaction was acknowledged.
    first: Instant,
    /// When the standby was cut off, and how much was acknowledged before.
    cut_off: Option<(Instant, usize)>,
    at: Instant,
}

/// Keeps what there is of a result.
pub type KeepFailover<'a> = &'a mut dyn FnMut(&FailoverResult) -> Result<(), LabError>;

/// Does it, and gives what came of it. What there is, marked as partial, is given to `keep` after every
/// part. What goes wrong once there is a primary ends it and is told in the
/// result, in `partial` and `problems`; what is missing or inconsistent is in the result, too.
///
/// # Errors
/// What is wrong before that.
pub fn failover(
    plan: &FailoverPlan,
    (progress, keep): (&Progress, KeepFailover<'_>),
) -> Result<FailoverResult, LabError> {
    plan.shape.check()?;
    plan.check_times()?;
    plan.load(plan.before).check()?;
    plan.load(plan.after).check()?;
    let folders = [&plan.primary, &plan.standby].map(|dir| OwnFolder::make(dir));
    let [primary, standby] = folders;
    let (primary, standby) = (primary?, standby?);
    let settings = Settings {
        memory_bytes: None,
        set: plan.set.clone(),
    };
    let (a, b) = (primary.path().join("a"), standby.path().join("b"));
    progress.go_on()?;
    progress.say("a primary is made");
    let mut pair = Pair::start(&a, &b, settings.clone())?;
    let mut result = FailoverResult {
        head: Head::new(Kind::Failover, "Failover under TPROC-C"),
        commit: plan.commit,
        warehouses: plan.shape.warehouses,
        users: plan.users,
        seed: plan.seed,
        ..FailoverResult::default()
    };
    keep(&result.so_far())?;
    if let Err(error) = plan.run(&mut pair, settings, &mut result, (progress, keep)) {
        progress.finish();
        result.head.broke_off(error.to_string());
    }
    Ok(result)
}

fn open(server: &Server, logic: Logic, progress: &Progress) -> Result<Arc<dyn Database>, LabError> {
    let database = Postgres::new(&server.url(DATABASE), logic)?;
    Ok(Arc::new(database.until(progress)))
}

impl FailoverPlan {
    fn run(
        &self,
        pair: &mut Pair,
        settings: Settings,
        result: &mut FailoverResult,
        (progress, keep): (&Progress, KeepFailover<'_>),
    ) -> Result<(), LabError> {
        let database = open(pair.primary(), self.logic, progress)?;
        result.build = Some(build(database.as_ref(), &self.build(), progress)?);
        progress.go_on()?;
        progress.say("its standby is seeded");
        pair.seed(settings, self.commit)?;
        result.database = database.describe()?;
        keep(&result.so_far())?;
        progress.go_on()?;
        let ledger = self.die(pair, &database, result, progress)?;
        keep(&result.so_far())?;
        progress.go_on()?;
        self.look(pair, &ledger, result, progress)
    }

    fn check_times(&self) -> Result<(), LabError> {
        at_most_a_day("--before", self.before)?;
        at_most_a_day("--cut-off", self.cut_off)?;
        at_most_a_day("--after", self.after)
    }

    fn build(&self) -> BuildPlan {
        BuildPlan {
            shape: self.shape,
            seed: self.seed,
            users: Machine::here().cores as usize,
            destroy_data: false,
        }
    }

    fn load(&self, measure: Duration) -> RunPlan {
        RunPlan {
            users: vec![self.users],
            ramp: Duration::ZERO,
            measure,
            mode: Mode::Timed,
            mix: Mix::TprocC,
            all_warehouses: false,
            pauses: None,
            repeats: 1,
            seed: self.seed,
            slow_down: 0.0,
        }
    }

    /// The load, and the death of the primary in the middle of it. When this is over, the standby is the
    /// primary.
    fn die(
        &self,
        pair: &Pair,
        database: &Arc<dyn Database>,
        result: &mut FailoverResult,
        progress: &Progress,
    ) -> Result<Arc<Ledger>, LabError> {
        progress.say("the load begins; the primary is killed in the middle of it");
        let load = self.load(self.before + self.cut_off + LOAD_TIMEOUT);
        let mut run = begin(database.as_ref(), &load)?;
        let ledger = Arc::new(Ledger::default());
        let over = AtomicBool::new(false);
        let (ran, killed) = std::thread::scope(|scope| {
            let killer = scope.spawn(|| self.kill(pair, &ledger, &over));
            let ran = run_with_ledger(database, &load, &mut run, progress, &ledger);
            over.store(true, Ordering::SeqCst);
            (ran, killer.join())
        });
        result.before = run.steps.pop().unwrap_or_default();
        ran?;
        let killed = killed.map_err(|_| LabError::environment("the primary's killer was lost"))?;
        let Some(killed) = killed? else {
            return Err(LabError::environment(format!(
                "the load ended before the primary was killed: {}",
                run.head.problems.join("; ")
            )));
        };
        result.killed_after_s = (killed.at - killed.first).as_secs_f64();
        if let Some((at, before)) = killed.cut_off {
            result.cut_off_s = (killed.at - at).as_secs_f64();
            result.acknowledged_cut_off = ledger.len() - before;
        }
        progress.say("the primary is dead; its standby is promoted");
        pair.standby().promote()?;
        result.promoted_after_s = killed.at.elapsed().as_secs_f64();
        Ok(ledger)
    }

    /// Kills the primary when its time has come; `None` if the load was over before.
    fn kill(
        &self,
        pair: &Pair,
        ledger: &Ledger,
        over: &AtomicBool,
    ) -> Result<Option<Killed>, LabError> {
        let wait = |until: &dyn Fn() -> bool| {
            while !over.load(Ordering::SeqCst) && !until() {
                std::thread::sleep(LOOK_EVERY);
            }
            !over.load(Ordering::SeqCst)
        };
        if !wait(&|| !ledger.is_empty()) {
            return Ok(None);
        }
        let first = Instant::now();
        if !wait(&|| first.elapsed() >= self.before) {
            return Ok(None);
        }
        let mut cut_off = None;
        if !self.cut_off.is_zero() {
            pair.standby().cut_off()?;
            let (at, before) = (Instant::now(), ledger.len());
            cut_off = Some((at, before));
            // Local commits go on; those that wait for the standby do not.
            let enough = || {
                let lost = ledger.len() - before;
                at.elapsed() >= self.cut_off
                    && (self.commit != Commit::Local || lost >= ENOUGH_TO_LOSE)
            };
            if !wait(&enough) {
                return Ok(None);
            }
        }
        let at = Instant::now();
        pair.primary().kill()?;
        Ok(Some(Killed { first, cut_off, at }))
    }

    /// Looks for what was acknowledged on the promoted server, checks it, and works on it.
    fn look(
        &self,
        pair: &Pair,
        ledger: &Ledger,
        result: &mut FailoverResult,
        progress: &Progress,
    ) -> Result<(), LabError> {
        let database = open(pair.standby(), self.logic, progress)?;
        let mut watcher = database.watcher()?;
        let audit = ledger.audit(watcher.as_mut())?;
        Count {
            acknowledged: result.acknowledged,
            missing: result.missing,
        } = audit.total();
        result.kinds = audit.kinds;
        result.examples = audit.examples.iter().map(ToString::to_string).collect();
        result.consistency = check(watcher.as_mut(), &self.shape, progress)?;
        drop(watcher);
        let load = self.load(self.after);
        let mut run = begin(database.as_ref(), &load)?;
        let later = Arc::new(Ledger::default());
        run_with_ledger(&database, &load, &mut run, progress, &later)?;
        result.after = run.steps.pop().unwrap_or_default();
        if run.head.partial {
            return Err(LabError::environment(format!(
                "the promoted server: {}",
                run.head.problems.join("; ")
            )));
        }
        Ok(())
    }
}

impl ResultFile for FailoverResult {
    const KIND: Kind = Kind::Failover;

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn text(&self) -> String {
        self.in_words()
    }

    fn short(&self) -> Vec<Short> {
        crate::report::short::of_failover(self)
    }

    fn html(&self) -> Result<String, LabError> {
        Ok(crate::report::of_failover(self))
    }

    fn complaint(&self) -> Option<String> {
        self.what_is_wrong()
    }
}

impl FailoverResult {
    /// What there is of one that goes on, marked as such.
    fn so_far(&self) -> Self {
        let mut result = self.clone();
        result.head.unfinished();
        result
    }

    /// What is not as it must be; nothing if all is.
    fn what_is_wrong(&self) -> Option<String> {
        let lost = (self.missing > 0).then(|| {
            format!(
                "{} of {} acknowledged transactions are missing: {}",
                self.missing,
                self.acknowledged,
                self.examples.join(", ")
            )
        });
        let at_once = self.consistency.complaint();
        let later = self.after.consistency.complaint();
        let texts: Vec<String> = [lost, at_once, later].into_iter().flatten().collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Whether it was looked for what had been acknowledged.
    pub(crate) fn was_looked_at(&self) -> bool {
        !self.consistency.0.is_empty()
    }

    /// That the standby was cut off, if it was.
    pub(crate) fn cut_off_text(&self) -> Option<String> {
        (self.cut_off_s > 0.0).then(|| {
            format!(
                "the standby had received nothing for {:.1} s, in which {} transactions were acknowledged",
                self.cut_off_s, self.acknowledged_cut_off
            )
        })
    }

    /// The result in words.
    fn in_words(&self) -> String {
        let verdict = match self.missing {
            _ if !self.was_looked_at() => {
                "it was not looked for acknowledged transactions".to_owned()
            }
            0 => format!(
                "none of {} acknowledged transactions is missing",
                self.acknowledged
            ),
            missing => format!(
                "{missing} of {} acknowledged transactions are MISSING",
                self.acknowledged
            ),
        };
        let conditions = match self.consistency.failed().as_slice() {
            _ if !self.was_looked_at() => "nothing was checked".to_owned(),
            [] => "conditions 1 to 12 hold".to_owned(),
            failed => format!("conditions {failed:?} do NOT hold"),
        };
        let cut_off = self
            .cut_off_text()
            .map_or(String::new(), |text| text + "\n");
        let problems = self
            .head
            .problems
            .iter()
            .map(|text| format!("problem: {text}\n"));
        let problems: String = problems.collect();
        format!(
            "{}, {} users, {} warehouses, synchronous_commit={}\n\
             before: {}\n\
             the primary was killed after {:.1} s; its standby was the primary {:.2} s later\n\
             {cut_off}{verdict}; {conditions}\n\
             after: {}\n{problems}",
            self.database.version,
            self.users,
            self.warehouses,
            self.commit.word(),
            self.before.line(),
            self.killed_after_s,
            self.promoted_after_s,
            self.after.line(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_off_is_a_day_at_most() {
        let mut plan = FailoverPlan {
            primary: PathBuf::new(),
            standby: PathBuf::new(),
            shape: Shape::small(1),
            users: 1,
            before: Duration::from_secs(3600),
            cut_off: Duration::ZERO,
            after: Duration::from_secs(1),
            commit: Commit::On,
            logic: Logic::Functions,
            set: Vec::new(),
            seed: 1,
        };
        assert_eq!(plan.check_times(), Ok(()));
        plan.cut_off = Duration::MAX;
        let error = plan.check_times().expect_err("refused").to_string();
        assert!(error.starts_with("--cut-off "), "{error}");
    }
}
