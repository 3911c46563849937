//! One step: users log in, the ramp begins with the last of them, then it counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_lab::LabError;

use super::measured::Measured;
use super::plan::{Mode, RunPlan};
use super::user::{Crew, Phase, Stage, User};
use crate::database::{Database, Watcher};
use crate::inputs::Kind;
use crate::ledger::Ledger;
use crate::result::StepResult;
use crate::terminal::{Terminal, TerminalSetting};
use crate::usage::{Usage, Used};

/// Users that are told to stop get this long to end their transactions.
const GRACE: Duration = Duration::from_secs(30);
/// Most of a user's stack is for the database's client library.
const STACK: usize = 1 << 20;

/// What is read at the beginning and at the end of the measured time.
struct Mark {
    at: Instant,
    orders: Option<i64>,
    transactions: Option<u64>,
    usage: Usage,
}

impl Mark {
    fn now(watcher: &mut dyn Watcher, place: &crate::database::ServerPlace) -> Self {
        let usage = Usage::now(place);
        let transactions = watcher.transactions().ok().flatten();
        let orders = watcher.next_orders().ok();
        Self {
            at: Instant::now(),
            orders,
            transactions,
            usage,
        }
    }
}

/// Runs one step.
///
/// # Errors
/// If not all users can log in; later trouble is told in the result.
pub(super) fn step(
    database: &Arc<dyn Database>,
    plan: &RunPlan,
    setting: &TerminalSetting,
    ledger: Option<Arc<Ledger>>,
) -> Result<StepResult, LabError> {
    let mut watcher = database.watcher()?;
    let place = watcher.place();
    let empty = Measured::new()?;
    let all_ended = |crew: &Crew| crew.ended == setting.users;
    let stage = Arc::new(Stage::new(plan, setting.users, &empty, ledger));
    let result = log_in(database, setting, &stage);
    if let Err(error) = result {
        stage.enter(Phase::Stop);
        return Err(error);
    }
    // Fixed work is counted from its first transaction on.
    if !matches!(plan.mode, Mode::Fixed(_)) {
        stage.enter(Phase::Ramp);
        stage.wait(plan.ramp, all_ended);
    }
    let first = Mark::now(watcher.as_mut(), &place);
    stage.enter(Phase::Measure);
    let time = match plan.mode {
        Mode::Fixed(_) => Duration::MAX,
        Mode::Timed | Mode::Rate(_) => plan.measure,
    };
    let device_series = watch_device(&stage, time, setting.users, &place);
    let measured = stage.collect(empty)?;
    let missed = stage.missed();
    let last = Mark::now(watcher.as_mut(), &place);
    stage.enter(Phase::Stop);
    let stuck = setting.users - stage.wait(GRACE, all_ended).ended;
    let mut step = outcome(&measured, &first, last);
    step.users = setting.users;
    step.missed = missed;
    step.device_series = device_series;
    if stuck > 0 {
        step.lost_users += stuck;
        step.problems
            .push(format!("{stuck} users did not stop within {GRACE:?}"));
    }
    step.partial = step.lost_users > 0 || step.nopm_source == "client";
    Ok(step)
}

/// Waits for a time, or until all users have ended; what the device did in each whole second of it.
fn watch_device(
    stage: &Stage,
    time: Duration,
    users: usize,
    place: &crate::database::ServerPlace,
) -> Vec<(u64, u64)> {
    let start = Instant::now();
    let mut series = Vec::new();
    let mut before = Usage::device_now(place);
    for second in 1.. {
        let next = time.min(Duration::from_secs(second));
        let crew = stage.wait(next.saturating_sub(start.elapsed()), |crew| {
            crew.ended == users
        });
        let ends = crew.ended == users || start.elapsed() >= time;
        if start.elapsed() >= Duration::from_secs(second) {
            let now = Usage::device_now(place);
            series.extend(
                before
                    .zip(now)
                    .map(|(from, to)| (to.0.saturating_sub(from.0), to.1.saturating_sub(from.1))),
            );
            before = now;
        }
        if ends {
            break;
        }
    }
    series
}

