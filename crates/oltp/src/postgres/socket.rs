//! A socket whose calls block, and not for ever: they look every now and then whether whoever waits is to
//! go on, and a server that is gone without a word is noticed by the kernel.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::Progress;
use rustix::net::sockopt::{
    Timeout, set_socket_keepalive, set_socket_timeout, set_tcp_keepcnt, set_tcp_keepidle,
    set_tcp_keepintvl, set_tcp_user_timeout,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Connecting takes this long at most, unless the URL says otherwise (`connect_timeout`).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The same of each answer while logging in. A server that must read its catalog from a storage that has to
/// wait is slow, and there.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// A call that waits looks this often whether it is to go on.
const SLICE: Duration = Duration::from_millis(200);
/// A database that is well answers within this time those who are to end.
const LAST_WORDS: Duration = Duration::from_secs(5);
const DEFAULT_PORT: u16 = 5432;
/// Where Debian's servers have their sockets.
const DEFAULT_SOCKETS: &str = "/var/run/postgresql";

/// A peer that has confirmed everything and says nothing is asked after this time, so often, at this distance, whether
/// it is there. While something is unconfirmed or unsent the kernel does not ask: a peer that is gone is then noticed
/// when the kernel has sent it often enough (`net.ipv4.tcp_retries2`, about a quarter of an hour). One that is there
/// and takes nothing, because its storage waits, is waited for. There is no `TCP_USER_TIMEOUT`: it would end
/// the connection to such a one, and would take the place of the number of questions as well (tcp(7)). The URL has
/// the last word (`keepalives_idle`, `keepalives_interval`, `keepalives_retries`, `tcp_user_timeout`).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// What tokio-postgres has where the URL says nothing.
const UNSAID_IDLE: Duration = Duration::from_secs(2 * 60 * 60);

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connected socket.
pub(super) struct Socket {
    stream: Stream,
    until: Arc<Progress>,
    /// For each answer while logging in.
    login_timeout: Duration,
}

impl Socket {
    /// Connects to the first host of a configuration.
    pub(super) fn open(config: &Config, until: &Arc<Progress>) -> io::Result<Self> {
        let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT);
        let said = config.get_connect_timeout().copied();
        let patience = Patience::new(until, said.unwrap_or(CONNECT_TIMEOUT));
        let stream = match (config.get_hostaddrs().first(), config.get_hosts().first()) {
            (Some(&address), _) => tcp((address, port), patience.limit, config),
            (_, Some(Host::Tcp(name))) => tcp((name.as_str(), port), patience.limit, config),
            (_, Some(Host::Unix(folder))) => unix(folder, port, patience),
            (_, None) => unix(DEFAULT_SOCKETS.as_ref(), port, patience),
        };
        Ok(Self {
            stream: stream?,
            until: Arc::clone(until),
            login_timeout: said.unwrap_or(LOGIN_TIMEOUT),
        })
    }

    /// Reads what there is, or waits for it; not for ever while logging in.
    pub(super) fn read(&self, into: &mut [u8], is_login: bool) -> io::Result<usize> {
        self.patience(is_login).wait_for(|| match &self.stream {
            Stream::Tcp(stream) => (&mut &*stream).read(into),
            Stream::Unix(stream) => (&mut &*stream).read(into),
        })
    }

    /// Writes as much as there is room for, or waits for some.
    pub(super) fn write(&self, from: &[u8], is_login: bool) -> io::Result<usize> {
        self.patience(is_login).wait_for(|| match &self.stream {
            Stream::Tcp(stream) => (&mut &*stream).write(from),
            Stream::Unix(stream) => (&mut &*stream).write(from),
        })
    }

    pub(super) fn shutdown(&self) -> io::Result<()> {
        let both = std::net::Shutdown::Both;
        match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(both),
            Stream::Unix(stream) => stream.shutdown(both),
        }
    }

    fn patience(&self, is_login: bool) -> Patience<'_> {
        let limit = if is_login {
            self.login_timeout
        } else {
            Duration::MAX
        };
        Patience::new(&self.until, limit)
    }
}

/// How long a call may wait.
struct Patience<'a> {
    until: &'a Progress,
    limit: Duration,
}

impl<'a> Patience<'a> {
    fn new(until: &'a Progress, limit: Duration) -> Self {
        Self { until, limit }
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
                () if told >= LAST_WORDS => "interrupted while the server did not answer",
                () if waited >= self.limit => "the server does not answer (connect_timeout)",
                () => continue,
            };
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
    }
}

