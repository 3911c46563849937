use std::future::Future;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ashlar_replica::quorum::{Question, Reply};
use ashlar_replica::{Incarnation, NodeId, Revision, VolumeId};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

use crate::certify::tell;
use crate::config::{ClusterConfig, NodeConfig};
use crate::deliver::Deliver;
use crate::join::join;
use crate::lock;
use crate::peer::{MAX_ORDER, Purpose, give, listen};
use crate::problem::{OrderError, Problem};
use crate::remembered::Remembered;
use crate::shared::{Beginning, ORDERS_AT_ONCE, Shared};
use crate::status::ClusterStatus;
use crate::store::Store;
use crate::trust::PeerSocket;

/// How long an answer of the quorum or of a peer is waited for; callers are promised 3 s.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_millis(2800);
/// How long a process that was killed may keep its address.
const AFTERLIFE: Duration = Duration::from_secs(5);
/// Between two looks whether an address is free.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What an order may be late in saying that it is late.
const GRACE: Duration = Duration::from_millis(500);
/// How long what peers have ordered may take to its end when the cluster stops.
const LAST_ORDERS: Duration = Duration::from_secs(1);

/// What peers may want of this node. Called on threads of the cluster's runtime; must not block long except `order`.
pub trait Local: Send + Sync + 'static {
    /// A peer's authenticated connection for a volume's replication; its protocol starts with the next byte.
    fn accepted(&self, from: NodeId, volume: VolumeId, stream: PeerSocket);

    /// A peer's order, run on a blocking thread. It is carried out to its end even if the peer goes away.
    ///
    /// # Errors
    /// Whatever keeps it from being carried out; the peer is told kind and message.
    fn order(&self, from: NodeId, request: Value) -> Result<Value, OrderError>;

    /// A process of a peer is certified dead. May be said more than once.
    fn dead(&self, node: NodeId, incarnation: Incarnation);
}

/// This process as a node of its cluster. The last clone that is dropped stops it.
#[derive(Clone)]
pub struct Cluster(pub(crate) Arc<Running>);

pub(crate) struct Running {
    pub(crate) shared: Arc<Shared>,
    runtime: Handle,
    stop: watch::Sender<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Whether or not the thread still listens.
        let _ = self.stop.send(true);
    }
}

impl Cluster {
    /// [`start_as`](Self::start_as), of a node that remembers nothing.
    ///
    /// # Errors
    /// Those of [`start_as`](Self::start_as).
    pub fn start(config: ClusterConfig, me: &str) -> Result<Self, Problem> {
        Self::start_as(config, me, &Remembered::default())
    }

    /// Starts its thread: listens on the replication address, and takes a new incarnation in the quorum. Who starts it
    /// writes cluster and incarnation down before anything is served ([`remembered`](Self::remembered)).
    ///
    /// # Errors
    /// Usage: the node is not in the configuration, or that makes no sense. Environment: the address cannot be listened
    /// on, the quorum does not answer within 10 s. Conflict: the quorum is not the one that the node remembers, or the
    /// name or number is another's.
    pub fn start_as(
        config: ClusterConfig,
        me: &str,
        remembered: &Remembered,
    ) -> Result<Self, Problem> {
        config.check().map_err(Problem::usage)?;
        let me = config.known(me)?.clone();
        // Before an incarnation is taken: a second daemon of this name on this machine ends here.
        let listener = bind(&me)?;
        let start = Start {
            config,
            me,
            remembered: *remembered,
            listener,
        };
        let (stop, stopped) = watch::channel(false);
        let (said, hear) = channel();
        let run = move || match start.begin() {
            Ok(begun) => {
                let handle = begun.runtime.handle().clone();
                let shared = begun.shared.clone();
                if said.send(Ok((shared, handle))).is_ok() {
                    begun.run(stopped);
                }
            }
            Err(problem) => drop(said.send(Err(problem))),
        };
        let thread = thread::Builder::new().name("cluster".into()).spawn(run);
        let thread = thread
            .map_err(|error| Problem::environment(format!("cannot start a thread: {error}")))?;
        let died = |_| Problem::internal("the cluster's thread has died");
        let (shared, runtime) = hear.recv().map_err(died)??;
        Ok(Self(Arc::new(Running {
            shared,
            runtime,
            stop,
            thread: Mutex::new(Some(thread)),
        })))
    }

