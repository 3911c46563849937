//! Another size, while hosts go on: one compare-and-swap, for which all copies have the room already. They are named, so
//! one that came after the others had got it is not overlooked.
//!
//! The register stays where it is ([`Size`](crate::Size)), so nothing is moved: what the volume gets lies behind
//! everything that it has, was never written in any copy, and reads as zeroes in all of them. Before a copy grows in its
//! pool the key says the size that the volume has, and the owner knows that it does: what a pool holds says nothing of it
//! from then on.

use super::Owner;
use super::peer::{Link, Peer};
use crate::canary::Canary;
use crate::event::{At, Growth, Shape, Turn};
use crate::key::Size;

impl Owner {
    /// The volume as the key says it, or as this copy had it when its process began.
    pub(crate) fn shape(&self, at: At<'_>) -> Shape {
        let own = at.config.shape;
        self.stored.key.size.map_or(own, |size| own.sized(size))
    }

    /// The size that the key says.
    pub(crate) const fn said_size(&self) -> Option<Size> {
        self.stored.key.size
    }

    /// An operator wants another size.
    pub(crate) fn resize(&mut self, turn: &mut Turn<'_>, growth: Growth) {
        self.growth = Some(growth);
        self.consider_change(turn);
    }

    /// What is wanted and may be done now. Only the last that was asked for counts.
    pub(super) fn may_grow(&mut self, turn: &Turn<'_>) -> Option<Growth> {
        if !self.is_serving() {
            return None;
        }
        let growth = self.growth.take()?;
        let (key, size) = (&self.stored.key, growth.size);
        let follows = |peer: &Peer| peer.link == Link::Live && !peer.has_failed;
        let all = key.absent().is_empty() && self.peers.iter().flatten().all(follows);
        let fits = match key.size {
            None if turn.sings(Canary::GrowUnpinned) => size.granules <= turn.room,
            None => size == self.shape(turn.at()).size(),
            Some(before) => {
                let have_room = growth.members == key.members;
                (have_room || turn.sings(Canary::GrowUncounted))
                    && before.register == size.register
                    && before.granules < size.granules
                    && size.granules <= turn.room
            }
        };
        (all && fits && size.is_sound() && turn.now < growth.until).then_some(growth)
    }
}