/// Starts the users' threads and waits until all are logged in.
fn log_in(
    database: &Arc<dyn Database>,
    setting: &TerminalSetting,
    stage: &Arc<Stage>,
) -> Result<(), LabError> {
    for number in 0..setting.users {
        let (database, stage) = (Arc::clone(database), Arc::clone(stage));
        let setting = *setting;
        // Not scoped: a user that hangs in a call must not keep the result from being written.
        let spawned = std::thread::Builder::new()
            .name(format!("user-{number}"))
            .stack_size(STACK)
            .spawn(move || {
                live(database.as_ref(), &setting, &stage, number);
                stage.tell(|crew| crew.ended += 1);
            });
        spawned.map_err(|error| LabError::caused(format!("thread of user {number}"), error))?;
    }
    let all = |crew: &Crew| crew.logged_in == setting.users || crew.refused.is_some();
    match stage.wait(Duration::MAX, all).refused {
        Some(error) => Err(LabError::caused("a user could not log in", error)),
        None => Ok(()),
    }
}

/// A user's life: login, work.
fn live(database: &dyn Database, setting: &TerminalSetting, stage: &Stage, number: usize) {
    let session = match database.session() {
        Ok(session) => session,
        Err(error) => {
            return stage.tell(|crew| {
                crew.refused.get_or_insert(error);
            });
        }
    };
    stage.tell(|crew| crew.logged_in += 1);
    let terminal = Terminal::new(setting, number);
    let mut user = User {
        number,
        stage,
        terminal,
        session,
    };
    if let Err(text) = user.work() {
        stage.shard(number).lost(&text);
    }
}

/// The step's figures.
fn outcome(measured: &Measured, first: &Mark, last: Mark) -> StepResult {
    let elapsed_s = (last.at - first.at).as_secs_f64();
    // Never nothing, so that no figure is infinite.
    let minutes = (elapsed_s / 60.0).max(1e-9);
    let counted = first
        .orders
        .zip(last.orders)
        .map(|(from, to)| (to - from).max(0) as f64);
    let (orders, nopm_source) = match counted {
        Some(orders) => (orders, "d_next_o_id"),
        None => (measured.new_orders() as f64, "client"),
    };
    let counted = first.transactions.zip(last.transactions);
    let (transactions, tpm_source) = match counted {
        Some((from, to)) => (to.saturating_sub(from) as f64, "database"),
        None => (measured.transactions() as f64, "client"),
    };
    let Used {
        client_cpu_s,
        server_cpu_s,
        server_reason,
        machine_cpu_pct,
        device,
    } = last.usage.since(&first.usage);
    let each = |bytes: u64| bytes as f64 / (measured.transactions().max(1)) as f64;
    StepResult {
        nopm: orders / minutes,
        nopm_source: nopm_source.into(),
        tpm: transactions / minutes,
        tpm_source: tpm_source.into(),
        elapsed_s,
        transactions: Kind::ALL
            .into_iter()
            .map(|kind| (kind.name().to_owned(), measured.of(kind)))
            .collect(),
        server_cpu_s,
        server_cpu_reason: server_reason,
        client_cpu_s,
        machine_cpu_pct,
        new_orders_per_client_cpu_s: orders / client_cpu_s.max(1e-9),
        new_orders_per_server_cpu_s: server_cpu_s.filter(|&s| s > 0.0).map(|s| orders / s),
        device_bytes_per_transaction: device
            .read_bytes
            .zip(device.write_bytes)
            .map(|(read, written)| (each(read), each(written))),
        device,
        series: measured.series().to_vec(),
        lost_users: measured.lost_users,
        problems: measured.problems().to_vec(),
        ..StepResult::default()
    }
}