    /// From now on peers are let in. The first one stays.
    pub fn serve(&self, local: Arc<dyn Local>) {
        let shared = &self.0.shared;
        if shared.local.set(local.clone()).is_err() {
            tracing::error!("the cluster serves already");
            return;
        }
        for peer in shared.peers() {
            if let Some(incarnation) = peer.dead() {
                local.dead(peer.config.id, incarnation);
            }
        }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.0.shared.clone()
    }

    /// What all nodes are told, as far as this one knows: nodes may join and leave.
    pub fn config(&self) -> Arc<ClusterConfig> {
        self.0.shared.config()
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.0.shared.me.id
    }

    /// This process.
    pub fn incarnation(&self) -> Incarnation {
        self.0.shared.incarnation
    }

    /// Which cluster of its name it is: made at its first start.
    pub fn cluster_id(&self) -> Uuid {
        self.0.shared.id
    }

    /// What this process has to write down; `run` is what its parent called it, if it has one.
    pub fn remembered(&self, run: Option<Uuid>) -> Remembered {
        Remembered {
            cluster: Some(self.cluster_id()),
            incarnation: self.incarnation(),
            run,
        }
    }

    /// Asks the quorum about a volume's key. `deliver` is called exactly once, within 3 s, on the cluster's thread; or
    /// at once, on the caller's, when the cluster has stopped. So it must not ask again itself.
    pub fn ask(
        &self,
        volume: Uuid,
        question: Question,
        deliver: impl FnOnce(Reply) + Send + 'static,
    ) {
        let shared = self.0.shared.clone();
        self.answer(async move { shared.ask(volume, question).await }, deliver);
    }

    /// The same, as a volume's own protocol asks: a swap that would take the volume over waits a while for those of its
    /// group ([`Cluster::keep_together`]), and all are made, or none.
    pub fn ask_with_group(
        &self,
        volume: Uuid,
        question: Question,
        deliver: impl FnOnce(Reply) + Send + 'static,
    ) {
        let shared = self.0.shared.clone();
        let ask = async move { shared.ask_with_group(volume, question).await };
        self.answer(ask, deliver);
    }

    fn answer(
        &self,
        ask: impl Future<Output = Reply> + Send + 'static,
        deliver: impl FnOnce(Reply) + Send + 'static,
    ) {
        let deliver = Deliver::new(deliver, Reply::Unknown);
        self.0.runtime.spawn(async move {
            let reply = timeout(ANSWER_TIMEOUT, ask).await;
            deliver.with(reply.unwrap_or(Reply::Unknown));
        });
    }

    /// For the next seconds these volumes are a group: when this process takes over those that are `away`, with other
    /// nodes now, it takes them in one transaction.
    pub fn keep_together(&self, volumes: &[Uuid], away: &[Uuid]) {
        self.0.shared.together.keep(volumes, away);
    }

    /// Deletes a volume's key. One that is not there is no error. Blocks.
    ///
    /// # Errors
    /// Environment: the quorum does not answer.
    pub fn delete_key(&self, volume: Uuid) -> Result<(), Problem> {
        let shared = self.0.shared.clone();
        let delete = async move {
            let key = shared.volume_key(volume);
            shared.store.delete(&key).await?;
            shared.store.delete(&shared.doubt_key(volume)).await
        };
        let deleted = self
            .wait(ANSWER_TIMEOUT, delete)
            .and_then(|deleted| deleted);
        deleted.map_err(|why| not_deleted(volume, &why))
    }

    /// Deletes a volume's key if it is still of this revision: whether it is gone. Blocks.
    ///
    /// # Errors
    /// Environment: the quorum does not answer.
    pub fn delete_key_at(&self, volume: Uuid, revision: Revision) -> Result<bool, Problem> {
        let shared = self.0.shared.clone();
        let delete = async move {
            let key = shared.volume_key(volume);
            shared.store.delete_at(&key, revision).await
        };
        let deleted = self
            .wait(ANSWER_TIMEOUT, delete)
            .and_then(|deleted| deleted);
        deleted.map_err(|why| not_deleted(volume, &why))
    }

