//! `ashlar lab oltp`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::result::RunResult;
use ashlar_lab::{
    Comparison, Kind, LabError, LatencyLog, Machine, Progress, ResultFile, check_out_dir, kind_in,
};
use ashlar_oltp::database::{Database, Description};
use ashlar_oltp::scan::{self, ScanPlan, ScanResult};
use ashlar_oltp::scenario::ScenarioResult;
use ashlar_oltp::schema::{Shape, State};
use ashlar_oltp::server::Server;
use ashlar_oltp::{
    Around, BuildPlan, Logic, MariaDb, Null, OltpResult, Postgres, Restore, RunPlan, SavedFile,
    SqlServer, Sqlite, begin, build, built, check, planned, run_with,
};

use super::ending;
use super::interrupt::{LastWords, attended};
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
    let owned = arguments.clone();
    attended(&arguments.db, move |progress, last_words| {
        work(&owned, &plan, saved, (progress, last_words))
    })
}

fn work(
    arguments: &OltpArguments,
    plan: &RunPlan,
    saved: Option<Saved>,
    (progress, last_words): (&Progress, &LastWords),
) -> Result<(), Failure> {
    let runs = matches!(arguments.action, None | Some(OltpAction::Run));
    let database = open(&arguments.db, arguments.sql, progress)?;
    await_ready(database.as_ref(), &arguments.wait, progress)?;
    if arguments.action == Some(OltpAction::Check) {
        return examine(database.as_ref(), progress);
    }
    let saved = saved.filter(|_| runs);
    let earlier = match runs {
        true => earlier(arguments)?,
        false => None,
    };
    let destroys = arguments.destroy_data && arguments.action.is_none();
    let before = Before {
        plan,
        saved: saved.as_ref(),
        earlier: earlier.as_ref(),
    };
    before.check(arguments, database.as_ref())?;
    let is_fresh = match &saved {
        Some(saved) => saved.put_back_first(database.as_ref(), destroys)?,
        None => false,
    };
    let must_build = match arguments.action {
        Some(OltpAction::Build) => true,
        None => destroys || database.state()? == State::Empty,
        _ => false,
    };
    if must_build && is_fresh {
        return Err(Failure::usage(WOULD_REPLACE));
    }
    let build = must_build
        .then(|| build(database.as_ref(), &build_plan(arguments), progress))
        .transpose()?;
    same_warehouses(arguments, database.as_ref())?;
    let mut result = begin(database.as_ref(), plan)?;
    result.build = build;
    if runs {
        let saved = saved.map(|saved| (saved, is_fresh));
        let told = (progress, last_words);
        return measure(arguments, (&database, plan), (saved, earlier), result, told);
    }
    if let Some(dir) = &arguments.out {
        result.write(dir)?;
    }
    finish(&result, arguments.out.as_deref())
}

/// What is restored is not what was just built.
const WOULD_REPLACE: &str = "--restore names what was saved before, which would be put in the place of what is \
    built: remove that copy, or name another";

/// What is known of a run before anything is put back or built over.
struct Before<'a> {
    plan: &'a RunPlan,
    saved: Option<&'a Saved>,
    earlier: Option<&'a OltpResult>,
}

