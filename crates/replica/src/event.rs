//! Events that a replica is given, and what it asks for.

use std::fmt;
use std::time::Duration;

use ashlar_block::{IoError, Label, Moment, Registrant};
use bytes::Bytes;

use crate::canary::{Cage, Canary};
use crate::extent::{Extent, ExtentSet};
use crate::fence::Origin;
use crate::heads::HeadBook;
use crate::ids::{
    Ask, CommandId, Epoch, Incarnation, Leaf, NodeId, Position, Positions, ReplicaUuid, Revision,
    ShardId, Token, VolumeId,
};
use crate::key::{Members, Size};
use crate::leaves::Leaves;
use crate::local::{Applied, Entry, EntryChange, Local};
use crate::message::{Content, Envelope};
use crate::names::Names;
use crate::owner::POWER_LOSS_WAIT;
use crate::pace::{SLOW_AFTER, STUCK_AFTER};
use crate::quorum::{Question, Reply};

/// The size of a volume's shard. Its last granule is no host's: it is the *register*, in which the owner keeps what all
/// of the volume's owners must know (who has reserved it). One granule, for a crash leaves no half of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Granules of the volume, the register with them.
    pub granules: u64,
    /// Which of them is the register: the last, unless the volume has grown since.
    pub register: u64,
    /// Granules of a leaf: 512 in a pool.
    pub leaf_granules: u32,
}

impl Shape {
    /// That of a volume that has not grown.
    pub const fn new(granules: u64, leaf_granules: u32) -> Self {
        Self {
            granules,
            register: granules.saturating_sub(1),
            leaf_granules,
        }
    }

    /// That of a volume whose key says its size.
    pub const fn sized(self, size: Size) -> Self {
        Self {
            granules: size.granules,
            register: size.register,
            ..self
        }
    }

    /// Its size, as a key says it.
    pub const fn size(self) -> Size {
        Size {
            granules: self.granules,
            register: self.register,
        }
    }

    /// How many leaves.
    pub const fn leaves(self) -> u64 {
        self.granules.div_ceil(self.leaf_granules as u64)
    }

    /// Where a leaf is; `None` beyond the volume.
    pub fn leaf(self, leaf: Leaf) -> Option<Extent> {
        let first = leaf.0.checked_mul(u64::from(self.leaf_granules))?;
        let left = self.granules.checked_sub(first)?;
        Extent::new(first, left.min(u64::from(self.leaf_granules)) as u32)
    }

    /// Where a run of leaves is; `None` if one of them is beyond the volume.
    pub fn run(self, leaves: Leaves) -> Option<Extent> {
        let (first, end) = (leaves.first(), leaves.end());
        if end.0 > self.leaves() {
            return None;
        }
        let first = first.0 * u64::from(self.leaf_granules);
        let end = end.0.saturating_mul(self.leaf_granules.into());
        let count = end.min(self.granules) - first;
        Extent::new(first, u32::try_from(count).ok()?)
    }

    /// All of it.
    pub fn everything(self) -> ExtentSet {
        let leaves = (0..self.leaves()).map(Leaf);
        leaves.filter_map(|leaf| self.leaf(leaf)).collect()
    }

    /// Whether a range is inside the volume.
    pub const fn contains(self, extent: Extent) -> bool {
        extent.end() <= self.granules
    }

    /// Where the register is; `None` in a volume of no size.
    pub fn register(self) -> Option<Extent> {
        Extent::new(self.register, 1).filter(|extent| extent.end() <= self.granules)
    }

    /// Granules that hosts may read and write.
    pub const fn hosts(self) -> u64 {
        self.size().hosts()
    }

    /// Where hosts have a granule; `None` if it is the register.
    pub const fn seen(self, granule: Extent) -> Option<Extent> {
        match granule.first() == self.register {
            true => None,
            false => Extent::new(self.size().seen(granule.first()), 1),
        }
    }

    /// Where hosts' granules are; `None` if they are not all of the volume, or lie on both sides of the register.
    pub fn place(self, hosts: Extent) -> Option<Extent> {
        if hosts.end() <= self.register {
            return Some(hosts);
        }
        let is_behind = hosts.first() >= self.register && hosts.end() <= self.hosts();
        let place = Extent::new(hosts.first().checked_add(Size::GAP)?, hosts.count());
        place.filter(|_| is_behind)
    }
}

