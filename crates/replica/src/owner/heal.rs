//! What cannot be read here is taken from another copy in sync.
//!
//! Copies in sync are equal where nothing is under way, so under the range's lock theirs is what was here; it is taken if
//! the checksums that this copy keeps say the same. In the base any joined copy's content is right, for all are given
//! what the owner takes.

use ashlar_block::{ErrorKind, IoError};

use super::line::Place;
use super::peer::{Link, Peer};
use super::reads::Stage;
use super::{Job, Owner, Work};
use crate::canary::Canary;
use crate::event::{At, Effect, Turn};
use crate::extent::Extent;
use crate::ids::{FetchId, Position};
use crate::message::{Content, Message};

/// What it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealOf {
    /// A read, which is tried again; with a place in the line, unless a canary goes without.
    Read(Option<Place>),
    /// A piece of the base.
    Base(Place),
}

/// What another copy is asked for.
#[derive(Debug)]
pub(super) struct Heal {
    extent: Extent,
    of: HealOf,
    from: Position,
    /// It has come, and is being written here.
    is_written: bool,
}

impl Owner {
    /// A copy in sync that can be asked.
    fn healer(&self, at: At<'_>) -> Option<Position> {
        let in_sync = self.stored.key.in_sync.minus(self.removing());
        let can = |peer: &&Peer| {
            let speaks = peer.has_fetch && peer.link == Link::Live;
            speaks && in_sync.has(peer.position) && !peer.has_failed
        };
        let me = at.config.position;
        let mut peers = self.peers.iter().flatten().filter(can);
        peers
            .find(|peer| peer.position != me)
            .map(|peer| peer.position)
    }

    /// Asks another copy for what cannot be read here, if there is one and its loss is all that is wrong.
    pub(super) fn fetch(
        &mut self,
        turn: &mut Turn<'_>,
        (error, extent): (&IoError, Extent),
        of: HealOf,
    ) -> Option<FetchId> {
        if error.kind() != ErrorKind::Corrupt {
            return None;
        }
        self.fetches += 1;
        let fetch = FetchId(self.fetches);
        self.ask_healer(turn, fetch, (extent, of)).then_some(fetch)
    }

    fn ask_healer(
        &mut self,
        turn: &mut Turn<'_>,
        fetch: FetchId,
        (extent, of): (Extent, HealOf),
    ) -> bool {
        let epoch = self.epoch;
        let from = self.healer(turn.at());
        let Some(peer) = from.and_then(|from| self.peers[from.index()].as_mut()) else {
            return false;
        };
        peer.send(turn, epoch, Message::Fetch { fetch, extent });
        let heal = Heal {
            extent,
            of,
            from: peer.position,
            is_written: false,
        };
        self.heals.insert(fetch, heal);
        true
    }

    /// A read has found nothing good here. Whether it is tried again, when another copy has been asked.
    pub(super) fn heals_read(&mut self, turn: &mut Turn<'_>, at: usize, error: &IoError) -> bool {
        let can = error.kind() == ErrorKind::Corrupt && self.healer(turn.at()).is_some();
        if !can || self.reads[at].was_healed {
            return false;
        }
        self.fetches += 1;
        let fetch = FetchId(self.fetches);
        let read = &mut self.reads[at];
        (read.was_healed, read.stage) = (true, Stage::Heals(fetch));
        let extent = read.extent;
        if turn.sings(Canary::HealUnlocked) {
            if !self.ask_healer(turn, fetch, (extent, HealOf::Read(None))) {
                self.read_again(turn, fetch);
            }
            return true;
        }
        self.line.join(extent, Work::Heal(fetch));
        self.start_work(turn);
        true
    }

    /// The range is locked: what is at the others there is what was here.
    pub(super) fn heal_starts(
        &mut self,
        turn: &mut Turn<'_>,
        fetch: FetchId,
        (place, extent): (Place, Extent),
    ) {
        if !self.ask_healer(turn, fetch, (extent, HealOf::Read(Some(place)))) {
            self.line.leave(place);
            self.read_again(turn, fetch);
        }
    }

    /// Another copy has said what it has.
    pub(super) fn fetched(
        &mut self,
        turn: &mut Turn<'_>,
        (from, fetch): (Position, FetchId),
        content: Option<Content>,
    ) {
        let Some(heal) = self.heals.get_mut(&fetch) else {
            return;
        };
        if heal.from != from || heal.is_written {
            return;
        }
        let (extent, of) = (heal.extent, heal.of);
        let unlocked = turn.sings(Canary::HealUnlocked);
        let fits = |content: &Content| match of {
            HealOf::Base(_) => true,
            HealOf::Read(_) => unlocked || turn.local.matches(extent, content),
        };
        match (content.filter(fits), of) {
            (None, _) => self.heal_ends(turn, fetch),
            (Some(content), HealOf::Base(place)) => {
                self.heals.remove(&fetch);
                turn.out.push(Effect::Healed(extent));
                self.base_known(turn, (place, extent), (content, false));
            }
            (Some(content), HealOf::Read(_)) => {
                heal.is_written = true;
                let token = turn.token();
                self.jobs.insert(token, Job::Heal(fetch));
                turn.local.apply(token, extent, content, None);
            }
        }
    }

    /// What another copy gave is durable here, or could not be written.
    pub(super) fn heal_written(&mut self, turn: &mut Turn<'_>, fetch: FetchId, is_done: bool) {
        if let Some(heal) = self.heals.get(&fetch).filter(|_| is_done) {
            turn.out.push(Effect::Healed(heal.extent));
        }
        self.heal_ends(turn, fetch);
    }

    /// The read is tried again, whatever has come of it; without its base an owner cannot serve.
    fn heal_ends(&mut self, turn: &mut Turn<'_>, fetch: FetchId) {
        let Some(heal) = self.heals.remove(&fetch) else {
            return;
        };
        match heal.of {
            HealOf::Base(_) => self.local_failed(turn),
            HealOf::Read(place) => {
                place.into_iter().for_each(|place| self.line.leave(place));
                self.read_again(turn, fetch);
                self.start_work(turn);
            }
        }
    }

    fn read_again(&mut self, turn: &mut Turn<'_>, fetch: FetchId) {
        let mut reads = self.reads.iter_mut();
        if let Some(read) =
            reads.find(|read| matches!(read.stage, Stage::Heals(one) if one == fetch))
        {
            read.stage = Stage::Blocked;
            self.run_reads(turn);
        }
    }

    /// A session is over: nothing more comes of what that copy was asked for.
    pub(super) fn heals_forget(&mut self, turn: &mut Turn<'_>, position: Position) {
        let is_its = |heal: &Heal| heal.from == position && !heal.is_written;
        let its = self.heals.iter().filter(|(_, heal)| is_its(heal));
        let its: Vec<FetchId> = its.map(|(fetch, _)| *fetch).collect();
        for fetch in its {
            self.heal_ends(turn, fetch);
        }
    }

    /// Whether a copy has not answered what it was asked for.
    pub(super) fn heal_waits_for(&self, position: Position) -> bool {
        let mut heals = self.heals.values();
        heals.any(|heal| heal.from == position && !heal.is_written)
    }

    /// Pieces of the base that other copies are asked for.
    pub(super) fn fetched_bases(&self) -> impl Iterator<Item = Extent> {
        let bases = self.heals.values();
        let bases = bases.filter(|heal| matches!(heal.of, HealOf::Base(_)));
        bases.map(|heal| heal.extent)
    }
}
