//! The world: what happens, in which order, and what must hold after it.

mod answers;
mod away;
mod commands;
mod draw;
mod ending;
mod epilogue;
mod growth;
mod havoc;
mod images;
mod rights;
mod seats;
mod shown;
mod steady;
mod stores;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use ashlar_block::Moment;
use ashlar_copy::LEAF_GRANULES;
use ashlar_nvme_target::Verdict;
use ashlar_replica::quorum::{Asked, MemoryQuorum, Question, Weather};
use ashlar_replica::{
    Alarm, Cage, Codec, CommandId, Config, Effect, Entry, Envelope, Epoch, Event, Frame,
    HostCommand, HostOperation, Incarnation, Key, Label, Limits, MemberId, Members, NodeId, Origin,
    Outcome, POWER_LOSS_WAIT, Position, Positions, REMOVE_AFTER, ReadMode, Registrant, ReplicaUuid,
    SessionId, Shape, ShardId, TICK, Token, VolumeId, WIRE_VERSION, Wish,
};
use bytes::Bytes;

use crate::chance::Chance;
use crate::cluster::backing::Backing;
use crate::cluster::check::{self, Seen};
use crate::cluster::faults::{self, Ambush, Blow, Fault, Occasion};
use crate::cluster::hosts::{self, Doing, Hosts, What, Writer};
use crate::cluster::model::{Model, Value};
use crate::cluster::node::{Clock, Node, Waiting};
use crate::cluster::pool::PoolStore;
use crate::cluster::profile::Profile;
use crate::cluster::report::Summary;
use crate::cluster::run::Strike;
use crate::cluster::store::{GRANULE_BYTES, Store};
use crate::cluster::wires::{Way, Wires};
use crate::report::{Listener, Trace};

use self::answers::Unanswered;
use self::ending::Ending;
pub(crate) use self::epilogue::Flip;
use self::epilogue::Stage;
use self::growth::Growths;
pub(crate) use self::rights::Asking;
use self::rights::Rights;
use self::seats::Wished;
use self::steady::{Calm, Step};

const VOLUME: VolumeId = VolumeId(1);
/// What a node that does not own the volume knows.
const NO_LABEL: Label = Label {
    epoch: 0,
    writes: 0,
};
/// How long a store takes, mostly.
const STORE_TIME: Duration = Duration::from_micros(600);
/// How long a process that was struck is away.
const STRUCK_FOR: Duration = Duration::from_millis(200);
/// How long everything may take after faults have ended.
const HEALING: Duration = Duration::from_secs(60);

/// Something that happens at a time.
#[derive(Debug)]
enum Happening {
    Tick {
        node: usize,
        life: u32,
    },
    Deliver {
        way: Way,
        bytes: Bytes,
    },
    Gone {
        node: usize,
        peer: usize,
    },
    Store {
        node: usize,
        life: u32,
        what: StoreStep,
    },
    Quorum,
    /// A host's association wants to know its label.
    LabelWanted {
        node: usize,
        origin: Origin,
    },
    /// A writer begins its next command.
    Next(usize),
    /// A command reaches a node.
    Command {
        node: usize,
        command: HostCommand,
    },
    /// The same, of one on reservations.
    Petition {
        node: usize,
        petition: Asking,
    },
    /// An answer reaches a host.
    Answer {
        attempt: CommandId,
        outcome: Outcome,
    },
    /// The same, to one on reservations.
    Verdict {
        attempt: CommandId,
        verdict: Verdict,
    },
    /// A host gives an attempt up.
    Timeout(CommandId),
    /// A host tries again.
    Again(usize),
    Fault(Fault),
    /// What a fault did ends.
    Over(Fault),
    Dead {
        node: usize,
        of: usize,
        incarnation: Incarnation,
    },
    /// A process is told to end in order.
    End(usize),
    /// It goes on with that.
    Ends(Ending),
    /// What it has asked another node for arrives.
    Leaves {
        node: usize,
        of: usize,
        incarnation: Incarnation,
    },
    /// Copies in sync are compared.
    Verify(usize),
    /// An operator has a node hand over.
    Give {
        node: usize,
        to: Position,
    },
    /// A world in which nothing fails goes on.
    Steady(Step),
    /// A world without a quorum goes on.
    Away(away::Step),
    /// An operator takes a node's copy away.
    Unseat(usize),
    /// An operator looks who has none.
    Operate,
    /// An operator goes on to make the volume larger.
    Grow,
    /// A copy from before the volume grew begins anew.
    Enlarge(usize),
    /// Faults end.
    Heal,
}