/// What a read relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Grants: no round trip a read, as long as clocks keep within their drift.
    Leased,
    /// A round of questions after each batch of reads: clocks do not matter.
    Confirmed,
}

/// How much at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest piece of a base, or of resync, in granules.
    pub piece_granules: u32,
    /// Pieces of a base on their way.
    pub base_pieces: usize,
    /// Copies to a learner on their way.
    pub copies: usize,
    /// Records that a learner may be behind before its session ends.
    pub learner_records: usize,
    /// The same in granules, beside those of changes that hosts or the base wait for: the learner's memory holds them.
    pub learner_granules: u64,
    /// How long a new owner that has heard of none waits for the other copies in sync, before it leaves them out: all
    /// may have lost power together, and come back one by one.
    pub power_loss_wait: Duration,
    /// Free granules that a learner must have before resync begins: a full member must not come and go.
    pub resync_free: u64,
    /// How often copies in sync are compared.
    pub prove_every: Duration,
    /// Leaves of one question for a digest, where something is written: some milliseconds, if all must be read first.
    pub written_leaves: u32,
    /// The same, where nothing is: the other copy may have written zeroes there, and must read their leaves.
    pub unwritten_leaves: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            piece_granules: 64,
            base_pieces: 8,
            copies: 4,
            learner_records: 4096,
            learner_granules: 16_384,
            power_loss_wait: POWER_LOSS_WAIT,
            resync_free: 16_384,
            prove_every: Duration::from_secs(3600),
            written_leaves: 8,
            unwritten_leaves: 32,
        }
    }
}

/// Who and what a replica is. Constant for its life.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub volume: VolumeId,
    pub shard: ShardId,
    /// This node.
    pub node: NodeId,
    /// This process.
    pub incarnation: Incarnation,
    /// This copy's place.
    pub position: Position,
    /// This copy.
    pub uuid: ReplicaUuid,
    /// The volume's size.
    pub shape: Shape,
    /// What reads rely on.
    pub reads: ReadMode,
    /// How much at once.
    pub limits: Limits,
    /// What is broken on purpose.
    pub cage: Cage,
}

/// What a host wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostOperation {
    /// Write, durably.
    Write {
        extent: Extent,
        content: Content,
        origin: Origin,
        /// What was known when its host was last known to use the association.
        label: Label,
    },
    Read {
        extent: Extent,
    },
    /// Put this into the register, because of a host's command.
    SetRegister {
        /// What, a granule of it.
        content: Content,
        /// Whose command.
        origin: Origin,
        /// What was known when its host was last known to use the association.
        label: Label,
    },
    /// Read the register.
    GetRegister,
    /// What the owner's driver is to decide: bytes that it knows, and this crate does not.
    Consult {
        question: Bytes,
        /// Whose command.
        origin: Origin,
        /// What was known when its host was last known to use the association.
        label: Label,
    },
}

/// A host's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCommand {
    /// Its name, given back in the answer.
    pub command: CommandId,
    /// Who that is, for an owner that it may be forwarded to.
    pub registrant: Registrant,
    /// What it wants.
    pub operation: HostOperation,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// Time has passed: at [`Replica::next_deadline`](crate::Replica::next_deadline) at the latest.
    Tick,
    /// A host's command.
    Host(HostCommand),
    /// A peer's message.
    Received {
        /// From which copy's node.
        from: Position,
        envelope: Envelope,
    },
    /// The connection to a peer is gone: a hint, no proof of anything.
    PeerGone { peer: Position },
    /// The process that a peer's last connection was to is certified dead.
    PeerDied { peer: Position },
    /// The process that a peer's connection is to ends in order, or lets go of the pool: its copy is not to be waited for
    /// from when the quorum says so. Only an owner that serves follows.
    PeerLeaves { peer: Position },
    /// The local store has applied a change, or failed to.
    Applied {
        token: Token,
        /// How it ended.
        result: Applied,
    },
    /// The local store has read.
    Read {
        token: Token,
        result: Result<Bytes, IoError>,
    },
    /// The entry is durable.
    Persisted { token: Token },
    /// A leaf's digest.
    Digested {
        token: Token,
        result: Result<u128, IoError>,
    },
    /// The quorum has answered.
    Answered { ask: Ask, reply: Reply },
    /// A process is certified dead: its parent has reaped it, or its successor holds its pool's lock.
    Dead {
        node: NodeId,
        /// Which life, and all before it.
        incarnation: Incarnation,
    },
    /// A host's association is there, whose commands are to be labelled.
    LabelWanted { origin: Origin },
    /// A command of [`Effect::Forwarded`] has ended, and was not handed in as a host's.
    Decided {
        command: CommandId,
        outcome: Outcome,
    },
    /// The local store has stopped, and answers nothing more.
    StoreFailed,
    /// An operator wants to know whether copies in sync are equal.
    Verify,
    /// An operator wants another owner.
    Move { to: Position },
    /// An operator wants other copies. Only an owner follows.
    Reseat(Wish),
    /// The local copy has room for so many granules from now on.
    Grown {
        /// No less than before.
        granules: u64,
    },
    /// An operator wants the volume to be of another size. Only an owner follows.
    Resize(Growth),
}

