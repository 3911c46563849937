//! What any target must survive, and any namespace must do, seen through a `RemoteDevice`.

use std::time::{Duration, Instant};

use ashlar_block::{
    BlockDevice, BlockRange, Checked, Completion, Durability, IoBuffer, Operation, Request,
};
use ashlar_nvme_initiator::{Config, Remote, RemoteDevice, local_host, url};
use ashlar_reactor::{Options, Reactor};

/// A device on a reactor of its own, driven by the test.
pub struct Rig {
    // Dropped before the reactor, so that its last words are sent.
    pub device: Checked<RemoteDevice>,
    pub reactor: Reactor,
    pub done: Vec<Completion>,
}

pub fn config(text: &str) -> Config {
    url::parse(text, &local_host()).expect("a valid URL")
}

impl Rig {
    pub fn new(remote: &Remote) -> Self {
        let reactor = Reactor::new(&Options::default()).expect("io_uring");
        let device = Checked::new(remote.open_device(reactor.handle()));
        Self {
            device,
            reactor,
            done: Vec::new(),
        }
    }

    pub fn buffer(&self, bytes: usize) -> IoBuffer {
        self.reactor
            .handle()
            .buffers()
            .get(bytes)
            .expect("a buffer")
    }

    /// Polls until `count` completions are there.
    pub fn wait(&mut self, count: usize) {
        let start = Instant::now();
        loop {
            let now = self.reactor.handle().now();
            self.device.poll(now, &mut self.done);
            if self.done.len() >= count {
                return;
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{} of {count}",
                self.done.len()
            );
            let limit = now + Duration::from_millis(200);
            let deadline = self
                .device
                .next_deadline()
                .map_or(limit, |at| at.min(limit));
            self.reactor.turn(Some(deadline)).expect("turn");
        }
    }

    pub fn run(&mut self, request: Request) -> Completion {
        self.device.submit(request);
        self.wait(1);
        self.done.pop().expect("one")
    }

    pub fn ok(&mut self, request: Request) -> Option<IoBuffer> {
        let completion = self.run(request);
        completion.result.expect("success");
        completion.buffer
    }

    pub fn write(&mut self, range: BlockRange, seed: u8, durability: Durability) {
        let mut buffer = self.buffer(self.device.geometry().range_bytes(range));
        fill(&mut buffer, seed);
        let back = self.ok(Request::write(1, range, buffer, durability));
        check(&back.expect("the buffer comes back"), seed);
    }

    pub fn read(&mut self, range: BlockRange) -> IoBuffer {
        let mut buffer = self.buffer(self.device.geometry().range_bytes(range));
        buffer.fill(0xEE);
        self.ok(Request::read(2, range, buffer))
            .expect("the buffer comes back")
    }
}

pub fn fill(bytes: &mut [u8], seed: u8) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed;
    }
}

pub fn check(bytes: &[u8], seed: u8) {
    let mut expected = vec![0; bytes.len()];
    fill(&mut expected, seed);
    let differs = bytes.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "seed {seed} of {} bytes", bytes.len());
}

/// Every operation once in every size class, and many at once. Overwrites the device's start.
pub fn exercise(text: &str) {
    let remote = Remote::connect(config(text)).expect(text);
    let mut rig = Rig::new(&remote);
    let geometry = rig.device.geometry();
    let block = geometry.block_size.bytes();
    let sizes = [
        1,
        2,
        4,
        (32 << 10) / block,
        (64 << 10) / block,
        geometry.max_blocks,
    ];
    for (round, &count) in sizes.iter().enumerate() {
        let range = BlockRange::new(3, count.clamp(1, geometry.max_blocks));
        let durability = if round % 2 == 0 {
            Durability::Cached
        } else {
            Durability::Durable
        };
        rig.write(range, round as u8, durability);
        check(&rig.read(range), round as u8);
    }
    rig.ok(Request::flush(3));
    zeroes(&mut rig);
    many(&mut rig);
    beyond(&mut rig);
}

fn zeroes(rig: &mut Rig) {
    let most = rig.device.geometry().max_blocks;
    let range = BlockRange::new(0, most);
    rig.write(range, 77, Durability::Cached);
    let op = Operation::WriteZeroes {
        durability: Durability::Durable,
        deallocate: false,
    };
    let inner = BlockRange::new(1, most - 2);
    rig.ok(Request {
        tag: 4,
        op,
        range: inner,
        buffer: None,
    });
    let read = rig.read(range);
    let block = rig.device.geometry().block_size.bytes() as usize;
    assert!(
        read[block..read.len() - block]
            .iter()
            .all(|&byte| byte == 0),
        "zeroes"
    );
    assert!(
        read[..block].iter().any(|&byte| byte != 0),
        "the block before is untouched"
    );
    assert!(
        read[read.len() - block..].iter().any(|&byte| byte != 0),
        "the block behind too"
    );
    rig.ok(Request {
        tag: 5,
        op: Operation::Deallocate,
        range: inner,
        buffer: None,
    });
}

/// More requests than the queue is deep, of mixed sizes, then reads of them all.
fn many(rig: &mut Rig) {
    let geometry = rig.device.geometry();
    let range = |tag: u64| {
        let count = [1, 4, 16][tag as usize % 3].min(geometry.max_blocks);
        BlockRange::new(tag * 16, count)
    };
    const COUNT: u64 = 300;
    for tag in 0..COUNT {
        let mut buffer = rig.buffer(geometry.range_bytes(range(tag)));
        fill(&mut buffer, tag as u8);
        rig.device
            .submit(Request::write(tag, range(tag), buffer, Durability::Cached));
    }
    rig.wait(COUNT as usize);
    for one in rig.done.drain(..) {
        one.result.expect("written");
    }
    for tag in 0..COUNT {
        let buffer = rig.buffer(geometry.range_bytes(range(tag)));
        rig.device.submit(Request::read(tag, range(tag), buffer));
    }
    rig.wait(COUNT as usize);
    for one in rig.done.drain(..) {
        one.result.expect("read");
        check(&one.buffer.expect("buffer"), one.tag as u8);
    }
}

fn beyond(rig: &mut Rig) {
    let blocks = rig.device.geometry().blocks;
    let buffer = rig.buffer(rig.device.geometry().block_size.bytes() as usize);
    let refused = rig.run(Request::read(9, BlockRange::new(blocks, 1), buffer));
    assert!(refused.result.is_err() && refused.buffer.is_some());
}
