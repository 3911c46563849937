//! A copy that follows an owner: as a member in sync, or as a learner.
//!
//! Records and copies are applied as they come, overlapping ones in the session's order, and acknowledged when they
//! are durable. A session begins when everything of older ones is out of the local store and `promised` is durable;
//! ENTRY is durable before anything behind it is handled.

use std::collections::VecDeque;

use ashlar_block::{ErrorKind, IoError, Label};
use bytes::Bytes;

use crate::canary::Canary;
use crate::event::{Alarm, Effect, Outcome, Turn};
use crate::extent::{Extent, ExtentSet};
use crate::fence::Origin;
use crate::heads::Heads;
use crate::ids::{
    CopyId, Epoch, FetchId, ForwardId, Known, Low, Nonce, Position, Positions, SessionId, Token,
};
use crate::lease::Given;
use crate::leaves::Leaves;
use crate::local::{Applied, Entry, EntryChange, OwnPlane, Tag};
use crate::message::{Attach, Content, Envelope, Join, Message, Refusal};

/// Ranges of an uncertain set that one message says, at most: beyond, it is said coarser.
pub const MAX_RANGES: usize = 4096;
/// A digest of leaves of which something is lost here: that of no content, but for one chance in 2¹²⁸.
const LOST: u128 = u128::MAX;

/// What follows from a message for what stands above the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consequence {
    Nothing,
    /// The owner has stopped, and asks this copy to take over.
    TakeOver,
}

/// A copy that follows.
#[derive(Debug, Default)]
pub(crate) struct Member {
    session: Option<Session>,
    /// Only a canary keeps a session that has ended.
    ended: Option<Session>,
    /// What the owner has said of forwarded commands.
    heard: Vec<Heard>,
}

/// What an owner says of commands that were forwarded to it.
#[derive(Debug)]
pub(crate) enum Heard {
    Done(ForwardId, Outcome),
    Labelled(Origin, Label),
}

#[derive(Debug)]
struct Session {
    owner: Position,
    join: Join,
    epoch: Epoch,
    id: SessionId,
    /// The next number expected.
    expected: u32,
    /// The next number to send.
    sends: u32,
    stage: Stage,
    inbox: VecDeque<Message>,
    doing: Vec<Doing>,
    /// What was uncertain here when the session began.
    told: ExtentSet,
    /// The owner has given it everything, and counts it as in sync.
    was_added: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waits for the local store to finish what older sessions gave it.
    Draining,
    /// Waits for `promised` and who is absent to be durable.
    Joining(Token),
    /// Handles messages.
    Open,
    /// Waits for an ENTRY to be durable.
    Entering(Token),
}

/// Something of the session's that the local store does, or will when what it overlaps is done.
#[derive(Debug)]
struct Doing {
    token: Option<Token>,
    extent: Extent,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Record(Tag, Content),
    Copy(CopyId, Content),
    Digest(CopyId),
    Fetch(FetchId),
}

impl Member {
    /// The newest epoch that a session was begun for, even if `promised` is not durable yet.
    pub(crate) fn epoch(&self) -> Epoch {
        self.session.as_ref().map_or(Epoch(0), |s| s.epoch)
    }

    /// Whether an owner's session is open here.
    pub(crate) fn is_open(&self) -> bool {
        self.session.as_ref().is_some_and(Session::has_joined)
    }

    /// Whether nothing of an open session is under way here.
    pub(crate) fn is_at_rest(&self) -> bool {
        let rests =
            |s: &Session| s.stage == Stage::Open && s.inbox.is_empty() && s.doing.is_empty();
        self.session.as_ref().is_some_and(rests)
    }

    /// Whether this copy was a learner in the session, and counts as in sync now.
    pub(crate) fn was_added(&self) -> bool {
        self.session.as_ref().is_some_and(|s| s.was_added)
    }

    /// The owner that this copy follows, and its process.
    pub(crate) fn owner(&self) -> Option<Join> {
        self.session.as_ref().map(|session| session.join)
    }

    /// The session, if it is open.
    pub(crate) fn open_session(&self) -> Option<(Epoch, SessionId)> {
        let session = self.session.as_ref().filter(|_| self.is_open())?;
        Some((session.epoch, session.id))
    }

