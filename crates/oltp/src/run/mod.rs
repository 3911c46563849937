//! A run: steps of users, each logged in, ramped up, measured and checked.

mod looker;
mod measured;
mod plan;
mod remote;
mod span;
mod stage;
mod step;
mod streams;
#[cfg(test)]
mod tests;
mod user;
mod users;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{
    Asked, Head, Journal, Kind, LabError, LatencyLog, Measurement, Nest, Progress, Schedule, Turn,
    Workload, carry_out,
};

pub(crate) use measured::{Measured, NewOrders, PackedMeasured};
pub(crate) use plan::at_most_a_day;
pub use plan::{Mode, RunPlan};
pub(crate) use remote::{Away, Beside, Driven, Elsewhere, drive_elsewhere};
pub(crate) use users::{Part, Shown, Users, Window, Worked};

use crate::aside;
use crate::check::check;
use crate::database::{Database, Description, Sought};
use crate::ledger::Ledger;
use crate::random::Rng;
use crate::result::{Method, OltpResult, StepResult};
use crate::schema::{MARKER_TABLE, Marker, State};
use crate::terminal::TerminalSetting;

/// How long a database that was interrupted may take to recover, before it is checked.
const RECOVERY: Duration = Duration::from_secs(60);

/// The marker of a database that is built.
///
/// # Errors
/// An environment error that says what is there instead.
pub fn built(database: &dyn Database) -> Result<Marker, LabError> {
    let what = match database.state()? {
        State::Built(marker) => return Ok(marker),
        State::Empty => {
            "holds no schema: build it first (`ashlar lab oltp build`, or `lab oltp` without a subcommand)"
                .to_owned()
        }
        State::Foreign(tables) => {
            let some: Vec<&str> = tables.iter().take(3).map(String::as_str).collect();
            format!(
                "has {} tables, none of them ours ({}): name an empty database, or build beside them with \
                 --destroy-data, which drops the tables of TPC-C and no others",
                tables.len(),
                some.join(", ")
            )
        }
        State::Unreadable(why) => {
            format!("holds a schema that cannot be used ({why}): build it again, with --destroy-data")
        }
        State::HalfBuilt => format!(
            "holds a half-built schema ({MARKER_TABLE} has no row): build it again, with \
             --destroy-data"
        ),
    };
    Err(LabError::environment(format!(
        "{} {what}",
        database.target()
    )))
}

/// An empty result of `plan`, to be filled by [`run`].
///
/// # Errors
/// The database is not built, or cannot be asked what it is.
pub fn begin(database: &dyn Database, plan: &RunPlan) -> Result<OltpResult, LabError> {
    let warehouses = built(database)?.shape.warehouses;
    Ok(planned(plan, database.describe()?, warehouses))
}

/// An empty result of `plan` on a database that is, or will be, like this.
pub fn planned(plan: &RunPlan, database: Description, warehouses: i32) -> OltpResult {
    OltpResult {
        head: Head::new(Kind::Oltp, "TPROC-C"),
        database,
        method: Method {
            warehouses,
            mode: plan.mode.to_string(),
            mix: plan.mix,
            ramp_s: plan.ramp.as_secs_f64(),
            seconds: plan.measure.as_secs_f64(),
            users: plan.users.clone(),
            repeats: plan.repeats,
            all_warehouses: plan.all_warehouses,
            keying_and_thinking: plan.pauses.is_some(),
            think_s: plan
                .pauses
                .map_or_else(BTreeMap::new, |pauses| pauses.own()),
            restored: false,
            in_turns: false,
            slow_down_pct: 100.0 * plan.slow_down,
            seed: plan.seed,
        },
        build: None,
        steps: Vec::new(),
        summary: Vec::new(),
        failed: None,
    }
}

/// Runs `plan` and puts what was measured into `result`, which is whole in itself after every step.
/// What goes wrong while measuring ends the run and is told there, in `partial` and `problems`.
///
/// # Errors
/// For what is wrong before anything is measured.
pub fn run(
    database: &Arc<dyn Database>,
    plan: &RunPlan,
    result: &mut OltpResult,
    progress: &Progress,
) -> Result<(), LabError> {
    run_with(database, plan, result, progress, Around::default())
}

