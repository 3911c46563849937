//! Features of the format that a pool begins to use. A program that lacks one must be refused before the first byte
//! that it would misread: so an order that brings such bytes waits until both roots of the drives name the feature. Both,
//! for where the newer root cannot be read, the older one counts. What a root has named, all later ones do.

use crate::format::{Feature, Features};
use crate::manage::{Manage, VolumePlan};

/// What roots say that the pool uses, and orders that wait for roots that say more.
#[derive(Debug)]
pub(super) struct FeatureRoots {
    /// What every root says from now on.
    wanted: Features,
    /// What the last durable root says.
    durable: Features,
    /// What the root before that says, if that is on the drives: after an import, nothing is sure.
    before: Features,
    waiting: Vec<(u64, Manage)>,
}

impl FeatureRoots {
    pub(super) const fn new(durable: Features) -> Self {
        Self {
            wanted: durable,
            durable,
            before: Features::NONE,
            waiting: Vec::new(),
        }
    }

    /// What the next root says.
    pub(super) const fn wanted(&self) -> Features {
        self.wanted
    }

    /// What the last durable root says.
    pub(super) const fn durable(&self) -> Features {
        self.durable
    }

    /// Another root is durable, which says this.
    pub(super) const fn are_durable(&mut self, named: Features) {
        self.before = self.durable;
        self.durable = named;
    }

    /// Whether one of the two roots does not say all of it.
    pub(super) const fn are_due(&self) -> bool {
        !self.have(self.wanted)
    }

    /// Whether bytes that need these features may be written.
    pub(super) const fn have(&self, features: Features) -> bool {
        self.before.has(features) && self.durable.has(features)
    }

    /// Keeps an order until both roots name what it needs.
    pub(super) fn keep(&mut self, features: Features, (id, what): (u64, Manage)) {
        self.wanted = self.wanted.and(features);
        self.waiting.push((id, what));
    }

    /// Orders that have waited long enough.
    pub(super) fn take_ready(&mut self) -> Vec<(u64, Manage)> {
        match self.are_due() {
            true => Vec::new(),
            false => std::mem::take(&mut self.waiting),
        }
    }

    /// The engine has stopped: whose orders have waited.
    pub(super) fn take_asked(&mut self) -> Vec<u64> {
        self.waiting.drain(..).map(|(id, _)| id).collect()
    }
}

impl Features {
    /// What a volume needs.
    pub(super) fn of_plan(plan: &VolumePlan) -> Self {
        let tiers = plan.hot.map(|_| Feature::Tiers);
        let caches = plan.is_cache.then_some(Feature::Caches);
        tiers.into_iter().chain(caches).collect()
    }
}