    /// Says something to the owner, if there is a session.
    pub(crate) fn say(&mut self, turn: &mut Turn<'_>, message: Message) {
        if let Some(session) = self.session.as_mut() {
            session.send(turn, message);
        }
    }

    /// Whether a JOIN is not newer than what this copy has followed, or follows.
    pub(crate) fn is_late(&self, turn: &Turn<'_>, join: &Envelope) -> bool {
        let durable = turn.entry.durable();
        let known = self.session.as_ref().map(|one| (one.epoch, one.id));
        let newest = known.max(Some((durable.promised, durable.session)));
        Some((join.epoch, join.session)) <= newest
    }

    /// An owner wants a session. What stands above has seen to it that the epoch is not too old.
    pub(crate) fn join(
        &mut self,
        turn: &mut Turn<'_>,
        from: Position,
        envelope: &Envelope,
        join: Join,
    ) {
        if self.is_late(turn, envelope) {
            return;
        }
        let (epoch, id) = (envelope.epoch, envelope.session);
        let old = self.session.replace(Session {
            owner: from,
            join,
            epoch,
            id,
            expected: envelope.number.wrapping_add(1),
            sends: 0,
            stage: Stage::Draining,
            inbox: VecDeque::new(),
            doing: Vec::new(),
            told: ExtentSet::new(),
            was_added: false,
        });
        if turn.sings(Canary::OldEpoch) && old.as_ref().is_some_and(|old| old.epoch < epoch) {
            self.ended = old;
        }
        self.run(turn);
    }

    /// A message of an owner, other than JOIN.
    pub(crate) fn receive(
        &mut self,
        turn: &mut Turn<'_>,
        given: &mut Given,
        from: Position,
        envelope: Envelope,
    ) -> Consequence {
        let promised = turn.entry.durable().promised;
        let Some(session) = self.session.as_mut().filter(|session| {
            (session.epoch, session.id, session.owner) == (envelope.epoch, envelope.session, from)
        }) else {
            self.stray(turn, from, &envelope);
            return Consequence::Nothing;
        };
        if envelope.number != session.expected {
            // Something in between is missing: what comes now has no order.
            self.session = None;
            refuse(turn, from, &envelope, promised, Refusal::Session);
            return Consequence::Nothing;
        }
        session.expected = session.expected.wrapping_add(1);
        match envelope.message {
            // A promise does not depend on what is said before it, and a slow store must not make this copy deaf.
            Message::GrantAsk { nonce, heads } if session.stage != Stage::Open => {
                // Before it has joined, it has nothing else by which its owner could tell a slow store from one that hangs.
                if session.has_joined() || !turn.is_store_stuck() {
                    session.hear(turn, &heads);
                    session.grant(turn, given, nonce);
                }
                Consequence::Nothing
            }
            message => {
                session.inbox.push_back(message);
                self.handle(turn, given)
            }
        }
    }

    /// A message that belongs to no session here.
    fn stray(&mut self, turn: &mut Turn<'_>, from: Position, envelope: &Envelope) {
        let promised = turn.entry.durable().promised.max(self.epoch());
        if envelope.epoch < promised {
            if let Some(ended) = self.ended.as_mut()
                && (ended.epoch, ended.id, ended.owner) == (envelope.epoch, envelope.session, from)
            {
                ended.inbox.push_back(envelope.message.clone());
                ended.take_records(turn);
                return;
            }
            refuse(turn, from, envelope, promised, Refusal::Epoch);
            return;
        }
        let is_older = self.session.as_ref().is_some_and(|session| {
            (envelope.epoch, envelope.session) < (session.epoch, session.id)
        });
        if !is_older {
            refuse(turn, from, envelope, promised, Refusal::Session);
        }
    }

    /// What was said of forwarded commands since the last call.
    pub(crate) fn take_heard(&mut self) -> Vec<Heard> {
        std::mem::take(&mut self.heard)
    }

    /// Goes on after something has become possible: a drained store, a durable entry.
    pub(crate) fn run(&mut self, turn: &mut Turn<'_>) {
        let Some(session) = self.session.as_mut() else {
            return;
        };
        if session.stage == Stage::Draining {
            session.prepare(turn);
        }
    }

