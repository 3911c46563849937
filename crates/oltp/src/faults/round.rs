//! One fault under load, from before it until all is as it was.

use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress};

use super::clients::Clients;
use super::epochs::{epochs, stale_of};
use super::kinds::Fault;
use super::result::Round;
use super::system::System;
use super::watch::{Watch, Watched};
use super::{Due, FaultsPlan, open};
use crate::check::{Consistency, check};
use crate::database::Database;
use crate::inputs::Mix;
use crate::ledger::{Audit, Count};
use crate::random::Rng;
use crate::schema::State;
use crate::server::DATABASE;
use crate::terminal::TerminalSetting;

/// Clients are served again within so long, or the round has failed.
const ROUND_TIMEOUT: Duration = Duration::from_secs(180);
/// Served again: so many transactions in so long, and no failure.
const SERVED_FOR: Duration = Duration::from_secs(1);
const SERVED_LEAST: usize = 5;
/// What lasts as long as it is said to is over so much later: as long as it takes to see that clients are served.
const HOLD_GRACE: Duration = Duration::from_secs(10);
/// A server that serves its clients says what it is within so long.
const SAID_WITHIN: Duration = Duration::from_secs(10);
/// Something is looked for so often.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Rounds number their probes apart.
const PROBES_A_ROUND: i64 = 1 << 32;

/// What was done to whom, and when.
struct Done {
    at: Instant,
    from: String,
    to: Option<String>,
    served_again: bool,
    /// They were not until it was mended.
    outlasted: bool,
    mended_at: Instant,
    /// What copies had been given again before.
    resynced_before: Option<u64>,
}

pub(super) fn round(
    plan: &FaultsPlan,
    system: &dyn System,
    due: &Due,
    progress: &Progress,
) -> Result<Round, LabError> {
    let Due { fault, number, .. } = *due;
    system.await_ready(progress)?;
    let url = system.url(DATABASE);
    let setting = setting(plan, &url, number, progress)?;
    let clients = Clients::new(&url, plan, setting);
    let servers = system.servers(DATABASE).into_iter();
    let servers = servers.map(|(node, url)| Watched { node, url }).collect();
    let watch = Watch::new(servers, first_probe(fault, number));
    let done = std::thread::scope(|scope| {
        for user in 0..plan.users {
            scope.spawn({
                let clients = &clients;
                move || clients.work(user)
            });
        }
        for server in 0..watch.servers() {
            scope.spawn({
                let watch = &watch;
                move || watch.ask(server)
            });
        }
        let done = under_load(plan, system, fault, (&clients, progress));
        let ended = Instant::now();
        clients.end();
        watch.end();
        done.map(|done| (done, ended))
    });
    let (done, ended) = done?;
    let not_ready = match system.await_ready(progress) {
        Ok(()) => None,
        // What was acknowledged is looked for all the same.
        Err(error) => {
            progress.go_on()?;
            Some(error.to_string())
        }
    };
    let whole_after = not_ready.is_none().then(|| done.mended_at.elapsed());
    let resynced = system.resynced_bytes().zip(done.resynced_before);
    let resynced = resynced.map(|(now, before)| now.saturating_sub(before));
    let asked = Asked {
        plan,
        url: &url,
        clients: &clients,
        watch: &watch,
    };
    let looked = asked.audited(progress)?;
    let Count {
        acknowledged,
        missing,
    } = looked.audit.total();
    let due = Duration::from_secs_f64(1.0 / plan.rate);
    let seen = clients.trace.seen(done.at, ended, due);
    let (acks, written) = (clients.trace.acks(), watch.probes());
    let seconds = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
    Ok(Round {
        round: number,
        moved: done.to.as_ref().is_some_and(|to| *to != done.from),
        from: done.from,
        to: done.to,
        served_again: done.served_again,
        outlasted: done.outlasted,
        gap_s: seen.gap.map_or(0.0, seconds),
        silence_s: seconds(seen.silence),
        longest_wait_s: seconds(seen.longest_wait),
        failures: seen.failures,
        texts: seen.texts,
        acknowledged,
        missing,
        kinds: looked.audit.kinds,
        examples: looked
            .audit
            .examples
            .iter()
            .map(ToString::to_string)
            .collect(),
        stale_acknowledged: stale_of(&acks, &written),
        epochs: epochs(&acks, &written),
        both_primaries_s: seconds(watch.both()),
        probes: written.len(),
        probes_missing: looked.probes_missing,
        resynced_bytes: resynced,
        whole_after_s: whole_after.map(seconds),
        not_ready,
        unaudited: looked.unaudited,
        consistency: looked.consistency,
    })
}

/// What the database holds in the end.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) audit: Audit,
    probes_missing: usize,
    consistency: Consistency,
    /// Why that is not known.
    pub(super) unaudited: Option<String>,
}

/// A database that is asked for all that it has acknowledged.
pub(super) struct Asked<'a> {
    pub(super) plan: &'a FaultsPlan,
    pub(super) url: &'a str,
    pub(super) clients: &'a Clients,
    pub(super) watch: &'a Watch,
}

