//! An owner whose store does everything at once, and copies that say what the test has them say.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ashlar_block::{AssociationId, ErrorKind, HostId, IoError, Moment, Registrant};
use bytes::Bytes;

use crate::canary::Cage;
use crate::event::{
    Alarm, Config, Effect, Event, Growth, HostCommand, HostOperation, Limits, Outcome, Proof,
    ReadMode, Shape, Wish,
};
use crate::extent::{Extent, ExtentSet};
use crate::fence::Origin;
use crate::heads::{Heads, Mark};
use crate::ids::{
    CommandId, Epoch, Head, Incarnation, Known, Leaf, NodeId, Position, Positions, ReplicaUuid,
    SessionId, ShardId, Token, VolumeId,
};
use crate::key::{Key, MemberId, Members, OwnerId, Size};
use crate::leaves::Leaves;
use crate::local::{Entry, EntryChange, Imported, Local, OwnPlane, Tag};
use crate::message::{Attach, Content, Envelope, Join, Message, RecordKind, Refusal};
use crate::quorum::{Asked, Held, MemoryQuorum, Question, Reply, Weather};
use crate::replica::{Replica, Surroundings, TICK};

mod backlog;
mod backup;
mod died;
mod direct;
mod exact;
mod giving;
mod heads;
mod heal;
mod leaving;
mod lost;
mod pacing;
mod runs;
mod unreadable;

const VOLUME: VolumeId = VolumeId(1);
const GRANULES: u64 = 64;
/// Beyond what a process waits after its start.
const LONG: Duration = Duration::from_secs(4);

fn at(index: usize) -> Position {
    Position::new(index).expect("a position")
}

fn member(n: u8) -> MemberId {
    MemberId {
        node: NodeId(u32::from(n)),
        replica: ReplicaUuid([n; 16]),
    }
}

fn attach() -> Attach {
    attach_of(at(1))
}

fn attach_of(position: Position) -> Attach {
    Attach {
        has_fetch: true,
        uuid: member(position.index() as u8).replica,
        own: ExtentSet::new(),
        free: 1 << 40,
        head: Head(0),
        heads: Heads::default(),
    }
}

fn lost_block() -> IoError {
    IoError::new(ErrorKind::Corrupt, "a block is lost")
}

/// It does everything at once, or one after the other, and holds zeroes.
struct Model {
    events: Vec<Event>,
    /// Leaves that it says are not written.
    unwritten: u32,
    /// What the other copy misses.
    missing: ExtentSet,
    uncertain: ExtentSet,
    /// Nothing can be read until it was written without a tag, and what is right.
    is_bad: bool,
    good: Content,
    /// It cannot tell whether something is right.
    tells_nothing: bool,
    /// It takes nothing any more.
    is_full: bool,
    /// What cannot be read until it was written, and how often it was tried.
    lost: ExtentSet,
    lost_reads: usize,
    /// What stays uncertain by its account, how often it was told so, and whether changes of that take for ever.
    kept: ExtentSet,
    keeps: usize,
    keeps_nothing: bool,
    /// What it takes to find that out.
    lost_takes: Duration,
    /// Leaves of which it cannot tell what they hold.
    untold: ExtentSet,
    /// What a granule takes, if it takes something.
    takes: Duration,
    now: Moment,
    busy_until: Moment,
    later: VecDeque<(Moment, Event)>,
    /// How far it has come, and what it was given to remember of others.
    head: u64,
    remembered: Vec<Heads>,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            unwritten: 0,
            missing: ExtentSet::new(),
            uncertain: ExtentSet::new(),
            is_bad: false,
            good: Content::Zeroes,
            tells_nothing: false,
            is_full: false,
            lost: ExtentSet::new(),
            lost_reads: 0,
            kept: ExtentSet::new(),
            keeps: 0,
            keeps_nothing: false,
            lost_takes: Duration::ZERO,
            untold: ExtentSet::new(),
            takes: Duration::ZERO,
            now: Moment::ORIGIN,
            busy_until: Moment::ORIGIN,
            later: VecDeque::new(),
            head: 0,
            remembered: Vec::new(),
        }
    }
}

