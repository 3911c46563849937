//! A node that joins, from its own side.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ashlar_replica::{Incarnation, NodeId};
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;
use tokio::time::timeout;
use uuid::Uuid;

use super::document::{EtcdPlace, number_of};
use super::founding::{check_addresses, etcd_place, fresh, own};
use super::home::{File, FileEtcd, FileNode};
use super::secret::{Secret, Token};
use crate::config::check_name;
use crate::peer::{JOIN_MAGIC, LONGEST_ANSWER, Refusal, connected, hear, prepare, tell};
use crate::problem::Problem;
use crate::remembered::Remembered;
use crate::trust::{
    ANY_NODE, AuthorityHash, Line, by_hash, identity_file, key_pair, write_private,
};
use crate::versions::Versions;

/// How long a node of the cluster may take for a connection, and for an answer: it may have to wait for etcd.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(60);

/// What joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A node that has pools and serves volumes.
    Node,
    /// A machine that runs a member of etcd and nothing else.
    Witness,
}

/// A machine that is to join.
#[derive(Clone, Debug)]
pub struct Newcomer {
    pub name: String,
    /// As what.
    pub role: Role,
    /// Where it listens for its peers.
    pub replication: SocketAddr,
    /// Where hosts connect.
    pub portal: SocketAddr,
    /// Where its member of etcd listens for clients, if it is to have one; for other members a port higher.
    pub etcd: SocketAddr,
    /// Whether it is in the cluster already, and comes back: without what its directory held, or at another address.
    pub rejoins: bool,
    /// What it speaks with other nodes: [`Versions::OURS`].
    pub versions: Versions,
}

/// As what it has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub cluster: String,
    /// Its number; a witness has none.
    pub id: Option<NodeId>,
    /// Whether it runs a member of etcd.
    pub runs_etcd: bool,
}

/// What is asked of a node of the cluster.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(super) cluster: Uuid,
    pub(super) secret: Secret,
    pub(super) role: Role,
    pub(super) name: String,
    pub(super) replication: SocketAddr,
    pub(super) portal: SocketAddr,
    pub(super) etcd: EtcdPlace,
    /// It is in the list already. Older versions do not say it, and do not know it.
    #[serde(default)]
    pub(super) rejoins: bool,
    /// An uncompressed point of P-256.
    pub(super) public_key: Vec<u8>,
    /// The newest version between nodes that it speaks, and its program's version.
    pub(super) protocol: u32,
    pub(super) version: String,
    /// The oldest that it speaks; older programs do not say it, and speak one.
    #[serde(default)]
    pub(super) oldest_protocol: Option<u32>,
}

impl Request {
    /// What it speaks between nodes, if that makes sense.
    pub(super) fn versions(&self) -> Option<Versions> {
        let newest = number_of(self.protocol);
        Versions::new(self.oldest_protocol.map_or(newest, number_of), newest)
    }
}

/// What it is given.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(super) cluster: String,
    pub(super) id: NodeId,
    pub(super) certificate: String,
    pub(super) authority: String,
    /// A witness lets none join.
    pub(super) authority_key: Option<String>,
    pub(super) quorum: Vec<String>,
    /// All members of etcd, if it is one.
    pub(super) etcd: Option<String>,
    pub(super) nodes: Vec<FileNode>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Welcome(Box<Welcome>),
    Problem(Problem),
}

/// Joins a cluster by a token; what the node then needs is in its directory. Nothing is started.
///
/// # Errors
/// Usage: the token is none, a name or address makes no sense. Conflict: the token was used or is too late, what is
/// asked for contradicts what is there, the directory is another node's. Environment: no node of the cluster answers.
/// Not found: what is to come back is not in the cluster.
pub fn join(dir: &Path, token: &str, newcomer: &Newcomer) -> Result<Joined, Problem> {
    let token: Token = token.parse()?;
    check_name("node", &newcomer.name).map_err(Problem::usage)?;
    check_addresses(&[newcomer.replication, newcomer.portal, newcomer.etcd])?;
    let folder = match newcomer.rejoins {
        true => own(dir, token.cluster, &newcomer.name)?,
        false => fresh(dir)?,
    };
    // What is there stays until the cluster has let it in.
    let staged = folder.with_extension("joining");
    clear(&staged)?;
    let key = key_pair()?;
    let request = Request {
        cluster: token.cluster,
        secret: token.secret.clone(),
        role: newcomer.role,
        name: newcomer.name.clone(),
        replication: newcomer.replication,
        portal: newcomer.portal,
        etcd: etcd_place(newcomer.etcd)?,
        rejoins: newcomer.rejoins,
        public_key: key.public_key_raw().to_vec(),
        protocol: newcomer.versions.newest().into(),
        version: env!("CARGO_PKG_VERSION").into(),
        oldest_protocol: Some(newcomer.versions.oldest().into()),
    };
    // First: a node that has joined and cannot say so would have to be forgotten.
    write_private(&staged.join(identity_file::KEY), &key.serialize_pem())?;
    let welcome = ask(&token, &request).inspect_err(|_| {
        // The key is of no use then; folders that were made for it go, if nothing else is in them.
        let _ = std::fs::remove_dir_all(&staged);
        let _ = std::fs::remove_dir(dir);
    })?;
    keep(&staged, &welcome, &request)?;
    if newcomer.rejoins {
        // What etcd knew as its former member is worth nothing to the new one.
        clear(&folder.with_file_name("etcd"))?;
        clear(&folder)?;
    }
    take_up(&staged, &folder)?;
    Ok(Joined {
        cluster: welcome.cluster,
        id: (newcomer.role == Role::Node).then_some(welcome.id),
        runs_etcd: welcome.etcd.is_some(),
    })
}

