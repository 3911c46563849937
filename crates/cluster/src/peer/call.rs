use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ashlar_replica::Incarnation;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::handshake::{Caller, Session};
use super::refusal::Refusal;
use super::wire::{CHALLENGE_BYTES, Hello, NameHash, PREFIX_BYTES, VERDICT_BYTES, answer_prefix};
use crate::config::{ClusterConfig, NodeConfig};
use crate::trust::Line;
use crate::versions::Versions;

/// How long a connection and its handshake may take.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long data may stay unacknowledged before the kernel gives the connection up.
const USER_TIMEOUT: Duration = Duration::from_secs(2);

/// Who is called, and as whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) config: &'a ClusterConfig,
    pub(crate) me: &'a NodeConfig,
    pub(crate) peer: &'a NodeConfig,
}

/// Why a call leads to nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    Io(String),
    Refused(Refusal),
}

impl CallError {
    pub(crate) fn words(&self, target: Target<'_>) -> String {
        let peer = target.peer;
        match self {
            Self::Io(why) => format!(
                "node {} at {} cannot be reached: {why}",
                peer.name, peer.replication
            ),
            Self::Refused(refusal) => refusal.words(target.config, target.me, peer),
        }
    }
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        if let Some(refusal) = Refusal::of_tls(&error) {
            return Self::Refused(refusal);
        }
        Self::Io(match error.kind() {
            io::ErrorKind::UnexpectedEof => "it has closed the connection".into(),
            _ => error.to_string(),
        })
    }
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A connection to a node that is who it should be, and lets this one in.
pub(crate) struct Called {
    pub(crate) line: Line,
    pub(crate) session: Session,
    /// The process that answers.
    pub(crate) incarnation: Incarnation,
    /// What both speak.
    pub(crate) version: u16,
}

/// Calls a node.
pub(crate) async fn call(target: Target<'_>, hello: Hello) -> Result<Called, CallError> {
    let called = timeout(HANDSHAKE_TIMEOUT, handshake(target, hello)).await;
    let late = |_| CallError::Io(format!("no answer within {HANDSHAKE_TIMEOUT:?}"));
    called.map_err(late)?
}

async fn handshake(target: Target<'_>, hello: Hello) -> Result<Called, CallError> {
    let trust = &target.config.trust;
    let stream = connected(target.me.replication, target.peer.replication).await?;
    prepare(&stream)?;
    let name = NameHash::of(&target.peer.name);
    let mut line = Line::to(trust, stream, target.peer.id, name).await?;
    let key = line.key(trust)?;
    let ours = hello.versions;
    let caller = Caller::new(&key, hello);
    line.say(caller.hello()).await?;
    let challenge: [u8; CHALLENGE_BYTES] = answer(&mut line, ours).await?;
    let (challenged, proof) = caller.challenged(&challenge)?;
    let (incarnation, version) = (challenged.incarnation(), challenged.version());
    line.say(&proof).await?;
    let verdict: [u8; VERDICT_BYTES] = answer(&mut line, ours).await?;
    let session = challenged.judged(&verdict)?;
    Ok(Called {
        line,
        session,
        incarnation,
        version,
    })
}

/// A connection from the address that peers know, if it is one of this machine: that is who has a place at their gates.
pub(crate) async fn connected(from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if from.is_ipv4() == to.is_ipv4() {
        // Behind a translated address it is another one, and a stranger's place will do.
        let _ = socket.bind(SocketAddr::new(from.ip(), 0));
    }
    socket.connect(to).await
}

/// An answer; of one of another version only its beginning.
async fn answer<const N: usize>(line: &mut Line, ours: Versions) -> Result<[u8; N], CallError> {
    let mut bytes = [0; N];
    let mut prefix = [0; PREFIX_BYTES];
    line.read_exact(&mut prefix).await?;
    answer_prefix(&prefix, ours).map_err(Refusal::from)?;
    bytes[..PREFIX_BYTES].copy_from_slice(&prefix);
    line.read_exact(&mut bytes[PREFIX_BYTES..]).await?;
    Ok(bytes)
}

/// What holds for every connection between nodes.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let patience = USER_TIMEOUT.as_millis() as u32;
    Ok(set_tcp_user_timeout(stream, patience)?)
}