impl Model {
    fn ends(&mut self, granules: u32, event: Event) {
        self.ends_after(self.takes * granules, event);
    }

    fn ends_after(&mut self, takes: Duration, event: Event) {
        if takes.is_zero() {
            return self.events.push(event);
        }
        self.busy_until = self.busy_until.max(self.now) + takes;
        self.later.push_back((self.busy_until, event));
    }
}

impl Local for Model {
    fn apply(&mut self, token: Token, extent: Extent, content: Content, tag: Option<Tag>) {
        if self.is_full {
            let result = Err(IoError::new(ErrorKind::NoSpace, "full"));
            return self.ends(extent.count(), Event::Applied { token, result });
        }
        self.is_bad &= tag.is_some() || content != self.good;
        self.head += 1;
        self.lost.remove(extent);
        let result = Ok(());
        self.ends(extent.count(), Event::Applied { token, result });
    }
    fn read(&mut self, token: Token, extent: Extent) {
        let is_lost = self.lost.overlaps(extent);
        self.lost_reads += usize::from(is_lost);
        if self.is_bad || is_lost {
            let result = Err(lost_block());
            let takes = self.takes * extent.count() + self.lost_takes;
            return self.ends_after(takes, Event::Read { token, result });
        }
        let data = Bytes::from(vec![0; extent.count() as usize]);
        let result = Ok(data);
        self.ends(extent.count(), Event::Read { token, result });
    }
    fn persist(&mut self, token: Token, change: EntryChange) {
        if let OwnPlane::Keep(these) = change.own {
            self.keeps += 1;
            if self.keeps_nothing {
                return;
            }
            self.kept = these;
        }
        self.events.push(Event::Persisted { token });
    }
    fn digest(&mut self, token: Token, extent: Extent) {
        let result = match self.untold.overlaps(extent) {
            true => Err(lost_block()),
            false => Ok(7),
        };
        self.events.push(Event::Digested { token, result });
    }
    fn matches(&self, _: Extent, content: &Content) -> Option<bool> {
        (!self.tells_nothing).then_some(*content == self.good)
    }
    fn unwritten(&self, _: Leaf, most: u32) -> u32 {
        most.min(self.unwritten)
    }
    fn learn(&mut self, _: Known) {}
    fn uncertain(&self) -> ExtentSet {
        self.uncertain.clone()
    }
    fn plane(&self, _: Position) -> ExtentSet {
        self.missing.clone()
    }
    fn mark(&mut self, _: Position, _: Extent) {}
    fn clear(&mut self, _: Position, _: Extent) {}
    fn head(&mut self) -> Head {
        Head(self.head)
    }
    fn remember(&mut self, heads: Heads) {
        self.remembered.push(heads);
    }
    fn is_drained(&self) -> bool {
        true
    }
    fn free(&self) -> u64 {
        1 << 40
    }
}

/// What is different from one rig to another.
struct Plan {
    epoch: Epoch,
    granules: u64,
    missing: ExtentSet,
    limits: Limits,
    in_sync: Positions,
    uncertain: ExtentSet,
    copies: u8,
    /// How far this copy has come, and what it has heard.
    head: u64,
    heads: Heads,
    /// All nodes have agreed that counts are kept.
    is_agreed: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            epoch: Epoch(1),
            granules: GRANULES,
            missing: Extent::new(0, GRANULES as u32).into_iter().collect(),
            limits: Limits::default(),
            in_sync: Positions::first(1),
            uncertain: ExtentSet::new(),
            copies: 2,
            head: 0,
            heads: Heads::default(),
            is_agreed: true,
        }
    }
}

