use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use super::Endpoint;
use crate::Token;
use crate::model::{ControlError, ErrorBody, ErrorKind};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a daemon that is expected is called.
const CALL_EVERY: Duration = Duration::from_millis(50);
/// Making a pool of large drives, or letting one go, takes its time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(900);
const MAX_ANSWER: usize = 64 << 20;

/// One request.
pub(super) struct Ask {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: Option<Vec<u8>>,
}

impl Ask {
    pub(super) fn new(method: &'static str, path: &str) -> Self {
        Self {
            method,
            path: path.into(),
            body: None,
        }
    }
}

/// HTTP/1.1 over either kind of socket.
pub(super) struct Transport {
    endpoint: Endpoint,
    token: Option<Token>,
    /// How long a daemon on this machine may take to come up.
    pub(super) patience: Duration,
    /// An answer comes within so long, or none is awaited any more.
    pub(super) answers_within: Duration,
    runtime: Runtime,
}

impl Transport {
    pub(super) fn new(endpoint: Endpoint, token: Option<Token>) -> Result<Self, ControlError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| ControlError::environment(format!("cannot start: {error}")))?;
        Ok(Self {
            endpoint,
            token,
            patience: Duration::ZERO,
            answers_within: ANSWER_TIMEOUT,
            runtime,
        })
    }

    /// Asks, and takes the answer apart. An answer without a body is `null`.
    pub(super) fn ask<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, ControlError> {
        let answer = self.runtime.block_on(async {
            match timeout(self.answers_within, self.exchange(ask)).await {
                Ok(answer) => answer,
                Err(_) => {
                    let within = self.answers_within;
                    Err(self.failed(&format!("has not answered within {within:?}")))
                }
            }
        });
        let (status, body) = answer?;
        if (200..300).contains(&status) {
            let body: &[u8] = if body.is_empty() { b"null" } else { &body };
            return serde_json::from_slice(body).map_err(|error| {
                let why = ashlar_plain::reworded(&error.to_string());
                self.failed(&format!(
                    "gave an answer that this version of Ashlar does not understand: {why}"
                ))
            });
        }
        Err(self.refusal(status, &body))
    }

    fn refusal(&self, status: u16, body: &[u8]) -> ControlError {
        let mut error = match serde_json::from_slice::<ErrorBody>(body) {
            Ok(body) => body.error,
            Err(_) => return self.failed(&format!("answered with HTTP status {status}")),
        };
        if error.kind == ErrorKind::Unauthorized && self.token.is_none() {
            error.message += "; name a copy of it with --token-file, or in ASHLAR_TOKEN_FILE";
        }
        error
    }

    fn failed(&self, why: &str) -> ControlError {
        ControlError::environment(format!("the daemon at {} {why}", self.endpoint))
    }

    async fn exchange(&self, ask: &Ask) -> Result<(u16, Bytes), ControlError> {
        match &self.endpoint {
            Endpoint::Socket(path) => {
                let stream = self.connected(self.called(path)).await?;
                self.talk(stream, self.request("localhost", ask)?).await
            }
            Endpoint::Tcp(authority) => {
                let stream = self
                    .connected(TcpStream::connect(authority.as_str()))
                    .await?;
                self.talk(stream, self.request(authority, ask)?).await
            }
        }
    }

    /// Calls again while the socket of a daemon that may be starting is not there, or refuses.
    async fn called(&self, path: &Path) -> io::Result<UnixStream> {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(path).await {
                Err(error) if may_be_starting(&error) && begun.elapsed() < self.patience => {
                    sleep(CALL_EVERY).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn connected<S>(
        &self,
        connect: impl Future<Output = io::Result<S>>,
    ) -> Result<S, ControlError> {
        let cannot = |why: &str| {
            self.failed(&format!(
                "cannot be reached: {why}; is `ashlar node` running, and is this its API \
                 (--api, ASHLAR_API)?"
            ))
        };
        match timeout(CONNECT_TIMEOUT, connect).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(cannot(&error.to_string())),
            Err(_) => Err(cannot("no answer")),
        }
    }

    fn request(&self, host: &str, ask: &Ask) -> Result<Request<Full<Bytes>>, ControlError> {
        let mut request = Request::builder()
            .method(ask.method)
            .uri(&ask.path)
            .header(HOST, host);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.header());
        }
        if ask.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = ask.body.clone().unwrap_or_default();
        request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| ControlError::internal(format!("{}: {error}", ask.path)))
    }

    async fn talk<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        request: Request<Full<Bytes>>,
    ) -> Result<(u16, Bytes), ControlError> {
        let broken = |error: &dyn std::error::Error| self.failed(&format!("broke off: {error}"));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| broken(&e))?;
        // Its errors come out of the request, too.
        let connection = tokio::spawn(connection);
        let response: Response<Incoming> =
            sender.send_request(request).await.map_err(|e| broken(&e))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_ANSWER)
            .collect()
            .await;
        let body = body.map_err(|error| broken(error.as_ref()))?.to_bytes();
        connection.abort();
        Ok((status, body))
    }
}

fn may_be_starting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_daemon_that_is_being_started_is_waited_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("api.sock");
        let mut transport = Transport::new(Endpoint::Socket(path.clone()), None).expect("made");
        let mut said = |patience| {
            transport.patience = patience;
            let answer = transport.ask::<()>(&Ask::new("GET", "/v1/node"));
            answer.expect_err("nothing answers").message
        };
        let at_once = said(Duration::ZERO);
        assert!(at_once.contains("cannot be reached"), "{at_once}");
        // One that was killed leaves a socket that refuses.
        drop(UnixListener::bind(&path).expect("bound"));
        let starts = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            std::fs::remove_file(&path).expect("removed");
            thread::sleep(Duration::from_millis(200));
            let (stream, _) = UnixListener::bind(&path)?.accept()?;
            stream.set_nonblocking(false)
        });
        let late = said(Duration::from_secs(60));
        assert!(late.contains("broke off"), "{late}");
        starts.join().expect("no panic").expect("called");
    }

    #[test]
    fn a_daemon_that_hangs_is_waited_for_as_long_as_was_said() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let at = listener.local_addr().expect("bound").to_string();
        let mut transport = Transport::new(Endpoint::Tcp(at), None).expect("made");
        transport.answers_within = Duration::from_millis(50);
        let answer = transport.ask::<()>(&Ask::new("GET", "/v1/node"));
        let said = answer.expect_err("nothing answers").message;
        assert!(said.contains("has not answered within 50ms"), "{said}");
    }
}
