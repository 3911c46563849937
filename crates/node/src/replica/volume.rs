mod account;
mod connections;
mod direct;
mod lacks;
mod last_words;
mod petitions;
mod size;

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use ashlar_block::{BufferPool, Completion, Label, Moment, Provenance, Request};
use ashlar_copy::{Copy, EngineLocal};
use ashlar_nvme_target::DecidedReservations;
use ashlar_reactor::{Handle, Port, What};
use ashlar_replica::quorum::{Question, Reply};
use ashlar_replica::{
    Alarm, Ask, AssociationId, Cage, CommandId, Config, Effect, Envelope, Epoch, Event,
    HostCommand, HostId, HostOperation, Incarnation, Limits, MAX_MEMBERS, Message, NodeId, Origin,
    Outcome, Position, Positions, Proof, ReadMode, Registrant, Replica, ReplicaUuid, Revision,
    Seats, SessionId, ShardId, Size, Surroundings, VolumeId, Why, Wish,
};
use ashlar_rights::{Reserve, ReservedNews};
use ashlar_store::{Engine, Outbox};
use tracing::{info, warn};

use self::connections::Peer;
use super::commands::{Asked, Commands, Progress, Sender};
use super::failover::{Cause, Failover};
use super::follow::Follow;
use super::resync::{ResyncView, Resyncs};
use super::tally::Tally;

/// Messages and answers that are dealt with in one turn: a busy peer must not keep the core.
const ROUNDS: usize = 64;
/// How long what a copy says last may take to leave.
const LAST_WORDS: Duration = Duration::from_millis(200);
const GRANULE_BYTES: u64 = 4096;
/// Whose commands come without a label.
const UNLABELLED: Origin = Origin {
    host: HostId(0),
    association: AssociationId(0),
};

/// Who a copy is, and who the others are.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaPlan {
    /// For people.
    pub(crate) name: String,
    pub(crate) volume: VolumeId,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) uuid: ReplicaUuid,
    /// The nodes that have a copy.
    pub(crate) members: Seats<NodeId>,
    /// What is reserved, as hosts' commands here are judged.
    pub(crate) reservations: DecidedReservations,
    /// How large the volume is, if its key says so.
    pub(crate) size: Option<Size>,
    /// What reads rely on, where this node owns the volume.
    pub(crate) reads: ReadMode,
    /// The copy lacks what it has acknowledged, as the quorum remembers, or is to.
    pub(crate) is_old_image: bool,
    /// All nodes have agreed that copies durably keep how far others have come.
    pub(crate) keeps_heads: Arc<AtomicBool>,
}

/// What a copy needs of the rest of the node. Nothing here blocks.
pub(crate) trait Outside: Send {
    /// Asks the quorum. The answer comes as [`Replicated::answered`].
    fn ask(&self, ask: Ask, question: Question);
    /// Connects to a member. The connection, or why there is none, comes as [`Replicated::dialled`].
    fn dial(&self, to: NodeId, peer: Position);
    /// Says what people and hosts must learn.
    fn tell(&self, news: News);
}

/// What hosts' paths and people must learn of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum News {
    /// This node serves the volume from now on.
    Serves { epoch: Epoch, failover: Failover },
    /// It does not any more.
    Stops(Epoch),
    /// Whether commands of hosts that come here go to the owner from now on.
    Forwards(bool),
    /// Whether the owner, without a word of copies that may serve by now, sends hosts away.
    Isolated(bool),
    /// Commands have come by another node for a while.
    Elsewhere(Position),
    /// Hosts are to be told what has become of their reservations, at every node.
    Reserved(ReservedNews),
    /// The copies in sync are these now.
    InSync(Positions),
    /// A copy is given what it missed: so much.
    Resync { to: Position, left: u64 },
    /// It has it, and is in sync: so much was copied.
    Resynced { at: Position, bytes: u64 },
    /// The nodes whose copies are not in sync, as this copy knows.
    Absent {
        nodes: Vec<NodeId>,
        /// It was not so before, and this process has seen it.
        is_seen: bool,
    },
    /// Who has copies from now on.
    Members(Seats<NodeId>),
    /// The volume is larger than hosts here know.
    Size,
    /// It is larger than the copy here.
    LacksRoom,
    /// This node's copy is none of the volume's any more.
    Unseated,
    /// Something is wrong.
    Alarm(Alarm),
    /// The copy here lacks what it has acknowledged, or does not any more.
    Lacks(bool),
    /// The copy is out of service: its pool has stopped.
    Failed(String),
}

