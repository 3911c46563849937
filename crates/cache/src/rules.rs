//! What is kept out by hand: ranges of the device, by the rule that names them.

use std::collections::BTreeMap;
use std::ops::Range;

/// Names a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// A rule, and what it has done since the cache came into service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleStatus {
    pub id: RuleId,
    /// Granules that it keeps out.
    pub granules: u64,
    /// Parts of reads that met it.
    pub reads: u64,
    /// Parts of writes that did.
    pub writes: u64,
}

#[derive(Debug, Default)]
struct Rule {
    /// In order of address; none touches another.
    ranges: Vec<Range<u64>>,
    reads: u64,
    writes: u64,
}

impl Rule {
    fn meets(&self, granules: &Range<u64>) -> bool {
        let at = self
            .ranges
            .partition_point(|range| range.end <= granules.start);
        self.ranges
            .get(at)
            .is_some_and(|range| range.start < granules.end)
    }
}

/// All rules of a cache.
#[derive(Debug, Default)]
pub(crate) struct Rules(BTreeMap<RuleId, Rule>);

impl Rules {
    /// Puts a rule in, or other ranges in its place; what it has counted stays.
    pub(crate) fn set(&mut self, id: RuleId, mut ranges: Vec<Range<u64>>) {
        ranges.retain(|range| range.start < range.end);
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        self.0.entry(id).or_default().ranges = merged;
    }

    pub(crate) fn remove(&mut self, id: RuleId) {
        self.0.remove(&id);
    }

    /// Whether a rule names any of these granules. It counts them.
    pub(crate) fn exclude(&mut self, granules: &Range<u64>, is_read: bool) -> bool {
        let Some(rule) = self.0.values_mut().find(|rule| rule.meets(granules)) else {
            return false;
        };
        match is_read {
            true => rule.reads += 1,
            false => rule.writes += 1,
        }
        true
    }

    pub(crate) fn status(&self) -> Vec<RuleStatus> {
        let status = |(&id, rule): (&RuleId, &Rule)| RuleStatus {
            id,
            granules: rule
                .ranges
                .iter()
                .map(|range| range.end - range.start)
                .sum(),
            reads: rule.reads,
            writes: rule.writes,
        };
        self.0.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_keeps_out_its_ranges_and_counts_who_met_it() {
        let mut rules = Rules::default();
        let (log, other) = (RuleId(1), RuleId(2));
        rules.set(log, vec![20..30, 5..10, 8..12, 40..40]);
        rules.set(other, vec![100..101, 101..101]);
        for (granules, meets) in [
            (0..5, false),
            (4..6, true),
            (12..20, false),
            (29..31, true),
            (40..41, false),
            (90..110, true),
        ] {
            assert_eq!(rules.exclude(&granules, true), meets, "{granules:?}");
        }
        assert!(rules.exclude(&(25..26), false));
        let status = |id, granules, reads, writes| RuleStatus {
            id,
            granules,
            reads,
            writes,
        };
        assert_eq!(
            rules.status(),
            [status(log, 17, 2, 1), status(other, 1, 1, 0)]
        );
        // Renewed, it goes on counting.
        rules.set(log, vec![50..55, 55..60]);
        assert!(!rules.exclude(&(25..26), true) && rules.exclude(&(59..60), true));
        assert_eq!(rules.status()[0], status(log, 10, 3, 1));
        rules.remove(log);
        assert!(!rules.exclude(&(59..60), true));
    }
}
