//! The portal of this host's own node, which is to own the volume.
//!
//! Ashlar's ownership of a replicated volume goes to the node by which most commands come for half a minute. A host
//! that always takes the owner's portal never asks for it. So a session that is told which portal is its own node's
//! takes that one while it reaches the namespace at all, though by way of the owner, until ownership has come. That
//! costs a hop on the way, so not for long: what has not come after [`TRIED`] seconds with commands is asked for again
//! later, and ever later.

use std::time::Duration;

use ashlar_block::Moment;

use super::Session;
use ashlar_nvme::log::AnaState;

/// Seconds with commands: longer than the half minute after which ownership moves.
const TRIED: u32 = 40;
const SECOND: Duration = Duration::from_secs(1);
/// How long it is left alone then: at first, and at most. As long as ownership stays at least.
const REST: Duration = Duration::from_secs(5 * 60);
const LONGEST_REST: Duration = Duration::from_secs(60 * 60);

/// How the own node's portal is preferred.
#[derive(Debug, Default)]
pub(super) struct Home {
    /// Seconds with commands since it is tried.
    busy: u32,
    /// Until when commands count as of the same second.
    second: Option<Moment>,
    /// Until when it is left alone, and for how long it will be.
    rests_until: Option<Moment>,
    rest: Duration,
}

impl Home {
    fn is_tried(&self, now: Moment) -> bool {
        self.rests_until.is_none_or(|until| until <= now)
    }

    /// A command goes that way, and not because it is the best.
    fn count(&mut self, now: Moment) {
        if self.second.is_some_and(|end| now < end) {
            return;
        }
        self.second = Some(now + SECOND);
        self.busy += 1;
        if self.busy > TRIED {
            self.rest = (self.rest * 2).clamp(REST, LONGEST_REST);
            self.rests_until = Some(now + self.rest);
            self.busy = 0;
        }
    }

    /// Ownership is there.
    fn has_come(&mut self) {
        *self = Self::default();
    }
}

impl Session {
    /// The own node's path, while it is preferred to better ones.
    pub(super) fn home_path(&self, now: Moment) -> Option<usize> {
        let home = self.config.prefers.as_deref()?;
        let mut paths = self.paths.iter();
        let at = paths.position(|path| path.config.address == home && path.rank(now).is_some())?;
        self.home.is_tried(now).then_some(at)
    }

    /// A command goes by this path.
    pub(super) fn note_home(&mut self, now: Moment, at: usize) {
        let path = &self.paths[at];
        if self.config.prefers.as_deref() != Some(&*path.config.address) {
            return;
        }
        match path.state() {
            Some(AnaState::Optimized) => self.home.has_come(),
            _ => self.home.count(now),
        }
    }
}
