//! How fast a learner is given copies: hosts come first, and resync gets what they leave.
//!
//! While hosts want nothing, copies go as fast as they can. Else they go in runs, with a pause behind each. What hosts'
//! commands take that begin in a run, and what those take that begin in a pause, says what copies cost hosts; the
//! pauses are as long as it needs for hosts to lose a tenth. Copies get a twentieth of what they can do, at least.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::Moment;

use crate::ids::CommandId;

/// What hosts may lose, as a part of what they have without copies.
const COST: f64 = 0.1;
/// What copies get at least, as a part of what they can do; and pauses, of the time that hosts want something in.
const LEAST: f64 = 0.05;
/// Pieces of a run, for each that may be on its way.
const RUN: usize = 4;
/// Commands that a mean is of, about.
const MEMORY: f64 = 16.0;
/// Commands that must have been seen, before what they took counts.
const ENOUGH: u32 = 4;
/// Longer pauses would say more of a stall than of hosts: seconds.
const LONGEST: f64 = 10.0;
/// The part by which what copies can do is forgotten, with each run.
const FADES: f64 = 1.0 / 1024.0;

/// What hosts' commands take, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    seconds: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, took: Duration) {
        self.count = self.count.saturating_add(1);
        let weight = MEMORY.min(f64::from(self.count));
        self.seconds += (took.as_secs_f64() - self.seconds) / weight;
    }

    fn known(self) -> Option<f64> {
        (self.count >= ENOUGH && self.seconds > 0.0).then_some(self.seconds)
    }
}

/// A host's command.
#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Moment,
    beside_copies: bool,
}

/// Copies are under way, or may be.
#[derive(Clone, Copy, Debug)]
struct Run {
    began: Option<Moment>,
    granules: u64,
    pieces: usize,
    /// One of them could not be read: what copies can do says nothing of how long that takes.
    has_failed: bool,
    /// Pieces that may begin yet, if hosts want something.
    left: Option<usize>,
}