#[derive(Clone, Copy, Debug)]
enum StoreStep {
    Tear(Token),
    Finish(Token),
    /// A store that knows itself how long things take has something to do.
    Advance,
}

#[derive(Debug)]
struct Due {
    at: Moment,
    turn: u64,
    what: Happening,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.turn) == (other.at, other.turn)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.turn).cmp(&(other.at, other.turn))
    }
}

/// A cluster, its hosts, and what befalls them.
pub(crate) struct World<'a> {
    now: Moment,
    due: BinaryHeap<Reverse<Due>>,
    turns: u64,
    chance: Chance,
    trace: Trace<'a>,
    nodes: Vec<Node>,
    wires: Wires,
    quorum: MemoryQuorum,
    quorum_at: Option<Moment>,
    is_silent: bool,
    /// How long a question takes to the quorum, mostly.
    quorum_time: Duration,
    /// Of a thousand commands, those that are late.
    late_commands: u32,
    ambushes: Vec<Ambush>,
    hosts: Hosts,
    unanswered: Unanswered,
    /// Reservations, if hosts have any.
    rights: Option<Rights>,
    model: Model,
    seen: Seen,
    /// What operators have wanted of nodes.
    wishes: Vec<Wished>,
    /// How large the volume is to become.
    growths: Growths,
    heals_at: Moment,
    has_healed: bool,
    /// No process starts before.
    dark_until: Moment,
    /// What has befallen it so far is over then.
    fails_until: Moment,
    /// Blocks are lost at several copies at once.
    spoils_all: bool,
    stage: Stage,
    /// What must stay as it is.
    steady: Option<Calm>,
    /// While the quorum is away.
    left: away::Left,
    /// At which steps processes die, the last first.
    strikes: Vec<Strike>,
    summary: Summary,
}

fn position(index: usize) -> Position {
    Position::new(index).unwrap_or_default()
}

