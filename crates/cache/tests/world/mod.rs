//! Two devices that lose power and fail as they are told, and a cache over them.
#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use ashlar_block::{
    BlockRange, BlockSize, BufferPool, Completion, Durability, ErrorKind, Geometry, IoError,
    Moment, Operation, Request,
};
use ashlar_cache::{
    Cache, Defect, GRANULE, Header, Identity, Layout, Mark, Mode, Other, RuleId, Side,
};
use fastrand::Rng;
use uuid::Uuid;

pub const GRANULES: u64 = 8192 + 512;
pub const CACHE: Uuid = Uuid::from_u128(77);

pub type Granule = Rc<Vec<u8>>;

/// What becomes of flushes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flushes {
    Served,
    Fail,
    /// They fail, and what was to last is lost.
    Lose,
    /// They are done, and answered later.
    AnsweredLate,
}

/// A device whose writes last once they are flushed, or said to be durable.
pub struct Disk {
    pub lasting: BTreeMap<u64, Granule>,
    /// Completed, and lost with the power: oldest first.
    pub volatile: Vec<(u64, Granule)>,
    pub pending: Vec<Request>,
    /// Completed writes last.
    pub is_durable: bool,
    pub fails: bool,
    /// Writes of these fail, and are done in part.
    pub bad: Range<u64>,
    /// It gives no space back.
    pub keeps_space: bool,
    /// Reads of these fail.
    pub unread: Range<u64>,
    rng: Rng,
    pub flushes: Flushes,
    /// Answers that are late.
    pub late: Vec<Completion>,
    /// It does not answer.
    pub hangs: bool,
    /// It has no room for granules below this that it does not have.
    pub full_below: u64,
    /// Slots of two granules that are taken, and how many can be at most.
    pub taken: BTreeSet<u64>,
    pub room: usize,
}

/// Slots that a request is about. Behind the data each granule has its own, so that there are pages for which there is none.
fn slots_of(request: &Request) -> impl Iterator<Item = u64> + use<> {
    let (first, count) = (request.range.start.0, u64::from(request.range.count));
    (first..first + count).map(|at| if at < GRANULES { at / 2 } else { at })
}

thread_local! {
    static ZEROES: Granule = Rc::new(vec![0; GRANULE]);
}

pub fn zeroes() -> Granule {
    ZEROES.with(Rc::clone)
}

impl Disk {
    pub fn new(is_durable: bool) -> Self {
        Self {
            lasting: BTreeMap::new(),
            volatile: Vec::new(),
            pending: Vec::new(),
            is_durable,
            fails: false,
            bad: 0..0,
            keeps_space: false,
            unread: 0..0,
            rng: Rng::with_seed(1),
            flushes: Flushes::Served,
            late: Vec::new(),
            hangs: false,
            full_below: 0,
            taken: BTreeSet::new(),
            room: usize::MAX,
        }
    }

    /// Requests that it may answer.
    fn answers(&self) -> usize {
        match self.hangs {
            true => 0,
            false => self.pending.len(),
        }
    }

    /// Whether there is no room for what is written. The head is kept for the mark.
    fn is_full_for(&self, request: &Request) -> bool {
        let (first, count) = (request.range.start.0, u64::from(request.range.count));
        let is_new = |at: &u64| !self.lasting.contains_key(at);
        let mut data = (first..first + count).filter(|at| (32..self.full_below).contains(at));
        let is_write = matches!(request.op, Operation::Write(_));
        is_write && (data.any(|at| is_new(&at)) || self.is_out_of_slots_for(request))
    }

    fn is_out_of_slots_for(&self, request: &Request) -> bool {
        let fresh = slots_of(request).filter(|slot| !self.taken.contains(slot));
        let fresh = fresh.collect::<BTreeSet<_>>().len();
        fresh > 0 && self.taken.len() + fresh > self.room
    }

