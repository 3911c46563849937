//! What was found to be bad and has not been vouched for since: a scrub that reaches its end has read every
//! copy and written bad ones again.

use std::collections::BTreeMap;

use ashlar_store::{Counters, Engine, Status};

/// What no scrub has vouched for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// Bad copies that were found in service since the last scrub ended, by drive; those of drives in service.
    pub bad_copies: BTreeMap<usize, u64>,
    /// Granules without a good copy.
    pub lost: u64,
}

/// What the last scrub has vouched for.
#[derive(Default)]
pub(super) struct Soundness {
    scrubs: u64,
    bad_copies: BTreeMap<usize, u64>,
    lost: u64,
    /// As many were lost when a scrub was not running last.
    lost_before: u64,
}

fn bad_copies(status: &Status) -> BTreeMap<usize, u64> {
    let members = status.members.iter().enumerate();
    let serving = members.filter(|(_, member)| member.in_service && member.bad_copies > 0);
    serving
        .map(|(index, member)| (index, member.bad_copies))
        .collect()
}

impl Soundness {
    /// What an import has found it has mended, as far as it can be: a label of which one copy was bad, say.
    pub(super) fn of(engine: &Engine) -> Self {
        Self {
            bad_copies: bad_copies(&engine.status()),
            ..Self::default()
        }
    }

    /// Notes the ends of scrubs.
    pub(super) fn look(&mut self, engine: &Engine) {
        let counters = engine.counters();
        if counters.scrubs != self.scrubs {
            self.scrubbed(counters, bad_copies(&engine.status()));
        }
        if engine.walk_progress().is_none() {
            self.lost_before = counters.lost;
        }
    }

    fn scrubbed(&mut self, counters: Counters, bad_copies: BTreeMap<usize, u64>) {
        (self.scrubs, self.bad_copies) = (counters.scrubs, bad_copies);
        // What is lost is found again by each scrub, until it is written anew.
        if counters.lost == self.lost_before {
            self.lost = counters.lost;
        }
    }

    /// What is in doubt now.
    pub(super) fn doubts(&self, status: &Status) -> Doubts {
        self.beyond(bad_copies(status), status.counters.lost)
    }

    fn beyond(&self, found: BTreeMap<usize, u64>, lost: u64) -> Doubts {
        let vouched = |drive: &usize| self.bad_copies.get(drive).copied().unwrap_or_default();
        let more = found
            .into_iter()
            .map(|(drive, bad)| (drive, bad.saturating_sub(vouched(&drive))));
        Doubts {
            bad_copies: more.filter(|(_, bad)| *bad > 0).collect(),
            lost: lost.saturating_sub(self.lost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(scrubs: u64, lost: u64) -> Counters {
        Counters {
            scrubs,
            lost,
            ..Counters::default()
        }
    }

    #[test]
    fn a_scrub_vouches_for_what_it_has_mended_and_not_for_what_is_lost() {
        let bad = |count: u64| BTreeMap::from([(1, count)]);
        let mut sound = Soundness::default();
        assert_eq!(sound.beyond(bad(5562), 0).bad_copies, bad(5562));
        sound.scrubbed(counters(1, 0), bad(6000));
        assert_eq!(sound.beyond(bad(6000), 0), Doubts::default());
        assert_eq!(sound.beyond(bad(6001), 0).bad_copies, bad(1));
        // Two are lost, and found again by the next scrub; the one after it finds none.
        sound.lost_before = 2;
        sound.scrubbed(counters(2, 4), bad(6001));
        assert_eq!(sound.beyond(bad(6001), 4).lost, 4);
        sound.lost_before = 4;
        sound.scrubbed(counters(3, 4), bad(6001));
        assert_eq!(sound.beyond(bad(6001), 4), Doubts::default());
    }
}
