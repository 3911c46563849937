//! How far background work is and how long it will take: from what it did in the last minute.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ashlar_block::Moment;
use ashlar_store::format::MemberState;
use ashlar_store::{Engine, Status, VolumeInfo};

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// What rates are taken over.
const WINDOW: Duration = Duration::from_secs(60);
/// A rate over less than this says nothing.
const LEAST: Duration = Duration::from_secs(2);

/// How far a pool's background work is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// How far a rebuild, of however many walks, or a scrub is; none if there is none.
    pub walk: Option<f64>,
    /// Until its end; none while that is not known.
    pub walk_left: Option<Duration>,
    /// By volume that is being deleted.
    pub reclaims: BTreeMap<u32, Reclaim>,
}

/// How far the space of a volume is given back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reclaim {
    /// The share that is, 0 to 1.
    pub done: f64,
    /// Until all is; none while that is not known.
    pub left: Option<Duration>,
}

/// What it was seen to be at, oldest first.
#[derive(Default)]
pub(crate) struct Pace(VecDeque<(Moment, f64)>);

impl Pace {
    pub(crate) fn note(&mut self, now: Moment, done: f64) {
        match self.0.back() {
            // Another has begun.
            Some(&(_, before)) if done < before => self.0.clear(),
            Some(&(at, _)) if now.since(at) < EVERY => return,
            _ => {}
        }
        self.0.push_back((now, done));
        // One that is older than the window stays: else the rate would be over less than it.
        while self
            .0
            .get(1)
            .is_some_and(|&(at, _)| now.since(at) >= WINDOW)
        {
            self.0.pop_front();
        }
    }

    /// Until all is done, at the rate of the last minute.
    pub(crate) fn left(&self, now: Moment, done: f64) -> Option<Duration> {
        let &(begun, before) = self.0.front()?;
        let (took, did) = (now.since(begun), done - before);
        if took < LEAST || did <= 0.0 {
            return None;
        }
        let left = took.as_secs_f64() * (1.0 - done).max(0.0) / did;
        Duration::try_from_secs_f64(left).ok()
    }
}

/// What walks are for: several of them can be one piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Errand {
    /// Copies are made again; else everything is only looked at.
    repairs: bool,
    /// Drives that are out of service, or are to be: another one is another piece of work.
    drives: usize,
}

impl Errand {
    fn of(engine: &Engine) -> Self {
        let members = engine.members().iter();
        let gone = members.filter(|member| member.state != MemberState::Active);
        Self {
            repairs: engine.is_rebuilding(),
            drives: gone.count(),
        }
    }
}

/// The paces of all the work of a pool.
#[derive(Default)]
pub(super) struct Paces {
    looked: Option<Moment>,
    walk: Pace,
    errand: Errand,
    /// How far the errand is: what is found to be done besides does not take that back.
    furthest: Option<f64>,
    /// By volume that is being deleted: the bytes that it had.
    reclaims: BTreeMap<u32, (u64, Pace)>,
}

impl Paces {
    /// Notes how far everything is, now and then, whether or not it is asked for; says when.
    pub fn look(&mut self, engine: &Engine, now: Moment) -> bool {
        if self.looked.is_some_and(|at| now.since(at) < EVERY) {
            return false;
        }
        let is_first = self.looked.replace(now).is_none();
        self.walked(Errand::of(engine), engine.walk_progress(), now);
        // What was being deleted at the import is found the first time.
        if is_first || !self.reclaims.is_empty() {
            self.reclaimed(&engine.volumes(), now);
        }
        true
    }

    /// How far the errand is, with a walk that is so far, or between two walks.
    fn walked(&mut self, errand: Errand, done: Option<f64>, now: Moment) -> Option<f64> {
        if errand != self.errand || done.is_none() && !errand.repairs {
            (self.errand, self.furthest) = (errand, None);
            self.walk.0.clear();
        }
        if let Some(done) = done.or_else(|| errand.repairs.then_some(0.0)) {
            let furthest = self.furthest.unwrap_or(0.0).max(done);
            self.furthest = Some(furthest);
            self.walk.note(now, furthest);
        }
        self.furthest
    }

    /// A volume is about to be deleted.
    pub fn deleting(&mut self, engine: &Engine, volume: u32, now: Moment) {
        let volumes = engine.volumes();
        if let Some(info) = volumes.iter().find(|info| info.number == volume) {
            self.reclaim(volume, info.used_bytes, now);
        }
    }

