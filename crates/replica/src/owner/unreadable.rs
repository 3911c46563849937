//! What a learner is to be given and cannot be read here: it is taken from another copy in sync. If none has it, the
//! learner is given all else, and what hosts write, and is not in sync before the rest can be read or was written. The
//! owner serves on.

use std::time::Duration;

use ashlar_block::{ErrorKind, IoError, Moment};

use super::Owner;
use super::heal::{HealOf, Piece};
use super::learner::{Copying, Learner};
use super::line::Place;
use crate::event::{Alarm, Turn};
use crate::extent::{Extent, ExtentSet};
use crate::ids::{CopyId, Position, SessionId};

/// When it is read again, at first and at the most.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// What of a learner's session could not be read.
#[derive(Debug)]
pub(super) struct Unreadable {
    granules: ExtentSet,
    /// Pieces that could not be read whole: they are read granule by granule.
    doubtful: ExtentSet,
    again: Moment,
    pause: Duration,
    is_told: bool,
}

impl Unreadable {
    pub(super) const fn new() -> Self {
        Self {
            granules: ExtentSet::new(),
            doubtful: ExtentSet::new(),
            again: Moment::ORIGIN,
            pause: AGAIN,
            is_told: false,
        }
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
        self.granules.insert(piece);
        self.again = now + self.pause;
        true
    }

    /// What is not to be read again any more, because it was written.
    pub(super) fn written(&mut self, extent: Extent) -> ExtentSet {
        if !self.granules.overlaps(extent) {
            return ExtentSet::new();
        }
        let mut written = self.granules.clone();
        self.granules.remove(extent);
        self.granules.iter().for_each(|left| written.remove(left));
        written
    }

    /// What is to be read again now.
    pub(super) fn again(&mut self, now: Moment) -> ExtentSet {
        if self.granules.is_empty() || now < self.again {
            return ExtentSet::new();
        }
        self.pause = (self.pause * 2).min(AGAIN_MOST);
        std::mem::take(&mut self.granules)
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
        (to, session): (Position, SessionId),
        (copy, error): (CopyId, &IoError),
    ) {
        let now = turn.now;
        let learner = self.learner_of(to, session);
        let Some(copying) = learner.and_then(|learner| learner.unread(copy, now)) else {
            return;
        };
        let Copying { extent, place } = copying;
        if extent.count() > 1 {
            return self.leave_piece(turn, place);
        }
        let piece = Piece {
            to,
            session,
            extent,
            place,
        };
        if self
            .fetch(turn, (error, extent), HealOf::Copy(piece))
            .is_none()
        {
            self.tell_unreadable(turn, piece);
            return self.leave_piece(turn, place);
        }
        let learner = self.learner_of(to, session);
        learner.into_iter().for_each(|learner| learner.healing += 1);
    }

    /// Another copy has given what a learner lacks, or none could.
    pub(super) fn copy_healed(&mut self, turn: &mut Turn<'_>, piece: Piece, is_done: bool) {
        let learner = self.learner_of(piece.to, piece.session);
        learner.into_iter().for_each(|learner| learner.healing -= 1);
        if !is_done {
            self.tell_unreadable(turn, piece);
        }
        self.leave_piece(turn, piece.place);
    }

    fn leave_piece(&mut self, turn: &mut Turn<'_>, place: Option<Place>) {
        place.into_iter().for_each(|place| self.line.leave(place));
        self.start_work(turn);
        self.resync(turn);
    }

    fn learner_of(&mut self, to: Position, session: SessionId) -> Option<&mut Learner> {
        let peer = self.peers[to.index()].as_mut();
        let peer = peer.filter(|peer| peer.session == session);
        peer.and_then(|peer| peer.learner.as_mut())
    }

    fn tell_unreadable(&mut self, turn: &mut Turn<'_>, piece: Piece) {
        let (position, extent) = (piece.to, piece.extent);
        let learner = self.learner_of(position, piece.session);
        let is_told =
            learner.is_none_or(|learner| std::mem::replace(&mut learner.unreadable.is_told, true));
        if !is_told {
            turn.alarm(Alarm::Unreadable { position, extent });
        }
    }

    /// What leaves hold could not be told here: the learner is proven later.
    pub(super) fn proof_unreadable(
        &mut self,
        turn: &mut Turn<'_>,
        (to, session): (Position, SessionId),
        copy: CopyId,
    ) {
        let shape = self.shape(turn.at());
        let peer = self.peers[to.index()].as_ref();
        let peer = peer.filter(|peer| peer.session == session);
        let learner = peer.and_then(|peer| peer.learner.as_ref());
        let proving = learner.and_then(|learner| learner.proving.get(&copy));
        let Some(extent) = proving.and_then(|proving| shape.run(proving.leaves)) else {
            return;
        };
        let position = to;
        turn.alarm(Alarm::Unreadable { position, extent });
        self.close(turn, to);
        if let Some(peer) = self.peers[to.index()].as_mut() {
            peer.close_for(turn.now, AGAIN_MOST);
        }
    }

    /// Reads again what could not be read for a while.
    pub(super) fn read_unreadable(&mut self, turn: &Turn<'_>) {
        let learners = self.peers.iter_mut().flatten();
        let learners = learners.filter_map(|peer| peer.learner.as_mut());
        learners.for_each(|learner| learner.read_again(turn.now));
    }
}
