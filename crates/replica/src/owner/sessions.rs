//! Sessions with the other copies: begun, told what is in flight, ended; and what comes by them.

use super::audit::{By, is_audits};
use super::heal::Fetched;
use super::peer::{Attached, Link, Session, Taken};
use super::resync::Digest;
use super::{Owner, Work};
use crate::canary::Canary;
use crate::event::{Alarm, Turn};
use crate::extent::ExtentSet;
use crate::heads::{Heads, Mark};
use crate::ids::{Epoch, Head, Position, Positions, SessionId};
use crate::lease::{GRANT_EVERY, Given};
use crate::message::{Attach, Envelope, Join, Message, Refusal};

use super::learner::Learner;

impl Owner {
    /// Time has passed.
    pub(crate) fn tick(&mut self, turn: &mut Turn<'_>, given: &Given) {
        self.prepare(turn);
        if !matches!(self.stage, super::Stage::Joining | super::Stage::Serving) {
            return;
        }
        self.note_who_waits(turn);
        self.look_at_direct(turn);
        if turn.is_store_stuck() && self.is_serving() && self.leave_hung_store(turn) {
            return;
        }
        self.fence.tick(turn.now);
        self.look_at_peers(turn);
        self.look_at_heals(turn);
        self.try_lost(turn);
        self.keep_lost(turn);
        self.begin_sessions(turn);
        if self
            .held
            .last_asked()
            .is_none_or(|at| turn.now - at >= GRANT_EVERY)
        {
            self.ask_grants(turn);
        }
        self.look_after_hosts(turn);
        self.consider_change(turn);
        self.go_on_with_change(turn);
        self.look(turn);
        self.activate(turn, given);
        self.commit_idle(turn);
        self.resync(turn);
        self.audit_tick(turn);
        self.run_reads(turn);
        self.hand_off(turn);
    }

    /// Asks all for a grant; who answers is alive, too.
    pub(super) fn ask_grants(&mut self, turn: &mut Turn<'_>) {
        let (nonce, epoch) = (self.held.ask(turn.now), self.epoch);
        let told = turn.heads.told(turn.config.uuid);
        for peer in self
            .peers
            .iter_mut()
            .flatten()
            .filter(|peer| peer.can_be_heard())
        {
            // A member believes what it is told: not before it has said itself what it knows.
            let heads = match peer.link {
                Link::Live => told,
                Link::Closed(_) | Link::Joining(_) | Link::Learning => Heads::default(),
            };
            peer.send(turn, epoch, Message::GrantAsk { nonce, heads });
        }
    }

    /// Sends JOIN where there is no session and may be one.
    pub(super) fn begin_sessions(&mut self, turn: &mut Turn<'_>) {
        let absent = self.told_absent(turn);
        for position in Positions::first(self.peers.len()).iter() {
            // Whether it is in sync is not known while an add is unresolved.
            let unsettled = self.adding() == Some(position) && !turn.sings(Canary::UnsettledAdd);
            // Learners have time until hosts are served.
            let early = !self.is_serving() && absent.has(position);
            let Some(peer) = self.peers[position.index()].as_mut() else {
                continue;
            };
            if unsettled || early || !peer.wants_session(turn.now) {
                continue;
            }
            self.sessions += 1;
            peer.learner = None;
            peer.begin(turn.now, SessionId(self.sessions), absent);
            let join = Join {
                owner: turn.config.node,
                incarnation: turn.config.incarnation,
                absent,
                members: self.stored.key.members.positions(),
                claim: Mark {
                    replica: turn.config.uuid,
                    head: turn.heads.claim(),
                },
            };
            peer.send(turn, self.epoch, Message::Join(join));
        }
    }

    /// Who is absent, as it is durable here.
    fn told_absent(&self, turn: &Turn<'_>) -> Positions {
        turn.entry.durable().absent
    }

    /// A session is over: locks of its copies go, bits stay.
    pub(super) fn close(&mut self, turn: &mut Turn<'_>, position: Position) {
        let Some(peer) = self.peers[position.index()].as_mut() else {
            return;
        };
        peer.close(turn.now);
        self.heals_forget(turn, position);
        self.audit_forgets(turn, position);
        self.drop_learner(turn, position);
    }