/// The owner at position 0, of two copies; or of three.
struct Rig {
    replica: Replica,
    local: Model,
    quorum: MemoryQuorum,
    now: Moment,
    /// What it has said to the other copy.
    said: Vec<Envelope>,
    answers: Vec<Outcome>,
    alarms: Vec<Alarm>,
    proofs: Vec<Proof>,
    /// What the other copy has got, of what it missed.
    copied: Vec<Extent>,
    /// What is uncertain at the other copy.
    uncertain_there: ExtentSet,
    /// How far the other copy claims to have come, and what it has heard of others.
    head_there: Head,
    heads_there: Heads,
    /// A leaf that the other copy does not have as it should.
    differs: Option<Leaf>,
    /// By session: with whom it is, and the number of that copy's next message.
    sessions: BTreeMap<SessionId, (Position, u32)>,
    /// Who is absent, as the other copy was told last.
    told: Positions,
    /// Who answers nothing, and who sends no digests.
    silent: Positions,
    proves_not: Positions,
    /// A leaf whose digest none sends.
    never_told: Option<Leaf>,
    /// The quorum is out of space: it answers, and takes no changes.
    is_full: bool,
    swaps: u32,
    /// How long a question is on its way to the quorum, and its answer.
    question_takes: Duration,
}

impl Rig {
    fn new() -> Self {
        Self::after(Epoch(1))
    }

    fn after(epoch: Epoch) -> Self {
        Self::of(Plan {
            epoch,
            ..Plan::default()
        })
    }

    fn of(plan: Plan) -> Self {
        let is_alone = plan.in_sync == Positions::first(1);
        let mut rig = Self::begin(plan);
        rig.pass(LONG);
        assert_eq!(rig.replica.is_serving(), is_alone);
        rig
    }

    fn begin(plan: Plan) -> Self {
        let epoch = plan.epoch;
        let key = Key {
            epoch,
            owner: OwnerId {
                node: member(0).node,
                incarnation: Incarnation(0),
            },
            in_sync: plan.in_sync,
            members: Members::first((0..plan.copies).map(member)).expect("few"),
            forced: 0,
            size: None,
        };
        let mut quorum = MemoryQuorum::new(1);
        quorum.put(VOLUME, key.encode());
        let config = Config {
            volume: VOLUME,
            shard: ShardId(0),
            node: member(0).node,
            incarnation: Incarnation(1),
            position: at(0),
            uuid: member(0).replica,
            shape: Shape::new(plan.granules, 8),
            reads: ReadMode::Leased,
            limits: plan.limits,
            cage: Cage::default(),
        };
        let imported = Imported {
            entry: Entry {
                promised: epoch,
                session: SessionId(0),
                absent: Positions::first(plan.copies.into()).minus(plan.in_sync),
            },
            is_old_image: false,
            size: None,
            head: Head(plan.head),
            heads: plan.heads,
        };
        let now = Moment::from_nanos(1_000_000_000);
        let mut replica = Replica::new(config, imported, now);
        if plan.is_agreed {
            replica.keep_heads();
        }
        Self {
            replica,
            local: Model {
                missing: plan.missing,
                uncertain: plan.uncertain,
                head: plan.head,
                ..Model::default()
            },
            quorum,
            now,
            said: Vec::new(),
            answers: Vec::new(),
            alarms: Vec::new(),
            proofs: Vec::new(),
            copied: Vec::new(),
            uncertain_there: ExtentSet::new(),
            head_there: Head(0),
            heads_there: Heads::default(),
            differs: None,
            sessions: BTreeMap::new(),
            told: Positions::NONE.with(at(1)),
            silent: Positions::NONE,
            proves_not: Positions::NONE,
            never_told: None,
            is_full: false,
            swaps: 0,
            question_takes: Duration::from_micros(1),
        }
    }