/// The same, with everything that is acknowledged written into `ledger`.
///
/// # Errors
/// As [`run`]'s.
pub fn run_with_ledger(
    database: &Arc<dyn Database>,
    plan: &RunPlan,
    result: &mut OltpResult,
    progress: &Progress,
    ledger: &Arc<Ledger>,
) -> Result<(), LabError> {
    let around = Around {
        ledger: Some(Arc::clone(ledger)),
        ..Around::default()
    };
    run_with(database, plan, result, progress, around)
}

/// Puts a database back to what it was.
pub type Restore<'a> = &'a mut dyn FnMut() -> Result<(), LabError>;

/// Keeps what there is of a result.
pub type Keep<'a> = &'a mut dyn FnMut(&OltpResult) -> Result<(), LabError>;

/// What goes on around the steps of a run.
#[derive(Default)]
pub struct Around<'a> {
    /// Before every step. One that fails ends the run like a step that does.
    pub restore: Option<Restore<'a>>,
    /// After every step, and before the first: what there is, marked as partial. If it fails, the run ends.
    pub keep: Option<Keep<'a>>,
    /// Where what is acknowledged is written down.
    pub ledger: Option<Arc<Ledger>>,
    /// Where latencies go.
    pub log: LatencyLog,
    /// Repeats of the run that this one is added to, whose latencies are there already.
    pub repeats_before: u32,
}

impl Around<'_> {
    fn put_back(&mut self, database: &dyn Database) -> Result<(), LabError> {
        match &mut self.restore {
            Some(restore) => restore().and_then(|()| database.prepare_run()),
            None => Ok(()),
        }
    }

    fn keep(&mut self, result: &OltpResult) -> Result<(), LabError> {
        match &mut self.keep {
            Some(keep) => keep(&result.so_far()),
            None => Ok(()),
        }
    }
}

/// What must hold before anything is measured.
pub(crate) fn ready(
    database: &dyn Database,
    plan: &RunPlan,
    result: &mut OltpResult,
) -> Result<Marker, LabError> {
    plan.check()?;
    let marker = built(database)?;
    let most = plan.users.iter().copied().max().unwrap_or(1);
    let sought = Sought {
        option: "--users",
        users: most,
    };
    database.check_users(sought)?;
    database.prepare_run()?;
    result.method.warehouses = marker.shape.warehouses;
    Ok(marker)
}

/// The same, with what goes on around the steps.
///
/// # Errors
/// As [`run`]'s.
pub fn run_with(
    database: &Arc<dyn Database>,
    plan: &RunPlan,
    result: &mut OltpResult,
    progress: &Progress,
    mut around: Around<'_>,
) -> Result<(), LabError> {
    result.method.restored = around.restore.is_some();
    ready(database.as_ref(), plan, result)?;
    around.keep(result)?;
    let schedule = Schedule {
        configurations: 1,
        cells: Asked::all(&plan.users, plan.repeats),
        nest: Nest::RepeatByRepeat,
        seed: plan.seed,
    };
    let mut steps = Steps {
        database,
        plan,
        result,
        around,
        progress,
    };
    let ran = carry_out(&schedule, &mut steps, &mut Journal::none(), progress);
    progress.finish();
    let is_told = result.head.partial || result.steps.last().is_some_and(|step| step.partial);
    if let Err(error) = ran
        && !is_told
    {
        result.head.broke_off(error.to_string());
    }
    result.sum_up();
    Ok(())
}

/// A run as a workload: a turn is a number of users.
struct Steps<'a, 'b> {
    database: &'a Arc<dyn Database>,
    plan: &'a RunPlan,
    result: &'a mut OltpResult,
    around: Around<'b>,
    progress: &'a Progress,
}

impl Workload for Steps<'_, '_> {
    type Outcome = StepResult;

    fn name(&self, turn: &Turn) -> String {
        format!("{} users, repeat {}", turn.cell, turn.repeat)
    }

