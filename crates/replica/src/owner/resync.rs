//! A learner's way back: live records from the start, copies of what it missed, proof of every leaf, and the add.

use std::time::Duration;

use ashlar_block::Moment;
use bytes::Bytes;

use super::learner::{Copying, Learner, Proving};
use super::line::{Locked, Place};
use super::peer::{Link, Session};
use super::{Job, Owner, Work};
use crate::canary::Canary;
use crate::event::{Alarm, Effect, Turn};
use crate::extent::Extent;
use crate::ids::{CopyId, Position, Positions};
use crate::key::Size;
use crate::leaves::Leaves;
use crate::message::{Content, Message};

/// How long a learner without space is left alone.
pub(super) const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Whose digest of leaves has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Digest {
    Ours(u128),
    Theirs(u128),
}

impl Owner {
    /// Gives every learner what it may have now.
    pub(super) fn resync(&mut self, turn: &mut Turn<'_>) {
        if !self.is_serving() || self.moving.is_some() {
            return;
        }
        self.read_unreadable(turn);
        let copies = |learner: &Learner| !learner.is_clean();
        let any = self.learners().any(copies);
        self.pacing.set(any);
        self.copy_in_turns(turn);
        for position in Positions::first(self.peers.len()).iter() {
            if !self.is_unsettled(turn, position) {
                self.prove(turn, position);
            }
        }
        self.consider_change(turn);
    }

    fn learners(&self) -> impl Iterator<Item = &Learner> {
        let peers = self.peers.iter().flatten();
        let learning = peers.filter(|peer| peer.link == Link::Learning);
        learning.filter_map(|peer| peer.learner.as_ref())
    }

    /// When copies go on that pause for hosts.
    pub(crate) fn copies_at(&self) -> Option<Moment> {
        self.pacing.wakes_at()
    }

    /// What hosts were answered in this turn.
    pub(crate) fn note_answers(&mut self, turn: &Turn<'_>) {
        if !self.pacing.is_on() {
            return;
        }
        for effect in turn.out.iter() {
            if let Effect::Answer { command, .. } = effect {
                self.pacing.answered(*command, turn.now);
            }
        }
    }

    /// It is not known yet whether this copy was added.
    fn is_unsettled(&self, turn: &Turn<'_>, position: Position) -> bool {
        self.adding() == Some(position) && !turn.sings(Canary::UnsettledAdd)
    }

    /// Begins as many pieces as the pace lets, of one learner after the other: one that misses much, or is slow, holds up
    /// no other.
    fn copy_in_turns(&mut self, turn: &mut Turn<'_>) {
        let most = turn.config.limits.copies;
        let mut begun = Vec::new();
        loop {
            let under_way = self.learners().map(Learner::under_way).sum();
            if self.pacing.room(turn.now, under_way, most) == 0 {
                break;
            }
            let Some(piece) = self.next_piece(turn) else {
                break;
            };
            self.pacing.begins(turn.now);
            begun.push(piece);
        }
        if begun.is_empty() {
            return;
        }
        for (session, extent) in begun {
            if turn.sings(Canary::CopyUnlocked) {
                self.copy_starts(turn, session, extent, None);
            } else {
                // Hosts' writes wait behind the copy, which would wait for as long as a try takes.
                self.give_way(turn, extent);
                self.line.join(extent, Work::Copy(session));
            }
        }
        self.start_work(turn);
    }

    /// A piece for the learner whose turn it is, of those that miss something and may be given it.
    fn next_piece(&mut self, turn: &Turn<'_>) -> Option<(Session, Extent)> {
        let limits = turn.config.limits;
        let count = self.peers.len();
        for step in 0..count {
            let index = (self.copies_next + step) % count;
            let to = Position::new(index).filter(|&to| !self.is_unsettled(turn, to));
            let Some((to, peer)) = to.zip(self.peers[index].as_mut()) else {
                continue;
            };
            let id = peer.session;
            let learner = peer.learner.as_mut();
            let learner = learner.filter(|_| peer.link == Link::Learning);
            let learner = learner.filter(|learner| learner.under_way() < limits.copies);
            if let Some(learner) = learner
                && let Some(extent) = learner.claim(limits.piece_granules)
            {
                learner.waiting_copies += 1;
                self.copies_next = index + 1;
                return Some((Session { to, id }, extent));
            }
        }
        None
    }

    /// A copy has its range.
    pub(super) fn copy_starts(
        &mut self,
        turn: &mut Turn<'_>,
        session: Session,
        extent: Extent,
        place: Option<Place>,
    ) {
        let Some(learner) = self.learner_of(session) else {
            // Its session has ended; what waited was withdrawn, so only a canary's has no place.
            if let Some(place) = place {
                self.line.leave(place);
            }
            return;
        };
        let copy = learner.number();
        learner.waiting_copies -= 1;
        learner.copies.insert(copy, Copying::new(extent, place));
        let token = turn.patient_token();
        self.jobs.insert(token, Job::Copy { session, copy });
        turn.local.read(token, extent);
    }

    /// What a copy is to carry.
    pub(super) fn copy_read(
        &mut self,
        turn: &mut Turn<'_>,
        session: Session,
        copy: CopyId,
        data: Bytes,
    ) {
        let epoch = self.epoch;
        let peer = self.peer_of(session);
        let Some(peer) = peer.filter(|peer| peer.link == Link::Learning) else {
            return;
        };
        let Some(learner) = peer.learner.as_mut() else {
            return;
        };
        let Some(copying) = learner.copies.get_mut(&copy) else {
            return;
        };
        copying.is_sent = true;
        let extent = copying.extent;
        let content = Content::of(data);
        peer.send(
            turn,
            epoch,
            Message::Copy {
                copy,
                extent,
                content,
            },
        );
    }

