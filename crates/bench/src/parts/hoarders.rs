//! What a host keeps beside others that take every buffer they are lent and give none back: 64 queues,
//! each of a host of its own, each with 127 writes of 1 MiB whose data is asked for and does not come, or
//! comes four bytes at a time. One that is sent away comes again.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ashlar_nvme::Command;
use ashlar_nvme::command::SglDescriptor;
use ashlar_nvme::pdu::{self, Framing, H2cData, R2t};
use ashlar_nvme::stream::{Header, Receiver, Step};
use serde::Serialize;

use super::{Bench, MEMORY, on_core};
use crate::failure::Failure;
use crate::figures::Spread;
use crate::raw::{Host, Queue};
use crate::serve::{self, NQN};

const QUEUES: u8 = 64;
const COMMANDS: u16 = 127;
const HOARD_BYTES: u32 = 1 << 20;
/// How often each hoarder that trickles sends its four bytes.
const TRICKLE_EVERY: Duration = Duration::from_millis(100);
const NEIGHBOUR: u8 = 200;
const WRITE_BYTES: u32 = 128 << 10;
const DEPTH: u16 = 8;
/// Silence that ends a measurement.
const ANSWER_LIMIT: Duration = Duration::from_secs(40);
const GOAL_SHARE: f64 = 0.8;
const GOAL_WAIT_MS: f64 = 1000.0;

/// A neighbour beside hoarders.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Hoarders {
    /// Who may connect: `listed` (each host has a share of its own), or `any` (all have one).
    pub(crate) hosts: &'static str,
    /// What the hoarders do: `silent` or `trickling`.
    pub(crate) way: &'static str,
    /// Queues that hoard.
    pub(crate) queues: u8,
    /// The neighbour's writes a second beside them / alone, pair by pair.
    pub(crate) rate_ratio: Spread,
    /// What the ratio is hoped not to fall below.
    pub(crate) goal_at_least: f64,
    /// The longest that one of its writes has waited, in milliseconds, over all rounds.
    pub(crate) longest_wait_ms: f64,
    /// What that is hoped not to exceed.
    pub(crate) goal_wait_ms: f64,
    /// Its writes a second alone.
    pub(crate) alone_per_s: Spread,
}

/// All four.
pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Hoarders>, Failure> {
    let mut results = Vec::new();
    for hosts in ["listed", "any"] {
        let access: Vec<String> = match hosts {
            "any" => vec!["--allow-any-host".into()],
            _ => (0..QUEUES)
                .chain([NEIGHBOUR])
                .flat_map(|number| ["--allow-host".into(), Host::nqn(number)])
                .collect(),
        };
        let name = format!("hoarders-{hosts}");
        let cores = [bench.server_core];
        let server = serve::ashlar_for(bench.options, &name, MEMORY, &cores, &access)?;
        for way in ["silent", "trickling"] {
            results.push(of_one(bench, server.address, hosts, way)?);
        }
    }
    Ok(results)
}

fn of_one(
    bench: &Bench<'_>,
    address: SocketAddr,
    hosts: &'static str,
    way: &'static str,
) -> Result<Hoarders, Failure> {
    let (mut alone, mut beside, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
    for _ in 0..bench.options.rounds {
        alone.push(on_core(bench.client_core, || round(bench, address, None))?.0);
        let crowd = on_core(bench.client_core, || round(bench, address, Some(way)))?;
        beside.push(crowd.0);
        longest = longest.max(crowd.1);
    }
    Ok(Hoarders {
        hosts,
        way,
        queues: QUEUES,
        rate_ratio: Spread::of_ratios(&beside, &alone),
        goal_at_least: GOAL_SHARE,
        longest_wait_ms: longest.as_secs_f64() * 1e3,
        goal_wait_ms: GOAL_WAIT_MS,
        alone_per_s: Spread::of(&alone),
    })
}

/// Writes a second, and the longest wait.
fn round(
    bench: &Bench<'_>,
    address: SocketAddr,
    way: Option<&str>,
) -> Result<(f64, Duration), Failure> {
    let mut host = Host::connect(address, NQN, NEIGHBOUR, None)?;
    let mut neighbour = Neighbour::new(host.queue()?)?;
    neighbour.write_for(Duration::from_millis(200))?;
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(way.is_none()));
    std::thread::scope(|scope| {
        let crowd = way.map(|way| {
            let (stop, ready) = (&stop, &ready);
            scope.spawn(move || hoard(address, way == "trickling", stop, ready))
        });
        // Also while they come.
        let mut measured = neighbour.write_while(|| !ready.load(Ordering::Acquire));
        if measured.is_ok() {
            let longest = neighbour.longest;
            measured = neighbour.write_for(bench.length);
            neighbour.longest = neighbour.longest.max(longest);
        }
        stop.store(true, Ordering::Release);
        if let Some(crowd) = crowd {
            let ended = crowd.join();
            ended.unwrap_or_else(|_| Err(Failure::environment("the hoarders panicked")))?;
        }
        Ok((measured?, neighbour.longest))
    })
}

