//! The plots: new orders by users, throughput over time, device and processor by users.

use ashlar_lab::chart::{Axis, Chart, Line};
use ashlar_lab::page::legend;
use ashlar_lab::stats::median;
use maud::{Markup, html};

use super::Shown;
use crate::inputs::Kind;
use crate::result::{OltpResult, StepResult};

/// More than these are folded away.
const MOST_OPEN: usize = 24;
const MIB: f64 = (1 << 20) as f64;

/// Median of a figure over the whole steps of each number of users that has it.
fn by_users(result: &OltpResult, figure: impl Fn(&StepResult) -> Option<f64>) -> Vec<(f64, f64)> {
    let of = |users: usize| {
        let values: Vec<f64> = result.whole_steps(users).filter_map(&figure).collect();
        (!values.is_empty()).then(|| (users as f64, median(&values)))
    };
    result.summary.iter().filter_map(|s| of(s.users)).collect()
}

/// A chart with a line for each run.
pub(super) fn chart(
    shown: &[Shown<'_>],
    unit: &'static str,
    figure: impl Fn(&StepResult) -> Option<f64>,
) -> Chart {
    let lines = shown.iter().enumerate().map(|(color, run)| Line {
        color,
        points: by_users(run.result, &figure),
        dashed: false,
    });
    Chart {
        unit,
        of: "users",
        axis: Axis::Log,
        lines: lines.collect(),
    }
}

fn names<'a>(shown: &'a [Shown<'_>]) -> impl Iterator<Item = &'a str> {
    shown.iter().map(|run| run.name.as_str())
}

/// Users by new orders a minute, and by the latency of new orders.
pub(crate) fn users(shown: &[Shown<'_>]) -> Markup {
    let p95 = |step: &StepResult| Some(step.transactions.get("new_order")?.latency_us.p95 / 1000.0);
    let charts = [
        chart(shown, "NOPM", |step| Some(step.nopm)),
        chart(shown, "ms", p95),
    ];
    html! {
        section {
            h2 { "New orders a minute" }
            p.note {
                @if shown.len() > 1 { (legend(names(shown))) }
                "left NOPM, right the 95th percentile of new orders in milliseconds; a tick for each "
                "number of users, medians over repeats"
            }
            div.card { (Chart::draw(&charts, "NOPM and latency by users")) }
        }
    }
}

/// Device traffic and processor time by users.
pub(crate) fn device_and_processor(shown: &[Shown<'_>]) -> Markup {
    let per = |step: &StepResult| step.device_bytes_per_transaction;
    let device = [
        chart(shown, "KiB", |step| Some(per(step)?.0 / 1024.0)),
        chart(shown, "KiB", |step| Some(per(step)?.1 / 1024.0)),
    ];
    let orders = |step: &StepResult| step.nopm / 60.0 * step.elapsed_s / 1000.0;
    let each = move |step: &StepResult, cpu: f64| (orders(step) > 0.0).then(|| cpu / orders(step));
    let processor = [
        chart(shown, "s", |step| each(step, step.client_cpu_s)),
        chart(shown, "s", |step| each(step, step.server_cpu_s?)),
        chart(shown, "%", |step| step.machine_cpu_pct),
    ];
    html! {
        section {
            h2 { "Device and processor" }
            @if shown.len() > 1 { p.note { (legend(names(shown))) } }
            div.plots {
                @if device.iter().any(has_points) {
                    div.card {
                        h3 { "Device: KiB read, KiB written for each transaction" }
                        (Chart::draw(&device, "device traffic by users"))
                    }
                }
                div.card {
                    h3 {
                        "Processor seconds for 1,000 new orders: client"
                        @if has_points(&processor[1]) { ", server" }
                        "; machine in use"
                    }
                    (Chart::draw(&shown_only(&processor), "processor time by users"))
                }
            }
        }
    }
}

/// Charts that have something to show.
fn shown_only(charts: &[Chart]) -> Vec<Chart> {
    charts
        .iter()
        .filter(|chart| has_points(chart))
        .cloned()
        .collect()
}

fn has_points(chart: &Chart) -> bool {
    chart.lines.iter().any(|line| !line.points.is_empty())
}

/// Throughput over time, of the first repeat of every number of users.
pub(crate) fn over_time(shown: &[Shown<'_>]) -> Markup {
    let steps: Vec<(&str, &StepResult)> = shown
        .iter()
        .flat_map(|run| {
            let first = run.result.steps.iter().filter(|step| step.repeat == 1);
            first.map(|step| (run.name.as_str(), step))
        })
        .filter(|(_, step)| step.series.len() > 1)
        .collect();
    if steps.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Over time" }
            p.note {
                "The first repeat: left transactions a second, right MiB a second that the device "
                span class="dot s0" {} "read and " span class="dot s1" {} "wrote"
            }
            (cards(steps.get(..MOST_OPEN).unwrap_or(&steps)))
            @if let Some(more) = steps.get(MOST_OPEN..).filter(|more| !more.is_empty()) {
                details {
                    summary { (more.len()) " more plots" }
                    (cards(more))
                }
            }
        }
    }
}

fn cards(steps: &[(&str, &StepResult)]) -> Markup {
    html! {
        div.plots {
            @for (name, step) in steps {
                div.card {
                    h3 { (name) ", " (step.users) " users" }
                    (of_step(step))
                }
            }
        }
    }
}

/// One step's throughput over time.
pub(super) fn of_step(step: &StepResult) -> Markup {
    Chart::draw(&series(step), "throughput over time")
}

fn series(step: &StepResult) -> Vec<Chart> {
    // What was completed in a last second that was not a whole one says nothing.
    let whole = step.series.len().min((step.elapsed_s as usize).max(1));
    let of = |unit, lines| Chart {
        unit,
        of: "second",
        axis: Axis::Linear,
        lines,
    };
    let line = |color, values: &mut dyn Iterator<Item = f64>| Line {
        color,
        points: (1..).map(f64::from).zip(values).collect(),
        dashed: false,
    };
    let done = line(2, &mut step.series[..whole].iter().map(|&n| n as f64));
    let mut charts = vec![of("tx/s", vec![done])];
    let device = &step.device_series;
    if !device.is_empty() {
        let read = line(0, &mut device.iter().map(|d| d.0 as f64 / MIB));
        let written = line(1, &mut device.iter().map(|d| d.1 as f64 / MIB));
        charts.push(of("MiB/s", vec![read, written]));
    }
    charts
}

/// The 95th percentile of each kind of transaction by users, of one run.
pub(super) fn latency(result: &OltpResult) -> Markup {
    let lines = Kind::ALL.iter().enumerate().map(|(color, kind)| Line {
        color,
        points: by_users(result, |step| {
            Some(step.transactions.get(kind.name())?.latency_us.p95 / 1000.0)
        }),
        dashed: false,
    });
    let chart = Chart {
        unit: "ms",
        of: "users",
        axis: Axis::Log,
        lines: lines.collect(),
    };
    Chart::draw(&[chart], "95th percentile by users")
}
