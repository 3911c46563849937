use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_block::{ErrorKind, Request};

use super::rule::{Action, Rule, Trigger};

/// What a device's spec says of its faults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// Everything random follows from it.
    pub seed: u64,
    /// The oldest that strikes a request decides.
    pub rules: Vec<Rule>,
    /// See [`FaultControl::obey`].
    pub switch: Option<PathBuf>,
}

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
    /// A file that says what is wrong with the device while it exists.
    switch: Option<PathBuf>,
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
            switch: None,
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

    /// While a file exists, the device does what it says: `dead`, every request is a media error; `hung`, nothing is
    /// done or answered until the file is gone. For processes that are not the test's own.
    pub fn obey(&self, switch: &Path) {
        self.lock().switch = Some(switch.to_owned());
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

    /// How often stalled requests were released: once more, if they wait for a switch that is not there any more.
    pub(super) fn releases(&self) -> u64 {
        let state = &mut *self.lock();
        let is_off = |switch: &PathBuf| !switch.exists();
        if state.stalled > 0 && state.switch.as_ref().is_some_and(is_off) {
            state.releases += 1;
            state.stalled = 0;
        }
        state.releases
    }

    pub(super) fn judge(&self, request: &Request) -> Option<Verdict> {
        let state = &mut *self.lock();
        let mut verdict = state.switched();
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

impl State {
    /// What the switch wants.
    fn switched(&self) -> Option<Action> {
        let said = std::fs::read_to_string(self.switch.as_ref()?).ok()?;
        match said.trim() {
            "dead" => Some(Action::Error(ErrorKind::Media)),
            "hung" => Some(Action::Stall),
            _ => None,
        }
    }
}
