//! The server: a reactor thread that carries messages of /dev/fuse, requests and completions.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashlar_block::{BlockDevice, Checked, Completion, IoBuffer, Moment};
use ashlar_reactor::{File, Opener, Options, Port, Reactor, Waker};
use rustix::io::Errno;
use tracing::{error, warn};

use crate::control;
use crate::counters::Counters;
use crate::error::AttachError;
use crate::fuse::exchange::Exchange;
use crate::system::memory;
use crate::trace::Trace;

/// Messages that are waited for at a time.
const READERS: usize = 2;
/// Memory for what the device needs besides data on its way.
const DEVICE_BYTES: usize = 64 << 20;
const READ: u64 = 0;
const REPLY: u64 = 1;

/// How an attached volume is served.
#[derive(Clone, Debug)]
pub struct ServerOptions<'a> {
    /// The attachment's folder: what the server can be asked is asked through a socket there.
    pub dir: &'a Path,
    /// Longest time to spin for the next event before sleeping.
    pub spin: Duration,
    /// Most memory for data on its way, in bytes.
    pub pool_bytes: usize,
    /// Where every request is written down.
    pub trace: Option<&'a Path>,
    /// An earlier server may have read requests that it did not answer.
    pub takes_over: bool,
}

/// Serves `opener`'s device as the one file of the FUSE file system behind `fuse`, until that is
/// unmounted or `stop` is set and the waker that `ready` is given wakes it.
///
/// `ready` is called when requests are read.
///
/// # Errors
/// Environment: no ring, no device, a kernel whose FUSE is too old, an aborted connection.
pub fn serve(
    fuse: OwnedFd,
    opener: &dyn Opener,
    options: &ServerOptions<'_>,
    (stop, ready): (Arc<AtomicBool>, impl FnOnce(Waker)),
) -> Result<(), AttachError> {
    let environment = |error: String| AttachError::environment(error);
    memory::stay();
    memory::join_io_path();
    let reactor = Reactor::new(&Options {
        spin: options.spin,
        pool_bytes: DEVICE_BYTES,
        files: 16,
        ..Options::default()
    });
    let reactor = reactor.map_err(|error| environment(error.to_string()))?;
    let handle = reactor.handle().clone();
    let device = opener.open(&handle);
    let device = device.map_err(|error| environment(error.to_string()))?;
    let counters = Counters::default();
    control::answer(options.dir, counters.clone())?;
    let mut exchange = Exchange::new(device.geometry(), options.pool_bytes, counters);
    if let Some(path) = options.trace {
        let trace = Trace::open(path);
        let trace = trace.map_err(|error| environment(format!("{}: {error}", path.display())))?;
        exchange.set_trace(trace);
    }
    if options.takes_over {
        exchange.ask_again();
    }
    let mut server = Server {
        exchange,
        device: Checked::new(device),
        port: handle.port(),
        file: handle.adopt(fuse),
        readers: 0,
        asking: options.takes_over,
        done: Vec::new(),
        over: None,
    };
    ready(handle.waker());
    server.run(reactor, &stop)
}

struct Server {
    // Dropped in this order: the device lets go of what it has lent to the ring.
    device: Checked<Box<dyn BlockDevice>>,
    exchange: Exchange,
    port: Port,
    file: File,
    /// Reads of messages that are on their way.
    readers: usize,
    /// The notice that the kernel is to send again is on its way. What is read before it has arrived may be
    /// sent again, too, and then be done twice.
    asking: bool,
    done: Vec<Completion>,
    /// How it ends.
    over: Option<Result<(), AttachError>>,
}

impl Server {
    fn run(&mut self, mut reactor: Reactor, stop: &AtomicBool) -> Result<(), AttachError> {
        loop {
            let now = reactor.handle().now();
            let handled = self.turn(now);
            if let Some(end) = self.over.take() {
                return end;
            }
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            reactor.handled(handled);
            let turned = reactor.turn(self.device.next_deadline());
            turned.map_err(|error| AttachError::environment(format!("io_uring: {error}")))?;
        }
    }

    /// Deals with everything that has happened; returns how many requests were dealt with.
    fn turn(&mut self, now: Moment) -> usize {
        let mut handled = 0;
        while let Some(event) = self.port.next() {
            let ashlar_reactor::What::File(result, buffer) = event.what else {
                continue;
            };
            match event.key {
                READ => {
                    self.readers -= 1;
                    handled += 1;
                    self.message(result, buffer);
                }
                _ => self.replied(result),
            }
        }
        self.save_trace();
        self.drive(now);
        self.reply();
        self.read();
        handled
    }

    /// Carries requests to the device and completions back until neither makes more.
    fn drive(&mut self, now: Moment) {
        loop {
            let mut some = false;
            for request in self.exchange.requests() {
                some = true;
                self.device.submit(request);
            }
            self.device.poll(now, &mut self.done);
            for completion in self.done.drain(..) {
                some = true;
                self.exchange.completed(completion);
            }
            self.exchange.resume();
            if !some {
                return;
            }
        }
    }

    fn message(&mut self, result: io::Result<usize>, buffer: Option<IoBuffer>) {
        let Some(mut buffer) = buffer else { return };
        match result {
            Ok(length) => {
                let rest = buffer.split_off(length.min(buffer.len()));
                let Some(mut back) = self.exchange.received(buffer) else {
                    return;
                };
                if let Some(why) = self.exchange.refusal() {
                    self.over = Some(Err(AttachError::environment(why)));
                }
                if back.join(rest).is_ok() {
                    self.read_into(back);
                }
            }
            Err(error) => match Errno::from_io_error(&error) {
                // Unmounted.
                Some(Errno::NODEV) => self.over = Some(Ok(())),
                // What was to be read has been taken back meanwhile.
                Some(Errno::INTR | Errno::AGAIN | Errno::NOENT) => self.read_into(buffer),
                _ => {
                    let why = format!("/dev/fuse: {error}");
                    self.over = Some(Err(AttachError::environment(why)));
                }
            },
        }
    }

    fn replied(&mut self, result: io::Result<usize>) {
        self.asking = false;
        match result {
            Ok(_) => {}
            // Nobody waits for it any more, or the kernel is too old to send again.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => {}
            Err(error) => error!("a reply was refused: {error}"),
        }
    }

    fn save_trace(&mut self) {
        if let Some(Err(error)) = self.exchange.trace().map(Trace::save) {
            warn!("the trace: {error}");
        }
    }

    fn reply(&mut self) {
        for reply in self.exchange.replies(usize::MAX) {
            self.port.write(&self.file, 0, reply, false, REPLY);
        }
    }

    fn read_into(&mut self, buffer: IoBuffer) {
        if self.readers < READERS {
            self.readers += 1;
            self.port.read(&self.file, 0, buffer, READ);
        }
    }

    fn read(&mut self) {
        while self.readers < READERS && !self.asking {
            match self.exchange.message_buffer() {
                Some(buffer) => self.read_into(buffer),
                // Replies on their way will give memory back.
                None => return,
            }
        }
    }
}
