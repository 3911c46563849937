//! A daemon that is stopped in order and started again while hosts write: they see a pause, and no error.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ashlar_block::{BlockDevice, BlockRange, Checked, Completion, Durability, Request};
use ashlar_nvme_initiator::{Remote, RemoteDevice, local_host, url};
use ashlar_reactor::{Options, Reactor, Spin};

use crate::common::eventually;
use crate::host::BLOCK;
use crate::ledger::fill;
use crate::node::{Node, Room};
use crate::random::{Random, rounds};

const DEPTH: u64 = 8;
/// Blocks that a host writes to.
const BLOCKS: u64 = 1024;

/// What a host's thread is told and tells.
#[derive(Default)]
struct Watch {
    stop: AtomicBool,
    done: AtomicU64,
    /// Longest time without a completion since it was last asked for.
    longest_pause_us: AtomicU64,
}

/// One of our own initiators, with a part of the volume that is its own.
struct Host {
    first: u64,
    random: Random,
    reactor: Reactor,
    device: Checked<RemoteDevice>,
    /// By block, the number of the write that was acknowledged last.
    written: Vec<u64>,
    /// By tag, the block that is on its way, and the number that is being written.
    flying: Vec<Option<(usize, Option<u64>)>>,
    next: u64,
}

impl Host {
    fn connect(url: &str, index: u64, random: Random) -> Self {
        let options = Options {
            spin: Spin::Off,
            ..Options::default()
        };
        let config = url::parse(url, &local_host()).expect("a URL");
        let remote = Remote::connect(config).expect("the volume is served");
        let reactor = Reactor::new(&options).expect("io_uring");
        let device = Checked::new(remote.open_device(reactor.handle()));
        Self {
            first: index * BLOCKS,
            random,
            reactor,
            device,
            written: vec![0; BLOCKS as usize],
            flying: vec![None; DEPTH as usize],
            next: 0,
        }
    }

    fn submit(&mut self, tag: u64) {
        let block = loop {
            let block = self.random.below(BLOCKS) as usize;
            let is_busy = |one: &Option<(usize, _)>| one.is_some_and(|(other, _)| other == block);
            if !self.flying.iter().any(is_busy) {
                break block;
            }
        };
        let range = BlockRange::new(self.first + block as u64, 1);
        let buffers = self.reactor.handle().buffers();
        let mut buffer = buffers.get(BLOCK).expect("a buffer");
        let number = (self.random.below(3) > 0).then(|| {
            self.next += 1;
            self.next
        });
        self.flying[tag as usize] = Some((block, number));
        let request = match number {
            Some(number) => {
                fill(range.start.0, number, &mut buffer);
                Request::write(tag, range, buffer, Durability::Cached)
            }
            None => Request::read(tag, range, buffer),
        };
        self.device.submit(request);
    }

    fn ended(&mut self, completion: Completion) {
        let (block, number) = self.flying[completion.tag as usize].take().expect("ours");
        if let Err(error) = completion.result {
            panic!("a host has seen an error: {error}");
        }
        match number {
            Some(number) => self.written[block] = number,
            None => {
                let mut expected = vec![0; BLOCK];
                fill(
                    self.first + block as u64,
                    self.written[block],
                    &mut expected,
                );
                let buffer = completion.buffer.expect("data");
                assert!(
                    buffer[..] == expected[..],
                    "block {block} is not what was written"
                );
            }
        }
    }

    fn run(&mut self, watch: &Watch) {
        (0..DEPTH).for_each(|tag| self.submit(tag));
        let (mut open, mut heard, mut done) = (DEPTH, Instant::now(), Vec::new());
        while open > 0 {
            let now = self.reactor.handle().now();
            self.device.poll(now, &mut done);
            if !done.is_empty() {
                let pause = heard.elapsed().as_micros() as u64;
                watch.longest_pause_us.fetch_max(pause, Ordering::SeqCst);
                heard = Instant::now();
            }
            for completion in std::mem::take(&mut done) {
                let tag = completion.tag;
                self.ended(completion);
                watch.done.fetch_add(1, Ordering::SeqCst);
                match watch.stop.load(Ordering::SeqCst) {
                    true => open -= 1,
                    false => self.submit(tag),
                }
            }
            let limit = now + Duration::from_millis(5);
            let own = self.device.next_deadline();
            let deadline = own.map_or(limit, |at| at.min(limit));
            self.reactor.turn(Some(deadline)).expect("a turn");
        }
    }
}

/// Stops the watched hosts, also when a test panics.
struct StopAtEnd<'a>(&'a [Watch]);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0
            .iter()
            .for_each(|watch| watch.stop.store(true, Ordering::SeqCst));
    }
}

#[test]
fn a_stop_and_a_start_under_load_are_a_pause_and_no_error() {
    let mut random = Random::of_this_run("restarts");
    let room = Room::new();
    let drives = room.drives(2, 96);
    let mut node = Node::start(&room);
    node.make(&drives, "mirror:2", "16MiB");
    let (nqn, address) = (node.nqn(), node.address);
    let url = format!("nvme-tcp://{address}/{nqn}");
    let watches = [Watch::default(), Watch::default()];
    let node = std::thread::scope(|scope| {
        let _stop = StopAtEnd(&watches);
        for (index, watch) in watches.iter().enumerate() {
            let (url, random) = (&url, Random::new(random.next()));
            scope.spawn(move || Host::connect(url, index as u64, random).run(watch));
        }
        let more = || {
            for watch in &watches {
                let goal = watch.done.load(Ordering::SeqCst) + 200;
                eventually("the load goes on", || {
                    watch.done.load(Ordering::SeqCst) >= goal
                });
            }
        };
        for round in 1..=rounds(3, 10) {
            more();
            watches
                .iter()
                .for_each(|watch| watch.longest_pause_us.store(0, Ordering::SeqCst));
            let begun = Instant::now();
            node.end();
            let ended = begun.elapsed();
            node = Node::start_at(&room, address);
            let ready = begun.elapsed();
            more();
            let pauses = watches
                .iter()
                .map(|watch| watch.longest_pause_us.load(Ordering::SeqCst));
            let pause = Duration::from_micros(pauses.max().unwrap_or(0));
            println!(
                "round {round}: stopped after {ended:.1?}, ready after {ready:.1?}, pause {pause:.1?}"
            );
        }
        node
    });
    node.end();
}
