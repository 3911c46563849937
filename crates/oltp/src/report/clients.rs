//! The agents that made the load: who, what each had, and what their clocks said.

use ashlar_lab::result::ClientNote;
use ashlar_lab::units::grouped;
use maud::{Markup, html};

use crate::result::ClientShare;

/// Of those that are told of, by their parts of all steps.
pub(crate) fn section(told: &[ClientNote], parts: &[&ClientShare], note: &str) -> Markup {
    html! {
        @if !told.is_empty() {
            section {
                h2 { "Clients" }
                p.note { (note) }
                div.scroll {
                    table.figures {
                        thead {
                            tr {
                                th { "client" } th { "machine" } th { "share of the work" }
                                th { "CPU s" } th { "began late, us, worst" } th { "clock ahead, ms" } th { "" }
                            }
                        }
                        tbody { @for note in told { (row(note, parts)) } }
                    }
                }
            }
        }
    }
}

fn row(note: &ClientNote, parts: &[&ClientShare]) -> Markup {
    let ours = || parts.iter().filter(|part| part.client == note.name);
    let sum = |parts: &mut dyn Iterator<Item = &&ClientShare>| {
        parts.map(|part| part.transactions).sum::<u64>() as f64
    };
    let share = 100.0 * sum(&mut ours()) / sum(&mut parts.iter()).max(1.0);
    let cpu_s: f64 = ours().map(|part| part.cpu_s).sum();
    let late = ours().map(|part| part.late_us).fold(0.0, f64::max);
    let lost = ours().filter(|part| part.lost).count();
    let machine = &note.machine;
    html! {
        tr {
            td.key { (note.name) }
            td.text { (machine.cpu_model) ", " (machine.cores) " cores, " (machine.kernel) }
            td { (format!("{share:.1} %")) }
            td { (format!("{cpu_s:.1}")) }
            td { (grouped(late)) }
            td {
                (format!("{:.2}", note.clock_ahead_us / 1000.0)) " \u{b1} "
                (format!("{:.2}", note.clock_error_us / 1000.0))
            }
            td.text {
                @if let Some(died) = &note.died { span.fail { (died) } }
                @else if lost > 0 { span.fail { (lost) " parts are missing" } }
            }
        }
    }
}
