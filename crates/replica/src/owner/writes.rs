//! From the line to the answer: submitted here, sent to all, committed; and what happens if it fails here.

use bytes::Bytes;

use super::line::{Locked, Ready};
use super::ops::{Op, Recorded};
use super::peer::Link;
use super::{Job, Owner, Work};
use crate::canary::Canary;
use crate::event::{Outcome, Turn};
use crate::extent::Extent;
use crate::ids::{Known, Low, Positions, ReplicaSequence};
use crate::local::Tag;
use crate::message::{Content, Message, Record, RecordKind};

impl Owner {
    /// Begins what has come to its turn.
    pub(super) fn start_work(&mut self, turn: &mut Turn<'_>) {
        let ignores_locks = turn.sings(Canary::NoRangeLock);
        let overtakes = turn.sings(Canary::RightsOvertake);
        while !self.ends {
            let wanted = self.wanted_bases();
            let pauses = self.moving.is_some();
            // Without anything uncertain no base waits, and what is under way need not be counted.
            let bases_left = match self.uncertain.is_empty() {
                true => 0,
                false => {
                    let most = turn.config.limits.base_pieces;
                    most.saturating_sub(self.base_reads())
                }
            };
            let may = |work: &Work, extent: Extent| match work {
                Work::Write { .. } => !pauses,
                Work::Base => bases_left > 0 && wanted.as_ref().is_none_or(|w| w.overlaps(extent)),
                Work::Copy(_) | Work::Proof { .. } | Work::Heal(_) => true,
                Work::Audit { .. } => !pauses,
            };
            let skips = |work: &Work| ignores_locks && matches!(work, Work::Write { .. });
            // Reads behind a change of rights see a write that was let in before only once it has begun.
            let follows = |work: &Work, older: &Work| {
                let is_write = matches!(older, Work::Write { .. });
                is_write && work.is_of_rights() && !overtakes
            };
            let Some(ready) = self.line.next(may, skips, follows) else {
                break;
            };
            self.start(turn, ready);
        }
        self.advance(turn);
    }

    fn start(&mut self, turn: &mut Turn<'_>, ready: Ready<Work>) {
        let Ready { range, what } = ready;
        let Locked { place, extent } = range;
        match what {
            Work::Write {
                command, content, ..
            } => {
                let op = Op {
                    kind: RecordKind::Host,
                    recorded: Recorded::Restoring,
                    command: Some(command),
                    extent,
                    content,
                    place,
                    is_local: false,
                    acks: Positions::NONE,
                    since: turn.now,
                };
                self.begin(turn, op);
            }
            Work::Base => {
                self.uncertain.remove(extent);
                let token = match self.lost.tries(extent) {
                    true => turn.patient_token(),
                    false => turn.token(),
                };
                self.jobs.insert(token, Job::Base(range));
                turn.local.read(token, extent);
            }
            Work::Copy(session) => self.copy_starts(turn, session, extent, Some(place)),
            Work::Proof { session, leaves } => self.proof_starts(turn, session, leaves, range),
            Work::Heal(fetch) => self.heal_starts(turn, fetch, range),
            Work::Audit { leaves } => self.audit_starts(turn, leaves, range),
        }
    }

    /// Gives a change its sequence, submits it here unless it is here, and sends it.
    pub(super) fn begin(&mut self, turn: &mut Turn<'_>, mut op: Op) {
        let sequence = self.ops.number();
        op.recorded = Recorded::As(sequence);
        let (extent, is_local) = (op.extent, op.is_local);
        let content = op.content.clone();
        self.ops.insert(sequence, op);
        if !is_local {
            let token = turn.token();
            self.jobs.insert(token, Job::Apply(sequence));
            let tag = Tag {
                epoch: self.epoch,
                sequence,
                low: self.low_to_say(turn, sequence),
            };
            turn.local.apply(token, extent, content, Some(tag));
        }
        if turn.sings(Canary::RegisterNotSent) && Some(extent) == self.shape(turn.at()).register() {
            if let Some(op) = self.ops.get_mut(sequence) {
                op.acks = Positions::first(self.peers.len());
            }
            return;
        }
        for position in Positions::first(self.peers.len()).iter() {
            self.send_op(turn, position, sequence);
        }
    }

    /// The lowest uncommitted, as a record says it.
    fn low_to_say(&self, turn: &Turn<'_>, record: ReplicaSequence) -> Low {
        match self.low() {
            low if low != Low::BASE_OPEN && turn.sings(Canary::LowTooHigh) => Low(record.0 + 1),
            low => low,
        }
    }

    /// Sends a change to one of the others, if there is a session and it has not acknowledged.
    pub(super) fn send_op(
        &mut self,
        turn: &mut Turn<'_>,
        to: crate::ids::Position,
        sequence: ReplicaSequence,
    ) {
        let Some(op) = self.ops.get(sequence) else {
            return;
        };
        let Recorded::As(record) = op.recorded else {
            return;
        };
        if op.acks.has(to) {
            return;
        }
        let message = Message::Record(Record {
            sequence: record,
            low: self.low_to_say(turn, record),
            kind: op.kind,
            extent: op.extent,
            content: op.content.clone(),
        });
        let (extent, content, is_local) = (op.extent, op.content.clone(), op.is_local);
        let epoch = self.epoch;
        // What hosts wait for is bounded by them, and sent again in the next session: it alone ends none.
        let most_granules = turn.config.limits.learner_granules + self.ops.granules();
        let Some(peer) = self.peers[to.index()]
            .as_mut()
            .filter(|peer| peer.is_open())
        else {
            return;
        };
        peer.send(turn, epoch, message);
        if let Some(learner) = peer.learner.as_mut() {
            learner.sent(record, extent, &content, is_local);
            let is_full = learner.behind_granules() > most_granules;
            if is_full || learner.behind() > turn.config.limits.learner_records {
                self.close(turn, to);
            }
        }
    }

