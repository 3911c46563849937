//! One copy of one shard of a volume: follows an owner, would own, or owns.

use std::time::Duration;

use ashlar_block::{IoError, Label, Moment};
use bytes::Bytes;

use crate::canary::Canary;
use crate::candidate::{Candidacy, Candidate, Reason};
use crate::event::{
    Alarm, At, Config, Effect, EntryBook, Event, HostCommand, HostOperation, Outcome, Turn,
};
use crate::extent::Extent;
use crate::fence::Origin;
use crate::forward::Forwarder;
use crate::heads::HeadBook;
use crate::ids::{Ask, CommandId, Epoch, Incarnation, NodeId, Position, Token};
use crate::key::Size;
use crate::lease::{GRANT_EVERY, Given};
use crate::local::{Entry, Imported, Local};
use crate::member::{Consequence, Heard, Member, refuse};
use crate::message::{Envelope, Join, Message, Refusal};
use crate::names::Names;
use crate::owner::{DirectEnd, Owner, REMOVE_AFTER, is_forwarded};
use crate::pace::HELD_UP;
use crate::quorum::Reply;

/// How soon a copy that has something to do is to be woken.
pub const TICK: Duration = Duration::from_millis(25);
/// How soon a copy that follows an owner, and has nothing to do, is to be woken at the latest.
const FOLLOWS: Duration = Duration::from_millis(500);

/// A copy whose store failed answers hosts with errors, instead of handing over, if that happens again so soon: the
/// other copy, which gave it back, could not do better.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

/// A copy, in one life of its process.
#[derive(Debug)]
pub struct Replica {
    config: Config,
    names: Names,
    entry: EntryBook,
    heads: HeadBook,
    is_old_image: bool,
    /// Another copy knows of more that this one had.
    lags: bool,
    /// Granules that this copy has in its pool.
    room: u64,
    given: Given,
    member: Member,
    candidate: Candidate,
    reason: Reason,
    owner: Option<Owner>,
    forwarder: Forwarder,
    /// When it stopped serving last because its own store had failed.
    gave_up: Option<Moment>,
    /// When it is to be woken at the latest.
    due: Moment,
}

/// What a replica is handed with an event.
pub struct Surroundings<'a> {
    /// This node's clock: monotonic, and counting while the machine sleeps.
    pub now: Moment,
    /// The store of this copy.
    pub local: &'a mut dyn Local,
    /// What the replica wants done, in this order.
    pub out: &'a mut Vec<Effect>,
}

impl Replica {
    /// A process begins with what its store's import found.
    pub fn new(config: Config, imported: Imported, now: Moment) -> Self {
        Self {
            given: Given::new(now, config.cage),
            config,
            room: config.shape.granules,
            names: Names::knowing(imported.size),
            entry: EntryBook::new(imported.entry),
            heads: HeadBook::new(config.position, &imported),
            lags: false,
            is_old_image: imported.is_old_image && !config.cage.sings(Canary::OldImageCounts),
            member: Member::default(),
            candidate: Candidate::new(now),
            reason: Reason::default(),
            owner: None,
            forwarder: Forwarder::default(),
            gave_up: None,
            due: now,
        }
    }

    /// All nodes have agreed on a version in which copies keep each other's counts: from now on the store is given what
    /// this copy has heard. Before that it is known to this process only, and a pool stays one for an older program.
    pub const fn keep_heads(&mut self) {
        self.heads.keep();
    }

    /// Something happened.
    pub fn handle(&mut self, event: Event, surroundings: Surroundings<'_>) {
        let Surroundings { now, local, out } = surroundings;
        let Self {
            config,
            names,
            entry,
            heads,
            is_old_image,
            lags,
            room,
            ..
        } = self;
        let config = *config;
        let mut names = std::mem::take(names);
        let mut book = std::mem::replace(entry, EntryBook::new(Entry::default()));
        let mut known =
            std::mem::replace(heads, HeadBook::new(config.position, &Imported::default()));
        let mut turn = Turn {
            now,
            config: &config,
            local,
            out,
            names: &mut names,
            entry: &mut book,
            heads: &mut known,
            lags: *lags,
            is_old_image: *is_old_image,
            room: *room,
        };
        let is_tick = matches!(event, Event::Tick);
        // Before anything is judged: what comes first after a pause need not be a tick.
        self.note_pause(&mut turn);
        self.dispatch(&mut turn, event);
        if let Some(owner) = self.owner.as_mut() {
            owner.note_answers(&turn);
        }
        if self.owner.as_ref().is_some_and(Owner::ends) {
            self.step_down(&mut turn);
        }
        if let Some(heads) = turn.heads.take_news(now) {
            turn.local.remember(heads);
        }
        self.follow_forwards(&mut turn);
        self.plan_tick(&turn, is_tick);
        self.names = names;
        self.entry = book;
        self.heads = known;
    }

