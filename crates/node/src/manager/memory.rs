//! Which drives of each pool hold everything: stored for the engines, which acknowledge nothing while what is stored
//! would let half of a pool's drives go on that lack it.
//!
//! One thread stores it all, in order: what is asked for later counts.

use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ashlar_store::{Membership, NodeMemory, PoolError};
use tracing::error;
use uuid::Uuid;

use crate::StateFile;
use crate::model::ControlError;
use crate::pool::{Memory, PoolLink, Remember};

/// How long an import waits until something is stored.
const IMPORT_WAIT: Duration = Duration::from_secs(10);
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// How often it is told that nothing can be stored.
const TELL_AGAIN: Duration = Duration::from_secs(10);

enum Task {
    Store(Remember),
    /// The same for an import, which waits.
    StoreFirst {
        membership: Membership,
        reply: Sender<()>,
    },
    Forget {
        pool: Uuid,
        reply: Sender<Result<(), ControlError>>,
    },
}

/// What is to be stored and may not be yet, in order.
#[derive(Debug, Default)]
struct Queue(Mutex<Vec<Membership>>);

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Vec<Membership>> {
        // Each change is a single one; a panic leaves none half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, membership: &Membership) {
        self.lock().push(membership.clone());
    }

    fn of(&self, pool: Uuid) -> Vec<Membership> {
        let all = self.lock();
        let its = all.iter().filter(|one| one.pool == pool);
        its.cloned().collect()
    }

    /// The first like this is stored.
    fn done(&self, membership: &Membership) {
        let mut all = self.lock();
        if let Some(place) = all.iter().position(|one| one == membership) {
            all.remove(place);
        }
    }
}

/// The thread, as the pool manager knows it.
pub(super) struct MemoryKeeper {
    tasks: Sender<Task>,
    queue: Arc<Queue>,
}

impl MemoryKeeper {
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(state: Arc<StateFile>) -> Result<Self, ControlError> {
        let (sender, tasks) = channel();
        let queue = Arc::new(Queue::default());
        let of_thread = queue.clone();
        let thread = thread::Builder::new().name("memory".into());
        let started = thread.spawn(move || work(&state, &tasks, &of_thread));
        started.map_err(|error| {
            ControlError::environment(format!("a thread cannot be started: {error}"))
        })?;
        Ok(Self {
            tasks: sender,
            queue,
        })
    }

    /// Makes what a pool's driver hands memberships to, on the driver's thread.
    pub(super) fn maker(&self) -> impl FnOnce(PoolLink) -> Memory + Send + use<> {
        let (tasks, queue) = (self.tasks.clone(), self.queue.clone());
        |link| {
            Memory::new(link, move |what| {
                queue.add(&what.membership);
                tasks.send(Task::Store(what)).is_ok()
            })
        }
    }

    /// What an import reads and stores.
    pub(super) fn of_an_import(&self, state: &Arc<StateFile>) -> Rc<dyn NodeMemory> {
        Rc::new(ImportMemory {
            state: state.clone(),
            tasks: self.tasks.clone(),
            queue: self.queue.clone(),
        })
    }

    /// Forgets a pool that is on no core any more: its drives may go anywhere.
    ///
    /// # Errors
    /// Environment: the state cannot be written, or not soon; then it is as soon as it can.
    pub(super) fn forget(&self, pool: Uuid) -> Result<(), ControlError> {
        let (reply, answer) = channel();
        let gone = || ControlError::internal("the thread that stores memberships has died");
        self.tasks
            .send(Task::Forget { pool, reply })
            .map_err(|_| gone())?;
        match answer.recv_timeout(IMPORT_WAIT) {
            Ok(forgotten) => forgotten,
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) => Err(ControlError::environment(
                "the pool is out of service, but state.toml cannot be written, so it is not forgotten yet: it is as soon \
                 as that can be, unless the daemon ends before; the log says why",
            )),
        }
    }
}

#[derive(Debug)]
struct ImportMemory {
    state: Arc<StateFile>,
    tasks: Sender<Task>,
    queue: Arc<Queue>,
}

impl NodeMemory for ImportMemory {
    fn stored(&self, pool: Uuid) -> Vec<Membership> {
        // What is on its way is looked at first: what is stored meanwhile is seen twice, and not never.
        let on_its_way = self.queue.of(pool);
        let stored = self.state.read().membership(pool);
        stored.into_iter().chain(on_its_way).collect()
    }

    fn has_removed(&self, pool: Uuid, drive: Uuid) -> bool {
        let state = self.state.read();
        let known = state.drive(pool, drive);
        known.is_some_and(|known| known.removed)
    }

    fn store(&self, membership: &Membership) -> Result<(), PoolError> {
        let (reply, answer) = channel();
        self.queue.add(membership);
        let membership = membership.clone();
        let sent = self.tasks.send(Task::StoreFirst { membership, reply });
        let stored = sent.is_ok() && answer.recv_timeout(IMPORT_WAIT).is_ok();
        stored.then_some(()).ok_or_else(|| {
            let seconds = IMPORT_WAIT.as_secs();
            PoolError::Refused(format!(
                "half of its drives would be enough, but that these go on cannot be stored in state.toml within {seconds} \
                 s: see the log, and import the pool again"
            ))
        })
    }
}

fn work(state: &StateFile, tasks: &Receiver<Task>, queue: &Queue) {
    while let Ok(task) = tasks.recv() {
        match task {
            // An export that waits may have been given up.
            Task::Forget { pool, reply } => {
                drop(reply.send(state.update(|state| state.forget_pool(pool))));
            }
            Task::StoreFirst { membership, reply } => {
                store(state, &membership);
                queue.done(&membership);
                // An import that has waited too long is refused.
                let _ = reply.send(());
            }
            Task::Store(what) => {
                store(state, &what.membership);
                queue.done(&what.membership);
                what.link.stored(what.membership);
            }
        }
    }
}

/// Stores it, however long that takes: to give up is to answer for what may be lost.
fn store(state: &StateFile, membership: &Membership) {
    let mut told: Option<Instant> = None;
    while let Err(why) = state.update(|state| state.put_membership(membership)) {
        if told.is_none_or(|at| at.elapsed() >= TELL_AGAIN) {
            told = Some(Instant::now());
            let pool = membership.pool;
            error!(
                %pool,
                "pool {pool}: which of its drives serve cannot be stored: {}. If one of two has just failed, writes wait \
                 until it is",
                why.message
            );
        }
        thread::sleep(TRY_AGAIN);
    }
}