    /// Slots come and go with what is written and deallocated.
    fn count_slots(&mut self, request: &Request) {
        match request.op {
            Operation::Write(_) => self.taken.extend(slots_of(request)),
            Operation::Deallocate => {
                // A slot of which some is still there stays.
                let (first, count) = (request.range.start.0, u64::from(request.range.count));
                let covers = |slot: u64| {
                    let granules = if slot < GRANULES / 2 {
                        slot * 2..slot * 2 + 2
                    } else {
                        slot..slot + 1
                    };
                    granules.start >= first && granules.end <= first + count
                };
                self.taken.retain(|&slot| !covers(slot));
            }
            _ => {}
        }
    }

    pub fn get(&self, at: u64) -> Granule {
        let newest = self.volatile.iter().rev().find(|(place, _)| *place == at);
        let newest = newest.map(|(_, data)| data.clone());
        newest
            .or_else(|| self.lasting.get(&at).cloned())
            .unwrap_or_else(zeroes)
    }

    pub fn head(&self) -> Vec<u8> {
        (0..32).flat_map(|at| self.get(at).to_vec()).collect()
    }

    pub fn set_head(&mut self, head: &[u8]) {
        let granules = head.chunks(GRANULE).map(|data| Rc::new(data.to_vec()));
        self.volatile.clear();
        self.lasting.extend((0..).zip(granules));
    }

    /// Granules that a request changes, and to what.
    pub fn changes(request: &Request) -> Vec<(u64, Granule)> {
        let (first, count) = (request.range.start.0, u64::from(request.range.count));
        match (request.op, &request.buffer) {
            (Operation::Write(_), Some(buffer)) => {
                let data = buffer.chunks(GRANULE).map(|data| Rc::new(data.to_vec()));
                (first..).zip(data).collect()
            }
            (Operation::WriteZeroes { .. } | Operation::Deallocate, _) => {
                (first..first + count).map(|at| (at, zeroes())).collect()
            }
            _ => Vec::new(),
        }
    }

    fn refuses(&self, request: &Request) -> bool {
        let (first, count) = (request.range.start.0, u64::from(request.range.count));
        let meets = |range: &Range<u64>| first < range.end && range.start < first + count;
        let is_bad = meets(&self.bad);
        self.fails
            || request.op == Operation::Read && meets(&self.unread)
            || request.op.modifies() && is_bad
            || request.op == Operation::Flush
                && matches!(self.flushes, Flushes::Fail | Flushes::Lose)
    }

    pub fn serve(&mut self, mut request: Request) -> Completion {
        if self.is_full_for(&request) {
            return request.complete(Err(IoError::new(ErrorKind::NoSpace, "as told")));
        }
        if self.keeps_space && request.op == Operation::Deallocate {
            return request.complete(Err(IoError::new(ErrorKind::NoSpace, "as told")));
        }
        self.count_slots(&request);
        if self.refuses(&request) {
            let some = Self::changes(&request).into_iter();
            let some: Vec<_> = some.filter(|_| self.rng.bool()).collect();
            self.volatile.extend(some);
            if request.op == Operation::Flush && self.flushes == Flushes::Lose {
                self.volatile.clear();
            }
            return request.complete(Err(IoError::new(ErrorKind::Media, "as told")));
        }
        if let (Operation::Read, Some(buffer)) = (request.op, &mut request.buffer) {
            for (at, place) in (request.range.start.0..).zip(buffer.chunks_mut(GRANULE)) {
                let newest = self.volatile.iter().rev().find(|(place, _)| *place == at);
                let newest = newest.map(|(_, data)| data);
                match newest.or_else(|| self.lasting.get(&at)) {
                    Some(data) => place.copy_from_slice(data),
                    None => place.fill(0),
                }
            }
        }
        let durable = self.is_durable
            || matches!(
                request.op,
                Operation::Write(Durability::Durable)
                    | Operation::WriteZeroes {
                        durability: Durability::Durable,
                        ..
                    }
            );
        self.volatile.extend(Self::changes(&request));
        if request.op == Operation::Flush || self.is_durable {
            for (at, data) in std::mem::take(&mut self.volatile) {
                self.lasting.insert(at, data);
            }
        } else if durable {
            let places: BTreeSet<u64> = Self::changes(&request).iter().map(|(at, _)| *at).collect();
            for (at, data) in self.volatile.extract_if(.., |(at, _)| places.contains(at)) {
                self.lasting.insert(at, data);
            }
        }
        request.complete(Ok(()))
    }

