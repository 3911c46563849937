//! `ashlar lab oltp`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{LabError, Machine, Progress, check_out_dir};
use ashlar_oltp::database::Database;
use ashlar_oltp::scan::{self, ScanPlan, ScanResult};
use ashlar_oltp::scenario::{ScenarioResult, compare_scenarios};
use ashlar_oltp::schema::{Shape, State};
use ashlar_oltp::server::Server;
use ashlar_oltp::{
    BuildPlan, FailoverResult, Logic, OltpResult, Postgres, ResultFile, RunPlan, SavedFile, Sqlite,
    begin, build, built, check, compare, run as drive, run_restored,
};

use super::interrupt::interruptible;
use super::report_path;
use crate::args::{OltpAction, OltpArguments, ScanArguments, SqlLogic};
use crate::exit::Failure;
use crate::output::print;

const DEFAULT_WAREHOUSES: i32 = 4;

pub(super) fn run(arguments: &OltpArguments) -> Result<(), Failure> {
    let plan = plan(arguments)?;
    plan.check()?;
    let runs = matches!(arguments.action, None | Some(OltpAction::Run));
    match &arguments.out {
        Some(dir) => check_out_dir(dir)?,
        None if runs => return Err(Failure::usage("--out DIR: a run needs one")),
        None => {}
    }
    let saved = arguments
        .restore
        .as_deref()
        .map(|path| Saved::of(&arguments.db, path))
        .transpose()?;
    let database = open(&arguments.db, arguments.sql)?;
    let progress = interruptible()?;
    await_ready(database.as_ref(), &arguments.wait, &progress)?;
    let state = database.state()?;
    if arguments.action == Some(OltpAction::Check) {
        return examine(database.as_ref(), &progress);
    }
    let must_build = match arguments.action {
        Some(OltpAction::Build) => true,
        None => state == State::Empty || arguments.destroy_data,
        _ => false,
    };
    let build = must_build
        .then(|| build(database.as_ref(), &build_plan(arguments), &progress))
        .transpose()?;
    same_warehouses(arguments, database.as_ref())?;
    let mut result = begin(database.as_ref(), &plan)?;
    result.build = build;
    let earlier = earlier(arguments)?;
    // Kept even if the run cannot begin.
    if let Some(dir) = arguments.out.as_ref().filter(|_| earlier.is_none()) {
        result.write(dir)?;
    }
    if runs {
        let ran = match &saved {
            Some(saved) => drive_restored(&database, (&plan, saved), &mut result, &progress),
            None => drive(&database, &plan, &mut result, &progress),
        };
        if let Some(mut all) = earlier {
            all.append(result)?;
            result = all;
        }
        if let Some(dir) = &arguments.out {
            result.write(dir)?;
            result.write_report(dir)?;
        }
        ran?;
    }
    finish(&result, arguments.out.as_deref())
}

/// The run to which this one is added.
fn earlier(arguments: &OltpArguments) -> Result<Option<OltpResult>, Failure> {
    let dir = arguments.out.as_deref().filter(|_| arguments.append);
    let dir = dir.filter(|dir| dir.join("result.json").exists());
    Ok(dir.map(OltpResult::load).transpose()?)
}

/// Whether a directory's result is of a database, and not of a device.
pub(super) fn is_ours(dir: &Path) -> bool {
    FailoverResult::is_in(dir)
        || OltpResult::is_in(dir)
        || ScanResult::is_in(dir)
        || ScenarioResult::is_in(dir)
}

/// Whether both are runs of `lab oltp`.
pub(super) fn are_runs(first: &Path, second: &Path) -> bool {
    OltpResult::is_in(first) && OltpResult::is_in(second)
}

/// The comparison of two runs if both are of this kind.
pub(super) fn compared(first: &Path, second: &Path) -> Result<Option<String>, Failure> {
    if ScenarioResult::is_in(first) && ScenarioResult::is_in(second) {
        let (a, b) = (ScenarioResult::load(first)?, ScenarioResult::load(second)?);
        return Ok(Some(compare_scenarios(&a, &b)?));
    }
    match (OltpResult::is_in(first), OltpResult::is_in(second)) {
        (true, true) => Ok(Some(compare(first, second)?.to_string())),
        (false, false) => Ok(None),
        _ => Err(Failure::usage(format!(
            "{} and {}: a sweep and an OLTP run have nothing in common",
            first.display(),
            second.display()
        ))),
    }
}

/// Putting another server back than the one that is driven would spoil both.
fn check_restore(db: &str, dir: &Path) -> Result<(), LabError> {
    let socket = Server::at(dir)?.socket_dir();
    let is_its = db.split(['?', '&']).any(|word| {
        let path = word.strip_prefix("host=");
        path.is_some_and(|path| Path::new(path) == socket)
    });
    if is_its {
        return Ok(());
    }
    Err(LabError::usage(format!(
        "--restore {}: --db {db} is no database of that server (host={})",
        dir.display(),
        socket.display()
    )))
}

/// What is put back before every step.
enum Saved {
    Server(Server),
    File(SavedFile),
}

impl Saved {
    fn of(db: &str, path: &Path) -> Result<Self, LabError> {
        if let Some(("sqlite", file)) = db.split_once(':') {
            return SavedFile::new(file, path).map(Self::File);
        }
        check_restore(db, path)?;
        Server::at(path).map(Self::Server)
    }

    fn is_saved(&self) -> Result<bool, LabError> {
        match self {
            Self::Server(server) => server.status().map(|status| status.saved),
            Self::File(file) => Ok(file.is_saved()),
        }
    }

    fn save(&self) -> Result<(), LabError> {
        match self {
            Self::Server(server) => server.save(),
            Self::File(file) => file.save(),
        }
    }

