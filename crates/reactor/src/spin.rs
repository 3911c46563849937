//! Whether to spin before sleeping: only while it has lately paid.
//!
//! Sleeping and waking costs several microseconds, which is most of a depth-1 round trip; but
//! spinning for an event that comes later than a sleep would have taken is pure waste, and with
//! many requests in flight a short sleep gathers a batch. So: spin only after small batches, and
//! keep a score of spins that caught an event against those that ran out.

use std::time::Duration;

const SMALL_BATCH: usize = 2;
const HIGH: i32 = 64;
const PROBE_EVERY: u32 = 64;

pub(crate) struct SpinPolicy {
    limit: Duration,
    score: i32,
    waits: u32,
}

impl SpinPolicy {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            score: HIGH / 2,
            waits: 0,
        }
    }

    /// How long to spin after a turn that had `last_batch` events.
    pub(crate) fn budget(&mut self, last_batch: usize) -> Option<Duration> {
        if self.limit.is_zero() || last_batch == 0 || last_batch > SMALL_BATCH {
            return None;
        }
        self.waits = self.waits.wrapping_add(1);
        let probing = self.waits.is_multiple_of(PROBE_EVERY);
        (self.score > 0 || probing).then_some(self.limit)
    }

    /// Tells whether an event came within the budget.
    pub(crate) fn outcome(&mut self, caught: bool) {
        let step = if caught { 4 } else { -8 };
        self.score = (self.score + step).clamp(0, HIGH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_only_while_it_pays() {
        let mut policy = SpinPolicy::new(Duration::from_micros(10));
        assert!(policy.budget(1).is_some());
        assert!(policy.budget(8).is_none(), "large batches sleep");
        assert!(
            policy.budget(0).is_none(),
            "nothing happened: nothing to wait for"
        );
        for _ in 0..8 {
            policy.outcome(false);
        }
        let spins = (0..640).filter(|_| policy.budget(1).is_some()).count();
        assert_eq!(spins, 10, "only probes are left");
        policy.outcome(true);
        assert!(policy.budget(1).is_some());
    }
}
