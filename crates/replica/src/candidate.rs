//! A copy that would own: reads the store's key, and changes it to the next epoch with itself as owner.
//!
//! Only a copy of the stored in-sync set may; it begins when its own promise has lapsed, or was voided because its
//! owner handed over or is certified dead. What became of a swap is learned by reading the key, and a swap whose outcome
//! is unknown is settled by another on the same revision: one of the two wins, and the other never can.

use std::time::Duration;

use ashlar_block::Moment;

use crate::canary::Canary;
use crate::event::{Alarm, Effect, Turn};
use crate::ids::{Ask, Epoch, Incarnation, Position, Positions, Revision};
use crate::key::{Key, MemberId, OwnerId};
use crate::lease::GRANT;
use crate::pace::HEARING;
use crate::quorum::{Held, Question, Reply};

/// How long a candidate waits for the one that was faster.
const AFTER_LOSS: Duration = Duration::from_millis(800);
/// How much later the next position tries, so that candidates do not always meet.
const STAGGER: Duration = Duration::from_millis(60);
/// How often a copy that may not take over looks at the key.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// A key as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) revision: Revision,
    pub(crate) key: Key,
}

impl Stored {
    /// From the quorum's bytes; tells people if they cannot be read.
    pub(crate) fn from_held(turn: &mut Turn<'_>, held: &Held) -> Option<Self> {
        match Key::decode(&held.value) {
            Ok(key) => {
                let (revision, members, size) = (held.revision, key.members, key.size);
                turn.out.push(Effect::Members {
                    revision,
                    members,
                    size,
                });
                Some(Self { revision, key })
            }
            Err(why) => {
                turn.alarm(Alarm::KeyUnreadable(why.to_string()));
                None
            }
        }
    }
}

/// Why this copy should own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reason {
    /// The owner handed over: it stays in sync.
    pub(crate) is_handoff: bool,
    /// The owner was heard in this process's life, and is silent now, or is certified dead: it is left out.
    pub(crate) is_owner_gone: bool,
    /// An owner that lacks what it has acknowledged, and was not followed: it is left out, whichever node owns by now.
    pub(crate) denied: Option<Position>,
}

/// What this copy would own by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidacy {
    /// The newest epoch that binds this copy.
    pub(crate) promised: Epoch,
    pub(crate) reason: Reason,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Reading(Ask),
    Swapping(Ask, Swap),
    /// Reads what became of the swap.
    Settling(Ask, Swap),
}

#[derive(Clone, Debug)]
struct Swap {
    revision: Revision,
    wants: Key,
}

/// A copy that would own.
#[derive(Debug)]
pub(crate) struct Candidate {
    stage: Stage,
    not_before: Moment,
    /// The newest epoch of another process that was read.
    seen: Epoch,
    /// The newest one that was not followed.
    denied: Epoch,
    /// Since an owner was heard last.
    was_held_up: bool,
}

impl Candidate {
    pub(crate) const fn new(now: Moment) -> Self {
        Self {
            stage: Stage::Idle,
            not_before: now,
            seen: Epoch(0),
            denied: Epoch(0),
            was_held_up: false,
        }
    }

    /// An owner wants a session: it has as long to ask for a grant as a grant lasts. A copy that took it for
    /// silent before that would take over from an owner that has only begun.
    pub(crate) fn follows(&mut self, turn: &Turn<'_>) {
        self.rest(turn, GRANT + stagger(turn));
    }

    /// This process was the owner and has stopped: another shall have it, the one that it handed over to above all.
    pub(crate) fn yields(&mut self, turn: &Turn<'_>) {
        self.rest(turn, AFTER_LOSS);
    }

    /// The owner of this epoch is not followed: another one is needed. Whether that is news.
    pub(crate) fn denies(&mut self, turn: &Turn<'_>, epoch: Epoch) -> bool {
        self.not_before = turn.now;
        let is_news = self.denied < epoch;
        (self.denied, self.seen) = (self.denied.max(epoch), self.seen.max(epoch));
        is_news
    }

