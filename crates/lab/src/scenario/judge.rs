//! What a scenario asks of its result.

use super::bounds::{Bounds, Claimed};
use super::file::{ClaimSection, ClaimedFigure, PromiseSection, ScenarioFile};
use crate::published::Published;
use crate::result::{CellResult, Check, Finding, RepeatResult, RunResult};
use crate::stats::Ratio;
use crate::units::{grouped, human_us, short_bytes};
use crate::{CellSpec, LabError, Pattern};

/// Adds the scenario's checks and findings to the result.
pub(super) fn judge(
    file: &ScenarioFile,
    table: Option<&Published>,
    result: &mut RunResult,
) -> Result<(), LabError> {
    for promise in &file.promise {
        let check = promised(promise, result)?;
        result.head.checks.push(check);
    }
    let claims = file.claim.iter();
    let claims: Vec<Check> = claims.map(|claim| claimed(claim, result)).collect();
    result.head.checks.extend(claims);
    if let (Some(doubles), [one, two, ..]) = (&file.doubles, &result.configurations[..]) {
        let names = |index: usize| file.configuration.get(index)?.published.clone();
        let published = table
            .zip(names(0))
            .zip(names(1))
            .map(|((t, a), b)| (t, a, b));
        let mut findings = Vec::new();
        for (pattern, block, threads) in rows(&one.cells) {
            let spec = |depth| CellSpec {
                pattern,
                read_pct: pattern.read_pct(100),
                block_bytes: block,
                threads,
                depth,
                sync: false,
            };
            let depths: Vec<u32> = one
                .cells
                .iter()
                .filter(|c| c.spec() == spec(c.depth))
                .map(|c| c.depth)
                .collect();
            let ours = |depth: u32| {
                let found = two.cells.iter().find(|c| c.spec() == spec(depth));
                found?.versus_first.as_ref().map(|ratio| ratio.ratio)
            };
            let theirs = |depth: u32| {
                let (table, a, b) = published.as_ref()?;
                Some(table.find(b, &spec(depth))?.iops / table.find(a, &spec(depth))?.iops)
            };
            let mut text = doubling(&depths, &ours, doubles.at_least);
            if published.is_some() {
                let all: Vec<u32> = (0..12).map(|shift| 1 << shift).collect();
                text += "; published: ";
                text += &doubling(&all, &theirs, doubles.at_least);
            }
            let plural = if threads == 1 { "" } else { "s" };
            let block = short_bytes(u64::from(block));
            let name = format!("{pattern} {block}, {threads} thread{plural}");
            findings.push(Finding { name, text });
        }
        result.findings.append(&mut findings);
    }
    Ok(())
}

