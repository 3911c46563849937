//! Which copy owns after all may have lost power: the one whose records reach furthest.
//!
//! A copy may have come back as it was at another time, by so little that the quorum's memory does not tell. What it
//! lacks was acknowledged, and is at all others in sync. So no copy serves while another one in sync has
//! newer records; what else differs is found when all are compared.

use super::Owner;
use super::peer::Link;
use crate::canary::Canary;
use crate::event::{Effect, Turn};
use crate::message::Message;

impl Owner {
    /// All have joined, and none has served: another one owns, if it has more. Whether it was asked to.
    pub(super) fn leaves_it_to_another(&mut self, turn: &mut Turn<'_>) -> bool {
        if !self.is_unproven() || turn.sings(Canary::FirstOwns) {
            return false;
        }
        let (epoch, ours) = (self.epoch, Some(turn.local.reach()));
        let in_sync = self.stored.key.in_sync;
        let has_more = |peer: &&mut super::Peer| {
            let is_heard = peer.link == Link::Live && in_sync.has(peer.position);
            is_heard && !peer.has_failed && peer.reach > ours
        };
        let further = self.peers.iter_mut().flatten().filter(has_more);
        let Some(peer) = further.max_by_key(|peer| peer.reach) else {
            return false;
        };
        peer.send(turn, epoch, Message::Handoff { doubts: true });
        turn.out.push(Effect::HasLess(peer.position));
        self.ends = true;
        true
    }
}
