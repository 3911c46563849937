//! The tables: what was measured by users, latency by transaction, consistency.

use ashlar_lab::page::legend;
use ashlar_lab::stats::median;
use ashlar_lab::units::{grouped, human_bytes, human_us};
use maud::{Markup, html};

use super::{Shown, charts};
use crate::inputs::Kind;
use crate::result::{LatencyUs, OltpResult, StepResult};

/// A figure in words, or a dash.
fn or_dash(value: Option<f64>, told: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".into(), told)
}

/// Median of a figure over steps that have it.
fn middle(steps: &[&StepResult], figure: impl Fn(&StepResult) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = steps.iter().filter_map(|step| figure(step)).collect();
    (!values.is_empty()).then(|| median(&values))
}

/// A row for each run and number of users: medians over repeats.
pub(crate) fn summary(shown: &[Shown<'_>]) -> Markup {
    html! {
        div.scroll {
            table.figures {
                thead {
                    tr {
                        @if shown.len() > 1 { th { "run" } }
                        th { "users" } th { "repeats" } th.edge { "NOPM" } th { "spread" } th { "TPM" }
                        th { "run time s" } th.edge { "client CPU s" } th { "server CPU s" }
                        th { "machine CPU %" } th { "NO / client s" } th { "NO / server s" }
                        th.edge { "read / tx" } th { "written / tx" }
                    }
                }
                tbody {
                    @for (index, run) in shown.iter().enumerate() {
                        @for (row, summary) in run.result.summary.iter().enumerate() {
                            tr.block[index > 0 && row == 0] {
                                @if shown.len() > 1 {
                                    td.key { @if row == 0 { (run.name) } }
                                }
                                td.key { (summary.users) } td.key { (summary.repeats) }
                                (figures(run.result, summary.users))
                            }
                        }
                    }
                }
            }
        }
        p.note {
            "Medians over repeats that reached their end; the spread is (largest - smallest) / median. "
            "CPU of client and server is in seconds of the measured time; read and written are what the "
            "device did in all, for each transaction."
        }
    }
}

fn figures(result: &OltpResult, users: usize) -> Markup {
    let steps: Vec<&StepResult> = result.whole_steps(users).collect();
    let summary = result.summary.iter().find(|summary| summary.users == users);
    let middle = |figure: fn(&StepResult) -> Option<f64>| middle(&steps, figure);
    let bytes = |figure: Option<f64>| or_dash(figure, |bytes| human_bytes(bytes as u64));
    let seconds = |figure: Option<f64>| or_dash(figure, |s| format!("{s:.2}"));
    html! {
        td.edge.pct { (or_dash(summary.map(|s| s.nopm), grouped)) }
        td { (or_dash(summary.map(|s| s.spread), |s| format!("{:.1} %", 100.0 * s))) }
        td { (or_dash(summary.map(|s| s.tpm), grouped)) }
        td { (seconds(middle(|step| Some(step.elapsed_s)))) }
        td.edge { (seconds(middle(|step| Some(step.client_cpu_s)))) }
        td { (seconds(middle(|step| step.server_cpu_s))) }
        td { (or_dash(middle(|step| step.machine_cpu_pct), |pct| format!("{pct:.0}"))) }
        td { (or_dash(middle(|step| Some(step.new_orders_per_client_cpu_s)), grouped)) }
        td { (or_dash(middle(|step| step.new_orders_per_server_cpu_s), grouped)) }
        td.edge { (bytes(middle(|step| Some(step.device_bytes_per_transaction?.0)))) }
        td { (bytes(middle(|step| Some(step.device_bytes_per_transaction?.1)))) }
    }
}

/// Latency by transaction: medians over repeats of each percentile.
pub(crate) fn latency(shown: &[Shown<'_>]) -> Markup {
    html! {
        section {
            h2 { "Latency by transaction" }
            p.note {
                (legend(Kind::ALL.iter().map(|kind| kind.name())))
                "95th percentile in milliseconds by users; the tables have medians over repeats"
            }
            @for run in shown {
                @if shown.len() > 1 { h3 { (run.name) } }
                div.plots { div.card { (charts::latency(run.result)) } }
                details open[shown.len() == 1] {
                    summary { "Percentiles by users" }
                    div.scroll { (latencies(run.result)) }
                }
            }
        }
    }
}

fn latencies(result: &OltpResult) -> Markup {
    html! {
        table.figures {
            thead {
                tr {
                    th { "users" } th { "transaction" } th.edge { "count" } th { "mean" } th { "p50" }
                    th { "p95" } th { "p99" } th { "p99.9" } th { "p99.99" } th { "p99.999" } th { "max" } th.edge { "rolled back" } th { "errors" }
                    th { "retries" }
                }
            }
            tbody {
                @for (index, summary) in result.summary.iter().enumerate() {
                    @for (row, kind) in Kind::ALL.iter().enumerate() {
                        tr.block[index > 0 && row == 0] {
                            td.key { @if row == 0 { (summary.users) } }
                            td.key { (kind.name()) }
                            (of_kind(result, summary.users, *kind))
                        }
                    }
                }
            }
        }
    }
}

fn of_kind(result: &OltpResult, users: usize, kind: Kind) -> Markup {
    let steps: Vec<&StepResult> = result.whole_steps(users).collect();
    let all = || steps.iter().filter_map(|s| s.transactions.get(kind.name()));
    let total = |count: fn(&crate::result::KindResult) -> u64| -> f64 {
        all().map(count).sum::<u64>() as f64
    };
    let us = |figure: fn(&LatencyUs) -> f64| {
        let values: Vec<f64> = all().map(|of| figure(&of.latency_us)).collect();
        or_dash((!values.is_empty()).then(|| median(&values)), human_us)
    };
    html! {
        td.edge { (grouped(total(|of| of.count))) }
        td { (us(|l| l.mean)) } td { (us(|l| l.p50)) } td { (us(|l| l.p95)) }
        td { (us(|l| l.p99)) } td { (us(|l| l.p999)) } td { (us(|l| l.p9999)) } td { (us(|l| l.p99999)) }
        td { (us(|l| l.max)) }
        td.edge { (grouped(total(|of| of.rolled_back))) }
        td { (grouped(total(|of| of.errors))) }
        td { (grouped(total(|of| of.retries))) }
    }
}

/// The conditions after every step.
pub(crate) fn consistency(shown: &[Shown<'_>]) -> Markup {
    html! {
        section {
            h2 { "Consistency, conditions 1 to 12 of TPC-C" }
            table.checks {
                tbody {
                    @for run in shown {
                        @for step in run.result.steps.iter().filter(|step| is_told(run.result, step)) {
                            tr {
                                td { (verdict(step)) }
                                th {
                                    @if shown.len() > 1 { (run.name) ", " }
                                    (step.users) " users, repeat " (step.repeat)
                                }
                                td.text { @if let Some(text) = step.consistency.complaint() { (text) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Of turns only the last is followed by a check.
fn is_told(result: &OltpResult, step: &StepResult) -> bool {
    !result.method.in_turns || step.partial || !step.consistency.0.is_empty()
}

fn verdict(step: &StepResult) -> Markup {
    html! {
        @if step.consistency.0.is_empty() { span.fail { "not checked" } }
        @else if step.consistency.failed().is_empty() { span.ok { "all hold" } }
        @else { span.fail { "FAILED " (format!("{:?}", step.consistency.failed())) } }
    }
}
