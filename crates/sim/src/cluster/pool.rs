//! A copy's store that is the engine that ships, on drives that answer late, lose what they had not flushed, and tear.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use ashlar_block::{BlockSize, BufferPool, ErrorKind, IoError, Moment};
use ashlar_copy::{Copy, DirectlyRead, EngineLocal, NameCount, unwritten, volume_of};
use ashlar_replica::{
    Content, Entry, EntryChange, Event, Extent, ExtentSet, Head, Heads, Known, Leaf, Local,
    OwnPlane, Position, Positions, Shape, Tag, Token,
};
use ashlar_store::format::{Reserve, Salt};
use ashlar_store::{
    Canary, DriveTable, Engine, Event as PoolEvent, Layout, Manage, Managed, Outbox,
    ReplicaIdentity, VolumePlan,
};
use bytes::{Bytes, BytesMut};
use uuid::Uuid;

use super::model::Value;
use super::store::GRANULE_BYTES;
use crate::chance::Chance;
use crate::engine::{
    Drive, DriveSize, Handle, Pace, PoolShape, Rig, Running, SMALL, Shared, Subject, Wait, Wish,
    memory, used_up,
};

const GRANULE: usize = 4096;
const SALT: u32 = 11;
/// Bytes of a drive.
const DRIVE: u64 = 24 << 20;
/// Steps until a read has ended, at most: of 100 ns.
const MOST_STEPS: usize = 10_000_000;
/// Turns of one moment, at most.
const MOST_TURNS: usize = 10_000;

pub(crate) struct PoolStore {
    rig: Rc<Rig>,
    drives: Vec<Shared>,
    engine: Engine,
    devices: DriveTable,
    copy: Copy,
    /// Of which the copy takes buffers.
    memory: BufferPool,
    volume: u32,
    out: Outbox,
    events: VecDeque<Event>,
    canary: Option<Canary>,
    pub(crate) is_full: bool,
    /// What is visible, granule by granule.
    content: Vec<Value>,
    values: HashMap<u32, Value>,
    version: u64,
    orders: u64,
    posted: bool,
}

impl std::fmt::Debug for PoolStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolStore {:?}", self.content)
    }
}

fn identity(index: usize) -> Uuid {
    Uuid::from_u128(900 + index as u128)
}

fn pool_shape(drives: usize, log_copies: u8) -> PoolShape {
    PoolShape {
        fast: 0,
        pool: identity(0),
        salt: SALT,
        sizes: SMALL,
        log_copies,
        reserve: Reserve::None,
        drives,
    }
}

fn wait(rig: &Rc<Rig>, drives: &[Shared]) -> Wait {
    let (rig, drives) = (rig.clone(), drives.to_vec());
    Box::new(move || {
        let next = drives.iter().filter_map(|drive| drive.borrow().next());
        let soon = rig.now() + Duration::from_nanos(100);
        rig.advance(next.min().unwrap_or(soon).max(soon));
        rig.now()
    })
}

/// A granule that holds a value.
fn bytes_of(value: Value) -> Vec<u8> {
    value.to_le_bytes().repeat(GRANULE / GRANULE_BYTES)
}

impl PoolStore {
    pub(crate) const fn canary(&self) -> Option<Canary> {
        self.canary
    }

