//! The report of a fleet: did it keep up, how long did transactions take, what did each database have.

use ashlar_lab::chart::{Axis, Chart, Line};
use ashlar_lab::page::legend;
use ashlar_lab::stats::median;
use ashlar_lab::units::{grouped, human_bytes, human_us};
use ashlar_lab::{LabError, ResultFile, page};
use maud::{Markup, html};

use super::result::{FleetResult, FleetStep, PublishedStep, slowest};
use super::storage::Accesses;
use crate::inputs::Kind;
use crate::report::clients;

/// The whole page.
pub(crate) fn html(result: &FleetResult) -> Result<String, LabError> {
    let published = match result.source() {
        "" => Vec::new(),
        _ => PublishedStep::rows()?,
    };
    let parts = page::Parts {
        short: result.short(),
        lead: answers(result),
        body: html! {
            (steps(result, &published))
            (nodes(result, &published))
            (by_kind(result))
            (over_time(result))
            (devices(result, &published))
            (databases(result))
            (agents(result))
        },
        method: method(result),
        ..page::Parts::default()
    };
    Ok(page::report(&result.head, &parts))
}

/// The agents that had the streams.
fn agents(result: &FleetResult) -> Markup {
    let parts = result.steps.iter().flat_map(|step| &step.clients);
    let note = "Each database's streams were at one of these; all began at one moment. Histograms of all databases are \
                added up. Transactions a second are those of the time that each agent measured by its own clock.";
    clients::section(&result.clients, &parts.collect::<Vec<_>>(), note)
}

/// What was asked and is told, a card for each step.
fn answers(result: &FleetResult) -> Markup {
    html! {
        section.configurations {
            @for (index, step) in result.steps.iter().enumerate() {
                div.card {
                    h3 { span class={ "dot s" (index % 6) } {} (name(step)) }
                    p.big { (format!("{:.1} %", 100.0 * step.kept())) }
                    p.note {
                        "of the transactions that were asked for: " (grouped(step.tps)) " of "
                        (grouped(step.offered_tps)) " a second"
                        @if let Some((kind, p95)) = slowest(&step.transactions) {
                            "; of the slowest kind (" (kind.replace('_', " ")) ") 95 % took at most " (human_us(p95))
                        }
                        @if let Some(cpu) = step.machine_cpu_pct {
                            "; processors " (format!("{cpu:.0} %")) " in use"
                        }
                    }
                }
            }
        }
    }
}

fn name(step: &FleetStep) -> String {
    let share = match step.percent {
        100 => "all streams".to_owned(),
        percent => format!("{percent} % of the streams"),
    };
    format!("{share}, repeat {}", step.repeat)
}

fn steps(result: &FleetResult, published: &[PublishedStep]) -> Markup {
    html! {
        section {
            h2 { "Steps" }
            div.scroll {
                table.figures {
                    thead {
                        tr {
                            th { "" } th { "databases" } th { "streams each" } th { "TPS" }
                            th { "of what was asked" } th { "CPU %" } th { "p95, slowest kind" }
                            th { "worst database" } th { "began late, p95" } th { "not begun" }
                            th { "client CPU s" } th { "servers' CPU s" }
                        }
                    }
                    tbody {
                        @for step in &result.steps { (row(step)) }
                        @for row in published {
                            tr {
                                td.key.published { "published" } td.published { (row.databases) }
                                td.published { (row.users_per_database) } td.published { (grouped(row.total_tps)) }
                                td.published { (format!("{:.1} %", 100.0 * row.total_tps / row.offered_tps())) }
                                td.published {
                                    @if let Some(cpu) = row.cpu_pct { (format!("{cpu:.0}")) } @else { "at its peak" }
                                }
                                td.published { "below " (row.p95_upper_bound_s) " s" }
                                td.published colspan="5" {}
                            }
                        }
                    }
                }
            }
            p.note {
                "Latency is counted from when a transaction was due. All databases' histograms are added up; the worst "
                "database is the one with the longest 95th percentile of the slowest kind. Published absolutes belong "
                "to four machines: compare the share of what was asked for."
            }
        }
    }
}