    /// The power fails: of what does not last, each granule has some version; of what is under way, too.
    pub fn cut(&mut self, rng: &mut Rng) {
        self.cut_as(None, rng);
    }

    /// The same; or all that is under way or does not last is kept, or lost.
    pub fn cut_as(&mut self, keeps: Option<bool>, rng: &mut Rng) {
        for request in std::mem::take(&mut self.pending) {
            let whole = self.is_durable && request.range.count <= 16;
            let all = keeps.unwrap_or_else(|| rng.bool());
            self.count_slots(&request);
            for change in Self::changes(&request) {
                if if whole {
                    all
                } else {
                    keeps.unwrap_or_else(|| rng.bool())
                } {
                    self.volatile.push(change);
                }
            }
        }
        for (at, data) in std::mem::take(&mut self.volatile) {
            if self.is_durable || keeps.unwrap_or_else(|| rng.bool()) {
                self.lasting.insert(at, data);
            }
        }
    }
}

pub struct World {
    pub rng: Rng,
    pub fast: Disk,
    pub backing: Disk,
    pub cache: Option<Cache>,
    pub now: Moment,
    pub buffers: BufferPool,
    /// What each block may hold; the last is the newest.
    pub model: BTreeMap<u64, Vec<u64>>,
    /// What a crash may bring back, of writes that need not last yet: when the last was answered, and what was before.
    pub fleeting: BTreeMap<u64, (u64, Vec<u64>)>,
    pub shape: Shape,
    pub flying: BTreeMap<u64, (Operation, u64, u64, u64)>,
    pub next: u64,
    pub defect: Option<Defect>,
    /// A device fails: requests may, too. Those that have.
    pub tolerates: bool,
    pub failed: Vec<u64>,
    /// What is said of the backing device when the cache is taken up.
    pub found: Identity,
    pub other: Other,
    /// Memory of the cache for requests.
    pub memory: usize,
    /// Requests that are served until the power fails at the next one; how many were.
    pub fuse: Option<u64>,
    pub served: u64,
    /// It has failed there: nothing goes on.
    pub is_out: bool,
}

/// What a cache is to be.
#[derive(Clone, Copy)]
pub struct Shape {
    pub mode: Mode,
    pub blocks: BlockSize,
}

impl Shape {
    pub fn of(mode: Mode) -> Self {
        Self {
            mode,
            blocks: BlockSize::B4096,
        }
    }

    pub fn block(self) -> usize {
        self.blocks.bytes() as usize
    }

    /// Blocks of a granule.
    pub fn each(self) -> u64 {
        (GRANULE / self.block()) as u64
    }
}

pub fn geometry() -> Geometry {
    Geometry {
        volatile_cache: true,
        deallocates: true,
        ..Geometry::plain(BlockSize::B4096, GRANULES)
    }
}

/// A block at both of whose ends a stamp is.
pub fn stamped(stamp: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    data[..8].copy_from_slice(&stamp.to_le_bytes());
    data[bytes - 8..].copy_from_slice(&stamp.to_le_bytes());
    data
}

pub fn stamp_of(data: &[u8]) -> u64 {
    let at = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
    assert_eq!(at(0), at(data.len() - 8), "a torn block");
    at(0)
}

/// What each granule of a device holds, and each block.
type Content = (BTreeMap<u64, Granule>, BTreeMap<u64, Vec<u64>>);

