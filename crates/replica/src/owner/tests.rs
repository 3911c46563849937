//! An owner whose store does everything at once, and copies that say what the test has them say.

use std::time::Duration;

use ashlar_block::{AssociationId, HostId, Moment, Registrant};
use bytes::Bytes;

use crate::canary::Cage;
use crate::event::{Config, Effect, Event, HostOperation, Limits, Outcome, ReadMode, Shape};
use crate::extent::{Extent, ExtentSet};
use crate::fence::Origin;
use crate::ids::{
    CommandId, Epoch, Incarnation, Known, Leaf, NodeId, Position, Positions, ReplicaUuid,
    SessionId, ShardId, Token, VolumeId,
};
use crate::key::{Key, MemberId, Members, OwnerId};
use crate::local::{Entry, EntryChange, Imported, Local, Tag};
use crate::message::{Attach, Content, Envelope, Message};
use crate::quorum::{MemoryQuorum, Weather};
use crate::replica::{Replica, Surroundings, TICK};

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

/// It does everything at once, and holds zeroes.
#[derive(Default)]
struct AtOnce(Vec<Event>);

impl Local for AtOnce {
    fn apply(&mut self, token: Token, _: Extent, _: Content, _: Option<Tag>) {
        let result = Ok(());
        self.0.push(Event::Applied { token, result });
    }
    fn read(&mut self, token: Token, extent: Extent) {
        let data = Bytes::from(vec![0; extent.count() as usize]);
        let result = Ok(data);
        self.0.push(Event::Read { token, result });
    }
    fn persist(&mut self, token: Token, _: EntryChange) {
        self.0.push(Event::Persisted { token });
    }
    fn digest(&mut self, token: Token, _: Leaf) {
        let result = Ok(7);
        self.0.push(Event::Digested { token, result });
    }
    fn learn(&mut self, _: Known) {}
    fn uncertain(&self) -> ExtentSet {
        ExtentSet::new()
    }
    fn plane(&self, _: Position) -> ExtentSet {
        Extent::new(0, GRANULES as u32).into_iter().collect()
    }
    fn mark(&mut self, _: Position, _: Extent) {}
    fn clear(&mut self, _: Position, _: Extent) {}
    fn is_drained(&self) -> bool {
        true
    }
    fn free(&self) -> u64 {
        1 << 40
    }
}

/// The owner at position 0, of two copies.
struct Rig {
    replica: Replica,
    local: AtOnce,
    quorum: MemoryQuorum,
    now: Moment,
    /// What it has said to the other copy.
    said: Vec<Envelope>,
    answers: Vec<Outcome>,
    /// The number of the other copy's next message.
    number: u32,
}

impl Rig {
    fn new() -> Self {
        let key = Key {
            epoch: Epoch(1),
            owner: OwnerId {
                node: member(0).node,
                incarnation: Incarnation(0),
            },
            in_sync: Positions::NONE.with(at(0)),
            members: Members::first([member(0), member(1)]).expect("two"),
            forced: 0,
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
            shape: Shape {
                granules: GRANULES,
                leaf_granules: 8,
            },
            reads: ReadMode::Leased,
            limits: Limits::default(),
            cage: Cage::default(),
        };
        let imported = Imported {
            entry: Entry {
                promised: Epoch(1),
                session: SessionId(0),
                absent: Positions::NONE.with(at(1)),
            },
            is_old_image: false,
        };
        let now = Moment::from_nanos(1_000_000_000);
        let mut rig = Self {
            replica: Replica::new(config, imported, now),
            local: AtOnce::default(),
            quorum,
            now,
            said: Vec::new(),
            answers: Vec::new(),
            number: 0,
        };
        rig.pass(LONG);
        assert!(rig.replica.is_serving());
        rig
    }

    fn handle(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut out = Vec::new();
            let (now, local) = (self.now, &mut self.local);
            let out_of = &mut out;
            self.replica.handle(
                event,
                Surroundings {
                    now,
                    local,
                    out: out_of,
                },
            );
            events.append(&mut self.local.0);
            for effect in out {
                match effect {
                    Effect::Send { envelope, .. } => self.said.push(envelope),
                    Effect::Answer { outcome, .. } => self.answers.push(outcome),
                    Effect::Ask { ask, question } => {
                        let fair = Weather::fair(Duration::from_micros(1));
                        let (client, question) = ((0, ask), (VOLUME, question));
                        self.quorum.ask(self.now, client, question, fair);
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
            self.handle(Event::Tick);
        }
    }

    /// The other copy says something in the newest session.
    fn hear(&mut self, message: Message) {
        let join = |said: &&Envelope| matches!(said.message, Message::Join(_));
        let join = self.said.iter().rfind(join).expect("a session").clone();
        let number = self.number;
        self.number += 1;
        let envelope = Envelope {
            number,
            message,
            ..join
        };
        let from = at(1);
        self.handle(Event::Received { from, envelope });
    }

    fn attach(&mut self) {
        self.hear(Message::Attach(Attach {
            uuid: member(1).replica,
            own: ExtentSet::new(),
            free: 1 << 40,
        }));
    }

    fn write(&mut self, granule: u64) {
        let origin = Origin {
            host: HostId(1),
            association: AssociationId(1),
        };
        let label = self.replica.label(origin).expect("the owner's");
        let operation = HostOperation::Write {
            extent: Extent::new(granule, 1).expect("an extent"),
            content: Content::Zeroes,
            origin,
            label,
        };
        self.handle(Event::Host {
            command: CommandId(granule + 1),
            registrant: Registrant::default(),
            operation,
        });
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
