//! A socket whose calls block, and not for ever: they look every now and then whether they are to go on, and a server
//! that is gone without a word is noticed by the kernel.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ashlar_lab::Progress;
use rustix::net::sockopt::{
    Timeout, set_socket_keepalive, set_socket_timeout, set_tcp_keepcnt, set_tcp_keepidle,
    set_tcp_keepintvl, set_tcp_user_timeout,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// A call that waits looks this often whether it is to go on.
const SLICE: Duration = Duration::from_millis(200);
/// A database that is well answers within this time those who are to end.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long a server is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connecting takes this long at most.
    pub(crate) connect: Duration,
    /// The same of each answer while logging in. A server that must read its catalog from a storage that has to
    /// wait is slow, and there.
    pub(crate) login: Duration,
    /// The option that sets both, if one does.
    pub(crate) option: &'static str,
    /// How the kernel asks whether a TCP peer is there, if it does.
    pub(crate) keep_alive: Option<KeepAlive>,
    /// Data that has not been confirmed for so long ends the connection.
    pub(crate) user_timeout: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            login: Duration::from_secs(60),
            option: "",
            keep_alive: Some(KeepAlive::DEFAULT),
            user_timeout: None,
        }
    }
}

/// A peer that has confirmed everything and says nothing is asked after this time, so often, at this distance, whether
/// it is there. While something is unconfirmed or unsent the kernel does not ask: a peer that is gone is then noticed
/// when the kernel has sent it often enough (`net.ipv4.tcp_retries2`, about a quarter of an hour). One that is there
/// and takes nothing, because its storage waits, is waited for. There is no `TCP_USER_TIMEOUT`: it would end
/// the connection to such a one, and would take the place of the number of questions as well (tcp(7)).
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepAlive {
    pub(crate) idle: Duration,
    pub(crate) interval: Duration,
    pub(crate) retries: u32,
}

impl KeepAlive {
    pub(crate) const DEFAULT: Self = Self {
        idle: Duration::from_secs(15),
        interval: Duration::from_secs(5),
        retries: 3,
    };
}

pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connected socket.
pub(crate) struct Socket {
    pub(crate) stream: Stream,
    until: Arc<Progress>,
    limits: Limits,
}

impl Socket {
    /// Connects to the first address of a name that answers.
    pub(crate) fn tcp(
        address: impl ToSocketAddrs,
        limits: Limits,
        until: &Arc<Progress>,
    ) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, limits.connect) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    sliced(&stream)?;
                    keep_alive(&stream, &limits)?;
                    return Ok(Self::new(Stream::Tcp(stream), limits, until));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects to a socket of the file system. A server that accepts no connections queues them; where
    /// that is full, connecting waits.
    pub(crate) fn unix(path: &Path, limits: Limits, until: &Arc<Progress>) -> io::Result<Self> {
        let patience = Patience::new(until, limits.connect, limits.option);
        let open = || {
            let address = SocketAddrUnix::new(path)?;
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            sliced(&socket)?;
            patience.wait_for(|| Ok(connect(&socket, &address)?))?;
            Ok(Stream::Unix(UnixStream::from(socket)))
        };
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let stream = open().map_err(named)?;
        Ok(Self::new(stream, limits, until))
    }

    fn new(stream: Stream, limits: Limits, until: &Arc<Progress>) -> Self {
        Self {
            stream,
            until: Arc::clone(until),
            limits,
        }
    }

    /// Reads what there is, or waits for it; not for ever while logging in.
    pub(crate) fn read(&self, into: &mut [u8], is_login: bool) -> io::Result<usize> {
        self.patience(is_login).wait_for(|| match &self.stream {
            Stream::Tcp(stream) => (&mut &*stream).read(into),
            Stream::Unix(stream) => (&mut &*stream).read(into),
        })
    }

    /// Writes as much as there is room for, or waits for some.
    pub(crate) fn write(&self, from: &[u8], is_login: bool) -> io::Result<usize> {
        self.patience(is_login).wait_for(|| match &self.stream {
            Stream::Tcp(stream) => (&mut &*stream).write(from),
            Stream::Unix(stream) => (&mut &*stream).write(from),
        })
    }

    pub(crate) fn shutdown(&self) -> io::Result<()> {
        let both = std::net::Shutdown::Both;
        match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(both),
            Stream::Unix(stream) => stream.shutdown(both),
        }
    }

    fn patience(&self, is_login: bool) -> Patience<'_> {
        let limit = if is_login {
            self.limits.login
        } else {
            Duration::MAX
        };
        Patience::new(&self.until, limit, self.limits.option)
    }
}

/// Runs what waits for nothing but a stream that may always wait: that never says that it is not ready, so
/// one poll is all.
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}

/// How long a call may wait.
struct Patience<'a> {
    until: &'a Progress,
    limit: Duration,
    option: &'static str,
}

impl<'a> Patience<'a> {
    fn new(until: &'a Progress, limit: Duration, option: &'static str) -> Self {
        Self {
            until,
            limit,
            option,
        }
    }

    /// Calls again and again what gives up after a slice of time.
    fn wait_for<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let (mut waited, mut told) = (Duration::ZERO, Duration::ZERO);
        loop {
            match call() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The slice is over. What the kernel gives up is ETIMEDOUT, which is another.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            waited += SLICE;
            if self.until.go_on().is_err() {
                told += SLICE;
            }
            let text = match () {
                () if told >= LAST_WORDS => {
                    "interrupted while the server did not answer".to_owned()
                }
                () if waited >= self.limit => self.given_up(),
                () => continue,
            };
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
    }

    fn given_up(&self) -> String {
        let told = format!("the server does not answer within {:?}", self.limit);
        match self.option {
            "" => told,
            option => format!("{told} ({option})"),
        }
    }
}

fn sliced(stream: impl std::os::fd::AsFd) -> io::Result<()> {
    set_socket_timeout(&stream, Timeout::Recv, Some(SLICE))?;
    Ok(set_socket_timeout(&stream, Timeout::Send, Some(SLICE))?)
}

/// Has the kernel notice a server that is gone without a word.
fn keep_alive(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    if let Some(asked) = limits.keep_alive {
        set_socket_keepalive(stream, true)?;
        set_tcp_keepidle(stream, asked.idle)?;
        set_tcp_keepintvl(stream, asked.interval)?;
        set_tcp_keepcnt(stream, asked.retries)?;
    }
    if let Some(limit) = limits.user_timeout {
        let millis = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        set_tcp_user_timeout(stream, millis)?;
    }
    Ok(())
}