impl World<'_> {
    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
        self.trace.say(self.now, what);
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            micros: self.now.as_nanos() / 1000,
            events: self.turns,
            ..self.summary
        }
    }

    fn at(&mut self, after: Duration, what: Happening) {
        self.turns += 1;
        let (at, turn) = (self.now + after, self.turns);
        self.due.push(Reverse(Due { at, turn, what }));
    }

    /// Lives until everything is done.
    pub(crate) fn live(&mut self) -> Result<(), String> {
        while let Some(Reverse(due)) = self.due.pop() {
            self.now = self.now.max(due.at);
            if self.now > self.heals_at + HEALING {
                return Err(self.stuck());
            }
            if matches!(
                due.what,
                Happening::Deliver { .. } | Happening::Store { .. }
            ) {
                self.step()?;
            }
            self.happen(due.what)?;
            self.check()?;
            if self.has_healed && self.is_at_end()? {
                return Ok(());
            }
        }
        Err("nothing happens any more".into())
    }

    /// Processes die at these steps, and others start soon.
    pub(crate) fn strike_at(&mut self, strikes: &[Strike]) {
        self.strikes = strikes.to_vec();
        self.strikes
            .sort_unstable_by_key(|strike| Reverse(strike.step));
    }

    fn step(&mut self) -> Result<(), String> {
        if self.stage != Stage::Lives {
            return Ok(());
        }
        let step = self.summary.steps;
        self.summary.steps += 1;
        while let Some(strike) = self.strikes.pop_if(|strike| strike.step <= step) {
            self.say(|| format!("{strike:?}"));
            self.befall(Fault::Crash {
                node: strike.node,
                lasts: STRUCK_FOR,
                is_certified: step.is_multiple_of(2),
            })?;
        }
        Ok(())
    }

    fn happen(&mut self, what: Happening) -> Result<(), String> {
        match what {
            Happening::Tick { node, life } => {
                if self.nodes[node].life == life && self.nodes[node].replica.is_some() {
                    if self.nodes[node].is_due(self.now) {
                        self.handle(node, Event::Tick)?;
                    }
                    self.at(TICK, Happening::Tick { node, life });
                }
                Ok(())
            }
            Happening::Deliver { way, bytes } => {
                let envelope = received(&bytes)?;
                self.say(|| format!("{way:?} {envelope:?}"));
                self.summary.messages += 1;
                let from = position(way.from);
                self.handle(way.to, Event::Received { from, envelope })
            }
            Happening::Gone { node, peer } => {
                let peer = position(peer);
                self.handle(node, Event::PeerGone { peer })
            }
            Happening::Store { node, life, what } => self.store_step(node, life, what),
            Happening::Quorum => self.poll_quorum(),
            Happening::LabelWanted { node, origin } => {
                self.handle(node, Event::LabelWanted { origin })
            }
            Happening::Next(writer) => {
                if self.hosts.begin(writer, &mut self.model, &mut self.chance) {
                    self.hosts.note(&self.model);
                    self.attempt(writer);
                }
                Ok(())
            }
            // It arrives even if its host has given it up.
            Happening::Command { node, command } => self.handle(node, Event::Host(command)),
            Happening::Petition { node, petition } => self.petition(node, petition),
            Happening::Verdict { attempt, verdict } => self.decided(attempt, verdict),
            Happening::Answer { attempt, outcome } => self.answered(attempt, outcome),
            Happening::Timeout(attempt) => {
                if let Some(writer) = self.hosts.whose(attempt) {
                    self.say(|| format!("writer {writer} gives {attempt} up"));
                    self.try_again(writer, Duration::from_millis(1));
                }
                Ok(())
            }
            Happening::Again(writer) => {
                self.attempt(writer);
                Ok(())
            }
            Happening::Fault(fault) => {
                if !self.has_healed {
                    self.summary.faults += 1;
                    self.say(|| format!("FAULT {fault:?}"));
                    return self.befall(fault);
                }
                Ok(())
            }
            Happening::Over(fault) => self.over(fault),
            Happening::Dead {
                node,
                of,
                incarnation,
            } => {
                let dead = &self.nodes[of].config;
                let is_newest = dead.incarnation == incarnation;
                let event = Event::Dead {
                    node: dead.node,
                    incarnation,
                };
                self.handle(node, event)?;
                // What answers from a newer process is not dead; and of some no connection was known, so that their end
                // is found out by silence.
                match is_newest && incarnation.0.is_multiple_of(2) {
                    true => self.handle(node, Event::PeerDied { peer: position(of) }),
                    false => Ok(()),
                }
            }
            Happening::End(node) => self.end(node),
            Happening::Ends(ending) => self.goes_on_ending(ending),
            Happening::Leaves {
                node,
                of,
                incarnation,
            } => match self.nodes[of].config.incarnation == incarnation {
                true => self.handle(node, Event::PeerLeaves { peer: position(of) }),
                // The connection is to a newer process.
                false => Ok(()),
            },
            Happening::Verify(node) => self.handle(node, Event::Verify),
            Happening::Give { node, to } => self.handle(node, Event::Move { to }),
            Happening::Steady(step) => self.steady(step),
            Happening::Away(step) => self.away(step),
            Happening::Unseat(node) => self.unseat(node),
            Happening::Operate => self.operate(),
            Happening::Grow => self.grow(),
            Happening::Enlarge(node) => {
                if self.crash(node) {
                    self.start(node);
                }
                Ok(())
            }
            Happening::Heal => self.heal(),
        }
    }

    /// A node's process looks at an event, at once or when it goes on.
    fn handle(&mut self, node: usize, event: Event) -> Result<(), String> {
        if self.nodes[node].replica.is_none() {
            return Ok(());
        }
        if self.nodes[node].is_stopped {
            self.nodes[node].waiting.push_back(Waiting::Event(event));
            return Ok(());
        }
        self.tell(node, event)?;
        self.advance_store(node)
    }

    /// A node's process looks at an event, and what it wants is done.
    fn tell(&mut self, node: usize, event: Event) -> Result<(), String> {
        let mut out = Vec::new();
        self.note_command(node, &event);
        match self.refusal(node, &event) {
            Some(refusal) => out.push(refusal),
            None => self.nodes[node].handle(self.now, event, &mut out),
        }
        self.look_at_stores(node);
        for effect in out {
            self.carry_out(node, effect)?;
        }
        self.decide(node)?;
        check::reader(&self.nodes[node], &mut self.model, self.now)?;
        self.hosts.note(&self.model);
        Ok(())
    }

    fn carry_out(&mut self, node: usize, effect: Effect) -> Result<(), String> {
        match effect {
            Effect::Send { to, envelope } => {
                let to = to.index();
                let way = Way { from: node, to };
                let name = envelope.message.name();
                self.lie_in_wait(Occasion::Message(name), node, to);
                let arrives = self
                    .wires
                    .arrives(way, &envelope, self.now, &mut self.chance);
                match arrives {
                    Some(at) => {
                        let after = at - self.now;
                        let bytes = sent(&envelope);
                        self.at(after, Happening::Deliver { way, bytes });
                    }
                    None => self.say(|| format!("{way:?} lost: {envelope:?}")),
                }
            }
            Effect::Ask { ask, question } => {
                self.say(|| format!("node {node} asks the quorum: {ask} {question:?}"));
                let each_way = Duration::from_micros(200) + self.chance.time(self.quorum_time);
                self.look_at_question(node, &question);
                self.look_at_wishes(node, &question)?;
                let silent = if self.is_silent { 400 } else { 0 };
                let isolated = self.nodes[node].is_isolated;
                let weather = Weather {
                    is_question_lost: isolated || self.chance.happens(silent),
                    is_answer_lost: self.chance.happens(silent),
                    ..Weather::fair(each_way)
                };
                let asked = Asked {
                    client: node,
                    ask,
                    volume: VOLUME,
                    question,
                };
                self.quorum.ask(self.now, asked, weather);
                self.schedule_quorum();
            }
            Effect::Answer { command, outcome } => self.answer(node, command, outcome)?,
            Effect::Serves(epoch) => {
                self.summary.epochs += 1;
                self.say(|| format!("node {node} serves {epoch}"));
            }
            Effect::Forwarded { by, command } => {
                self.summary.forwarded += 1;
                if let Some(event) = self.judged(node, by, command) {
                    self.handle(node, event)?;
                }
            }
            Effect::Isolated(is_so) => self.say(|| format!("node {node} is isolated: {is_so}")),
            Effect::Forwards(is_open) => self.say(|| format!("node {node} forwards: {is_open}")),
            Effect::Register(bytes) => self.register_read(node, &bytes)?,
            Effect::Stops(epoch) => {
                self.nodes[node].knows_register = false;
                self.forget_rights(node);
                self.say(|| format!("node {node} stops {epoch}"));
            }
            Effect::LeavesOut { position, why } => {
                self.say(|| format!("node {node} leaves {position} out: {why}"));
            }
            Effect::Healed(extent) => {
                self.summary.healed += 1;
                self.say(|| format!("node {node}: {extent} is good again"));
            }
            Effect::Members { .. } | Effect::Copied { .. } => {}
            Effect::LacksRoom => self.lacks_room(node)?,
            Effect::InSync(in_sync) => {
                self.say(|| format!("node {node}: in sync are {in_sync:?}"));
            }
            Effect::Alarm(alarm) => self.alarmed(node, &alarm)?,
            Effect::Proven(proof) => {
                self.summary.leaves += proof.leaves;
                self.proven(node, proof.compared);
            }
        }
        Ok(())
    }

    /// What an owner goes on with stays seen.
    fn register_read(&mut self, node: usize, bytes: &[u8]) -> Result<(), String> {
        self.nodes[node].knows_register = true;
        let register = self.hosts.shape().register;
        self.say(|| format!("node {node} has read the register: {bytes:?}"));
        let word = bytes.first_chunk::<GRANULE_BYTES>();
        let word = word.ok_or_else(|| format!("the register has {} bytes", bytes.len()))?;
        let value = Value::from_le_bytes(*word);
        self.settle_register();
        let seen = self.model.seen(register as usize, value);
        seen.map_err(|what| format!("node {node} goes on with the register: {what}"))?;
        self.learn(node, value)
    }

    fn schedule_quorum(&mut self) {
        if let Some(at) = self.quorum.next_deadline()
            && self.quorum_at.is_none_or(|planned| at < planned)
        {
            self.quorum_at = Some(at);
            let after = at - self.now;
            self.at(after, Happening::Quorum);
        }
    }

    fn poll_quorum(&mut self) -> Result<(), String> {
        self.quorum_at = None;
        let mut answers = Vec::new();
        self.quorum.poll(self.now, &mut answers);
        self.read_key()?;
        for (node, answer) in answers {
            self.say(|| format!("quorum answers node {node}: {answer:?}"));
            let (ask, reply) = (answer.ask, answer.reply);
            self.handle(node, Event::Answered { ask, reply })?;
        }
        self.schedule_quorum();
        Ok(())
    }

    fn read_key(&mut self) -> Result<(), String> {
        let Some(held) = self.quorum.look(VOLUME) else {
            return Err("the key is gone".into());
        };
        if held.revision != self.seen.revision {
            let key = Key::decode(&held.value).map_err(|why| why.to_string())?;
            if key.in_sync.count() > self.seen.key.in_sync.count() {
                self.summary.adds += 1;
            }
            let before = self.seen.key.in_sync;
            let owner = key.position(key.owner.node).map_or(0, Position::index);
            for node in &mut self.nodes {
                node.look_at_key(&key);
                node.is_new &= !key.is_in_sync(node.config.position, node.member());
            }
            let since = match key.in_sync == before {
                true => self.seen.since,
                false => self.now,
            };
            self.seen = Seen::new(held.revision, key, since);
            let other = (owner + 1) % self.nodes.len();
            self.lie_in_wait(Occasion::Swapped, owner, other);
            let key = &self.seen.key;
            let line = format!(
                "STORE {} owner {:?} in sync {:?} of {:?}",
                key.epoch,
                key.owner,
                key.in_sync,
                key.everybody()
            );
            self.say(|| line);
            self.look_at_calm(before)?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), String> {
        let mut troubles = self.nodes.iter().filter_map(|node| node.trouble.as_ref());
        if let Some(trouble) = troubles.next() {
            return Err(trouble.clone());
        }
        check::ownership(&self.nodes, self.now)?;
        if self.seen.is_stale(&self.nodes, &self.model) {
            let flip = self.flip();
            check::copies(&self.nodes, &self.model, &self.seen.key, flip)?;
        }
        Ok(())
    }

    /// Whether all is done, and all copies are in sync, quiet and equal.
    fn is_over(&self) -> Result<bool, String> {
        let all = Positions::first(self.nodes.len());
        if !self.hosts.are_done() || !self.growths.are_done() || self.seen.key.in_sync != all {
            return Ok(false);
        }
        let settled = |node: &Node| {
            let quiet =
                node.store.is_quiet() && ashlar_replica::Local::uncertain(&node.store).is_empty();
            quiet && node.store.entry().absent.is_empty() && node.runs()
        };
        if !self.nodes.iter().all(settled) || !self.unanswered().is_empty() {
            return Ok(false);
        }
        let first = self.nodes[0].store.content();
        match self
            .nodes
            .iter()
            .position(|node| node.store.content() != first)
        {
            None => Ok(true),
            Some(other) => Err(format!("quiet copies of nodes 0 and {other} differ")),
        }
    }
}

const CODEC: Codec = Codec {
    granule_bytes: GRANULE_BYTES as u32,
    version: WIRE_VERSION,
};

/// What goes over a wire.
fn sent(envelope: &Envelope) -> Bytes {
    let encoded = CODEC.encode(envelope);
    [&encoded.head[..], &encoded.data[..]].concat().into()
}

fn received(bytes: &Bytes) -> Result<Envelope, String> {
    match CODEC.decode(bytes) {
        Ok(Frame::Whole {
            envelope,
            bytes: used,
        }) if used == bytes.len() => Ok(envelope),
        other => Err(format!("a message arrived as {other:?}")),
    }
}

fn back(way: Way) -> Way {
    Way {
        from: way.to,
        to: way.from,
    }
}
