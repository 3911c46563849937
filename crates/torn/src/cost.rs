//! What torn-page protection costs: the same load with it and without, in turn, on the volume.

use std::path::PathBuf;
use std::sync::Arc;

use ashlar_lab::stats::median;
use ashlar_lab::{Journal, LabError, Turn};
use ashlar_oltp::database::Database;
use ashlar_oltp::result::StepResult;
use ashlar_oltp::server::Server;
use ashlar_oltp::{OltpResult, begin, run};
use ashlar_testbed::process::Attached;
use serde::{Deserialize, Serialize};

use super::load::plan;
use super::place::Place;
use super::seed::{KilledAtEnd, database, server_at, settings};
use super::setting::Setting;

/// What was measured with one of both.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Step {
    full_page_writes: bool,
    repeat: u32,
    nopm: f64,
    tpm: f64,
    /// Log for each transaction, ramp included.
    wal_bytes_per_transaction: f64,
    /// What the volume took for each transaction.
    device_bytes_per_transaction: Option<f64>,
}

/// Medians, and ratios of the pairs.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    pub(super) steps: Vec<Step>,
    pub(super) nopm: Pair,
    pub(super) wal_bytes_per_transaction: Pair,
    pub(super) device_bytes_per_transaction: Option<Pair>,
}

/// A figure with protection and without.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Pair {
    pub(super) on: f64,
    pub(super) off: f64,
    /// Median over the repeats of off / on.
    pub(super) ratio: f64,
    pub(super) ratio_least: f64,
    pub(super) ratio_most: f64,
}

/// The steps of a repeat, as the journal has them.
pub(super) fn turn(repeat: u32) -> Turn {
    Turn {
        configuration: 0,
        cell: "cost".to_owned(),
        repeat,
    }
}

/// Measures the repeats after those that there are, on drives that hold the volume.
pub(super) fn cost(
    drives: &[PathBuf],
    setting: &Setting<'_>,
    journal: &mut Journal,
    had: &mut Vec<[Step; 2]>,
) -> Result<(), LabError> {
    let state = setting.dir.join("cost");
    let served = Place::Volume.serve(drives, &state, false)?;
    let attached = Attached::attach(&served.url, &setting.mount())?;
    let server = server_at(&setting.mount())?;
    let _ended = KilledAtEnd(&server);
    for repeat in had.len() as u32 + 1..=setting.repeats {
        let one = |full_page_writes| -> Result<Step, LabError> {
            setting.progress.go_on()?;
            server.start(Some(settings(full_page_writes)))?;
            let step = measure(&server, full_page_writes, repeat, setting);
            server.stop()?;
            let step = step?;
            setting.progress.say(&format!(
                "cost: full_page_writes {}, repeat {repeat}: {:.0} NOPM, {:.0} bytes of log a transaction",
                if full_page_writes { "on" } else { "off" },
                step.nopm,
                step.wal_bytes_per_transaction
            ));
            Ok(step)
        };
        // Who comes first takes turns, too.
        let first = repeat % 2 == 1;
        let both = [one(first)?, one(!first)?];
        journal.keep(&turn(repeat), &both)?;
        had.push(both);
    }
    attached.detach()?;
    served.stop()?;
    for drive in drives {
        std::fs::remove_file(drive).map_err(|e| LabError::caused(drive.display(), e))?;
    }
    Ok(())
}

fn measure(
    server: &Server,
    full_page_writes: bool,
    repeat: u32,
    setting: &Setting<'_>,
) -> Result<Step, LabError> {
    let opened: Arc<dyn Database> = Arc::new(database(server, setting.progress)?);
    opened.execute("CHECKPOINT")?;
    let mut watcher = opened.watcher()?;
    let mut counts = || -> Result<(i64, u64), LabError> {
        let log = watcher.number("SELECT (pg_current_wal_lsn() - '0/0')::bigint")?;
        Ok((log, watcher.transactions()?.unwrap_or(0)))
    };
    let plan = plan(
        setting.users,
        setting.cost_seconds,
        setting.seed + u64::from(repeat),
    )?;
    let before = counts()?;
    let mut result: OltpResult = begin(opened.as_ref(), &plan)?;
    run(&opened, &plan, &mut result, &setting.progress.quiet())?;
    // Servers add to their count of transactions within about a second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let after = counts()?;
    let Some(step) = result.steps.first().filter(|step| !step.partial) else {
        return Err(LabError::environment(result.head.problems.join("; ")));
    };
    if let Some(text) = step.consistency.complaint() {
        return Err(LabError::check(text));
    }
    let transactions = after.1.saturating_sub(before.1).max(1) as f64;
    Ok(Step {
        full_page_writes,
        repeat,
        nopm: step.nopm,
        tpm: step.tpm,
        wal_bytes_per_transaction: (after.0 - before.0) as f64 / transactions,
        device_bytes_per_transaction: written(step),
    })
}

fn written(step: &StepResult) -> Option<f64> {
    step.device_bytes_per_transaction
        .map(|(_, written)| written)
}

pub(super) fn summed_up(steps: Vec<Step>) -> Option<Cost> {
    let pair = |figure: &dyn Fn(&Step) -> Option<f64>| pair(&steps, figure);
    let nopm = pair(&|step| Some(step.nopm))?;
    let wal_bytes_per_transaction = pair(&|step| Some(step.wal_bytes_per_transaction))?;
    let device_bytes_per_transaction = pair(&|step| step.device_bytes_per_transaction);
    Some(Cost {
        nopm,
        wal_bytes_per_transaction,
        device_bytes_per_transaction,
        steps,
    })
}

fn pair(steps: &[Step], figure: &dyn Fn(&Step) -> Option<f64>) -> Option<Pair> {
    let of = |on: bool| -> Vec<(u32, f64)> {
        let some = steps.iter().filter(|step| step.full_page_writes == on);
        some.filter_map(|step| Some((step.repeat, figure(step)?)))
            .collect()
    };
    let (on, off) = (of(true), of(false));
    let ratios: Vec<f64> = on
        .iter()
        .filter_map(|(repeat, with)| {
            let (_, without) = off.iter().find(|(other, _)| other == repeat)?;
            (*with > 0.0).then_some(without / with)
        })
        .collect();
    if ratios.is_empty() {
        return None;
    }
    let values = |list: &[(u32, f64)]| -> Vec<f64> { list.iter().map(|(_, v)| *v).collect() };
    Some(Pair {
        on: median(&values(&on)),
        off: median(&values(&off)),
        ratio: median(&ratios),
        ratio_least: ratios.iter().copied().reduce(f64::min)?,
        ratio_most: ratios.iter().copied().reduce(f64::max)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_of_one_repeat() {
        let step = |full_page_writes, repeat, nopm| Step {
            full_page_writes,
            repeat,
            nopm,
            tpm: 0.0,
            wal_bytes_per_transaction: 1.0,
            device_bytes_per_transaction: None,
        };
        let steps = vec![
            step(true, 1, 100.0),
            step(false, 1, 150.0),
            step(false, 2, 400.0),
            step(true, 2, 200.0),
            step(true, 3, 100.0),
            step(false, 3, 120.0),
        ];
        let cost = summed_up(steps).expect("measured");
        assert_eq!((cost.nopm.on, cost.nopm.off), (100.0, 150.0));
        assert_eq!((cost.nopm.ratio, cost.nopm.ratio_most), (1.5, 2.0));
        assert!(cost.device_bytes_per_transaction.is_none());
        assert!(summed_up(Vec::new()).is_none());
    }
}