    /// Handles what has come, as far as it may be handled now.
    pub(crate) fn handle(&mut self, turn: &mut Turn<'_>, given: &mut Given) -> Consequence {
        let Some(session) = self.session.as_mut() else {
            return Consequence::Nothing;
        };
        while session.stage == Stage::Open
            && let Some(message) = session.inbox.pop_front()
        {
            if !fits(turn, &message) {
                // Not what the owner of this volume says, or this copy is from before it grew: it leaves, and nothing else
                // of the session counts.
                session.send(turn, Message::Failed);
                turn.out.push(Effect::LacksRoom);
                self.session = None;
                return Consequence::Nothing;
            }
            match message {
                Message::Record(record) => {
                    let tag = Tag {
                        epoch: session.epoch,
                        sequence: record.sequence,
                        low: record.low,
                    };
                    let what = What::Record(tag, record.content);
                    session.take(turn, record.extent, what);
                }
                Message::Copy {
                    copy,
                    extent,
                    content,
                } => session.take(turn, extent, What::Copy(copy, content)),
                Message::DigestAsk {
                    copy,
                    leaves,
                    granules,
                } => {
                    if let Some(extent) = asked(turn, leaves, granules) {
                        session.take(turn, extent, What::Digest(copy));
                    }
                }
                Message::Fetch { fetch, extent } => session.take(turn, extent, What::Fetch(fetch)),
                Message::Entry { absent } => session.enter(turn, absent),
                Message::Commit { low } => turn.local.learn(Known {
                    epoch: session.epoch,
                    low,
                }),
                Message::GrantAsk { nonce, heads } => {
                    session.hear(turn, &heads);
                    session.grant(turn, given, nonce);
                }
                Message::Handoff => {
                    given.void_all(turn.now);
                    self.session = None;
                    return Consequence::TakeOver;
                }
                Message::Done { forward, outcome } => {
                    self.heard.push(Heard::Done(forward, outcome));
                }
                Message::Labelled { origin, writes } => {
                    let epoch = session.epoch.0;
                    let label = Label { epoch, writes };
                    self.heard.push(Heard::Labelled(origin, label));
                }
                // What a member says, an owner does not.
                _ => {}
            }
        }
        Consequence::Nothing
    }

    /// The entry is durable.
    pub(crate) fn persisted(
        &mut self,
        turn: &mut Turn<'_>,
        given: &mut Given,
        token: Token,
    ) -> Consequence {
        if let Some(session) = self.session.as_mut() {
            match session.stage {
                Stage::Joining(waits) if waits == token => session.answer(turn),
                Stage::Entering(waits) if waits == token => {
                    session.stage = Stage::Open;
                    session.was_added |= !session.is_learner(turn);
                }
                _ => {}
            }
        }
        self.run(turn);
        self.handle(turn, given)
    }

    /// The local store has applied something, or failed to.
    pub(crate) fn applied(&mut self, turn: &mut Turn<'_>, token: Token, result: &Applied) {
        for session in [self.session.as_mut(), self.ended.as_mut()]
            .into_iter()
            .flatten()
        {
            if let Some(doing) = session.finished(token) {
                match (result, doing.what) {
                    (Ok(()), What::Record(tag, _)) => {
                        let sequence = tag.sequence;
                        session.send(turn, Message::Ack { sequence });
                    }
                    (Ok(()), What::Copy(copy, _)) => {
                        session.send(turn, Message::CopyAck { copy });
                    }
                    (Ok(()), What::Digest(..) | What::Fetch(_)) => {}
                    (Err(_), _) => {
                        session.send(turn, Message::Failed);
                        session.doing.retain(|doing| doing.token.is_some());
                        session.inbox.clear();
                    }
                }
                session.start(turn);
            }
        }
        self.run(turn);
    }

    /// Nothing more comes of what the store was given: the owner need not find out by silence.
    pub(crate) fn store_failed(&mut self, turn: &mut Turn<'_>) {
        if let Some(mut session) = self.session.take() {
            session.send(turn, Message::Failed);
        }
    }

    /// What the owner wants to have of this copy.
    pub(crate) fn read_done(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        result: &Result<Bytes, IoError>,
    ) {
        let Some(session) = self.session.as_mut() else {
            return;
        };
        let Some(doing) = session.finished(token) else {
            return;
        };
        if let What::Fetch(fetch) = doing.what {
            let content = result.as_ref().ok().cloned().map(Content::of);
            let fetched = Message::Fetched {
                fetch,
                extent: doing.extent,
                content,
            };
            session.send(turn, fetched);
        }
        session.start(turn);
    }