    /// The copy of a volume of zeroes, as the entry says.
    pub(crate) fn new(
        position: Position,
        shape: Shape,
        entry: Entry,
        canary: Option<Canary>,
        chance: &mut Chance,
    ) -> Result<Self, String> {
        let rig = Rig::new(false);
        let count = chance.pick(&[1usize, 1, 2]);
        let pace = Pace {
            time: Duration::from_micros(chance.pick(&[20, 100, 400])),
            slow: Duration::from_millis(chance.pick(&[1, 20])),
            slow_per_mille: chance.pick(&[0, 10, 50]),
            pieces: chance.happens(700),
        };
        let size = DriveSize {
            block_size: BlockSize::B4096,
            bytes: DRIVE,
        };
        let drive = |index| Drive::new(&rig, index, size, pace, chance.fork());
        let drives: Vec<Shared> = (0..count).map(drive).collect();
        let devices = drives.iter().map(Handle::open).collect();
        let pool = pool_shape(count, count as u8);
        Engine::format(devices, wait(&rig, &drives), &pool)?;
        let running = import(&rig, &drives, canary)?;
        let (engine, devices) = (running.engine, DriveTable::new(running.devices));
        let mut pool = Fresh {
            rig: rig.clone(),
            engine,
            devices,
            out: Outbox::default(),
        };
        let plan = VolumePlan {
            name: "copy".into(),
            uuid: identity(50),
            granules: shape.granules,
            layout: Layout::Mirror {
                copies: count as u8,
            },
            grain: None,
            class: None,
            is_cache: false,
            hot: None,
            stops: false,
        };
        let Managed::Volume(volume) = pool.order(Manage::CreateVolume(plan))? else {
            return Err("no volume came of it".into());
        };
        let identity = ReplicaIdentity {
            position: position.index() as u8,
            uuid: identity(60),
        };
        pool.order(Manage::MakeReplica {
            volume,
            identity,
            granules: None,
        })?;
        let Fresh {
            engine, devices, ..
        } = pool;
        // Some copies never get any of the core's memory: hosts' commands have it.
        let memory = match pace.pieces {
            true => memory(),
            false => used_up(),
        };
        let names = NameCount::default();
        let copy = Copy::new(&engine, volume, memory.clone(), &names);
        let copy = copy.ok_or("the volume is no copy")?;
        let mut store = Self {
            rig,
            drives,
            engine,
            devices,
            copy,
            memory,
            volume,
            out: Outbox::default(),
            events: VecDeque::new(),
            canary,
            is_full: false,
            content: vec![0; shape.granules as usize],
            values: HashMap::new(),
            version: 0,
            orders: 0,
            posted: false,
        };
        let change = EntryChange {
            entry,
            marks_uncertain: false,
            marks: ExtentSet::new(),
            members: Positions::NONE,
            own: OwnPlane::Until(Known::default()),
        };
        if store.copy.entry() != entry {
            store.persist(Token(0), change);
        }
        while store.copy.entry() != entry {
            store.step()?;
        }
        store.events.clear();
        store.refresh()?;
        Ok(store)
    }

    /// Lets time go on until something happens.
    fn step(&mut self) -> Result<(), String> {
        let next = self.next().ok_or("nothing happens any more")?;
        let soon = self.rig.now() + Duration::from_nanos(100);
        self.rig.advance(next.max(soon));
        self.turn()
    }

    /// The state of this moment, and what the replica is to hear of it.
    pub(crate) fn advance(&mut self, now: Moment) -> Result<Option<Event>, String> {
        self.rig.advance(now);
        self.turn()?;
        self.refresh()?;
        Ok(self.events.pop_front())
    }

