//! A closed loop on one connection: `depth` reads or writes at random places, always in flight.
//!
//! The socket does not block. [`Wait::Spin`] asks it again at once, as polling initiators do;
//! [`Wait::Sleep`] sleeps until something arrives, for clients that share a core with the server.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ashlar_nvme::command::{Command, SglDescriptor};
use ashlar_nvme::pdu::{self, Digests, Framing, IcResp, Role};
use ashlar_nvme::stream::{Header, Limits, Receiver, Step};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::link::protocol;
use crate::failure::Failure;
use crate::figures::Case;

const CAPSULE_BYTES: usize = 72;
const INBOX_BYTES: usize = 256 << 10;
/// Capsules of one send.
const SEND_MOST: usize = 64;
/// Silence that ends a measurement.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);

/// What is loaded: a namespace and its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) nsid: u32,
    pub(crate) block_bytes: u32,
    pub(crate) blocks: u64,
    pub(crate) in_capsule_bytes: u64,
}

/// What to do while nothing has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Spin,
    Sleep,
}

/// How long to load, and how to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) warmup: Duration,
    pub(crate) measure: Duration,
    pub(crate) wait: Wait,
}

/// Where places of accesses come from.
#[derive(Clone, Copy, Debug)]
enum Places {
    Random,
    /// Each once, from the first: this many are left.
    Once {
        left: u64,
    },
}

/// One access in flight.
struct Slot {
    /// The capsule as it is sent, with the data of a write.
    capsule: Vec<u8>,
    /// Data bytes received.
    got: u32,
    in_flight: bool,
}

/// A loaded connection.
pub(crate) struct Load {
    stream: TcpStream,
    receiver: Receiver,
    target: Target,
    inbox: Vec<u8>,
    slots: Vec<Slot>,
    unsent: VecDeque<u16>,
    /// Bytes of the first unsent capsule that are on their way.
    sent: usize,
    in_flight: u32,
    completed: u64,
    /// The access whose data the stream is in, and whether it completes with it.
    open: Option<(u16, bool)>,
    places: Places,
    stopping: bool,
    random: fastrand::Rng,
    scratch: Vec<u8>,
}

impl Load {
    /// On a connected I/O queue.
    pub(super) fn new(
        stream: TcpStream,
        receiver: Receiver,
        target: Target,
    ) -> Result<Self, Failure> {
        stream
            .set_nonblocking(true)
            .map_err(Failure::doing("a socket"))?;
        Ok(Self {
            stream,
            receiver,
            target,
            inbox: vec![0; INBOX_BYTES],
            slots: Vec::new(),
            unsent: VecDeque::new(),
            sent: 0,
            in_flight: 0,
            completed: 0,
            open: None,
            places: Places::Random,
            stopping: false,
            random: fastrand::Rng::with_seed(1),
            scratch: Vec::new(),
        })
    }

    /// On a connection to the bare server, which shakes no hands; it is treated as a namespace of
    /// `bytes`.
    pub(crate) fn bare(address: SocketAddr, bytes: u64) -> Result<Self, Failure> {
        let io = |error| Failure::environment(format!("{address}: {error}"));
        let stream = TcpStream::connect_timeout(&address, SILENCE_TIMEOUT).map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        let mut receiver = Receiver::new(Role::Host, Limits::default());
        // The handshake that does not happen.
        let mut hello = Vec::new();
        let granted = IcResp {
            cpda: 0,
            digests: Digests::NONE,
            maxh2cdata: pdu::MAXH2CDATA_MIN,
        };
        granted.encode(&mut hello);
        receiver.next(&mut hello.as_slice()).map_err(protocol)?;
        receiver.open(Digests::NONE);
        let target = Target {
            nsid: 1,
            block_bytes: 4096,
            blocks: bytes / 4096,
            in_capsule_bytes: u64::from(u32::MAX),
        };
        Self::new(stream, receiver, target)
    }

    /// Loads with `case`; `now` is called when the measured time begins and ends. Returns commands
    /// completed in it for each second.
    pub(crate) fn run(
        &mut self,
        case: &Case,
        plan: &Plan,
        mut now: impl FnMut() -> Result<(), Failure>,
    ) -> Result<f64, Failure> {
        self.places = Places::Random;
        self.begin(case)?;
        self.work_until(case, plan.wait, Instant::now() + plan.warmup)?;
        now()?;
        let (from, before) = (Instant::now(), self.completed);
        self.work_until(case, plan.wait, from + plan.measure)?;
        let (took, completed) = (from.elapsed(), self.completed - before);
        now()?;
        self.drain(case, plan.wait)?;
        Ok(completed as f64 / took.as_secs_f64())
    }