    fn dispatch(&mut self, turn: &mut Turn<'_>, event: Event) {
        if let Event::Applied { token, .. }
        | Event::Read { token, .. }
        | Event::Persisted { token }
        | Event::Digested { token, .. } = &event
        {
            turn.names.answered(*token);
        }
        match event {
            Event::Tick => self.tick(turn),
            Event::Host(command) => self.host(turn, command),
            Event::Received { from, envelope } => self.received(turn, from, envelope),
            Event::PeerGone { peer } => {
                if let Some(owner) = self.owner.as_mut() {
                    owner.peer_gone(turn, peer);
                }
            }
            Event::PeerDied { peer } => {
                if let Some(owner) = self.owner.as_mut() {
                    owner.peer_died(turn, peer);
                }
            }
            Event::PeerLeaves { peer } => {
                if let Some(owner) = self.owner.as_mut() {
                    owner.peer_leaves(turn, peer);
                }
            }
            Event::Applied { token, result } => {
                if result.is_ok() {
                    turn.names.goes_on(turn.now);
                    turn.heads.comes_to(turn.local.head());
                }
                self.member.applied(turn, token, &result);
                if let Some(owner) = self.owner.as_mut() {
                    owner.applied(turn, token, &result);
                }
            }
            Event::Read { token, result } => {
                if let Some(end) = self.end_direct(turn.now, token, result.is_ok()) {
                    return self.ended_directly(turn, end, result);
                }
                self.member.read_done(turn, token, &result);
                if let Some(owner) = self.owner.as_mut() {
                    owner.read_done(turn, token, result);
                }
            }
            Event::Persisted { token } => {
                turn.names.goes_on(turn.now);
                turn.entry.persisted(token);
                let consequence = self.member.persisted(turn, &mut self.given, token);
                self.is_old_image &= !self.member.was_added();
                self.lags &= !self.member.was_added();
                self.follow(turn, consequence);
                if let Some(owner) = self.owner.as_mut() {
                    owner.persisted(turn, token);
                }
            }
            Event::Digested { token, result } => {
                self.member.digested(turn, token, &result);
                if let Some(owner) = self.owner.as_mut() {
                    owner.digested(turn, token, result);
                }
            }
            Event::Answered { ask, reply } => self.answered(turn, ask, &reply),
            Event::Dead { node, incarnation } => self.certified(turn, node, incarnation),
            Event::LabelWanted { origin } => {
                if self.owner.is_none() {
                    self.forwarder.want_label(turn, &mut self.member, origin);
                }
            }
            Event::Decided { command, outcome } => turn.answer(command, outcome),
            Event::StoreFailed => {
                if let Some(owner) = self.owner.as_mut() {
                    owner.hand_over(turn);
                }
                self.member.store_failed(turn);
            }
            Event::Verify => {
                if let Some(owner) = self.owner.as_mut() {
                    owner.verify(turn);
                }
            }
            Event::Move { to } => {
                if let Some(owner) = self.owner.as_mut() {
                    owner.give(turn, to);
                }
            }
            Event::Grown { granules } => self.room = self.room.max(granules),
            Event::Resize(growth) => {
                if let Some(owner) = self.owner.as_mut() {
                    owner.resize(turn, growth);
                }
            }
            Event::Reseat(wish) => {
                if let Some(owner) = self.owner.as_mut() {
                    owner.reseat(turn, wish);
                }
            }
        }
    }

    /// Whether this process has got no processor for a while.
    fn note_pause(&mut self, turn: &mut Turn<'_>) {
        if !self.was_held_up(turn.now) {
            return;
        }
        turn.names.held_up(turn.now);
        self.candidate.held_up(turn);
        if let Some(owner) = self.owner.as_mut() {
            owner.held_up(turn);
        }
    }

    fn was_held_up(&self, now: Moment) -> bool {
        now - self.due > HELD_UP
    }