    fn handle(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut out = Vec::new();
            let (now, local) = (self.now, &mut self.local);
            local.now = now;
            let out_of = &mut out;
            self.replica.handle(
                event,
                Surroundings {
                    now,
                    local,
                    out: out_of,
                },
            );
            events.append(&mut self.local.events);
            for effect in out {
                match effect {
                    Effect::Send { to, envelope } => {
                        self.sessions.entry(envelope.session).or_insert((to, 0));
                        self.said.push(envelope);
                    }
                    Effect::Answer { outcome, .. } => self.answers.push(outcome),
                    Effect::Alarm(alarm) => self.alarms.push(alarm),
                    Effect::Proven(proof) => self.proofs.push(proof),
                    Effect::Copied { extent, .. } => self.copied.push(extent),
                    Effect::Ask { ask, question } => {
                        let is_swap = matches!(question, Question::Swap { .. });
                        self.swaps += u32::from(is_swap);
                        if is_swap && self.is_full {
                            let reply = Reply::Unknown;
                            events.push(Event::Answered { ask, reply });
                            continue;
                        }
                        let fair = Weather::fair(self.question_takes);
                        let asked = Asked {
                            client: 0,
                            ask,
                            volume: VOLUME,
                            question,
                        };
                        self.quorum.ask(self.now, asked, fair);
                    }
                    _ => {}
                }
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + TICK;
            let mut answers = Vec::new();
            self.quorum.poll(self.now, &mut answers);
            for (_, answer) in answers {
                let (ask, reply) = (answer.ask, answer.reply);
                self.handle(Event::Answered { ask, reply });
            }
            self.pass_to_store();
            self.handle(Event::Tick);
        }
    }

    /// What the store has done by now.
    fn pass_to_store(&mut self) {
        while let Some((_, event)) = self.local.later.pop_front_if(|(at, _)| *at <= self.now) {
            self.handle(event);
        }
    }

    /// The other copy says something in the newest session.
    fn hear(&mut self, message: Message) {
        let join = |said: &&Envelope| matches!(said.message, Message::Join(_));
        let join = self.said.iter().rfind(join).expect("a session").clone();
        self.hear_in(&join, message);
    }

    /// The same, in the session of something that was said.
    fn hear_in(&mut self, said: &Envelope, message: Message) {
        let (from, next) = self.sessions.get_mut(&said.session).expect("a session");
        let (from, number) = (*from, *next);
        *next += 1;
        let envelope = Envelope {
            number,
            message,
            ..said.clone()
        };
        self.handle(Event::Received { from, envelope });
    }

    fn attach(&mut self) {
        self.hear(Message::Attach(attach()));
    }

    fn write(&mut self, granule: u64) {
        self.write_some(Extent::new(granule, 1).expect("an extent"));
    }

    fn write_some(&mut self, extent: Extent) {
        self.write_content(extent, Content::Zeroes);
    }

    fn write_content(&mut self, extent: Extent, content: Content) {
        let origin = Origin {
            host: HostId(1),
            association: AssociationId(1),
        };
        let label = self.replica.label(origin).expect("the owner's");
        let operation = HostOperation::Write {
            extent,
            content,
            origin,
            label,
        };
        self.handle(Event::Host(HostCommand {
            command: CommandId(extent.first() + 1),
            registrant: Registrant::default(),
            operation,
        }));
    }
}

/// A copy that attaches twice in one session must not leave ranges locked that no session holds.
#[test]
fn a_second_attach_ends_the_session_and_its_copies_leave_their_ranges() {
    let mut rig = Rig::new();
    rig.attach();
    let copies = |rig: &Rig| {
        let is_copy = |said: &&Envelope| matches!(said.message, Message::Copy { .. });
        rig.said.iter().filter(is_copy).count()
    };
    assert!(copies(&rig) > 0, "it is given what it has missed");
    rig.attach();
    rig.handle(Event::PeerGone { peer: at(1) });
    (0..GRANULES - 1).for_each(|granule| rig.write(granule));
    let written = rig.answers.iter().filter(|one| **one == Outcome::Written);
    assert_eq!(written.count() as u64, GRANULES - 1);
}

#[test]
fn an_owner_forgets_where_a_host_that_writes_no_more_has_written() {
    let mut rig = Rig::new();
    let remembers = |rig: &Rig| rig.replica.owner().map(|owner| owner.fence.remembers());
    rig.write(0);
    assert_eq!(remembers(&rig), Some(1));
    rig.pass(Duration::from_secs(4));
    assert_eq!(remembers(&rig), Some(0));
}