    fn drop_learner(&mut self, turn: &mut Turn<'_>, position: Position) {
        let Some(peer) = self.peers[position.index()].as_mut() else {
            return;
        };
        let learner = peer.learner.take();
        if let (Some(learner), Some(attached)) = (&learner, peer.attached.as_mut()) {
            attached.left = learner.left();
        }
        self.line.withdraw(|_, work| match work {
            Work::Copy(session) | Work::Proof { session, .. } => session.to == position,
            Work::Write { .. } | Work::Base | Work::Audit { .. } | Work::Heal(_) => false,
        });
        if let Some(learner) = learner {
            let copies = learner.copies.values().filter_map(|copying| copying.place);
            copies.for_each(|place| self.line.leave(place));
            let proving = learner.proving.values();
            proving.for_each(|proving| self.line.leave(proving.place));
        }
        if self.catching == Some(position) {
            self.catching = None;
        }
        self.start_work(turn);
    }

    /// The connection to a peer is gone. The next one may be to another process.
    pub(crate) fn peer_gone(&mut self, turn: &mut Turn<'_>, position: Position) {
        if let Some(peer) = self.peers[position.index()].as_mut() {
            peer.leaves = false;
        }
        self.close(turn, position);
    }

    /// A peer's process has ended: nothing that it has not answered will come.
    pub(crate) fn peer_died(&mut self, turn: &mut Turn<'_>, position: Position) {
        if let Some(peer) = self.peers[position.index()].as_mut() {
            (peer.has_died, peer.leaves) = (true, false);
        }
        self.close(turn, position);
        self.consider_change(turn);
    }

    /// A peer's process ends in order. Until the quorum has left its copy out, and that is durable here, it is needed as
    /// before, and goes on: hosts wait for nothing.
    pub(crate) fn peer_leaves(&mut self, turn: &mut Turn<'_>, position: Position) {
        if let Some(peer) = self.peers[position.index()].as_mut() {
            peer.leaves = true;
        }
        self.consider_change(turn);
    }

    /// The copies whose processes end, or whose pools are exported.
    pub(super) fn ending(&self) -> Positions {
        let leave = self.peers.iter().flatten().filter(|peer| peer.leaves);
        leave.fold(Positions::NONE, |all, peer| all.with(peer.position))
    }

    /// A message of one of the others.
    pub(crate) fn receive(&mut self, turn: &mut Turn<'_>, from: Position, envelope: Envelope) {
        if let Message::Refuse { promised, reason } = envelope.message {
            return self.refused(turn, &envelope, from, promised, reason);
        }
        let Some(peer) = self.peers[from.index()].as_mut() else {
            return;
        };
        if envelope.epoch != self.epoch {
            return;
        }
        match peer.takes(&envelope) {
            Taken::Stray => return,
            Taken::Gap => return self.close(turn, from),
            Taken::Next => peer.hears(turn.now, &envelope.message),
        }
        match envelope.message {
            Message::Joined(attach) if self.is_joining(from) => {
                self.has_joined(turn, from, &attach);
            }
            Message::Attach(attach) if self.is_joining(from) => {
                self.has_attached(turn, from, &attach);
            }
            Message::Ack { sequence } => self.acknowledged(turn, from, sequence),
            Message::CopyAck { copy } => self.copied(turn, from, copy),
            Message::Failed => self.member_failed(turn, from),
            Message::Grant { nonce, head, .. } => {
                self.hears_of(turn, from, head);
                self.held.granted(from, nonce);
                self.run_reads(turn);
                self.consider_change(turn);
            }
            Message::Fetched {
                fetch,
                extent,
                content,
            } => {
                let fetched = Fetched {
                    fetch,
                    extent,
                    content,
                };
                self.fetched(turn, from, fetched);
            }
            Message::Digest { copy, digest } if is_audits(copy) => {
                self.audited(turn, copy, By::Of(from), digest);
            }
            Message::Digest { copy, digest } => {
                let session = Session {
                    to: from,
                    id: envelope.session,
                };
                self.compare(turn, session, copy, Digest::Theirs(digest));
            }
            Message::Forward(forward) => self.forwarded(turn, from, forward),
            Message::LabelAsk { origin } => self.label_asked(turn, from, origin),
            // What an owner says, a member does not.
            _ => self.close(turn, from),
        }
    }