    fn local(&mut self) -> EngineLocal<'_> {
        let now = self.rig.now();
        EngineLocal::new(&mut self.engine, &mut self.copy, now, &mut self.out)
    }

    /// Everything that can happen now, happens.
    fn turn(&mut self) -> Result<(), String> {
        for _ in 0..MOST_TURNS {
            self.posted |= self.local().resume();
            let now = self.rig.now();
            let due = self.engine.next_deadline().is_some_and(|at| at <= now);
            let mut any = std::mem::take(&mut self.posted) || due;
            if any {
                self.engine.handle(now, PoolEvent::Tick, &mut self.out);
            }
            any |= self.deliver()?;
            if let Some(why) = self.engine.failure().or(self.copy.failure()) {
                return Err(format!("the engine stops: {why}"));
            }
            if !any {
                return Ok(());
            }
        }
        Err("the engine never rests".into())
    }

    /// Hands on what was asked for and answered.
    fn deliver(&mut self) -> Result<bool, String> {
        for (drive, request) in self.out.io.drain(..) {
            let sent = self.devices.submit(drive, request);
            sent.map_err(|missing| missing.to_string())?;
        }
        for completion in self.out.done.drain(..) {
            if volume_of(completion.tag) == Some(self.volume) {
                self.copy.completed(completion);
            }
        }
        for (id, answer) in self.out.managed.drain(..) {
            if volume_of(id) == Some(self.volume) {
                self.copy.managed(id, answer);
            }
        }
        while let Some(event) = self.copy.next_event() {
            self.events.push_back(contracted(event));
        }
        while let Some(read) = self.copy.next_directly_read() {
            let DirectlyRead {
                token,
                buffer,
                result,
            } = read;
            let bytes = || Bytes::copy_from_slice(&buffer.expect("what was lent comes back"));
            let result = result.map(|()| bytes());
            self.events
                .push_back(contracted(Event::Read { token, result }));
        }
        let now = self.rig.now();
        let (engine, out, mut any) = (&mut self.engine, &mut self.out, false);
        self.devices.poll(now, |drive, completion| {
            engine.post(now, PoolEvent::Done { drive, completion }, out);
            any = true;
        });
        self.posted |= any;
        match self.rig.violation() {
            Some(violation) => Err(violation),
            None => Ok(any),
        }
    }

    /// When something happens next by itself.
    pub(crate) fn next(&self) -> Option<Moment> {
        if self.posted || !self.events.is_empty() {
            return Some(self.rig.now());
        }
        let drives = self.drives.iter().filter_map(|drive| drive.borrow().next());
        drives.chain(self.engine.next_deadline()).min()
    }

    /// Looks at what is visible.
    fn refresh(&mut self) -> Result<(), String> {
        let granules = 0..self.content.len() as u64;
        let Some(sums) = self.engine.checksums(self.volume, granules) else {
            return Ok(());
        };
        for (granule, sum) in sums.into_iter().enumerate() {
            let value = match sum {
                0 => 0,
                sum => *self
                    .values
                    .get(&sum)
                    .ok_or_else(|| format!("granule {granule} holds what was never written"))?,
            };
            if self.content[granule] != value {
                self.content[granule] = value;
                self.version += 1;
            }
        }
        Ok(())
    }

    pub(crate) const fn entry(&self) -> Entry {
        self.copy.entry()
    }

    pub(crate) fn found(&self) -> Head {
        Head(self.engine.replicas().head(self.volume))
    }

    pub(crate) const fn heads(&self) -> Heads {
        self.copy.imported(false).heads
    }

    /// Counts changes of what the invariants look at.
    pub(crate) fn version(&self) -> u64 {
        self.version + self.engine.published()
    }

    pub(crate) fn content(&self) -> &[Value] {
        &self.content
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.copy.is_drained() && self.events.is_empty()
    }

    /// Lets its records go.
    pub(crate) fn spill(&mut self) {
        self.orders += 1;
        let (id, what) = (self.orders, Manage::Drain);
        let now = self.rig.now();
        self.engine
            .post(now, PoolEvent::Manage { id, what }, &mut self.out);
        self.posted = true;
        self.version += 1;
    }

    /// The process dies; with the power, what drives had not flushed goes, too. Another process imports the pool.
    pub(crate) fn crash(&mut self, chance: &mut Chance) -> Result<(), String> {
        let power = chance.happens(500);
        let before = self.engine.published();
        self.devices = DriveTable::default();
        for drive in &self.drives {
            drive.borrow_mut().crash(power);
        }
        let running = import(&self.rig, &self.drives, self.canary)?;
        (self.engine, self.devices) = (running.engine, DriveTable::new(running.devices));
        let found = self.engine.published();
        if found < before {
            return Err(format!(
                "the pool had come to {before}, and comes back with {found}"
            ));
        }
        self.out = Outbox::default();
        self.events.clear();
        self.posted = false;
        let memory = self.memory.clone();
        let names = NameCount::default();
        let copy = Copy::new(&self.engine, self.volume, memory, &names);
        self.copy = copy.ok_or("the copy is gone")?;
        // What the invariants look at must be in memory.
        self.local()
            .read(Token(0), Extent::new(0, 1).ok_or("no granule")?);
        for _ in 0..MOST_STEPS {
            if !self.events.is_empty() {
                break;
            }
            self.posted = true;
            self.step()?;
        }
        if self.events.is_empty() {
            return Err("a copy that was imported never reads".into());
        }
        self.events.clear();
        self.version += 1 << 20;
        self.refresh()
    }

    /// A drive dies, if it is not the last: its pool goes on without it.
    pub(crate) fn lose_drive(&mut self) -> bool {
        let lives = |drive: &&Shared| !drive.borrow().is_dead();
        let living: Vec<&Shared> = self.drives.iter().filter(lives).collect();
        let [first, _, ..] = living[..] else {
            return false;
        };
        first.borrow_mut().die();
        true
    }

    /// A block of the first drive cannot be read, or has another bit, until it is written; if there is a second one, and
    /// neither has died. One that dies is the first.
    pub(crate) fn spoil(&mut self, chance: &mut Chance) -> bool {
        let [first, second] = &self.drives[..] else {
            return false;
        };
        let mut first = first.borrow_mut();
        if first.is_dead() || second.borrow().is_dead() {
            return false;
        }
        let Some(page) = first.pages.used_page(chance) else {
            return false;
        };
        let at = page + chance.below(GRANULE as u64);
        match chance.happens(500) {
            true => first.pages.spoil(at),
            false => first.pages.flip(at, chance.below(8) as u32),
        }
        true
    }

    /// A change that finds no space.
    fn refuse(&mut self, token: Token) {
        let result = Err(IoError::new(ErrorKind::NoSpace, "the store is full"));
        self.events.push_back(Event::Applied { token, result });
    }
}

