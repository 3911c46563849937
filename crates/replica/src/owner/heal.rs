//! What cannot be read here is taken from another copy in sync.
//!
//! Copies in sync are equal where nothing is under way, so under the range's lock theirs is what was here; it is taken if
//! the checksums that this copy keeps say the same. In the base any joined copy's content is right, for all are given
//! what the owner takes.

use ashlar_block::{ErrorKind, IoError, Moment};

use super::line::{Locked, Place};
use super::peer::{Link, Peer, Session};
use super::reads::Stage;
use super::{Job, Owner, Work};
use crate::canary::Canary;
use crate::event::{Alarm, At, Effect, Turn};
use crate::extent::Extent;
use crate::ids::{FetchId, Leaf, Position, Positions};
use crate::message::{Content, Message};
use crate::pace::STUCK_AFTER;

/// What it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealOf {
    /// A read, which is tried again; with a place in the line, unless a canary goes without.
    Read(Option<Place>),
    /// A piece of the base.
    Base(Place),
    /// A piece for a learner.
    Copy(Piece),
}

/// A granule that a learner is to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) session: Session,
    pub(super) extent: Extent,
    /// In the line: no session that ends gives it up meanwhile.
    pub(super) place: Option<Place>,
}

/// What another copy is asked for.
#[derive(Debug)]
pub(super) struct Heal {
    extent: Extent,
    of: HealOf,
    /// Who has the question, and since when.
    from: Option<Position>,
    since: Moment,
    /// Who had it until now.
    asked: Positions,
    /// Who certainly has it no more than this copy: it said so, or has something else.
    lost: Positions,
    /// It has come, and is being written here.
    is_written: bool,
}

impl Heal {
    const fn new(extent: Extent, of: HealOf) -> Self {
        Self {
            extent,
            of,
            from: None,
            since: Moment::ORIGIN,
            asked: Positions::NONE,
            lost: Positions::NONE,
            is_written: false,
        }
    }

    fn waits_for(&self, position: Position) -> bool {
        self.from == Some(position) && !self.is_written
    }

    fn is_late(&self, now: Moment) -> bool {
        now - self.since > STUCK_AFTER
    }

    const fn is_base(&self) -> bool {
        matches!(self.of, HealOf::Base(_))
    }

    const fn is_copy(&self) -> bool {
        matches!(self.of, HealOf::Copy(_))
    }
}

/// What a copy says it has.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) fetch: FetchId,
    pub(super) extent: Extent,
    pub(super) content: Option<Content>,
}

impl Owner {
    /// A copy in sync that can be asked, and was not.
    fn healer(&self, at: At<'_>, asked: Positions) -> Option<Position> {
        let in_sync = self.stored.key.in_sync.minus(self.removing());
        let others = in_sync.minus(asked).without(at.config.position);
        let can = |peer: &&Peer| {
            let speaks = peer.has_fetch && peer.link == Link::Live;
            speaks && others.has(peer.position) && !peer.has_failed
        };
        let mut peers = self.peers.iter().flatten();
        peers.find(can).map(|peer| peer.position)
    }

    /// Asks another copy for what cannot be read here, if there is one and its loss is all that is wrong.
    pub(super) fn fetch(
        &mut self,
        turn: &mut Turn<'_>,
        error: &IoError,
        extent: Extent,
        of: HealOf,
    ) -> Option<FetchId> {
        if error.kind() != ErrorKind::Corrupt {
            return None;
        }
        self.fetches += 1;
        let fetch = FetchId(self.fetches);
        let heal = Heal::new(extent, of);
        match self.ask_healer(turn, fetch, heal) {
            Ok(()) => Some(fetch),
            Err(_) => None,
        }
    }

