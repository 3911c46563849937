use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use hyper::body::Bytes;
use rustls::ClientConfig as TlsConfig;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Identity;
use super::endpoint::EtcdEndpoint;
use super::http::{Connection, Failed, Way};
use super::json::{self, Outcome, Wish};
use crate::lock;

/// How long a member may take for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a member may take for an answer, before a read is asked elsewhere.
const READ_TIMEOUT: Duration = Duration::from_millis(1000);
/// How long a swap's answer is waited for; then its outcome is unknown, and who asks settles it.
const SWAP_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long a member may take to show that its answers arrive here, before it is asked for a swap.
const PROOF_TIMEOUT: Duration = Duration::from_millis(500);
/// How long one member is waited for before the next is asked to show that, too.
const NEXT_PROOF: Duration = Duration::from_millis(100);
/// How often all members are asked what may be asked twice, and how long between.
const ROUNDS: usize = 2;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(100);
/// Requests under way at a time.
const AT_ONCE: usize = 32;
/// Connections that are kept for a member while they are idle.
const IDLE: usize = 8;

const TXN: &str = "/v3/kv/txn";

/// A client of etcd's JSON gateway.
#[derive(Debug)]
pub(super) struct Etcd {
    members: RwLock<Arc<Vec<Arc<Member>>>>,
    /// By what and from where its members are called.
    caller: Caller,
    /// Which one is tried first: what answered last.
    preferred: AtomicUsize,
    limit: Semaphore,
}

/// Who calls etcd.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    pub(super) tls: Option<Arc<TlsConfig>>,
    /// Members look for a caller's address in its certificate.
    pub(super) from: Option<SocketAddr>,
}

/// A transaction, and what it is for.
struct Asked<'a> {
    body: Bytes,
    wish: Wish<'a>,
    identity: Option<&'a Identity>,
}

impl Asked<'_> {
    fn judged(&self, answer: Result<Bytes, Failed>) -> Result<Outcome, Failed> {
        match json::outcome(&answer?, self.wish, self.identity).map_err(Failed::sent)? {
            // Nothing was done there.
            Outcome::Foreign(why) => Err(Failed::unsent(why)),
            outcome => Ok(outcome),
        }
    }
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) endpoint: EtcdEndpoint,
    caller: Caller,
    idle: Mutex<Vec<Connection>>,
}

impl Etcd {
    pub(super) fn new(endpoints: &[EtcdEndpoint], caller: Caller) -> Self {
        let etcd = Self {
            members: RwLock::default(),
            caller,
            preferred: AtomicUsize::new(0),
            limit: Semaphore::new(AT_ONCE),
        };
        etcd.set_endpoints(endpoints);
        etcd
    }

    /// Members that stay keep their connections.
    pub(super) fn set_endpoints(&self, endpoints: &[EtcdEndpoint]) {
        let before = self.members();
        let members = endpoints.iter().map(|endpoint| {
            let known = before.iter().find(|member| member.endpoint == *endpoint);
            known.cloned().unwrap_or_else(|| {
                Arc::new(Member {
                    endpoint: endpoint.clone(),
                    caller: self.caller.clone(),
                    idle: Mutex::default(),
                })
            })
        });
        let members = Arc::new(members.collect());
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = members;
    }

    pub(super) fn members(&self) -> Arc<Vec<Arc<Member>>> {
        // Whole after every statement.
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.clone()
    }

    pub(super) fn endpoints(&self) -> Vec<String> {
        let members = self.members();
        let names = members.iter();
        names.map(|member| member.endpoint.to_string()).collect()
    }

    /// Asks members, for as long as none has an answer.
    pub(super) async fn ask(
        &self,
        key: &str,
        wish: Wish<'_>,
        identity: Option<&Identity>,
    ) -> Result<Outcome, String> {
        let body = Bytes::from(json::transaction(key, wish, identity).to_string());
        let asked = Asked {
            body,
            wish,
            identity,
        };
        let _permit = self.limit.acquire().await;
        match wish {
            Wish::Swap { .. } | Wish::SwapAll(_) => {
                let proof = json::transaction(key, Wish::Read, None).to_string();
                self.ask_once(&asked, Bytes::from(proof)).await
            }
            // A deletion may be done twice: no two volumes have one UUID.
            Wish::Read | Wish::List | Wish::Delete { .. } => self.ask_in_turn(&asked).await,
        }
    }