    fn refused(
        &mut self,
        turn: &mut Turn<'_>,
        envelope: &Envelope,
        from: Position,
        promised: Epoch,
        reason: Refusal,
    ) {
        if envelope.epoch != self.epoch {
            return;
        }
        if promised > self.epoch {
            self.ends = true;
            return;
        }
        let peer = self.peers[from.index()].as_ref();
        if peer.is_none_or(|peer| peer.session != envelope.session) {
            return;
        }
        if reason == Refusal::Lags && self.counts(from) {
            (self.lags, self.ends) = (true, true);
            return;
        }
        let Some(peer) = self.peers[from.index()].as_mut() else {
            return;
        };
        peer.has_failed |= reason == Refusal::OldImage;
        self.close(turn, from);
        self.consider_change(turn);
    }

    /// Whether a copy is in sync, and is not being left out: it may own. What one says that may not is no reason to stop: no
    /// other copy could be left that serves.
    fn counts(&self, position: Position) -> bool {
        self.stored.key.in_sync.has(position) && !self.removing().has(position)
    }

    /// Whether a copy answers JOIN, and has not before: a second learner would leave what the first has in the line.
    fn is_joining(&self, from: Position) -> bool {
        let peer = self.peers[from.index()].as_ref();
        peer.is_some_and(|peer| matches!(peer.link, Link::Joining(_)))
    }

    fn has_joined(&mut self, turn: &mut Turn<'_>, from: Position, attach: &Attach) {
        if !self.stored.key.in_sync.has(from) {
            // It was removed meanwhile, and joins again as a learner.
            return self.close(turn, from);
        }
        let known = self.stored.key.members.get(from);
        if known.is_none_or(|member| member.replica != attach.uuid) {
            // A place that was given up, and this owner has not read that yet; or its pool was made anew. It is no copy
            // in sync: it comes back as a learner.
            return self.leaves_out(turn, from);
        }
        let claim = Mark {
            replica: attach.uuid,
            head: attach.head,
        };
        if turn.lags_behind(from, claim) {
            return self.lags_there(turn, from);
        }
        if let Some(peer) = self.peers[from.index()].as_mut() {
            peer.has_fetch = attach.has_fetch;
            peer.claim = attach.head;
        }
        let mut uncertain = attach.own.clone();
        uncertain.clip(self.shape(turn.at()).granules);
        self.bring(turn, from, &uncertain);
        // It believes what it is told from here on: first what it has said itself is heard.
        self.hears_of_others(turn, &attach.heads);
        self.open(turn, from, Link::Live);
        self.look_for_lags(turn);
    }

    /// A copy that answers from a place in sync is not what it should be: it comes back as a learner.
    fn leaves_out(&mut self, turn: &mut Turn<'_>, position: Position) {
        if let Some(peer) = self.peers[position.index()].as_mut() {
            peer.has_failed = true;
        }
        self.joined = self.joined.without(position);
        self.close(turn, position);
        self.consider_change(turn);
    }

    /// How far a copy in sync claims to have come.
    fn hears_of(&mut self, turn: &mut Turn<'_>, from: Position, head: Head) {
        let replica = self.stored.key.members.get(from).map(|one| one.replica);
        let is_in_sync = self.stored.key.in_sync.has(from);
        if let (Some(peer), Some(replica)) = (self.peers[from.index()].as_mut(), replica)
            && peer.link == Link::Live
            && is_in_sync
        {
            peer.claim = peer.claim.max(head);
            turn.heads.hear(from, Mark { replica, head });
        }
    }

    /// How far copies in sync had come, as one of them remembers. It may have missed that one was made equal in this epoch,
    /// and counts from there; or that another copy has a place.
    fn hears_of_others(&self, turn: &mut Turn<'_>, heads: &Heads) {
        for position in self.stored.key.in_sync.minus(self.added).iter() {
            let mark = heads.marks()[position.index()];
            let member = self.stored.key.members.get(position);
            if member.is_some_and(|member| member.replica == mark.replica) {
                turn.heads.hear(position, mark);
            }
        }
    }