    /// A change is durable here.
    pub(super) fn local_done(&mut self, turn: &mut Turn<'_>, sequence: ReplicaSequence) {
        let needed = self.needed(turn.at());
        let mut is_committed = false;
        if let Some(op) = self.ops.get_mut(sequence) {
            op.is_local = true;
            is_committed = op.is_committed(needed);
        }
        for peer in self.peers.iter_mut().flatten() {
            if let Some(learner) = peer.learner.as_mut() {
                let clean = learner.local(sequence);
                clean
                    .iter()
                    .for_each(|extent| turn.local.clear(peer.position, extent));
            }
        }
        // No other can have been committed by this.
        if is_committed {
            self.advance(turn);
        }
    }

    /// A change failed here: under its lock, all get this copy's content again.
    pub(super) fn local_refused(&mut self, turn: &mut Turn<'_>, sequence: ReplicaSequence) {
        if turn.sings(Canary::NoRestore) {
            if let Some(op) = self.ops.remove(sequence) {
                self.line.leave(op.place);
                if let Some(command) = op.command {
                    turn.answer(command, Outcome::Failed);
                }
            }
            return self.start_work(turn);
        }
        let Some(op) = self.ops.get_mut(sequence) else {
            return;
        };
        op.recorded = Recorded::Restoring;
        op.acks = Positions::NONE;
        let extent = op.extent;
        // Learners have the record, and nothing of it was applied here: it counts as a change.
        for peer in self.peers.iter_mut().flatten() {
            if let Some(learner) = peer.learner.as_mut() {
                learner.failed(sequence);
            }
        }
        let absent = self.stored.key.absent().union(self.removing());
        for position in absent.without(turn.config.position).iter() {
            turn.local.mark(position, extent);
        }
        let token = turn.token();
        self.jobs.insert(token, Job::Restore(sequence));
        turn.local.read(token, extent);
    }

    /// What is here after a change failed.
    pub(super) fn restore_read(
        &mut self,
        turn: &mut Turn<'_>,
        sequence: ReplicaSequence,
        data: Bytes,
    ) {
        let record = self.ops.number();
        let Some(op) = self.ops.get_mut(sequence) else {
            return;
        };
        op.kind = RecordKind::Restore;
        op.recorded = Recorded::As(record);
        op.content = Content::of(data);
        op.is_local = true;
        op.since = turn.now;
        for position in Positions::first(self.peers.len()).iter() {
            self.send_op(turn, position, sequence);
        }
        self.advance(turn);
    }

    /// A member or learner has a record.
    pub(super) fn acknowledged(
        &mut self,
        turn: &mut Turn<'_>,
        from: crate::ids::Position,
        record: ReplicaSequence,
    ) {
        let needed = self.needed(turn.at());
        let mut is_committed = false;
        if let Some(op) = self.ops.recorded_as(record) {
            op.acks = op.acks.with(from);
            is_committed = op.is_committed(needed);
        }
        if let Some(learner) = self.peers[from.index()]
            .as_mut()
            .and_then(|p| p.learner.as_mut())
        {
            let clean = learner.acknowledged(record);
            clean
                .iter()
                .for_each(|extent| turn.local.clear(from, extent));
        }
        if is_committed {
            self.advance(turn);
        }
    }

    /// Commits what is durable everywhere, and begins what waited for it.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) {
        let mut has_moved = false;
        while let Some(sequence) = self.ops.committed(self.needed(turn.at())) {
            has_moved = true;
            let Some(op) = self.ops.remove(sequence) else {
                break;
            };
            self.line.leave(op.place);
            self.no_more_lost(turn, op.extent);
            let known = Known {
                epoch: self.epoch,
                low: self.low(),
            };
            if known.low != Low::BASE_OPEN {
                turn.local.learn(known);
            }
            if let Some(command) = op.command {
                let outcome = match op.kind {
                    RecordKind::Restore => Outcome::Failed,
                    RecordKind::Host | RecordKind::Base => Outcome::Written,
                };
                turn.answer(command, outcome);
            }
        }
        if has_moved {
            self.committed_at = turn.now;
            self.run_reads(turn);
            self.start_work(turn);
            if self
                .peers
                .iter()
                .flatten()
                .any(|peer| peer.learner.is_some())
            {
                self.resync(turn);
            }
            self.hand_off(turn);
        }
    }

    /// Says what is committed to members that have not heard it for a while.
    pub(super) fn commit_idle(&mut self, turn: &mut Turn<'_>) {
        let (epoch, low) = (self.epoch, self.low());
        if low == Low::BASE_OPEN || turn.now - self.committed_at < super::COMMIT_EVERY {
            return;
        }
        turn.local.learn(Known { epoch, low });
        for peer in self.peers.iter_mut().flatten() {
            if peer.link == Link::Live && peer.told_low < low {
                peer.told_low = low;
                peer.send(turn, epoch, Message::Commit { low });
            }
        }
    }
}
