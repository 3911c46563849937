//! Other copies: places are given up, and given to new ones, one compare-and-swap for all of it.
//!
//! A place that is taken is given up before another copy may have it, so a plane, a promise or a session is never taken
//! for the new copy's. The owner's own place stays: ownership is moved first. So at least one copy in sync is left,
//! whatever is asked for; what else is to be left is for who asks.

use super::Owner;
use super::peer::Peer;
use crate::canary::Canary;
use crate::event::{Turn, Wish};
use crate::ids::{Position, Positions, ReplicaUuid};
use crate::key::Members;

impl Wish {
    /// Whether who wants it would still hear of it.
    pub(super) fn is_waited_for(&self, turn: &Turn<'_>) -> bool {
        turn.now < self.until || turn.sings(Canary::WishKept)
    }
}

impl Owner {
    /// An operator wants these copies.
    pub(crate) fn reseat(&mut self, turn: &mut Turn<'_>, wish: Wish) {
        self.wanted = Some(wish);
        self.consider_change(turn);
    }

    /// What is wanted and may be done now. Only the last that was asked for counts.
    pub(super) fn wanted(&mut self, turn: &Turn<'_>) -> Option<Wish> {
        if !self.is_serving() {
            return None;
        }
        let wish = self.wanted.take()?;
        let is_news = wish.members != self.stored.key.members;
        let is_known = wish.in_sync == self.stored.key.in_sync || turn.sings(Canary::WishUnchecked);
        let may =
            is_news && is_known && wish.is_waited_for(turn) && self.may_be(turn, &wish.members);
        may.then_some(wish)
    }

    fn may_be(&self, turn: &Turn<'_>, members: &Members) -> bool {
        let known = &self.stored.key.members;
        let me = turn.config.position;
        let fits = |position: Position| match (known.get(position), members.get(position)) {
            (Some(before), Some(after)) => before == after,
            (None, Some(after)) => {
                let is_elsewhere = known.find(|other| other.node == after.node).is_some();
                after.replica == ReplicaUuid::NEW && !is_elsewhere
            }
            (_, None) => position != me,
        };
        let twice = members.iter().any(|(at, one)| {
            let other = members.find(|other| other.node == one.node);
            other != Some(at)
        });
        Position::all().all(fits) && !twice
    }

    /// The places that are given up.
    pub(super) fn leaving(&self, members: &Members) -> Positions {
        let known = self.stored.key.members.positions();
        known.minus(members.positions())
    }

    /// The places that are given to new copies.
    pub(super) fn coming(&self, members: &Members) -> Positions {
        let known = self.stored.key.members.positions();
        members.positions().minus(known)
    }

    /// Granules that a copy misses whose session is open.
    pub(crate) fn missing(&self, position: Position) -> Option<u64> {
        let peer = self.peers[position.index()].as_ref()?;
        Some(peer.learner.as_ref()?.missing())
    }

    /// Other copies than before count from now on.
    pub(super) fn take_seats(&mut self, turn: &mut Turn<'_>, before: &Members) {
        let (before, now) = (before.positions(), self.stored.key.members.positions());
        for position in before.minus(now).iter() {
            self.close(turn, position);
            self.peers[position.index()] = None;
            self.held.forget(position);
            self.joined = self.joined.without(position);
        }
        for position in now.minus(before).iter() {
            self.peers[position.index()] = Some(Peer::new(position, turn.now));
        }
    }
}