    /// Dials a peer for a volume's replication, authenticated. `deliver` is called exactly once, as by
    /// [`ask`](Self::ask).
    pub fn dial(
        &self,
        to: NodeId,
        volume: VolumeId,
        deliver: impl FnOnce(Result<PeerSocket, String>) + Send + 'static,
    ) {
        let deliver = Deliver::new(deliver, Err("this node is stopping".into()));
        let shared = self.0.shared.clone();
        self.0.runtime.spawn(async move {
            let dialled = timeout(ANSWER_TIMEOUT, async {
                let peer = shared.peer(to).ok_or_else(|| no_peer(to))?;
                let called = shared.call(&peer, Purpose::Data, volume).await?;
                let socket = called.line.into_socket(called.version, called.incarnation);
                socket.map_err(|error| error.to_string())
            });
            let late = |_| Err(format!("{to} has not answered within {ANSWER_TIMEOUT:?}"));
            deliver.with(dialled.await.unwrap_or_else(late));
        });
    }

    /// A blocking order to a peer, with a deadline. Not from within one of the cluster's calls of [`Local`], apart from
    /// [`Local::order`].
    ///
    /// # Errors
    /// [`OrderError::Unreachable`] if there is no answer within `timeout`: it may have been carried out. Else what the
    /// peer says.
    pub fn order(
        &self,
        to: NodeId,
        request: &Value,
        timeout: Duration,
    ) -> Result<Value, OrderError> {
        let order =
            serde_json::to_vec(request).map_err(|error| Problem::internal(error.to_string()))?;
        if order.len() > MAX_ORDER {
            let size = order.len();
            return Err(
                Problem::usage(format!("an order of {size} bytes: {MAX_ORDER} at most")).into(),
            );
        }
        let shared = self.0.shared.clone();
        let given = self.wait(timeout, async move {
            let peer = shared.peer(to).ok_or_else(|| no_peer(to))?;
            let called = shared.call(&peer, Purpose::Order, VolumeId(0)).await?;
            let name = &peer.config.name;
            let given = give(called, &order).await;
            given.map_err(|why| {
                format!("node {name} has taken an order, and its answer did not come: {why}")
            })
        });
        match given.and_then(|given| given) {
            Ok(answer) => answer,
            Err(why) => Err(OrderError::Unreachable(why)),
        }
    }

    /// Tells every peer, in the background and within 1 s, that a process of this node is dead. Peers believe it of no
    /// other node, so of another nothing is said.
    pub fn certify_dead(&self, node: NodeId, incarnation: Incarnation) {
        if node != self.me() {
            tracing::error!("{node} can be certified dead by itself only");
            return;
        }
        for peer in self.0.shared.peers() {
            let (shared, peer) = (self.0.shared.clone(), peer.config.clone());
            self.0.runtime.spawn(async move {
                tell(&shared.config(), &shared.me, &peer, incarnation).await;
            });
        }
    }

    /// How the cluster looks from here.
    pub fn status(&self) -> ClusterStatus {
        let shared = &self.0.shared;
        ClusterStatus {
            name: shared.name.clone(),
            id: shared.id,
            node: shared.me.id,
            incarnation: shared.incarnation,
            speaks: shared.config().versions,
            agreed: shared.view().agreed(),
            quorum: shared.quorum_status(),
            witnesses: shared.view().witnesses,
            peers: shared.peers().iter().map(|peer| peer.status()).collect(),
        }
    }