/// The pool's part of a turn.
pub(crate) struct Ground<'a> {
    pub(crate) engine: &'a mut Engine,
    pub(crate) out: &'a mut Outbox,
    pub(crate) reactor: &'a Handle,
    pub(crate) now: Moment,
}

/// What is shown of a copy.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaView {
    pub(crate) position: Position,
    pub(crate) uuid: ReplicaUuid,
    pub(crate) members: Seats<NodeId>,
    /// The epoch, if this node owns the volume.
    pub(crate) owns: Option<Epoch>,
    /// Hosts are served, and the other copies in sync have said lately that they do not.
    pub(crate) serves: bool,
    pub(crate) promised: Epoch,
    pub(crate) session: SessionId,
    pub(crate) granules: u64,
    /// How large the volume is, as this copy knows.
    pub(crate) size: Size,
    /// The size that the key says, as an owner knows.
    pub(crate) said_size: Option<Size>,
    /// Who is not in sync, as this copy knows.
    pub(crate) absent: Positions,
    /// Bytes that each copy misses, as this one knows.
    pub(crate) missing_bytes: Vec<u64>,
    /// How far each copy is with that, if this node owns the volume.
    pub(crate) resyncs: Vec<ResyncView>,
    pub(crate) tally: Tally,
    pub(crate) connected: Positions,
    /// Why there is no connection to the others.
    pub(crate) troubles: Vec<Option<String>>,
    /// When copies in sync were compared last, if this node has owned the volume since.
    pub(crate) proof: Option<ProofView>,
    /// Changes that the pool has made durable.
    pub(crate) published: u64,
    /// The copy counts for nothing until it was copied in full.
    pub(crate) is_old_image: bool,
    /// The volume is given to no other copy before all were compared.
    pub(crate) is_unproven: bool,
}

/// What came of comparing copies in sync.
#[derive(Clone, Debug)]
pub(crate) struct ProofView {
    pub(crate) at: SystemTime,
    /// How many that were asked for have ended.
    pub(crate) asked: u64,
    pub(crate) proof: Proof,
}

/// A replicated volume's copy on its pool's core: the protocol, the engine's part, and the connections to the others.
pub(crate) struct Replicated {
    plan: ReplicaPlan,
    replica: Replica,
    copy: Copy,
    me: Position,
    peers: [Peer; MAX_MEMBERS],
    /// How new what is known of who has copies is.
    seated: Revision,
    /// How large the volume is, and how new that is; without a key that says it, what this copy has.
    size: Size,
    sized: Revision,
    /// All connections' events come here, by their keys.
    port: Port,
    next_key: u64,
    commands: Commands,
    reserve: Reserve,
    /// While this node owns the volume.
    follow: Option<Follow>,
    /// Associations whose labels were asked for, and this node does not own the volume.
    unlabelled: RefCell<BTreeSet<Origin>>,
    buffers: BufferPool,
    outside: Box<dyn Outside>,
    envelopes: Vec<Envelope>,
    /// When an owner was heard last, and what it said of its end.
    heard: Option<Moment>,
    cause: Cause,
    proof: Option<ProofView>,
    resyncs: Resyncs,
    tally: Tally,
    /// Who is not in sync, as was told last.
    absent: Option<Positions>,
    /// Why the copy cannot go on, though its pool can.
    failure: Option<String>,
    /// Events for the replica that come after the current one.
    unheard: VecDeque<Event>,
    is_hearing: bool,
    is_over: bool,
    /// When the connections are closed after that.
    closes_at: Option<Moment>,
}

