//! What a learner is to be given and cannot be read here: it is taken from another copy in sync. If none has it, the
//! learner is given all else, and what hosts write, and is not in sync before the rest can be read or was written. The
//! owner serves on.

use std::time::Duration;

use ashlar_block::{ErrorKind, IoError, Moment};

use super::Owner;
use super::heal::{HealOf, Piece};
use super::learner::{Copying, Learner};
use super::line::Place;
use super::peer::{Peer, Session};
use crate::event::{Alarm, Turn};
use crate::extent::{Extent, ExtentSet};
use crate::ids::CopyId;

/// When it is read again, at first and at the most.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
pub(super) const AGAIN_MOST: Duration = Duration::from_secs(60);

/// What of a learner's session could not be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    granules: ExtentSet,
    /// Of what could not be read, what is being tried again.
    tried: ExtentSet,
    /// What another copy has given back: it is tried again at once, but once.
    healed: ExtentSet,
    /// Pieces that could not be read whole: they are read granule by granule.
    doubtful: ExtentSet,
    again: Moment,
    pause: Duration,
    /// What people were told of.
    told: Option<Extent>,
}

impl Unreadable {
    pub(super) const fn new() -> Self {
        Self {
            granules: ExtentSet::new(),
            tried: ExtentSet::new(),
            healed: ExtentSet::new(),
            doubtful: ExtentSet::new(),
            again: Moment::ORIGIN,
            pause: AGAIN,
            told: None,
        }
    }

    /// The first granule that waits to be read again.
    #[cfg(test)]
    pub(super) fn first(&self) -> Option<Extent> {
        self.granules.front_from(0, 1)
    }

    /// What of a piece is read at once.
    pub(super) fn cut(&self, piece: Extent) -> Extent {
        let first = || piece.pieces(1).next().unwrap_or(piece);
        self.doubtful.apart_from(piece).unwrap_or_else(|_| first())
    }

    /// A piece could not be read. Whether that is known of the granule now.
    pub(super) fn add(&mut self, piece: Extent, now: Moment) -> bool {
        if piece.count() > 1 {
            self.doubtful.insert(piece);
            return false;
        }
        self.tried.remove(piece);
        self.granules.insert(piece);
        self.again = now + self.pause;
        true
    }

    /// What is not to be read again any more, because it was written.
    pub(super) fn written(&mut self, extent: Extent) -> ExtentSet {
        let mut written = ExtentSet::new();
        if self.granules.overlaps(extent) {
            written = self.granules.clone();
            self.granules.remove(extent);
            self.granules.iter().for_each(|left| written.remove(left));
        }
        self.given(extent);
        written
    }

    /// The learner has it.
    pub(super) fn given(&mut self, extent: Extent) {
        self.tried.remove(extent);
        self.told.take_if(|told| told.overlaps(extent));
        if self.granules.is_empty() && self.tried.is_empty() {
            self.pause = AGAIN;
        }
    }

    /// What is to be read again now.
    pub(super) fn again(&mut self, now: Moment) -> ExtentSet {
        if self.granules.is_empty() || now < self.again {
            return ExtentSet::new();
        }
        self.pause = (self.pause * 2).min(AGAIN_MOST);
        let again = std::mem::take(&mut self.granules);
        self.tried.add(&again);
        again
    }

    /// Another copy has given a granule back. Whether it is to be read again now.
    pub(super) fn healed(&mut self, granule: Extent) -> bool {
        let is_first = !self.healed.overlaps(granule);
        if is_first {
            self.healed.insert(granule);
            self.granules.remove(granule);
            self.tried.insert(granule);
        }
        is_first
    }

    /// Whether people are to be told of it: one by one, as long as it is so.
    pub(super) fn tells(&mut self, granule: Extent) -> bool {
        let is_new = self.told.is_none();
        self.told.get_or_insert(granule);
        is_new
    }
}

/// Whether a block is lost, and its store is not.
pub(super) fn is_lost(error: &IoError) -> bool {
    error.kind() == ErrorKind::Corrupt
}

