//! A daemon inside the test, over pools that exist by name only.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use ashlar_node::client::{Client, Endpoint};
use ashlar_node::model::ControlError;
use ashlar_node::testing::FakeControl;
use ashlar_node::{Alarm, Config, Daemon, Ready, Token};
use serde_json::Value;
use tempfile::TempDir;

pub struct Node {
    pub dir: TempDir,
    pub control: Arc<FakeControl>,
    pub ready: Ready,
    alarm: Alarm,
    thread: JoinHandle<Result<(), ControlError>>,
}

impl Node {
    pub fn start() -> Self {
        Self::with(Config::default())
    }

    pub fn with_tcp() -> Self {
        Self::with(Config::default().overridden(None, "127.0.0.1:0".parse().ok()))
    }

    fn with(config: Config) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let daemon = Daemon::open(dir.path(), config).expect("it opens");
        let control = Arc::new(FakeControl::new());
        let alarm = daemon.alarm();
        let (sender, ready) = channel();
        let run = control.clone();
        let thread = std::thread::spawn(move || {
            daemon.run(run, |ready| {
                sender.send(ready.clone()).expect("the test waits");
                Ok(())
            })
        });
        let ready = ready
            .recv_timeout(Duration::from_secs(60))
            .expect("it gets ready");
        Self {
            dir,
            control,
            ready,
            alarm,
            thread,
        }
    }

    /// Ends it as the death of a part would.
    pub fn end(self) -> (TempDir, ControlError) {
        self.alarm.raise("the test is over");
        let error = self.thread.join().expect("it does not panic");
        (self.dir, error.expect_err("a death is no success"))
    }

    /// Waits until it has ended by itself.
    pub fn await_end(self) -> Result<(), ControlError> {
        self.thread.join().expect("it does not panic")
    }

    pub fn client(&self) -> Client {
        let socket = Endpoint::Socket(self.ready.socket.clone());
        Client::new(socket, None).expect("a client")
    }

    pub fn tcp(&self) -> SocketAddr {
        self.ready.api.expect("it listens on TCP")
    }

    pub fn token(&self) -> Token {
        Token::read(&self.dir.path().join("api.token")).expect("a token")
    }

    pub fn tcp_client(&self, token: Option<Token>) -> Client {
        Client::new(Endpoint::Tcp(self.tcp().to_string()), token).expect("a client")
    }

    /// Sends these bytes over the socket, and reads all that comes back.
    pub fn raw(&self, bytes: &[u8]) -> String {
        exchange(
            UnixStream::connect(&self.ready.socket).expect("it listens"),
            bytes,
        )
    }

    /// The same over TCP.
    pub fn raw_tcp(&self, bytes: &[u8]) -> String {
        exchange(TcpStream::connect(self.tcp()).expect("it listens"), bytes)
    }

    /// A request with a JSON body; the status and the answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let answer = self.raw(
            format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                 content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        );
        let (status, body) = parts(&answer);
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

fn exchange(mut stream: impl Read + Write, bytes: &[u8]) -> String {
    // It may have hung up already.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Status and body of an answer.
pub fn parts(answer: &str) -> (u16, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (
        status.unwrap_or_else(|| panic!("no answer: {answer:?}")),
        body,
    )
}