/// The size that an operator wants. An owner follows if all copies are in sync, and if it is what the volume has
/// already, which the key is to say, or more than the key says and all copies have the room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    pub size: Size,
    /// The copies that have the room: with others the volume does not become larger.
    pub members: Members,
    /// The command that asked for it waits no longer: it is not begun after that.
    pub until: Moment,
}

/// Copies that an operator wants. An owner follows if none takes the place of another at once, its own stays, and new
/// ones are [`ReplicaUuid::NEW`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// All of them.
    pub members: Members,
    /// The copies in sync when it was looked at whether this may be: with others the answer may be another.
    pub in_sync: Positions,
    /// The command that asked for it waits no longer: it is not begun after that.
    pub until: Moment,
}

/// How a host's command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Durable on every copy in sync.
    Written,
    /// What was read.
    Read(Bytes),
    /// This node does not serve the volume: nothing was begun.
    NotOwner,
    /// The command's label is stale: it may be a late duplicate. Nothing was begun, and nothing will be.
    Stale,
    /// This node stopped serving meanwhile: a write may have been done, or be done yet.
    PathGone,
    /// There was no space, or the store failed; a write has left nothing, or parts, and nothing more will come of it.
    Failed,
    /// The range is not inside the volume.
    OutOfRange,
    /// Another host has reserved the volume.
    Reserved,
    /// What the owner's driver has decided.
    Advice(Bytes),
}

/// What people should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The store's key is older than what was promised here: it comes from a backup. No replica serves.
    StoreIsOld {
        /// What the store says.
        stored: Epoch,
        /// What was promised here.
        promised: Epoch,
    },
    /// The store's key is older than one that was read or put here: it comes from a backup. It counts for nothing
    /// here: an owner serves on, and who is in sync does not change. A copy that has not read the newer key believes it.
    StoreWentBack {
        /// What the store says.
        stored: Revision,
        /// What it has said before.
        known: Revision,
    },
    /// The store's key is of an epoch before this owner's: the same, whatever its revision.
    StoreIsEarlier {
        /// What the store says.
        stored: Epoch,
        /// The owner's.
        known: Epoch,
    },
    /// The store's key says less of the volume's size than it has said: the same.
    StoreShrinks {
        /// What the store says.
        stored: Option<Size>,
        /// What it has said before.
        known: Size,
    },
    /// The store's key names copies in sync that its owner has not added: the same.
    StoreAdds(Positions),
    /// The store's key cannot be read.
    KeyUnreadable(String),
    /// A learner that should be equal is not: copied again.
    Differs {
        /// Which copy.
        position: Position,
        leaf: Leaf,
    },
    /// A copy that was in sync is not equal: it leaves the in-sync set.
    Diverged {
        /// Which copy.
        position: Position,
        leaf: Leaf,
    },
    /// What a copy is to be given cannot be read here, and no other copy has it: that copy is not in sync before it was
    /// written. There may be more of it.
    Unreadable {
        /// Which copy.
        position: Position,
        /// Where hosts have it; none if it is the register.
        hosts: Option<Extent>,
    },
    /// What is uncertain cannot be read here, and no other copy has it: hosts' reads of it fail, and no copy is added,
    /// before it was written or can be read. There may be more of it.
    Lost {
        /// This copy.
        position: Position,
        /// Where hosts have it; none if it is the register.
        hosts: Option<Extent>,
    },
    /// The local store cannot read or write what it should, or does not answer: this node stops serving.
    LocalFailed,
    /// This copy is an old image: it takes no part until it was copied in full.
    OldImage,
    /// A copy has claimed more before: it lacks what it has acknowledged. It leaves the in-sync set, or owns nothing, until
    /// it was made equal.
    Lags(Position),
}

