//! What of a pool's drives can be data: the price of a layout.

use maud::{Markup, html};

use crate::result::{Capacity, RunResult};
use crate::units::human_bytes;

/// A row for each configuration on a pool of the run's own; nothing if there is none.
pub(super) fn section(result: &RunResult) -> Markup {
    let all = result.configurations.iter();
    let known: Vec<(&str, &Capacity)> = all
        .filter_map(|of| Some((&*of.name, of.capacity.as_ref()?)))
        .collect();
    html! {
        @if !known.is_empty() {
            section {
                h2 { "Capacity" }
                table.figures {
                    thead {
                        tr {
                            th { "configuration" } th { "data, by the layout" } th { "data, with reserves" }
                            th { "kept for repair" } th { "logs and map" } th { "drives of a node" }
                        }
                    }
                    tbody { @for (name, of) in &known { (row(name, of)) } }
                }
                p.note {
                    "Percent of the drives\u{2019} bytes that can be data, all copies counted. With reserves: without what a "
                    "pool keeps so that a lost drive can be rebuilt, and without its logs and map, as this pool told it "
                    "with the reserve that a new pool has. It was measured with none."
                }
            }
        }
    }
}

fn row(name: &str, of: &Capacity) -> Markup {
    let share = |bytes: u64| {
        let pct = 100.0 * bytes as f64 / of.raw_bytes.max(1) as f64;
        format!("{} ({pct:.1} %)", human_bytes(bytes))
    };
    html! {
        tr {
            td.key { (name) }
            td { (format!("{:.1} %", of.layout_pct)) }
            td { (format!("{:.1} %", of.with_reserves_pct)) }
            td { (share(of.repair_bytes)) }
            td { (share(of.metadata_bytes)) }
            td { (human_bytes(of.raw_bytes)) }
        }
    }
}