    /// A digest that the owner asked for. Leaves of which something is lost hold what no other copy has: they are given
    /// anew.
    pub(crate) fn digested(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        result: &Result<u128, IoError>,
    ) {
        let Some(session) = self.session.as_mut() else {
            return;
        };
        if let Some(doing) = session.finished(token) {
            let digest = match result {
                Ok(digest) => Some(*digest),
                Err(error) => (error.kind() == ErrorKind::Corrupt).then_some(LOST),
            };
            match (digest, doing.what) {
                (Some(digest), What::Digest(copy)) => {
                    session.send(turn, Message::Digest { copy, digest });
                }
                _ => session.send(turn, Message::Failed),
            }
            session.start(turn);
        }
    }
}

impl Session {
    const fn has_joined(&self) -> bool {
        !matches!(self.stage, Stage::Draining | Stage::Joining(_))
    }

    fn send(&mut self, turn: &mut Turn<'_>, message: Message) {
        let envelope = Envelope {
            volume: turn.config.volume,
            shard: turn.config.shard,
            epoch: self.epoch,
            session: self.id,
            number: self.sends,
            message,
        };
        self.sends = self.sends.wrapping_add(1);
        let to = self.owner;
        turn.out.push(Effect::Send { to, envelope });
    }

    /// The owner says how far copies in sync have come.
    fn hear(&self, turn: &mut Turn<'_>, heads: &Heads) {
        if self.has_joined() && !self.is_learner(turn) {
            turn.heads.believe(heads);
        }
    }

    /// Promises its owner not to take over for a while.
    fn grant(&mut self, turn: &mut Turn<'_>, given: &mut Given, nonce: Nonce) {
        given.give(self.join.owner, self.join.incarnation, turn.now);
        let (free, head) = (turn.local.free(), turn.heads.claim());
        self.send(turn, Message::Grant { nonce, free, head });
    }

    fn is_learner(&self, turn: &Turn<'_>) -> bool {
        self.join.absent.has(turn.config.position)
    }

    /// Once the store is drained, makes `promised` durable.
    fn prepare(&mut self, turn: &mut Turn<'_>) {
        let is_learner = self.is_learner(turn);
        let hasty = if is_learner {
            Canary::AttachUndrained
        } else {
            Canary::JoinUndrained
        };
        if !(turn.local.is_drained() || turn.sings(hasty) && turn.entry.is_quiet()) {
            return;
        }
        let before = turn.entry.durable();
        let is_first = before.promised < self.epoch;
        let own = if is_learner {
            match turn.sings(Canary::LearnerForgets) {
                true => OwnPlane::Forget,
                false => OwnPlane::TakeUncertain,
            }
        } else if is_first && turn.sings(Canary::ForgetAtJoin) {
            OwnPlane::Forget
        } else {
            OwnPlane::Until(Known {
                epoch: self.epoch,
                low: if is_first { Low::BASE } else { Low::BASE_OPEN },
            })
        };
        // What a canary forgets it has said before.
        let uncertain = turn.local.uncertain();
        let absent = match !is_first && turn.sings(Canary::NoEntry) {
            true => before.absent,
            false => self.join.absent,
        };
        let token = turn.persist(EntryChange {
            entry: Entry {
                promised: self.epoch,
                session: self.id,
                absent,
            },
            marks_uncertain: true,
            marks: uncertain.clone(),
            own,
            members: self.join.members,
        });
        self.stage = Stage::Joining(token);
        self.told = uncertain;
    }

    /// `promised` is durable: the owner hears what is uncertain here.
    fn answer(&mut self, turn: &mut Turn<'_>) {
        self.stage = Stage::Open;
        let free = turn.local.free();
        let uncertain = std::mem::take(&mut self.told).coarsened(MAX_RANGES);
        let is_learner = self.is_learner(turn);
        let own = match is_learner && turn.is_old_image {
            true => turn.own_shape().everything(),
            false => uncertain,
        };
        let attach = Attach {
            uuid: turn.config.uuid,
            own,
            free,
            has_fetch: true,
            head: turn.heads.claim(),
            heads: turn.heads.told(turn.config.uuid),
        };
        let message = if is_learner {
            Message::Attach(attach)
        } else if turn.is_old_image || turn.lags {
            if turn.is_old_image {
                turn.alarm(Alarm::OldImage);
            }
            let reason = Refusal::OldImage;
            let promised = self.epoch;
            Message::Refuse { promised, reason }
        } else {
            Message::Joined(attach)
        };
        self.send(turn, message);
    }

