//! The target against the bare socket limit: the same client, the same bytes, no protocol.

use super::{Bench, MEMORY, MEMORY_BYTES, on_core, round};
use crate::cpu::Meter;
use crate::failure::Failure;
use crate::figures::{Case, Row};
use crate::raw::{Host, Load, Wait};
use crate::serve::{self, NQN};

/// Loads by kind: each kind has a bare server of its own.
const CASES: &[&[Case]] = &[
    &[
        Case::new("randread", 4096, 1),
        Case::new("randread", 4096, 32),
        Case::new("randread", 4096, 128),
    ],
    &[
        Case::new("randwrite", 4096, 1),
        Case::new("randwrite", 4096, 32),
        Case::new("randwrite", 4096, 128),
    ],
    &[Case::new("randread", 65_536, 8)],
];

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Row>, Failure> {
    let target = serve::ashlar(bench.options, "bare-target", MEMORY, &[bench.server_core])?;
    let mut host = Host::connect(target.address, NQN, 0, None)?;
    let mut ours = host.load()?;
    ours.fill()?;
    let mut rows = Vec::new();
    for cases in CASES {
        let server = serve::bare(&bench.options.out, &cases[0], bench.server_core)?;
        let mut bare = Load::bare(server.address, MEMORY_BYTES)?;
        for case in *cases {
            let plan = bench.plan(Wait::Spin);
            let (ours, bare) = (&mut ours, &mut bare);
            let (meter_a, meter_b) = (Meter::of(target.pid()), Meter::of(server.pid()));
            let (a, b) = on_core(bench.client_core, || {
                bench.in_turn(
                    || round(ours, case, &plan, meter_a),
                    || round(bare, case, &plan, meter_b),
                )
            })?;
            rows.push(Row::of(*case, a, b));
        }
    }
    Ok(rows)
}
