//! The report of a scenario: its configurations beside each other and beside what was published.

use ashlar_lab::chart::{Axis, Chart, Line};
use ashlar_lab::page::{self, legend};
use ashlar_lab::stats::median;
use ashlar_lab::units::human_bytes;
use ashlar_lab::{LabError, ResultFile};
use maud::{Markup, html};

use super::{Shown, charts, clients, method, named_flags, scan, tables};
use crate::scenario::{ConfigurationResult, Group, Look, ScenarioResult, hint};

pub(crate) fn html(result: &ScenarioResult) -> Result<String, LabError> {
    let runs: Vec<Shown<'_>> = result.configurations.iter().filter_map(Shown::of).collect();
    let scans: Vec<scan::Shown<'_>> = result
        .configurations
        .iter()
        .filter_map(|of| {
            Some(scan::Shown {
                name: of.name.clone(),
                result: of.scan.as_ref()?,
            })
        })
        .collect();
    let scan_flags = scans.iter().flat_map(|run| {
        let all = run.result.head.flags.iter();
        all.map(|flag| format!("{}: {flag}", run.name))
    });
    let flags = runs.iter().flat_map(named_flags).chain(scan_flags);
    let parts = page::Parts {
        short: result.short(),
        lead: html! {
            (configurations(&result.configurations))
            (comparisons(result))
        },
        body: html! {
            @if !runs.is_empty() {
                @for group in groups(&result.configurations) { (by_users(&group)) }
                (memory(&result.configurations))
                h2 { "Figures" }
                (tables::summary(&runs))
                (tables::latency(&runs))
                (charts::over_time(&runs))
                (charts::device_and_processor(&runs))
                (tables::consistency(&runs))
            }
            @if !scans.is_empty() { (scan::figures(&scans)?) }
            (agents(result))
        },
        flags: flags.collect(),
        method: html! {
            @if let Some(run) = runs.first() {
                (method::database(run.result))
                (method::method(run.result))
            }
            @if let Some(run) = scans.first() { (scan::method(run.result)) }
        },
        seed: runs.first().map(|run| run.result.method.seed),
    };
    Ok(page::report(&result.head, &parts))
}

/// The agents that had the users or readers.
fn agents(result: &ScenarioResult) -> Markup {
    let all = result.configurations.iter();
    let users = all.clone().filter_map(|of| of.oltp.as_ref());
    let users = users
        .flat_map(|run| &run.steps)
        .flat_map(|step| &step.clients);
    let readers = all.filter_map(|of| of.scan.as_ref());
    let readers = readers
        .flat_map(|run| &run.steps)
        .flat_map(|step| &step.clients);
    let note = "The users, or readers, were at these, and began at one moment. Users' histograms are added up; NOPM and \
                TPM are the database's own counts, of all of them together. A scan ends with the last reader of all.";
    clients::section(
        &result.clients,
        &users.chain(readers).collect::<Vec<_>>(),
        note,
    )
}

impl<'a> Shown<'a> {
    /// A configuration's TPROC-C, if it has one.
    fn of(of: &'a ConfigurationResult) -> Option<Self> {
        Some(Self {
            name: of.name.clone(),
            result: of.oltp.as_ref()?,
        })
    }
}