impl Rig {
    /// The other copy takes what it is given, and says what it is asked, for a while.
    fn obey(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.other_answers();
            self.pass(TICK);
        }
    }

    fn digest(&self, leaves: Leaves) -> u128 {
        let differs = self
            .differs
            .is_some_and(|it| leaves.iter().any(|leaf| leaf == it));
        7 + u128::from(differs)
    }

    fn other_answers(&mut self) {
        let said = std::mem::take(&mut self.said);
        // Sessions are numbered one after the other, over all positions.
        let newest: BTreeMap<Position, SessionId> = self
            .sessions
            .iter()
            .map(|(id, (with, _))| (*with, *id))
            .collect();
        for said in said {
            let (with, _) = self.sessions[&said.session];
            if said.session != newest[&with] || self.silent.has(with) {
                continue;
            }
            if matches!(said.message, Message::Join(_)) {
                let answer = match self.in_sync().has(with) {
                    true => Message::Joined(Attach {
                        own: self.uncertain_there.clone(),
                        head: self.head_there,
                        heads: self.heads_there,
                        ..attach_of(with)
                    }),
                    false => Message::Attach(attach_of(with)),
                };
                self.hear_in(&said, answer);
                continue;
            }
            let answer = match &said.message {
                Message::Copy { copy, extent, .. } => {
                    let first = Leaf(extent.first() / 8);
                    self.differs = self.differs.filter(|leaf| *leaf != first);
                    Message::CopyAck { copy: *copy }
                }
                Message::DigestAsk { .. } if self.proves_not.has(with) => continue,
                Message::DigestAsk { leaves, .. }
                    if leaves.iter().any(|leaf| Some(leaf) == self.never_told) =>
                {
                    continue;
                }
                Message::DigestAsk { copy, leaves, .. } => Message::Digest {
                    copy: *copy,
                    digest: self.digest(*leaves),
                },
                Message::GrantAsk { nonce, .. } => Message::Grant {
                    nonce: *nonce,
                    free: 1 << 40,
                    head: self.head_there,
                },
                Message::Record(record) => Message::Ack {
                    sequence: record.sequence,
                },
                Message::Entry { absent } => {
                    self.told = *absent;
                    continue;
                }
                _ => continue,
            };
            self.hear_in(&said, answer);
        }
    }

    fn stored(&self) -> Held {
        self.quorum.look(VOLUME).expect("a key").clone()
    }

    fn in_sync(&self) -> Positions {
        Key::decode(&self.stored().value).expect("a key").in_sync
    }
}

/// A candidate, and an owner that leaves a silent copy out.
#[test]
fn a_quorum_without_space_is_asked_now_and_then_and_at_once_when_it_has_some() {
    let mut rig = Rig::begin(Plan {
        epoch: Epoch(1),
        ..Plan::default()
    });
    rig.is_full = true;
    rig.pass(LONG);
    assert!((2..25).contains(&rig.swaps), "{} of a candidate", rig.swaps);
    rig.is_full = false;
    rig.pass(LONG);
    assert!(rig.replica.is_serving());
    rig.obey(LONG);
    assert_eq!(rig.in_sync(), Positions::first(2), "added");
    (rig.is_full, rig.swaps) = (true, 0);
    rig.write(1);
    rig.pass(LONG * 2);
    assert!((5..15).contains(&rig.swaps), "{} of an owner", rig.swaps);
    rig.is_full = false;
    rig.pass(LONG / 2);
    assert_eq!(rig.in_sync(), Positions::first(1), "silent, and left out");
}

/// What may have come back as it was at another time is compared in full before it is given anything.
#[test]
fn a_copy_whose_session_ends_meanwhile_is_not_proven() {
    let mut rig = Rig::after(Epoch(5));
    assert!(rig.replica.is_unproven());
    let both = Positions::first(2);
    while rig.in_sync() != both {
        rig.obey(TICK);
    }
    rig.said.clear();
    rig.pass(TICK * 4);
    let asks = |said: &Envelope| matches!(said.message, Message::DigestAsk { .. });
    assert!(rig.said.iter().any(asks), "it is being compared");
    rig.handle(Event::PeerGone { peer: at(1) });
    assert!(rig.replica.is_unproven());
    rig.handle(Event::Move { to: at(1) });
    let is_handed = |said: &Envelope| matches!(said.message, Message::Handoff);
    assert!(!rig.said.iter().any(is_handed));
    rig.obey(LONG);
    assert_eq!(rig.in_sync(), both);
    assert!(!rig.replica.is_unproven(), "now it is");
}

