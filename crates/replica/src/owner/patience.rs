//! When a member is not waited for any longer.
//!
//! One that is silent is dead or cut off. One that is heard may have a store that hangs: it owes something, and nothing
//! of that comes. One whose store is slow goes on, and stays, as long as hosts can bear it. What no host waits for is no
//! reason: drives may take seconds to say that a block cannot be read.

use std::time::Duration;

use ashlar_block::Moment;

use super::line::Place;
use super::peer::{Link, Peer, Session};
use super::{Job, Owner, REMOVE_AFTER, Stage, Work};
use crate::canary::Canary;
use crate::event::{At, Effect, Turn, Why};
use crate::ids::{Position, Positions};
use crate::lease::GRANT_EVERY;
use crate::pace::{Heard, SLOW_AFTER, STUCK_AFTER};

/// A member that nothing waits for may be silent for so long: almost until reads lack its grant.
const IDLE_SILENCE: Duration = Duration::from_millis(1200);

/// Whether a copy is silent for longer than hosts can be asked to wait, if the oldest change waits for it so long.
fn is_silent(peer: &Peer, now: Moment, waits: Duration) -> bool {
    let silent = peer.heard.ago(now);
    let is_waited_for = waits > REMOVE_AFTER || peer.link == Link::Learning;
    silent > IDLE_SILENCE || silent > REMOVE_AFTER && is_waited_for
}

/// Whether what was asked then is not waited for any longer.
pub(super) fn is_late(turn: &Turn<'_>, since: Moment) -> bool {
    turn.now - since > STUCK_AFTER
}

impl Owner {
    /// This process was held up: what it has not heard meanwhile may have been said.
    pub(crate) fn held_up(&mut self, turn: &Turn<'_>) {
        if turn.sings(Canary::PauseIsSilence) {
            return;
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.heard.excuse(turn.now, REMOVE_AFTER);
            peer.done.excuse(turn.now, STUCK_AFTER);
        }
    }

    /// Whether nothing is under way or expected but grants: all others are in sync and heard, and hosts want nothing.
    pub(crate) fn is_at_rest(&self, at: At<'_>) -> bool {
        let is_well = |peer: &Peer| {
            let is_heard = peer.heard.ago(at.now) < GRANT_EVERY * 2;
            peer.link == Link::Live && is_heard && !peer.has_failed && !peer.leaves
        };
        self.is_serving()
            && self.is_open
            && self.change.is_none()
            && self.moving.is_none()
            && self.audit.is_none()
            && !self.proves_at_once
            && self.catching.is_none()
            && !self.is_isolated
            && self.reads.is_empty()
            && self.jobs.is_empty()
            && self.ops.is_empty()
            && self.line.is_empty()
            && self.peers.iter().flatten().all(is_well)
            && self.has_grants(at)
    }

    /// What no host waits for may take as long as it does here. From when one waits behind it, it is owed as all else is.
    pub(super) fn note_who_waits(&self, turn: &mut Turn<'_>) {
        let is_hosts =
            |work: &Work| matches!(work, Work::Write { .. } | Work::Heal(_) | Work::Base);
        for (&token, job) in &self.jobs {
            let place = self.place_of(job);
            if place.is_some_and(|place| self.line.is_waited_for(place, is_hosts)) {
                turn.owe(token);
            }
        }
    }

    /// What holds up others while the local store reads for a learner, or for a proof.
    fn place_of(&self, job: &Job) -> Option<Place> {
        let learner = |session: Session| {
            let peer = self.peers[session.to.index()].as_ref();
            let peer = peer.filter(|peer| peer.session == session.id)?;
            peer.learner.as_ref()
        };
        match *job {
            Job::Copy { session, copy } => learner(session)?.copies.get(&copy)?.place,
            Job::Digest { session, copy } => {
                let proving = learner(session)?.proving.get(&copy)?;
                Some(proving.place)
            }
            Job::Audit(copy) => self.audit.as_ref()?.place_of(copy),
            Job::Apply(_) | Job::Base(..) | Job::Restore(_) | Job::Heal(_) => None,
        }
    }