    /// An owner has said something.
    pub(crate) const fn hears(&mut self) {
        self.was_held_up = false;
    }

    /// This process was held up: an owner may have said something. A second time in a row it is taken for silent.
    pub(crate) fn held_up(&mut self, turn: &Turn<'_>) {
        if !self.was_held_up && !turn.sings(Canary::PauseIsSilence) {
            self.was_held_up = true;
            self.not_before = self.not_before.max(turn.now + HEARING);
        }
    }

    /// Its owner is heard again: what was begun ends here, if it was a look at the key.
    pub(crate) fn leaves(&mut self) {
        if matches!(self.stage, Stage::Reading(_)) {
            self.stage = Stage::Idle;
        }
    }

    /// No candidacy for a while. A swap that is out is settled nevertheless, by reading.
    fn rest(&mut self, turn: &Turn<'_>, time: Duration) {
        self.not_before = turn.now + time;
        if matches!(self.stage, Stage::Reading(_)) {
            self.stage = Stage::Idle;
        }
    }

    /// Whether it is too early for a candidacy.
    pub(crate) fn rests(&self, now: Moment) -> bool {
        now < self.not_before
    }

    /// Begins at once.
    pub(crate) fn hurry(&mut self, turn: &mut Turn<'_>) {
        self.not_before = turn.now;
        self.tick(turn);
    }

    /// Reads the key, if it is time. Called only while no promise binds and no owner is heard.
    pub(crate) fn tick(&mut self, turn: &mut Turn<'_>) {
        if matches!(self.stage, Stage::Idle) && turn.now >= self.not_before {
            let ask = turn.ask(Question::Read);
            self.stage = Stage::Reading(ask);
        }
    }

    /// The quorum answers. Returns the key if it says that this process owns a new epoch.
    pub(crate) fn answered(
        &mut self,
        turn: &mut Turn<'_>,
        ask: Ask,
        reply: &Reply,
        candidacy: Candidacy,
    ) -> Option<Stored> {
        let promised = candidacy.promised;
        let stage = std::mem::replace(&mut self.stage, Stage::Idle);
        match (stage, reply) {
            (Stage::Reading(mine), Reply::Holds(Some(held))) if mine == ask => {
                let stored = Stored::from_held(turn, held);
                self.read(turn, stored, candidacy)
            }
            (Stage::Swapping(mine, swap), Reply::Swapped(revision)) if mine == ask => {
                let key = swap.wants;
                let revision = *revision;
                won(turn, Stored { revision, key }, promised)
            }
            (Stage::Swapping(mine, swap), _) if mine == ask => {
                let ask = turn.ask(Question::Read);
                self.stage = Stage::Settling(ask, swap);
                None
            }
            (Stage::Settling(mine, swap), Reply::Holds(Some(held))) if mine == ask => {
                self.settle(turn, swap, held, promised)
            }
            (Stage::Settling(mine, swap), _) if mine == ask => {
                let ask = turn.ask(Question::Read);
                self.stage = Stage::Settling(ask, swap);
                None
            }
            (Stage::Reading(mine), _) if mine == ask => {
                self.not_before = turn.now + LOOK_EVERY;
                None
            }
            (stage, _) => {
                self.stage = stage;
                None
            }
        }
    }

