//! Drives a connection of tokio-postgres from one thread without an event loop: a request costs one
//! send and one receive. A user waits for its answer anyway, and an event loop's polling around that
//! was as much processor time as all the rest of the client.
//!
//! The stream's calls block, so what matters is when the connection may read: never before what is
//! queued was sent, and only while the caller that waits has nothing to do.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use ashlar_lab::Progress;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{CancelToken, Client, Config, Error, NoTls};

use super::socket::open;
use crate::socket::{Socket, at_once};

/// Whether a read may wait for bytes.
const NEVER: u8 = 0;
const ONCE: u8 = 1;
/// During a login.
const ALWAYS: u8 = 2;

type Link = tokio_postgres::Connection<Blocking, NoTlsStream>;

/// Why there is no connection.
pub(super) enum Refused {
    /// No server answered at this address.
    Unreachable(io::Error),
    /// The server did not let us in.
    Server(Error),
}

/// Logs in. An answer is waited for until `until` is not to go on.
pub(super) fn connect(config: &Config, until: &Arc<Progress>) -> Result<(Client, Driver), Refused> {
    let (stream, may_wait) = Blocking::open(config, until)?;
    let login = config.connect_raw(stream, NoTls);
    let (client, link) = at_once(login).map_err(Refused::Server)?;
    let driver = Driver {
        link: RefCell::new(Some(link)),
        may_wait,
        woken: Arc::default(),
    };
    Ok((client, driver))
}

/// Asks a server to end the query that a connection runs.
pub(super) fn cancel(
    token: &CancelToken,
    config: &Config,
    until: &Arc<Progress>,
) -> Result<(), Refused> {
    let (stream, _) = Blocking::open(config, until)?;
    at_once(token.cancel_query_raw(stream, NoTls)).map_err(Refused::Server)
}

/// Set when the future that waits for an answer can go on.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The half of a connection that sends and receives.
pub(super) struct Driver {
    /// Gone when the connection has ended.
    link: RefCell<Option<Link>>,
    may_wait: Arc<AtomicU8>,
    woken: Arc<Flag>,
}

impl Driver {
    /// Waits for an answer.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        loop {
            self.woken.0.store(false, Ordering::SeqCst);
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            self.turn(NEVER);
            let is_woken = || self.woken.0.load(Ordering::SeqCst);
            let mut runs = true;
            while runs && !is_woken() {
                runs = self.turn(ONCE);
            }
        }
    }

    /// Sends what is queued and, if it may, waits for bytes once; false when the connection has ended.
    fn turn(&self, may_wait: u8) -> bool {
        let mut link = self.link.borrow_mut();
        let Some(running) = link.as_mut() else {
            return false;
        };
        self.may_wait.store(may_wait, Ordering::SeqCst);
        let mut context = Context::from_waker(Waker::noop());
        let ended = Pin::new(running).poll(&mut context).is_ready();
        if ended {
            // Futures that still wait get an error when this is dropped.
            *link = None;
        }
        !ended
    }
}

impl Drop for Driver {
    /// The client is gone by now: says goodbye to the server.
    fn drop(&mut self) {
        self.turn(NEVER);
    }
}

/// The stream that tokio-postgres is given.
struct Blocking {
    socket: Socket,
    may_wait: Arc<AtomicU8>,
}

impl Blocking {
    /// A stream to the first host of a configuration, which may wait, and what says whether it may.
    fn open(config: &Config, until: &Arc<Progress>) -> Result<(Self, Arc<AtomicU8>), Refused> {
        let socket = open(config, until).map_err(Refused::Unreachable)?;
        let may_wait = Arc::new(AtomicU8::new(ALWAYS));
        let stream = Self {
            socket,
            may_wait: Arc::clone(&may_wait),
        };
        Ok((stream, may_wait))
    }
}

impl AsyncRead for Blocking {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let may_wait = self.may_wait.load(Ordering::SeqCst);
        match may_wait {
            ALWAYS => {}
            ONCE => self.may_wait.store(NEVER, Ordering::SeqCst),
            _ => return Poll::Pending,
        }
        let is_login = may_wait == ALWAYS;
        let read = self.socket.read(into.initialize_unfilled(), is_login)?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Blocking {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let is_login = self.may_wait.load(Ordering::SeqCst) == ALWAYS;
        Poll::Ready(self.socket.write(from, is_login))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown())
    }
}