fn import(
    rig: &Rc<Rig>,
    drives: &[Shared],
    canary: Option<Canary>,
) -> Result<Running<Engine>, String> {
    let lives = |drive: &&Shared| !drive.borrow().is_dead();
    let devices = drives.iter().filter(lives).map(Handle::open).collect();
    let wish = Wish {
        canary,
        degraded: true,
        ..Wish::default()
    };
    <Engine as Subject>::import(devices, wait(rig, drives), wish)
}

/// A pool before it has a copy.
struct Fresh {
    rig: Rc<Rig>,
    engine: Engine,
    devices: DriveTable,
    out: Outbox,
}

impl Fresh {
    fn order(&mut self, what: Manage) -> Result<Managed, String> {
        let now = self.rig.now();
        self.engine
            .handle(now, PoolEvent::Manage { id: 1, what }, &mut self.out);
        for _ in 0..MOST_TURNS {
            if let Some((_, answer)) = self.out.managed.pop() {
                return answer.map_err(|error| error.to_string());
            }
            for (drive, request) in self.out.io.drain(..) {
                let sent = self.devices.submit(drive, request);
                sent.map_err(|missing| missing.to_string())?;
            }
            self.rig.pass(Duration::from_micros(10));
            let now = self.rig.now();
            let (engine, out) = (&mut self.engine, &mut self.out);
            self.devices.poll(now, |drive, completion| {
                engine.handle(now, PoolEvent::Done { drive, completion }, out);
            });
            self.engine.handle(now, PoolEvent::Tick, &mut self.out);
        }
        Err("an order is never answered".into())
    }
}

/// A granule for each value.
fn expanded(words: &[u8]) -> Bytes {
    let granules = words
        .chunks(GRANULE_BYTES)
        .map(|word| word.repeat(GRANULE / GRANULE_BYTES));
    Bytes::from(granules.collect::<Vec<_>>().concat())
}