fn sliced(stream: impl std::os::fd::AsFd) -> io::Result<()> {
    set_socket_timeout(&stream, Timeout::Recv, Some(SLICE))?;
    Ok(set_socket_timeout(&stream, Timeout::Send, Some(SLICE))?)
}

/// A server that takes nobody in keeps those who come in a queue; where that is full, connecting waits.
fn unix(folder: &Path, port: u16, patience: Patience<'_>) -> io::Result<Stream> {
    let path = folder.join(format!(".s.PGSQL.{port}"));
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let open = || {
        let address = SocketAddrUnix::new(&path)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        sliced(&socket)?;
        patience.wait_for(|| Ok(connect(&socket, &address)?))?;
        Ok(Stream::Unix(UnixStream::from(socket)))
    };
    open().map_err(named)
}

fn tcp(address: impl ToSocketAddrs, timeout: Duration, config: &Config) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                sliced(&stream)?;
                keep_alive(&stream, config)?;
                return Ok(Stream::Tcp(stream));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Has the kernel notice a server that is gone without a word.
fn keep_alive(stream: &TcpStream, config: &Config) -> io::Result<()> {
    if config.get_keepalives() {
        let idle = Some(config.get_keepalives_idle()).filter(|said| *said != UNSAID_IDLE);
        let interval = config.get_keepalives_interval();
        let retries = config.get_keepalives_retries();
        set_socket_keepalive(stream, true)?;
        set_tcp_keepidle(stream, idle.unwrap_or(KEEPALIVE_IDLE))?;
        set_tcp_keepintvl(stream, interval.unwrap_or(KEEPALIVE_INTERVAL))?;
        set_tcp_keepcnt(stream, retries.unwrap_or(KEEPALIVE_RETRIES))?;
    }
    if let Some(said) = config.get_tcp_user_timeout() {
        let millis = u32::try_from(said.as_millis()).unwrap_or(u32::MAX);
        set_tcp_user_timeout(stream, millis)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use rustix::net::sockopt;

    use super::*;

    #[test]
    fn a_server_that_is_gone_without_a_word_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let open = |more: &str| {
            let config = format!("host=127.0.0.1 port={port} user=me {more}");
            let config = config.parse().expect("a configuration");
            let silent = Arc::new(Progress::silent());
            match Socket::open(&config, &silent).expect("connected").stream {
                Stream::Tcp(stream) => stream,
                Stream::Unix(_) => panic!("TCP was asked for"),
            }
        };
        let stream = open("");
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(KEEPALIVE_IDLE));
        assert_eq!(sockopt::tcp_keepintvl(&stream), Ok(KEEPALIVE_INTERVAL));
        assert_eq!(sockopt::tcp_keepcnt(&stream), Ok(KEEPALIVE_RETRIES));
        // It would count the time in which a server that is there takes nothing.
        assert_eq!(sockopt::tcp_user_timeout(&stream), Ok(0));
        let stream = open("keepalives_idle=7 tcp_user_timeout=9");
        assert_eq!(
            sockopt::tcp_keepidle(&stream),
            Ok(Duration::from_secs(7)),
            "the URL has the last word"
        );
        assert_eq!(sockopt::tcp_user_timeout(&stream), Ok(9_000));
    }

    /// A socket to a server that never says anything.
    fn to_a_mute(until: Progress) -> (tempfile::TempDir, UnixListener, Socket) {
        let dir = tempfile::tempdir().expect("folder");
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).expect("bound");
        let config = format!("host={} user=me connect_timeout=1", dir.path().display());
        let config = config.parse().expect("a configuration");
        let socket = Socket::open(&config, &Arc::new(until)).expect("connected");
        (dir, listener, socket)
    }

    #[test]
    fn who_is_to_end_waits_for_last_words_only() {
        let stop = Arc::new(AtomicBool::new(true));
        let (_dir, _listener, socket) = to_a_mute(Progress::silent().until(stop));
        let begun = Instant::now();
        let error = socket.read(&mut [0; 8], false).expect_err("nobody answers");
        assert!(error.to_string().contains("interrupted"), "{error}");
        let waited = begun.elapsed();
        assert!((LAST_WORDS..3 * LAST_WORDS).contains(&waited), "{waited:?}");
    }

    #[test]
    fn a_login_has_an_end() {
        let (_dir, _listener, socket) = to_a_mute(Progress::silent());
        let error = socket.read(&mut [0; 8], true).expect_err("nobody answers");
        assert!(error.to_string().contains("connect_timeout"), "{error}");
    }
}