/// Why a copy is not waited for any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing was heard of it.
    Silent,
    /// It is heard, and does nothing of what it was given.
    Hangs,
    /// It does what it is given, and a write has waited too long for it all the same.
    Slow,
    /// It has said that it cannot go on, or it differs.
    Failed,
    /// Its process is certified dead.
    Died,
    /// Its process ends in order or its pool is exported, and it has said so.
    Leaves,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "nothing is heard of it",
            Self::Hangs => "it answers, and its pool has done nothing of what it was given",
            Self::Slow => "a write has waited too long for it",
            Self::Failed => "its pool has failed, or it differs",
            Self::Died => "its process has ended",
            Self::Leaves => "its node ends, or its pool is exported",
        })
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send to a copy's node.
    Send {
        /// Where to.
        to: Position,
        envelope: Envelope,
    },
    /// Ask the quorum.
    Ask {
        /// Names the question.
        ask: Ask,
        question: Question,
    },
    /// Answer a host.
    Answer {
        command: CommandId,
        /// How it ended.
        outcome: Outcome,
    },
    /// What the register holds, before any host is served in this epoch.
    Register(Bytes),
    /// This node serves the volume now. Hosts' paths change.
    Serves(Epoch),
    /// It does not any more.
    Stops(Epoch),
    /// A host's command has come by another node: it is to be handed in as a host's, with this name, or to be decided.
    Forwarded {
        /// By which.
        by: Position,
        command: HostCommand,
    },
    /// Whether commands that come here now go to the owner. Hosts' paths change.
    Forwards(bool),
    /// Whether this node, the owner by its own account, sends hosts away: it hears nothing of copies that may serve by
    /// now. Hosts' paths change.
    Isolated(bool),
    /// A copy in sync is not waited for any longer: the quorum is asked to take it out.
    LeavesOut { position: Position, why: Why },
    /// Who has copies, as the key says.
    Members {
        /// How new that is.
        revision: Revision,
        /// All of them.
        members: Members,
        /// How large the volume is, if the key says so.
        size: Option<Size>,
    },
    /// The volume is larger than the room of this copy, which is from before it grew: it can do nothing until a process begins
    /// with more.
    LacksRoom,
    /// What could not be read here was given by another copy, and is good again.
    Healed(Extent),
    /// A copy has durably got this, of what it missed.
    Copied {
        /// Which copy.
        to: Position,
        extent: Extent,
    },
    /// The set of copies in sync is now this one.
    InSync(Positions),
    /// Tell people.
    Alarm(Alarm),
    /// Copies in sync were compared.
    Proven(Proof),
}

/// What came of comparing copies in sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// An operator has asked for it.
    pub is_asked: bool,
    /// Leaves compared.
    pub leaves: u64,
    /// The copies whose every leaf was compared with the owner's: none, if it could not tell what it has of one.
    pub compared: Positions,
    /// Where they differ from the owner's.
    pub differences: Vec<Difference>,
}

/// A leaf that a copy does not have as its owner has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which copy.
    pub position: Position,
    /// Which leaf.
    pub leaf: Leaf,
}

/// The entry as it is durable, and the change that is on its way: one at a time.
#[derive(Debug)]
pub(crate) struct EntryBook {
    durable: Entry,
    coming: Option<Coming>,
}

#[derive(Debug)]
struct Coming {
    token: Token,
    entry: Entry,
}

impl EntryBook {
    pub(crate) const fn new(durable: Entry) -> Self {
        let coming = None;
        Self { durable, coming }
    }

    /// What is durable.
    pub(crate) const fn durable(&self) -> Entry {
        self.durable
    }