impl Replicated {
    /// The copy that a volume of the pool is.
    ///
    /// # Errors
    /// It is not one of these members'.
    pub(crate) fn new(
        plan: ReplicaPlan,
        copy: Copy,
        reactor: &Handle,
        outside: Box<dyn Outside>,
    ) -> Result<Self, String> {
        let me = copy.position();
        if plan.members.get(me) != Some(plan.node) {
            let name = &plan.name;
            return Err(format!(
                "volume {name}: the copy here is another node's, {me}: start that node with this pool, or `ashlar \
                 volume delete {name} --destroy-data` deletes what is here, and nothing of the others"
            ));
        }
        let size = plan.size.unwrap_or(copy.shape().size());
        let now = reactor.now();
        let config = Config {
            volume: plan.volume,
            shard: ShardId(0),
            node: plan.node,
            incarnation: plan.incarnation,
            position: me,
            uuid: plan.uuid,
            shape: copy.shape(),
            reads: plan.reads,
            limits: Limits::default(),
            cage: Cage::default(),
        };
        Ok(Self {
            replica: Replica::new(config, copy.imported(plan.is_old_image), now),
            copy,
            me,
            peers: Default::default(),
            seated: Revision(0),
            size,
            sized: Revision(0),
            reserve: Reserve::new(plan.reservations.clone()),
            plan,
            follow: None,
            unlabelled: RefCell::default(),
            port: reactor.port(),
            next_key: 0,
            commands: Commands::default(),
            buffers: reactor.buffers(),
            outside,
            envelopes: Vec::new(),
            heard: None,
            cause: Cause::default(),
            proof: None,
            resyncs: Resyncs::default(),
            tally: Tally::default(),
            absent: None,
            failure: None,
            unheard: VecDeque::new(),
            is_hearing: false,
            is_over: false,
            closes_at: None,
        })
    }

    /// A host's command; its completion comes with the engine's, under the request's tag. Without a provenance it is
    /// of a user on another core, whose connections are not asked for labels.
    pub(crate) fn command(
        &mut self,
        request: Request,
        provenance: Option<Provenance>,
        ground: &mut Ground<'_>,
    ) {
        let origin = provenance.map_or(UNLABELLED, |known| Origin {
            host: known.host,
            association: known.association,
        });
        let sender = Sender {
            origin,
            registrant: provenance.map_or(Registrant::default(), |known| known.registrant),
            label: match provenance {
                Some(known) => known.label,
                None => self.label(origin),
            },
            is_judged: provenance.is_some(),
            here_only: provenance.is_some_and(|known| known.here_only),
        };
        let (command, asked) = match self.commands.take(request, sender, self.size) {
            Ok(taken) => taken,
            Err(completion) => return ground.out.done.push(*completion),
        };
        if let Some(follow) = &mut self.follow {
            follow.count(self.me);
        }
        let sends_on = self.replica.forwards() && !sender.here_only;
        self.tally.forwarded += u64::from(sends_on);
        for part in asked {
            self.ask(command, &sender, part, ground);
        }
    }

    /// Asks the replica for a part of a command.
    fn ask(&mut self, command: CommandId, sender: &Sender, part: Asked, ground: &mut Ground<'_>) {
        let takes = self.replica.is_serving() || self.replica.forwards();
        let &Sender {
            origin,
            registrant,
            label,
            is_judged,
            here_only,
        } = sender;
        if here_only && self.replica.forwards() {
            // What has waited here may be older than all that the owner has done.
            return self.answer(command, Outcome::NotOwner, ground);
        }
        // It may have been let in before this node knew what is reserved.
        let writes = !matches!(part, Asked::Read(_));
        let refused = self.reserve.refuses(registrant, writes);
        if let Some(outcome) = refused.filter(|_| is_judged) {
            return self.answer(command, outcome, ground);
        }
        if let Asked::Read(extent) = part
            && self.begin_direct(command, extent, ground)
        {
            return;
        }
        let operation = match part {
            Asked::Read(extent) => Some(HostOperation::Read { extent }),
            Asked::Write(extent, content) => label.map(|label| HostOperation::Write {
                extent,
                content,
                origin,
                label,
            }),
            Asked::Nothing if takes => return self.answer(command, Outcome::Written, ground),
            Asked::Nothing => None,
        };
        match operation {
            Some(operation) => {
                let of_host = HostCommand {
                    command,
                    registrant,
                    operation,
                };
                self.hear(Event::Host(of_host), ground);
            }
            // It came when nothing was known here of the volume's owner, and may be older than what has been written
            // since.
            None if takes => self.answer(command, Outcome::Stale, ground),
            None => self.answer(command, Outcome::NotOwner, ground),
        }
    }

    /// The label of what an association may send now, as far as this node knows it.
    pub(crate) fn label(&self, origin: Origin) -> Option<Label> {
        if self.replica.forwards() {
            self.unlabelled.borrow_mut().insert(origin);
        }
        self.replica.label(origin)
    }