    /// Begins a host's read directly, past the protocol's queues: whether that could be. Else the replica is to hear of it
    /// ([`Event::Host`]). It ends as [`Event::Read`] or by [`end_direct`](Self::end_direct), as the store's driver likes.
    pub fn begin_direct(
        &mut self,
        now: Moment,
        command: CommandId,
        extent: Extent,
        local: &mut dyn Local,
    ) -> bool {
        let config = &self.config;
        let was_held_up = self.was_held_up(now);
        let Some(owner) = self.owner.as_mut().filter(|_| !was_held_up) else {
            return false;
        };
        let Some(read) = owner.direct_read(At { now, config }, command, extent) else {
            return false;
        };
        let token = self.names.token();
        let begins = local.read_directly(token, read.placed);
        if begins {
            owner.direct_begun(token, read);
        }
        begins
    }

    /// The store has answered a direct read. None: the host has been answered, or this was no direct read.
    pub fn end_direct(&mut self, now: Moment, token: Token, is_read: bool) -> Option<DirectEnd> {
        self.names.answered(token);
        let config = &self.config;
        let is_known = !self.was_held_up(now) || config.cage.sings(Canary::DirectUnchecked);
        let owner = self.owner.as_mut()?;
        owner.direct_ended(At { now, config }, token, is_read && is_known)
    }

    fn ended_directly(
        &mut self,
        turn: &mut Turn<'_>,
        end: DirectEnd,
        result: Result<Bytes, IoError>,
    ) {
        match (end, result) {
            (DirectEnd::Answer(command), Ok(data)) => turn.answer(command, Outcome::Read(data)),
            (DirectEnd::Ask { command, extent }, _) => {
                if let Some(owner) = self.owner.as_mut() {
                    owner.host(turn, command, HostOperation::Read { extent });
                }
            }
            (DirectEnd::Answer(_), Err(_)) => unreachable!("what was not read is asked for anew"),
        }
    }

    /// When this copy must be woken by a `Tick`, if nothing else happens.
    pub const fn next_deadline(&self) -> Moment {
        self.due
    }

    /// A copy that is at rest need not be woken for nothing; what happens to it may end that.
    fn plan_tick(&mut self, turn: &Turn<'_>, is_tick: bool) {
        let soon = turn.now + TICK;
        if is_tick || self.due > soon {
            let later = self.rests_until(turn).unwrap_or(soon);
            self.due = match is_tick {
                true => later,
                false => self.due.min(later),
            };
        }
        let copies_at = self.owner.as_ref().and_then(Owner::copies_at);
        if let Some(at) = copies_at.filter(|&at| at > turn.now) {
            self.due = self.due.min(at);
        }
    }

    /// Until when time alone changes nothing; `None` if it may at once.
    fn rests_until(&self, turn: &Turn<'_>) -> Option<Moment> {
        match &self.owner {
            Some(owner) => owner.is_at_rest(turn.at()).then(|| turn.now + GRANT_EVERY),
            None => {
                let until = self.given.until().filter(|_| self.member.is_at_rest())?;
                (until > turn.now).then(|| until.min(turn.now + FOLLOWS))
            }
        }
    }

    fn tick(&mut self, turn: &mut Turn<'_>) {
        self.member.run(turn);
        if let Some(owner) = self.owner.as_mut() {
            return owner.tick(turn, &self.given);
        }
        // Nothing could be drained, so nothing served, with a store that does not answer.
        let waits = self.candidate.rests(turn.now) || turn.is_store_stuck();
        if self.given.binds(turn.now) || waits {
            return;
        }
        // Its owner was heard in this process's life, and is silent now.
        self.reason.is_owner_gone |= self.member.owner().is_some();
        self.candidate.tick(turn);
    }

    fn host(&mut self, turn: &mut Turn<'_>, command: HostCommand) {
        match self.owner.as_mut() {
            Some(owner) => owner.host(turn, command.command, command.operation),
            None => self.forwarder.send(turn, &mut self.member, command),
        }
    }

    /// What has become of commands that were forwarded: by this node, and to it.
    fn follow_forwards(&mut self, turn: &mut Turn<'_>) {
        // An owner that is not heard has no session, whatever it may yet say.
        let is_heard = self.owner.is_none() && self.given.binds(turn.now);
        let session = self.member.open_session().filter(|_| is_heard);
        for heard in self.member.take_heard() {
            match heard {
                Heard::Done(forward, outcome) => self.forwarder.done(turn, forward, outcome),
                Heard::Labelled(origin, label) => self.forwarder.labelled(origin, label),
            }
        }
        self.forwarder.follow(turn, session);
        let is_its = |effect: &mut Effect| matches!(effect, Effect::Answer { command, .. } if is_forwarded(*command));
        let answers: Vec<Effect> = turn.out.extract_if(.., is_its).collect();
        for answer in answers {
            if let (Effect::Answer { command, outcome }, Some(owner)) =
                (answer, self.owner.as_mut())
            {
                owner.forwarded_done(turn, command, outcome);
            }
        }
    }