/// A queue that writes, its data asked for.
struct Neighbour {
    stream: TcpStream,
    receiver: Receiver,
    blocks: u64,
    block_bytes: u32,
    input: Vec<u8>,
    data: Vec<u8>,
    begun: Vec<Instant>,
    done: u64,
    longest: Duration,
}

impl Neighbour {
    fn new(queue: Queue) -> Result<Self, Failure> {
        let limit = Some(ANSWER_LIMIT);
        let cannot = Failure::doing("a socket");
        queue.stream.set_read_timeout(limit).map_err(cannot)?;
        let mut neighbour = Self {
            stream: queue.stream,
            receiver: queue.receiver,
            blocks: queue.target.blocks,
            block_bytes: queue.target.block_bytes,
            input: vec![0; 64 << 10],
            data: vec![0x5a; WRITE_BYTES as usize],
            begun: vec![Instant::now(); usize::from(DEPTH)],
            done: 0,
            longest: Duration::ZERO,
        };
        for cid in 0..DEPTH {
            neighbour.submit(cid)?;
        }
        Ok(neighbour)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let sent = self.stream.write_all(bytes);
        sent.map_err(Failure::doing("sending"))
    }

    fn submit(&mut self, cid: u16) -> Result<(), Failure> {
        let count = WRITE_BYTES / self.block_bytes;
        let slba = fastrand::u64(0..self.blocks / u64::from(count)) * u64::from(count);
        let sgl = SglDescriptor::transport(WRITE_BYTES);
        let command = Command::write(1, slba, count, sgl).with_cid(cid);
        let mut out = Vec::new();
        pdu::capsule_cmd(&mut out, Framing::PLAIN, &command, 0);
        self.begun[usize::from(cid)] = Instant::now();
        self.send(&out)
    }

