//! Who is in sync: removals and adds, each one compare-and-swap, each counted only when it was read back.

use std::time::Duration;

use ashlar_block::Moment;

use super::peer::{Link, Peer};
use super::{LOOK_EVERY, Owner, Stage};
use crate::canary::Canary;
use crate::candidate::Stored;
use crate::event::{Alarm, Effect, Growth, Turn, Wish};
use crate::extent::ExtentSet;
use crate::ids::{Ask, Epoch, Known, Low, Position, Positions, SessionId, Token};
use crate::key::{Key, MemberId};
use crate::local::{Entry, EntryChange, OwnPlane};
use crate::message::Message;
use crate::quorum::{Question, Reply};

/// A swap that was not made is made again at once, then after this; twice as long each time, up to the latter. A store
/// may answer and take no changes, as one that is full.
const AGAIN: Duration = Duration::from_millis(25);
const AGAIN_MOST: Duration = Duration::from_secs(1);

/// A change of the in-sync set that is not resolved.
#[derive(Debug)]
pub(super) struct Change {
    kind: Kind,
    stage: At,
    /// Before the next swap.
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The copy that has attached.
    Add(Position, MemberId),
    Remove(Positions),
    /// Other copies.
    Seats(Wish),
    /// Another size.
    Resize(Growth),
    /// None: what became of the last swap is found out by another.
    Settle,
}

#[derive(Debug)]
enum At {
    /// The swap is out.
    Swapping(Ask),
    /// What became of it is being read.
    Reading(Ask),
    /// It is to be read at the next tick: what was said last does not count.
    ReadingAgain,
    /// The store answers, and has not made the swap: another follows.
    Waiting(Moment),
    /// It was read, and is made durable here before it counts.
    Persisting(Token, Stored),
}

impl Owner {
    /// The member of an add that is not resolved.
    pub(super) fn adding(&self) -> Option<Position> {
        match self.change.as_ref()?.kind {
            Kind::Add(position, _) => Some(position),
            Kind::Remove(_) | Kind::Seats(_) | Kind::Resize(_) | Kind::Settle => None,
        }
    }

    /// The members of a removal that is not resolved.
    pub(super) fn removing(&self) -> Positions {
        match self.change.as_ref().map(|change| change.kind) {
            Some(Kind::Remove(positions)) => positions,
            Some(Kind::Seats(wish)) => self.leaving(&wish.members),
            _ => Positions::NONE,
        }
    }

    /// Removes who is silent, stuck or full; adds who has caught up.
    pub(super) fn consider_change(&mut self, turn: &mut Turn<'_>) {
        let may = matches!(self.stage, Stage::Joining | Stage::Serving);
        if !may || self.change.is_some() || self.moving.is_some() || self.ends {
            return;
        }
        let lost = self.lost(turn);
        if !lost.is_empty() {
            return self.begin_change(turn, Kind::Remove(lost));
        }
        if let Some(wish) = self.wanted(turn) {
            return self.begin_change(turn, Kind::Seats(wish));
        }
        if let Some(growth) = self.may_grow(turn) {
            return self.begin_change(turn, Kind::Resize(growth));
        }
        if let Some(position) = self.caught_up(turn)
            && let Some(member) = self.attached(position)
        {
            self.begin_change(turn, Kind::Add(position, member));
        }
    }

    /// The copy at a place, as it has said itself.
    fn attached(&self, position: Position) -> Option<MemberId> {
        let node = self.stored.key.members.get(position)?.node;
        let peer = self.peers[position.index()].as_ref()?;
        let replica = peer.attached.as_ref()?.uuid;
        Some(MemberId { node, replica })
    }

    fn begin_change(&mut self, turn: &mut Turn<'_>, kind: Kind) {
        let ask = self.ask_swap(turn, kind);
        let stage = At::Swapping(ask);
        let pause = Duration::ZERO;
        self.change = Some(Change { kind, stage, pause });
        self.catching = None;
        self.advance(turn);
    }

    fn ask_swap(&self, turn: &mut Turn<'_>, kind: Kind) -> Ask {
        let known = &self.stored.key;
        let (in_sync, members) = match kind {
            Kind::Add(position, member) => (
                known.in_sync.with(position),
                known.members.with(position, member),
            ),
            Kind::Remove(positions) => (known.in_sync.minus(positions), known.members),
            Kind::Seats(Wish { members, .. }) => {
                (known.in_sync.minus(self.leaving(&members)), members)
            }
            Kind::Resize(_) | Kind::Settle => (known.in_sync, known.members),
        };
        let size = match kind {
            Kind::Resize(growth) => Some(growth.size),
            _ => known.size,
        };
        let wants = Key {
            in_sync,
            members,
            size,
            ..known.clone()
        };
        turn.ask(Question::Swap {
            revision: self.stored.revision,
            value: wants.encode(),
        })
    }

