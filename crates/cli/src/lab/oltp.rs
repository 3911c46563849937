//! `ashlar lab oltp`.

use std::path::Path;
use std::time::Duration;

use ashlar_lab::result::RunResult;
use ashlar_lab::{
    Comparison, Kind, LabError, Machine, Progress, ResultFile, check_out_dir, kind_in, new_out_dir,
};
use ashlar_oltp::check::Consistency;
use ashlar_oltp::job::{Done, Job, Part, Saved, open};
use ashlar_oltp::scan::{self, ScanPlan, ScanResult};
use ashlar_oltp::scenario::ScenarioResult;
use ashlar_oltp::schema::Shape;
use ashlar_oltp::{BuildPlan, FleetResult, Logic, OltpResult, RunPlan};

use super::ending;
use super::interrupt::{LastWords, attended};
use crate::args::{OltpAction, OltpArguments, ScanArguments, SqlLogic};
use crate::exit::Failure;
use crate::output::print;

const DEFAULT_WAREHOUSES: i32 = 4;

pub(super) fn run(arguments: &OltpArguments) -> Result<(), Failure> {
    let plan = plan(arguments)?;
    plan.check()?;
    let mut job = job(arguments, plan)?;
    match &job.out {
        Some(dir) if job.append => check_out_dir(dir)?,
        Some(dir) => new_out_dir(dir)?,
        None if job.runs() => return Err(Failure::usage("--out DIR: a run needs one")),
        None => {}
    }
    let restore = arguments.restore.as_deref();
    job.saved = restore
        .map(|path| Saved::of(&arguments.db, path))
        .transpose()?;
    attended(&arguments.db, move |progress, last_words| {
        let told = |so_far: &OltpResult| {
            if let Some(dir) = &job.out {
                ending::last_words(last_words, so_far, dir);
            }
        };
        match job.carry_out(progress, &told)? {
            Done::Checked(found) => show(&found),
            Done::Measured(result, dir) => {
                ending::told(&*result, dir.as_deref())?;
                ending::verdict(&*result)
            }
        }
    })
}

fn job(arguments: &OltpArguments, plan: RunPlan) -> Result<Job, Failure> {
    Ok(Job {
        db: arguments.db.clone(),
        part: arguments.action.map(|action| match action {
            OltpAction::Build => Part::Build,
            OltpAction::Run => Part::Run,
            OltpAction::Check => Part::Check,
        }),
        logic: logic(arguments.sql),
        wait: time("--wait", &arguments.wait)?,
        plan,
        build: build_plan(arguments),
        warehouses: arguments.warehouses,
        saved: None,
        append: arguments.append,
        out: arguments.out.clone(),
    })
}

/// Whether both are runs of `lab oltp`.
pub(super) fn are_runs(first: &Path, second: &Path) -> bool {
    OltpResult::is_in(first) && OltpResult::is_in(second)
}

/// A directory with the kind of its result.
pub(super) fn kind(dir: &Path) -> Result<String, LabError> {
    let kind = kind_in(dir)?;
    Ok(format!("{} ({})", dir.display(), kind.words()))
}

/// The comparison of two runs of one kind.
pub(super) fn compared(first: &Path, second: &Path) -> Result<Comparison, Failure> {
    let (one, other) = (kind_in(first)?, kind_in(second)?);
    let named = |text: &str| {
        let (first, second) = (first.display(), second.display());
        Err(Failure::usage(format!("{first} and {second}: {text}")))
    };
    if let Some(why) = [one, other].into_iter().find_map(not_compared) {
        return named(why);
    }
    if one != other {
        let (one, other) = (one.words(), other.words());
        return named(&format!("{one} and {other} have nothing in common"));
    }
    Ok(match one {
        Kind::Databases => Comparison::load::<ScenarioResult>(first, second)?,
        Kind::Scan => Comparison::load::<ScanResult>(first, second)?,
        Kind::Oltp => Comparison::load::<OltpResult>(first, second)?,
        Kind::Fleet => Comparison::load::<FleetResult>(first, second)?,
        Kind::Versus => ashlar_oltp::versus::compare(first, second)?,
        _ => Comparison::load::<RunResult>(first, second)?,
    })
}

/// Why runs of a kind are not compared, if they are not.
fn not_compared(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Failover | Kind::Faults => {
            Some("runs of `lab failover` are not compared: each says whether anything was lost")
        }
        Kind::TornPages => {
            Some("runs of `lab torn-pages` are not compared: each has its own checks")
        }
        Kind::Ha => Some("runs of `lab ha` are not compared: each says whether anything was lost"),
        Kind::Devices | Kind::Oltp | Kind::Databases | Kind::Scan | Kind::Fleet | Kind::Versus => {
            None
        }
    }
}

pub(super) fn read_all(arguments: &ScanArguments) -> Result<(), Failure> {
    let plan = ScanPlan {
        rows: arguments.rows,
        readers: arguments.readers.clone(),
        repeats: arguments.repeat,
        build_users: Machine::here().cores as usize,
    };
    plan.check()?;
    new_out_dir(&arguments.out)?;
    let owned = arguments.clone();
    attended(&arguments.db, move |progress, last_words| {
        read(&owned, &plan, (progress, last_words))
    })
}

fn read(
    arguments: &ScanArguments,
    plan: &ScanPlan,
    (progress, last_words): (&Progress, &LastWords),
) -> Result<(), Failure> {
    let database = open(&arguments.db, Logic::Client, progress)?;
    database.await_ready(time("--wait", &arguments.wait)?, progress)?;
    let mut result = scan::begin(database.as_ref(), plan, progress)?;
    let mut keep = |so_far: &ScanResult| {
        ending::last_words(last_words, so_far, &arguments.out);
        so_far.write(&arguments.out)
    };
    let read = scan::scan(database.as_ref(), plan, &mut result, (progress, &mut keep));
    result.write(&arguments.out)?;
    result.write_report(&arguments.out)?;
    ending::told(&result, Some(&arguments.out))?;
    Ok(read?)
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
        mode: match arguments.rate {
            Some(rate) => format!("rate:{rate}").parse()?,
            None => arguments.mode.parse()?,
        },
        mix: arguments.mix.parse()?,
        all_warehouses: arguments.all_warehouses,
        pauses: arguments.think.as_deref().map(str::parse).transpose()?,
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

fn show(found: &Consistency) -> Result<(), Failure> {
    let lines = found.0.iter();
    let lines: String = lines
        .map(|(number, text)| format!("{number:>2} {text}\n"))
        .collect();
    print(&lines)?;
    found
        .complaint()
        .map_or(Ok(()), |text| Err(Failure::check(text)))
}
