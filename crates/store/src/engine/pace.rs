//! How fast a walk over everything goes: alone, as fast as its drives. While hosts use the pool, it works in
//! rounds and rests after each for a multiple of what the round took, so that they have most of the drives
//! whatever those are, and there is nothing to set.

use std::time::Duration;

use ashlar_block::Moment;

use super::Engine;
use super::rebuild::{AT_A_TIME, Phase};

/// Hosts use the pool while a command is under way, and for this long after one came.
const QUIET: Duration = Duration::from_millis(100);
/// How many times as long as a round took, a walk rests after it: one that makes copies that are missing, and
/// one that only looks.
const REST_OF_REPAIR: u32 = 1;
const REST_OF_SCRUB: u32 = 3;
/// A drive that stalls is no reason to rest for ever.
const MOST_REST: Duration = Duration::from_secs(1);

/// How fast a walk goes.
#[derive(Default)]
pub(super) struct Pace {
    /// When a host's last command came.
    host_came: Option<Moment>,
    /// When the round began, if there is one, and bytes of slots taken on in it.
    began: Option<Moment>,
    taken: u64,
    rests_until: Moment,
}

impl Engine {
    /// A host's command has come.
    pub(super) fn host_came(&mut self) {
        self.rebuild.pace.host_came = Some(self.now);
    }

    pub(super) fn hosts_are_here(&self) -> bool {
        let came = self.rebuild.pace.host_came;
        !self.ops.is_empty() || came.is_some_and(|at| self.now < at + QUIET)
    }

    /// Until when a walk rests among hosts whose round began then and has just ended.
    pub(super) fn rested(&self, began: Moment, repairs: bool) -> Moment {
        let times = if repairs {
            REST_OF_REPAIR
        } else {
            REST_OF_SCRUB
        };
        self.now + (self.now.since(began) * times).min(MOST_REST)
    }

    /// When a walk that rests goes on.
    pub(super) fn walk_deadline(&self) -> Option<Moment> {
        let at = self.rebuild.pace.rests_until;
        (self.rebuild.phase == Phase::Walking && at > self.now).then_some(at)
    }

    /// Whether another slot of so many bytes may be taken on now: no more than are worked on at a time, and while
    /// hosts are here, no more than a round has, and none while it rests.
    pub(super) fn may_take_up(&mut self, bytes: u64) -> bool {
        let shared = self.hosts_are_here();
        let repairs = !self.rebuild.joining.is_empty() || self.rebuild.returns.is_walking();
        let (now, pending) = (self.now, self.rebuild.pending as u64);
        if !shared {
            let pace = &mut self.rebuild.pace;
            (pace.began, pace.taken, pace.rests_until) = (None, 0, now);
        } else if pending == 0
            && let Some(began) = self.rebuild.pace.began.take()
        {
            let rests_until = self.rested(began, repairs);
            let pace = &mut self.rebuild.pace;
            (pace.taken, pace.rests_until) = (0, rests_until);
        }
        let pace = &mut self.rebuild.pace;
        let full = pace.taken.max(pending * bytes) >= AT_A_TIME;
        if full || now < pace.rests_until {
            return false;
        }
        pace.began.get_or_insert(now);
        pace.taken += bytes;
        true
    }
}