    /// The quorum answers.
    pub(crate) fn answered(&mut self, turn: &mut Turn<'_>, ask: Ask, mut reply: &Reply) {
        if !self.has_asked(ask) {
            // The candidate did, and the answer may be from before this owner's epoch.
            return;
        }
        if let Some(earlier) = self.is_earlier(reply) {
            // Nothing has succeeded this owner: it says less than it has said.
            turn.doubt(earlier);
            reply = &Reply::Unknown;
        }
        if self.looking == Some(ask) {
            self.looking = None;
            return self.looked(turn, reply);
        }
        if self.answered_before(turn, ask, reply) {
            return;
        }
        let Some(change) = self.change.as_mut() else {
            return;
        };
        match &change.stage {
            At::Swapping(mine) if *mine == ask => {
                // Whatever it says, only what is read back counts.
                let ask = turn.ask(Question::Read);
                change.stage = At::Reading(ask);
            }
            At::Reading(mine) if *mine == ask => match reply {
                Reply::Holds(Some(held)) if held.revision == self.stored.revision => {
                    change.stage = At::Waiting(turn.now + change.pause);
                    change.pause = (change.pause * 2).clamp(AGAIN, AGAIN_MOST);
                    self.swap_again(turn);
                }
                Reply::Holds(Some(held)) => {
                    if let Some(stored) = Stored::from_held(turn, held) {
                        self.read_back(turn, stored);
                    } else {
                        self.ends = true;
                    }
                }
                Reply::Holds(None) => self.ends = true,
                Reply::Unknown | Reply::Swapped(_) => change.stage = At::ReadingAgain,
            },
            _ => {}
        }
    }

    fn has_asked(&self, ask: Ask) -> bool {
        let is_of_change = |change: &Change| matches!(change.stage, At::Swapping(mine) | At::Reading(mine) if mine == ask);
        self.change.as_ref().is_some_and(is_of_change)
            || self.looking == Some(ask)
            || self.has_asked_before(ask)
    }

    /// What the quorum holds, if that is the key of an epoch before this owner's. Its revision does not tell: who restores
    /// an etcd from a backup may have it count on from a higher one.
    fn is_earlier(&self, reply: &Reply) -> Option<Alarm> {
        let Reply::Holds(Some(held)) = reply else {
            return None;
        };
        // One that cannot be read is for who reads it.
        let stored = Key::decode(&held.value).ok()?.epoch;
        let known = self.epoch;
        (stored < known).then_some(Alarm::StoreIsEarlier { stored, known })
    }

    /// The swap may still be made: another one on this revision decides.
    fn swap_again(&mut self, turn: &mut Turn<'_>) {
        if let Some(Change {
            kind,
            stage: At::Waiting(until),
            pause,
        }) = self.change
            && turn.now >= until
        {
            let kind = self.still_wanted(turn, kind);
            let stage = At::Swapping(self.ask_swap(turn, kind));
            self.change = Some(Change { kind, stage, pause });
        }
    }

    /// What another swap is for: the command that asked for the first may have failed by now.
    fn still_wanted(&self, turn: &Turn<'_>, kind: Kind) -> Kind {
        match kind {
            Kind::Seats(wish) if !wish.is_waited_for(turn) => Kind::Settle,
            Kind::Resize(growth) if turn.now >= growth.until => Kind::Settle,
            other => other,
        }
    }

    /// Reads again what became of a swap, or makes it again when it is time.
    pub(super) fn go_on_with_change(&mut self, turn: &mut Turn<'_>) {
        self.swap_again(turn);
        if let Some(change) = self.change.as_mut()
            && matches!(change.stage, At::ReadingAgain)
        {
            change.stage = At::Reading(turn.ask(Question::Read));
        }
    }

    /// Looks at the key now and then: a candidate may have won without having heard of it, and no message tells.
    pub(super) fn look(&mut self, turn: &mut Turn<'_>) {
        if self.change.is_none() && turn.now - self.looked_at >= LOOK_EVERY {
            self.looked_at = turn.now;
            self.looking = Some(turn.ask(Question::Read));
        }
    }

    pub(super) fn looked(&mut self, turn: &mut Turn<'_>, reply: &Reply) {
        let Reply::Holds(Some(held)) = reply else {
            return;
        };
        // While a change is on its way, what is read is settled by that.
        if self.change.is_some() || held.revision <= self.stored.revision {
            return;
        }
        let stored = Stored::from_held(turn, held);
        self.ends |= stored.is_none_or(|stored| !self.is_its(&stored.key));
    }

    /// Whether a key has this owner.
    fn is_its(&self, key: &Key) -> bool {
        key.epoch == self.epoch && key.owner == self.stored.key.owner
    }