impl Owner {
    /// A piece for a learner could not be read. One of several granules is read again, one by one.
    pub(super) fn copy_unreadable(
        &mut self,
        turn: &mut Turn<'_>,
        session: Session,
        copy: CopyId,
        error: &IoError,
    ) {
        let now = turn.now;
        let learner = self.learner_of(session);
        let Some(copying) = learner.and_then(|learner| learner.unread(copy, now)) else {
            return;
        };
        let Copying { extent, place, .. } = copying;
        if extent.count() > 1 {
            return self.leave_piece(turn, place);
        }
        let piece = Piece {
            session,
            extent,
            place,
        };
        // Copies may differ where the base is lost: what another has there need not be what was here, and it is right,
        // too.
        let may_differ = self.lost.overlaps(extent);
        let fetch = match may_differ {
            true => None,
            false => self.fetch(turn, error, extent, HealOf::Copy(piece)),
        };
        if fetch.is_none() {
            self.tell_unreadable(turn, piece);
            return self.leave_piece(turn, place);
        }
        let learner = self.learner_of(session);
        learner.into_iter().for_each(|learner| learner.healing += 1);
    }

    /// Another copy has given what a learner lacks, or none could.
    pub(super) fn copy_healed(&mut self, turn: &mut Turn<'_>, piece: Piece, is_done: bool) {
        if let Some(learner) = self.learner_of(piece.session) {
            learner.healing -= 1;
            if is_done {
                learner.healed(piece.extent);
            }
        }
        if !is_done {
            self.tell_unreadable(turn, piece);
        }
        self.leave_piece(turn, piece.place);
    }

    fn leave_piece(&mut self, turn: &mut Turn<'_>, place: Option<Place>) {
        self.pacing.failed(turn.now, turn.config.limits.copies);
        place.into_iter().for_each(|place| self.line.leave(place));
        self.start_work(turn);
        self.resync(turn);
    }

    /// Who a session is with, while it lasts.
    pub(super) fn peer_of(&mut self, session: Session) -> Option<&mut Peer> {
        let peer = self.peers[session.to.index()].as_mut();
        peer.filter(|peer| peer.session == session.id)
    }

    pub(super) fn learner_of(&mut self, session: Session) -> Option<&mut Learner> {
        self.peer_of(session)?.learner.as_mut()
    }

    fn tell_unreadable(&mut self, turn: &mut Turn<'_>, piece: Piece) {
        let (position, extent) = (piece.session.to, piece.extent);
        let learner = self.learner_of(piece.session);
        let Some(learner) = learner else { return };
        if learner.unreadable.tells(extent) {
            let hosts = self.shape(turn.at()).seen(extent);
            turn.alarm(Alarm::Unreadable { position, hosts });
        }
    }

    /// What leaves hold could not be told here. Of several, each is asked for; one is given to the learner as what differs
    /// is: all that can be read, and what cannot as soon as it can.
    pub(super) fn proof_unreadable(&mut self, turn: &mut Turn<'_>, session: Session, copy: CopyId) {
        let shape = self.shape(turn.at());
        let Some(learner) = self.learner_of(session) else {
            return;
        };
        let Some(proving) = learner.proving.remove(&copy) else {
            return;
        };
        learner.walk.differ(proving.leaves);
        if let Some(leaf) = proving.leaves.only()
            && let Some(extent) = shape.leaf(leaf)
        {
            learner.differs(extent);
            turn.local.mark(session.to, extent);
        }
        self.line.leave(proving.place);
        self.start_work(turn);
        self.resync(turn);
    }

    /// Reads again what could not be read for a while.
    pub(super) fn read_unreadable(&mut self, turn: &Turn<'_>) {
        let learners = self.peers.iter_mut().flatten();
        let learners = learners.filter_map(|peer| peer.learner.as_mut());
        learners.for_each(|learner| learner.read_again(turn.now));
    }
}
