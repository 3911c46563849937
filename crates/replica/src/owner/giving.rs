//! Ownership given away in order: an operator wants it elsewhere, or the local store hangs.
//!
//! It is the last thing that an owner does, and only the quorum makes another one. So the quorum is asked first: while it
//! does not answer, no copy could take over, and the volume would be left to none. Nor is it given away by a key that is
//! not this owner's: who takes over goes by what it says of copies in sync. An owner whose store is dead, or says that it
//! cannot, does not ask: any copy does better then.

use std::time::Duration;

use ashlar_block::Moment;

use super::Owner;
use super::peer::Link;
use crate::canary::Canary;
use crate::event::Turn;
use crate::ids::{Ask, Position, Positions};
use crate::message::Message;
use crate::quorum::{Question, Reply};

/// A move that takes longer is given up.
const MOVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Ownership that is being given away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moving {
    to: Position,
    since: Moment,
}

/// Ownership that is to be given away once the quorum has answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Giving {
    ask: Ask,
    why: Wants,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    /// An operator wants this copy to serve.
    Move(Position),
    /// The local store hangs: any other.
    Another,
}

impl Owner {
    /// Hands ownership over, once nothing is in flight.
    pub(crate) fn give(&mut self, turn: &mut Turn<'_>, to: Position) {
        if self.may_give(turn, to) {
            self.ask_before(turn, Wants::Move(to));
        }
    }

    /// The local store hangs. Whether another copy is asked to serve. A quorum that does not answer here may answer
    /// there, so it is not waited for when the store counts as dead.
    pub(super) fn leave_hung_store(&mut self, turn: &mut Turn<'_>) -> bool {
        if turn.is_store_dead() || turn.sings(Canary::HandoffUnasked) {
            return self.hand_over(turn);
        }
        if self.giving.is_none() && self.heir(Positions::NONE).is_some() {
            self.ask_before(turn, Wants::Another);
        }
        false
    }

    fn may_give(&self, turn: &Turn<'_>, to: Position) -> bool {
        let is_member = self.stored.key.in_sync.has(to) && to != turn.config.position;
        // Hosts would wait for a base that is not committed.
        let waits = !self.lost.is_empty() && !self.lost.is_apart();
        let may = is_member && !self.is_no_heir(to) && !self.is_unproven() && !waits;
        self.is_serving() && may && self.moving.is_none()
    }

    fn ask_before(&mut self, turn: &mut Turn<'_>, why: Wants) {
        if turn.sings(Canary::HandoffUnasked) {
            return self.begin_giving(turn, why);
        }
        let ask = turn.ask(Question::Read);
        self.giving = Some(Giving { ask, why });
    }

    /// Whether the quorum was asked that before ownership is given away.
    pub(super) fn has_asked_before(&self, ask: Ask) -> bool {
        self.giving.is_some_and(|giving| giving.ask == ask)
    }

    /// The quorum has answered. Whether it was that question.
    pub(super) fn answered_before(&mut self, turn: &mut Turn<'_>, ask: Ask, reply: &Reply) -> bool {
        let Some(Giving { why, .. }) = self.giving.filter(|giving| giving.ask == ask) else {
            return false;
        };
        self.giving = None;
        if self.is_overtaken(reply) {
            self.ask_before(turn, why);
            return true;
        }
        self.looked(turn, reply);
        if !self.ends && self.is_known(turn, reply) {
            self.begin_giving(turn, why);
        }
        true
    }

    /// Whether the key has changed since the quorum said this: answers may overtake each other.
    fn is_overtaken(&self, reply: &Reply) -> bool {
        matches!(reply, Reply::Holds(Some(held)) if held.revision < self.stored.revision)
    }

    fn begin_giving(&mut self, turn: &mut Turn<'_>, why: Wants) {
        match why {
            Wants::Move(to) if self.may_give(turn, to) => {
                let since = turn.now;
                self.moving = Some(Moving { to, since });
                self.hand_off(turn);
            }
            // It may have gone on meanwhile.
            Wants::Another if turn.is_store_stuck() => {
                self.hand_over(turn);
            }
            Wants::Move(_) | Wants::Another => {}
        }
    }

    /// Whether a copy has said that it cannot go on, or ends, or differs.
    fn is_no_heir(&self, position: Position) -> bool {
        let peer = self.peers[position.index()].as_ref();
        peer.is_some_and(|peer| peer.has_failed || peer.leaves)
    }

    /// Ends, if nothing is in flight any more.
    pub(super) fn hand_off(&mut self, turn: &mut Turn<'_>) {
        let Some(moving) = self.moving else { return };
        let stays = self.stored.key.in_sync.has(moving.to) && !self.is_no_heir(moving.to);
        if turn.now - moving.since > MOVE_TIMEOUT || !stays {
            self.moving = None;
            self.start_work(turn);
            return self.consider_change(turn);
        }
        if !self.ops.is_empty() || !self.is_based() || self.change.is_some() {
            return;
        }
        let (epoch, low) = (self.epoch, self.low());
        let Some(peer) = self.peers[moving.to.index()].as_mut() else {
            return;
        };
        if peer.link != Link::Live {
            return;
        }
        peer.send(turn, epoch, Message::Commit { low });
        peer.send(turn, epoch, Message::Handoff);
        self.moving = None;
        if turn.sings(Canary::HandoffServes) {
            self.start_work(turn);
        } else {
            self.ends = true;
        }
    }
}