    fn restore(&self) -> Result<(), LabError> {
        match self {
            Self::Server(server) => server.restore(),
            Self::File(file) => file.restore(),
        }
    }
}

/// Before every step the database is put back to what it was when it was saved, or is now.
fn drive_restored(
    database: &Arc<dyn Database>,
    (plan, saved): (&RunPlan, &Saved),
    result: &mut OltpResult,
    progress: &Progress,
) -> Result<(), LabError> {
    if !saved.is_saved()? {
        progress.doing("the database is saved");
        saved.save()?;
    }
    run_restored(database, plan, result, progress, &mut || saved.restore())
}

/// Waits for a database that is starting up, and says so.
fn await_ready(database: &dyn Database, wait: &str, progress: &Progress) -> Result<(), Failure> {
    let limit = time("--wait", wait)?;
    Ok(database.await_ready(limit, progress)?)
}

pub(super) fn read_all(arguments: &ScanArguments) -> Result<(), Failure> {
    let plan = ScanPlan {
        rows: arguments.rows,
        readers: arguments.readers.clone(),
        repeats: arguments.repeat,
        build_users: Machine::here().cores as usize,
    };
    plan.check()?;
    check_out_dir(&arguments.out)?;
    let database = open(&arguments.db, SqlLogic::Client)?;
    let progress = interruptible()?;
    await_ready(database.as_ref(), &arguments.wait, &progress)?;
    let mut result = scan::begin(database.as_ref(), &plan, &progress)?;
    let read = scan::scan(database.as_ref(), &plan, &mut result, &progress);
    result.write(&arguments.out)?;
    result.write_report(&arguments.out)?;
    let report = report_path(&arguments.out);
    print(&format!("{result}{}\n", report.display()))?;
    Ok(read?)
}

fn open(url: &str, sql: SqlLogic) -> Result<Arc<dyn Database>, Failure> {
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(Arc::new(Sqlite::new(path))),
        Some(("postgres" | "postgresql", _)) => Ok(Arc::new(Postgres::new(url, logic(sql))?)),
        // The rest is not repeated: it may hold a password.
        kind => Err(Failure::usage(format!(
            "--db {}…: must be sqlite:PATH or postgres://…",
            kind.map_or("", |(kind, _)| kind)
        ))),
    }
}

pub(super) fn logic(sql: SqlLogic) -> Logic {
    match sql {
        SqlLogic::Functions => Logic::Functions,
        SqlLogic::Client => Logic::Client,
    }
}

fn plan(arguments: &OltpArguments) -> Result<RunPlan, Failure> {
    let measure = Duration::try_from_secs_f64(arguments.seconds)
        .map_err(|error| Failure::usage(format!("--seconds {}: {error}", arguments.seconds)))?;
    Ok(RunPlan {
        users: arguments.users.clone(),
        ramp: time("--ramp", &arguments.ramp)?,
        measure,
        mode: arguments.mode.parse()?,
        mix: arguments.mix.parse()?,
        all_warehouses: arguments.all_warehouses,
        keying_and_thinking: arguments.think,
        repeats: arguments.repeat,
        seed: arguments.seed,
        slow_down: arguments.slow_down.as_deref().map_or(Ok(0.0), share)?,
    })
}

fn build_plan(arguments: &OltpArguments) -> BuildPlan {
    BuildPlan {
        shape: Shape::tpcc(arguments.warehouses.unwrap_or(DEFAULT_WAREHOUSES)),
        seed: arguments.seed,
        users: arguments
            .build_users
            .unwrap_or(Machine::here().cores as usize),
        destroy_data: arguments.destroy_data,
    }
}

/// Percent, with or without their sign, as a share.
fn share(text: &str) -> Result<f64, Failure> {
    let number = text.trim_end_matches('%').trim().parse::<f64>();
    match number {
        Ok(percent) if percent > 0.0 => Ok(percent / 100.0),
        _ => Err(Failure::usage(format!(
            "--slow-down {text}: must be a percentage such as 10%"
        ))),
    }
}

/// A number with ms, s (or nothing) or m.
pub(super) fn time(option: &str, text: &str) -> Result<Duration, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "{option} {text}: must be a time such as 500ms, 10s, 2m"
        ))
    };
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .unwrap_or((text, 1.0));
    let seconds: f64 = number.trim().parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds * unit).map_err(|_| wrong())
}

fn same_warehouses(arguments: &OltpArguments, database: &dyn Database) -> Result<(), Failure> {
    let found = built(database)?.shape.warehouses;
    match arguments.warehouses {
        Some(wanted) if wanted != found => Err(Failure::usage(format!(
            "--warehouses {wanted}: {} is built with {found}; --destroy-data builds it again",
            database.target()
        ))),
        _ => Ok(()),
    }
}

fn examine(database: &dyn Database, progress: &Progress) -> Result<(), Failure> {
    let marker = built(database)?;
    let mut watcher = database.watcher()?;
    let found = check::check(watcher.as_mut(), &marker.shape, progress)?;
    progress.finish();
    let lines: String = found
        .0
        .iter()
        .map(|(number, text)| format!("{number:>2} {text}\n"))
        .collect();
    print(&lines)?;
    found
        .complaint()
        .map_or(Ok(()), |text| Err(Failure::check(text)))
}

fn finish(result: &OltpResult, dir: Option<&Path>) -> Result<(), Failure> {
    print(&result.text())?;
    if let Some(dir) = dir {
        let report = dir.join("report.html");
        let kept = if report.exists() {
            report
        } else {
            dir.join("result.json")
        };
        print(&format!("{}\n", kept.display()))?;
    }
    if let Some(text) = result.complaint() {
        return Err(Failure::check(text));
    }
    if result.partial {
        return Err(LabError::environment(result.problems.join("; ")).into());
    }
    Ok(())
}