/// A read's granules, as the world's hosts know them.
fn contracted(event: Event) -> Event {
    match event {
        Event::Read { token, result } => {
            let short = |bytes: Bytes| {
                let words = bytes
                    .chunks(GRANULE)
                    .map(|granule| &granule[..GRANULE_BYTES]);
                Bytes::from(words.collect::<Vec<_>>().concat())
            };
            let result = result.map(short);
            Event::Read { token, result }
        }
        other => other,
    }
}

impl Local for PoolStore {
    fn apply(&mut self, token: Token, extent: Extent, content: Content, tag: Option<Tag>) {
        self.posted = true;
        if self.is_full {
            return self.refuse(token);
        }
        let content = match content {
            Content::Zeroes => {
                // They may be written as bytes.
                self.values.insert(Salt(SALT).crc(&bytes_of(0)), 0);
                Content::Zeroes
            }
            Content::Data(words) => {
                let mut all = BytesMut::new();
                for word in words.chunks(GRANULE_BYTES) {
                    let mut bytes = [0; GRANULE_BYTES];
                    bytes.copy_from_slice(word);
                    let value = Value::from_le_bytes(bytes);
                    let granule = bytes_of(value);
                    self.values.insert(Salt(SALT).crc(&granule), value);
                    all.extend_from_slice(&granule);
                }
                Content::Data(all.freeze())
            }
        };
        self.local().apply(token, extent, content, tag);
    }

    fn read(&mut self, token: Token, extent: Extent) {
        self.posted = true;
        self.local().read(token, extent);
    }

    fn read_directly(&mut self, token: Token, extent: Extent) -> bool {
        let bytes = extent.count() as usize * GRANULE;
        let Some(buffer) = self.memory.get(bytes) else {
            return false;
        };
        self.posted = true;
        let mut local = self.local();
        local.lend(buffer);
        local.read_directly(token, extent)
    }

    fn head(&mut self) -> Head {
        self.local().head()
    }

    fn remember(&mut self, heads: Heads) {
        self.posted = true;
        self.local().remember(heads);
    }

    fn persist(&mut self, token: Token, change: EntryChange) {
        self.posted = true;
        self.version += 1;
        self.local().persist(token, change);
    }

    fn digest(&mut self, token: Token, extent: Extent) {
        self.posted = true;
        self.local().digest(token, extent);
    }

    fn matches(&self, extent: Extent, content: &Content) -> Option<bool> {
        let content = match content {
            Content::Zeroes => Content::Zeroes,
            Content::Data(words) => Content::Data(expanded(words)),
        };
        ashlar_copy::matches(&self.engine, self.volume, extent, &content)
    }

    fn unwritten(&self, leaf: Leaf, most: u32) -> u32 {
        unwritten(&self.engine, &self.copy, leaf, most)
    }

    fn learn(&mut self, known: Known) {
        self.version += 1;
        self.local().learn(known);
    }

    fn uncertain(&self) -> ExtentSet {
        ashlar_copy::uncertain(&self.engine, self.volume)
    }

    fn plane(&self, position: Position) -> ExtentSet {
        ashlar_copy::plane(&self.engine, self.volume, position)
    }

    fn mark(&mut self, position: Position, extent: Extent) {
        self.version += 1;
        self.local().mark(position, extent);
    }

    fn clear(&mut self, position: Position, extent: Extent) {
        self.version += 1;
        self.local().clear(position, extent);
    }

    fn is_drained(&self) -> bool {
        let news = |event: &Event| matches!(event, Event::Applied { .. } | Event::Persisted { .. });
        self.copy.is_drained() && !self.events.iter().any(news)
    }

    fn free(&self) -> u64 {
        match self.is_full {
            true => 0,
            false => self.engine.free_granules(self.volume),
        }
    }
}

#[cfg(test)]
mod tests {
    use ashlar_copy::LEAF_GRANULES;
    use ashlar_replica::{Epoch, Leaves, Low, ReplicaSequence};

    use super::*;

    /// Of a volume whose planes have room in a small pool; so often that it is a tebibyte.
    const LEAVES: u64 = 2048;
    const ROUNDS: u64 = 256;