    fn answer(&mut self, request: &R2t) -> Result<(), Failure> {
        let mut done = 0;
        while let Some(piece) = pdu::h2c_data_of(request, done, WRITE_BYTES) {
            let mut out = Vec::with_capacity(piece.length as usize + 64);
            pdu::h2c_data(&mut out, Framing::PLAIN, &piece);
            out.extend_from_slice(&self.data[..piece.length as usize]);
            self.send(&out)?;
            done += piece.length;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Failure> {
        let mut input = std::mem::take(&mut self.input);
        let got = self.stream.read(&mut input);
        let got = got.map_err(Failure::doing("the neighbour, receiving"))?;
        if got == 0 {
            return Err(Failure::environment("the neighbour was sent away"));
        }
        let mut rest = &input[..got];
        loop {
            match self
                .receiver
                .next(&mut rest)
                .map_err(Failure::doing("the target"))?
            {
                Step::NeedMore => break,
                Step::Pdu(pdu) => match pdu.header {
                    Header::R2t(request) => self.answer(&request)?,
                    Header::CapsuleResp(done) if done.status().is_success() => {
                        let cid = done.cid.get();
                        let waited = self.begun[usize::from(cid)].elapsed();
                        self.longest = self.longest.max(waited);
                        self.done += 1;
                        self.submit(cid)?;
                    }
                    other => return Err(Failure::environment(format!("unexpected {other:?}"))),
                },
                Step::Data(_) | Step::End { .. } => {}
            }
        }
        self.input = input;
        Ok(())
    }

    /// Writes a second, for as long as something is so.
    fn write_while(&mut self, go_on: impl Fn() -> bool) -> Result<f64, Failure> {
        (self.done, self.longest) = (0, Duration::ZERO);
        let from = Instant::now();
        while go_on() {
            self.turn()?;
        }
        Ok(self.done as f64 / from.elapsed().as_secs_f64().max(1e-9))
    }

    fn write_for(&mut self, time: Duration) -> Result<f64, Failure> {
        let end = Instant::now() + time;
        self.write_while(|| Instant::now() < end)
    }
}

/// One that takes what it is lent.
struct Hoarder {
    /// Without its admin queue the controller ends.
    _host: Host,
    stream: TcpStream,
    receiver: Receiver,
    /// What it was asked for, and how much of it was sent.
    asked: Vec<(R2t, u32)>,
    next: usize,
}

impl Hoarder {
    fn connect(address: SocketAddr, number: u8) -> Result<Self, Failure> {
        let mut host = Host::connect(address, NQN, number, None)?;
        let queue = host.queue()?;
        let mut out = Vec::new();
        let blocks = HOARD_BYTES / queue.target.block_bytes;
        for cid in 0..COMMANDS {
            let sgl = SglDescriptor::transport(HOARD_BYTES);
            let command = Command::write(1, 0, blocks, sgl).with_cid(cid);
            pdu::capsule_cmd(&mut out, Framing::PLAIN, &command, 0);
        }
        let mut stream = queue.stream;
        stream.write_all(&out).map_err(Failure::doing("sending"))?;
        stream
            .set_nonblocking(true)
            .map_err(Failure::doing("a socket"))?;
        Ok(Self {
            _host: host,
            stream,
            receiver: queue.receiver,
            asked: Vec::new(),
            next: 0,
        })
    }

    /// Reads what came; false if it was sent away.
    fn listen(&mut self) -> bool {
        let mut input = [0; 4096];
        loop {
            let got = match self.stream.read(&mut input) {
                Ok(0) => return false,
                Ok(got) => got,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            let mut rest = &input[..got];
            loop {
                match self.receiver.next(&mut rest) {
                    Err(_) => return false,
                    Ok(Step::NeedMore) => break,
                    Ok(Step::Pdu(pdu)) => {
                        if let Header::R2t(request) = pdu.header {
                            self.asked.push((request, 0));
                        }
                    }
                    Ok(_) => {}
                }
            }
        }
    }

    /// Four bytes, of each transfer in its turn.
    fn trickle(&mut self) {
        let count = self.asked.len();
        let Some((request, sent)) = self.asked.get_mut(self.next % count.max(1)) else {
            return;
        };
        let piece = H2cData {
            cid: request.cid,
            ttag: request.ttag,
            offset: *sent,
            length: 4,
            last: false,
        };
        let mut out = Vec::new();
        pdu::h2c_data(&mut out, Framing::PLAIN, &piece);
        out.extend_from_slice(&[0; 4]);
        // If that fails it has been sent away, as reading will tell.
        if self.stream.write_all(&out).is_ok() {
            *sent += 4;
            self.next += 1;
        }
    }
}

/// Hoards until told to stop.
fn hoard(
    address: SocketAddr,
    trickles: bool,
    stop: &AtomicBool,
    ready: &AtomicBool,
) -> Result<(), Failure> {
    let connect = |number| Hoarder::connect(address, number);
    let crowd: Result<Vec<Hoarder>, Failure> = (0..QUEUES).map(connect).collect();
    ready.store(true, Ordering::Release);
    let mut crowd = crowd?;
    while !stop.load(Ordering::Acquire) {
        std::thread::sleep(TRICKLE_EVERY);
        for (hoarder, number) in crowd.iter_mut().zip(0..) {
            if !hoarder.listen() {
                *hoarder = Hoarder::connect(address, number)?;
            } else if trickles {
                hoarder.trickle();
            }
        }
    }
    Ok(())
}