    /// The newest epoch that binds this copy, durable or about to be.
    fn newest(&self, turn: &Turn<'_>) -> Epoch {
        let owned = self.owner.as_ref().map_or(Epoch(0), Owner::epoch);
        turn.entry
            .durable()
            .promised
            .max(self.member.epoch())
            .max(owned)
    }

    fn received(&mut self, turn: &mut Turn<'_>, from: Position, envelope: Envelope) {
        if (envelope.volume, envelope.shard) != (turn.config.volume, turn.config.shard) {
            return;
        }
        if !envelope.message.is_of_owner() {
            if let Some(owner) = self.owner.as_mut() {
                owner.receive(turn, from, envelope);
            }
            return;
        }
        if let Message::Join(join) = envelope.message {
            let newest = self.newest(turn);
            let owns = self
                .owner
                .as_ref()
                .is_some_and(|owner| owner.epoch() >= envelope.epoch);
            if envelope.epoch < newest || owns {
                let reason = Refusal::Epoch;
                let message = Message::Refuse {
                    promised: newest,
                    reason,
                };
                let envelope = Envelope {
                    number: 0,
                    message,
                    ..envelope
                };
                turn.out.push(Effect::Send { to: from, envelope });
                return;
            }
            self.step_down(turn);
            if self.denies(turn, from, &envelope, &join) {
                return;
            }
            self.reason = Reason::default();
            if !turn.sings(Canary::JoinUnheard) {
                self.candidate.follows(turn);
            }
            self.member.join(turn, from, &envelope, join);
            return;
        }
        self.candidate.hears();
        let consequence = self.member.receive(turn, &mut self.given, from, envelope);
        self.follow(turn, consequence);
    }

    /// An owner whose copy lacks what it has acknowledged is not followed: this copy takes over, and leaves it out.
    fn denies(
        &mut self,
        turn: &mut Turn<'_>,
        from: Position,
        envelope: &Envelope,
        join: &Join,
    ) -> bool {
        // What a late one claims is what its owner had claimed then.
        let is_late = self.member.is_late(turn, envelope);
        let is_learner = join.absent.has(turn.config.position);
        if is_late
            || is_learner
            || turn.is_old_image
            || turn.lags
            || !turn.lags_behind(from, join.claim)
        {
            return false;
        }
        let newest = self.newest(turn);
        refuse(turn, from, envelope, newest, Refusal::Lags);
        if self.candidate.denies(turn, envelope.epoch) {
            turn.alarm(Alarm::Lags(from));
        }
        self.reason = Reason {
            denied: Some(from),
            ..Reason::default()
        };
        true
    }

    fn follow(&mut self, turn: &mut Turn<'_>, consequence: Consequence) {
        if let Consequence::TakeOver = consequence
            && self.owner.is_none()
        {
            self.reason = Reason {
                is_handoff: true,
                ..Reason::default()
            };
            self.candidate.hurry(turn);
        }
    }

    fn answered(&mut self, turn: &mut Turn<'_>, ask: Ask, mut reply: &Reply) {
        if let Some(went_back) = turn.names.heard_of_key(ask, reply) {
            // What it says of who is in sync may be from before writes that a copy lacks.
            turn.doubt(went_back);
            reply = &Reply::Unknown;
        }
        if let Some(owner) = self.owner.as_mut() {
            owner.answered(turn, ask, reply);
        }
        if self.given.binds(turn.now) && !self.reason.is_handoff {
            self.candidate.leaves();
        }
        let candidacy = Candidacy {
            promised: self.newest(turn),
            reason: self.reason,
        };
        let won = self.candidate.answered(turn, ask, reply, candidacy);
        let Some(stored) = won else { return };
        if self.owner.is_some() {
            return;
        }
        // One that was denied says nothing of what became of the others.
        let is_gone = self.reason.is_owner_gone && self.reason.denied.is_none();
        let knows_of_others = self.reason.is_handoff || is_gone;
        let patience = match knows_of_others {
            true => REMOVE_AFTER,
            false => turn.config.limits.power_loss_wait,
        };
        self.member = Member::default();
        self.reason = Reason::default();
        // What only this copy has is what the volume is from now on.
        self.lags = false;
        let mut owner = Owner::new(turn, stored, patience);
        if !knows_of_others {
            owner.proves_at_once();
        }
        owner.endures_until(self.gave_up.map(|at| at + FORGIVEN_AFTER));
        self.owner = Some(owner);
    }

