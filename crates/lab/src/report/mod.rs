//! `report.html`: one file that needs no network and no script, in light and dark.

mod capacity;
mod caveats;
pub mod chart;
mod clients;
mod database;
mod index;
mod more;
mod over_time;
pub mod page;
mod plot;
pub mod short;
mod style;
mod table;
mod text;

pub use index::render_index;

use maud::{Markup, html};

use short::Short;

use crate::ResultFile;
use crate::result::{CellResult, ConfigurationResult, RunResult};
use crate::stats::Measure;
use crate::units::{grouped, human_bytes, human_us};

/// The report as HTML.
pub(crate) fn html(result: &RunResult) -> String {
    let parts = page::Parts {
        short: result.short(),
        lead: html! {
            section.configurations {
                @for (index, configuration) in result.configurations.iter().enumerate() {
                    (summary(index, configuration, result))
                }
            }
        },
        body: html! {
            (wrong_blocks(result))
            (findings(result))
            (table::tables(result))
            (capacity::section(result))
            (clients::section(result))
            (plot::plots(result))
            (over_time::section(result))
            @if let Some(database) = &result.database { (database::section(database)) }
        },
        method: method(result),
        seed: Some(result.method.seed),
        ..page::Parts::default()
    };
    page::report(&result.head, &parts)
}

/// Every table as a question: each configuration beside the first, or what the only one does.
pub(crate) fn in_short(result: &RunResult) -> Vec<Short> {
    let mut all = Vec::new();
    let Some((first, others)) = result.configurations.split_first() else {
        return all;
    };
    for table in table::groups(result) {
        let of = |configuration: &'_ ConfigurationResult| -> Vec<CellResult> {
            let cells = configuration.cells.iter();
            let cells = cells.filter(|cell| table.cells.contains(&cell.spec()));
            cells.cloned().collect()
        };
        if others.is_empty() {
            all.push(Short::alone(&table.title, &first.name, figures(&of(first))));
        }
        for other in others {
            let cells = of(other);
            let ratios: Vec<_> = cells
                .iter()
                .filter_map(|cell| cell.versus_first.as_ref())
                .collect();
            let names = format!("{} against {}", other.name, first.name);
            let question = format!("{}: IOPS", table.title);
            let short = Short::of(question, names, &ratios, "cell", Measure::Amount);
            let published = cells.iter().filter_map(|cell| cell.published.as_ref());
            let shares = published.filter_map(|of| Some(of.pct_of_first? / 100.0));
            all.push(short.beside(&shares.collect::<Vec<f64>>()));
        }
    }
    all
}

/// What cells of one configuration do, from the least to the most.
fn figures(cells: &[CellResult]) -> String {
    let iops: Vec<f64> = cells.iter().map(|cell| cell.iops).collect();
    let latency: Vec<f64> = cells.iter().map(|cell| cell.latency_us.mean).collect();
    format!(
        "{} IOPS, mean latency {}",
        short::from_to(&iops, grouped),
        short::from_to(&latency, human_us)
    )
}

/// A card that says what a configuration is and how it compares over all cells.
fn summary(index: usize, configuration: &ConfigurationResult, result: &RunResult) -> Markup {
    let ratios: Vec<f64> = configuration
        .cells
        .iter()
        .filter_map(|cell| cell.versus_first.as_ref())
        .map(|ratio| ratio.ratio)
        .collect();
    let least = ratios.iter().copied().fold(f64::MAX, f64::min);
    let most = ratios.iter().copied().fold(f64::MIN, f64::max);
    let first = result
        .configurations
        .first()
        .map_or("", |first| first.name.as_str());
    html! {
        div.card {
            h3 { span class={ "dot s" (index % 6) } {} (configuration.name) }
            @if index == 0 && result.configurations.len() > 1 {
                p.big { "100 %" } p.note { "what the others are compared with" }
            } @else if !ratios.is_empty() {
                p.big { (format!("{:.0} %", 100.0 * crate::stats::median(&ratios))) }
                p.note {
                    "of " (first) "'s IOPS: median of " (ratios.len()) " cells, "
                    (format!("{:.0} to {:.0} %", 100.0 * least, 100.0 * most))
                }
            }
            pre { (configuration.description) }
        }
    }
}

/// The first blocks that verification found wrong.
fn wrong_blocks(result: &RunResult) -> Markup {
    html! {
        @for configuration in &result.configurations {
            @for example in configuration.verify.iter().flat_map(|found| &found.examples) {
                p.note {
                    (configuration.name) ", LBA " (example.lba) ": "
                    (format!("{:?}", example.class).to_lowercase())
                    ", expected " (example.expected) ", found " (example.found)
                }
            }
        }
    }
}

fn findings(result: &RunResult) -> Markup {
    html! {
        @if !result.findings.is_empty() {
            section {
                h2 { "Findings" }
                table.checks {
                    tbody {
                        @for finding in &result.findings {
                            tr { th { (finding.name) } td.text { (finding.text) } }
                        }
                    }
                }
            }
        }
    }
}

fn method(result: &RunResult) -> Markup {
    let method = &result.method;
    html! {
        section {
            h2 { "How it was measured" }
            p {
                (method.repeats) " repeats of " (method.seconds) " s after "
                (format!("{:.2}", method.warmup_s)) " s of load, configurations in turn; "
                (human_bytes(method.size_bytes)) " of each device"
                @if method.filled { ", filled with random data first" }
                @if method.sync { "; every write durable before it counts" }
                @if let Some(access) = &method.access { "; " (access) }
                @if method.verify { "; every block stamped and checked" }
                @match method.rate {
                    Some(rate) => { "; open loop at " (grouped(rate)) " accesses a second" }
                    None => { "; closed loop" }
                }
                ". Figures are medians; the spread is (largest - smallest) / median. "
                "A cell is steady if throughput over five rounds stays within 20 % and drifts by "
                "at most 10 % in every repeat."
            }
            h3 { "The lab's own ceiling" }
            table.figures {
                thead {
                    tr { th { "threads" } th { "IOPS, null device" } th { "MiB/s, memory copy" } }
                }
                tbody {
                    @for ceiling in &result.ceiling {
                        tr {
                            td { (ceiling.threads) }
                            td { (grouped(ceiling.null_iops)) }
                            td { (grouped(ceiling.copy_mib_s)) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
