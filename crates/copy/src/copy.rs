//! What a copy remembers of what it has asked of the engine.

use std::collections::{BTreeMap, VecDeque};

use ashlar_block::{
    BlockRange, BufferPool, Completion, Durability, IoBuffer, IoError, Operation, Request,
};
use ashlar_replica::{
    Content, Entry, Epoch, Event, Extent, Head, Heads, Imported, Mark, Position, Positions,
    ReplicaUuid, SessionId, Shape, Size, Tag, Token,
};
use ashlar_store::{Engine, Managed, ReplicaPromise, ReplicaTag};
use bytes::{Bytes, BytesMut};

use crate::LEAF_GRANULES;
use crate::direct::{DirectReads, DirectlyRead};
use crate::memory::Memory;
use crate::names::{NameCount, Names};
use crate::proof::{Found, Proof};

/// Bytes of a granule.
pub(crate) const GRANULE: usize = 4096;
/// Most granules of a command for the engine: 1 MiB.
pub(crate) const PIECE: u32 = 256;

/// An operation under way.
#[derive(Debug)]
struct Doing {
    token: Token,
    what: What,
    /// Pieces without an answer.
    left: usize,
    error: Option<IoError>,
}

#[derive(Debug)]
enum What {
    Apply,
    /// What was read, and where it is from.
    Read(Arrived, Extent),
    /// The same, of a leaf whose checksums do not say enough.
    Digest(BytesMut, Proof),
    /// A granule is read to bring its leaf's checksums into memory.
    Load(Proof),
}

/// What was read.
#[derive(Debug)]
enum Arrived {
    /// By one command, whose buffer is passed on; none has come yet, or it has failed.
    Whole(Option<IoBuffer>),
    /// By several.
    Pieces(BytesMut),
}

/// A command that waits for a buffer, or is on its way.
#[derive(Debug)]
struct Piece {
    /// Which operation.
    doing: u64,
    extent: Extent,
    what: Wanted,
}

#[derive(Debug)]
enum Wanted {
    Write(Bytes, Option<ReplicaTag>),
    Zero(Option<ReplicaTag>),
    Read,
}

/// A command for the engine.
pub(crate) struct Command {
    pub(crate) request: Request,
    pub(crate) tag: Option<ReplicaTag>,
}

/// One copy of a replicated volume: what it has asked of the engine, and the events that follow.
#[derive(Debug)]
pub struct Copy {
    volume: u32,
    granules: u64,
    said: Option<Size>,
    /// What the import found: how far the pool had come, and what was remembered of others.
    head: Head,
    heads: Heads,
    position: Position,
    /// Another copy than the owner's may be absent, too. Until an owner has said otherwise there may be one: what this
    /// node has heard of copies before can be old.
    has_third: bool,
    entry: Entry,
    memory: Memory,
    names: Names,
    /// The next operation's number.
    next: u64,
    doing: BTreeMap<u64, Doing>,
    waiting: VecDeque<Piece>,
    flying: BTreeMap<u64, Piece>,
    direct: DirectReads,
    /// Orders on their way: whose, and what is promised then.
    orders: BTreeMap<u64, (Token, Entry)>,
    /// What can be gone on with.
    proofs: VecDeque<Proof>,
    events: VecDeque<Event>,
    failure: Option<String>,
}

impl Copy {
    /// The copy that a volume of a pool is; none if it is none. Buffers for what it writes and reads are from `buffers`,
    /// as long as there are some; two commands at a time go on without. What it asks the engine is counted by `names`, as
    /// what other copies of the pool have asked.
    pub fn new(
        engine: &Engine,
        volume: u32,
        buffers: BufferPool,
        names: &NameCount,
    ) -> Option<Self> {
        let replicas = engine.replicas();
        let (promise, identity) = (replicas.promise(volume)?, replicas.identity(volume)?);
        let granules = engine.geometry(volume)?.blocks;
        let position = Position::new(identity.position.into())?;
        let entry = entry_of(promise);
        let said = replicas.size(volume).map(|said| Size {
            granules: said.granules,
            register: said.register,
        });
        let head = Head(replicas.head(volume));
        let heads = Heads::new(replicas.marks(volume).map(|mark| Mark {
            replica: ReplicaUuid(mark.uuid),
            head: Head(mark.head),
        }));
        Some(Self {
            entry,
            said,
            head,
            heads,
            names: Names::new(volume, names.clone()),
            ..Self::idle(volume, granules, position, buffers)
        })
    }