    /// Writes everything once, so that reads find memory that was written.
    pub(crate) fn fill(&mut self) -> Result<(), Failure> {
        let case = Case::new("randwrite", self.target.block_bytes.max(4096), 32);
        self.places = Places::Once {
            left: self.places_of(&case),
        };
        self.begin(&case)?;
        self.drain(&case, Wait::Sleep)
    }

    fn places_of(&self, case: &Case) -> u64 {
        self.target.blocks / u64::from((case.block_bytes / self.target.block_bytes).max(1))
    }

    fn begin(&mut self, case: &Case) -> Result<(), Failure> {
        let Case { block_bytes, .. } = *case;
        if !block_bytes.is_multiple_of(self.target.block_bytes) || self.places_of(case) == 0 {
            return Err(Failure::environment(format!(
                "accesses of {block_bytes} bytes do not fit the namespace"
            )));
        }
        if case.is_write() && u64::from(block_bytes) > self.target.in_capsule_bytes {
            return Err(Failure::environment(format!(
                "the target takes {} bytes in a capsule, {block_bytes} are needed",
                self.target.in_capsule_bytes
            )));
        }
        let data = if case.is_write() {
            block_bytes as usize
        } else {
            0
        };
        self.slots.clear();
        for _ in 0..case.depth {
            let mut capsule = vec![0; CAPSULE_BYTES + data];
            self.random.fill(&mut capsule[CAPSULE_BYTES..]);
            self.slots.push(Slot {
                capsule,
                got: 0,
                in_flight: false,
            });
        }
        self.stopping = false;
        for cid in 0..case.depth as u16 {
            self.submit(case, cid);
        }
        Ok(())
    }

    /// The next access in slot `cid`, if there is to be one.
    fn submit(&mut self, case: &Case, cid: u16) {
        if self.stopping {
            return;
        }
        let places = self.places_of(case);
        let place = match &mut self.places {
            Places::Random => self.random.u64(0..places),
            Places::Once { left: 0 } => return,
            Places::Once { left } => {
                *left -= 1;
                places - 1 - *left
            }
        };
        let blocks = case.block_bytes / self.target.block_bytes;
        let slba = place * u64::from(blocks);
        let (nsid, bytes) = (self.target.nsid, case.block_bytes);
        let (command, in_capsule) = if case.is_write() {
            let sgl = SglDescriptor::in_capsule(bytes);
            (Command::write(nsid, slba, blocks, sgl), bytes)
        } else {
            let sgl = SglDescriptor::transport(bytes);
            (Command::read(nsid, slba, blocks, sgl), 0)
        };
        self.scratch.clear();
        let command = command.with_cid(cid);
        pdu::capsule_cmd(&mut self.scratch, Framing::PLAIN, &command, in_capsule);
        let slot = &mut self.slots[usize::from(cid)];
        slot.capsule[..CAPSULE_BYTES].copy_from_slice(&self.scratch);
        slot.got = 0;
        slot.in_flight = true;
        self.in_flight += 1;
        self.unsent.push_back(cid);
    }

    fn work_until(&mut self, case: &Case, wait: Wait, end: Instant) -> Result<(), Failure> {
        let mut heard = Instant::now();
        loop {
            let sent = self.send()?;
            let received = self.receive(case)?;
            let now = Instant::now();
            if received {
                heard = now;
            } else {
                self.idle(wait, sent, now - heard)?;
            }
            if now >= end {
                return Ok(());
            }
        }
    }

    /// Lets what is in flight complete, and nothing new begin unless each place has its turn.
    fn drain(&mut self, case: &Case, wait: Wait) -> Result<(), Failure> {
        self.stopping = matches!(self.places, Places::Random);
        let mut heard = Instant::now();
        while self.in_flight > 0 {
            let sent = self.send()?;
            if self.receive(case)? {
                heard = Instant::now();
            } else {
                self.idle(wait, sent, heard.elapsed())?;
            }
        }
        Ok(())
    }

