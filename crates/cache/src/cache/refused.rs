//! Granules that do not go back, because of one bad sector for instance, of the backing device or of the fast one. A
//! run that fails is tried again in halves, down to the granules that are at fault: those alone wait, and others go on.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::Moment;

use super::clean::RUN;

/// How long a granule that did not go back is left alone.
const RETRY: Duration = Duration::from_secs(1);
/// Most granules that are left alone one by one, and runs that fail in a row, before it is the device that fails.
const MOST_GRANULES: usize = 1024;
const MOST_IN_A_ROW: u32 = 16;

/// What has been refused.
pub(super) struct Refused {
    /// Most granules of a run now.
    longest: u64,
    /// When each is tried again.
    granules: BTreeMap<u64, Moment>,
    /// Runs that have failed since one went back.
    in_a_row: u32,
}

impl Default for Refused {
    fn default() -> Self {
        Self {
            longest: RUN,
            granules: BTreeMap::new(),
            in_a_row: 0,
        }
    }
}

impl Refused {
    pub(super) const fn longest(&self) -> u64 {
        self.longest
    }

    /// Whether a granule is left alone now.
    pub(super) fn has(&self, granule: u64, now: Moment) -> bool {
        self.granules.get(&granule).is_some_and(|&at| at > now)
    }

    /// A run has gone back.
    pub(super) fn took(&mut self) {
        self.in_a_row = 0;
        self.longest = (self.longest * 2).min(RUN);
    }

    /// A run has failed. Whether that is the device's fault, as far as can be told.
    pub(super) fn refused(&mut self, first: u64, end: u64, now: Moment) -> bool {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.longest = ((end - first) / 2).max(1).min(self.longest);
        self.granules.retain(|_, at| *at > now);
        let has_room = self.granules.len() < MOST_GRANULES;
        if end - first == 1 && has_room {
            self.granules.insert(first, now + RETRY);
        }
        self.in_a_row > MOST_IN_A_ROW || !has_room
    }

    /// When one is to be tried again.
    pub(super) fn next_deadline(&self, now: Moment) -> Option<Moment> {
        let later = |at: &Moment| *at > now;
        self.granules.values().copied().filter(later).min()
    }
}
