//! One connection to a member of etcd, one request at a time.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig as TlsConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::endpoint::EtcdEndpoint;
use crate::peer::connected;

const LONGEST_ANSWER: usize = 4 << 20;

/// A request has no answer.
#[derive(Debug)]
pub(super) struct Failed {
    /// Whether the member may have seen the request.
    pub(super) is_sent: bool,
    pub(super) why: String,
}

impl Failed {
    pub(super) fn unsent(why: impl ToString) -> Self {
        Self {
            is_sent: false,
            why: why.to_string(),
        }
    }

    pub(super) fn sent(why: impl ToString) -> Self {
        Self {
            is_sent: true,
            why: why.to_string(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// Whom to connect to, and how.
pub(super) struct Way<'a> {
    pub(super) endpoint: &'a EtcdEndpoint,
    pub(super) tls: Option<Arc<TlsConfig>>,
    pub(super) from: Option<SocketAddr>,
}

#[derive(Debug)]
pub(super) struct Connection {
    host: String,
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    pub(super) async fn open(way: Way<'_>) -> Result<Self, Failed> {
        let host = way.endpoint.authority().to_owned();
        let stream = match (way.from, host.parse::<SocketAddr>()) {
            (Some(from), Ok(to)) => connected(from, to).await,
            _ => TcpStream::connect(&host).await,
        };
        let stream = stream.map_err(Failed::unsent)?;
        stream.set_nodelay(true).map_err(Failed::unsent)?;
        match way.tls {
            None => Self::over(stream, host).await,
            Some(tls) => {
                let address: SocketAddr = host.parse().map_err(Failed::unsent)?;
                let name = ServerName::from(address.ip());
                let stream = TlsConnector::from(tls).connect(name, stream).await;
                Self::over(stream.map_err(Failed::unsent)?, host).await
            }
        }
    }

    async fn over<S>(stream: S, host: String) -> Result<Self, Failed>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(Failed::unsent)?;
        // Its errors come out of the requests, too.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self {
            host,
            sender,
            driver,
        })
    }

    /// Sends a request, and takes the whole answer.
    pub(super) async fn post(&mut self, path: &str, body: Bytes) -> Result<Answer, Failed> {
        let request = Request::post(path)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(Failed::unsent)?;
        self.sender.ready().await.map_err(Failed::unsent)?;
        let sent = self.sender.try_send_request(request).await;
        let response = sent.map_err(|mut error| {
            // One that comes back was not sent at all: the connection had been closed while it was idle.
            let is_sent = error.take_message().is_none();
            let why = error.into_error().to_string();
            Failed { is_sent, why }
        })?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect();
        let body = body.await.map_err(Failed::sent)?.to_bytes();
        Ok(Answer { status, body })
    }
}
