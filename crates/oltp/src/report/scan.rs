//! The report of concurrent scans.

use ashlar_lab::chart::{Axis, Chart, Line};
use ashlar_lab::page::legend;
use ashlar_lab::stats::median;
use ashlar_lab::units::{grouped, human_bytes};
use ashlar_lab::{LabError, ResultFile, page};
use maud::{Markup, html};

use super::method::described;
use crate::published::Cluster;
use crate::scan::{ScanResult, ScanStep};

/// A scan that a report shows, by the name that it has there.
pub(crate) struct Shown<'a> {
    pub(crate) name: String,
    pub(crate) result: &'a ScanResult,
}

/// The report of one.
pub(crate) fn html(result: &ScanResult) -> Result<String, LabError> {
    let shown = [Shown {
        name: "here".into(),
        result,
    }];
    Ok(page::report(
        &result.head,
        &page::Parts {
            short: result.short(),
            lead: html! { section { (described(&result.database)) } },
            body: figures(&shown)?,
            method: method(result),
            ..page::Parts::default()
        },
    ))
}

pub(crate) fn method(result: &ScanResult) -> Markup {
    html! {
        section {
            h2 { "How it was measured" }
            p {
                (grouped(f64::from(result.rows))) " rows, " (human_bytes(result.bytes))
                " without what the database puts around them. Each reader has the database add up the "
                "lengths of all rows; the run time is that of the last reader. Medians over repeats."
            }
        }
    }
}

/// Median of a figure by readers.
fn by_readers(result: &ScanResult, figure: impl Fn(&ScanStep) -> Option<f64>) -> Vec<(f64, f64)> {
    let of = |readers: usize| {
        let steps = result.steps.iter().filter(|step| step.readers == readers);
        let values: Vec<f64> = steps.filter_map(&figure).collect();
        (!values.is_empty()).then(|| (readers as f64, median(&values)))
    };
    result.readers().into_iter().filter_map(of).collect()
}

/// Charts and tables, beside what was published.
pub(crate) fn figures(shown: &[Shown<'_>]) -> Result<Markup, LabError> {
    let published = Cluster::scans()?;
    let count = shown.len();
    let ours = |figure: fn(&ScanStep) -> f64, relative: bool| {
        let of = move |(color, run): (usize, &Shown<'_>)| Line {
            color,
            points: scaled(by_readers(run.result, |step| Some(figure(step))), relative),
            dashed: false,
        };
        shown.iter().enumerate().map(of).collect::<Vec<Line>>()
    };
    let theirs = |color, figure: fn(&Cluster) -> f64| Line {
        color,
        points: scaled(
            published
                .iter()
                .map(|row| (row.concurrency as f64, figure(row)))
                .collect(),
            true,
        ),
        dashed: true,
    };
    let mut relative = ours(|step| step.run_time_s, true);
    relative.push(theirs(count, |row| row.fci_run_time));
    relative.push(theirs(count + 1, |row| row.bag_run_time));
    let chart = |unit, lines| Chart {
        unit,
        of: "readers",
        axis: Axis::Log,
        lines,
    };
    let charts = [
        chart("MB/s", ours(|step| step.mb_s, false)),
        chart("x first", relative),
    ];
    let names = shown.iter().map(|run| run.name.as_str());
    let names = names.chain(["published: shared storage", "published: availability group"]);
    Ok(html! {
        section {
            h2 { "By readers" }
            p.note {
                (legend(names))
                "left 10^6 bytes of rows a second by all readers together; right the run time, in that of "
                "the smallest number of readers (" code { "published/fci_vs_basic_ag.csv" } " in dashes)"
            }
            div.card { (Chart::draw(&charts, "MB/s and run time by readers")) }
            div.scroll { (table(shown, &published)) }
            p.note {
                "\u{2020} The published table of a million rows fits into the memory of one of its servers, so that later "
                "readers may not have read from storage."
            }
        }
    })
}

/// Points in multiples of the first one.
fn scaled(points: Vec<(f64, f64)>, relative: bool) -> Vec<(f64, f64)> {
    let first = points.first().map_or(1.0, |point| point.1);
    let by = if relative && first > 0.0 { first } else { 1.0 };
    points.into_iter().map(|(at, v)| (at, v / by)).collect()
}

fn table(shown: &[Shown<'_>], published: &[Cluster]) -> Markup {
    let near = |figure: Option<f64>, digits: usize| {
        figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
    };
    html! {
        table.figures {
            thead {
                tr {
                    @if shown.len() > 1 { th { "run" } }
                    th { "readers" } th.edge { "run time s" } th { "x first" } th { "MB/s" }
                    th { "device read" } th.edge { "client CPU s" } th { "server CPU s" }
                    th { "machine CPU %" } th.edge { "published, shared storage \u{2020}" }
                    th { "published, availability group \u{2020}" }
                }
            }
            tbody {
                @for (index, run) in shown.iter().enumerate() {
                    @for (row, readers) in run.result.readers().into_iter().enumerate() {
                        @let found = published.iter().find(|p| p.concurrency == readers);
                        @let first = published.iter().find(|p| Some(p.concurrency) == run.result.readers().first().copied());
                        @let share = |figure: fn(&Cluster) -> f64| Some(figure(found?) / figure(first?));
                        @let at = |figure: &dyn Fn(&ScanStep) -> Option<f64>| value(run.result, readers, figure);
                        @let base = run.result.readers().first().and_then(|&n| value(run.result, n, &|s| Some(s.run_time_s)));
                        tr.block[index > 0 && row == 0] {
                            @if shown.len() > 1 { td.key { @if row == 0 { (run.name) } } }
                            td.key { (readers) }
                            td.edge { (near(at(&|s| Some(s.run_time_s)), 2)) }
                            td.pct { (near(at(&|s| Some(s.run_time_s)).zip(base).map(|(t, b)| t / b), 2)) }
                            td { (at(&|s| Some(s.mb_s)).map_or("-".into(), grouped)) }
                            td { (at(&|s| s.device.read_bytes.map(|b| b as f64)).map_or("-".into(), |b| human_bytes(b as u64))) }
                            td.edge { (near(at(&|s| Some(s.client_cpu_s)), 2)) }
                            td { (near(at(&|s| s.server_cpu_s), 2)) }
                            td { (near(at(&|s| s.machine_cpu_pct), 0)) }
                            td.edge.published { (near(share(|p| p.fci_run_time), 2)) }
                            td.published { (near(share(|p| p.bag_run_time), 2)) }
                        }
                    }
                }
            }
        }
    }
}

fn value(
    result: &ScanResult,
    readers: usize,
    figure: &dyn Fn(&ScanStep) -> Option<f64>,
) -> Option<f64> {
    let all = by_readers(result, figure);
    let found = all.iter().find(|(at, _)| *at == readers as f64);
    found.map(|(_, value)| *value)
}
