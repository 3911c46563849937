//! One way to the namespace: a portal, its association, and what is left of the one before.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BufferPool, Moment};
use ashlar_nvme::log::AnaState;

use super::fence::Word;
use super::part::Shape;
use super::{FIRST_BACKOFF, LONGEST_BACKOFF};
use crate::config::Config;
use crate::controller::{Association, EndOfOther, Instance, Predecessor, Purpose, end_of_other};
use crate::failure::Failure;

/// A path that has refused a command is not used for so long, whatever it says of itself; of one that does so
/// again soon, twice as long each time, up to the longest.
const AVOIDED: Duration = Duration::from_millis(10);
const LONGEST_AVOIDED: Duration = Duration::from_millis(100);
/// What is not soon.
const FORGIVEN: Duration = Duration::from_secs(1);
/// A target that another has taken over from, and that holds commands of ours, is to say a word within so
/// long: one that is stopped or cut off would hold them until its keep-alive runs out.
const WORD: Duration = Duration::from_secs(1);
/// How long until another controller is asked again for the end of a lost one.
const ASK_AGAIN: Duration = Duration::from_millis(10);
/// How much later than the keep-alive says a target may notice that we are gone, and be done with what it
/// had of us.
const QUIESCE: Duration = Duration::from_secs(2);
/// CQT, in milliseconds: how long a controller needs for that by its own account.
const CQT: std::ops::Range<usize> = 386..388;

/// An association that was lost with writes under way: until it has ended, these could land on newer ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stale {
    /// What names it, if its target has Cross-Controller Reset.
    instance: Option<Instance>,
    since: Moment,
    /// Its target has given it up by then, if it keeps to the specification.
    over_at: Option<Moment>,
    /// Not asked for its end before.
    ask_at: Moment,
}

/// A question for the end of a lost association.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    /// The path that had it.
    lost: usize,
    /// Which it was: the path may have lost another since, or the place be another's.
    instance: Instance,
    /// Another controller is asked then, if there is no answer: this one may be stopped, or cut off.
    until: Moment,
}

impl Question {
    fn is_of(&self, stale: &Stale) -> bool {
        stale.instance == Some(self.instance)
    }
}

/// A way to the namespace.
#[derive(Debug)]
pub(super) struct Path {
    pub config: Arc<Config>,
    pub association: Option<Association>,
    /// The last association that carried requests, of this session or before it: nothing may be left
    /// of it when the next does.
    pub predecessor: Option<Instance>,
    /// When its target has given that up, if it keeps to the specification.
    given_up_at: Option<Moment>,
    /// The association has been found to be ready and to lead to our namespace.
    pub established: bool,
    pub shape: Shape,
    pub retry_at: Moment,
    pub backoff: Duration,
    /// When the last association, or attempt at one, has ended.
    ended_at: Moment,
    pub last_failure: Option<Failure>,
    /// It leads to something else, or to nothing that can be used: it is not tried again.
    pub barred: bool,
    /// A write has gone this way.
    pub has_written: bool,
    /// What its association has said of the reservation.
    pub word: Word,
    /// Its portal is gone: it takes nothing more.
    let_go: bool,
    avoided_until: Moment,
    avoided_for: Duration,
    /// When its target was asked for a word, since another path is better and commands are out on this one.
    word_asked: Option<Moment>,
    stale: Option<Stale>,
    /// What the controller is asked for.
    pub asked: Option<Question>,
    /// The controller knows nothing of those of other paths.
    knows_no_other: bool,
}

impl Path {
    pub(super) fn new(now: Moment, config: Config, shape: Shape) -> Self {
        Self {
            config: Arc::new(config),
            association: None,
            predecessor: None,
            given_up_at: None,
            established: false,
            shape,
            retry_at: now,
            backoff: Duration::ZERO,
            ended_at: now,
            last_failure: None,
            barred: false,
            has_written: false,
            word: Word::default(),
            let_go: false,
            avoided_until: now,
            avoided_for: Duration::ZERO,
            word_asked: None,
            stale: None,
            asked: None,
            knows_no_other: false,
        }
    }

    /// The namespace is reached this way, as well as may be.
    pub(super) fn reaches(&self) -> bool {
        !self.let_go && self.state().and_then(|state| self.class(state)).is_some()
    }

    /// Takes no more commands, and goes when it has none.
    pub(super) fn let_go(&mut self) {
        self.let_go = true;
    }

    pub(super) fn is_let_go(&self) -> bool {
        self.let_go
    }

    /// Nothing is left of it: its place may be another's.
    pub(super) fn is_vacant(&self) -> bool {
        self.let_go && self.association.is_none() && !self.is_stale()
    }

    /// Whether a new association is made. One that is let go may have to speak for the one that it has lost.
    pub(super) fn is_tried(&self) -> bool {
        !self.barred && (!self.let_go || self.is_stale())
    }

    /// Ends the association of one that was let go, once it has no commands.
    pub(super) fn part(&mut self, now: Moment) {
        let is_free = self.let_go && !self.is_stale();
        if let Some(association) = self.association.as_mut().filter(|_| is_free)
            && !association.is_busy()
        {
            association.shutdown(now);
        }
    }