    fn idle(volume: u32, granules: u64, position: Position, buffers: BufferPool) -> Self {
        Self {
            volume,
            granules,
            said: None,
            head: Head::default(),
            heads: Heads::default(),
            position,
            has_third: true,
            entry: Entry::default(),
            memory: Memory::new(buffers, PIECE as usize * GRANULE),
            names: Names::new(volume, NameCount::default()),
            next: 0,
            doing: BTreeMap::new(),
            waiting: VecDeque::new(),
            flying: BTreeMap::new(),
            direct: DirectReads::default(),
            orders: BTreeMap::new(),
            proofs: VecDeque::new(),
            events: VecDeque::new(),
            failure: None,
        }
    }

    /// The volume's number in its pool.
    pub const fn volume(&self) -> u32 {
        self.volume
    }

    /// The copy's place among the volume's copies.
    pub const fn position(&self) -> Position {
        self.position
    }

    /// The volume's size in its pool: that of a volume whose key does not say it.
    pub const fn shape(&self) -> Shape {
        Shape::new(self.granules, LEAF_GRANULES)
    }

    /// The volume has so many granules by now.
    pub const fn has_grown(&mut self, granules: u64) {
        self.granules = granules;
    }

    /// What the entry says, durably.
    pub const fn entry(&self) -> Entry {
        self.entry
    }

    /// What the replica begins with. Whether the copy is an old image is not known here.
    pub const fn imported(&self, is_old_image: bool) -> Imported {
        Imported {
            entry: self.entry,
            is_old_image,
            size: self.said,
            head: self.head,
            heads: self.heads,
        }
    }

    /// Why the copy cannot go on, if it cannot: the engine did not take a change of the entry.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether nothing that changes content or entry is on its way, nor an event of it that the replica has not heard.
    pub fn is_drained(&self) -> bool {
        let changes = |doing: &Doing| matches!(doing.what, What::Apply);
        let news = |event: &Event| matches!(event, Event::Applied { .. } | Event::Persisted { .. });
        let idle = self.orders.is_empty() && !self.doing.values().any(changes);
        idle && !self.events.iter().any(news)
    }

