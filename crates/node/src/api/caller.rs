//! Who calls, and the record of what was ordered.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::Listener;
use http_body_util::BodyExt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, unix};
use tracing::info;

use super::reply::Told;
use super::visitors::Visitor;
use crate::ORDERS;

/// How much of an order's body is recorded.
const RECORDED_BYTES: usize = 1024;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process of this machine, over the socket; nothing, if the kernel does not tell.
    Local { uid: u32, pid: Option<i32> },
    /// An address; with the token, if it is let in.
    Remote(SocketAddr),
}

/// Where connections come from, for what they may take of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// This machine, over the socket.
    Local,
    /// An address; of IPv6 the network, which one host may have all addresses of.
    Address(IpAddr),
}

impl Caller {
    pub(crate) fn origin(self) -> Origin {
        match self {
            Self::Local { .. } => Origin::Local,
            Self::Remote(address) => Origin::Address(match address.ip().to_canonical() {
                IpAddr::V6(ip) => {
                    let network = u128::from(ip) >> 64 << 64;
                    Ipv6Addr::from(network).into()
                }
                ip => ip,
            }),
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { uid, pid } => {
                write!(f, "uid {uid}")?;
                match pid {
                    Some(pid) => write!(f, ", pid {pid}"),
                    None => Ok(()),
                }
            }
            Self::Remote(address) => write!(f, "the token from {address}"),
        }
    }
}

/// A listener that knows who calls.
pub(crate) trait Callers: Listener {
    /// Who is at the other end of a connection from this address.
    fn caller(io: &Self::Io, address: &Self::Addr) -> Caller;
}

impl Callers for TcpListener {
    fn caller(_: &TcpStream, address: &SocketAddr) -> Caller {
        Caller::Remote(*address)
    }
}

impl Callers for UnixListener {
    fn caller(io: &UnixStream, _: &unix::SocketAddr) -> Caller {
        let peer = io.peer_cred();
        Caller::Local {
            // A peer that the kernel does not tell of has no name.
            uid: peer.as_ref().map_or(u32::MAX, |peer| peer.uid()),
            pid: peer.ok().and_then(|peer| peer.pid()),
        }
    }
}

/// Lets a request through, and records it if it is an order: what, by whom, and what became of it.
pub(super) async fn record(request: Request, next: Next) -> Response {
    let visitor = request.extensions().get::<Arc<Visitor>>().cloned();
    let Some(visitor) = visitor.filter(|_| !is_question(request.method())) else {
        return next.run(request).await;
    };
    let caller = visitor.caller();
    let what = format!("{} {}", request.method(), request.uri());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hear = heard.clone();
    let request = request.map(|body| {
        Body::new(body.map_frame(move |frame| {
            if let Some(data) = frame.data_ref() {
                let mut heard = hear.lock().unwrap_or_else(PoisonError::into_inner);
                let room = RECORDED_BYTES - heard.len();
                heard.extend_from_slice(&data[..data.len().min(room)]);
            }
            frame
        }))
    });
    let response = next.run(request).await;
    let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    let body = String::from_utf8_lossy(&heard);
    let status = response.status().as_u16();
    let answer = match response.extensions().get::<Told>() {
        Some(Told(why)) => format!("refused ({status}): {why}"),
        None => "done".to_owned(),
    };
    info!(
        target: ORDERS,
        by = %caller,
        status,
        "order by {caller}: {what} {body}: {answer}"
    );
    response
}

fn is_question(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_has_a_network_is_one_origin() {
        let origin = |text: &str| Caller::Remote(text.parse().expect("address")).origin();
        assert_eq!(origin("[2001:db8::1]:1"), origin("[2001:db8::2:3]:9"));
        assert_ne!(origin("[2001:db8::1]:1"), origin("[2001:db8:0:1::1]:1"));
        assert_eq!(origin("[::ffff:10.0.0.1]:1"), origin("10.0.0.1:2"));
        assert_ne!(origin("10.0.0.1:1"), origin("10.0.0.2:1"));
    }
}