    /// Ends sessions with who is silent, and with learners that hang: what they hold up goes on without them.
    pub(super) fn look_at_peers(&mut self, turn: &mut Turn<'_>) {
        let (mut over, mut late) = (Positions::NONE, Positions::NONE);
        for position in Positions::first(self.peers.len()).iter() {
            let owes = self.owes(position);
            let asked = self.asked_since(position);
            let waits = self.waits_for(turn.now, position);
            let Some(peer) = self.peers[position.index()].as_mut() else {
                continue;
            };
            if !owes && asked.is_none() {
                peer.done = Heard::new(turn.now);
            }
            let is_silent = is_silent(peer, turn.now, waits);
            let does_nothing = peer.done.ago(turn.now) > STUCK_AFTER;
            let is_over = is_silent || does_nothing && peer.link == Link::Learning;
            if peer.is_open() && is_over {
                over = over.with(position);
            } else if does_nothing && asked.is_some_and(|since| is_late(turn, since)) {
                late = late.with(position);
            }
        }
        over.iter().for_each(|position| self.close(turn, position));
        for position in late.iter() {
            self.audit_late(turn, position);
            self.fetches_late(turn, position);
        }
    }

    /// Since when a copy has not answered what it is asked for, and does not owe.
    fn asked_since(&self, position: Position) -> Option<Moment> {
        let audit = self.audit_waits_since(position).into_iter();
        audit.chain(self.fetch_waits_since(position)).min()
    }

    /// How long the oldest change waits for a copy, which owes it.
    fn waits_for(&self, now: Moment, position: Position) -> Duration {
        let since = self.ops.owed_since(position);
        since.map_or(Duration::ZERO, |since| now - since)
    }

    /// Whether a copy owes something that its store must do first. What it is asked to read for a proof, or for a block
    /// that is lost here, is none: its drives may take long to say that they have lost it. Then it is not asked for that.
    fn owes(&self, position: Position) -> bool {
        let peer = self.peers[position.index()].as_ref();
        let Some(peer) = peer.filter(|peer| peer.is_open()) else {
            return false;
        };
        let learner = peer.learner.as_ref();
        learner.is_some_and(super::learner::Learner::owes)
            || self.ops.owed_since(position).is_some()
    }

    /// Members in sync that are not to be waited for any longer.
    pub(super) fn lost(&self, turn: &mut Turn<'_>) -> Positions {
        let peers = self.peers.iter().flatten();
        let peers = peers.filter(|peer| self.stored.key.in_sync.has(peer.position));
        let mut lost = Positions::NONE;
        for peer in peers {
            if let Some(why) = self.why_lost(turn, peer) {
                let position = peer.position;
                lost = lost.with(position);
                turn.out.push(Effect::LeavesOut { position, why });
            }
        }
        lost
    }

    /// Whether this owner waits for what others know, as after a loss of power: one that has died comes back, and may
    /// know better.
    fn awaits_others(&self) -> bool {
        !self.is_serving() && self.patience > REMOVE_AFTER
    }

    fn why_lost(&self, turn: &Turn<'_>, peer: &Peer) -> Option<Why> {
        if peer.has_failed {
            return Some(Why::Failed);
        }
        if peer.has_died && !self.awaits_others() {
            return Some(Why::Died);
        }
        // Before that, what it has is asked for.
        if peer.leaves && self.is_serving() {
            return Some(Why::Leaves);
        }
        let waits = self.waits_for(turn.now, peer.position);
        let is_silent = match self.stage {
            Stage::Serving => is_silent(peer, turn.now, waits),
            _ => peer.heard.ago(turn.now) > self.patience,
        };
        if is_silent {
            return Some(Why::Silent);
        }
        let limit = match turn.sings(Canary::SlowIsStuck) {
            true => STUCK_AFTER,
            false => SLOW_AFTER,
        };
        if let Link::Joining(since) = peer.link
            && turn.now - since > limit
        {
            return Some(Why::Slow);
        }
        if peer.link != Link::Live {
            return None;
        }
        if waits > limit {
            return Some(Why::Slow);
        }
        // It may have done nothing for longer, being asked for what is not owed.
        let hangs = waits.min(peer.done.ago(turn.now)) > STUCK_AFTER;
        hangs.then_some(Why::Hangs)
    }
}