    /// What the replica is to be told next.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn begin(&mut self, token: Token, what: What, extent: Extent) -> u64 {
        self.next += 1;
        let left = extent.pieces(PIECE).count();
        let error = None;
        let doing = Doing {
            token,
            what,
            left,
            error,
        };
        self.doing.insert(self.next, doing);
        self.next
    }

    pub(crate) fn apply(
        &mut self,
        token: Token,
        extent: Extent,
        content: &Content,
        tag: Option<Tag>,
    ) {
        let doing = self.begin(token, What::Apply, extent);
        let tag = tag.map(|tag| ReplicaTag {
            epoch: tag.epoch.0,
            sequence: tag.sequence.0,
            low: tag.low.0,
        });
        for piece in extent.pieces(PIECE) {
            let what = match content {
                Content::Zeroes if self.writes_zeroes() => Wanted::Write(zeroes(piece), tag),
                Content::Zeroes => Wanted::Zero(tag),
                Content::Data(bytes) => {
                    let from = (piece.first() - extent.first()) as usize * GRANULE;
                    let to = from + piece.count() as usize * GRANULE;
                    Wanted::Write(bytes.slice(from..to), tag)
                }
            };
            self.waiting.push_back(Piece {
                doing,
                extent: piece,
                what,
            });
        }
    }

    /// An owner has said who has copies.
    pub(crate) fn note_members(&mut self, members: Positions) {
        self.has_third = members.count() != 2;
    }

    /// Whether zeroes are written as bytes. Where nothing is mapped the engine has nothing to clear, and records no
    /// change. A copy that is absent may be without what another absent copy has there: nothing would then say that
    /// the two differ, once this one is in sync and is to bring the other up to date.
    fn writes_zeroes(&self) -> bool {
        self.has_third && self.entry.absent.has(self.position)
    }

    pub(crate) fn read(&mut self, token: Token, extent: Extent) {
        let arrived = match extent.count() <= PIECE {
            true => Arrived::Whole(None),
            false => Arrived::Pieces(room(extent)),
        };
        let doing = self.begin(token, What::Read(arrived, extent), extent);
        self.want_to_read(doing, extent);
    }

    /// The command of a direct read.
    pub(crate) fn read_directly(
        &mut self,
        token: Token,
        extent: Extent,
        buffer: IoBuffer,
    ) -> Request {
        let tag = self.names.next();
        self.direct.begin(tag, token);
        let range = BlockRange::new(extent.first(), extent.count());
        Request::read(tag, range, buffer)
    }

    /// A direct read that has ended.
    pub fn next_directly_read(&mut self) -> Option<DirectlyRead> {
        self.direct.next()
    }

    /// The engine's buffer that holds what was read, unless it was read in pieces, or the bytes are still shared.
    ///
    /// # Errors
    /// The bytes, then.
    pub fn take_buffer(&mut self, bytes: Bytes) -> Result<IoBuffer, Bytes> {
        self.memory.take_back(bytes)
    }

    pub(crate) fn prove(&mut self, token: Token, extent: Extent) {
        self.proofs.push_back(Proof::new(token, extent));
    }

    /// Whether something can be proven now.
    pub(crate) fn has_proofs(&self) -> bool {
        !self.proofs.is_empty()
    }

    /// Something of which a leaf may be proven now.
    pub(crate) fn next_proof(&mut self) -> Option<Proof> {
        self.proofs.pop_front()
    }

    /// What the engine has of the leaf that a proof has come to.
    pub(crate) fn found(&mut self, mut proof: Proof, found: Found) {
        let (token, leaf) = (proof.token(), proof.leaf());
        if proof.take(&found) {
            return self.proved(proof);
        }
        let is_here = !matches!(found, Found::Elsewhere);
        let first = Extent::new(leaf.first(), 1);
        match first.filter(|_| !is_here && proof.loads()) {
            Some(first) => {
                let doing = self.begin(token, What::Load(proof), first);
                self.want_to_read(doing, first);
            }
            None => {
                let doing = self.begin(token, What::Digest(room(leaf), proof), leaf);
                self.want_to_read(doing, leaf);
            }
        }
    }

    /// A leaf is in its proof.
    fn proved(&mut self, proof: Proof) {
        match proof.digest() {
            Some(digest) => self.events.push_back(Event::Digested {
                token: proof.token(),
                result: Ok(digest),
            }),
            // The next leaf of the same run, before other runs.
            None => self.proofs.push_front(proof),
        }
    }

    fn want_to_read(&mut self, doing: u64, extent: Extent) {
        for extent in extent.pieces(PIECE) {
            let what = Wanted::Read;
            self.waiting.push_back(Piece {
                doing,
                extent,
                what,
            });
        }
    }

    /// An order that changes the entry; its name.
    pub(crate) fn order(&mut self, token: Token, entry: Entry) -> u64 {
        let name = self.names.next();
        self.orders.insert(name, (token, entry));
        name
    }

    /// The next command, if one waits and there is a buffer for it.
    pub(crate) fn next_command(&mut self) -> Option<Command> {
        let piece = self.waiting.front()?;
        let range = BlockRange::new(piece.extent.first(), piece.extent.count());
        let bytes = piece.extent.count() as usize * GRANULE;
        let (buffer, op, tag) = match &piece.what {
            Wanted::Write(data, tag) => {
                let mut buffer = self.memory.get(bytes)?;
                buffer.copy_from_slice(data);
                let op = Operation::Write(Durability::Durable);
                (Some(buffer), op, *tag)
            }
            Wanted::Zero(tag) => {
                let op = Operation::WriteZeroes {
                    durability: Durability::Durable,
                    deallocate: true,
                };
                (None, op, *tag)
            }
            Wanted::Read => (Some(self.memory.get(bytes)?), Operation::Read, None),
        };
        let name = self.names.next();
        let mut piece = self.waiting.pop_front()?;
        if let Wanted::Write(data, _) = &mut piece.what {
            *data = Bytes::new();
        }
        self.flying.insert(name, piece);
        let request = Request {
            tag: name,
            op,
            range,
            buffer,
        };
        Some(Command { request, tag })
    }

    /// The engine has completed one of this copy's commands ([`volume_of`](crate::volume_of)).
    pub fn completed(&mut self, completion: Completion) {
        let Err(completion) = self.direct.completed(completion) else {
            return;
        };
        let Some(piece) = self.flying.remove(&completion.tag) else {
            return;
        };
        let Some(doing) = self.doing.get_mut(&piece.doing) else {
            return;
        };
        doing.left -= 1;
        match completion.result {
            Ok(()) => doing.what.take(piece.extent, completion.buffer),
            Err(error) => doing.error = Some(error),
        }
        if doing.left == 0
            && let Some(done) = self.doing.remove(&piece.doing)
        {
            self.finish(done);
        }
    }

    fn finish(&mut self, done: Doing) {
        match (done.what, done.error) {
            // The leaf may be there, though that granule is lost. If it is not, all of it is read.
            (What::Load(proof), _) => self.proofs.push_front(proof),
            (What::Digest(bytes, mut proof), None) => {
                proof.take(&Found::Bytes(bytes));
                self.proved(proof);
            }
            (what, error) => {
                let event = event(done.token, what, error, &mut self.memory);
                self.events.push_back(event);
            }
        }
    }

    /// The engine has answered one of this copy's orders.
    pub fn managed(&mut self, id: u64, answer: Result<Managed, IoError>) {
        let Some((token, entry)) = self.orders.remove(&id) else {
            return;
        };
        match answer {
            Ok(_) => {
                self.entry = entry;
                self.events.push_back(Event::Persisted { token });
            }
            Err(error) => {
                let why = format!("volume {}: its entry did not change: {error}", self.volume);
                self.failure = Some(why);
            }
        }
    }
}

