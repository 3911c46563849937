use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_block::Request;

use super::rule::{Action, Rule, Trigger};

/// The handle by which a test changes a device's faults while it runs. All queues obey it.
#[derive(Clone)]
pub struct FaultControl(Arc<Mutex<State>>);

struct State {
    rules: Vec<(u64, Armed)>,
    next_id: u64,
    random: fastrand::Rng,
    stalled: u64,
    /// Counts releases: requests stalled before the latest may go on.
    releases: u64,
    struck: u64,
}

struct Armed {
    rule: Rule,
    seen: u64,
}

/// A rule's name, to take it away again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(u64);

/// What a rule does to a request.
pub(super) struct Verdict {
    pub(super) action: Action,
    /// A random number for whatever the action needs one for.
    pub(super) random: u64,
    /// The number of releases so far.
    pub(super) releases: u64,
}

impl FaultControl {
    /// No faults yet; everything random follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            rules: Vec::new(),
            next_id: 0,
            random: fastrand::Rng::with_seed(seed),
            stalled: 0,
            releases: 0,
            struck: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule; the oldest that strikes a request decides.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.rules.push((id, Armed { rule, seen: 0 }));
        RuleId(id)
    }

    /// Takes a rule away.
    pub fn remove(&self, id: RuleId) {
        self.lock().rules.retain(|&(other, _)| other != id.0);
    }

    /// Takes all rules away and releases what is stalled.
    pub fn clear(&self) {
        self.lock().rules.clear();
        self.release();
    }

    /// Lets everything that is stalled now go on, at each queue's next poll.
    pub fn release(&self) {
        let mut state = self.lock();
        state.releases += 1;
        state.stalled = 0;
    }

    /// How many requests are stalled.
    pub fn stalled(&self) -> u64 {
        self.lock().stalled
    }

    /// How often any rule has struck.
    pub fn struck(&self) -> u64 {
        self.lock().struck
    }

    pub(super) fn releases(&self) -> u64 {
        self.lock().releases
    }

    pub(super) fn judge(&self, request: &Request) -> Option<Verdict> {
        let state = &mut *self.lock();
        let mut verdict = None;
        for (_, armed) in &mut state.rules {
            if !armed.rule.looks_at(request.op, request.range) {
                continue;
            }
            armed.seen += 1;
            let strikes = match armed.rule.trigger {
                Trigger::Always => true,
                Trigger::Chance(chance) => state.random.f64() < chance,
                Trigger::Nth(nth) => armed.seen == nth,
                Trigger::From(nth) => armed.seen >= nth,
            };
            if strikes && verdict.is_none() {
                verdict = Some(armed.rule.action);
            }
        }
        let action = verdict?;
        state.struck += 1;
        if action == Action::Stall {
            state.stalled += 1;
        }
        Some(Verdict {
            action,
            random: state.random.u64(..),
            releases: state.releases,
        })
    }
}