    /// Asks the next copy; gives the heal back if there is none.
    fn ask_healer(&mut self, turn: &mut Turn<'_>, fetch: FetchId, heal: Heal) -> Result<(), Heal> {
        let epoch = self.epoch;
        let from = self.healer(turn.at(), heal.asked);
        let Some(peer) = from.and_then(|from| self.peers[from.index()].as_mut()) else {
            return Err(heal);
        };
        let extent = heal.extent;
        peer.send(turn, epoch, Message::Fetch { fetch, extent });
        let heal = Heal {
            from,
            since: turn.now,
            asked: heal.asked.with(peer.position),
            ..heal
        };
        self.heals.insert(fetch, heal);
        Ok(())
    }

    /// A read has found nothing good here. Whether it is tried again, when another copy has been asked.
    pub(super) fn heals_read(&mut self, turn: &mut Turn<'_>, at: usize, error: &IoError) -> bool {
        let can =
            error.kind() == ErrorKind::Corrupt && self.healer(turn.at(), Positions::NONE).is_some();
        if !can || self.reads[at].was_healed {
            return false;
        }
        self.fetches += 1;
        let fetch = FetchId(self.fetches);
        let read = &mut self.reads[at];
        (read.was_healed, read.stage) = (true, Stage::Heals(fetch));
        let extent = read.extent;
        if turn.sings(Canary::HealUnlocked) {
            let heal = Heal::new(extent, HealOf::Read(None));
            if self.ask_healer(turn, fetch, heal).is_err() {
                self.read_again(turn, fetch, Positions::NONE);
            }
            return true;
        }
        self.line.join(extent, Work::Heal(fetch));
        self.start_work(turn);
        true
    }

    /// The range is locked: what is at the others there is what was here.
    pub(super) fn heal_starts(&mut self, turn: &mut Turn<'_>, fetch: FetchId, range: Locked) {
        let Locked { place, extent } = range;
        let heal = Heal::new(extent, HealOf::Read(Some(place)));
        if self.ask_healer(turn, fetch, heal).is_err() {
            self.line.leave(place);
            self.read_again(turn, fetch, Positions::NONE);
        }
    }

    /// Another copy has said what it has.
    pub(super) fn fetched(&mut self, turn: &mut Turn<'_>, from: Position, fetched: Fetched) {
        let fetch = fetched.fetch;
        let heal = self.heals.get_mut(&fetch);
        let Some(heal) = heal.filter(|heal| heal.waits_for(from)) else {
            return;
        };
        let (extent, of) = (heal.extent, heal.of);
        if fetched.extent != extent {
            // Not what it was asked for: nothing that it says counts.
            return self.close(turn, from);
        }
        let Some(content) = fetched.content else {
            heal.lost = heal.lost.with(from);
            return self.ask_next(turn, fetch);
        };
        if let HealOf::Base(place) = of {
            self.heals.remove(&fetch);
            turn.out.push(Effect::Healed(extent));
            return self.base_known(turn, Locked { place, extent }, content, false);
        }
        match turn.local.matches(extent, &content) {
            Some(true) => {}
            _ if turn.sings(Canary::HealUnmatched) => {}
            Some(false) => {
                heal.lost = heal.lost.with(from);
                self.differs(turn, from, extent);
                return self.ask_next(turn, fetch);
            }
            None => return self.ask_next(turn, fetch),
        }
        heal.is_written = true;
        let token = turn.token();
        self.jobs.insert(token, Job::Heal(fetch));
        turn.local.apply(token, extent, content, None);
    }

    /// A copy has something else than was written here, where nothing is under way: it leaves the copies in sync, and the
    /// volume is not handed to it.
    fn differs(&mut self, turn: &mut Turn<'_>, position: Position, extent: Extent) {
        let leaf = Leaf(extent.first() / u64::from(turn.own_shape().leaf_granules));
        turn.alarm(Alarm::Diverged { position, leaf });
        if let Some(peer) = self.peers[position.index()].as_mut() {
            peer.has_failed = true;
        }
        self.consider_change(turn);
    }