    /// Of those that have joined, each is to have what is remembered of it.
    fn look_for_lags(&mut self, turn: &mut Turn<'_>) {
        let mut lag = Positions::NONE;
        for position in self.stored.key.in_sync.minus(self.added).iter() {
            let member = self.stored.key.members.get(position);
            let peer = self.peers[position.index()].as_ref();
            if let (Some(peer), Some(member)) = (peer, member)
                && peer.link == Link::Live
                && turn.lags_behind(position, peer.claims(member.replica))
            {
                lag = lag.with(position);
            }
        }
        lag.iter()
            .for_each(|position| self.lags_there(turn, position));
    }

    /// A copy in sync lacks what it has acknowledged. People hear it once, however long its removal takes.
    fn lags_there(&mut self, turn: &mut Turn<'_>, position: Position) {
        let peer = self.peers[position.index()].as_ref();
        if peer.is_some_and(|peer| !peer.has_failed) {
            turn.alarm(Alarm::Lags(position));
        }
        self.leaves_out(turn, position);
    }

    fn has_attached(&mut self, turn: &mut Turn<'_>, from: Position, attach: &Attach) {
        let absent = self.told_absent(turn);
        if !absent.has(from) || self.stored.key.in_sync.has(from) {
            return self.close(turn, from);
        }
        let known = self.stored.key.members.get(from);
        let is_it = known.is_some_and(|member| member.replica == attach.uuid);
        let before = self.peers[from.index()].as_mut();
        let before = before.and_then(|peer| peer.attached.take());
        let mut missing = turn.local.plane(from);
        if turn.sings(Canary::BitsCleared) {
            missing
                .iter()
                .for_each(|extent| turn.local.clear(from, extent));
            missing = ExtentSet::new();
        }
        if !turn.sings(Canary::RejoinBare) {
            missing.add(&attach.own);
            missing.clip(self.shape(turn.at()).granules);
        }
        if !is_it && !turn.sings(Canary::NewcomerTrusted) {
            // Another copy than the store knows: nothing it holds counts but what it has from this owner.
            match before.filter(|before| before.uuid == attach.uuid) {
                Some(before) => missing.add(&before.left),
                None => missing.add(&self.shape(turn.at()).everything()),
            }
        }
        let Some(peer) = self.peers[from.index()].as_mut() else {
            return;
        };
        peer.has_fetch = attach.has_fetch;
        peer.attached = Some(Attached {
            uuid: attach.uuid,
            left: missing.clone(),
        });
        if attach.free < turn.config.limits.resync_free {
            // It would fill up and leave again.
            return peer.close_for(turn.now, super::resync::FULL_PAUSE);
        }
        peer.learner = Some(Learner::new(missing));
        self.open(turn, from, Link::Learning);
    }

    /// A session is open: who is absent, if that has changed meanwhile, and what is in flight.
    fn open(&mut self, turn: &mut Turn<'_>, position: Position, link: Link) {
        let (epoch, absent) = (self.epoch, self.told_absent(turn));
        let Some(peer) = self.peers[position.index()].as_mut() else {
            return;
        };
        peer.link = link;
        // One in sync that has failed, or differs, still leaves.
        peer.has_failed &= link == Link::Live;
        peer.has_died = false;
        if peer.told != absent {
            peer.told = absent;
            peer.send(turn, epoch, Message::Entry { absent });
        }
        let open: Vec<_> = self.ops.iter().map(|(sequence, _)| sequence).collect();
        for sequence in open {
            self.send_op(turn, position, sequence);
        }
        self.ask_grants(turn);
        self.resync(turn);
    }

    fn member_failed(&mut self, turn: &mut Turn<'_>, from: Position) {
        let is_member = self.stored.key.in_sync.has(from);
        if let Some(peer) = self.peers[from.index()].as_mut() {
            peer.has_failed = is_member;
        }
        self.close(turn, from);
        if !is_member && let Some(peer) = self.peers[from.index()].as_mut() {
            peer.close_for(turn.now, super::resync::FULL_PAUSE);
        }
        self.consider_change(turn);
    }
}