    /// Begins a new association.
    pub(super) fn connect(&mut self, now: Moment, pool: &BufferPool) {
        self.established = false;
        self.word = Word::default();
        self.asked = None;
        self.word_asked = None;
        self.knows_no_other = false;
        let association =
            Association::new(now, self.config.clone(), Purpose::Namespace, pool.clone());
        let predecessor = self.predecessor.map(|instance| Predecessor {
            instance,
            over_at: self.given_up_at,
        });
        self.association = Some(association.after(predecessor));
    }

    /// The association is ready and leads to our namespace: nothing is left of the one before it.
    pub(super) fn settle(&mut self, nsid: u32) {
        self.shape.nsid = nsid;
        self.predecessor = self.association.as_ref().and_then(Association::instance);
        self.established = true;
        self.backoff = Duration::ZERO;
        self.stale = None;
    }

    /// The next attempt is put off, longer each time.
    pub(super) fn back_off(&mut self, now: Moment) {
        self.ended_at = now;
        self.retry_at = now + self.backoff;
        self.backoff = (self.backoff * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF);
    }

    /// The next attempt is due: no path is left, and its target may be back since the last one. One that has only just
    /// failed is not asked again at once.
    pub(super) fn hurry(&mut self, now: Moment) {
        let soonest = (self.ended_at + FIRST_BACKOFF).max(now);
        self.retry_at = self.retry_at.min(soonest);
        self.backoff = self.backoff.min(FIRST_BACKOFF);
    }

    /// The last association that has carried requests is lost. Its controller is done with them, by its `own_account`,
    /// so long after it has noticed.
    pub(super) fn note_loss(&mut self, now: Moment, own_account: Duration) {
        let keep_alive = self.config.keep_alive;
        self.given_up_at =
            (!keep_alive.is_zero()).then(|| now + keep_alive + QUIESCE + own_account);
    }

    /// It was lost with writes unanswered: they may still be under way.
    pub(super) fn become_stale(&mut self, now: Moment) {
        self.stale = Some(Stale {
            instance: self.predecessor,
            since: now,
            over_at: self.given_up_at,
            ask_at: now,
        });
    }

    pub(super) fn is_stale(&self) -> bool {
        self.stale.is_some()
    }

    /// Its lost association has not ended for as long as there may be no path.
    pub(super) fn is_given_up(&self, now: Moment) -> bool {
        let since = self.stale.map(|stale| stale.since);
        since.is_some_and(|since| since + self.config.loss <= now)
    }

    fn is_ready(&self) -> bool {
        let association = self.association.as_ref();
        self.established && association.is_some_and(Association::is_ready)
    }

    /// How the namespace is reached this way; `None` without a connection.
    pub(super) fn state(&self) -> Option<AnaState> {
        let association = self.association.as_ref().filter(|_| self.is_ready());
        association.map(Association::path)
    }

    /// Why the last connection, or attempt at one, has ended.
    pub(super) fn failure(&self) -> Option<&Failure> {
        let association = self.association.as_ref();
        let own = association.and_then(Association::failure);
        own.or(self.last_failure.as_ref())
    }

    /// Whether commands may go this way; the best way has the lowest rank.
    /// Of equals that is the one that became so last: a target that does not answer any more may have been
    /// the best before.
    pub(super) fn rank(&self, now: Moment) -> Option<(u8, Reverse<Moment>)> {
        if now < self.avoided_until || self.let_go {
            return None;
        }
        let class = self.class(self.state()?)?;
        let since = self.association.as_ref().map(Association::path_since);
        Some((class, Reverse(since.unwrap_or(Moment::ORIGIN))))
    }

    /// Whether commands may go where the namespace is reached so; what is better has the lower number.
    fn class(&self, state: AnaState) -> Option<u8> {
        // Until it is known anew it may be that they are handed on.
        let is_known = || !self.association.as_ref().is_some_and(Association::is_asked);
        match state {
            AnaState::Optimized if self.config.forwards || is_known() => Some(0),
            AnaState::NonOptimized if self.config.forwards => Some(1),
            _ => None,
        }
    }

    /// A command was refused for the path's sake.
    pub(super) fn avoid(&mut self, now: Moment, state: AnaState) {
        // Commands that were out together are refused together.
        if self.avoided_until <= now {
            self.avoided_for = match now.since(self.avoided_until) > FORGIVEN {
                true => AVOIDED,
                false => (self.avoided_for * 2).clamp(AVOIDED, LONGEST_AVOIDED),
            };
            self.avoided_until = now + self.avoided_for;
        }
        if let Some(association) = &mut self.association {
            association.distrust_path(now, state);
        }
    }

    /// Another path is better than this one, or not: one that holds commands is to say a word then, now and
    /// again.
    pub(super) fn look_after(&mut self, now: Moment, is_passed_over: bool) {
        let is_ready = self.is_ready();
        let association = self.association.as_mut();
        let Some(association) =
            association.filter(|one| is_passed_over && is_ready && one.is_busy())
        else {
            self.word_asked = None;
            return;
        };
        match self.word_asked {
            Some(asked) if now < asked + WORD => {}
            Some(_) if association.is_asked() => {
                let why = "it does not answer, and another target has taken over";
                association.fail(Failure::Network(why.into()));
            }
            _ => self.word_asked = association.ask_path(now).then_some(now),
        }
    }

