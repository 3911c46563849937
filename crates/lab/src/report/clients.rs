//! The agents that made the load: who, what each had, and what their clocks said.

use maud::{Markup, html};

use crate::result::{ClientNote, ClientPart, RunResult};
use crate::stats::median;
use crate::units::grouped;

pub(super) fn section(result: &RunResult) -> Markup {
    html! {
        @if !result.clients.is_empty() {
            section {
                h2 { "Clients" }
                p.note {
                    "The load was made by these, from one moment on. Their histograms are added up. "
                    "Processors in the tables are those of the machine above, which ran the command; "
                    "each client's own are here."
                }
                table.figures {
                    thead {
                        tr {
                            th { "client" } th { "machine" } th { "share of all accesses" }
                            th { "CPU %, median" } th { "began late, us, worst" }
                            th { "clock ahead, ms" } th { "clock drift, us" } th { "" }
                        }
                    }
                    tbody {
                        @for note in &result.clients { (row(note, result)) }
                    }
                }
            }
        }
    }
}

fn row(note: &ClientNote, result: &RunResult) -> Markup {
    let parts = || {
        let cells = result.configurations.iter().flat_map(|of| &of.cells);
        cells
            .flat_map(|cell| &cell.repeats)
            .flat_map(|repeat| &repeat.clients)
    };
    let ours = || parts().filter(|part| part.client == note.name);
    let iops =
        |parts: &mut dyn Iterator<Item = &ClientPart>| parts.map(|part| part.iops).sum::<f64>();
    let all = iops(&mut parts());
    let share = 100.0 * iops(&mut ours()) / all.max(f64::MIN_POSITIVE);
    let cpu: Vec<f64> = ours().filter_map(|part| part.cpu_pct).collect();
    let late = ours().map(|part| part.late_us).fold(0.0, f64::max);
    let machine = &note.machine;
    html! {
        tr {
            td.key { (note.name) }
            td.text { (machine.cpu_model) ", " (machine.cores) " cores, " (machine.kernel) }
            td { (format!("{share:.1} %")) }
            td { @if !cpu.is_empty() { (format!("{:.0}", median(&cpu))) } }
            td { (grouped(late)) }
            td {
                (format!("{:.2}", note.clock_ahead_us / 1000.0)) " \u{b1} "
                (format!("{:.2}", note.clock_error_us / 1000.0))
            }
            td { (grouped(note.clock_drift_us)) }
            td.text { @if let Some(died) = &note.died { span.fail { (died) } } }
        }
    }
}