    /// A copy is durable at the learner.
    pub(super) fn copied(&mut self, turn: &mut Turn<'_>, from: Position, copy: CopyId) {
        let Some(peer) = self.peers[from.index()].as_mut() else {
            return;
        };
        let Some(copying) = peer
            .learner
            .as_mut()
            .and_then(|learner| learner.copied(copy))
        else {
            return;
        };
        let extent = copying.extent;
        turn.out.push(Effect::Copied { to: from, extent });
        let (granules, most) = (extent.count().into(), turn.config.limits.copies);
        self.pacing.copied(turn.now, granules, most);
        turn.local.clear(from, extent);
        if let Some(place) = copying.place {
            self.line.leave(place);
        }
        self.start_work(turn);
        self.resync(turn);
    }

    /// Proves run after run of leaves, once nothing is missed.
    fn prove(&mut self, turn: &mut Turn<'_>, to: Position) {
        let shape = self.shape(turn.at());
        let based = self.is_serving() && self.is_nothing_uncertain();
        let Some(peer) = self.peers[to.index()].as_mut() else {
            return;
        };
        let session = Session {
            to,
            id: peer.session,
        };
        let Some(learner) = peer
            .learner
            .as_mut()
            .filter(|_| peer.link == Link::Learning)
        else {
            return;
        };
        let mut any = false;
        while based
            && let Some(leaves) = learner.unproven(turn, shape)
            && let Some(extent) = shape.run(leaves)
        {
            learner.waiting_proofs += 1;
            self.line.join(extent, Work::Proof { session, leaves });
            any = true;
        }
        if any {
            self.start_work(turn);
        }
    }

    /// Leaves are locked: both sides compute the digest of `range`, which is what the volume had of them then.
    pub(super) fn proof_starts(
        &mut self,
        turn: &mut Turn<'_>,
        session: Session,
        leaves: Leaves,
        range: Locked,
    ) {
        let Locked { place, extent } = range;
        let (epoch, size) = (self.epoch, self.stored.key.size);
        let peer = self.peer_of(session);
        let Some((peer, mut learner)) = peer.and_then(|peer| {
            let learner = peer.learner.take()?;
            Some((peer, learner))
        }) else {
            self.line.leave(place);
            return;
        };
        let granules = asked(size, extent);
        let copy = learner.number();
        learner.waiting_proofs -= 1;
        let proving = Proving {
            leaves,
            place,
            ours: None,
            theirs: None,
        };
        learner.proving.insert(copy, proving);
        peer.learner = Some(learner);
        let ask = Message::DigestAsk {
            copy,
            leaves,
            granules,
        };
        peer.send(turn, epoch, ask);
        let token = turn.patient_token();
        self.jobs.insert(token, Job::Digest { session, copy });
        turn.local.digest(token, extent);
    }

    /// One of the two digests has come.
    pub(super) fn compare(
        &mut self,
        turn: &mut Turn<'_>,
        session: Session,
        copy: CopyId,
        digest: Digest,
    ) {
        let position = session.to;
        let shape = self.shape(turn.at());
        let Some(learner) = self.learner_of(session) else {
            return;
        };
        let Some(proving) = learner.proving.get_mut(&copy) else {
            return;
        };
        match digest {
            Digest::Ours(ours) => proving.ours.get_or_insert(ours),
            Digest::Theirs(theirs) => proving.theirs.get_or_insert(theirs),
        };
        let (Some(ours), Some(theirs)) = (proving.ours, proving.theirs) else {
            return;
        };
        let (leaves, place) = (proving.leaves, proving.place);
        learner.proving.remove(&copy);
        if ours != theirs {
            learner.walk.differ(leaves);
            if let Some(leaf) = leaves.only()
                && let Some(extent) = shape.leaf(leaf)
            {
                learner.differs(extent);
                turn.local.mark(position, extent);
                turn.alarm(Alarm::Differs { position, leaf });
            }
        }
        self.line.leave(place);
        self.start_work(turn);
        self.resync(turn);
    }

    /// A learner that may be added now: nothing is missed, every leaf is proven, it has granted, and all that it
    /// has not acknowledged is not committed either. Commits begin to wait for one that lacks only the last.
    pub(super) fn caught_up(&mut self, turn: &Turn<'_>) -> Option<Position> {
        if !self.is_serving() || !self.is_nothing_uncertain() {
            return None;
        }
        let leaves = self.shape(turn.at()).leaves();
        let has_all = |position: Position| {
            let peer = self.peers[position.index()].as_ref()?;
            let learner = peer
                .learner
                .as_ref()
                .filter(|_| peer.link == Link::Learning)?;
            let proven = learner.is_clean() && learner.is_proven(leaves);
            let proven = proven || turn.sings(Canary::AddNotCaught);
            let only = Positions::NONE.with(position);
            let granted = self.held.covers(only, turn.now) || turn.sings(Canary::AddNoGrant);
            (proven && granted).then_some(learner)
        };
        let absent = self.stored.key.absent();
        let found = absent
            .iter()
            .find_map(|position| Some((position, has_all(position)?)));
        let (position, learner) = found?;
        let lags_only = learner.lags_only(|record| self.ops.has_record(record));
        if lags_only || turn.sings(Canary::AddNotCaught) {
            return Some(position);
        }
        self.catching = Some(position);
        None
    }
}

/// How many granules of leaves a digest is asked for: a copy whose pool has more of it than the key says is to count no
/// more. 0 is what it has, as long as the key does not say.
pub(super) fn asked(size: Option<Size>, extent: Extent) -> u32 {
    size.map_or(0, |_| extent.count())
}
