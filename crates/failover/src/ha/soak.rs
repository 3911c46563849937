//! Faults as a seed draws them.

use super::HaPlan;
use super::kinds::HaFault;

/// What can fail here: without namespaces no link can be cut.
fn possible(loopback: bool) -> Vec<HaFault> {
    let all = HaFault::ALL.iter().copied();
    all.filter(|fault| !loopback || !fault.needs_namespaces())
        .collect()
}

/// What fails, in this order.
pub(super) fn schedule(plan: &HaPlan) -> Vec<HaFault> {
    let HaPlan { kinds, rounds, .. } = plan;
    if !plan.soak {
        let kinds = match kinds.is_empty() {
            true => &[HaFault::Kill][..],
            false => kinds,
        };
        return (0..*rounds).flat_map(|_| kinds.iter().copied()).collect();
    }
    let kinds = match kinds.is_empty() {
        true => possible(plan.loopback),
        false => kinds.clone(),
    };
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let draw = |_| kinds[random.usize(..kinds.len())];
    (0..plan.faults).map(draw).collect()
}
