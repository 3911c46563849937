//! The report of faults: topologies by faults, and every round.

use ashlar_lab::chart::{Axis, Chart, Line};
use ashlar_lab::{ResultFile, page};
use maud::{Markup, html};

use super::method;
use crate::faults::{Cell, Fault, FaultsResult, Round, Topology};

pub(crate) fn html(result: &FaultsResult) -> String {
    let parts = page::Parts {
        short: result.short(),
        lead: html! {
            section {
                p {
                    (result.users) " clients in an open loop, " (result.rate) " transactions a second due, on "
                    (result.warehouses) " warehouses. What fails is tried again; what is lost is connected again."
                }
                @for system in &result.systems {
                    h3 { (system.topology) }
                    p { (system.told) "." }
                    (method::described(&system.database))
                }
            }
        },
        body: html! {
            @if !result.cells.is_empty() {
                (overview(result))
                (verdict(result))
                @for cell in &result.cells { (rounds(cell)) }
            }
        },
        method: how(),
        seed: Some(result.seed),
        ..page::Parts::default()
    };
    page::report(&result.head, &parts)
}

fn overview(result: &FaultsResult) -> Markup {
    let mut topologies: Vec<Topology> = result.cells.iter().map(|cell| cell.topology).collect();
    topologies.sort_unstable();
    topologies.dedup();
    let mut faults: Vec<Fault> = result.cells.iter().map(|cell| cell.fault).collect();
    faults.sort_unstable();
    faults.dedup();
    let of = |topology, fault| {
        let same = |cell: &&Cell| cell.topology == topology && cell.fault == fault;
        result.cells.iter().find(same)
    };
    html! {
        section {
            h2 { "How long clients were not served" }
            p { "Seconds from the first failure to the next success: median (least to most). Below it, the longest wait \
                of a transaction." }
            div.scroll { table {
                thead { tr { th { "fault" } @for topology in &topologies { th { (topology) } } } }
                tbody {
                    @for &fault in &faults {
                        tr {
                            th { (result.named(fault)) }
                            @for &topology in &topologies { td { (entry((topology, fault), of(topology, fault))) } }
                        }
                    }
                }
            } }
        }
    }
}

fn entry((topology, fault): (Topology, Fault), cell: Option<&Cell>) -> Markup {
    let Some(cell) = cell else {
        let why = topology.lacks(fault).unwrap_or("-");
        return html! { span.note { (why) } };
    };
    let (gap, wait) = (cell.spread(|r| r.gap_s), cell.spread(|r| r.longest_wait_s));
    html! {
        (format!("{:.2} ({:.2} to {:.2})", gap.median, gap.least, gap.most)) br;
        span.note { (format!("{:.2} ({:.2} to {:.2})", wait.median, wait.least, wait.most)) }
    }
}

fn verdict(result: &FaultsResult) -> Markup {
    let row = |bad: usize, what: &str, text: String| {
        html! {
            tr {
                td { @if bad == 0 { span.ok { "holds" } } @else { span.fail { "FAILED" } } }
                th { (what) }
                td.text { (text) }
            }
        }
    };
    let sum = |figure: fn(&Round) -> usize| {
        result
            .cells
            .iter()
            .map(|cell| cell.sum(figure))
            .sum::<usize>()
    };
    let (acknowledged, missing) = (sum(|r| r.acknowledged), sum(|r| r.missing));
    let (probes, probes_missing) = (sum(|r| r.probes), sum(|r| r.probes_missing));
    let (stale, rounds) = (sum(|r| r.stale_acknowledged), sum(|_| 1));
    let shared = sum(|r| r.epochs.iter().filter(|one| one.nodes.len() > 1).count());
    let inconsistent = sum(|r| usize::from(!r.consistency.failed().is_empty()));
    let unserved = sum(|r| usize::from(!r.served_again));
    let not_ready = sum(|r| usize::from(r.not_ready.is_some()));
    let both = result.cells.iter().map(Cell::both).sum::<usize>();
    html! {
        section {
            h2 { "What became of what was acknowledged" }
            table.checks { tbody {
                (row(missing, "Every acknowledged new order, payment and delivery is there",
                    format!("{acknowledged} acknowledged, {missing} missing")))
                (row(stale + shared + probes_missing + both, "Never two primaries that take writes",
                    format!("{probes} writes past the listener, {probes_missing} of them missing; {stale} writes of \
                        an older primary beside a newer one; {shared} epochs in which two nodes took writes; {both} rounds in which two servers of one volume took \
                        writes at once")))
                (row(inconsistent, "Conditions 1 to 12 after every round", format!("{inconsistent} of {rounds} failed")))
                (row(unserved, "Clients were served again", format!("{unserved} of {rounds} rounds were not")))
                (row(not_ready, "Everything was as before in the end",
                    format!("{not_ready} of {rounds} rounds ended without; it was made anew for the next")))
            } }
        }
    }
}