    /// When something is to be done next.
    pub(super) fn next_deadline(&self, now: Moment, is_alive: bool) -> Option<Moment> {
        let association = self.association.as_ref();
        let own = association.and_then(Association::next_deadline);
        let retries = is_alive && self.association.is_none() && self.is_tried();
        let retry = retries.then_some(self.retry_at);
        let over = self.stale.and_then(|stale| stale.over_at);
        let held = self.stale.map(|stale| stale.since + self.config.loss);
        let avoided = (self.avoided_until > now).then_some(self.avoided_until);
        let word = self.word_asked.map(|asked| asked + WORD);
        [
            own,
            word.filter(|_| is_alive),
            retry,
            over.filter(|_| is_alive),
            held.filter(|&at| is_alive && at > now),
            avoided.filter(|_| is_alive),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Why commands cannot go this way, for people.
    pub(super) fn trouble(&self) -> String {
        let address = &self.config.address;
        match (self.state(), &self.last_failure) {
            (Some(state), _) => format!("{address}: the path is {}", name(state)),
            (None, Some(failure)) => format!("{address}: {failure}"),
            (None, None) => format!("{address}: no connection"),
        }
    }
}

pub(super) fn name(state: AnaState) -> &'static str {
    match state {
        AnaState::Optimized => "optimized",
        AnaState::NonOptimized => "non-optimized",
        AnaState::Inaccessible => "inaccessible",
        AnaState::PersistentLoss => "lost for good",
        AnaState::Change => "changing",
    }
}

/// What a controller says of the time that it needs to be done with a lost association.
pub(super) fn quiesce_time(association: &Association) -> Duration {
    let facts = association.controller();
    let field = facts.and_then(|facts| facts.raw.as_wire().get(CQT)?.try_into().ok());
    Duration::from_millis(u64::from(field.map_or(0, u16::from_le_bytes)))
}

/// Sees to it that lost associations end: asks the controllers of other paths, and looks at the time.
pub(super) fn end_stale(now: Moment, paths: &mut [Path]) {
    for at in 0..paths.len() {
        take_answers(now, paths, at);
    }
    for lost in 0..paths.len() {
        let Some(stale) = paths[lost].stale else {
            continue;
        };
        if stale.over_at.is_some_and(|at| at <= now) {
            paths[lost].stale = None;
            continue;
        }
        if let Some((instance, other)) = witness(now, paths, lost)
            && let Some(association) = &mut paths[other].association
            && association.ask_end_of(now, instance)
        {
            paths[other].asked = Some(Question {
                lost,
                instance,
                until: now + WORD,
            });
        }
    }
}

/// When the end of the association that `lost` had may be asked for next.
fn asks_at(paths: &[Path], lost: usize) -> Option<Moment> {
    let stale = paths[lost].stale?;
    let asked = paths.iter().filter_map(|path| path.asked);
    let out = asked.filter(|asked| asked.lost == lost && asked.is_of(&stale));
    out.map(|asked| asked.until).chain([stale.ask_at]).max()
}

/// Which path can be asked now for the end of the association that `lost` had: the one that requests take, if it can.
/// Of the others one may be cut off with the one that was lost.
fn witness(now: Moment, paths: &[Path], lost: usize) -> Option<(Instance, usize)> {
    if asks_at(paths, lost)? > now {
        return None;
    }
    let can_tell = |(at, path): &(usize, &Path)| {
        *at != lost && path.is_ready() && path.asked.is_none() && !path.knows_no_other
    };
    let others = paths.iter().enumerate().filter(can_tell);
    let best = others.min_by_key(|(_, path)| {
        let rank = path.rank(now);
        (rank.is_none(), rank)
    });
    Some((paths[lost].stale?.instance?, best?.0))
}

/// When a controller is to be asked again.
pub(super) fn next_question(now: Moment, paths: &[Path]) -> Option<Moment> {
    let asks = |lost: usize| {
        // What could be asked now has been tried.
        let at = asks_at(paths, lost)?.max(now + ASK_AGAIN);
        witness(at, paths, lost).map(|_| at)
    };
    (0..paths.len()).filter_map(asks).min()
}

fn take_answers(now: Moment, paths: &mut [Path], at: usize) {
    let association = paths[at].association.as_mut();
    let Some(finished) = association.and_then(Association::called) else {
        return;
    };
    let Some(question) = paths[at].asked.take() else {
        return;
    };
    let lost = &mut paths[question.lost].stale;
    let meant = lost.as_mut().filter(|stale| question.is_of(stale));
    match (end_of_other(&finished), meant) {
        (EndOfOther::Over, Some(_)) => *lost = None,
        (EndOfOther::UnderWay, Some(stale)) => stale.ask_at = now + ASK_AGAIN,
        (EndOfOther::Over | EndOfOther::UnderWay, None) => {}
        (EndOfOther::Unknown, _) => paths[at].knows_no_other = true,
    }
}
