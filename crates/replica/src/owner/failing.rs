//! What an owner does whose own store fails or hangs: another copy serves.

use ashlar_block::Moment;

use super::Owner;
use super::peer::{Link, Peer};
use crate::event::{Alarm, Turn};
use crate::ids::{Position, Positions};
use crate::message::Message;

impl Owner {
    /// This copy gave up before, and owns again: until then another could not do better.
    pub(crate) const fn endures_until(&mut self, until: Option<Moment>) {
        self.endures_until = until;
    }

    /// The local store has said that it cannot, and these have lost the same. Whether another copy is asked to serve, which
    /// may have it.
    pub(super) fn hands_errors_over(&mut self, turn: &mut Turn<'_>, lost: Positions) -> bool {
        let endures = self.endures_until.is_some_and(|until| turn.now < until);
        !endures && self.hand_over_but(turn, lost)
    }

    /// Whether it has stopped because of its own store.
    pub(crate) const fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// The local store cannot read what the protocol needs: this copy must not serve.
    pub(super) fn local_failed(&mut self, turn: &mut Turn<'_>) {
        if !self.hand_over(turn) {
            turn.alarm(Alarm::LocalFailed);
            self.ends = true;
        }
    }

    /// A copy that can take over, and hears of it; none of these.
    pub(super) fn heir(&self, but: Positions) -> Option<Position> {
        let others = self.stored.key.in_sync.minus(self.removing()).minus(but);
        let hears =
            |peer: &&Peer| peer.link == Link::Live && others.has(peer.position) && !peer.has_failed;
        let found = self.peers.iter().flatten().find(hears);
        found.map(|peer| peer.position)
    }

    /// Stops, and asks another copy to take over, if one in sync hears it. What is under way is as if this process had
    /// died, but for the grants, which this one does not use any more: so the other need not wait for them to lapse.
    pub(crate) fn hand_over(&mut self, turn: &mut Turn<'_>) -> bool {
        self.hand_over_but(turn, Positions::NONE)
    }

    fn hand_over_but(&mut self, turn: &mut Turn<'_>, but: Positions) -> bool {
        if self.ends || !self.is_serving() {
            return self.ends;
        }
        let epoch = self.epoch;
        let heir = self.heir(but);
        let Some(peer) = heir.and_then(|heir| self.peers[heir.index()].as_mut()) else {
            return false;
        };
        peer.send(turn, epoch, Message::Handoff);
        turn.alarm(Alarm::LocalFailed);
        (self.ends, self.gave_up) = (true, true);
        true
    }
}