    /// Nothing more of an association will come.
    pub(crate) fn association_ended(&mut self, origin: Origin) {
        self.replica.association_ended(origin);
    }

    fn answer(&mut self, command: CommandId, outcome: Outcome, ground: &mut Ground<'_>) {
        if Reserve::asked(command) {
            self.reserve.answered(command, &outcome);
            return self.decide(ground);
        }
        self.tally.stale += u64::from(outcome == Outcome::Stale);
        let Self {
            buffers,
            copy,
            commands,
            ..
        } = self;
        let outcome = match outcome {
            Outcome::Read(bytes) => match copy.take_buffer(bytes) {
                Ok(buffer) => {
                    let progress = commands.filled(command, buffer);
                    return self.progressed(command, progress, ground);
                }
                Err(bytes) => Outcome::Read(bytes),
            },
            other => other,
        };
        let fresh = |bytes| buffers.get(bytes);
        let progress = commands.answered(command, outcome, fresh);
        self.progressed(command, progress, ground);
    }

    fn progressed(&mut self, command: CommandId, progress: Progress, ground: &mut Ground<'_>) {
        match progress {
            Progress::Waits => {}
            Progress::Next(sender, part) => self.ask(command, &sender, part, ground),
            Progress::Done(completion) => ground.out.done.push(completion),
        }
    }

    /// The engine has completed a command of this copy.
    pub(crate) fn completed(&mut self, completion: Completion) {
        self.copy.completed(completion);
    }

    /// The engine has answered an order of this copy.
    pub(crate) fn managed(
        &mut self,
        id: u64,
        answer: Result<ashlar_store::Managed, ashlar_block::IoError>,
    ) {
        self.copy.managed(id, answer);
    }

    /// The quorum has answered.
    pub(crate) fn answered(&mut self, ask: Ask, reply: Reply, ground: &mut Ground<'_>) {
        self.hear(Event::Answered { ask, reply }, ground);
    }

    /// A process of another node is certified dead.
    pub(crate) fn dead(&mut self, node: NodeId, incarnation: Incarnation, ground: &mut Ground<'_>) {
        if self.replica.follows() {
            self.cause = Cause::Death;
        }
        self.hear(Event::Dead { node, incarnation }, ground);
        self.died(node, incarnation, ground);
    }

    /// An operator wants to know whether copies in sync are equal.
    pub(crate) fn verify(&mut self, ground: &mut Ground<'_>) {
        self.hear(Event::Verify, ground);
    }

    /// An operator wants these copies.
    pub(crate) fn reseat(&mut self, wish: Wish, ground: &mut Ground<'_>) {
        self.hear(Event::Reseat(wish), ground);
    }

    /// An operator wants another owner.
    pub(crate) fn give(&mut self, to: Position, ground: &mut Ground<'_>) {
        self.hear(Event::Move { to }, ground);
    }

    /// Does what can be done now. Whether anything happened that the engine may have to follow.
    pub(crate) fn turn(&mut self, ground: &mut Ground<'_>) -> bool {
        if self.is_over {
            self.say_last_words(ground.now);
            return false;
        }
        let mut any = self.take_events(ground);
        for origin in std::mem::take(self.unlabelled.get_mut()) {
            self.hear(Event::LabelWanted { origin }, ground);
            any = true;
        }
        if ground.now >= self.wakes_at() {
            self.hear(Event::Tick, ground);
            self.dial(ground.now);
            self.tell_absent();
            let mut resyncs = std::mem::take(&mut self.resyncs);
            resyncs.look(ground.now, |at| self.seen(ground.engine, at));
            self.resyncs = resyncs;
            let by = self
                .follow
                .as_mut()
                .and_then(|follow| follow.look(ground.now));
            if let Some(by) = by {
                self.outside.tell(News::Elsewhere(by));
            }
            any = true;
        }
        any |= self.resume(ground);
        for _ in 0..ROUNDS {
            let Some(event) = self.copy.next_event() else {
                break;
            };
            self.hear(event, ground);
            any = true;
        }
        any |= self.end_direct(ground);
        self.flush(ground);
        self.tell_what_lacks();
        let failure = ground.engine.failure().or(self.copy.failure());
        let failure = failure.or(self.failure.as_deref());
        if let Some(why) = failure.map(str::to_owned) {
            self.end(why, ground);
        }
        any
    }