impl Before<'_> {
    /// Refuses what would be refused afterwards, when what was there is gone.
    fn check(&self, arguments: &OltpArguments, database: &dyn Database) -> Result<(), Failure> {
        let copied = match self.saved {
            Some(saved) => saved.warehouses()?,
            None => None,
        };
        if let Some((found, copy)) = &copied {
            let of = format!("--restore {copy}");
            have_warehouses(arguments, (*found, &of), "name another copy")?;
        }
        let Some(earlier) = self.earlier else {
            return Ok(());
        };
        let warehouses = match (copied, arguments.destroy_data, database.state()?) {
            (Some((found, _)), ..) => found,
            (None, false, State::Built(marker)) => marker.shape.warehouses,
            (None, true, _) | (None, _, State::Empty) => {
                arguments.warehouses.unwrap_or(DEFAULT_WAREHOUSES)
            }
            // Told by what comes.
            _ => earlier.method.warehouses,
        };
        let described = self.described(earlier, database)?;
        let mut planned = planned(self.plan, described, warehouses);
        planned.method.restored = self.saved.is_some();
        Ok(earlier.check_alike(&planned)?)
    }

    /// The database as it will be. Settings that go with what is put back or built are asked for afterwards.
    fn described(
        &self,
        earlier: &OltpResult,
        database: &dyn Database,
    ) -> Result<Description, LabError> {
        let target = database.target();
        if target.starts_with("sqlite:") {
            return Ok(Description {
                target,
                ..earlier.database.clone()
            });
        }
        let mut described = database.describe()?;
        if self.saved.is_some() {
            described.settings = earlier.database.settings.clone();
        }
        Ok(described)
    }
}

/// Runs what has begun; what there is is kept after every step.
fn measure(
    arguments: &OltpArguments,
    (database, plan): (&Arc<dyn Database>, &RunPlan),
    (saved, earlier): (Option<(Saved, bool)>, Option<OltpResult>),
    mut result: OltpResult,
    (progress, last_words): (&Progress, &LastWords),
) -> Result<(), Failure> {
    result.method.restored = saved.is_some();
    if let Some(earlier) = &earlier {
        earlier.check_alike(&result)?;
    }
    // A run that has no step has nothing to add, and takes nothing from the one that is there.
    let all = |later: &OltpResult| match earlier.clone() {
        Some(all) if later.steps.is_empty() => Ok(all),
        Some(mut all) => all.append(later.clone()).map(|()| all),
        None => Ok(later.clone()),
    };
    let adds_nothing = |later: &OltpResult| earlier.is_some() && later.steps.is_empty();
    let mut keep = |result: &OltpResult| match &arguments.out {
        Some(_) if adds_nothing(result) => Ok(()),
        Some(dir) => {
            let so_far = all(result)?;
            ending::last_words(last_words, &so_far, dir);
            so_far.write(dir)
        }
        None => Ok(()),
    };
    // Kept even if the run cannot begin.
    keep(&result.so_far())?;
    let (saved, mut is_fresh) = saved.unzip();
    let mut restore = || match &saved {
        Some(_) if is_fresh.take() == Some(true) => Ok(()),
        Some(saved) => saved.ready(progress),
        None => Ok(()),
    };
    let restore: Restore<'_> = &mut restore;
    let around = Around {
        restore: saved.is_some().then_some(restore),
        keep: Some(&mut keep),
        ledger: None,
        log: match &arguments.out {
            Some(dir) => LatencyLog::of(dir, earlier.is_some())?,
            None => LatencyLog::none(),
        },
    };
    let ran = run_with(database, plan, &mut result, progress, around);
    if let Err(error) = &ran {
        result.head.broke_off(error.to_string());
    }
    if adds_nothing(&result) {
        ran?;
        return finish(&result, None);
    }
    let result = all(&result)?;
    if let Some(dir) = &arguments.out {
        result.write(dir)?;
        result.write_report(dir)?;
    }
    ran?;
    finish(&result, arguments.out.as_deref())
}

/// The run to which this one is added.
fn earlier(arguments: &OltpArguments) -> Result<Option<OltpResult>, Failure> {
    let dir = arguments.out.as_deref().filter(|_| arguments.append);
    let dir = dir.filter(|dir| dir.join("result.json").exists());
    Ok(dir.map(OltpResult::load).transpose()?)
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
        _ => Comparison::load::<RunResult>(first, second)?,
    })
}

