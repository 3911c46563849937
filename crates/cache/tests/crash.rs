//! A cache over two devices that lose power: whatever moment it comes at, what was acknowledged is there, a value that
//! was read stays, and after a flush the backing device has everything by itself.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use ashlar_block::{
    BlockRange, BlockSize, BufferPool, Completion, Durability, ErrorKind, Geometry, IoError,
    Moment, Operation, Request,
};
use ashlar_cache::{Cache, Defect, GRANULE, Header, Layout, Mark, Mode, Side, mark};
use fastrand::Rng;
use uuid::Uuid;

const GRANULES: u64 = 8192 + 512;
const CACHE: Uuid = Uuid::from_u128(77);

type Granule = Rc<Vec<u8>>;

/// A device whose writes last once they are flushed, or said to be durable.
struct Disk {
    lasting: BTreeMap<u64, Granule>,
    /// Completed, and lost with the power: oldest first.
    volatile: Vec<(u64, Granule)>,
    pending: Vec<Request>,
    /// Completed writes last.
    is_durable: bool,
    fails: bool,
    /// It does not answer.
    hangs: bool,
}

fn zeroes() -> Granule {
    Rc::new(vec![0; GRANULE])
}

impl Disk {
    fn new(is_durable: bool) -> Self {
        Self {
            lasting: BTreeMap::new(),
            volatile: Vec::new(),
            pending: Vec::new(),
            is_durable,
            fails: false,
            hangs: false,
        }
    }

    fn get(&self, at: u64) -> Granule {
        let newest = self.volatile.iter().rev().find(|(place, _)| *place == at);
        let newest = newest.map(|(_, data)| data.clone());
        newest
            .or_else(|| self.lasting.get(&at).cloned())
            .unwrap_or_else(zeroes)
    }

    fn head(&self) -> Vec<u8> {
        (0..32).flat_map(|at| self.get(at).to_vec()).collect()
    }