    /// The copy can do nothing more: others are told, and find out by its silence if that does not reach them.
    fn end(&mut self, why: String, ground: &mut Ground<'_>) {
        self.hear(Event::StoreFailed, ground);
        self.flush(ground);
        self.cease(ground);
        self.closes_at = Some(ground.now + LAST_WORDS);
        self.outside.tell(News::Failed(why));
    }

    /// Goes out of service.
    pub(crate) fn leave(&mut self, ground: &mut Ground<'_>) {
        self.close();
        self.cease(ground);
    }

    /// What hosts have asked for is theirs to ask again.
    fn cease(&mut self, ground: &mut Ground<'_>) {
        self.is_over = true;
        self.reserve.leave();
        for command in self.commands.end() {
            self.answer(command, Outcome::PathGone, ground);
        }
    }

    /// Whether commands are refused, because the copy has stopped.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// What has waited for buffers, or for its leaf.
    fn resume(&mut self, ground: &mut Ground<'_>) -> bool {
        let Ground {
            engine, out, now, ..
        } = ground;
        EngineLocal::new(engine, &mut self.copy, *now, out).resume()
    }

    /// When [`turn`](Self::turn) must be called next even if nothing happens.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        match self.is_over {
            true => self.closes_at,
            false => Some(self.wakes_at()),
        }
    }

    fn wakes_at(&self) -> Moment {
        if !self.unlabelled.borrow().is_empty() {
            return Moment::ORIGIN;
        }
        let wakes = self.replica.next_deadline();
        self.dials_at().map_or(wakes, |at| at.min(wakes))
    }

    fn take_events(&mut self, ground: &mut Ground<'_>) -> bool {
        let mut any = false;
        for _ in 0..ROUNDS {
            let Some(event) = self.port.next() else { break };
            let is_its = |peer: &Peer| peer.stream.as_ref().is_some_and(|s| s.key() == event.key);
            // Events of connections that are over come, too.
            let Some(index) = self.peers.iter().position(is_its) else {
                continue;
            };
            any = true;
            let Some((peer, stream)) = Position::new(index).zip(self.peers[index].stream.as_mut())
            else {
                continue;
            };
            let mut envelopes = std::mem::take(&mut self.envelopes);
            let result = match event.what {
                What::Received(result, frame, _) => stream.received(result, frame, &mut envelopes),
                What::Sent(result, batch) => stream.sent(result, batch),
                _ => Ok(()),
            };
            for envelope in envelopes.drain(..) {
                self.received(peer, envelope, ground);
            }
            self.envelopes = envelopes;
            if let Err(why) = result {
                self.lost(peer, why, ground);
            }
        }
        any
    }

    fn received(&mut self, from: Position, envelope: Envelope, ground: &mut Ground<'_>) {
        let hands_over = matches!(envelope.message, Message::Handoff);
        let is_of_owner = envelope.message.is_of_owner();
        self.hear(Event::Received { from, envelope }, ground);
        // Who is not followed yet has not served this copy.
        if is_of_owner && (hands_over || self.replica.follows()) {
            self.heard = Some(ground.now);
            self.cause = match hands_over {
                true => Cause::Move,
                false => Cause::Silence,
            };
        }
    }

    /// Gives the replica an event, and does what it asks for. Events that come of that are given to it afterwards: its
    /// messages are numbered in the order in which it has them sent.
    fn hear(&mut self, event: Event, ground: &mut Ground<'_>) {
        if self.is_over {
            return;
        }
        self.unheard.push_back(event);
        if std::mem::replace(&mut self.is_hearing, true) {
            return;
        }
        while let Some(event) = self.unheard.pop_front() {
            self.hear_one(event, ground);
        }
        self.is_hearing = false;
    }

    fn hear_one(&mut self, event: Event, ground: &mut Ground<'_>) {
        let mut effects = Vec::new();
        if self.plan.keeps_heads.load(Ordering::Relaxed) {
            self.replica.keep_heads();
        }
        let Ground {
            engine, out, now, ..
        } = ground;
        let local = &mut EngineLocal::new(engine, &mut self.copy, *now, out);
        let surroundings = Surroundings {
            now: *now,
            local,
            out: &mut effects,
        };
        self.replica.handle(event, surroundings);
        for effect in effects {
            self.carry_out(effect, ground);
        }
    }

    fn carry_out(&mut self, effect: Effect, ground: &mut Ground<'_>) {
        match effect {
            Effect::Send { to, envelope } => {
                // Without a connection it is lost with its session, as the protocol expects.
                if let Some(stream) = &mut self.peers[to.index()].stream {
                    self.tally.sent(to, stream.push(&envelope));
                }
            }
            Effect::Ask { ask, question } => self.outside.ask(ask, question),
            Effect::Answer { command, outcome } => self.answer(command, outcome, ground),
            // It does not: what is reserved is not known.
            Effect::Serves(_) if self.failure.is_some() => {}
            Effect::Serves(epoch) => {
                let failover = Failover {
                    cause: std::mem::take(&mut self.cause),
                    gap: self.heard.take().map(|at| ground.now.since(at)),
                };
                self.follow = Some(Follow::new(self.me, ground.now));
                let name = &self.plan.name;
                info!(
                    volume = name,
                    epoch = epoch.0,
                    "volume {name}: this node serves it from now on ({epoch}, {failover})"
                );
                self.outside.tell(News::Serves { epoch, failover });
            }
            Effect::Forwarded { by, command } => {
                if let Some(follow) = &mut self.follow {
                    follow.count(by);
                }
                self.forwarded(by, command, ground);
            }
            Effect::Isolated(is_so) => self.outside.tell(News::Isolated(is_so)),
            Effect::Forwards(is_open) => self.outside.tell(News::Forwards(is_open)),
            Effect::Proven(proof) => {
                let before = self.proof.as_ref().map_or(0, |known| known.asked);
                self.proof = Some(ProofView {
                    at: SystemTime::now(),
                    asked: before + u64::from(proof.is_asked),
                    proof,
                });
            }
            Effect::Register(register) => {
                if let Err(why) = self.reserve.learn(&register) {
                    self.failure = Some(why);
                }
            }
            Effect::Stops(epoch) => {
                self.reserve.forget();
                self.follow = None;
                self.proof = None;
                self.tally.term_ended();
                let name = &self.plan.name;
                info!(
                    volume = name,
                    epoch = epoch.0,
                    "volume {name}: this node does not serve it any more ({epoch})"
                );
                self.outside.tell(News::Stops(epoch));
            }
            Effect::LeavesOut {
                position,
                why: Why::Leaves,
            } => {
                let name = &self.plan.name;
                info!(
                    volume = name,
                    "volume {name}: {position} leaves the copies in sync: its node ends"
                );
            }
            Effect::LeavesOut { position, why } => {
                let name = &self.plan.name;
                warn!(
                    volume = name,
                    "volume {name}: {position} is to leave the copies in sync: {why}"
                );
            }
            Effect::Healed(extent) => {
                let name = &self.plan.name;
                warn!(
                    volume = name,
                    "volume {name}: {extent} could not be read here, was given by another copy, and is good again"
                );
            }
            Effect::Members {
                revision,
                members,
                size,
            } => {
                self.measure(revision, size, ground.now);
                self.seat(revision, members, ground);
            }
            Effect::Copied { to, extent } => {
                let bytes = u64::from(extent.count()) * GRANULE_BYTES;
                if self.tally.copied(to, bytes) {
                    let left = self.missing_bytes(ground.engine, to) + bytes;
                    self.outside.tell(News::Resync { to, left });
                }
            }
            Effect::InSync(positions) => {
                self.measure_own(ground.now);
                for at in positions.iter() {
                    if let Some(bytes) = self.tally.in_sync(at) {
                        self.outside.tell(News::Resynced { at, bytes });
                    }
                }
                self.outside.tell(News::InSync(positions));
            }
            // It has said that it failed, and is no candidate: with the room it comes back.
            Effect::LacksRoom => self.outside.tell(News::LacksRoom),
            Effect::Alarm(alarm) => self.outside.tell(News::Alarm(alarm)),
        }
    }

    fn flush(&mut self, ground: &mut Ground<'_>) {
        for index in 0..self.peers.len() {
            let Some(stream) = &mut self.peers[index].stream else {
                continue;
            };
            if let Err(why) = stream.flush(&self.port)
                && let Some(peer) = Position::new(index)
            {
                self.lost(peer, why, ground);
            }
        }
    }
}
