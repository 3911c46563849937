//! Attachments that the daemon serves itself: what a guardian wants, as the pool manager is told.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ashlar_attach::local::{Listener, LocalSession, Over, Owner, Refusal, Session, Wish};
use ashlar_block::{IoError, Moment};
use ashlar_node::{Daemon, Dismissal, LocalRefusal, LocalUser, LocalWish, PoolManager};
use ashlar_nvme_target::server::Resident;
use ashlar_reactor::{Handle, Opener};

use crate::exit::Failure;

/// Takes attachments from now on; the pools are in service.
pub(super) fn listen(daemon: &Daemon, manager: &Arc<PoolManager>) -> Result<(), Failure> {
    let socket = daemon.attach_socket()?;
    let lender = Lender {
        manager: manager.clone(),
        lent: Mutex::default(),
    };
    let listener = Listener::new(Arc::new(lender));
    let run = move || {
        let ended = listener.run(socket.listener());
        ended.map_err(|error| error.to_string())
    };
    let thread = daemon.alarm().spawn("attachments", run);
    thread
        .map(drop)
        .map_err(|error| Failure::environment(format!("cannot start a thread: {error}")))
}

/// A session as the pool manager knows it.
struct Lent(Arc<Session>);

impl LocalUser for Lent {
    fn dismiss(&self, why: Dismissal) {
        self.0.end(match why {
            Dismissal::ForNow(why) => Over::ForNow(why),
            Dismissal::ForGood(why) => Over::ForGood(why),
        });
    }

    fn has_left_within(&self, limit: Duration) -> bool {
        self.0.has_ended_within(limit)
    }
}

/// A local session as its core polls it.
struct Settled(LocalSession);

impl Resident for Settled {
    fn poll(&mut self, now: Moment) {
        self.0.poll(now);
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.0.next_deadline()
    }

    fn take_handled(&mut self) -> usize {
        self.0.take_handled()
    }
}

type Sessions = BTreeMap<String, (Arc<Session>, Arc<dyn LocalUser>)>;

struct Lender {
    manager: Arc<PoolManager>,
    /// By the identity of the volume.
    lent: Mutex<Sessions>,
}

impl Lender {
    fn lent(&self) -> MutexGuard<'_, Sessions> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wish in the pool manager's words.
fn local(wish: &Wish) -> Result<LocalWish, Refusal> {
    let wrong = |why: String| Refusal {
        why,
        may_change: false,
    };
    let uuid = wish.identity.strip_prefix("uuid ");
    let uuid = uuid.and_then(|uuid| uuid.parse().ok());
    let named = wish.volume.parse();
    Ok(LocalWish {
        volume: named.map_err(|error: ashlar_node::model::ControlError| wrong(error.message))?,
        uuid: uuid.ok_or_else(|| wrong(format!("{} is no volume of a pool", wish.identity)))?,
        bytes: wish.bytes,
        host: wish.host.clone(),
        place: wish.mount.display().to_string(),
    })
}

fn refused(refusal: LocalRefusal) -> Refusal {
    Refusal {
        why: refusal.why,
        may_change: refusal.may_change,
    }
}

impl Owner for Lender {
    fn may(&self, wish: &Wish) -> Result<(), Refusal> {
        let wish = local(wish)?;
        self.manager.may_use_locally(&wish).map_err(refused)
    }

    fn serve(&self, wish: &Wish, fuse: OwnedFd, session: Arc<Session>) -> Result<(), Refusal> {
        let wanted = local(wish)?;
        let user: Arc<dyn LocalUser> = Arc::new(Lent(session.clone()));
        let (takes_over, ours) = (wish.takes_over, session.clone());
        let make = move |handle: &Handle, opener: &dyn Opener| {
            let local = LocalSession::new(handle, opener, fuse, takes_over, ours)?;
            let settled: Result<Box<dyn Resident>, IoError> = Ok(Box::new(Settled(local)));
            settled
        };
        self.manager
            .use_locally(&wanted, user.clone(), Box::new(make))
            .map_err(refused)?;
        self.lent().insert(wish.identity.clone(), (session, user));
        Ok(())
    }

    fn session(&self, identity: &str) -> Option<Arc<Session>> {
        let lent = self.lent();
        lent.get(identity).map(|(session, _)| session.clone())
    }

    fn ended(&self, wish: &Wish, session: &Arc<Session>) {
        let mut lent = self.lent();
        let ours = lent
            .get(&wish.identity)
            .is_some_and(|(other, _)| Arc::ptr_eq(other, session));
        if !ours {
            return;
        }
        let gone = lent.remove(&wish.identity);
        drop(lent);
        if let (Some((_, user)), Ok(wish)) = (gone, local(wish)) {
            self.manager.left_locally(wish.uuid, &user);
        }
    }
}
