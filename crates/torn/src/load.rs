//! The load under which the power goes: TPROC-C, pages that change all the time, checkpoints one after
//! the other, and a ledger that knows when each of its commits was acknowledged.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashlar_device::record::monotonic;
use ashlar_lab::{LabError, Progress};
use ashlar_oltp::database::Database;
use ashlar_oltp::{Mode, RunPlan, begin, run};

use super::seed::PAGE_ROWS;

/// Between two checkpoints.
const PAUSE: Duration = Duration::from_millis(200);
/// Every so many rows are changed at once: one or two on a page.
const STRIDE: u32 = 5;

/// From when commits of the ledger were asked for to when they were acknowledged, in order.
pub(super) struct Ledger(Vec<Range<u64>>);

impl Ledger {
    /// How many had been acknowledged at a moment.
    pub(super) fn acknowledged(&self, at: u64) -> u64 {
        self.0.partition_point(|commit| commit.end < at) as u64
    }

    pub(super) fn commits(&self) -> &[Range<u64>] {
        &self.0
    }
}

/// Loads the database for a while.
pub(super) fn load(
    database: &Arc<dyn Database>,
    plan: &RunPlan,
    progress: &Progress,
) -> Result<Ledger, LabError> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ledger = scope.spawn(|| write_ledger(database.as_ref(), &stop));
        let pages = scope.spawn(|| change_pages(database.as_ref(), &stop));
        let checkpoints = scope.spawn(|| checkpoint(database.as_ref(), &stop));
        let drove = drive(database, plan, progress);
        stop.store(true, Ordering::Release);
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<(), LabError>>| {
            let dead = || LabError::environment("a part of the load has panicked");
            thread.join().map_err(|_| dead())?
        };
        ended(pages)?;
        ended(checkpoints)?;
        let commits = ledger
            .join()
            .map_err(|_| LabError::environment("the ledger has panicked"))??;
        drove.map(|()| Ledger(commits))
    })
}

fn drive(
    database: &Arc<dyn Database>,
    plan: &RunPlan,
    progress: &Progress,
) -> Result<(), LabError> {
    let mut result = begin(database.as_ref(), plan)?;
    run(database, plan, &mut result, progress)?;
    match result.head.problems.first() {
        Some(problem) => Err(LabError::environment(problem.clone())),
        None => Ok(()),
    }
}

fn write_ledger(database: &dyn Database, stop: &AtomicBool) -> Result<Vec<Range<u64>>, LabError> {
    let mut session = database.watcher()?;
    let mut commits = Vec::new();
    while !stop.load(Ordering::Acquire) {
        let next = commits.len() + 1;
        let begun = monotonic();
        session.number(&format!(
            "INSERT INTO ashlar_ledger VALUES ({next}) RETURNING n"
        ))?;
        commits.push(begun..monotonic());
    }
    Ok(commits)
}

fn change_pages(database: &dyn Database, stop: &AtomicBool) -> Result<(), LabError> {
    let mut session = database.watcher()?;
    for round in 0u32.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let part = round % STRIDE;
        session.number(&format!(
            "WITH changed AS (UPDATE ashlar_pages SET n = n + 1, \
             filler = repeat(md5(random()::text), 20) WHERE id % {STRIDE} = {part} RETURNING 1) \
             SELECT count(*) FROM changed"
        ))?;
    }
    Ok(())
}

fn checkpoint(database: &dyn Database, stop: &AtomicBool) -> Result<(), LabError> {
    while !stop.load(Ordering::Acquire) {
        database.execute("CHECKPOINT")?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// A plan of one step.
pub(super) fn plan(users: usize, seconds: f64, seed: u64) -> Result<RunPlan, LabError> {
    let measure = Duration::try_from_secs_f64(seconds)
        .map_err(|error| LabError::usage(format!("{seconds} seconds: {error}")))?;
    let plan = RunPlan {
        users: vec![users],
        ramp: measure.min(Duration::from_secs(10)) / 5,
        measure,
        mode: Mode::Timed,
        mix: "tproc-c".parse()?,
        all_warehouses: true,
        pauses: None,
        repeats: 1,
        seed,
        slow_down: 0.0,
    };
    plan.check()?;
    Ok(plan)
}

/// What the check of the changed pages' table must count.
pub(super) const ROWS: u32 = PAGE_ROWS;