/// Pattern, block and threads of the cells, without repetition.
fn rows(cells: &[CellResult]) -> Vec<(Pattern, u32, u32)> {
    let mut rows = Vec::new();
    for cell in cells {
        let row = (cell.pattern, cell.block_bytes, cell.threads);
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows
}

/// The depth from which on every ratio is at least `enough`, in words.
fn doubling(depths: &[u32], ratio: &dyn Fn(u32) -> Option<f64>, enough: f64) -> String {
    let known: Vec<(u32, f64)> = depths
        .iter()
        .filter_map(|&d| Some((d, ratio(d)?)))
        .collect();
    let holds = known
        .iter()
        .rev()
        .take_while(|(_, ratio)| *ratio >= enough)
        .last();
    let best = known.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    match (holds, best) {
        (Some((depth, ratio)), _) => format!("doubles from depth {depth} on ({ratio:.2} x there)"),
        (None, Some((depth, ratio))) => {
            format!("does not double (at most {ratio:.2} x, at depth {depth})")
        }
        (None, None) => "not measured".to_owned(),
    }
}

/// Whether a claim holds: of ratios, unless one is surely beyond what was claimed.
fn claimed(claim: &ClaimSection, result: &RunResult) -> Check {
    let name = &claim.configuration;
    let of = result.configurations.iter().find(|of| of.name == *name);
    let is_meant = |cell: &&CellResult| claim.role.as_ref().is_none_or(|role| cell.role == *role);
    let cells = of.map_or(&[][..], |of| &of.cells[..]);
    let cells: Vec<&CellResult> = cells.iter().filter(is_meant).collect();
    let role = claim.role.iter().map(|role| format!(", {role}"));
    let name = |what: &str| format!("{what} of {name}{}", role.collect::<String>());
    let base = result.configurations.first();
    let base = base.map_or("", |first| &first.name);
    let bounds = Bounds {
        at_least: claim.at_least,
        at_most: claim.at_most,
    };
    match claim.figure {
        ClaimedFigure::Stalled => {
            let (passed, text) = stalls(claim, &cells);
            Check {
                name: name("stalls"),
                passed,
                text,
            }
        }
        ClaimedFigure::Iops => {
            let all = ratios(result, &cells, |repeat| repeat.iops);
            bounds.judge(name("IOPS"), base, &all)
        }
        ClaimedFigure::WriteP95 => {
            let all = ratios(result, &cells, RepeatResult::write_p95_us);
            bounds.judge(name("p95 of writes"), base, &all)
        }
    }
}

fn stalls(claim: &ClaimSection, cells: &[&CellResult]) -> (bool, String) {
    let repeats = || cells.iter().flat_map(|cell| &cell.repeats);
    let stalled: u64 = repeats().map(|repeat| repeat.stalled).sum();
    let longest = repeats().map(|repeat| repeat.max_us).fold(0.0, f64::max);
    let passed = claim.at_most.is_none_or(|most| stalled as f64 <= most);
    let text = format!(
        "{stalled} accesses took longer than 100 ms, the longest {}",
        human_us(longest)
    );
    (passed, if passed { text } else { text + " MISSED" })
}

/// A figure of the meant cells as ratios to the first configuration's.
fn ratios(
    result: &RunResult,
    cells: &[&CellResult],
    figure: fn(&RepeatResult) -> f64,
) -> Vec<Claimed> {
    let first = result.configurations.first();
    let first = first.map_or(&[][..], |first| &first.cells[..]);
    let ratio = |cell: &&CellResult| {
        let base = first.iter().find(|base| base.spec() == cell.spec())?;
        let (base, ours) = base.pairs_of(cell, figure);
        Some(Claimed {
            cell: cell.spec().slug(),
            ratio: Ratio::of(&base, &ours)?,
        })
    };
    cells.iter().filter_map(ratio).collect()
}

fn promised(promise: &PromiseSection, result: &RunResult) -> Result<Check, LabError> {
    let spec = promise.cell()?;
    let first = result.configurations.first();
    let cell = first.and_then(|c| c.cells.iter().find(|cell| cell.spec() == spec));
    let name = format!("promise {}", spec.slug());
    let Some(cell) = cell else {
        return Ok(Check {
            name,
            passed: false,
            text: "not measured".to_owned(),
        });
    };
    let slack = promise.tolerance_pct / 100.0;
    let at_least = |what: &str, promised: Option<f64>, found: f64| {
        promised.map(|promised| {
            let share = 100.0 * found / promised;
            let text = format!(
                "{} of {} {what} ({share:.0} %)",
                grouped(found),
                grouped(promised)
            );
            (found >= promised * (1.0 - slack), text)
        })
    };
    let at_most = |what: &str, promised: Option<f64>, found: f64| {
        promised.map(|promised| {
            let text = format!("{what} {} of {}", human_us(found), human_us(promised));
            (found <= promised * (1.0 + slack), text)
        })
    };
    let parts: Vec<(bool, String)> = [
        at_least("IOPS", promise.iops, cell.iops),
        at_least("MiB/s", promise.mib_s, cell.mib_s),
        at_most("mean latency", promise.latency_us, cell.latency_us.mean),
        at_most("p99 latency", promise.p99_us, cell.latency_us.p99),
    ]
    .into_iter()
    .flatten()
    .collect();
    let passed = parts.iter().all(|(kept, _)| *kept);
    let texts = parts
        .into_iter()
        .map(|(kept, text)| if kept { text } else { text + " MISSED" });
    let text = texts.collect::<Vec<_>>().join("; ");
    let text = if text.is_empty() {
        "nothing was promised".to_owned()
    } else {
        text
    };
    Ok(Check { name, passed, text })
}