    /// Granules that a request changes, and to what.
    fn changes(request: &Request) -> Vec<(u64, Granule)> {
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

    fn serve(&mut self, mut request: Request) -> Completion {
        if self.fails {
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
    fn cut(&mut self, rng: &mut Rng) {
        for request in std::mem::take(&mut self.pending) {
            let whole = self.is_durable && request.range.count <= 16;
            let all = rng.bool();
            for change in Self::changes(&request) {
                if if whole { all } else { rng.bool() } {
                    self.volatile.push(change);
                }
            }
        }
        for (at, data) in std::mem::take(&mut self.volatile) {
            if self.is_durable || rng.bool() {
                self.lasting.insert(at, data);
            }
        }
    }
}

struct World {
    rng: Rng,
    fast: Disk,
    backing: Disk,
    cache: Option<Cache>,
    now: Moment,
    buffers: BufferPool,
    /// What each block may hold; the last is the newest.
    model: BTreeMap<u64, Vec<u64>>,
    shape: Shape,
    flying: BTreeMap<u64, (Operation, u64, u64, u64)>,
    next: u64,
    defect: Option<Defect>,
}

/// What a cache is to be.
#[derive(Clone, Copy)]
struct Shape {
    mode: Mode,
    blocks: BlockSize,
}

impl Shape {
    fn of(mode: Mode) -> Self {
        Self {
            mode,
            blocks: BlockSize::B4096,
        }
    }

    fn block(self) -> usize {
        self.blocks.bytes() as usize
    }

    /// Blocks of a granule.
    fn each(self) -> u64 {
        (GRANULE / self.block()) as u64
    }
}

fn geometry() -> Geometry {
    Geometry {
        volatile_cache: true,
        deallocates: true,
        ..Geometry::plain(BlockSize::B4096, GRANULES)
    }
}

/// A block at both of whose ends a stamp is.
fn stamped(stamp: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    data[..8].copy_from_slice(&stamp.to_le_bytes());
    data[bytes - 8..].copy_from_slice(&stamp.to_le_bytes());
    data
}

fn stamp_of(data: &[u8]) -> u64 {
    let at = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
    assert_eq!(at(0), at(data.len() - 8), "a torn block");
    at(0)
}

impl World {
    fn new(seed: u64, shape: Shape, defect: Option<Defect>) -> Self {
        Self::with_room(70, seed, shape, defect)
    }

    /// One whose cache has room for so many blocks.
    fn with_room(blocks: u64, seed: u64, shape: Shape, defect: Option<Defect>) -> Self {
        let mut backing = Disk::new(false);
        let mut model = BTreeMap::new();
        for granule in 0..GRANULES {
            let is_there = granule % 3 != 0;
            let stamp = if is_there { granule + 1 } else { 0 };
            if is_there {
                let data = stamped(stamp, shape.block()).repeat(shape.each() as usize);
                backing.lasting.insert(granule, Rc::new(data));
            }
            for block in granule * shape.each()..(granule + 1) * shape.each() {
                model.insert(block, vec![stamp]);
            }
        }
        let header = Header {
            cache: CACHE,
            granules: GRANULES,
            cache_bytes: blocks * 8192,
            blocks: shape.blocks,
            mode: shape.mode,
            mark: Mark::Off,
            head_crc: None,
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
            flying: BTreeMap::new(),
            next: 1 << 32,
            shape,
            defect,
        }
    }

    fn cache(&mut self) -> &mut Cache {
        self.cache.as_mut().unwrap()
    }

    /// A granule: a few are hot, some lie where a page ends, some in the head.
    fn place(&mut self) -> u64 {
        match self.rng.u8(..10) {
            0 => self.rng.u64(..40),
            1..6 => 100 + self.rng.u64(..60),
            6 | 7 => 8192 - 20 + self.rng.u64(..40),
            _ => self.rng.u64(..GRANULES - 16),
        }
    }

    fn ask(&mut self) {
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
            0..10 => Operation::Write(Durability::Durable),
            10 if self.rng.u8(..4) == 0 => Operation::WriteZeroes {
                durability: Durability::Durable,
                deallocate: true,
            },
            _ => Operation::Read,
        };
        self.submit(op, first, count);
    }

    fn submit(&mut self, op: Operation, first: u64, count: u64) {
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
    fn turn(&mut self, answers: usize) {
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
            let fast = self.fast.pending.len();
            let all = match self.backing.hangs {
                true => fast,
                false => fast + self.backing.pending.len(),
            };
            if all == 0 {
                break;
            }
            let at = self.rng.usize(..all);
            let (side, disk, at) = match at < fast {
                true => (Side::Fast, &mut self.fast, at),
                false => (Side::Backing, &mut self.backing, at - fast),
            };
            let request = disk.pending.swap_remove(at);
            let completion = disk.serve(request);
            self.cache.as_mut().unwrap().completed(side, completion);
        }
        self.now = self.now + Duration::from_millis(self.rng.u64(..20));
    }

    fn answered(&mut self, completion: Completion) {
        if self.fast.fails {
            self.flying.remove(&completion.tag);
            return;
        }
        completion.result.unwrap();
        let (op, first, count, value) = self.flying.remove(&completion.tag).unwrap();
        let bytes = self.shape.block();
        for block in first..first + count {
            let known = self.model.get_mut(&block).unwrap();
            if op.modifies() {
                *known = vec![value];
            } else if let Some(buffer) = &completion.buffer {
                let at = (block - first) as usize * bytes;
                let found = stamp_of(&buffer[at..at + bytes]);
                assert!(
                    known.contains(&found),
                    "block {block} is {found:x}, not {known:x?}"
                );
                *known = vec![found];
            }
        }
    }

    /// Everything that was asked is answered.
    fn quiet(&mut self) {
        for _ in 0..20_000 {
            if self.flying.is_empty() && self.cache().is_open() {
                return;
            }
            self.turn(8);
        }
        let status = self.cache().status();
        panic!("stuck: {:?} {status:?}", self.flying);
    }

    fn crash(&mut self) {
        self.cache = None;
        self.fast.cut(&mut self.rng);
        self.backing.cut(&mut self.rng);
        self.flying.clear();
        self.start();
    }

    fn start(&mut self) {
        let shape = (Layout { granules: GRANULES }, geometry());
        let cache = Cache::open(CACHE, shape, "disk", self.now).unwrap();
        let mut cache = cache.seen_in(self.shape.blocks);
        if let Some(defect) = self.defect {
            cache.break_on_purpose(defect);
        }
        self.cache = Some(cache);
    }

    fn flush(&mut self) {
        self.cache().flush(5);
        for _ in 0..20_000 {
            self.turn(8);
            let answers = self.cache().take_answers();
            if let Some((_, result)) = answers.into_iter().find(|(id, _)| *id == 5) {
                return result.unwrap();
            }
        }
        panic!("a flush that does not end: {:?}", self.cache().status());
    }

    /// Reads everything that may differ from the beginning.
    fn read_all(&mut self) {
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
    fn check_backing(&mut self) {
        assert_eq!(self.cache().status().header.unwrap().mark, Mark::Off);
        assert!(self.backing.volatile.is_empty() || self.shape.mode != Mode::WriteBack);
        for granule in 0..GRANULES {
            let data = self.backing.get(granule);
            let blocks = data.chunks(self.shape.block());
            for (block, data) in (granule * self.shape.each()..).zip(blocks) {
                let (found, known) = (stamp_of(data), &self.model[&block]);
                assert!(
                    known.contains(&found),
                    "raw: block {block} is {found:x}, not {known:x?}"
                );
            }
        }
    }
}

fn live(seed: u64, shape: Shape, defect: Option<Defect>) {
    let mut world = World::new(seed, shape, defect);
    for _ in 0..4 {
        for _ in 0..world.rng.usize(50..400) {
            if world.flying.len() < 24 {
                world.ask();
            }
            let answers = world.rng.usize(..4);
            world.turn(answers);
            if world.rng.u16(..400) == 0 {
                world.now = world.now + Duration::from_secs(3);
            }
        }
        let dirty = world.cache().status().dirty_bytes > 32 * 4096;
        if dirty && shape.mode == Mode::WriteBack && world.cache().is_open() {
            let marked = world.backing.head();
            assert!(mark::whose(&marked) == Some(CACHE) || world.rng.bool());
        }
        match world.rng.u8(..4) {
            0 => {
                world.quiet();
                world.flush();
                world.check_backing();
            }
            _ => {
                world.crash();
                world.quiet();
                world.read_all();
            }
        }
    }
    world.quiet();
    world.flush();
    world.check_backing();
    world.crash();
    world.quiet();
    world.read_all();
}

#[test]
fn nothing_acknowledged_is_lost_and_the_backing_device_is_whole_after_a_flush() {
    let seeds = match std::env::var_os("ASHLAR_SOAK") {
        Some(_) => 2000,
        None => 12,
    };
    for seed in 0..seeds {
        live(seed, Shape::of(Mode::WriteBack), None);
    }
}

#[test]
fn so_it_is_when_writes_go_through_or_around() {
    for seed in 0..4 {
        live(seed, Shape::of(Mode::WriteThrough), None);
        live(seed, Shape::of(Mode::WriteAround), None);
    }
}

#[test]
fn so_it_is_when_hosts_write_parts_of_granules() {
    for (seed, mode) in [
        (0, Mode::WriteBack),
        (1, Mode::WriteBack),
        (2, Mode::WriteThrough),
        (3, Mode::WriteAround),
    ] {
        let blocks = BlockSize::B512;
        live(seed, Shape { mode, blocks }, None);
    }
}

/// Share of what was cached that is there after a crash.
fn warm_after_crash(seed: u64, defect: Option<Defect>) -> f64 {
    let mut world = World::new(seed, Shape::of(Mode::WriteBack), defect);
    for _ in 0..400 {
        if world.flying.len() < 24 {
            world.ask();
        }
        world.turn(3);
    }
    world.quiet();
    // What has come in is recorded soon.
    world.flush();
    for _ in 0..100 {
        world.turn(8);
    }
    let before = world.cache().status().cached_bytes;
    assert!(before > 64 * 4096);
    world.crash();
    world.quiet();
    world.cache().status().cached_bytes as f64 / before as f64
}

#[test]
fn a_cache_is_as_warm_after_a_crash() {
    for seed in 0..4 {
        let share = warm_after_crash(seed, None);
        assert!(share >= 0.95, "{share}");
    }
    let cold = warm_after_crash(0, Some(Defect::ColdAfterCrash));
    assert!(cold < 0.95, "{cold}: what is dropped goes unnoticed");
}

/// Granules that are written back in four seconds in which hosts only read: what is cached, or what is not. They have
/// written before the cache was taken up, so nothing is owed for that.
fn written_back_beside(reads_cached: bool) -> u64 {
    let mut world = World::with_room(700, 1, Shape::of(Mode::WriteBack), None);
    for place in 0..560 {
        world.submit(Operation::Write(Durability::Durable), 300 + 4 * place, 2);
        if place == 0 {
            // The mark is put.
            world.quiet();
        }
    }
    // More than three quarters, and none of it has gone back.
    world.backing.hangs = true;
    while world.cache().status().dirty_bytes < 1090 * GRANULE as u64 {
        world.turn(8);
    }
    world.backing.hangs = false;
    world.crash();
    world.quiet();
    let (from, before) = (world.now, world.cache().status().written_back_bytes);
    while world.now.since(from) < Duration::from_secs(4) {
        let place = match reads_cached {
            true => 300,
            false => 3000 + 2 * world.rng.u64(..2500),
        };
        world.submit(Operation::Read, place, 1);
        world.turn(8);
    }
    (world.cache().status().written_back_bytes - before) / GRANULE as u64
}

#[test]
fn write_back_makes_way_for_hosts() {
    let (beside, alone) = (written_back_beside(false), written_back_beside(true));
    // Runs that were under way before hosts came, two granules each; and then one each second.
    assert!(alone >= 130 && beside <= 80, "{beside} and {alone}");
}

#[test]
fn a_flush_makes_durable_what_went_around() {
    for seed in 0..20 {
        for mode in [Mode::WriteAround, Mode::WriteThrough] {
            let mut world = World::new(seed, Shape::of(mode), None);
            for place in 0..20 {
                world.submit(Operation::Write(Durability::Cached), 100 + 3 * place, 2);
            }
            world.quiet();
            world.submit(Operation::Flush, 0, 0);
            world.quiet();
            world.crash();
            world.quiet();
            world.read_all();
        }
    }
}

#[test]
fn a_flush_does_not_wait_for_the_disk_when_nothing_went_around() {
    let mut world = World::new(1, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Write(Durability::Cached), 300, 2);
    world.quiet();
    world.submit(Operation::Flush, 0, 0);
    // No device answers.
    world.turn(0);
    world.turn(0);
    assert!(world.flying.is_empty(), "{:?}", world.flying);
    world.crash();
    world.quiet();
    world.read_all();
}

#[test]
fn who_waits_for_room_hears_of_a_cache_that_fails() {
    let mut world = World::new(3, Shape::of(Mode::WriteBack), None);
    world.submit(Operation::Write(Durability::Durable), 300, 2);
    world.quiet();
    world.backing.hangs = true;
    for place in 1..80 {
        world.submit(Operation::Write(Durability::Durable), 300 + 4 * place, 2);
    }
    while world.cache().status().dirty_bytes < 140 * GRANULE as u64 {
        world.turn(1);
    }
    assert!(world.flying.len() > 10, "none waits");
    world.fast.fails = true;
    world.backing.hangs = false;
    for _ in 0..200 {
        world.turn(8);
    }
    assert!(world.cache().status().failure.is_some());
    assert!(world.flying.is_empty(), "{:?}", world.flying);
}

#[test]
fn what_is_gone_and_revived_is_noticed() {
    sings(Defect::AroundBeforeRecord);
}

fn sings(defect: Defect) {
    std::panic::set_hook(Box::new(|_| {}));
    let noticed = (0..150).find(|&seed| {
        std::panic::catch_unwind(|| live(seed, Shape::of(Mode::WriteBack), Some(defect))).is_err()
    });
    let _ = std::panic::take_hook();
    assert!(noticed.is_some(), "{defect:?} goes unnoticed");
}

#[test]
fn what_is_newer_before_it_is_written_is_noticed() {
    sings(Defect::DirtyBeforeData);
}

#[test]
fn what_is_clean_before_a_flush_is_noticed() {
    sings(Defect::CleanBeforeFlush);
}

#[test]
fn an_answer_before_the_record_is_noticed() {
    sings(Defect::AcknowledgeBeforeRecord);
}

#[test]
fn data_over_what_is_recorded_as_clean_is_noticed() {
    sings(Defect::DataBeforeDirty);
}

#[test]
fn dropping_before_the_record_is_noticed() {
    sings(Defect::DropBeforeRecord);
}

#[test]
fn what_a_host_writes_over_a_run_on_its_way_back_is_not_taken_for_clean() {
    sings(Defect::OvertakenIsClean);
}

#[test]
fn two_runs_of_the_same_are_noticed() {
    sings(Defect::TwoRunsOfTheSame);
}
