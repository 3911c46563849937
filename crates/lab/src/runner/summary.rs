//! From repeats to a cell, and from cells to what a reader must know.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::setup::Setup;
use super::{Detail, Run};
use crate::measure::Measured;
use crate::result::{Apart, CellResult, LatencyUs, ProcedureNote, RepeatResult, RunResult};
use crate::stats::{Ratio, correct, mean, median, spread};
use crate::steady::is_steady;
use crate::{CellSpec, SweepPlan};

const MIB: f64 = (1 << 20) as f64;
/// An access that takes longer was stalled.
const STALL_NS: u64 = 100_000_000;
/// A result of more than this share of the lab's own ceiling is flagged.
const NEAR_CEILING: f64 = 0.5;

/// A cell's figures on a configuration; `None` if nothing was measured.
pub(super) fn cell(
    run: &Run<'_>,
    setup: &Setup,
    configuration: usize,
    cell: &CellSpec,
) -> Option<CellResult> {
    let of_cell = |d: &&Detail| d.configuration == configuration && d.cell == *cell;
    let repeats: Vec<RepeatResult> = run
        .details
        .iter()
        .filter(of_cell)
        .map(|detail| detail.result.clone())
        .collect();
    if repeats.is_empty() {
        return None;
    }
    let all = |of: fn(&RepeatResult) -> f64| repeats.iter().map(of).collect::<Vec<f64>>();
    let iops = all(|r| r.iops);
    let cpu: Vec<f64> = repeats.iter().filter_map(|r| r.cpu_pct).collect();
    let cpu_pct = (!cpu.is_empty()).then(|| median(&cpu));
    let storage: Vec<f64> = repeats
        .iter()
        .filter_map(RepeatResult::storage_cpu_pct)
        .collect();
    let storage_cpu_pct = (!storage.is_empty()).then(|| median(&storage));
    let middle = median(&iops);
    let role = run
        .plan
        .matrices
        .iter()
        .find(|matrix| matrix.cells().any(|c| c == *cell));
    let for_1_pct = |pct: Option<f64>| {
        let pct = pct.filter(|&pct| pct > 0.0);
        pct.map(|pct| middle / f64::from(setup.machines) / pct)
    };
    Some(CellResult {
        pattern: cell.pattern,
        read_pct: cell.read_pct,
        block_bytes: cell.block_bytes,
        threads: cell.threads,
        depth: cell.depth,
        sync: cell.sync,
        procedure: procedure(run.plan, cell),
        nodes: setup.nodes,
        iops: middle,
        mib_s: median(&all(|r| r.mib_s)),
        latency_us: LatencyUs::middle(repeats.iter().map(|r| &r.latency_us)),
        cpu_pct,
        iops_per_cpu_pct: for_1_pct(cpu_pct),
        storage_cpu_pct,
        iops_per_storage_cpu_pct: for_1_pct(storage_cpu_pct),
        reads: middle_apart(repeats.iter().filter_map(|r| r.reads)),
        writes: middle_apart(repeats.iter().filter_map(|r| r.writes)),
        mean: mean(&iops),
        median: middle,
        spread: spread(&iops),
        steady: repeats.iter().all(|r| r.steady),
        role: role.map_or_else(String::new, |matrix| matrix.role.clone()),
        settled: setup
            .told_settled
            .get(&super::turn::kind(cell))
            .copied()
            .filter(|_| cell.writes()),
        errors: repeats
            .iter()
            .fold(0, |all, one| one.errors.saturating_add(all)),
        partial: repeats.len() < run.plan.measuring(cell).repeats as usize
            || repeats.iter().any(|r| r.lost_workers > 0),
        versus_first: None,
        published: None,
        repeats,
    })
}

/// How a cell was measured, if not as the plan has it for all.
fn procedure(plan: &SweepPlan, cell: &CellSpec) -> Option<ProcedureNote> {
    let own = plan.measuring(cell);
    let is_own = (own.measure, own.warmup, own.rate) != (plan.measure, plan.warmup, plan.rate)
        || own.precondition.is_some();
    is_own.then(|| ProcedureNote {
        seconds: own.measure.as_secs_f64(),
        warmup_s: own.warmup.as_secs_f64(),
        rate: own.rate,
        precondition: own.precondition.map(|before| before.words()),
    })
}

fn middle_apart(all: impl Iterator<Item = Apart>) -> Option<Apart> {
    let all: Vec<Apart> = all.collect();
    (!all.is_empty()).then(|| Apart {
        per_s: median(&all.iter().map(|of| of.per_s).collect::<Vec<_>>()),
        latency_us: LatencyUs::middle(all.iter().map(|of| &of.latency_us)),
    })
}

