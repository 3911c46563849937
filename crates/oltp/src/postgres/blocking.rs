//! Drives a connection of tokio-postgres from one thread without an event loop: a request costs one
//! send and one receive. A user waits for its answer anyway, and an event loop's polling around that
//! was as much processor time as all the rest of the client.
//!
//! The stream's calls block, so what matters is when the connection may read: never before what is
//! queued was sent, and only while whoever waits has nothing to do.

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::Host;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{CancelToken, Client, Config, Error, NoTls};

/// Connecting takes this long at most, unless the URL says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_PORT: u16 = 5432;
/// Where Debian's servers have their sockets.
const DEFAULT_SOCKETS: &str = "/var/run/postgresql";

/// Whether a read may wait for bytes.
const NEVER: u8 = 0;
const ONCE: u8 = 1;
const ALWAYS: u8 = 2;

type Link = tokio_postgres::Connection<Blocking, NoTlsStream>;

/// Why there is no connection.
pub(super) enum Refused {
    /// Nobody answered at this address.
    Unreachable(io::Error),
    /// The server did not let us in.
    Server(Error),
}

/// Logs in.
pub(super) fn connect(config: &Config) -> Result<(Client, Driver), Refused> {
    let (stream, may_wait) = Blocking::open(config)?;
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
pub(super) fn cancel(token: &CancelToken, config: &Config) -> Result<(), Refused> {
    let (stream, _) = Blocking::open(config)?;
    at_once(token.cancel_query_raw(stream, NoTls)).map_err(Refused::Server)
}

/// Runs what waits for nothing but a stream that may always wait: that never says that it is not ready, so
/// one poll is all.
fn at_once<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}

/// Set when whoever waits for an answer has something to do.
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
            // Whoever still waits is told when this is dropped.
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

/// A socket whose calls block.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects to the first host of a configuration.
    fn open(config: &Config) -> io::Result<Self> {
        let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT);
        let timeout = config
            .get_connect_timeout()
            .copied()
            .unwrap_or(CONNECT_TIMEOUT);
        if let Some(&address) = config.get_hostaddrs().first() {
            return Self::tcp((address, port), timeout);
        }
        match config.get_hosts().first() {
            Some(Host::Tcp(name)) => Self::tcp((name.as_str(), port), timeout),
            Some(Host::Unix(folder)) => Self::unix(folder, port),
            None => Self::unix(DEFAULT_SOCKETS.as_ref(), port),
        }
    }

    fn unix(folder: &std::path::Path, port: u16) -> io::Result<Self> {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        UnixStream::connect(&path).map(Self::Unix).map_err(named)
    }

    fn tcp(address: impl ToSocketAddrs, timeout: Duration) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Self::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Tcp(stream) => stream.read(into),
                Self::Unix(stream) => stream.read(into),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        loop {
            let written = match self {
                Self::Tcp(stream) => stream.write(from),
                Self::Unix(stream) => stream.write(from),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }
}

/// The stream that tokio-postgres is given.
struct Blocking {
    socket: Socket,
    may_wait: Arc<AtomicU8>,
}

impl Blocking {
    /// A stream to the first host of a configuration, which may wait, and what says whether it may.
    fn open(config: &Config) -> Result<(Self, Arc<AtomicU8>), Refused> {
        let socket = Socket::open(config).map_err(Refused::Unreachable)?;
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
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.may_wait.load(Ordering::SeqCst) {
            ALWAYS => {}
            ONCE => self.may_wait.store(NEVER, Ordering::SeqCst),
            _ => return Poll::Pending,
        }
        let read = self.socket.read(into.initialize_unfilled())?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Blocking {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.socket.write(from))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let both = std::net::Shutdown::Both;
        Poll::Ready(match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(both),
            Socket::Unix(stream) => stream.shutdown(both),
        })
    }
}
