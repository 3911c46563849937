//! What is particular to a scrub: who asked for it, and how far it has come. Roots remember that, so that an
//! import goes on where the last engine was.

use std::time::Duration;

use ashlar_block::Moment;

use super::{Next, Rebuild};
use crate::engine::base::Base;
use crate::engine::roots::Roots;
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
    asked_by: Vec<u64>,
}

const BEGINNING: ScrubAt = ScrubAt {
    volume: 0,
    granule: 0,
};

impl Scrub {
    pub(in crate::engine) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether one is wanted or under way, interrupted or not.
    pub(in crate::engine) fn is_there(&self) -> bool {
        self.wanted || self.is_walking()
    }

    /// Whether one is under way: the walk, or what it wants of the map.
    pub(in crate::engine) fn is_walking(&self) -> bool {
        self.done_to.is_some()
    }

    /// Whether a walk looks at everything for one, and not only at what lacks something while the map is still written
    /// anew for it.
    pub(in crate::engine) fn looks_at_all(&self) -> bool {
        self.is_walking() && !self.walked
    }

    /// Whether the walk that begins has the map written anew: one that was interrupted has begun with that.
    pub(in crate::engine) fn begins_map(&mut self) -> bool {
        self.wanted && !std::mem::replace(&mut self.map_begun, true)
    }

    /// Whether it is time to remember how far it has come.
    fn is_due(&self, now: Moment) -> bool {
        self.looks_at_all() && now >= self.remembered + REMEMBERED
    }

    /// An order wants one.
    pub(in crate::engine) fn want(&mut self, id: u64) {
        (self.wanted, self.from) = (true, None);
        self.map_begun = false;
        self.asked_by.push(id);
    }

    /// After an import: what the engine before was at.
    pub(in crate::engine) fn resume(&mut self, from: Option<ScrubAt>) {
        self.from = from;
        self.wanted = from.is_some();
    }

    /// What a root is to say of it.
    pub(in crate::engine) fn at(&self) -> Option<ScrubAt> {
        // Another one that is wanted begins anew.
        let wanted = self.wanted.then(|| self.from.unwrap_or(BEGINNING));
        wanted.or(self.done_to)
    }

    /// The engine has stopped: who waits for the end.
    pub(in crate::engine) fn take_asked(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.asked_by)
    }
}

impl Rebuild {
    /// Where the walk stands.
    fn stands_at(&self) -> ScrubAt {
        ScrubAt {
            volume: self.volume,
            granule: self.at,
        }
    }

    /// A walk begins, and is a scrub if one was wanted; says where that goes on.
    pub(in crate::engine) fn begin_scrub(
        &mut self,
        now: Moment,
        roots: &mut Roots,
    ) -> Option<ScrubAt> {
        let scrub = &mut self.scrub;
        if !std::mem::take(&mut scrub.wanted) {
            return None;
        }
        let from = scrub.from.take();
        scrub.walked = false;
        scrub.done_to = Some(from.unwrap_or(BEGINNING));
        scrub.remembered = now;
        roots.say_scrub();
        from
    }

    /// Remembers how far a scrub has come, when it is time to; false if what is under way must end first.
    /// Everything before where the walk stands was looked at then.
    pub(in crate::engine) fn remember_scrub(&mut self, now: Moment, roots: &mut Roots) -> bool {
        if !self.scrub.is_due(now) {
            return true;
        }
        if self.pending > 0 {
            return false;
        }
        self.scrub.done_to = Some(self.stands_at());
        self.scrub.remembered = now;
        roots.say_scrub();
        // A scrub may take days, too long for a drive that is to leave.
        self.next.push_back(Next::LetGo);
        true
    }

    /// A scrub's walk ends before its time: the next one goes on from here.
    pub(in crate::engine) fn scrub_interrupted(&mut self) {
        let at = self.stands_at();
        let scrub = &mut self.scrub;
        scrub.done_to = None;
        // Another one that is wanted begins anew.
        if !std::mem::replace(&mut scrub.wanted, true) {
            scrub.from = Some(at);
        }
    }

    /// The walk has come to its end. Roots say so until the map is written anew, too: an import goes on with
    /// that.
    pub(in crate::engine) fn scrub_walked(&mut self, roots: &mut Roots) {
        let at = self.stands_at();
        let scrub = &mut self.scrub;
        if scrub.looks_at_all() {
            scrub.walked = true;
            scrub.done_to = Some(at);
            roots.say_scrub();
        }
    }

    /// A scrub is done when everything that is mapped was read, and the map itself written anew.
    pub(in crate::engine) fn answer_scrubs(&mut self, base: &mut Base, roots: &mut Roots) {
        let scrub = &mut self.scrub;
        if !std::mem::take(&mut scrub.walked) {
            return;
        }
        (scrub.map_begun, scrub.done_to) = (false, None);
        base.counters.scrubs += 1;
        roots.say_scrub();
        let lost = self.lost;
        for id in self.scrub.take_asked() {
            base.answer(id, Ok(Managed::Scrubbed { lost }));
        }
    }
}