    fn certified(&mut self, turn: &mut Turn<'_>, node: NodeId, incarnation: Incarnation) {
        self.given.void(node, incarnation);
        let follows = self.member.owner();
        let is_owner =
            follows.is_some_and(|join| join.owner == node && join.incarnation <= incarnation);
        if is_owner && self.owner.is_none() && !self.given.binds(turn.now) {
            self.reason.is_owner_gone = true;
            self.candidate.hurry(turn);
        }
    }

    fn step_down(&mut self, turn: &mut Turn<'_>) {
        if let Some(owner) = self.owner.take() {
            if owner.gave_up() {
                self.gave_up = Some(turn.now);
            }
            if owner.lags() && !std::mem::replace(&mut self.lags, true) {
                turn.alarm(Alarm::Lags(turn.config.position));
            }
            owner.stop(turn);
            if !turn.sings(Canary::NoStandBack) {
                self.candidate.yields(turn);
            }
        }
    }

    #[cfg(test)]
    pub(crate) const fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// The owner's epoch, if this copy is one, serving or not yet.
    pub fn owns(&self) -> Option<Epoch> {
        self.owner.as_ref().map(Owner::epoch)
    }

    /// The label of an association's commands once its host is known to use it after now; of a copy that does not own
    /// the volume, what its owner has said last ([`Event::LabelWanted`]).
    pub fn label(&self, origin: Origin) -> Option<Label> {
        match &self.owner {
            Some(owner) => Some(owner.label(origin)),
            None => self.forwarder.label(origin),
        }
    }

    /// Whether commands that come here go to the owner.
    pub fn forwards(&self) -> bool {
        self.forwarder.is_open()
    }

    /// An association is gone, and nothing of it is left: its writes still count against others.
    pub fn association_ended(&mut self, origin: Origin) {
        self.forwarder.ended(origin);
        if let Some(owner) = self.owner.as_mut() {
            owner.association_ended(origin);
        }
    }

    /// Whether hosts are served.
    pub fn is_serving(&self) -> bool {
        self.owner.as_ref().is_some_and(Owner::is_serving)
    }

    /// Whether this copy owns the volume and gives it to no other yet: all may have lost power together, and a copy that
    /// came back as it was at another time is found only when all are compared.
    pub fn is_unproven(&self) -> bool {
        self.owner.as_ref().is_some_and(Owner::is_unproven)
    }

    /// Whether a read of this range that relies on grants could be answered now, with what the store has now.
    pub fn would_serve(&self, now: Moment, extent: Extent) -> bool {
        let config = &self.config;
        let serves = |owner: &Owner| owner.would_serve(At { now, config }, extent);
        self.owner.as_ref().is_some_and(serves)
    }

    /// Whether reads that rely on grants could be answered now at all.
    pub fn reads(&self, now: Moment) -> bool {
        let config = &self.config;
        let reads = |owner: &Owner| owner.reads(At { now, config });
        self.owner.as_ref().is_some_and(reads)
    }

    /// Whether reads here rely on the grant of `position` now.
    pub fn relies_on(&self, now: Moment, position: Position) -> bool {
        let config = &self.config;
        let relies = |owner: &Owner| owner.relies_on(At { now, config }, position);
        self.owner.as_ref().is_some_and(relies)
    }

    /// Whether a promise not to serve, that this copy has given, still binds it.
    pub fn is_bound(&self, now: Moment) -> bool {
        self.given.binds(now)
    }

    /// Whether this copy counts for nothing: it is of an older image, and was not copied in full yet.
    pub const fn is_old_image(&self) -> bool {
        self.is_old_image
    }

    /// Whether another copy knows of more that this one had: it owns nothing, and is in sync with none, before it was made
    /// equal.
    pub const fn lags(&self) -> bool {
        self.lags
    }

    /// Granules that another copy misses, while this one gives it what it missed.
    pub fn missing(&self, position: Position) -> Option<u64> {
        self.owner.as_ref()?.missing(position)
    }

    /// The size that the volume's key says, if this copy owns it and goes by that: copies may have more room from then on.
    pub fn said_size(&self) -> Option<Size> {
        self.owner.as_ref()?.said_size()
    }

    /// The volume's size, as hosts are served, if this copy owns it.
    pub fn size(&self, now: Moment) -> Option<Size> {
        let config = &self.config;
        let shape = |owner: &Owner| owner.shape(At { now, config });
        self.owner.as_ref().map(|owner| shape(owner).size())
    }

    /// Whether this copy follows an owner whose session is open.
    pub fn follows(&self) -> bool {
        self.owner.is_none() && self.member.is_open()
    }
}