fn row(step: &FleetStep) -> Markup {
    let slowest = slowest(&step.transactions);
    html! {
        tr {
            td.key { (name(step)) } td { (step.databases.len()) } td { (step.streams_told()) }
            td { (grouped(step.tps)) } td.pct { (format!("{:.1} %", 100.0 * step.kept())) }
            td { @if let Some(cpu) = step.machine_cpu_pct { (format!("{cpu:.0}")) } }
            td { @if let Some((_, p95)) = slowest { (human_us(p95)) } }
            td {
                @if let Some((p95, name)) = slowest.and_then(|(kind, _)| step.worst(kind)) {
                    (name) ", " (human_us(p95))
                }
            }
            td { @if let Some(late) = &step.lateness_us { (human_us(late.p95)) } }
            td { (step.missed) } td { (format!("{:.1}", step.client_cpu_s)) }
            td { @if let Some(cpu) = step.server_cpu_s { (format!("{cpu:.1}")) } @else { "-" } }
        }
    }
}

/// What each node had, and what that took.
fn nodes(result: &FleetResult, published: &[PublishedStep]) -> Markup {
    let seconds = |cpu: Option<f64>| cpu.map_or("-".to_owned(), |cpu| format!("{cpu:.1}"));
    html! {
        @if result.steps.iter().any(|step| !step.nodes.is_empty()) {
            section {
                h2 { "Each node" }
                div.scroll {
                    table.figures {
                        thead {
                            tr {
                                th { "" } th { "node" } th { "databases" } th { "TPS" } th { "processors in use" }
                                th { "TPS a processor" } th { "servers' CPU s" } th { "daemon's CPU s" }
                            }
                        }
                        tbody {
                            @for step in &result.steps {
                                @for (index, node) in step.nodes.iter().enumerate() {
                                    tr.block[index == 0] {
                                        td.key { @if index == 0 { (name(step)) } } td.key { (node.name) }
                                        td { (node.databases) } td { (grouped(node.tps)) }
                                        @match node.processors() {
                                            Some(used) => {
                                                td { (format!("{used:.2}")) } td { (grouped(node.tps / used.max(1e-9))) }
                                            }
                                            None => { td { "-" } td { "-" } }
                                        }
                                        td { (seconds(node.server_cpu_s)) } td { (seconds(node.daemon_cpu_s)) }
                                    }
                                }
                            }
                            @for row in published {
                                tr.block {
                                    td.key.published { "published" } td.published { "each of " (row.nodes) }
                                    td.published { (row.databases / row.nodes.max(1)) }
                                    td.published { (grouped(row.total_tps / f64::from(row.nodes))) }
                                    td.published colspan="4" {
                                        @match row.cpu_pct {
                                            Some(cpu) => { (format!("{cpu:.0} % of its processors")) }
                                            None => { "all of its processors" }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
                p.note {
                    @for place in &result.places {
                        (place.name) " is on " (place.node)
                        @if let Some(volume) = &place.volume { ", volume " (volume) }
                        ", " (format!("{:.0} % full", place.full_pct))
                        @if place.ballast_bytes > 0 { ", " (human_bytes(place.ballast_bytes)) " of it random data" }
                        ". "
                    }
                    "Processors: of the databases' servers, and of the daemon that has their volumes, where there is one."
                }
            }
        }
    }
}

fn by_kind(result: &FleetResult) -> Markup {
    html! {
        section {
            h2 { "By transaction" }
            div.scroll {
                table.figures {
                    thead {
                        tr {
                            th { "" } th { "transaction" } th { "completed" } th { "failed" } th { "tried again" }
                            th { "mean" } th { "p50" } th { "p95" } th { "p99" } th { "p99.9" } th { "p99.99" }
                            th { "p99.999" } th { "longest" }
                        }
                    }
                    tbody {
                        @for step in &result.steps {
                            @for (index, (kind, of)) in step.transactions.iter().enumerate() {
                                tr.block[index == 0] {
                                    td.key { @if index == 0 { (name(step)) } } td.key { (kind.replace('_', " ")) }
                                    td { (grouped(of.count as f64)) } td { (of.errors) } td { (of.retries) }
                                    @for us in [of.latency_us.mean, of.latency_us.p50, of.latency_us.p95,
                                                of.latency_us.p99, of.latency_us.p999, of.latency_us.p9999,
                                                of.latency_us.p99999, of.latency_us.max] {
                                        td { (human_us(us)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn over_time(result: &FleetResult) -> Markup {
    let lines = result.steps.iter().enumerate();
    let lines = lines.map(|(color, step)| {
        // The last second is not a whole one.
        let whole = step.elapsed_s as usize;
        let points = step.series.iter().take(whole).enumerate();
        Line {
            color,
            points: points
                .map(|(at, &count)| (at as f64, count as f64))
                .collect(),
            dashed: false,
        }
    });
    let chart = Chart {
        unit: "TPS",
        of: "second",
        axis: Axis::Linear,
        lines: lines.collect(),
    };
    let names: Vec<String> = result.steps.iter().map(name).collect();
    html! {
        section {
            h2 { "Over time" }
            p.note { (legend(names.iter().map(String::as_str))) "transactions of all databases, second by second" }
            div.card { (Chart::draw(&[chart], "transactions a second over time")) }
        }
    }
}

/// A step and what a device or volume did in it.
struct Seen<'a> {
    step: &'a FleetStep,
    accesses: &'a Accesses,
    pool_full_pct: Option<f64>,
}

fn devices(result: &FleetResult, published: &[PublishedStep]) -> Markup {
    let mut volumes = Vec::new();
    let mut devices = Vec::new();
    for step in &result.steps {
        volumes.extend(step.volumes.iter().map(|volume| Seen {
            step,
            accesses: &volume.accesses,
            pool_full_pct: Some(volume.pool_full_pct),
        }));
        devices.extend(step.accesses.iter().map(|accesses| Seen {
            step,
            accesses,
            pool_full_pct: None,
        }));
    }
    html! {
        @if !volumes.is_empty() {
            section {
                h2 { "The volumes, as their nodes tell" }
                (accesses(&volumes, "volume"))
                p.note { "From a command's arrival at the node to its end." (published_ms(published)) }
            }
        }
        @if !devices.is_empty() {
            section {
                h2 { "The storage, as the kernel sees it" }
                (accesses(&devices, "device"))
                p.note {
                    "Of the block devices under the databases, by all their users: the disk that an attached volume is, "
                    "where a place is one." (published_ms(published))
                }
            }
        }
    }
}

fn ms(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"))
}

fn published_ms(published: &[PublishedStep]) -> Markup {
    html! {
        @if let Some(row) = published.first() {
            " Published: reads " (ms(row.read_latency_ms)) ", writes " (ms(row.write_latency_ms)) "."
        }
    }
}

fn accesses(all: &[Seen<'_>], what: &str) -> Markup {
    let of_pools = all.iter().any(|seen| seen.pool_full_pct.is_some());
    html! {
        div.scroll {
            table.figures {
                thead {
                    tr {
                        th { "" } th { (what) } th { "reads/s" } th { "mean read" } th { "writes/s" } th { "mean write" }
                        @if of_pools { th { "its pool" } }
                    }
                }
                tbody {
                    @for Seen { step, accesses: of, pool_full_pct } in all {
                        tr {
                            td.key { (name(step)) } td.key { (of.device) } td { (grouped(of.read_iops)) }
                            td { (ms(of.read_ms)) } td { (grouped(of.write_iops)) } td { (ms(of.write_ms)) }
                            @if let Some(full) = pool_full_pct { td { (format!("{full:.0} % full")) } }
                        }
                    }
                }
            }
        }
    }
}

fn databases(result: &FleetResult) -> Markup {
    let kinds = Kind::ALL.map(Kind::name);
    let has_agents = !result.clients.is_empty();
    html! {
        section {
            h2 { "Each database" }
            details open[result.databases.len() * result.steps.len() <= 24] {
                summary { (result.databases.len()) " databases" }
                div.scroll {
                    table.figures {
                        thead {
                            tr.names {
                                th colspan=(4 + u8::from(has_agents)) {}
                                @for (index, step) in result.steps.iter().enumerate() {
                                    th.edge colspan="7" { span class={ "dot s" (index % 6) } {} (name(step)) }
                                }
                            }
                            tr {
                                th { "database" } th { "place" }
                                @if has_agents { th { "client" } }
                                th { "size" } th { "memory" }
                                @for _ in &result.steps {
                                    th.edge { "TPS" }
                                    @for kind in kinds { th { "p95 " (kind.replace('_', " ")) } }
                                    th { "CPU s" }
                                }
                            }
                        }
                        tbody {
                            @for database in &result.databases {
                                tr {
                                    td.key { (database.name) } td.key { (database.place) }
                                    @if has_agents { td.key { (client(result, &database.name)) } }
                                    td { (human_bytes(database.bytes)) }
                                    td { (database.memory_bytes.map_or("no limit".to_owned(), human_bytes)) }
                                    @for step in &result.steps { (share(step, &database.name, &kinds)) }
                                }
                            }
                        }
                    }
                }
            }
            (equality(result))
        }
    }
}

/// The agent that had a database's streams.
fn client<'a>(result: &'a FleetResult, name: &str) -> &'a str {
    let mut shares = result.steps.iter().flat_map(|step| &step.databases);
    let found = shares.find(|share| share.name == name);
    found
        .and_then(|share| share.client.as_deref())
        .unwrap_or("-")
}

fn share(step: &FleetStep, name: &str, kinds: &[&str]) -> Markup {
    let found = step.databases.iter().find(|share| share.name == name);
    html! {
        @if let Some(share) = found {
            td.edge { (format!("{:.1}", share.tps)) }
            @for kind in kinds {
                td { @if let Some(p95) = share.p95_us.get(*kind) { (human_us(*p95)) } }
            }
            td { @if let Some(cpu) = share.server_cpu_s { (format!("{cpu:.1}")) } }
        } @else {
            td.edge { "-" } @for _ in 1..7 { td { "-" } }
        }
    }
}

/// Whether databases had the same.
fn equality(result: &FleetResult) -> Markup {
    html! {
        @for step in &result.steps {
            @let tps: Vec<f64> = step.databases.iter().map(|share| share.tps).collect();
            @if let (Some(least), Some(most)) = (tps.iter().copied().reduce(f64::min), tps.iter().copied().reduce(f64::max)) {
                p.note {
                    (name(step)) ": " (format!("{least:.1} to {most:.1}")) " TPS a database, median "
                    (format!("{:.1}", median(&tps))) "."
                }
            }
        }
    }
}

fn method(result: &FleetResult) -> Markup {
    html! {
        section {
            h2 { "How it was measured" }
            p {
                "Each database is a server of its own (" (format!("{:?}", result.engine)) ") with "
                (result.warehouses) " warehouses of TPC-C"
                @match result.memory_pct {
                    Some(pct) => { " and memory, page cache included, for " (pct) " % of it, but what its processes need" }
                    None => { " and no limit of memory" }
                }
                ". A stream begins a transaction of TPROC-C's mix " (result.rate) " times a second, whether the one "
                "before has ended in time or not; " (result.sessions) " sessions of each database run what is due. All "
                "begin together and are measured for " (result.seconds) " s. Consistency conditions 1 to 12 are checked "
                "on every database after every step: "
                @let wrong: usize = result.steps.iter().map(|step| step.complaints.len()).sum();
                @if wrong == 0 { "all hold." } @else { span.fail { (wrong) " databases are wrong." } }
            }
        }
    }
}
