use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ashlar_replica::{Incarnation, NodeId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::call::{HANDSHAKE_TIMEOUT, prepare};
use super::gate::{Gate, Pass};
use super::handshake::{Called, Session};
use super::newcomer::{self, JOIN_MAGIC};
use super::order;
use super::state::Peer;
use super::wire::{
    Challenge, Code, HELLO_BYTES, Hello, NameHash, NoHello, Nonce, PREFIX_BYTES, Purpose, Verdict,
    hello_prefix,
};
use crate::key::MAC_BYTES;
use crate::shared::Shared;
use crate::trust::{Line, Trust};

/// How long after a failed accept the next is tried: the process may have no descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long a refusal may take to arrive before its connection ends.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// What says in TLS that there is no place: a fatal alert, access_denied, which is said for nothing else.
const BUSY_IN_TLS: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// Lets peers in, for as long as it is polled.
pub(crate) async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    let gate = Gate::new();
    loop {
        match listener.accept().await {
            Ok((stream, from)) => greet(&shared, &gate, stream, from),
            Err(error) => {
                tracing::warn!("a peer's connection cannot be accepted: {error}");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

fn greet(shared: &Arc<Shared>, gate: &Arc<Gate>, stream: TcpStream, from: SocketAddr) {
    let shared = shared.clone();
    let ip = from.ip().to_canonical();
    let config = shared.config();
    let mut nodes = config.nodes.iter();
    let is_node = nodes.any(|node| node.replication.ip().to_canonical() == ip);
    match gate.enter(ip, is_node) {
        Some(pass) => {
            tokio::spawn(async move {
                if let Err(error) = serve(&shared, stream, pass).await {
                    tracing::debug!("{from}: {error}");
                }
            });
        }
        None => {
            // One packet, unless the socket is full; there is no place to wait for more.
            let _ = match config.trust {
                Trust::Certificates(_) => stream.try_write(&BUSY_IN_TLS),
                Trust::Key(_) => stream.try_write(&shared.challenge(Code::Busy).encode()),
            };
            tracing::debug!("{from}: too many connections without the key");
        }
    }
}

/// Who has shown the key.
struct Guest {
    line: Line,
    session: Session,
    hello: Hello,
    /// What both speak.
    version: u16,
}

/// Who has come.
enum Admitted {
    Node(Guest),
    /// Who has a token, or says so.
    Newcomer(Line),
    Refused,
}

async fn serve(shared: &Arc<Shared>, stream: TcpStream, pass: Pass) -> io::Result<()> {
    let guest = timeout(HANDSHAKE_TIMEOUT, admit(shared, stream)).await?;
    let guest = match guest? {
        Admitted::Node(guest) => guest,
        // It has shown nothing yet, and keeps its place until it is answered.
        Admitted::Newcomer(line) => return newcomer::take(shared, line).await,
        Admitted::Refused => return Ok(()),
    };
    drop(pass);
    let Guest {
        line,
        session,
        hello,
        version,
    } = guest;
    match hello.purpose {
        Purpose::Data => {
            let stream = line.into_socket(version, hello.incarnation)?;
            shared.local_call(|local| local.accepted(hello.from, hello.volume, stream));
        }
        Purpose::Order => {
            let _permit = shared.orders.acquire().await;
            let Some(local) = shared.local.get() else {
                return Ok(());
            };
            order::take(line, session, local.clone(), hello.from).await?;
        }
        Purpose::Dead => shared.certified_dead(hello.from, hello.incarnation),
        Purpose::Probe => {}
    }
    Ok(())
}

/// The handshake, from the side that is called.
async fn admit(shared: &Shared, stream: TcpStream) -> io::Result<Admitted> {
    prepare(&stream)?;
    let config = shared.config();
    let mut line = Line::from(&config.trust, stream).await?;
    let mut bytes = [0; HELLO_BYTES];
    line.read_exact(&mut bytes[..PREFIX_BYTES]).await?;
    let mut prefix = [0; PREFIX_BYTES];
    prefix.copy_from_slice(&bytes[..PREFIX_BYTES]);
    if prefix == JOIN_MAGIC {
        return Ok(Admitted::Newcomer(line));
    }
    let version = match hello_prefix(&prefix, config.versions) {
        Ok(version) => version,
        Err(no) => return refuse_hello(shared, line, no).await,
    };
    line.read_exact(&mut bytes[PREFIX_BYTES..]).await?;
    let hello = match Hello::decode(&bytes, config.versions) {
        Ok(hello) => hello,
        Err(no) => return refuse_hello(shared, line, no).await,
    };
    let peer = match shared.expected(&hello) {
        Ok(peer) => peer,
        Err(code) => return refuse(line, &shared.challenge(code).encode()).await,
    };
    if !line.may_be(&config.trust, hello.from, hello.name) {
        let refusal = shared.challenge(Code::OtherCertificate);
        return refuse(line, &refusal.encode()).await;
    }
    let challenge = shared.challenge(Code::GoOn);
    let key = line.key(&config.trust)?;
    let (called, challenge) = Called::new(&key, &bytes, &challenge);
    line.say(&challenge).await?;
    let mut proof = [0; MAC_BYTES];
    line.read_exact(&mut proof).await?;
    let is_proven = called.is_proven(&proof);
    let verdict = match is_proven {
        true => shared.judge(&peer, &hello),
        false => shared.verdict(Code::WrongKey),
    };
    let is_let_in = verdict.code == Code::GoOn;
    let (bytes, session) = called.verdict(&verdict);
    if !is_let_in {
        return refuse(line, &bytes).await;
    }
    line.say(&bytes).await?;
    Ok(Admitted::Node(Guest {
        line,
        session,
        hello,
        version,
    }))
}

async fn refuse_hello(shared: &Shared, line: Line, no: NoHello) -> io::Result<Admitted> {
    let code = match no {
        NoHello::Foreign => return Err(io::Error::other("speaks another protocol")),
        NoHello::Version(versions) => {
            tracing::warn!(
                "a peer speaks {versions} of the protocol between nodes, this node {}: upgrade the older one",
                shared.config().versions
            );
            Code::Version
        }
        NoHello::Malformed => Code::Malformed,
    };
    refuse(line, &shared.challenge(code).encode()).await
}

/// Says no, and lets it arrive: a connection that is closed with something unread takes what was sent with it.
async fn refuse(mut line: Line, bytes: &[u8]) -> io::Result<Admitted> {
    line.say(bytes).await?;
    line.shutdown().await?;
    let mut rest = [0; 1024];
    let read = timeout(LAST_WORDS, line.read(&mut rest)).await;
    read.map_or(Ok(Admitted::Refused), |read| {
        read.map(|_| Admitted::Refused)
    })
}

impl Shared {
    fn verdict(&self, code: Code) -> Verdict {
        Verdict {
            versions: self.config().versions,
            code,
            newest: Incarnation(0),
        }
    }

    fn challenge(&self, code: Code) -> Challenge {
        Challenge {
            versions: self.config().versions,
            code,
            node: self.me.id,
            incarnation: self.incarnation,
            nonce: Nonce::random(),
        }
    }

    /// Who may show the key: a node of this cluster that means this node.
    fn expected(&self, hello: &Hello) -> Result<Arc<Peer>, Code> {
        let cluster = match hello.purpose {
            Purpose::Dead => NameHash::of(&self.name).0,
            Purpose::Data | Purpose::Order | Purpose::Probe => self.id.into_bytes(),
        };
        if hello.cluster != cluster {
            return Err(Code::OtherCluster);
        }
        if hello.to != self.me.id {
            return Err(Code::WrongNode);
        }
        if hello.from == self.me.id {
            return Err(Code::Oneself);
        }
        let Some(peer) = self.peer(hello.from) else {
            // It may have joined just now.
            self.look_again.notify_one();
            return Err(Code::UnknownNode);
        };
        match NameHash::of(&peer.config.name) == hello.name {
            true => Ok(peer),
            false => Err(Code::UnknownNode),
        }
    }

    /// What a node that has shown the key is told.
    fn judge(&self, peer: &Peer, hello: &Hello) -> Verdict {
        if hello.purpose == Purpose::Dead {
            return self.verdict(Code::GoOn);
        }
        if let Err(newest) = peer.let_in(hello.incarnation) {
            return Verdict {
                newest,
                ..self.verdict(Code::Stale)
            };
        }
        let needs_local = matches!(hello.purpose, Purpose::Data | Purpose::Order);
        match needs_local && self.local.get().is_none() {
            true => self.verdict(Code::Starting),
            false => self.verdict(Code::GoOn),
        }
    }

    /// A process is dead, as its own node says.
    fn certified_dead(&self, node: NodeId, incarnation: Incarnation) {
        let Some(peer) = self.peer(node) else { return };
        let name = &peer.config.name;
        tracing::warn!(
            "a process of node {name} is dead: incarnation {}",
            incarnation.0
        );
        peer.is_dead(incarnation);
        self.local_call(|local| local.dead(node, incarnation));
    }

    /// Calls what peers want something of; a panic there is none of the cluster's thread.
    fn local_call(&self, call: impl FnOnce(&dyn crate::cluster::Local)) {
        let Some(local) = self.local.get() else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| call(&**local))).is_err() {
            tracing::error!("what a peer wanted has panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::members::reach;
    use crate::members::tests::cluster;
    use crate::trust::{ANY_NODE, AuthorityHash, by_hash};

    #[test]
    fn who_finds_no_place_is_told_so_and_doubts_no_certificate() {
        let (_dir, cluster) = cluster(8);
        let shared = cluster.0.shared.clone();
        let config = shared.config();
        let identity = config.trust.identity().expect("certificates");
        let authority = identity.authority().expect("an authority");
        let authority = AuthorityHash::of_pem(authority.certificate()).expect("a hash");
        let stranger = std::net::IpAddr::from([127, 0, 0, 1]);
        let said = cluster.wait(Duration::from_secs(60), async move {
            let gate = Gate::new();
            let _others: Vec<Pass> = std::iter::from_fn(|| gate.enter(stranger, false)).collect();
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let at = listener.local_addr().expect("its address");
            let joins = tokio::spawn(reach(at, authority, at));
            let (stream, from) = listener.accept().await.expect("it calls");
            greet(&shared, &gate, stream, from);
            joins.await.expect("no panic").err()
        });
        let said = said.expect("in time").expect("there is no place");
        assert!(said.contains("too many connections"), "{said}");
    }

    #[test]
    fn who_says_that_it_joins_keeps_its_place_among_strangers_until_it_is_answered() {
        let (_dir, cluster) = cluster(7);
        let shared = cluster.0.shared.clone();
        let config = shared.config();
        let identity = config.trust.identity().expect("certificates");
        let authority = identity.authority().expect("an authority");
        let authority = AuthorityHash::of_pem(authority.certificate()).expect("a hash");
        let long = Duration::from_secs(60);
        let stranger = std::net::IpAddr::from([10, 0, 0, 9]);
        let done = cluster.wait(long, async move {
            let gate = Gate::new();
            let pass = gate.enter(stranger, false).expect("a place");
            let others: Vec<Pass> = std::iter::from_fn(|| gate.enter(stranger, false)).collect();
            let is_full = || gate.enter(stranger, false).is_none();
            assert!(is_full());
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let at = listener.local_addr().expect("its address");
            let stream = TcpStream::connect(at).await.expect("a connection");
            let (served, _) = listener.accept().await.expect("the same");
            let task = tokio::spawn(async move { serve(&shared, served, pass).await });
            let name = ANY_NODE.try_into().expect("a name");
            let client = by_hash(authority).expect("a client");
            let line = Line::within_tls(client, stream, name).await;
            let mut line = line.expect("TLS");
            line.say(&JOIN_MAGIC).await.expect("said");
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(500) {
                assert!(is_full(), "its place is free after {:?}", began.elapsed());
                sleep(Duration::from_millis(5)).await;
            }
            drop(line);
            let ended = task.await.expect("no panic");
            assert!(ended.is_err(), "it has asked for nothing");
            assert!(!is_full());
            drop(others);
        });
        done.expect("in time");
    }
}