    /// What another copy gave is durable here, or could not be written.
    pub(super) fn heal_written(&mut self, turn: &mut Turn<'_>, fetch: FetchId, is_done: bool) {
        let Some(heal) = self.heals.remove(&fetch) else {
            return;
        };
        if is_done {
            turn.out.push(Effect::Healed(heal.extent));
        }
        self.heal_ends(turn, fetch, &heal, is_done);
    }

    /// A copy could not help: another one is asked.
    fn ask_next(&mut self, turn: &mut Turn<'_>, fetch: FetchId) {
        let Some(heal) = self.heals.remove(&fetch) else {
            return;
        };
        if let Err(heal) = self.ask_healer(turn, fetch, heal) {
            self.heal_ends(turn, fetch, &heal, false);
        }
    }

    /// The read is tried again, whatever has come of it.
    fn heal_ends(&mut self, turn: &mut Turn<'_>, fetch: FetchId, heal: &Heal, is_done: bool) {
        match heal.of {
            HealOf::Base(place) => {
                let extent = heal.extent;
                self.base_unhealed(turn, Locked { place, extent }, heal.lost);
            }
            HealOf::Read(place) => {
                place.into_iter().for_each(|place| self.line.leave(place));
                self.read_again(turn, fetch, heal.lost);
                self.start_work(turn);
            }
            HealOf::Copy(piece) => self.copy_healed(turn, piece, is_done),
        }
    }

    fn read_again(&mut self, turn: &mut Turn<'_>, fetch: FetchId, lost: Positions) {
        let mut reads = self.reads.iter_mut();
        if let Some(read) =
            reads.find(|read| matches!(read.stage, Stage::Heals(one) if one == fetch))
        {
            (read.stage, read.lost) = (Stage::Blocked, lost);
            self.run_reads(turn);
        }
    }

    /// Nothing more comes of what that copy was asked for, and another is.
    pub(super) fn heals_forget(&mut self, turn: &mut Turn<'_>, position: Position) {
        self.ask_others(turn, |heal| heal.waits_for(position));
    }

    /// What a learner is to be given is not waited for any longer where that takes long: what others write there waits.
    pub(super) fn look_at_heals(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        self.ask_others(turn, |heal| {
            heal.is_copy() && !heal.is_written && heal.is_late(now)
        });
    }

    /// The same, of the base and of what hosts read, and of a copy that answers nothing.
    pub(super) fn fetches_late(&mut self, turn: &mut Turn<'_>, position: Position) {
        let now = turn.now;
        self.ask_others(turn, |heal| {
            !heal.is_copy() && heal.waits_for(position) && heal.is_late(now)
        });
    }

    fn ask_others(&mut self, turn: &mut Turn<'_>, of: impl Fn(&Heal) -> bool) {
        let these = self.heals.iter().filter(|(_, heal)| of(heal));
        let these: Vec<FetchId> = these.map(|(fetch, _)| *fetch).collect();
        for fetch in these {
            self.ask_next(turn, fetch);
        }
    }

    /// Pieces of the base that are not wanted from other copies any more.
    pub(super) fn give_up_fetches(&mut self, of: impl Fn(Extent) -> bool) -> Vec<Locked> {
        let mut given_up = Vec::new();
        self.heals.retain(|_, heal| match heal.of {
            HealOf::Base(place) if of(heal.extent) => {
                let extent = heal.extent;
                given_up.push(Locked { place, extent });
                false
            }
            _ => true,
        });
        given_up
    }

    /// Since when a copy has not answered what it was asked for of the base, or of what hosts read.
    pub(super) fn fetch_waits_since(&self, position: Position) -> Option<Moment> {
        let heals = self.heals.values();
        let heals = heals.filter(|heal| heal.waits_for(position) && !heal.is_copy());
        heals.map(|heal| heal.since).min()
    }

    /// Pieces of the base that other copies are asked for.
    pub(super) fn fetched_bases(&self) -> impl Iterator<Item = Extent> {
        let bases = self.heals.values();
        let bases = bases.filter(|heal| heal.is_base());
        bases.map(|heal| heal.extent)
    }
}