/// Removes a folder.
fn clear(folder: &Path) -> Result<(), Problem> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Problem::environment(format!(
                "{} cannot be removed: {error}; remove it, and join again with a new token",
                folder.display()
            )))
        }
        _ => Ok(()),
    }
}

/// A folder becomes the one of the cluster, durably.
fn take_up(staged: &Path, folder: &Path) -> Result<(), Problem> {
    let take = || {
        std::fs::rename(staged, folder)?;
        let dir = folder.parent().unwrap_or(Path::new("."));
        std::fs::File::open(dir)?.sync_all()
    };
    take().map_err(|error| {
        Problem::environment(format!("{} cannot be made: {error}", folder.display()))
    })
}

fn keep(folder: &Path, welcome: &Welcome, request: &Request) -> Result<(), Problem> {
    let write = |name: &str, text: &str| write_private(&folder.join(name), text);
    write(identity_file::AUTHORITY, &welcome.authority)?;
    write(identity_file::CERTIFICATE, &welcome.certificate)?;
    if let Some(key) = &welcome.authority_key {
        write(identity_file::AUTHORITY_KEY, key)?;
    }
    if let Some(dir) = folder.parent() {
        // A quorum that does not know this cluster is not believed even the first time.
        let known = Remembered::read(dir)?;
        if known.cluster != Some(request.cluster) {
            let remembered = Remembered {
                cluster: Some(request.cluster),
                incarnation: Incarnation(0),
                run: None,
            };
            remembered.write(dir)?;
        }
    }
    let etcd = welcome.etcd.as_ref().map(|first| FileEtcd {
        clients: request.etcd.clients,
        peers: request.etcd.peers,
        first: first.clone(),
        is_first: false,
    });
    let file = File {
        name: welcome.cluster.clone(),
        id: request.cluster,
        this: request.name.clone(),
        is_witness: request.role == Role::Witness,
        quorum: welcome.quorum.clone(),
        etcd,
        nodes: welcome.nodes.clone(),
    };
    // Last: without it the directory has no cluster.
    file.write(folder)
}

/// Asks one node after the other, until one answers.
fn ask(token: &Token, request: &Request) -> Result<Welcome, Problem> {
    let cannot = |error: std::io::Error| Problem::environment(format!("cannot join: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(cannot)?;
    let mut failures = Vec::new();
    for node in &token.nodes {
        let asked = runtime.block_on(async {
            let reached = timeout(CONNECT, reach(*node, token.authority, request.replication));
            let late = |_| format!("no answer within {CONNECT:?}");
            let mut line = reached.await.map_err(late)??;
            let said = |error: std::io::Error| Lost(error.to_string());
            Ok::<_, String>(
                async move {
                    tell(&mut line, request).await.map_err(said)?;
                    let answer = timeout(ANSWER, hear::<Answer>(&mut line, LONGEST_ANSWER)).await;
                    let late = |_| Lost(format!("no answer within {ANSWER:?}"));
                    answer.map_err(late)?.map_err(said)
                }
                .await,
            )
        });
        match asked {
            Ok(Ok(Answer::Welcome(welcome))) => return Ok(*welcome),
            Ok(Ok(Answer::Problem(problem))) => return Err(problem),
            Ok(Err(Lost(why))) => {
                return Err(Problem::environment(format!(
                    "the node at {node} was asked, and its answer did not come ({why}): if `ashlar cluster status` \
                     there has {} now, have it forgotten (`ashlar node forget {}`), and join with a new token",
                    request.name, request.name
                )));
            }
            Err(why) => failures.push(format!("{node}: {why}")),
        }
    }
    Err(Problem::environment(format!(
        "no node of the cluster answers: {}",
        failures.join("; ")
    )))
}

/// The answer was lost.
struct Lost(String);

pub(crate) async fn reach(
    node: SocketAddr,
    authority: AuthorityHash,
    from: SocketAddr,
) -> Result<Line, String> {
    let config = by_hash(authority).map_err(|problem| problem.message)?;
    let stream = connected(from, node).await;
    let stream = stream.map_err(|error| format!("cannot be reached: {error}"))?;
    prepare(&stream).map_err(|error| error.to_string())?;
    let name = ServerName::try_from(ANY_NODE).map_err(|error| error.to_string())?;
    let line = Line::within_tls(config, stream, name).await;
    let mut line = line.map_err(|error| match Refusal::of_tls(&error) {
        Some(Refusal::Busy) => {
            "it has too many connections that have not shown who they are: try it again, and if it stays, look for what \
             connects there"
                .to_owned()
        }
        Some(_) => {
            format!("what answers there has not the certificate that the token is for ({error})")
        }
        None => format!("the connection has ended ({error})"),
    })?;
    line.say(&JOIN_MAGIC)
        .await
        .map_err(|error| error.to_string())?;
    Ok(line)
}
