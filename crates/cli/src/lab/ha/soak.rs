//! Faults as a seed draws them.

use clap::ValueEnum;

use crate::args::{HaArguments, HaFault};

/// What can fail here: without namespaces no link can be cut.
fn possible(loopback: bool) -> Vec<HaFault> {
    let all = HaFault::value_variants().iter().copied();
    all.filter(|fault| !loopback || !fault.needs_namespaces())
        .collect()
}

/// What fails, in this order.
pub(super) fn plan(arguments: &HaArguments) -> Vec<HaFault> {
    let HaArguments { kinds, rounds, .. } = arguments;
    if !arguments.soak {
        let kinds = match kinds.is_empty() {
            true => &[HaFault::Kill][..],
            false => kinds,
        };
        return (0..*rounds).flat_map(|_| kinds.iter().copied()).collect();
    }
    let kinds = match kinds.is_empty() {
        true => possible(arguments.loopback),
        false => kinds.clone(),
    };
    let mut random = fastrand::Rng::with_seed(arguments.seed);
    let draw = |_| kinds[random.usize(..kinds.len())];
    (0..arguments.faults).map(draw).collect()
}
