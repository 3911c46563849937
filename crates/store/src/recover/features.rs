//! Features that a pool uses: those of a pool from before its roots named them, too.

use crate::engine::Parts;
use crate::engine::map::REPLICAS;
use crate::format::{Feature, Features};

/// What is found of them in the tables.
pub(super) fn in_use(parts: &Parts) -> Features {
    let used = |feature: &Feature| {
        let mut volumes = parts.volumes.values();
        match feature {
            Feature::Replicas => !parts.map.system_pages(REPLICAS).is_empty(),
            Feature::Tiers => volumes.any(|entry| entry.hot.is_some()),
            Feature::Caches => volumes.any(|entry| entry.is_cache),
        }
    };
    Feature::ALL.into_iter().filter(used).collect()
}