    /// Whether no change is on its way.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.coming.is_none()
    }

    /// A change has become durable.
    pub(crate) fn persisted(&mut self, token: Token) {
        let is_it = |coming: &Coming| coming.token == token;
        assert!(
            self.coming.as_ref().is_some_and(is_it),
            "{token}: no such change of the entry is on its way"
        );
        if let Some(coming) = self.coming.take() {
            self.durable = coming.entry;
        }
    }
}

/// Who looks, and when.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) now: Moment,
    pub(crate) config: &'a Config,
}

impl At<'_> {
    pub(crate) fn sings(&self, canary: Canary) -> bool {
        self.config.cage.sings(canary)
    }
}

/// What a state machine is handed for one event.
pub(crate) struct Turn<'a> {
    pub(crate) now: Moment,
    pub(crate) config: &'a Config,
    pub(crate) local: &'a mut dyn Local,
    pub(crate) out: &'a mut Vec<Effect>,
    pub(crate) names: &'a mut Names,
    pub(crate) entry: &'a mut EntryBook,
    pub(crate) heads: &'a mut HeadBook,
    /// Another copy knows of more that this one had.
    pub(crate) lags: bool,
    /// This copy's content counts for nothing.
    pub(crate) is_old_image: bool,
    /// Granules that this copy has in its pool: no less than the volume's, or it is no copy of what the volume is now.
    pub(crate) room: u64,
}

impl Turn<'_> {
    /// All that this copy has, the volume's or not.
    pub(crate) fn own_shape(&self) -> Shape {
        Shape {
            granules: self.room,
            ..self.config.shape
        }
    }

    /// Names something that the local store is asked for, and must answer soon.
    pub(crate) fn token(&mut self) -> Token {
        let token = self.patient_token();
        self.owe(token);
        token
    }

    /// The same, if no host waits for it: a drive may take long to say that a block cannot be read, and does not hang.
    pub(crate) const fn patient_token(&mut self) -> Token {
        self.names.token()
    }

    /// Hosts wait for that by now.
    pub(crate) fn owe(&mut self, token: Token) {
        self.names.owe(token, self.now);
    }

    /// Whether the local store has owed an answer for so long that it counts as hung.
    pub(crate) fn is_store_stuck(&self) -> bool {
        self.owed() > SLOW_AFTER || self.does_nothing_for() > STUCK_AFTER
    }

    /// Whether it has done nothing for so long that it is not waited for, whatever becomes of the volume.
    pub(crate) fn is_store_dead(&self) -> bool {
        self.does_nothing_for() > SLOW_AFTER
    }

    /// How long the oldest answer is owed.
    fn owed(&self) -> Duration {
        let oldest = self.names.owed_since();
        oldest.map_or(Duration::ZERO, |since| self.now - since)
    }

    /// How long an answer is owed, and nothing was made durable.
    fn does_nothing_for(&self) -> Duration {
        self.owed().min(self.names.idle_for(self.now))
    }

    pub(crate) fn ask(&mut self, question: Question) -> Ask {
        let ask = self.names.asks();
        self.out.push(Effect::Ask { ask, question });
        ask
    }

    pub(crate) fn persist(&mut self, change: EntryChange) -> Token {
        assert!(
            self.entry.coming.is_none(),
            "two changes of the entry at once"
        );
        let token = self.token();
        let entry = change.entry;
        self.heads.settle(entry.absent);
        if let Some(heads) = self.heads.take_all(self.now) {
            self.local.remember(heads);
        }
        self.entry.coming = Some(Coming { token, entry });
        self.local.persist(token, change);
        token
    }

    pub(crate) fn answer(&mut self, command: CommandId, outcome: Outcome) {
        self.out.push(Effect::Answer { command, outcome });
    }

    pub(crate) fn alarm(&mut self, alarm: Alarm) {
        self.out.push(Effect::Alarm(alarm));
    }

    /// What the quorum says is not relied on. It is asked again and again, and people are told once.
    pub(crate) fn doubt(&mut self, why: Alarm) {
        if self.names.doubts(&why) {
            self.alarm(why);
        }
    }

    pub(crate) fn sings(&self, canary: Canary) -> bool {
        self.config.cage.sings(canary)
    }

    pub(crate) const fn at(&self) -> At<'_> {
        At {
            now: self.now,
            config: self.config,
        }
    }
}