/// The figures of one repeat.
pub(super) fn repeat(measured: &Measured, number: u32, time: Duration) -> RepeatResult {
    let seconds = time.as_secs_f64();
    let all = measured.all();
    let iops = measured.count() as f64 / seconds;
    let shape = crate::measure::SeriesShape::of(time);
    let is_mixed = !measured.reads.is_empty() && !measured.writes.is_empty();
    let apart = |of: &Histogram<u64>| is_mixed.then(|| between(of, seconds)).flatten();
    RepeatResult {
        repeat: number,
        iops,
        read_iops: measured.sum(|sample| sample.reads) as f64 / seconds,
        write_iops: measured.sum(|sample| sample.writes) as f64 / seconds,
        mib_s: measured.bytes as f64 / seconds / MIB,
        latency_us: LatencyUs::of(&all),
        max_us: all.max() as f64 / 1000.0,
        cpu_pct: measured.cpu_pct,
        load_cpu_pct: measured.load_cpu_pct(),
        others_cpu_pct: measured.others_cpu_pct(),
        reads: apart(&measured.reads),
        writes: apart(&measured.writes),
        steady: measured.lost_workers == 0 && is_steady(&measured.rates(shape.interval)),
        errors: measured.errors,
        stalled: all.count_between(STALL_NS + 1, u64::MAX),
        backlog_max: measured.backlog_max,
        missed: measured.missed,
        lost_workers: measured.lost_workers,
        flushes: between(&measured.flushes, seconds),
        trims: between(&measured.trims, seconds),
        series: Vec::new(),
        clients: Vec::new(),
        unlike: None,
    }
}

fn between(ns: &Histogram<u64>, seconds: f64) -> Option<Apart> {
    (!ns.is_empty()).then(|| Apart {
        per_s: ns.len() as f64 / seconds,
        latency_us: LatencyUs::of(ns),
    })
}

/// Compares every configuration with the first and writes down what a reader must know.
pub(super) fn compare_and_flag(result: &mut RunResult) {
    let mut flags = Vec::new();
    let Some((first, others)) = result.configurations.split_first_mut() else {
        return;
    };
    for cell in others.iter_mut().flat_map(|other| &mut other.cells) {
        let base = first.cells.iter().find(|base| base.spec() == cell.spec());
        cell.versus_first = base.and_then(|base| {
            let (base, ours) = base.pairs(cell);
            Ratio::of(&base, &ours)
        });
    }
    let cells = others.iter_mut().flat_map(|other| &mut other.cells);
    let mut ratios: Vec<&mut Ratio> = cells.filter_map(|of| of.versus_first.as_mut()).collect();
    correct(&mut ratios);
    for other in others {
        for cell in &other.cells {
            let ratio = cell.versus_first.as_ref();
            let why = match ratio.filter(|ratio| ratio.pairs > 1) {
                Some(ratio) if ratio.is_by_chance() => "differs by itself, but not among so many",
                Some(ratio) if ratio.noisy => "the spread is at least the difference",
                _ => continue,
            };
            let words = ratio.map(|ratio| ratio.words(&other.name, &first.name));
            let words = words.unwrap_or_default();
            flags.push(format!("{}: {words} ({why})", cell.spec().slug()));
        }
    }
    for configuration in &result.configurations {
        for cell in &configuration.cells {
            let what = format!("{} {}", configuration.name, cell.spec().slug());
            flags.extend(cell_flags(cell, result).map(|text| format!("{what}: {text}")));
        }
    }
    result.head.flags = flags;
}

fn cell_flags(cell: &CellResult, result: &RunResult) -> impl Iterator<Item = String> {
    let ceiling = result
        .ceiling
        .iter()
        .find(|ceiling| ceiling.threads == cell.threads);
    let near = ceiling.filter(|ceiling| {
        cell.iops > NEAR_CEILING * ceiling.null_iops
            || cell.mib_s > NEAR_CEILING * ceiling.copy_mib_s
    });
    let repeats = cell.repeats.iter();
    let missed = repeats.fold(0_u64, |all, one| all.saturating_add(one.missed));
    // Without a rate, how long accesses take is a question of how many are in flight.
    let is_paced = |cell: &CellResult| {
        let own = cell.procedure.as_ref().and_then(|own| own.rate);
        own.or(result.method.rate).is_some()
    };
    let stalled: u64 = cell.repeats.iter().map(|repeat| repeat.stalled).sum();
    let mut unlike = cell.repeats.iter().filter_map(|repeat| {
        let why = repeat.unlike.as_ref()?;
        Some(format!("repeat {}: {why}", repeat.repeat))
    });
    [
        (!cell.steady).then(|| "throughput was not steady in every repeat".to_owned()),
        (cell.settled == Some(false))
            .then(|| "throughput had not settled within the limit before measuring".to_owned()),
        near.map(|c| {
            format!(
                "more than half of what the lab itself can do ({:.0} IOPS, {:.0} MiB/s)",
                c.null_iops, c.copy_mib_s
            )
        }),
        (missed > 0).then(|| format!("{missed} arrivals of the fixed rate could not be served")),
        (stalled > 0 && is_paced(cell))
            .then(|| format!("{stalled} accesses took longer than 100 ms from when they were due")),
        unlike.next(),
        (cell.errors > 0).then(|| format!("{} accesses failed", cell.errors)),
        cell.partial
            .then(|| "partial: not every repeat or worker finished".to_owned()),
    ]
    .into_iter()
    .flatten()
}
