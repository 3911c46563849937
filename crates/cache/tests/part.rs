//! A backing device that ends within 4 KiB: its last sectors are cached, written back and left as they were, and nothing is
//! asked of it beyond them.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ashlar_block::{
    BlockRange, BlockSize, BufferPool, Completion, Durability, Geometry, Moment, Operation, Request,
};
use ashlar_cache::{Cache, Header, Identity, Layout, Mark, Mode, Side};
use fastrand::Rng;
use uuid::Uuid;

const SECTOR: usize = 512;
const CACHE: Uuid = Uuid::from_u128(9);

/// What a device holds, in blocks of this size. It answers at once.
struct Disk {
    bytes: Vec<u8>,
    block: usize,
}

impl Disk {
    fn serve(&mut self, mut request: Request) -> Completion {
        let range = request.range;
        let from = range.start.0 as usize * self.block;
        let place = &mut self.bytes[from..from + range.count as usize * self.block];
        match (request.op, &mut request.buffer) {
            (Operation::Read, Some(buffer)) => buffer.copy_from_slice(place),
            (Operation::Write(_), Some(buffer)) => place.copy_from_slice(buffer),
            (Operation::WriteZeroes { .. } | Operation::Deallocate, _) => place.fill(0),
            _ => {}
        }
        request.complete(Ok(()))
    }
}

struct World {
    cache: Cache,
    fast: Disk,
    backing: Disk,
    /// What hosts have written.
    model: Vec<u8>,
    now: Moment,
    buffers: BufferPool,
    answers: Vec<(u64, Result<(), ashlar_block::IoError>)>,
}

fn geometry(bytes: usize) -> Geometry {
    Geometry {
        volatile_cache: true,
        deallocates: true,
        max_blocks: 4096,
        ..Geometry::plain(BlockSize::B512, (bytes / SECTOR) as u64)
    }
}

impl World {
    fn new(bytes: usize, mode: Mode) -> Self {
        let layout = Layout::of_bytes(bytes as u64);
        let content: Vec<u8> = (0..bytes).map(|at| (at / SECTOR % 251) as u8 + 1).collect();
        let header = Header {
            cache: CACHE,
            layout,
            cache_bytes: 64 * 8192,
            blocks: BlockSize::B512,
            mode,
            mark: Mark::Off,
            head_crc: None,
            marked: None,
            is_untold: false,
            identity: None,
            backing: "disk".to_owned(),
        };
        let cache = Cache::create(header, geometry(bytes), Moment::ORIGIN).unwrap();
        let mut world = Self {
            cache,
            fast: Disk {
                bytes: vec![0; layout.fast_granules() as usize * 4096],
                block: 4096,
            },
            backing: Disk {
                bytes: content.clone(),
                block: SECTOR,
            },
            model: content,
            now: Moment::ORIGIN,
            buffers: BufferPool::new(8 << 20),
            answers: Vec::new(),
        };
        world.run();
        world
    }

    /// Lets all act; what hosts are answered.
    fn run(&mut self) -> Vec<Completion> {
        let mut all = Vec::new();
        for _ in 0..200 {
            self.cache.advance(self.now);
            let (mut io, mut done) = (Vec::new(), Vec::new());
            self.cache.take(&mut io, &mut done);
            all.append(&mut done);
            self.answers.append(&mut self.cache.take_answers());
            for (side, request) in io {
                let disk = match side {
                    Side::Fast => &mut self.fast,
                    Side::Backing => &mut self.backing,
                };
                let completion = disk.serve(request);
                self.cache.completed(side, completion);
            }
            self.now = self.now + Duration::from_millis(20);
        }
        assert_eq!(self.cache.failure(), None);
        all
    }

    fn ask(&mut self, op: Operation, first: u64, count: u64, byte: u8) {
        let bytes = count as usize * SECTOR;
        let buffer = op.has_buffer().then(|| {
            let mut buffer = self.buffers.get(bytes).unwrap();
            buffer.fill(byte);
            buffer
        });
        let range = BlockRange::new(first, count as u32);
        self.cache.submit(Request {
            tag: 1,
            op,
            range,
            buffer,
        });
        let done = self.run().pop().expect("an answer");
        done.result.unwrap();
        let from = first as usize * SECTOR;
        let model = &mut self.model[from..from + bytes];
        match op {
            Operation::Read => assert!(done.buffer.unwrap()[..] == *model, "{first} {count}"),
            Operation::Write(_) => model.fill(byte),
            _ => model.fill(0),
        }
    }

    fn reopen(&mut self) {
        let bytes = self.backing.bytes.len();
        let layout = Layout::of_bytes(bytes as u64);
        let cache = Cache::open(CACHE, layout, geometry(bytes), "disk", self.now).unwrap();
        let found = Identity::new(bytes as u64, None);
        self.cache = cache
            .over(found, Default::default())
            .seen_in(BlockSize::B512);
        self.run();
    }

    fn flush(&mut self) {
        self.cache.flush(5);
        self.run();
        let (_, result) = self.answers.pop().expect("an answer");
        result.unwrap();
        assert!(self.backing.bytes == self.model, "the device has all");
    }
}

#[test]
fn what_a_device_has_beyond_its_last_4_kib_is_cached_and_goes_back() {
    let zeroes = Operation::WriteZeroes {
        durability: Durability::Durable,
        deallocate: true,
    };
    for more in 1..8_usize {
        for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
            let bytes = (2 << 20) + more * SECTOR;
            let mut world = World::new(bytes, mode);
            let end = world.cache.geometry().blocks;
            assert_eq!(end, (bytes / SECTOR) as u64);
            let mut rng = Rng::with_seed(more as u64);
            for round in 0..30 {
                let count = 1 + rng.u64(..24);
                let first = end - count - rng.u64(..2) * rng.u64(..24);
                let op = match rng.u8(..8) {
                    0 => zeroes,
                    1 | 2 => Operation::Write(Durability::Durable),
                    3 => Operation::Write(Durability::Cached),
                    _ => Operation::Read,
                };
                world.ask(op, first, count, rng.u8(1..));
                match round {
                    10 | 25 => world.reopen(),
                    20 => world.flush(),
                    _ => {}
                }
            }
            let newer = world.cache.dirty_ranges();
            assert!(newer.iter().all(|(at, many)| at + many <= bytes as u64));
            world.flush();
        }
    }
}

/// It has grown, or is another one: its blocks cannot be cut where the volume ends.
#[test]
fn a_device_of_larger_blocks_does_not_take_its_place() {
    let layout = Layout::of_bytes((2 << 20) + 512);
    let larger = Geometry {
        max_blocks: 512,
        ..Geometry::plain(BlockSize::B4096, 1024)
    };
    let refused = Cache::open(CACHE, layout, larger, "disk", Moment::ORIGIN);
    let why = refused.err().expect("refused").to_string();
    assert!(why.contains("no requests of 512 bytes"), "{why}");
}
