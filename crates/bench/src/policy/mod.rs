//! Hit ratios of the cache's policy beside others, on traces of block accesses.
//!
//! Ours is the code of [`ashlar_cache::policy`] that the daemon runs; the others are here. Nothing is read or
//! written: what counts is which slots each would have had.

mod lists;
mod others;
mod ours;
mod synthetic;
mod traces;

use std::collections::HashSet;
use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;
use ours::Ours;
use traces::Trace;

/// Sizes of the cache, in percent of the slots that a trace touches.
const SHARES: [usize; 5] = [1, 2, 5, 10, 20];
/// Fewest slots of a cache.
const LEAST: usize = 64;
/// What is hoped for: this share of the best on each trace and size.
pub(crate) const GOAL: f64 = 0.98;
/// Names of policies, in the order of a cell's ratios.
pub(crate) const NAMES: [&str; 5] = ["Ashlar", "LRU", "2Q", "ARC", "W-TinyLFU"];

/// What is compared, and how.
#[derive(Clone, Debug)]
pub(crate) struct PolicyOptions<'a> {
    /// Where traces are; without, made-up ones.
    pub(crate) traces: Option<&'a Path>,
    /// Bytes of a slot.
    pub(crate) slot: u64,
    /// Sizes of the cache in slots, instead of shares.
    pub(crate) slots: &'a [usize],
}

/// One trace at one size of the cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PolicyCell {
    pub(crate) trace: String,
    /// Reads of slots in the trace.
    pub(crate) reads: u64,
    /// Slots that it touches.
    pub(crate) touches: usize,
    /// Slots of the cache.
    pub(crate) slots: usize,
    /// Hits of all reads, in the order of [`NAMES`].
    pub(crate) hit_ratios: [f64; 5],
    /// Ours, as a share of the best of the others.
    pub(crate) of_best: f64,
    /// Memory of our queues and their names, a slot of a full cache.
    pub(crate) bytes_a_slot: usize,
}

/// A policy under a trace.
trait Policy {
    /// A slot is asked for; whether it was there.
    fn ask(&mut self, slot: u32) -> bool;
}

/// Runs all traces; `told` is called with each cell.
pub(crate) fn policy(
    options: &PolicyOptions<'_>,
    mut told: impl FnMut(&PolicyCell) -> Result<(), Failure>,
) -> Result<Vec<PolicyCell>, Failure> {
    let mut cells = Vec::new();
    let mut run = |trace: &Trace| {
        for slots in sizes(trace, options.slots) {
            let cell = cell(trace, slots);
            told(&cell)?;
            cells.push(cell);
        }
        Ok(())
    };
    match options.traces {
        None => synthetic::all(options.slot).iter().try_for_each(&mut run)?,
        Some(dir) => {
            for path in traces::files(dir)? {
                run(&Trace::read(&path, options.slot)?)?;
            }
        }
    }
    Ok(cells)
}

fn touched(trace: &Trace) -> usize {
    let all: HashSet<u32> = (trace.accesses.iter())
        .flat_map(|access| access.slots(trace.slot))
        .collect();
    all.len()
}

fn sizes(trace: &Trace, asked: &[usize]) -> Vec<usize> {
    if !asked.is_empty() {
        return asked.to_vec();
    }
    let all = touched(trace);
    let shares = SHARES.iter().map(|share| (all * share / 100).max(LEAST));
    shares.collect()
}

fn cell(trace: &Trace, slots: usize) -> PolicyCell {
    let mut ours = Ours::new(slots, trace.slot);
    let mut hits = [0; NAMES.len()];
    hits[0] = ours.hits(&trace.accesses);
    let others: [Box<dyn Policy>; 4] = [
        Box::new(others::Lru::new(slots)),
        Box::new(others::TwoQueues::new(slots)),
        Box::new(others::Arc::new(slots)),
        Box::new(others::TinyLfu::new(slots)),
    ];
    for (hits, mut other) in hits[1..].iter_mut().zip(others) {
        for access in &trace.accesses {
            let here = access
                .slots(trace.slot)
                .filter(|&slot| other.ask(slot))
                .count();
            *hits += if access.is_write { 0 } else { here as u64 };
        }
    }
    let read = trace.accesses.iter().filter(|access| !access.is_write);
    let reads: u64 = read
        .map(|access| access.slots(trace.slot).count() as u64)
        .sum();
    let hit_ratios = hits.map(|hits| hits as f64 / reads.max(1) as f64);
    let best = hit_ratios[1..].iter().copied().fold(0.0, f64::max);
    PolicyCell {
        trace: trace.name.clone(),
        reads,
        touches: touched(trace),
        slots,
        hit_ratios,
        of_best: hit_ratios[0] / best.max(f64::MIN_POSITIVE),
        bytes_a_slot: ours.bytes() / slots.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traces::Access;

    fn trace(accesses: Vec<Access>) -> Trace {
        Trace {
            name: "made".to_owned(),
            slot: 8192,
            accesses,
        }
    }

    fn read(slot: u32) -> Access {
        Access {
            first: u64::from(slot) * 8192,
            bytes: 8192,
            is_write: false,
        }
    }

    #[test]
    fn each_policy_does_what_its_paper_says() {
        // A loop over a little more than the cache: all miss under LRU, and others keep some.
        let made: Vec<Access> = (0..20_000).map(|at| read(at * 9 % 140)).collect();
        let cell = cell(&trace(made), 128);
        let [ours, lru, two_queues, arc, tiny] = cell.hit_ratios;
        assert_eq!(lru, 0.0);
        for (name, ratio) in [("ours", ours), ("2Q", two_queues), ("TinyLFU", tiny)] {
            assert!(ratio > 0.3, "{name} {ratio}");
        }
        // ARC degenerates to LRU on a loop, as its authors say.
        assert!(arc < 0.3, "{arc}");
        // All that fits is there from the second time on, for all.
        let made: Vec<Access> = (0..1280).map(|at| read(at % 64)).collect();
        let fits = super::cell(&trace(made), 128);
        let most = 1.0 - 64.0 / 1280.0;
        assert_eq!(fits.hit_ratios, [most; 5]);
        assert_eq!((fits.reads, fits.touches), (1280, 64));
    }

    #[test]
    fn ours_is_near_the_best_of_the_others_on_what_databases_do() {
        for trace in synthetic::all(8192) {
            let slots = sizes(&trace, &[])[2];
            let cell = cell(&trace, slots);
            assert!(cell.of_best >= GOAL, "{cell:?}");
            // The policy tries its preferences on as many names again, twice; of a large cache on 4096.
            assert!(cell.bytes_a_slot < 3 * 160, "{cell:?}");
        }
    }

    #[test]
    fn a_large_cache_takes_few_bytes_a_slot() {
        const SLOTS: usize = 40_000;
        let all = synthetic::all(8192);
        let trace = all.iter().find(|trace| touched(trace) > SLOTS);
        let trace = trace.expect("one that fills it");
        let mut ours = Ours::new(SLOTS, 8192);
        ours.hits(&trace.accesses);
        assert!(ours.bytes() < 160 * SLOTS, "{}", ours.bytes() / SLOTS);
    }
}