/// Why runs of a kind are not compared, if they are not.
fn not_compared(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Failover | Kind::Faults => {
            Some("runs of `lab failover` are not compared: each says whether anything was lost")
        }
        Kind::Fleet => Some(
            "runs of fleets are not compared: each says what share of its load it kept up with",
        ),
        Kind::TornPages => {
            Some("runs of `lab torn-pages` are not compared: each has its own checks")
        }
        Kind::Versus => {
            Some("runs of two sides are not compared: compare those of one scenario in each")
        }
        Kind::Ha => Some("runs of `lab ha` are not compared: each says whether anything was lost"),
        Kind::Devices | Kind::Oltp | Kind::Databases | Kind::Scan => None,
    }
}

/// Putting another server back than the one that is driven would spoil both.
fn check_restore(db: &str, dir: &Path) -> Result<(), LabError> {
    let socket = Server::at(dir)?.socket_dir();
    let database = Postgres::new(db, Logic::Client)?;
    if database.socket_dir() == Some(&socket) {
        return Ok(());
    }
    Err(LabError::usage(format!(
        "--restore {}: --db {} is no database of that server (host={})",
        dir.display(),
        database.target(),
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
            Self::File(file) => file.is_saved(),
        }
    }

    /// The warehouses of a copy that is there, and its name. A server's are in a cluster that does not run.
    fn warehouses(&self) -> Result<Option<(i32, String)>, LabError> {
        match self {
            Self::Server(_) => Ok(None),
            Self::File(file) => {
                let marker = file.marker()?;
                Ok(marker
                    .map(|marker| (marker.shape.warehouses, file.copy().display().to_string())))
            }
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

    /// Puts back what was saved, if something was, so that everything is asked of that; whether it did.
    /// What is not ours is left alone.
    fn put_back_first(&self, database: &dyn Database, destroys: bool) -> Result<bool, Failure> {
        if !self.is_saved()? {
            return Ok(false);
        }
        if destroys {
            return Err(Failure::usage(format!("--destroy-data: {WOULD_REPLACE}")));
        }
        if let State::Foreign(_) = database.state()? {
            // Says what is there.
            built(database)?;
        }
        self.restore()?;
        Ok(true)
    }

    /// Puts the database back to what it was when it was saved, or is now.
    fn ready(&self, progress: &Progress) -> Result<(), LabError> {
        if !self.is_saved()? {
            progress.doing("the database is saved");
            self.save()?;
        }
        self.restore()
    }
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
    let database = open(&arguments.db, SqlLogic::Client, progress)?;
    await_ready(database.as_ref(), &arguments.wait, progress)?;
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

fn open(url: &str, sql: SqlLogic, progress: &Progress) -> Result<Arc<dyn Database>, Failure> {
    match url.split_once(':') {
        Some(("sqlite", path)) if !path.is_empty() => Ok(Arc::new(Sqlite::new(path))),
        Some(("postgres" | "postgresql", _)) => {
            Ok(Arc::new(Postgres::new(url, logic(sql))?.until(progress)))
        }
        Some(("mariadb" | "mysql", _)) => Ok(Arc::new(MariaDb::new(url)?)),
        Some(("sqlserver", _)) => Ok(Arc::new(SqlServer::new(url)?.until(progress))),
        Some(("null", warehouses)) => Ok(Arc::new(Null::new(warehouses)?)),
        // The rest is not repeated: it may hold a password.
        kind => Err(Failure::usage(format!(
            "--db {}…: must be sqlite:PATH, postgres://…, mariadb://…, sqlserver://… or null:WAREHOUSES",
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
        mode: match arguments.rate {
            Some(rate) => format!("rate:{rate}").parse()?,
            None => arguments.mode.parse()?,
        },
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
    have_warehouses(
        arguments,
        (found, &database.target()),
        "--destroy-data builds it again",
    )
}

fn have_warehouses(
    arguments: &OltpArguments,
    (found, of): (i32, &str),
    remedy: &str,
) -> Result<(), Failure> {
    match arguments.warehouses {
        Some(wanted) if wanted != found => Err(Failure::usage(format!(
            "--warehouses {wanted}: {of} is built with {found}; {remedy}"
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
    ending::told(result, dir)?;
    ending::verdict(result)
}