thread_local! {
    /// It is made once.
    static MADE: RefCell<BTreeMap<(u32, u64), Content>> = const { RefCell::new(BTreeMap::new()) };
}

/// A device that holds something, which is this much from each granule's number; and what each block holds.
fn old_device(shape: Shape, more: u64) -> (Disk, BTreeMap<u64, Vec<u64>>) {
    let key = (shape.blocks.bytes(), more);
    let (lasting, model) = MADE.with_borrow_mut(|made| {
        let made = made.entry(key).or_insert_with(|| old_content(shape, more));
        made.clone()
    });
    let disk = Disk {
        lasting,
        ..Disk::new(false)
    };
    (disk, model)
}

fn old_content(shape: Shape, more: u64) -> Content {
    let (mut lasting, mut model) = (BTreeMap::new(), BTreeMap::new());
    for granule in 0..GRANULES {
        let is_there = granule % 3 != 0;
        let stamp = if is_there { granule + more } else { 0 };
        if is_there {
            let data = stamped(stamp, shape.block()).repeat(shape.each() as usize);
            lasting.insert(granule, Rc::new(data));
        }
        for block in granule * shape.each()..(granule + 1) * shape.each() {
            model.insert(block, vec![stamp]);
        }
    }
    (lasting, model)
}

impl World {
    /// Another device comes under the cache's path, which holds something else; with that which was there.
    pub fn exchange(&mut self) -> (Disk, BTreeMap<u64, Vec<u64>>) {
        let (disk, model) = old_device(self.shape, 1 << 20);
        let disk = std::mem::replace(&mut self.backing, disk);
        (disk, std::mem::replace(&mut self.model, model))
    }

    pub fn new(seed: u64, shape: Shape, defect: Option<Defect>) -> Self {
        Self::with_room(70, seed, shape, defect)
    }

    /// One whose cache has room for so many blocks.
    pub fn with_room(blocks: u64, seed: u64, shape: Shape, defect: Option<Defect>) -> Self {
        let (backing, model) = old_device(shape, 1);
        let header = Header {
            cache: CACHE,
            layout: Layout::of_granules(GRANULES),
            cache_bytes: blocks * 8192,
            blocks: shape.blocks,
            mode: shape.mode,
            mark: Mark::Off,
            head_crc: None,
            marked: None,
            is_untold: false,
            identity: None,
            backing: "disk".to_owned(),
        };
        let mut cache = Cache::create(header, geometry(), Moment::ORIGIN).unwrap();
        if let Some(defect) = defect {
            cache.break_on_purpose(defect);
        }
        Self {
            rng: Rng::with_seed(seed),
            fast: Disk::new(true),
            backing,
            cache: Some(cache),
            now: Moment::ORIGIN,
            buffers: BufferPool::new(64 << 20),
            model,
            fleeting: BTreeMap::new(),
            flying: BTreeMap::new(),
            next: 1 << 32,
            shape,
            defect,
            tolerates: false,
            failed: Vec::new(),
            found: Identity::new(GRANULES * GRANULE as u64, None),
            other: Other::Refused,
            memory: usize::MAX,
            fuse: None,
            served: 0,
            is_out: false,
        }
    }

    /// Its cache has so little memory for requests.
    pub fn in_memory_of(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self.cache = self.cache.map(|cache| cache.in_memory_of(bytes));
        self
    }

    pub fn cache(&mut self) -> &mut Cache {
        self.cache.as_mut().unwrap()
    }

    /// A granule: a few are hot, some lie where a page ends, some in the head.
    pub fn place(&mut self) -> u64 {
        match self.rng.u8(..10) {
            0 => self.rng.u64(..40),
            1..6 => 100 + self.rng.u64(..60),
            6 | 7 => 8192 - 20 + self.rng.u64(..40),
            _ => self.rng.u64(..GRANULES - 16),
        }
    }