    fn read(
        &mut self,
        turn: &mut Turn<'_>,
        stored: Option<Stored>,
        candidacy: Candidacy,
    ) -> Option<Stored> {
        let Candidacy { promised, reason } = candidacy;
        self.not_before = turn.now + LOOK_EVERY;
        let stored = stored?;
        let me = turn.config.position;
        if stored.key.members.get(me) != Some(own(turn)) {
            // Its place was given up, or is another copy's, or it has not been in sync yet.
            return None;
        }
        if stored.key.epoch < promised {
            turn.alarm(Alarm::StoreIsOld {
                stored: stored.key.epoch,
                promised,
            });
            return None;
        }
        if stored
            .key
            .size
            .is_some_and(|size| size.granules > turn.room)
        {
            turn.out.push(Effect::LacksRoom);
            return None;
        }
        // What a copy lacks that is the only one in sync, no other can give it.
        let is_alone = stored.key.in_sync == Positions::NONE.with(me);
        if turn.is_old_image || turn.lags && !is_alone {
            // Not even an epoch that this process has had: what it has acknowledged in it is not here.
            return None;
        }
        if let Some(stored) = won(turn, stored.clone(), promised) {
            return Some(stored);
        }
        if self.has_only_begun(&stored.key, promised) && !turn.sings(Canary::JoinUnheard) {
            self.rest(turn, GRANT + stagger(turn));
            return None;
        }
        if stored.key.in_sync.has(me) || turn.sings(Canary::ElectAny) {
            self.swap(turn, stored, reason);
        }
        None
    }

    /// Whether a process has taken an epoch that this copy has not heard of, and not read before: its JOIN may be on
    /// its way. Two copies that begin at once would else take the volume from each other.
    fn has_only_begun(&mut self, key: &Key, promised: Epoch) -> bool {
        let is_owned = key.owner.incarnation != Incarnation(0);
        let is_news = is_owned && key.epoch > promised.max(self.seen);
        self.seen = self.seen.max(key.epoch);
        is_news
    }

    fn swap(&mut self, turn: &mut Turn<'_>, stored: Stored, reason: Reason) {
        let me = turn.config.position;
        let mut wants = stored.key.clone();
        let Some(epoch) = stored.key.epoch.next() else {
            return turn.alarm(Alarm::KeyUnreadable("all epochs are used up".into()));
        };
        wants.epoch = epoch;
        wants.owner = OwnerId {
            node: turn.config.node,
            incarnation: turn.config.incarnation,
        };
        if let Some(owner) = stored.key.position(stored.key.owner.node)
            && reason.is_owner_gone
            && !reason.is_handoff
        {
            wants.in_sync = wants.in_sync.without(owner);
        }
        if let Some(denied) = reason.denied {
            wants.in_sync = wants.in_sync.without(denied);
        }
        wants.in_sync = wants.in_sync.with(me);
        self.send(
            turn,
            Swap {
                revision: stored.revision,
                wants,
            },
        );
    }

    fn send(&mut self, turn: &mut Turn<'_>, swap: Swap) {
        let ask = turn.ask(Question::Swap {
            revision: swap.revision,
            value: swap.wants.encode(),
        });
        self.stage = Stage::Swapping(ask, swap);
    }

    fn settle(
        &mut self,
        turn: &mut Turn<'_>,
        swap: Swap,
        held: &Held,
        promised: Epoch,
    ) -> Option<Stored> {
        if held.revision == swap.revision {
            // It may still be made: another one on this revision decides. If an owner was heard meanwhile, it is
            // safe all the same, for epochs make lateness harmless.
            if turn.now >= self.not_before {
                self.send(turn, swap);
            }
            return None;
        }
        self.not_before = turn.now + AFTER_LOSS + stagger(turn);
        let stored = Stored::from_held(turn, held)?;
        won(turn, stored, promised)
    }
}

/// This copy, as a key names it.
const fn own(turn: &Turn<'_>) -> MemberId {
    MemberId {
        node: turn.config.node,
        replica: turn.config.uuid,
    }
}

fn stagger(turn: &Turn<'_>) -> Duration {
    STAGGER * turn.config.position.index() as u32
}

/// Whether the key says that this process owns an epoch that it has not begun. No process resumes an epoch.
fn won(turn: &Turn<'_>, stored: Stored, promised: Epoch) -> Option<Stored> {
    let owner = stored.key.owner;
    let is_node = owner.node == turn.config.node;
    let is_me = is_node && owner.incarnation == turn.config.incarnation;
    let resumes = is_node && turn.sings(Canary::ResumeEpoch) && stored.key.epoch >= promised;
    ((is_me && stored.key.epoch > promised) || resumes).then_some(stored)
}