    /// The owner says who is absent.
    fn enter(&mut self, turn: &mut Turn<'_>, absent: Positions) {
        let entry = Entry {
            promised: self.epoch,
            session: self.id,
            absent,
        };
        self.join.absent = absent;
        // A place that was given since is absent at first.
        self.join.members = self.join.members.union(absent);
        // Who hears that it was added knows that the base was committed: the own plane goes.
        let until = Known {
            epoch: Epoch(0),
            low: Low::BASE_OPEN,
        };
        let token = turn.persist(EntryChange {
            entry,
            marks_uncertain: true,
            marks: turn.local.uncertain(),
            own: OwnPlane::Until(until),
            members: self.join.members,
        });
        self.stage = Stage::Entering(token);
    }

    /// Something to apply or to look at, behind what it overlaps.
    fn take(&mut self, turn: &mut Turn<'_>, extent: Extent, what: What) {
        self.doing.push(Doing {
            token: None,
            extent,
            what,
        });
        self.start(turn);
    }

    /// Gives the store what nothing older holds up.
    fn start(&mut self, turn: &mut Turn<'_>) {
        let unordered = turn.sings(Canary::Unordered);
        for at in 0..self.doing.len() {
            let Doing { token, extent, .. } = self.doing[at];
            // Its owner waits for what it fetches, or wants it no more: what comes behind it changes nothing of that.
            let holds = |older: &Doing| !matches!(older.what, What::Fetch(_));
            let overlaps = |older: &Doing| holds(older) && older.extent.overlaps(extent);
            if token.is_some() || !unordered && self.doing[..at].iter().any(overlaps) {
                continue;
            }
            let token = turn.token();
            self.doing[at].token = Some(token);
            match &self.doing[at].what {
                What::Record(tag, content) => {
                    turn.local.apply(token, extent, content.clone(), Some(*tag));
                }
                What::Copy(_, content) => turn.local.apply(token, extent, content.clone(), None),
                What::Digest(_) => turn.local.digest(token, extent),
                What::Fetch(_) => turn.local.read(token, extent),
            }
        }
    }

    fn finished(&mut self, token: Token) -> Option<Doing> {
        let at = self
            .doing
            .iter()
            .position(|doing| doing.token == Some(token))?;
        Some(self.doing.remove(at))
    }

    /// Takes records though the session has ended. Only a canary does.
    fn take_records(&mut self, turn: &mut Turn<'_>) {
        while let Some(message) = self.inbox.pop_front() {
            if let Message::Record(record) = message {
                let tag = Tag {
                    epoch: self.epoch,
                    sequence: record.sequence,
                    low: record.low,
                };
                self.take(turn, record.extent, What::Record(tag, record.content));
            }
        }
    }
}

/// Whether what a message speaks of is in the volume.
fn fits(turn: &Turn<'_>, message: &Message) -> bool {
    let shape = turn.own_shape();
    match message {
        Message::Record(record) => shape.contains(record.extent),
        Message::Copy { extent, .. } | Message::Fetch { extent, .. } => shape.contains(*extent),
        Message::DigestAsk {
            leaves, granules, ..
        } => asked(turn, *leaves, *granules).is_some(),
        _ => true,
    }
}

/// What a digest is asked of; `None` if this copy has not all of it.
fn asked(turn: &Turn<'_>, leaves: Leaves, granules: u32) -> Option<Extent> {
    let all = turn.own_shape().run(leaves)?;
    match granules {
        // The key did not say the size, so it is what this copy had.
        0 => turn.config.shape.run(leaves),
        _ => Extent::new(all.first(), granules).filter(|part| part.end() <= all.end()),
    }
}

pub(crate) fn refuse(
    turn: &mut Turn<'_>,
    to: Position,
    envelope: &Envelope,
    promised: Epoch,
    reason: Refusal,
) {
    let message = Message::Refuse { promised, reason };
    let envelope = Envelope {
        number: 0,
        message,
        ..envelope.clone()
    };
    turn.out.push(Effect::Send { to, envelope });
}