    pub fn ask(&mut self) {
        let each = self.shape.each();
        let first = self.place() * each + self.rng.u64(..each);
        let count = 1 + self.rng.u64(..8 * each);
        let busy = |world: &Self| {
            let mut flying = world.flying.values();
            flying.any(|(_, from, many, _)| first < from + many && *from < first + count)
        };
        if busy(self) {
            return;
        }
        let op = match self.rng.u8(..20) {
            0..8 => Operation::Write(Durability::Durable),
            8 | 9 => Operation::Write(Durability::Cached),
            10 if self.rng.u8(..4) == 0 => Operation::WriteZeroes {
                durability: Durability::Durable,
                deallocate: true,
            },
            _ => Operation::Read,
        };
        self.submit(op, first, count);
        match self.rng.u16(..600) {
            0..20 => self.submit(Operation::Flush, 0, 0),
            20..25 => self.change_rule(),
            25 => self.fast.full_below = GRANULES,
            26..30 => self.fast.full_below = 0,
            _ => {}
        }
    }

    /// Some is kept out, or no more.
    fn change_rule(&mut self) {
        let rule = RuleId(self.rng.u32(..2));
        let ranges = [self.place(), self.place()].map(|first| first..first + 20);
        match self.rng.bool() {
            true => self.cache().set_rule(rule, ranges.to_vec()),
            false => self.cache().remove_rule(rule),
        }
    }

    pub fn submit(&mut self, op: Operation, first: u64, count: u64) {
        let stamp = self.next;
        self.next += 1;
        let range = BlockRange::new(first, count as u32);
        let buffer = op.has_buffer().then(|| {
            let bytes = self.shape.block();
            let mut buffer = self.buffers.get(count as usize * bytes).unwrap();
            let block = stamped(stamp, bytes);
            buffer
                .chunks_mut(bytes)
                .for_each(|place| place.copy_from_slice(&block));
            buffer
        });
        let value = match op {
            Operation::Write(_) => stamp,
            _ => 0,
        };
        if op.modifies() {
            for block in first..first + count {
                self.model.get_mut(&block).unwrap().push(value);
            }
        }
        self.flying.insert(stamp, (op, first, count, value));
        self.cache().submit(Request {
            tag: stamp,
            op,
            range,
            buffer,
        });
    }

    /// Lets the cache act, and the devices answer some of what they have.
    pub fn turn(&mut self, answers: usize) {
        let now = self.now;
        let (mut io, mut done) = (Vec::new(), Vec::new());
        let cache = self.cache.as_mut().unwrap();
        cache.advance(now);
        cache.take(&mut io, &mut done);
        for (side, request) in io {
            match side {
                Side::Fast => self.fast.pending.push(request),
                Side::Backing => self.backing.pending.push(request),
            }
        }
        for completion in done {
            self.answered(completion);
        }
        for _ in 0..answers {
            self.is_out |= self.fuse == Some(self.served);
            if self.is_out {
                return;
            }
            let fast = self.fast.answers();
            let all = fast + self.backing.answers();
            if all == 0 {
                break;
            }
            let at = self.rng.usize(..all);
            let (side, disk, at) = match at < fast {
                true => (Side::Fast, &mut self.fast, at),
                false => (Side::Backing, &mut self.backing, at - fast),
            };
            let is_flush = disk.pending[at].op == Operation::Flush;
            let request = disk.pending.swap_remove(at);
            self.served += 1;
            let completion = disk.serve(request);
            if is_flush && disk.flushes == Flushes::AnsweredLate {
                disk.late.push(completion);
                continue;
            }
            self.cache.as_mut().unwrap().completed(side, completion);
        }
        self.now = self.now + Duration::from_millis(self.rng.u64(..20));
    }

    /// The backing device's late answers come.
    pub fn answer_late(&mut self) {
        for completion in std::mem::take(&mut self.backing.late) {
            self.cache().completed(Side::Backing, completion);
        }
    }

