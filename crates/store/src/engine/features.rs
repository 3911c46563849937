//! Features of the format that a pool begins to use. A program that lacks one must be refused before the first byte
//! that it would misread: so an order that brings such bytes waits until both roots of the drives name the feature. Both,
//! for where the newer root cannot be read, the older one counts. What a root has named, all later ones do.

use ashlar_block::{ErrorKind, IoError};

use super::Engine;
use crate::format::{Feature, Features, Root};
use crate::manage::{Manage, VolumePlan};

/// What roots say that the pool uses.
#[derive(Debug)]
pub(super) struct FeatureRoots {
    /// What every root says from now on.
    wanted: Features,
    /// What the root before the last durable one says, if that is on the drives: after an import, nothing is sure.
    before: Features,
}

impl FeatureRoots {
    pub(super) const fn new(wanted: Features) -> Self {
        Self {
            wanted,
            before: Features::NONE,
        }
    }

    /// What the next root says.
    pub(super) const fn wanted(&self) -> Features {
        self.wanted
    }

    /// Another root is durable now, and this is what the one before says.
    pub(super) const fn overtaken(&mut self, before: Features) {
        self.before = before;
    }

    /// Whether one of the two roots does not say all of it.
    pub(super) const fn are_due(&self, durable: &Root) -> bool {
        !self.before.has(self.wanted) || !durable.features.has(self.wanted)
    }
}

/// Orders that wait for roots.
#[derive(Debug, Default)]
pub(crate) struct FeatureOrders {
    waiting: Vec<(u64, Manage)>,
}

impl Features {
    /// What a volume needs.
    pub(super) fn of_plan(plan: &VolumePlan) -> Self {
        let tiers = plan.hot.map(|_| Feature::Tiers);
        let caches = plan.is_cache.then_some(Feature::Caches);
        tiers.into_iter().chain(caches).collect()
    }
}

impl Engine {
    /// Whether bytes that need these features may be written.
    pub(super) fn may_use(&self, features: Features) -> bool {
        let roots = &self.roots.features;
        roots.wanted.has(features) && !roots.are_due(self.roots.durable())
    }

    /// What the pool's roots name, by the last durable one.
    pub(super) const fn features(&self) -> Features {
        self.roots.durable().features
    }

    /// Obeys an order when both roots name what it needs.
    pub(super) fn use_when_named(&mut self, id: u64, features: Features, what: Manage) {
        let roots = &mut self.roots.features;
        roots.wanted = roots.wanted.and(features);
        self.feature_orders.waiting.push((id, what));
    }

    /// Obeys what has waited.
    pub(super) fn advance_features(&mut self) {
        if self.feature_orders.waiting.is_empty()
            || self.roots.features.are_due(self.roots.durable())
        {
            return;
        }
        for (id, what) in std::mem::take(&mut self.feature_orders.waiting) {
            self.manage(id, what);
        }
    }

    /// The engine has stopped: what waits is refused.
    pub(super) fn fail_features(&mut self, why: &str) {
        for (id, _) in std::mem::take(&mut self.feature_orders.waiting) {
            let error = IoError::new(ErrorKind::Latched, why.to_owned());
            self.out.managed.push((id, Err(error)));
        }
    }
}
