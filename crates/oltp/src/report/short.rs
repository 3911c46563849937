//! What reports of databases say first.

use std::collections::BTreeMap;

use ashlar_lab::short::{Short, from_to};
use ashlar_lab::stats::{Measure, Ratio, median};
use ashlar_lab::units::{grouped, human_us};

use crate::failover::FailoverResult;
use crate::faults::{Cell, FaultsResult};
use crate::fleet::{FleetResult, FleetStep};
use crate::result::{OltpResult, Summary};
use crate::scan::ScanResult;
use crate::scenario::{Group, ScenarioResult};
use crate::versus::VersusResult;

/// New orders by users.
pub(crate) fn of_run(result: &OltpResult, name: &str) -> Short {
    let all: Vec<&Summary> = result.summary.iter().collect();
    if result.method.mode.starts_with("fixed") {
        let of = |of: &&Summary| {
            let steps = result.whole_steps(of.users);
            median(&steps.map(|step| step.elapsed_s).collect::<Vec<_>>())
        };
        let times: Vec<f64> = all.iter().map(of).collect();
        return Short::alone(
            question("Run time", &users(&all), "user"),
            name,
            seconds(&times),
        );
    }
    let nopm: Vec<f64> = all.iter().map(|of| of.nopm).collect();
    let p95 = all.iter().filter_map(|of| result.p95_us(of.users));
    let p95: Vec<f64> = p95.collect();
    let verdict = format!(
        "{} new orders a minute, 95 % within {}",
        from_to(&nopm, grouped),
        from_to(&p95, human_us)
    );
    Short::alone(question("NOPM", &users(&all), "user"), name, verdict)
}

fn users(all: &[&Summary]) -> Vec<usize> {
    all.iter().map(|of| of.users).collect()
}

/// Run times by readers.
pub(crate) fn of_scan(result: &ScanResult, name: &str) -> Short {
    let readers = result.readers();
    let of = |&readers: &usize| {
        let times: Vec<f64> = result.run_times(readers).iter().map(|of| of.1).collect();
        median(&times)
    };
    let times: Vec<f64> = readers.iter().map(of).collect();
    Short::alone(
        question("Run time", &readers, "reader"),
        name,
        seconds(&times),
    )
}

fn seconds(times: &[f64]) -> String {
    format!("{} s", from_to(times, |time| format!("{time:.2}")))
}

/// `NOPM with 1, 4 users`.
pub(crate) fn question(what: &str, counts: &[usize], one: &str) -> String {
    let told: Vec<String> = counts.iter().map(ToString::to_string).collect();
    let plural = if counts == [1] { "" } else { "s" };
    match counts {
        [] => what.to_owned(),
        _ => format!("{what} with {} {one}{plural}", told.join(", ")),
    }
}

/// Each thing that was compared; each configuration alone where nothing was.
pub(crate) fn of_scenario(result: &ScenarioResult) -> Vec<Short> {
    let compared: Vec<Short> = Group::of(result).iter().flat_map(Group::short).collect();
    if !compared.is_empty() {
        return compared;
    }
    let each = result.configurations.iter().filter_map(|of| {
        let run = of.oltp.as_ref().map(|run| of_run(run, &of.name));
        run.or_else(|| of.scan.as_ref().map(|scan| of_scan(scan, &of.name)))
    });
    each.collect()
}

/// Each part.
pub(crate) fn of_versus(result: &VersusResult) -> Vec<Short> {
    let of = |part: &crate::versus::Part| {
        let ratios: Vec<&Ratio> = part.rows.iter().map(|row| &row.ratio).collect();
        let counts: Vec<usize> = part.rows.iter().map(|row| row.count).collect();
        let one = part.crowd.trim_end_matches('s');
        let what = format!("{}: run time", part.asked());
        let sides = "group against instance";
        Short::of(
            question(&what, &counts, one),
            sides,
            &ratios,
            "step",
            Measure::Time,
        )
    };
    result.parts.iter().map(of).collect()
}

/// Each share of the streams.
pub(crate) fn of_fleet(result: &FleetResult) -> Vec<Short> {
    let mut steps: BTreeMap<std::cmp::Reverse<u32>, Vec<&FleetStep>> = BTreeMap::new();
    for step in &result.steps {
        let share = std::cmp::Reverse(step.percent);
        steps.entry(share).or_default().push(step);
    }
    let of = |steps: &Vec<&FleetStep>| {
        let first = steps.first()?;
        let kept: Vec<f64> = steps.iter().map(|step| step.kept()).collect();
        let tps: Vec<f64> = steps.iter().map(|step| step.tps).collect();
        let question = format!(
            "Do {} % of the streams get a transaction a time?",
            first.percent
        );
        Some(Short {
            question,
            configurations: format!(
                "{} databases, {} streams each",
                first.databases.len(),
                first.streams_told()
            ),
            ratio: from_to(&kept, |kept| format!("{kept:.3}")),
            verdict: format!(
                "{} of {} transactions a second that were asked for",
                from_to(&tps, grouped),
                grouped(first.offered_tps)
            ),
            ..Short::default()
        })
    };
    steps.values().filter_map(of).collect()
}

/// What became of what was acknowledged, and how long it took.
pub(crate) fn of_failover(result: &FailoverResult) -> Vec<Short> {
    if !result.was_looked_at() {
        return Vec::new();
    }
    let pair = "a primary and its standby";
    vec![
        Short::alone(
            "Is what was acknowledged there?",
            pair,
            format!(
                "{} acknowledged, {} missing",
                grouped(result.acknowledged as f64),
                result.missing
            ),
        ),
        Short::alone(
            "When does the standby take writes?",
            pair,
            format!("{:.2} s after the kill", result.promoted_after_s),
        ),
    ]
}

/// Each topology and fault.
pub(crate) fn of_faults(result: &FaultsResult) -> Vec<Short> {
    let of = |cell: &Cell| {
        let gap = cell.spread(|round| round.gap_s);
        let missing = cell.sum(|round| round.missing);
        Short::alone(
            format!(
                "How long are clients not served: {}",
                result.named(cell.fault)
            ),
            cell.topology.to_string(),
            format!(
                "{:.2} s ({:.2} to {:.2}); {missing} acknowledged transactions missing",
                gap.median, gap.least, gap.most
            ),
        )
    };
    result.cells.iter().map(of).collect()
}