    pub fn answered(&mut self, completion: Completion) {
        let full = |error: &IoError| error.kind() == ErrorKind::NoSpace;
        let is_full = completion.result.as_ref().is_err_and(full);
        if (self.tolerates || is_full) && completion.result.is_err() {
            self.flying.remove(&completion.tag);
            self.failed.push(completion.tag);
            return;
        }
        completion.result.unwrap();
        let (op, first, count, value) = self.flying.remove(&completion.tag).unwrap();
        let bytes = self.shape.block();
        if op == Operation::Flush {
            self.fleeting.retain(|_, (at, _)| *at > completion.tag);
        }
        for block in first..first + count {
            let known = self.model.get_mut(&block).unwrap();
            if op.modifies() {
                // What was asked for before it is gone; what was asked for after it may be there.
                let at = known.iter().rposition(|&one| one == value).unwrap();
                let before = known.drain(..at);
                if op == Operation::Write(Durability::Cached) {
                    let (at, fleeting) = self.fleeting.entry(block).or_default();
                    *at = self.next;
                    fleeting.extend(before);
                } else {
                    drop(before);
                    self.fleeting.remove(&block);
                }
            } else if let Some(buffer) = &completion.buffer {
                let at = (block - first) as usize * bytes;
                let found = stamp_of(&buffer[at..at + bytes]);
                assert!(
                    known.contains(&found),
                    "block {block} is {found:x}, not {known:x?}"
                );
                // What is under way beside it may come yet.
                let comes = |value: u64| {
                    let mut flying = self.flying.values();
                    flying.any(|&(op, from, many, one)| {
                        let covers = (from..from + many).contains(&block);
                        op.modifies() && covers && one == value
                    })
                };
                known.retain(|&one| one == found || comes(one));
            }
        }
    }

    /// Lets everything act for so many turns.
    pub fn turns(&mut self, turns: usize) {
        for _ in 0..turns {
            self.turn(8);
        }
    }

    /// Everything that was asked is answered.
    pub fn quiet(&mut self) {
        for _ in 0..20_000 {
            if self.flying.is_empty() && self.cache().is_open() {
                return;
            }
            self.turn(8);
        }
        let status = self.cache().status();
        panic!("stuck: {:?} {status:?}", self.flying);
    }

    /// Everything comes to rest.
    pub fn rest(&mut self) {
        let mut still = 0;
        for _ in 0..20_000 {
            let none = self.fast.pending.is_empty() && self.backing.pending.is_empty();
            let waits = !self.flying.is_empty() || self.cache().next_deadline().is_some();
            still = if none && !waits { still + 1 } else { 0 };
            if still == 8 {
                return;
            }
            self.turn(8);
        }
        let status = self.cache().status();
        panic!("it does not come to rest: {:?} {status:?}", self.flying);
    }

    /// Slots of the fast device that its pages know, and those that are taken.
    pub fn slots(&self) -> [BTreeSet<u64>; 2] {
        let mut known = BTreeSet::new();
        for (number, at) in (0..).zip(Layout::of_granules(GRANULES).page_granules()) {
            let page = self.fast.get(at);
            let cached = &page[64..64 + 1024];
            let is_cached = |at: &u64| cached[*at as usize / 8] >> (at % 8) & 1 == 1;
            known.extend(
                (0..8192)
                    .filter(is_cached)
                    .map(|at| (number * 8192 + at) / 2),
            );
        }
        [
            known,
            self.fast.taken.range(..GRANULES / 2).copied().collect(),
        ]
    }

    /// What is taken of the fast device is known, at rest.
    pub fn check_space(&mut self) {
        self.quiet();
        self.rest();
        let [known, taken] = self.slots();
        let leaked: Vec<u64> = taken.difference(&known).copied().collect();
        assert!(leaked.is_empty(), "leaked slots: {leaked:?}");
        assert_eq!(known, taken, "slots that are not there");
        assert_eq!(self.cache().status().unswept_bytes, 0);
    }