    fn measure(&mut self, turn: &Turn) -> Result<Measurement<StepResult>, LabError> {
        let stepped = turn
            .number()
            .and_then(|users| self.step(users, turn.repeat));
        let what = self.name(turn);
        let step = stepped.inspect_err(|error| {
            let problem = format!("{what}: {error}");
            if matches!(error, LabError::Check(_)) {
                self.result.failed = Some(problem.clone());
            }
            self.result.head.broke_off(problem);
        })?;
        Ok(step.measurement())
    }

    fn take(&mut self, _: &Turn, step: StepResult) -> Result<(), LabError> {
        self.result.steps.push(step);
        self.around.keep(self.result)
    }
}

impl Steps<'_, '_> {
    /// One step, on a database that was put back if it is to be, and the check after it.
    fn step(&mut self, users: usize, repeat: u32) -> Result<StepResult, LabError> {
        let (database, progress) = (self.database, self.progress);
        self.around.put_back(database.as_ref())?;
        // Only now: what was put back may be another database than the one that was there.
        let marker = built(database.as_ref())?;
        self.result.method.warehouses = marker.shape.warehouses;
        let place = Place {
            users,
            repeat,
            ledger: self.around.ledger.clone(),
        };
        let mut step = drive(database, (self.plan, &marker), place, progress)?;
        examine(database, &marker, &mut step, progress);
        step.log_after(&self.around.log, self.around.repeats_before)?;
        Ok(step)
    }
}

impl StepResult {
    /// What a workload says of it: a step that did not reach its end is a part.
    pub(crate) fn measurement(self) -> Measurement<Self> {
        let line = self.line();
        match self.partial {
            false => Measurement::Whole(self, line),
            true => Measurement::Part(self),
        }
    }
}

/// A step's place in its run.
#[derive(Default)]
pub(crate) struct Place {
    pub(crate) users: usize,
    /// From 1.
    pub(crate) repeat: u32,
    /// Where what is acknowledged is written down.
    pub(crate) ledger: Option<Arc<Ledger>>,
}

/// One step, unchecked.
pub(crate) fn drive(
    database: &Arc<dyn Database>,
    (plan, marker): (&RunPlan, &Marker),
    place: Place,
    progress: &Progress,
) -> Result<StepResult, LabError> {
    let Place {
        users,
        repeat,
        ledger,
    } = place;
    let setting = setting(plan, marker, users, repeat);
    let mut step = step::step(database, (plan, &setting), ledger, progress)?;
    step.repeat = repeat;
    Ok(step)
}

/// What users of a repeat do, by the plan's seed.
pub(crate) fn setting(
    plan: &RunPlan,
    marker: &Marker,
    users: usize,
    repeat: u32,
) -> TerminalSetting {
    let numbers = [users as u64, u64::from(repeat)];
    let mut rng = Rng::stream(plan.seed, &numbers);
    TerminalSetting {
        shape: marker.shape,
        constants: marker.constants.for_run(&mut rng),
        seed: u64::from(rng.within(0, i32::MAX).unsigned_abs()),
        mix: plan.mix,
        all_warehouses: plan.all_warehouses,
        users,
    }
}

/// The check after a step: conditions 1 to 12, of which the step tells.
pub(crate) fn examine(
    database: &Arc<dyn Database>,
    marker: &Marker,
    step: &mut StepResult,
    progress: &Progress,
) {
    if !database.holds_rows() {
        return;
    }
    if step.partial {
        // Give a database that was only interrupted its time; one that is gone is gone.
        std::thread::sleep(Duration::from_millis(200));
    }
    let (asked, shape, quiet) = (Arc::clone(database), marker.shape, progress.quiet());
    let look = move || check(asked.watcher()?.as_mut(), &shape, &quiet);
    let checked = progress
        .go_on()
        .and_then(|()| database.await_ready(RECOVERY, progress))
        .and_then(|()| {
            progress.doing("consistency conditions");
            aside::ask(&database.target(), progress, look)?
        });
    match checked {
        Ok(consistency) => step.consistency = consistency,
        Err(error) => {
            step.partial = true;
            step.problems
                .push(format!("consistency could not be checked: {error}"));
        }
    }
}