impl Run {
    const fn new(left: Option<usize>) -> Self {
        Self {
            began: None,
            granules: 0,
            pieces: 0,
            has_failed: false,
            left,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Run(Run),
    Pause {
        until: Moment,
        /// What the run before it took: so long hosts must want nothing for it to end sooner.
        took: Duration,
    },
}

/// The pace of an owner's copies.
#[derive(Debug)]
pub(super) struct Pacing {
    /// Something is to be copied.
    is_on: bool,
    stage: Stage,
    /// Pieces on their way at once, while hosts want something; 0 before that is known.
    window: usize,
    /// Granules a second that copies can do.
    best: f64,
    commands: BTreeMap<CommandId, Begun>,
    /// A host has wanted something last.
    wanted: Option<Moment>,
    quiet: Mean,
    beside: Mean,
}

impl Pacing {
    pub(super) const fn new() -> Self {
        Self {
            is_on: false,
            stage: Stage::Run(Run::new(None)),
            window: 0,
            best: 0.0,
            commands: BTreeMap::new(),
            wanted: None,
            quiet: Mean {
                seconds: 0.0,
                count: 0,
            },
            beside: Mean {
                seconds: 0.0,
                count: 0,
            },
        }
    }

    /// Whether something is to be copied: only then hosts' commands are looked at.
    pub(super) fn set(&mut self, is_on: bool) {
        if self.is_on && !is_on {
            *self = Self {
                best: self.best,
                ..Self::new()
            };
        }
        self.is_on = is_on;
    }

    pub(super) const fn is_on(&self) -> bool {
        self.is_on
    }

    /// A host wants something.
    pub(super) fn host(&mut self, command: CommandId, now: Moment) {
        if !self.is_on {
            return;
        }
        let mut beside_copies = false;
        if let Stage::Run(run) = &mut self.stage {
            beside_copies = run.began.is_some();
            // It is over when what is on its way has ended; of the first of all, more is let go to see what it does.
            let first = RUN.saturating_sub(run.pieces) * usize::from(self.window == 0);
            run.left.get_or_insert(first);
        }
        self.wanted = Some(now);
        let begun = Begun {
            at: now,
            beside_copies,
        };
        self.commands.insert(command, begun);
    }

    /// A host was answered.
    pub(super) fn answered(&mut self, command: CommandId, now: Moment) {
        let Some(begun) = self.commands.remove(&command) else {
            return;
        };
        self.wanted = Some(now);
        let mean = match begun.beside_copies {
            true => &mut self.beside,
            false => &mut self.quiet,
        };
        mean.add(now - begun.at);
    }

    /// How many more pieces may begin, if so many are on their way; `most` at once are a learner's.
    pub(super) fn room(&mut self, now: Moment, under_way: usize, most: usize) -> usize {
        if let Stage::Run(run) = self.stage
            && run.left == Some(0)
            && under_way == 0
        {
            self.pause(run, now, most);
        }
        if self.wakes_at().is_some_and(|at| now >= at) {
            self.resume(now);
        }
        let Stage::Run(run) = self.stage else {
            return 0;
        };
        match run.left {
            None => usize::MAX,
            Some(left) => left.min(self.window.max(1).saturating_sub(under_way)),
        }
    }

    /// When the pause ends, if there is one.
    pub(super) fn wakes_at(&self) -> Option<Moment> {
        let Stage::Pause { until, took } = self.stage else {
            return None;
        };
        let quiet = self.wanted.filter(|_| self.commands.is_empty());
        Some(quiet.map_or(until, |since| until.min(since + took)))
    }

    /// A piece begins.
    pub(super) fn begins(&mut self, now: Moment) {
        if let Stage::Run(run) = &mut self.stage {
            run.began.get_or_insert(now);
            run.left = run.left.map(|left| left.saturating_sub(1));
        }
    }

    /// A piece has ended.
    pub(super) fn copied(&mut self, now: Moment, granules: u64, most: usize) {
        let Stage::Run(run) = &mut self.stage else {
            return;
        };
        run.granules += granules;
        self.ends(now, most);
    }

    /// A piece has ended, and could not be read here.
    pub(super) fn failed(&mut self, now: Moment, most: usize) {
        let Stage::Run(run) = &mut self.stage else {
            return;
        };
        run.has_failed = true;
        self.ends(now, most);
    }

    fn ends(&mut self, now: Moment, most: usize) {
        let Stage::Run(run) = &mut self.stage else {
            return;
        };
        run.pieces += 1;
        // One that no host ends is as good as many.
        if run.left.is_none() && run.pieces >= RUN * most {
            let done = std::mem::replace(run, Run::new(None));
            run.began = Some(now);
            self.note(done, now);
        }
    }

    /// What a run has done.
    fn note(&mut self, run: Run, now: Moment) -> Duration {
        let took = run.began.map_or(Duration::ZERO, |began| now - began);
        let rate = run.granules as f64 / took.as_secs_f64().max(1e-9);
        self.best = (self.best * (1.0 - FADES)).max(rate);
        took
    }

    fn pause(&mut self, run: Run, now: Moment, most: usize) {
        let took = self.note(run, now);
        let share = self.share();
        let least = match run.has_failed {
            true => LONGEST,
            false => run.granules as f64 / (self.best * LEAST).max(1e-9),
        };
        let cycle = (took.as_secs_f64() / share).min(least.max(took.as_secs_f64() / (1.0 - LEAST)));
        let is_cheap = share >= 1.0 - LEAST;
        self.window = match is_cheap && self.beside.known().is_some() {
            true => (self.window + 1).min(most),
            false => 1,
        };
        let began = run.began.unwrap_or(now);
        let until = began + Duration::from_secs_f64(cycle.min(LONGEST));
        self.stage = Stage::Pause { until, took };
    }

    fn resume(&mut self, now: Moment) {
        let Stage::Pause { until, .. } = self.stage else {
            return;
        };
        let is_wanted = now >= until || !self.commands.is_empty();
        let pieces = match self.share() >= 0.5 {
            true => RUN * self.window,
            false => 1,
        };
        let left = is_wanted.then_some(pieces);
        self.stage = Stage::Run(Run::new(left));
    }

    /// The part of the time that copies may go in, by what they cost hosts.
    fn share(&self) -> f64 {
        let most = 1.0 - LEAST;
        match (self.quiet.known(), self.beside.known()) {
            (Some(quiet), Some(beside)) if beside > quiet => {
                (COST / (beside / quiet - 1.0)).clamp(LEAST, most)
            }
            (Some(_), _) => most,
            (None, _) => 0.5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: Duration = Duration::from_millis(100);

    fn after(pieces: u32) -> Moment {
        Moment::ORIGIN + PIECE * pieces
    }

    /// Hosts that are ten times as slow beside copies.
    fn beside_hosts() -> Pacing {
        let mut pacing = Pacing::new();
        pacing.set(true);
        (0..100).for_each(|_| pacing.quiet.add(PIECE / 100));
        (0..100).for_each(|_| pacing.beside.add(PIECE / 10));
        pacing.wanted = Some(after(0));
        pacing.commands.insert(
            CommandId(1),
            Begun {
                at: after(0),
                beside_copies: true,
            },
        );
        // What copies can do.
        pacing.best = 64.0 / PIECE.as_secs_f64() * 20.0;
        pacing.stage = Stage::Run(Run::new(Some(1)));
        pacing
    }

    /// A piece takes so long; the part of the time that pieces have then.
    fn part(ends: impl Fn(&mut Pacing, Moment)) -> f64 {
        let mut pacing = beside_hosts();
        assert_eq!(pacing.room(after(0), 0, 4), 1);
        pacing.begins(after(0));
        ends(&mut pacing, after(1));
        assert_eq!(pacing.room(after(1), 0, 4), 0);
        let wakes = pacing.wakes_at().expect("a pause") - after(0);
        PIECE.as_secs_f64() / wakes.as_secs_f64()
    }

    /// One that could not be read is beside hosts no more than hosts can bear, though nothing is copied by it.
    #[test]
    fn pieces_that_cannot_be_read_get_no_more_than_others() {
        let copied = part(|pacing, now| pacing.copied(now, 64, 4));
        let failed = part(|pacing, now| pacing.failed(now, 4));
        assert!(copied > 0.9, "what it can do is not much more: {copied:.3}");
        assert!(failed < 0.06, "{failed:.3} of the time");
    }
}