impl Rig {
    fn key(&self) -> Key {
        Key::decode(&self.stored().value).expect("a key")
    }

    fn wish_of(&mut self, size: Size, members: Members) -> Option<Size> {
        let until = self.now + LONG;
        self.handle(Event::Resize(Growth {
            size,
            members,
            until,
        }));
        self.obey(TICK * 8);
        self.key().size
    }

    fn wish(&mut self, granules: u64) -> Option<Size> {
        let size = Size {
            granules,
            register: GRANULES - 1,
        };
        let members = self.key().members;
        self.wish_of(size, members)
    }
}

/// What a pool has says how large the volume is until the key says it, so the key is first.
#[test]
fn an_owner_grows_from_a_size_that_the_key_says_and_with_all_in_sync() {
    let mut rig = Rig::new();
    assert_eq!(rig.wish(GRANULES), None, "one copy is absent");
    rig.obey(LONG);
    rig.handle(Event::Grown {
        granules: 2 * GRANULES,
    });
    assert_eq!(rig.wish(2 * GRANULES), None, "it is not said what there is");
    assert_eq!(rig.wish(GRANULES).map(|size| size.granules), Some(GRANULES));
    assert_eq!(
        rig.wish(3 * GRANULES).map(|size| size.granules),
        Some(GRANULES),
        "no room"
    );
    let size = Size {
        granules: 2 * GRANULES,
        register: GRANULES - 1,
    };
    let before = rig.key().members.with(at(1), member(7));
    assert_eq!(
        rig.wish_of(size, before).map(|size| size.granules),
        Some(GRANULES),
        "another copy has got the room"
    );
    rig.write(GRANULES - 1);
    assert_eq!(rig.answers.pop(), Some(Outcome::OutOfRange));
    assert_eq!(
        rig.wish(2 * GRANULES).map(|size| size.granules),
        Some(2 * GRANULES)
    );
    assert_eq!(
        rig.wish(GRANULES).map(|size| size.granules),
        Some(2 * GRANULES)
    );
    rig.write(GRANULES - 1);
    rig.write(2 * GRANULES - Size::GAP - 1);
    rig.write(2 * GRANULES - Size::GAP);
    let places = rig.said.iter().filter_map(|said| match &said.message {
        Message::Record(record) => Some(record.extent.first()),
        _ => None,
    });
    let places: Vec<u64> = places.collect();
    assert_eq!(places, [GRANULES - 1 + Size::GAP, 2 * GRANULES - 1]);
    assert_eq!(rig.answers.pop(), Some(Outcome::OutOfRange));
}

/// A quorum that comes from a backup, and was written to since: it says no size, or an older one.
#[test]
fn a_key_from_before_the_volume_grew_makes_it_no_smaller() {
    let mut rig = Rig::new();
    rig.obey(LONG);
    let mut before = vec![rig.stored()];
    rig.handle(Event::Grown {
        granules: 2 * GRANULES,
    });
    rig.wish(GRANULES).expect("it is said");
    before.push(rig.stored());
    let grown = rig.wish(2 * GRANULES).expect("it grows");
    assert_eq!(grown.granules, 2 * GRANULES);
    for (told, mut backup) in before.into_iter().enumerate() {
        backup.revision.0 += 1000 * (told as u64 + 1);
        rig.quorum.restore(VOLUME, backup);
        // Something that has the key read again, and is settled by what it says.
        rig.pass(LONG);
        let is_it =
            |alarm: &&Alarm| matches!(alarm, Alarm::StoreShrinks { known, .. } if *known == grown);
        assert_eq!(
            rig.alarms.iter().filter(is_it).count(),
            told + 1,
            "{:?}",
            rig.alarms
        );
        assert!(rig.replica.is_serving());
        assert_eq!(rig.replica.size(rig.now), Some(grown));
    }
}
