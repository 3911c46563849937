//! An owner's session with one of the other copies.

use std::time::Duration;

use ashlar_block::Moment;

use super::learner::Learner;
use crate::event::{Effect, Turn};
use crate::extent::ExtentSet;
use crate::heads::Mark;
use crate::ids::{Epoch, Head, Low, Position, Positions, ReplicaUuid, SessionId};
use crate::message::{Envelope, Message};
use crate::pace::Heard;

/// How long after the end of a session the next is tried.
const JOIN_AGAIN: Duration = Duration::from_millis(60);
/// How long an owner waits for the answer to JOIN before it asks again.
const JOIN_TIMEOUT: Duration = Duration::from_millis(400);
/// How long an owner leaves a copy alone that has left because its process ends: no session has that begin to take anew
/// what it is about to be rid of. The next process has another connection, and need not wait.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Where the session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// There is none; another is tried at this time.
    Closed(Moment),
    /// JOIN was sent at this time.
    Joining(Moment),
    /// With a member in sync.
    Live,
    /// With a learner.
    Learning,
}

/// A session with a learner: what waits for it, or is read for it, ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) to: Position,
    pub(crate) id: SessionId,
}

/// A copy that has attached.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) uuid: ReplicaUuid,
    /// What it missed when its session ended.
    pub(crate) left: ExtentSet,
}

/// One of the other copies.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) position: Position,
    pub(crate) link: Link,
    pub(crate) session: SessionId,
    /// When anything was last heard of it.
    pub(crate) heard: Heard,
    /// When it last did something that it owed, or owed nothing.
    pub(crate) done: Heard,
    /// Who is absent, as this session was told.
    pub(crate) told: Positions,
    pub(crate) told_low: Low,
    /// Its connection's version has FETCH.
    pub(crate) has_fetch: bool,
    /// How far it claims to have come.
    pub(crate) claim: Head,
    /// It could not write something: it leaves the in-sync set.
    pub(crate) has_failed: bool,
    /// Its process is certified dead, and no other has answered since.
    pub(crate) has_died: bool,
    /// Its process ends: it goes on until it has left the in-sync set.
    pub(crate) leaves: bool,
    pub(crate) learner: Option<Learner>,
    /// The copy that has attached last, and what it still misses if its session has ended since.
    pub(crate) attached: Option<Attached>,
    sends: u32,
    expects: u32,
}

impl Peer {
    pub(crate) fn new(position: Position, now: Moment) -> Self {
        Self {
            position,
            link: Link::Closed(now),
            session: SessionId(0),
            heard: Heard::new(now),
            done: Heard::new(now),
            told: Positions::NONE,
            told_low: Low::BASE_OPEN,
            has_fetch: false,
            claim: Head(0),
            has_failed: false,
            has_died: false,
            leaves: false,
            learner: None,
            attached: None,
            sends: 0,
            expects: 0,
        }
    }

    /// It has said something. What it answers at once is no sign that its store goes on.
    pub(crate) fn hears(&mut self, now: Moment, message: &Message) {
        self.heard = Heard::new(now);
        if matches!(
            message,
            Message::Ack { .. }
                | Message::CopyAck { .. }
                | Message::Digest { .. }
                | Message::Fetched { .. }
        ) {
            self.done = Heard::new(now);
        }
    }

    /// What it claims, if it is this copy.
    pub(crate) const fn claims(&self, replica: ReplicaUuid) -> Mark {
        let head = self.claim;
        Mark { replica, head }
    }

    /// Whether messages go to it.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.link, Link::Live | Link::Learning)
    }

    /// Whether it can say that it is there, in a session or about to be in one.
    pub(crate) const fn can_be_heard(&self) -> bool {
        !matches!(self.link, Link::Closed(_))
    }

    /// Whether it is time for a new session.
    pub(crate) fn wants_session(&self, now: Moment) -> bool {
        match self.link {
            Link::Closed(at) => now >= at,
            // What is heard is on its way: to begin anew would make it longer.
            Link::Joining(since) => {
                now - since >= JOIN_TIMEOUT && self.heard.ago(now) >= JOIN_TIMEOUT
            }
            Link::Live | Link::Learning => false,
        }
    }

    /// Begins a session.
    pub(crate) fn begin(&mut self, now: Moment, session: SessionId, told: Positions) {
        self.link = Link::Joining(now);
        self.session = session;
        self.told = told;
        self.told_low = Low::BASE_OPEN;
        self.claim = Head(0);
        (self.sends, self.expects) = (0, 0);
    }

    /// The session is over.
    pub(crate) fn close(&mut self, now: Moment) {
        self.link = Link::Closed(now + JOIN_AGAIN);
    }

    /// The copy is out of the in-sync set, and begins anew from there.
    pub(crate) fn left(&mut self, now: Moment) {
        (self.has_failed, self.has_died) = (false, false);
        match std::mem::take(&mut self.leaves) {
            true => self.close_for(now, ENDS_WITHIN),
            false => self.close(now),
        }
    }

    /// The session is over, and the next one has time.
    pub(crate) fn close_for(&mut self, now: Moment, pause: Duration) {
        self.link = Link::Closed(now + pause);
    }

    pub(crate) fn send(&mut self, turn: &mut Turn<'_>, epoch: Epoch, message: Message) {
        let envelope = Envelope {
            volume: turn.config.volume,
            shard: turn.config.shard,
            epoch,
            session: self.session,
            number: self.sends,
            message,
        };
        self.sends = self.sends.wrapping_add(1);
        let to = self.position;
        turn.out.push(Effect::Send { to, envelope });
    }

    /// Whether a message is the session's next.
    pub(crate) fn takes(&mut self, envelope: &Envelope) -> Taken {
        if envelope.session != self.session || matches!(self.link, Link::Closed(_)) {
            return Taken::Stray;
        }
        if envelope.number != self.expects {
            return Taken::Gap;
        }
        self.expects = self.expects.wrapping_add(1);
        Taken::Next
    }
}

/// What a message is to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Next,
    /// Something before it is missing.
    Gap,
    /// Not its own.
    Stray,
}