impl Asked<'_> {
    /// What it holds, or why it does not say: that may be what the fault has done, and so is kept.
    pub(super) fn audited(&self, progress: &Progress) -> Result<Looked, LabError> {
        self.look(progress).or_else(|error| {
            progress.go_on()?;
            Ok(Looked {
                audit: self.clients.ledger.unaudited(),
                unaudited: Some(error.to_string()),
                ..Looked::default()
            })
        })
    }

    fn look(&self, progress: &Progress) -> Result<Looked, LabError> {
        let database = open(self.url, self.plan.logic, progress)?;
        let mut watcher = database.watcher()?;
        let audit = self.clients.ledger.audit(watcher.as_mut())?;
        let (_, probes_missing) = self.watch.audit(watcher.as_mut())?;
        Ok(Looked {
            audit,
            probes_missing,
            consistency: check(watcher.as_mut(), &self.plan.shape, progress)?,
            unaudited: None,
        })
    }
}

fn first_probe(fault: Fault, number: u32) -> i64 {
    let faults = Fault::ALL.iter().position(|one| *one == fault).unwrap_or(0);
    (faults as i64 * 100_000 + i64::from(number)) * PROBES_A_ROUND
}

fn setting(
    plan: &FaultsPlan,
    url: &str,
    number: u32,
    progress: &Progress,
) -> Result<TerminalSetting, LabError> {
    let database = open(url, plan.logic, progress)?;
    let constants = match database.state()? {
        State::Built(marker) => marker.constants,
        _ => {
            return Err(LabError::environment(
                "the tables that were built are not there",
            ));
        }
    };
    let mut rng = Rng::stream(plan.seed, &[u64::from(number)]);
    Ok(TerminalSetting {
        shape: plan.shape,
        constants: constants.for_run(&mut rng),
        seed: u64::from(rng.within(0, i32::MAX).unsigned_abs()),
        mix: Mix::TprocC,
        all_warehouses: false,
        users: plan.users,
    })
}

fn under_load(
    plan: &FaultsPlan,
    system: &dyn System,
    fault: Fault,
    (clients, progress): (&Clients, &Progress),
) -> Result<Done, LabError> {
    pause(plan.before, progress)?;
    let from = await_primary(system, progress)?;
    let resynced_before = system.resynced_bytes();
    let at = Instant::now();
    let injected = system.inject(fault, &from);
    let holds = system.topology().holds(fault);
    let wanted = Wanted {
        leaves: fault.must_move().then_some(&*from),
        from: at,
        within: match holds {
            true => plan.hold + HOLD_GRACE,
            false => ROUND_TIMEOUT,
        },
    };
    let served = injected.and_then(|()| {
        if fault == Fault::EtcdDown {
            pause(plan.hold, progress)?;
        }
        served_again(system, &wanted, (clients, progress))
    });
    // Whatever came of it, and before the clients end: a node that comes back must do no harm.
    let mended_at = Instant::now();
    let mended = system.mend(fault, &from);
    let in_time = served?;
    mended?;
    let outlasted = !in_time && holds && {
        let wanted = Wanted {
            leaves: None,
            from: Instant::now(),
            within: ROUND_TIMEOUT,
        };
        served_again(system, &wanted, (clients, progress))?
    };
    let served_again = in_time || outlasted;
    go_on(plan.after, system, progress)?;
    Ok(Done {
        at,
        to: primary_at_last(system, progress)?,
        from,
        served_again,
        outlasted,
        mended_at,
        resynced_before,
    })
}

/// The primary, once it could be lost: after a fault of the store, who it is may not be known for a while.
fn await_primary(system: &dyn System, progress: &Progress) -> Result<String, LabError> {
    let begun = Instant::now();
    loop {
        let primary = system.primary();
        let is_over = begun.elapsed() >= ROUND_TIMEOUT;
        match primary {
            Some(primary) if is_over || system.is_redundant() => return Ok(primary),
            None if is_over => {
                let why = format!(
                    "no primary within {} s before the fault",
                    ROUND_TIMEOUT.as_secs()
                );
                return Err(LabError::environment(why));
            }
            _ => pause(LOOK_EVERY, progress)?,
        }
    }
}

/// The primary after a fault: one that is busy with its clients may not say at once that it is one.
fn primary_at_last(system: &dyn System, progress: &Progress) -> Result<Option<String>, LabError> {
    let begun = Instant::now();
    loop {
        let primary = system.primary();
        if primary.is_some() || begun.elapsed() >= SAID_WITHIN {
            return Ok(primary);
        }
        pause(LOOK_EVERY, progress)?;
    }
}

/// Lets clients go on for a while, and looks at what copies are given.
fn go_on(time: Duration, system: &dyn System, progress: &Progress) -> Result<(), LabError> {
    let begun = Instant::now();
    loop {
        // Counted there.
        let _ = system.resynced_bytes();
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        pause(left.min(LOOK_EVERY), progress)?;
    }
}

/// What is waited for.
struct Wanted<'a> {
    /// A node that must not be the primary any more.
    leaves: Option<&'a str>,
    from: Instant,
    within: Duration,
}

/// Waits until clients are served as before; false if they are not in time.
fn served_again(
    system: &dyn System,
    wanted: &Wanted<'_>,
    (clients, progress): (&Clients, &Progress),
) -> Result<bool, LabError> {
    let has_left = |node: &str| system.primary().is_some_and(|now| now != node);
    while wanted.from.elapsed() < wanted.within {
        pause(LOOK_EVERY, progress)?;
        if wanted.from.elapsed() < SERVED_FOR {
            continue;
        }
        let since = Instant::now() - SERVED_FOR;
        let calm = clients.trace.last_failure().is_none_or(|last| last < since);
        let served = clients.trace.begun_since(since) >= SERVED_LEAST;
        if calm && served && wanted.leaves.is_none_or(has_left) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn pause(time: Duration, progress: &Progress) -> Result<(), LabError> {
    let end = Instant::now() + time;
    loop {
        progress.go_on()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
