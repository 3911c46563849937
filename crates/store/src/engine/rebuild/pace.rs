//! How fast a walk over everything goes: alone, as fast as its drives. While hosts use the pool, it works in
//! rounds and rests after each for a multiple of what the round took, so that they have most of the drives
//! whatever those are, and there is nothing to set.

use std::time::Duration;

use ashlar_block::Moment;

use super::{AT_A_TIME, Fills, Phase, Rebuild};

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
pub(in crate::engine) struct Pace {
    /// When a host's last command came.
    host_came: Option<Moment>,
    /// When the round began, if there is one, and bytes of slots taken on in it.
    began: Option<Moment>,
    taken: u64,
    rests_until: Moment,
}

/// What a walk is to go on with.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Next {
    pub(in crate::engine) now: Moment,
    /// Bytes of the slot.
    pub(in crate::engine) bytes: u64,
    /// Hosts use the pool.
    pub(in crate::engine) is_shared: bool,
}

impl Rebuild {
    /// A host's command has come.
    pub(in crate::engine) fn host_came(&mut self, now: Moment) {
        self.pace.host_came = Some(now);
    }

    /// Whether one came a short while ago.
    pub(in crate::engine) fn heard_of_hosts(&self, now: Moment) -> bool {
        self.pace.host_came.is_some_and(|at| now < at + QUIET)
    }

    /// When a walk that rests goes on.
    pub(in crate::engine) fn rests_until(&self, now: Moment) -> Option<Moment> {
        let at = self.pace.rests_until;
        (self.phase == Phase::Walking && at > now).then_some(at)
    }

    /// Whether another slot may be taken on now: no more than are worked on at a time, and while
    /// hosts are here, no more than a round has, and none while it rests.
    pub(in crate::engine) fn may_take_up(&mut self, next: Next) -> bool {
        let repairs = self.fills != Fills::Nothing || self.returns.is_walking();
        let (now, pending, pace) = (next.now, self.pending as u64, &mut self.pace);
        if !next.is_shared {
            (pace.began, pace.taken, pace.rests_until) = (None, 0, now);
        } else if pending == 0
            && let Some(began) = pace.began.take()
        {
            (pace.taken, pace.rests_until) = (0, rested(now, began, repairs));
        }
        let full = pace.taken.max(pending * next.bytes) >= AT_A_TIME;
        if full || now < pace.rests_until {
            return false;
        }
        pace.began.get_or_insert(now);
        pace.taken += next.bytes;
        true
    }
}

/// Until when a walk rests among hosts whose round began then and ends now.
pub(in crate::engine) fn rested(now: Moment, began: Moment, repairs: bool) -> Moment {
    let times = if repairs {
        REST_OF_REPAIR
    } else {
        REST_OF_SCRUB
    };
    now + (now.since(began) * times).min(MOST_REST)
}