    /// Nothing was received.
    fn idle(&self, wait: Wait, sent: bool, silence: Duration) -> Result<(), Failure> {
        if silence > SILENCE_TIMEOUT {
            return Err(Failure::environment(format!(
                "no answer to {} commands for {} s",
                self.in_flight,
                SILENCE_TIMEOUT.as_secs()
            )));
        }
        if wait == Wait::Spin || sent {
            return Ok(());
        }
        let mut wanted = PollFlags::IN;
        if !self.unsent.is_empty() {
            wanted |= PollFlags::OUT;
        }
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        match poll(&mut [PollFd::new(&self.stream, wanted)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::environment(format!("poll: {error}"))),
        }
    }

    /// Sends what the socket takes; whether it took anything.
    fn send(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        while !self.unsent.is_empty() {
            let mut parts = [IoSlice::new(&[]); SEND_MOST];
            let mut count = 0;
            for (part, &cid) in parts.iter_mut().zip(&self.unsent) {
                let skip = if count == 0 { self.sent } else { 0 };
                *part = IoSlice::new(&self.slots[usize::from(cid)].capsule[skip..]);
                count += 1;
            }
            match (&self.stream).write_vectored(&parts[..count]) {
                Ok(bytes) => self.was_sent(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(any),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::environment(format!("sending: {error}"))),
            }
            any = true;
        }
        Ok(any)
    }

    fn was_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        while let Some(&cid) = self.unsent.front() {
            let whole = self.slots[usize::from(cid)].capsule.len();
            if self.sent < whole {
                return;
            }
            self.sent -= whole;
            self.unsent.pop_front();
        }
    }

    /// Takes what has arrived; whether anything had.
    fn receive(&mut self, case: &Case) -> Result<bool, Failure> {
        let mut inbox = std::mem::take(&mut self.inbox);
        let outcome = match (&self.stream).read(&mut inbox) {
            Ok(0) => Err(Failure::environment("the server closed the connection")),
            Ok(bytes) => self.take(case, &inbox[..bytes]).map(|()| true),
            Err(error) if is_nothing(&error) => Ok(false),
            Err(error) => Err(Failure::environment(format!("receiving: {error}"))),
        };
        self.inbox = inbox;
        outcome
    }

    fn take(&mut self, case: &Case, mut bytes: &[u8]) -> Result<(), Failure> {
        loop {
            match self.receiver.next(&mut bytes).map_err(protocol)? {
                Step::NeedMore => return Ok(()),
                Step::Data(_) => {}
                Step::Pdu(pdu) => self.header(case, pdu.header)?,
                Step::End { .. } => {
                    if let Some((cid, true)) = self.open.take() {
                        self.complete(case, cid)?;
                    }
                }
            }
        }
    }

    fn header(&mut self, case: &Case, header: Header) -> Result<(), Failure> {
        match header {
            Header::C2hData(data) => {
                let slot = self.slots.get_mut(usize::from(data.cid));
                let slot = slot.ok_or_else(|| surprise(data.cid))?;
                slot.got = slot.got.saturating_add(data.length);
                self.open = Some((data.cid, data.success));
                Ok(())
            }
            Header::CapsuleResp(completion) if completion.status().is_success() => {
                self.complete(case, completion.cid.get())
            }
            Header::CapsuleResp(completion) => Err(Failure::environment(format!(
                "a command failed: {}",
                completion.status()
            ))),
            other => Err(Failure::environment(format!("unexpected {other:?}"))),
        }
    }

    fn complete(&mut self, case: &Case, cid: u16) -> Result<(), Failure> {
        let slot = self.slots.get_mut(usize::from(cid));
        let slot = slot.filter(|slot| slot.in_flight);
        let slot = slot.ok_or_else(|| surprise(cid))?;
        let expected = if case.is_write() { 0 } else { case.block_bytes };
        if slot.got != expected {
            return Err(Failure::environment(format!(
                "{} bytes came for a command of {expected}",
                slot.got
            )));
        }
        slot.in_flight = false;
        self.in_flight -= 1;
        self.completed += 1;
        self.submit(case, cid);
        Ok(())
    }
}

fn is_nothing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn surprise(cid: u16) -> Failure {
    Failure::environment(format!(
        "an answer to command {cid}, which is not in flight"
    ))
}