    /// Ends its thread: what is under way is answered with *unknown*. Waits for the end, unless it is called on the
    /// cluster's thread itself.
    pub fn stop(&self) {
        // Whether or not the thread still listens.
        let _ = self.0.stop.send(true);
        let thread = lock(&self.0.thread).take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the cluster's thread has died");
        }
    }

    /// Has something done on the cluster's thread, and waits for it.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let (send, heard) = channel();
        self.0.runtime.spawn(async move {
            if let Ok(done) = timeout(patience, work).await {
                // A caller that has given up does not take it.
                let _ = send.send(Some(done));
            } else {
                let _ = send.send(None);
            }
        });
        let late = || format!("no answer within {patience:?}");
        match heard.recv_timeout(patience + GRACE) {
            Ok(done) => done.ok_or_else(late),
            Err(RecvTimeoutError::Timeout) => Err(late()),
            Err(RecvTimeoutError::Disconnected) => Err("this node is stopping".into()),
        }
    }
}

fn not_deleted(volume: Uuid, why: &str) -> Problem {
    Problem::environment(format!(
        "the key of volume {volume} is not deleted in the quorum: {why}"
    ))
}

fn no_peer(to: NodeId) -> String {
    format!("{to} is no peer: it is not in the cluster's file, or is this node")
}

/// A volume's number in messages between nodes: the low 64 bits of its UUID.
pub fn volume_id(uuid: Uuid) -> VolumeId {
    VolumeId(uuid.as_u128() as u64)
}

fn bind(me: &NodeConfig) -> Result<StdListener, Problem> {
    let at = me.replication;
    let cannot = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "; is another daemon running under this node's name, or something else on this port?"
            }
            std::io::ErrorKind::AddrNotAvailable => {
                "; the address is none of this machine: is this the right node?"
            }
            _ => "",
        };
        let name = &me.name;
        Problem::environment(format!(
            "node {name} cannot listen for its peers on {at}: {error}{hint}"
        ))
    };
    let listener = bind_in_time(at).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    Ok(listener)
}

/// A daemon that is started again at once after a kill waits until its address is free.
fn bind_in_time(at: SocketAddr) -> std::io::Result<StdListener> {
    let begun = Instant::now();
    loop {
        match StdListener::bind(at) {
            Err(error)
                if error.kind() == std::io::ErrorKind::AddrInUse && begun.elapsed() < AFTERLIFE =>
            {
                thread::sleep(LOOK_EVERY);
            }
            ended => return ended,
        }
    }
}

/// What the cluster's thread begins with.
struct Start {
    config: ClusterConfig,
    me: NodeConfig,
    remembered: Remembered,
    listener: StdListener,
}

struct Begun {
    runtime: Runtime,
    shared: Arc<Shared>,
    listener: StdListener,
}

impl Start {
    fn begin(self) -> Result<Begun, Problem> {
        let cannot = |error: std::io::Error| Problem::environment(format!("cannot start: {error}"));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("cluster-order")
            // Names of etcd's members are looked up there, too.
            .max_blocking_threads(ORDERS_AT_ONCE + 8)
            .build()
            .map_err(cannot)?;
        let Self {
            config,
            me,
            remembered,
            listener,
        } = self;
        let store = Store::new(&config, &me);
        let joined = runtime.block_on(join(&store, &config, &me, &remembered))?;
        tracing::info!(
            "node {} of cluster {} ({}), incarnation {}",
            me.name,
            config.name,
            joined.cluster,
            joined.incarnation.0
        );
        let shared = Shared::new(Beginning {
            config,
            me,
            joined,
            store,
        });
        Ok(Begun {
            runtime,
            shared,
            listener,
        })
    }
}

impl Begun {
    fn run(self, mut stopped: watch::Receiver<bool>) {
        let Self {
            runtime,
            shared,
            listener,
        } = self;
        runtime.block_on(async {
            match TcpListener::from_std(listener) {
                Ok(listener) => drop(tokio::spawn(listen(shared.clone(), listener))),
                Err(error) => tracing::error!("peers cannot be let in: {error}"),
            }
            tokio::spawn(shared.clone().watch_quorum());
            for peer in shared.peers() {
                tokio::spawn(shared.clone().watch_peer(peer.config.id));
            }
            // An error says that all who could stop it are gone, and stops it as well.
            let _ = stopped.wait_for(|stop| *stop).await;
        });
        // What is under way is dropped, and with it answered.
        runtime.shutdown_timeout(LAST_ORDERS);
    }
}