    fn store() -> PoolStore {
        let position = Position::new(0).expect("a position");
        let shape = Shape::new(20, LEAF_GRANULES);
        let made = PoolStore::new(position, shape, Entry::default(), None, &mut Chance::new(1));
        made.expect("a pool")
    }

    #[test]
    fn a_leaf_is_written_as_soon_as_the_ring_has_something_of_it() {
        let mut store = store();
        assert_eq!(store.unwritten(Leaf(0), 8), 1, "there is one leaf");
        let (token, extent) = (Token(1), Extent::new(3, 1).expect("an extent"));
        let content = Content::Data(vec![7; GRANULE_BYTES].into());
        store.apply(token, extent, content, None);
        while store.events.is_empty() {
            store.step().expect("a step");
        }
        assert_eq!(store.unwritten(Leaf(0), 8), 0);
    }

    /// By its checksums it is known what another copy gives back.
    #[test]
    fn what_was_written_is_known_to_the_next_process() {
        let mut store = store();
        let extent = Extent::new(3, 1).expect("an extent");
        let of = |byte| Content::Data(vec![byte; GRANULE_BYTES].into());
        let tag = Tag {
            epoch: Epoch(4),
            sequence: ReplicaSequence(7),
            low: Low(7),
        };
        store.apply(Token(1), extent, of(7), Some(tag));
        while store.events.is_empty() {
            store.step().expect("a step");
        }
        for spills in [false, true] {
            if spills {
                store.spill();
                // More than it takes.
                for _ in 0..20_000 {
                    store.events.clear();
                    if store.step().is_err() {
                        break;
                    }
                }
            }
            store.crash(&mut Chance::new(3)).expect("imported");
            assert_eq!(store.matches(extent, &of(7)), Some(true), "{spills}");
            for other in [of(8), Content::Zeroes] {
                assert_eq!(store.matches(extent, &other), Some(false), "{spills}");
            }
        }
    }

    #[test]
    fn a_sparse_tebibyte_is_2048_questions_and_no_leaf_is_read() {
        let PoolStore {
            rig,
            mut engine,
            devices,
            ..
        } = store();
        let mut pool = Fresh {
            rig,
            engine,
            devices,
            out: Outbox::default(),
        };
        let plan = VolumePlan {
            name: "large".into(),
            uuid: identity(51),
            granules: LEAVES * u64::from(LEAF_GRANULES),
            layout: Layout::Mirror { copies: 1 },
            grain: None,
            class: None,
            is_cache: false,
            hot: None,
            stops: false,
        };
        let Managed::Volume(volume) = pool.order(Manage::CreateVolume(plan)).expect("made") else {
            panic!("no volume came of it");
        };
        let identity = ReplicaIdentity {
            position: 0,
            uuid: identity(61),
        };
        let made = pool.order(Manage::MakeReplica {
            volume,
            identity,
            granules: None,
        });
        made.expect("a copy");
        engine = pool.engine;
        let mut copy = Copy::new(&engine, volume, memory(), &NameCount::default()).expect("a copy");
        let shape = copy.shape();
        let (mut out, mut digests) = (Outbox::default(), Vec::new());
        for first in (0..ROUNDS * LEAVES).step_by(256) {
            let next = Leaf(first % LEAVES);
            let mut local = EngineLocal::new(&mut engine, &mut copy, Moment::ORIGIN, &mut out);
            let count = local.unwritten(next, 256);
            assert_eq!(count, 256, "all of the run is known to hold nothing");
            let extent = Leaves::new(next, count).and_then(|leaves| shape.run(leaves));
            local.digest(Token(first), extent.expect("a run"));
            while local.resume() {}
            while let Some(event) = copy.next_event() {
                if let Event::Digested { result, .. } = event {
                    digests.push(result.expect("a digest"));
                }
            }
        }
        assert_eq!(digests.len() as u64, ROUNDS * LEAVES / 256);
        assert!(digests.iter().all(|one| *one == digests[0]));
    }
}