    /// What must not be done twice goes to another member only if none before can have seen it; and a member must have
    /// answered a question first. Else a node that is heard and hears nothing would take the others out of a volume's
    /// copies, never learn of it, and leave the volume to no node.
    async fn ask_once(&self, asked: &Asked<'_>, proof: Bytes) -> Result<Outcome, String> {
        let members = self.members();
        let mut left = self.in_turn(members.len());
        let mut failures = Vec::new();
        while let Some(index) = first_proven(&members, &left, &proof, &mut failures).await {
            let member = &members[index];
            let failed = match asked.judged(member.ask(&asked.body, SWAP_TIMEOUT).await) {
                Ok(outcome) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(outcome);
                }
                Err(failed) => failed,
            };
            failures.push(format!("{}: {}", member.endpoint, failed.why));
            if failed.is_sent {
                let next = (index + 1) % members.len();
                self.preferred.store(next, Ordering::Relaxed);
                break;
            }
            left.retain(|&other| other != index);
        }
        Err(failures.join("; "))
    }

    /// Members by number, the one first that has answered last.
    fn in_turn(&self, count: usize) -> Vec<usize> {
        let first = self.preferred.load(Ordering::Relaxed);
        (0..count).map(|turn| (first + turn) % count).collect()
    }

    /// Asks one member after the other, those that have failed once more.
    async fn ask_in_turn(&self, asked: &Asked<'_>) -> Result<Outcome, String> {
        let members = self.members();
        let mut failures = Vec::new();
        for round in 0..ROUNDS {
            if round > 0 {
                sleep(BETWEEN_ROUNDS).await;
            }
            failures.clear();
            for index in self.in_turn(members.len()) {
                let member = &members[index];
                match asked.judged(member.ask(&asked.body, READ_TIMEOUT).await) {
                    Ok(outcome) => {
                        self.preferred.store(index, Ordering::Relaxed);
                        return Ok(outcome);
                    }
                    Err(failed) => failures.push(format!("{}: {}", member.endpoint, failed.why)),
                }
            }
        }
        Err(failures.join("; "))
    }
}

/// The first of some members that shows that its answers arrive. Each next one is asked a little later: a member that is
/// lost, or one after the other while none leads, is not waited for in turn, which an owner's promises would not outlast.
async fn first_proven(
    members: &[Arc<Member>],
    left: &[usize],
    proof: &Bytes,
    failures: &mut Vec<String>,
) -> Option<usize> {
    let mut proving = JoinSet::new();
    for (turn, &index) in (0..).zip(left) {
        let (member, proof) = (members[index].clone(), proof.clone());
        proving.spawn(async move {
            sleep(NEXT_PROOF * turn).await;
            let proven = member.ask(&proof, PROOF_TIMEOUT).await;
            proven
                .map(|_| index)
                .map_err(|failed| format!("{}: {}", member.endpoint, failed.why))
        });
    }
    while let Some(proven) = proving.join_next().await {
        match proven {
            Ok(Ok(index)) => return Some(index),
            Ok(Err(why)) => failures.push(why),
            Err(died) => failures.push(died.to_string()),
        }
    }
    None
}

impl Member {
    async fn ask(&self, body: &Bytes, patience: Duration) -> Result<Bytes, Failed> {
        self.post(TXN, body, patience).await
    }

    pub(super) async fn post(
        &self,
        path: &str,
        body: &Bytes,
        patience: Duration,
    ) -> Result<Bytes, Failed> {
        loop {
            let idle = lock(&self.idle).pop();
            let was_idle = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connected().await?,
            };
            let answer = timeout(patience, connection.post(path, body.clone())).await;
            let answer = match answer {
                Ok(Ok(answer)) => answer,
                // It had been closed meanwhile.
                Ok(Err(failed)) if was_idle && !failed.is_sent => continue,
                Ok(Err(failed)) => return Err(failed),
                Err(_) => {
                    // What is idle hangs as well.
                    lock(&self.idle).clear();
                    return Err(Failed::sent(format!("no answer within {patience:?}")));
                }
            };
            self.keep(connection);
            return match answer.status {
                200 => Ok(answer.body),
                status => Err(Failed::sent(json::complaint(status, &answer.body))),
            };
        }
    }

    async fn connected(&self) -> Result<Connection, Failed> {
        let way = Way {
            endpoint: &self.endpoint,
            tls: self.caller.tls.clone().filter(|_| self.endpoint.is_tls()),
            from: self.caller.from,
        };
        let connected = timeout(CONNECT_TIMEOUT, Connection::open(way)).await;
        let late = |_| Failed::unsent(format!("no connection within {CONNECT_TIMEOUT:?}"));
        connected.map_err(late)?
    }

    fn keep(&self, connection: Connection) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE {
            idle.push(connection);
        }
    }
}
