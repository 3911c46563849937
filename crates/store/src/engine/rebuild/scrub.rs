//! What is particular to a scrub: who asked for it, and how far it has come. Roots remember that, so that an
//! import goes on where the last engine was.

use std::time::Duration;

use ashlar_block::Moment;

use crate::engine::Engine;
use crate::format::ScrubAt;
use crate::manage::Managed;

/// How often it is remembered how far a scrub has come.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A scrub, wanted or under way.
#[derive(Default)]
pub(in crate::engine) struct Scrub {
    wanted: bool,
    /// Where the next one begins, if not at the beginning.
    from: Option<ScrubAt>,
    /// The walk is one, and everything before this was looked at.
    done_to: Option<ScrubAt>,
    /// When that was last remembered.
    remembered: Moment,
    /// It has come to its end, but for the map.
    walked: bool,
    /// What there was of the map is being written anew.
    map_begun: bool,
    /// Who waits for its end.
    pub(in crate::engine) asked_by: Vec<u64>,
}

impl Scrub {
    pub(in crate::engine) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether the walk that begins has the map written anew: one that was interrupted has begun with that.
    pub(in crate::engine) fn begins_map(&mut self) -> bool {
        self.wanted && !std::mem::replace(&mut self.map_begun, true)
    }

    /// Whether it is time to remember how far it has come.
    fn is_due(&self, now: Moment) -> bool {
        self.done_to.is_some() && !self.walked && now >= self.remembered + REMEMBERED
    }
}

impl Engine {
    pub(in crate::engine) fn scrub(&mut self, id: u64) {
        let scrub = &mut self.rebuild.scrub;
        (scrub.wanted, scrub.from) = (true, None);
        scrub.map_begun = false;
        scrub.asked_by.push(id);
    }

    /// After an import: what the engine before was at.
    pub(in crate::engine) fn resume_scrub(&mut self) {
        let scrub = &mut self.rebuild.scrub;
        scrub.from = self.roots.durable().scrub;
        scrub.wanted = scrub.from.is_some();
    }

    /// A walk begins, and is a scrub if one was wanted; says where that goes on.
    pub(in crate::engine) fn begin_scrub(&mut self) -> Option<ScrubAt> {
        let scrub = &mut self.rebuild.scrub;
        if !std::mem::take(&mut scrub.wanted) {
            return None;
        }
        let beginning = ScrubAt {
            volume: 0,
            granule: 0,
        };
        let from = scrub.from.take();
        scrub.walked = false;
        scrub.done_to = Some(from.unwrap_or(beginning));
        scrub.remembered = self.now;
        self.roots.say_scrub();
        from
    }

    /// Remembers how far a scrub has come, when it is time to; false if what is under way must end first.
    /// Everything before where the walk stands was looked at then.
    pub(in crate::engine) fn scrub_is_remembered(&mut self) -> bool {
        let (volume, granule) = (self.rebuild.volume, self.rebuild.at);
        let scrub = &mut self.rebuild.scrub;
        if !scrub.is_due(self.now) {
            return true;
        }
        if self.rebuild.pending > 0 {
            return false;
        }
        scrub.done_to = Some(ScrubAt { volume, granule });
        scrub.remembered = self.now;
        self.roots.say_scrub();
        true
    }

    /// Whether a scrub is wanted or under way, interrupted or not.
    pub fn has_scrub(&self) -> bool {
        let scrub = &self.rebuild.scrub;
        scrub.wanted || scrub.done_to.is_some()
    }

    /// Whether the walk looks at everything.
    pub(in crate::engine) fn is_scrubbing(&self) -> bool {
        self.rebuild.scrub.done_to.is_some()
    }

    /// What a root is to say of it.
    pub(in crate::engine) fn scrub_at(&self) -> Option<ScrubAt> {
        let scrub = &self.rebuild.scrub;
        let wanted = || {
            let beginning = ScrubAt {
                volume: 0,
                granule: 0,
            };
            scrub.wanted.then(|| scrub.from.unwrap_or(beginning))
        };
        // Another one that is wanted begins anew.
        wanted().or(scrub.done_to)
    }

    /// A scrub's walk ends before its time: the next one goes on from here.
    pub(in crate::engine) fn scrub_interrupted(&mut self) {
        let (volume, granule) = (self.rebuild.volume, self.rebuild.at);
        let scrub = &mut self.rebuild.scrub;
        scrub.done_to = None;
        // Another one that is wanted begins anew.
        if !std::mem::replace(&mut scrub.wanted, true) {
            scrub.from = Some(ScrubAt { volume, granule });
        }
    }

    /// The walk has come to its end. Roots say so until the map is written anew, too: an import goes on with
    /// that.
    pub(in crate::engine) fn scrub_walked(&mut self) {
        let (volume, granule) = (self.rebuild.volume, self.rebuild.at);
        let scrub = &mut self.rebuild.scrub;
        if scrub.done_to.is_some() && !scrub.walked {
            scrub.walked = true;
            scrub.done_to = Some(ScrubAt { volume, granule });
            self.roots.say_scrub();
        }
    }

    /// A scrub is done when everything that is mapped was read, and the map itself written anew.
    pub(in crate::engine) fn answer_scrubs(&mut self) {
        let scrub = &mut self.rebuild.scrub;
        if self.map.is_renewing() || !std::mem::take(&mut scrub.walked) {
            return;
        }
        (scrub.map_begun, scrub.done_to) = (false, None);
        self.base.counters.scrubs += 1;
        self.roots.say_scrub();
        let lost = self.rebuild.lost;
        for id in std::mem::take(&mut self.rebuild.scrub.asked_by) {
            self.out.managed.push((id, Ok(Managed::Scrubbed { lost })));
        }
    }
}
