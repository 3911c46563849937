//! The server: a reactor thread that carries messages of /dev/fuse, requests and completions.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ashlar_block::BlockDevice;
use ashlar_reactor::{Opener, Options, Reactor, Spin, Waker};

use crate::control;
use crate::counters::Counters;
use crate::error::AttachError;
use crate::fuse::carrier::Carrier;
use crate::fuse::exchange::Exchange;
use crate::local::Over;
use crate::paths::Paths;
use crate::system::memory;
use crate::trace::Trace;

/// Memory for what the device needs besides data on its way.
const DEVICE_BYTES: usize = 64 << 20;

/// How an attached volume is served.
#[derive(Clone, Debug)]
pub struct ServerOptions<'a> {
    /// The attachment's folder: what the server can be asked is asked through a socket there.
    pub dir: &'a Path,
    /// When to spin.
    pub spin: Spin,
    /// Most memory for data on its way, in bytes.
    pub pool_bytes: usize,
    /// Where every request is written down.
    pub trace: Option<&'a Path>,
    /// By which paths the volume is reached, if it is remote.
    pub paths: Option<Arc<dyn Paths>>,
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
    stop: Arc<AtomicBool>,
    ready: impl FnOnce(Waker),
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
    control::answer(options.dir, counters.clone(), options.paths.clone())?;
    let mut exchange = Exchange::new(device.geometry(), options.pool_bytes, counters);
    if let Some(path) = options.trace {
        let trace = Trace::open(path);
        let trace = trace.map_err(|error| environment(format!("{}: {error}", path.display())))?;
        exchange.set_trace(trace);
    }
    if options.takes_over {
        exchange.ask_again();
    }
    let carrier = Carrier::new(&handle, device, exchange, fuse);
    let carrier = carrier.map_err(|error| environment(format!("/dev/fuse: {error}")))?;
    ready(handle.waker());
    run(carrier, reactor, &stop)
}

fn run(mut carrier: Carrier, mut reactor: Reactor, stop: &AtomicBool) -> Result<(), AttachError> {
    loop {
        carrier.poll(reactor.handle().now());
        match carrier.ending() {
            Some(Over::ForGood(why) | Over::ForNow(why)) => {
                return Err(AttachError::environment(why.clone()));
            }
            Some(Over::Unmounted) => return Ok(()),
            None => {}
        }
        if stop.load(Ordering::Acquire) {
            return Ok(());
        }
        reactor.handled(carrier.take_handled());
        let turned = reactor.turn(carrier.next_deadline());
        turned.map_err(|error| AttachError::environment(format!("io_uring: {error}")))?;
    }
}