fn rounds(cell: &Cell) -> Markup {
    html! {
        section {
            h2 { (cell.topology) ", " (cell.fault) }
            @if cell.rounds.len() > 1 { (distribution(cell)) }
            div.scroll { table {
                thead { tr {
                    th { "round" } th { "primary" } th { "gap s" } th { "silence s" } th { "longest wait s" }
                    th { "failures" } th { "acknowledged" } th { "missing" } th { "two primaries s" }
                } }
                tbody { @for round in &cell.rounds { tr {
                    th { (round.round) }
                    td { (round.from) " to " (round.to.as_deref().unwrap_or("none")) }
                    td { (format!("{:.2}", round.gap_s)) }
                    td { (format!("{:.2}", round.silence_s)) }
                    td { (format!("{:.2}", round.longest_wait_s)) }
                    td { (round.failures) }
                    td { (round.acknowledged) }
                    td { (round.missing) }
                    td { (format!("{:.2}", round.both_primaries_s)) }
                } } }
            } }
        }
    }
}

/// How the rounds are spread: of each share of them, the longest.
fn distribution(cell: &Cell) -> Markup {
    let chart = |figure: fn(&Round) -> f64| Chart {
        unit: "s",
        of: "% of rounds",
        axis: Axis::Linear,
        lines: vec![Line {
            points: shares(cell, figure),
            ..Line::default()
        }],
    };
    let charts = [chart(|r| r.gap_s), chart(|r| r.longest_wait_s)];
    html! {
        p { "Left the gap, right the longest wait: so many percent of the rounds had at most this." }
        div.card { (Chart::draw(&charts, "Gap and longest wait by percent of the rounds")) }
    }
}

/// Percent of the rounds, and what they had at most.
fn shares(cell: &Cell, figure: fn(&Round) -> f64) -> Vec<(f64, f64)> {
    let mut values: Vec<f64> = cell.rounds.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    let share = |at: usize| (100.0 * (at + 1) as f64 / values.len() as f64).round();
    values
        .iter()
        .enumerate()
        .map(|(at, value)| (share(at), *value))
        .collect()
}

fn how() -> Markup {
    html! {
        section {
            h2 { "How it was measured" }
            p {
                "Longest wait: of a transaction, from when it was due or, if that was before the fault, from the fault. \
                Gap: from the first failure after the fault to the first transaction begun after it that succeeded. \
                Silence: the longest time without any acknowledgement; where a fault makes clients wait and fails nothing, \
                the gap is 0 and this tells. The broken node comes back under load."
            }
            p {
                "Each server is asked past the listener every 50 ms whether it takes writes, and if so is given one: what \
                it acknowledged must be there in the end. Seconds with two primaries are those for which two servers said \
                so at once; with synchronous replication, or a volume that refuses the older one, no write of the older \
                one is acknowledged, and only such a write counts as failed. Two servers of one volume that both had writes \
                acknowledged at a time are a failure by themselves."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_drawn_by_their_share() {
        let round = |gap_s| Round {
            gap_s,
            ..Round::default()
        };
        let cell = Cell {
            topology: Topology::Fci,
            fault: Fault::Move,
            rounds: [3.0, 1.0, 2.0].map(round).into(),
        };
        let wanted = [(33.0, 1.0), (67.0, 2.0), (100.0, 3.0)];
        assert_eq!(shares(&cell, |round| round.gap_s), wanted);
        assert!(rounds(&cell).into_string().contains("<svg"));
        let one = Cell {
            rounds: vec![round(1.0)],
            ..cell
        };
        assert!(!rounds(&one).into_string().contains("<svg"));
    }
}