    fn reclaim(&mut self, volume: u32, used: u64, now: Moment) -> Reclaim {
        let (all, pace) = self.reclaims.entry(volume).or_default();
        // What is on its way home when it is deleted still arrives.
        *all = used.max(*all);
        let done = 1.0 - used as f64 / (*all).max(1) as f64;
        pace.note(now, done);
        Reclaim {
            done,
            left: pace.left(now, done),
        }
    }

    /// How far everything is at this moment.
    pub fn progress(&mut self, engine: &Engine, status: &Status, now: Moment) -> Progress {
        let walk = self.walked(Errand::of(engine), status.walk, now);
        Progress {
            walk,
            walk_left: walk.and_then(|done| self.walk.left(now, done)),
            reclaims: self.reclaimed(&status.volumes, now),
        }
    }

    fn reclaimed(&mut self, volumes: &[VolumeInfo], now: Moment) -> BTreeMap<u32, Reclaim> {
        let deleting = volumes.iter().filter(|volume| volume.deleting);
        let deleting: BTreeMap<u32, u64> = deleting
            .map(|volume| (volume.number, volume.used_bytes))
            .collect();
        self.reclaims
            .retain(|volume, _| deleting.contains_key(volume));
        deleting
            .into_iter()
            .map(|(volume, used)| (volume, self.reclaim(volume, used, now)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Moment {
        Moment::ORIGIN + Duration::from_secs_f64(seconds)
    }

    fn seconds(left: Option<Duration>) -> Option<u64> {
        left.map(|left| left.as_secs_f64().round() as u64)
    }

    #[test]
    fn an_end_is_known_from_the_rate() {
        let mut pace = Pace::default();
        pace.note(at(0.0), 0.0);
        assert_eq!(pace.left(at(0.0), 0.0), None);
        pace.note(at(1.0), 0.01);
        assert_eq!(pace.left(at(1.0), 0.01), None, "too early to say");
        for second in 2..=50 {
            pace.note(at(second.into()), f64::from(second) / 100.0);
        }
        assert_eq!(seconds(pace.left(at(50.0), 0.5)), Some(50));
        // It becomes ten times as slow: a minute later only that counts.
        for second in 51..=120 {
            let done = 0.5 + f64::from(second - 50) / 1000.0;
            pace.note(at(second.into()), done);
        }
        assert_eq!(seconds(pace.left(at(120.0), 0.57)), Some(430));
        assert!(pace.0.len() <= 62, "{} are kept", pace.0.len());
    }

    #[test]
    fn what_stands_still_has_no_end_and_what_begins_anew_another() {
        let mut pace = Pace::default();
        for second in 0..=100 {
            pace.note(at(second.into()), 0.25);
        }
        assert_eq!(pace.left(at(100.0), 0.25), None);
        pace.note(at(101.0), 0.0);
        pace.note(at(105.0), 0.5);
        assert_eq!(seconds(pace.left(at(105.0), 0.5)), Some(4));
    }

    #[test]
    fn a_rebuild_of_several_walks_never_goes_backwards() {
        let mut paces = Paces::default();
        let one = Errand {
            repairs: true,
            drives: 1,
        };
        let mut shown = Vec::new();
        for (second, done) in [
            Some(0.84),
            None,
            Some(0.33),
            Some(0.8),
            Some(0.17),
            Some(0.9),
        ]
        .into_iter()
        .enumerate()
        {
            shown.push(paces.walked(one, done, at(second as f64)));
        }
        assert_eq!(shown, [0.84, 0.84, 0.84, 0.84, 0.84, 0.9].map(Some));
        // Another drive is another rebuild, and so is one after its end; a scrub is something else.
        let two = Errand { drives: 2, ..one };
        assert_eq!(paces.walked(two, Some(0.1), at(7.0)), Some(0.1));
        let idle = Errand {
            repairs: false,
            ..two
        };
        assert_eq!(paces.walked(idle, None, at(8.0)), None);
        assert_eq!(paces.walked(idle, Some(0.02), at(9.0)), Some(0.02));
        assert_eq!(paces.walked(two, None, at(10.0)), Some(0.0));
    }

    #[test]
    fn space_that_is_given_back_is_a_share_of_what_there_was() {
        let mut paces = Paces::default();
        let begun = paces.reclaim(16, 1000, at(0.0));
        assert_eq!((begun.done, begun.left), (0.0, None));
        let half = paces.reclaim(16, 500, at(10.0));
        assert_eq!((half.done, seconds(half.left)), (0.5, Some(10)));
        let empty = paces.reclaim(17, 0, at(10.0));
        assert_eq!(empty.done, 1.0);
    }
}
