//! Builds a database: parts shared out to loaders, progress, marker last.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use ashlar_lab::units::grouped;
use ashlar_lab::{LabError, Progress};
use serde::{Deserialize, Serialize};

use crate::database::Database;
use crate::generate::{Part, Recipe};
use crate::random::{Constants, Rng};
use crate::schema::{MARKER_TABLE, Marker, Shape, State};
use crate::usage::{Usage, process_cpu_s, unix_us};

/// How a database is built.
#[derive(Clone, Copy, Debug)]
pub struct BuildPlan {
    pub shape: Shape,
    /// Seed of the data.
    pub seed: u64,
    /// Loaders at once; the database may want fewer.
    pub users: usize,
    /// Tables that are in the way may be dropped.
    pub destroy_data: bool,
}

/// What building cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuildResult {
    pub warehouses: i32,
    /// Rows loaded.
    pub rows: u64,
    /// Loaders at once.
    pub users: usize,
    /// Seconds until the last row was loaded.
    pub load_s: f64,
    /// Seconds for everything: tables, rows, keys, statistics.
    pub seconds: f64,
    /// Processor seconds of this process until the last row was loaded.
    pub client_cpu_s: f64,
    /// Rows loaded for each of them.
    pub rows_per_client_cpu_s: f64,
    /// Processor seconds of the server for everything; null if it cannot be told.
    pub server_cpu_s: Option<f64>,
}

/// Builds the schema and its data.
///
/// # Errors
/// A usage error if there is something in the way and `destroy_data` is not set; environment errors
/// from the database.
pub fn build(
    database: &dyn Database,
    plan: &BuildPlan,
    progress: &Progress,
) -> Result<BuildResult, LabError> {
    plan.shape.check()?;
    refuse_what_is_there(database, plan.destroy_data)?;
    let mut watcher = database.watcher()?;
    let place = watcher.place();
    let (start, usage) = (Instant::now(), Usage::now(&place));
    let cpu = process_cpu_s();
    database.create()?;
    let recipe = Recipe {
        shape: plan.shape,
        seed: plan.seed,
        constants: Constants::for_load(&mut Rng::stream(plan.seed, &[0])),
        now_us: unix_us(),
    };
    let users = plan.users.clamp(1, database.most_loaders());
    let rows = load(database, &recipe, &recipe.parts(), users, progress)?;
    let (load_s, client_cpu_s) = (start.elapsed().as_secs_f64(), process_cpu_s() - cpu);
    progress.go_on()?;
    progress.say("making keys and statistics");
    database.finish(&Marker {
        version: Marker::VERSION,
        shape: plan.shape,
        seed: plan.seed,
        constants: recipe.constants,
        rows,
    })?;
    Ok(BuildResult {
        warehouses: plan.shape.warehouses,
        rows,
        users,
        load_s,
        seconds: start.elapsed().as_secs_f64(),
        client_cpu_s,
        rows_per_client_cpu_s: rows as f64 / client_cpu_s.max(1e-9),
        server_cpu_s: Usage::now(&place).since(&usage).server_cpu_s,
    })
}

fn refuse_what_is_there(database: &dyn Database, destroy_data: bool) -> Result<(), LabError> {
    let what = match database.state()? {
        _ if destroy_data => return Ok(()),
        State::Empty => return Ok(()),
        State::Foreign(tables) => {
            let some = tables
                .iter()
                .take(3)
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            format!("has {} tables that are not ours ({some})", tables.len())
        }
        State::HalfBuilt => {
            format!("holds a half-built schema ({MARKER_TABLE} has no row): a build did not end")
        }
        State::Unreadable(why) => format!("holds a schema that cannot be used ({why})"),
        State::Built(marker) => {
            format!(
                "is built already, with {} warehouses",
                marker.shape.warehouses
            )
        }
    };
    Err(LabError::usage(format!(
        "{} {what}; --destroy-data drops the tables of TPC-C and builds them",
        database.target()
    )))
}

/// Loads parts by so many loaders; how many rows they had.
pub(crate) fn load(
    database: &dyn Database,
    recipe: &Recipe,
    parts: &[Part],
    users: usize,
    progress: &Progress,
) -> Result<u64, LabError> {
    progress.start(parts.len() as u64);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let rows = Mutex::new(Ok(0u64));
    let work = || -> Result<(), LabError> {
        let mut loader = database.loader()?;
        while let Some(&part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            progress.go_on()?;
            let count = loader.load(recipe, part)?;
            progress.step(&format!("{part}: {} rows", grouped(count as f64)));
            let mut total = lock(&rows);
            *total = total.clone().map(|rows| rows + count);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..users.min(parts.len()) {
            scope.spawn(|| {
                if let Err(error) = work() {
                    stop.store(true, Ordering::Relaxed);
                    *lock(&rows) = Err(error);
                }
            });
        }
    });
    progress.finish();
    rows.into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
