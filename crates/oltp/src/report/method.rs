//! What was driven, and how.

use ashlar_lab::units::grouped;
use maud::{Markup, html};

use crate::database::Description;
use crate::result::{Method, OltpResult};

/// The database and how it was built.
pub(crate) fn database(result: &OltpResult) -> Markup {
    html! {
        section {
            (described(&result.database))
            @if let Some(build) = &result.build { p.note { (build.line()) } }
        }
    }
}

/// A database and its settings.
pub(super) fn described(database: &Description) -> Markup {
    html! {
        p { (database.version) " at " code { (database.target) } ", " (database.sql) }
        details {
            summary { "Settings" }
            pre {
                @for (name, value) in &database.settings { (name) " = " (value) "\n" }
            }
        }
    }
}

/// How it was measured.
pub(crate) fn method(result: &OltpResult) -> Markup {
    let m: &Method = &result.method;
    html! {
        section {
            h2 { "How it was measured" }
            p {
                (grouped(f64::from(m.warehouses))) " warehouses, mode " code { (m.mode) } ", mix "
                code { (mix(m)) } "; " (m.repeats) " repeats of " (m.seconds) " s after "
                (m.ramp_s) " s of ramp from the last login on"
                @if m.all_warehouses { "; all warehouses split over the users" }
                @else { "; one home warehouse a user" }
                @if m.slow_down_pct > 0.0 { "; slowed down by " (m.slow_down_pct) " % on purpose" }
                @if m.keying_and_thinking && m.think_s.is_empty() { "; with keying and thinking" }
                @for (kind, seconds) in &m.think_s { "; " (seconds) " s to think after " (kind) }
                @if m.in_turns {
                    "; configurations took turns under one load, in an order drawn for each block and back: a "
                    "repeat is a block's two turns"
                }
                @if m.in_turns { "; the database put back before the first turn" }
                @else if m.restored { "; the database put back and checked before every step" }
                @else { "; the database not put back: orders accumulate" }
                ". NOPM is the change of sum(d_next_o_id) over the elapsed minutes. It is TPROC-C, not "
                "TPC-C: these are no tpmC."
            }
        }
    }
}

fn mix(method: &Method) -> &'static str {
    match method.mix {
        crate::inputs::Mix::TprocC => "tproc-c",
        crate::inputs::Mix::TpcC => "tpc-c",
    }
}
