//! Where a configuration of PostgreSQL leads to. The URL has the last word in how long a server is waited for
//! (`connect_timeout`, `keepalives_idle`, `keepalives_interval`, `keepalives_retries`, `tcp_user_timeout`).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::Progress;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::socket::{KeepAlive, Limits, Socket};

const DEFAULT_PORT: u16 = 5432;
/// Where Debian's servers have their sockets.
const DEFAULT_SOCKETS: &str = "/var/run/postgresql";
/// What tokio-postgres has where the URL says nothing.
const UNSAID_IDLE: Duration = Duration::from_secs(2 * 60 * 60);

/// Connects to the first host of a configuration.
pub(super) fn open(config: &Config, until: &Arc<Progress>) -> io::Result<Socket> {
    let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT);
    let limits = limits(config);
    let unix = |folder: &Path| {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        Socket::unix(&path, limits, until)
    };
    match (config.get_hostaddrs().first(), config.get_hosts().first()) {
        (Some(&address), _) => Socket::tcp((address, port), limits, until),
        (_, Some(Host::Tcp(name))) => Socket::tcp((name.as_str(), port), limits, until),
        (_, Some(Host::Unix(folder))) => unix(folder),
        (_, None) => unix(DEFAULT_SOCKETS.as_ref()),
    }
}

fn limits(config: &Config) -> Limits {
    let ours = Limits::default();
    let said = config.get_connect_timeout().copied();
    let idle = Some(config.get_keepalives_idle()).filter(|said| *said != UNSAID_IDLE);
    let asked = KeepAlive {
        idle: idle.unwrap_or(KeepAlive::DEFAULT.idle),
        interval: config
            .get_keepalives_interval()
            .unwrap_or(KeepAlive::DEFAULT.interval),
        retries: config
            .get_keepalives_retries()
            .unwrap_or(KeepAlive::DEFAULT.retries),
    };
    Limits {
        connect: said.unwrap_or(ours.connect),
        login: said.unwrap_or(ours.login),
        option: "connect_timeout",
        keep_alive: config.get_keepalives().then_some(asked),
        user_timeout: config.get_tcp_user_timeout().copied(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use rustix::net::sockopt;

    use super::*;
    use crate::socket::{LAST_WORDS, Stream};

    #[test]
    fn a_server_that_is_gone_without_a_word_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let opened = |more: &str| {
            let config = format!("host=127.0.0.1 port={port} user=me {more}");
            let config = config.parse().expect("a configuration");
            let silent = Arc::new(Progress::silent());
            match open(&config, &silent).expect("connected").stream {
                Stream::Tcp(stream) => stream,
                Stream::Unix(_) => panic!("TCP was asked for"),
            }
        };
        let stream = opened("");
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(KeepAlive::DEFAULT.idle));
        assert_eq!(
            sockopt::tcp_keepintvl(&stream),
            Ok(KeepAlive::DEFAULT.interval)
        );
        assert_eq!(
            sockopt::tcp_keepcnt(&stream),
            Ok(KeepAlive::DEFAULT.retries)
        );
        // It would count the time in which a server that is there takes nothing.
        assert_eq!(sockopt::tcp_user_timeout(&stream), Ok(0));
        let stream = opened("keepalives_idle=7 tcp_user_timeout=9");
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
        let socket = open(&config, &Arc::new(until)).expect("connected");
        (dir, listener, socket)
    }

    #[test]
    fn who_is_to_end_waits_for_last_words_only() {
        let stop = Arc::new(AtomicBool::new(true));
        let (_dir, _listener, socket) = to_a_mute(Progress::silent().until(stop));
        let begun = Instant::now();
        let error = socket.read(&mut [0; 8], false).expect_err("no answer");
        assert!(error.to_string().contains("interrupted"), "{error}");
        let waited = begun.elapsed();
        assert!((LAST_WORDS..3 * LAST_WORDS).contains(&waited), "{waited:?}");
    }

    #[test]
    fn a_login_has_an_end() {
        let (_dir, _listener, socket) = to_a_mute(Progress::silent());
        let error = socket.read(&mut [0; 8], true).expect_err("no answer");
        assert!(error.to_string().contains("connect_timeout"), "{error}");
    }
}