    /// Copies that a key of this epoch names as in sync, and that were not added: within its epoch only the owner adds any.
    fn foreign(&self, key: &Key) -> Positions {
        let added = key.in_sync.minus(self.stored.key.in_sync);
        self.adding().into_iter().fold(added, Positions::without)
    }

    /// Whether a copy that goes by the key as it is now goes by what this owner knows. One that comes from a backup may
    /// name a copy that was left out since, and lacks what was acknowledged.
    pub(super) fn is_known(&mut self, turn: &mut Turn<'_>, reply: &Reply) -> bool {
        let Reply::Holds(Some(held)) = reply else {
            return false;
        };
        let Ok(key) = Key::decode(&held.value) else {
            return false;
        };
        if !self.is_its(&key) {
            // Another owns the volume by now: the change that is under way finds that out.
            return false;
        }
        let foreign = self.foreign(&key);
        if !foreign.is_empty() {
            turn.doubt(Alarm::StoreAdds(foreign));
            return false;
        }
        // A swap that is under way may have been made.
        if key == self.stored.key || self.change.is_some() {
            return true;
        }
        // Another settles what it is.
        self.begin_change(turn, Kind::Settle);
        false
    }

    fn read_back(&mut self, turn: &mut Turn<'_>, stored: Stored) {
        if !self.is_its(&stored.key) {
            self.ends = true;
            return;
        }
        let foreign = self.foreign(&stored.key);
        if !foreign.is_empty() {
            turn.doubt(Alarm::StoreAdds(foreign));
            if let Some(change) = self.change.as_mut() {
                change.stage = At::ReadingAgain;
            }
            return;
        }
        let removed = self.stored.key.in_sync.minus(stored.key.in_sync);
        removed
            .iter()
            .for_each(|position| self.close(turn, position));
        if !turn.entry.is_quiet() {
            // What is lost is being remembered: the key is read again.
            if let Some(change) = self.change.as_mut() {
                change.stage = At::ReadingAgain;
            }
            return;
        }
        let marks = !turn.sings(Canary::NoMarkRemove);
        let mut in_flight = self.unreadable();
        if !self.coming(&stored.key.members).is_empty() {
            // No other member is newly absent then.
            in_flight.add(&self.shape(turn.at()).everything());
        }
        let token = turn.persist(EntryChange {
            entry: Entry {
                promised: self.epoch,
                session: SessionId(0),
                absent: stored.key.absent(),
            },
            marks_uncertain: marks,
            marks: if marks { in_flight } else { ExtentSet::new() },
            members: stored.key.members.positions(),
            own: OwnPlane::Until(Known {
                epoch: Epoch(0),
                low: Low::BASE_OPEN,
            }),
        });
        if let Some(change) = self.change.as_mut() {
            change.stage = At::Persisting(token, stored);
        }
    }

    /// The change is durable here: the others hear of it ahead of any `low` that relies on it.
    pub(super) fn change_persisted(&mut self, turn: &mut Turn<'_>, token: Token) {
        let is_it = |change: &Change| matches!(change.stage, At::Persisting(t, _) if t == token);
        if !self.change.as_ref().is_some_and(is_it) {
            return;
        }
        let Some(Change {
            stage: At::Persisting(_, stored),
            ..
        }) = self.change.take()
        else {
            return;
        };
        let before = std::mem::replace(&mut self.stored, stored).key;
        let key = self.stored.key.clone();
        self.joined = self.joined.minus(key.absent());
        let removed = before.in_sync.minus(key.in_sync);
        let added = key.in_sync.minus(before.in_sync);
        self.added = self.added.union(added);
        self.announce(turn, added, removed);
        // One that was removed may have a session again, as if it were in sync.
        for position in removed.iter() {
            self.close(turn, position);
            if let Some(peer) = self.peers[position.index()].as_mut() {
                peer.left(turn.now);
            }
        }
        self.take_seats(turn, &before.members);
        turn.out.push(Effect::InSync(self.stored.key.in_sync));
        self.advance(turn);
        self.start_work(turn);
        self.begin_sessions(turn);
    }

    /// Who is in sync by now hears who is absent, before anything is said that relies on it.
    fn announce(&mut self, turn: &mut Turn<'_>, added: Positions, removed: Positions) {
        let (epoch, absent) = (self.epoch, self.stored.key.absent());
        let stay = |peer: &&mut Peer| !removed.has(peer.position);
        for peer in self.peers.iter_mut().flatten().filter(stay) {
            if added.has(peer.position) && peer.link == Link::Learning {
                peer.link = Link::Live;
                peer.learner = None;
                self.joined = self.joined.with(peer.position);
            }
            let tells = !turn.sings(Canary::NoEntry) || added.has(peer.position);
            if peer.is_open() && peer.told != absent && tells {
                peer.told = absent;
                peer.send(turn, epoch, Message::Entry { absent });
            }
        }
    }
}