fn configurations(all: &[ConfigurationResult]) -> Markup {
    html! {
        section {
            h2 { "Configurations" }
            div.scroll {
                table.figures {
                    thead {
                        tr {
                            th { "configuration" } th { "servers" } th { "commits wait for" } th { "database" }
                            th { "memory asked for" } th { "memory of a server" }
                        }
                    }
                    tbody {
                        @for of in all {
                            tr {
                                td.key { (of.name) }
                                td { (servers(of)) }
                                td { (of.commit.map_or("-", |commit| commit.word())) }
                                td { (human_bytes(of.database_bytes)) }
                                td { (of.memory_pct.map_or("-".into(), |pct| format!("{pct} %"))) }
                                td { (of.memory_bytes.map_or("no limit".into(), human_bytes)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// How many there are, and where.
fn servers(of: &ConfigurationResult) -> String {
    let topology = of.topology.map(|topology| topology.to_string());
    let standby = of.standby_place.as_ref();
    let standby = standby.map(|place| format!("standby on {place}"));
    let words = [topology, Some(format!("on {}", of.place)), standby];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What each difference is worth, beside what was published.
fn comparisons(result: &ScenarioResult) -> Markup {
    let groups = Group::of(result);
    let published = result.comparisons.iter().any(|of| of.published.is_some());
    html! {
        @if !groups.is_empty() {
            section {
                h2 { "What the differences are worth" }
                @for group in &groups {
                    h3 { (group.heading()) }
                    div.scroll { (comparison(group)) }
                }
                @if let Some(hint) = hint(result, &groups) { p.note { strong { "Hint: " } (hint) "." } }
                p.note {
                    "The ratio is the second figure to the first. A repeat is paired with the same one of the "
                    "other. Up to five pairs: the median of their ratios, and the smallest and largest. From six "
                    "on: Hodges and Lehmann's estimate, and Wilcoxon's range. Of all such ranges, so many as the column "
                    "\u{201c}sure\u{201d} says have the true ratio in them: two pairs prove little."
                    @if published {
                        " The published ratios belong to other hardware, another database, and users as written."
                    }
                }
            }
        }
    }
}

fn comparison(group: &Group) -> Markup {
    let columns = group.columns();
    let rows = columns.first().map_or(0, |column| column.cells.len());
    html! {
        table.figures {
            thead { tr { @for column in &columns { th.text[column.look == Look::Words] { (column.name) } } } }
            tbody {
                @for row in 0..rows {
                    tr.block[group.begins_block(row)] {
                        @for column in &columns {
                            @let cell = &column.cells[row];
                            @match column.look {
                                Look::Key => td.key { (cell) },
                                Look::Figure => td { (cell) },
                                Look::Ratio => td.pct { (cell) },
                                Look::Words => td.text { (cell) },
                                Look::Published => td.published { (cell) },
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Configurations that differ in place and memory only: a chart of lines that can be told apart.
fn groups(all: &[ConfigurationResult]) -> Vec<Vec<&ConfigurationResult>> {
    let mut groups: Vec<Vec<&ConfigurationResult>> = Vec::new();
    for of in all {
        let group = groups
            .iter_mut()
            .find(|group| group[0].topology == of.topology);
        match group {
            Some(group) => group.push(of),
            None => groups.push(vec![of]),
        }
    }
    groups
}

fn by_users(group: &[&ConfigurationResult]) -> Markup {
    let shown: Vec<Shown<'_>> = group.iter().filter_map(|of| Shown::of(of)).collect();
    html! {
        @if !shown.is_empty() {
            @if let Some(topology) = group[0].topology { h2 { "By users, " (topology) } }
            (charts::users(&shown))
        }
    }
}

/// Device reads and new orders by the size of the memory, a line for each place and topology.
fn memory(all: &[ConfigurationResult]) -> Markup {
    let mut names: Vec<String> = Vec::new();
    let mut reads: Vec<Line> = Vec::new();
    let mut orders: Vec<Line> = Vec::new();
    for of in all {
        let (Some(pct), Some(run)) = (of.memory_pct, &of.oltp) else {
            continue;
        };
        let topology = of.topology.map_or(String::new(), |t| format!(", {t}"));
        let name = format!("{}{topology}", of.place);
        let at = names
            .iter()
            .position(|other| *other == name)
            .unwrap_or_else(|| {
                names.push(name);
                for lines in [&mut reads, &mut orders] {
                    lines.push(Line {
                        color: names.len() - 1,
                        ..Line::default()
                    });
                }
                names.len() - 1
            });
        // The largest number of users asks most of the storage.
        let Some(users) = run.summary.last().map(|summary| summary.users) else {
            continue;
        };
        let read: Vec<f64> = run
            .whole_steps(users)
            .filter_map(|step| Some(step.device_bytes_per_transaction?.0 / 1024.0))
            .collect();
        if !read.is_empty() {
            reads[at].points.push((pct, median(&read)));
        }
        let nopm: Vec<f64> = run.whole_steps(users).map(|step| step.nopm).collect();
        orders[at].points.push((pct, median(&nopm)));
    }
    if !orders.iter().any(|line| line.points.len() > 1) {
        return html! {};
    }
    let chart = |unit, mut lines: Vec<Line>| {
        for line in &mut lines {
            line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        Chart {
            unit,
            of: "% memory",
            axis: Axis::Log,
            lines,
        }
    };
    let charts = [chart("KiB", reads), chart("NOPM", orders)];
    html! {
        section {
            h2 { "By memory" }
            p.note {
                (legend(names.iter().map(String::as_str)))
                "left KiB read by the device for each transaction, right NOPM, of the largest number of "
                "users; memory in percent of the database"
            }
            div.card { (Chart::draw(&charts, "device reads and NOPM by memory")) }
        }
    }
}