impl What {
    /// A piece has been done.
    fn take(&mut self, piece: Extent, buffer: Option<IoBuffer>) {
        let (bytes, extent) = match self {
            Self::Read(Arrived::Whole(whole), _) => {
                *whole = buffer;
                return;
            }
            Self::Read(Arrived::Pieces(bytes), extent) => (bytes, *extent),
            Self::Digest(bytes, proof) => (bytes, proof.leaf()),
            Self::Apply | Self::Load(_) => return,
        };
        let from = (piece.first() - extent.first()) as usize * GRANULE;
        if let Some(buffer) = buffer {
            bytes[from..from + buffer.len()].copy_from_slice(&buffer);
        }
    }
}

/// What the replica hears of an operation that has ended; a digest only if it has failed.
fn event(token: Token, what: What, error: Option<IoError>, memory: &mut Memory) -> Event {
    let outcome = error.map_or(Ok(()), Err);
    match what {
        What::Apply => Event::Applied {
            token,
            result: outcome,
        },
        What::Read(arrived, _) => Event::Read {
            token,
            result: outcome.map(|()| match arrived {
                Arrived::Whole(Some(buffer)) => memory.pass_on(buffer),
                Arrived::Whole(None) => unreachable!("a read that succeeded has a buffer"),
                Arrived::Pieces(bytes) => bytes.freeze(),
            }),
        },
        What::Digest(..) | What::Load(_) => Event::Digested {
            token,
            result: outcome.map(|()| 0),
        },
    }
}

fn zeroes(extent: Extent) -> Bytes {
    room(extent).freeze()
}

fn room(extent: Extent) -> BytesMut {
    BytesMut::zeroed(extent.count() as usize * GRANULE)
}

fn entry_of(promise: ReplicaPromise) -> Entry {
    Entry {
        promised: Epoch(promise.epoch),
        session: SessionId(promise.session),
        absent: Positions::from_bits(promise.absent).unwrap_or(Positions::NONE),
    }
}

#[cfg(test)]
mod tests;