    pub fn crash(&mut self) {
        self.cut(None);
        self.start();
    }

    /// The power fails, as [`Disk::cut_as`] says.
    pub fn cut(&mut self, keeps: Option<bool>) {
        self.cache = None;
        self.fuse = None;
        self.is_out = false;
        self.backing.late.clear();
        self.fast.cut_as(keeps, &mut self.rng);
        self.backing.cut_as(keeps, &mut self.rng);
        self.flying.clear();
        for (block, (_, before)) in std::mem::take(&mut self.fleeting) {
            let known = self.model.get_mut(&block).unwrap();
            known.splice(..0, before);
        }
    }

    /// The cache is taken off its devices, which do what they were asked, and taken up again.
    pub fn reopen(&mut self) {
        let is_untold = self.cache().status().is_untold;
        self.cache = None;
        for disk in [&mut self.fast, &mut self.backing] {
            while !disk.pending.is_empty() {
                let at = self.rng.usize(..disk.pending.len());
                let request = disk.pending.swap_remove(at);
                disk.serve(request);
            }
        }
        self.flying.clear();
        self.start();
        self.cache = self.cache.take().map(|cache| cache.after_loss(is_untold));
    }

    pub fn start(&mut self) {
        let layout = Layout::of_granules(GRANULES);
        let cache = Cache::open(CACHE, layout, geometry(), "disk", self.now).unwrap();
        let cache = cache.over(self.found.clone(), self.other);
        let mut cache = cache.seen_in(self.shape.blocks).in_memory_of(self.memory);
        if let Some(defect) = self.defect {
            cache.break_on_purpose(defect);
        }
        self.cache = Some(cache);
    }

    /// An operator's flush; one that says that something was lost before is given again.
    pub fn flush(&mut self) {
        self.cache().flush(5);
        for _ in 0..20_000 {
            self.turn(8);
            match self.cache().take_answers().pop() {
                Some((5, Err(error))) if error.context().contains("said once") => {
                    self.cache().flush(5);
                }
                Some((5, result)) => return result.unwrap(),
                _ => {}
            }
        }
        panic!("a flush that does not end: {:?}", self.cache().status());
    }

    /// Reads everything that may differ from the beginning.
    pub fn read_all(&mut self) {
        let count = 64 * self.shape.each();
        for first in (0..GRANULES * self.shape.each()).step_by(count as usize) {
            let stamp = self.next;
            self.next += 1;
            let range = BlockRange::new(first, count as u32);
            let buffer = self.buffers.get(64 * GRANULE);
            self.flying
                .insert(stamp, (Operation::Read, first, count, 0));
            let op = Operation::Read;
            self.cache().submit(Request {
                tag: stamp,
                op,
                range,
                buffer,
            });
            self.quiet();
        }
    }

    /// The backing device has everything by itself.
    pub fn check_backing(&mut self) {
        assert_eq!(self.cache().status().header.unwrap().mark, Mark::Off);
        assert!(self.backing.volatile.is_empty() || self.shape.mode != Mode::WriteBack);
        self.check_raw();
    }

    /// The same without its cache.
    pub fn check_raw(&self) {
        if let Some(block) = self.first_that_is_not_raw(0) {
            panic!("raw: block {block} is not {:x?}", self.model[&block]);
        }
    }

    /// The first block from a granule on of which the backing device has not what it may hold.
    pub fn first_that_is_not_raw(&self, from: u64) -> Option<u64> {
        (from * self.shape.each()..GRANULES * self.shape.each()).find(|block| {
            let data = self.backing.get(block / self.shape.each());
            let at = (block % self.shape.each()) as usize * self.shape.block();
            let found = stamp_of(&data[at..at + self.shape.block()]);
            !self.model[block].contains(&found)
        })
    }
}
