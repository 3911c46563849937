//! Connections that have not said yet that they may be here, and how many there may be.
//!
//! A connection is a stranger until the head of a request that is let in has come. Strangers have little time
//! and few places: when these are taken, the oldest stranger of the origin that has most of them goes. So
//! connections that say nothing push out each other, and never one that has been let in.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::caller::{Caller, Origin};

/// Most strangers at a time.
const STRANGERS: usize = 128;
/// Most strangers of one address.
const OF_ONE_ADDRESS: usize = 32;
/// Most connections that have been let in; the requests of others wait.
const SEATS: usize = 64;

/// The connections of a listener.
pub(crate) struct Visitors {
    seats: Arc<Semaphore>,
    strangers: Mutex<Strangers>,
}

#[derive(Default)]
struct Strangers {
    next: u64,
    /// In the order of their arrival.
    here: VecDeque<Stranger>,
}

struct Stranger {
    number: u64,
    origin: Origin,
    leave: Arc<Notify>,
}

pub(crate) struct Visitor {
    visitors: Arc<Visitors>,
    caller: Caller,
    number: u64,
    leave: Arc<Notify>,
    seat: tokio::sync::OnceCell<OwnedSemaphorePermit>,
}

impl Visitors {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            seats: Arc::new(Semaphore::new(SEATS)),
            strangers: Mutex::default(),
        })
    }

    /// A connection comes in; another may have to leave for it.
    pub(crate) fn enter(self: &Arc<Self>, caller: Caller) -> Arc<Visitor> {
        let leave = Arc::new(Notify::new());
        let mut strangers = self.lock();
        strangers.next += 1;
        let number = strangers.next;
        strangers.here.push_back(Stranger {
            number,
            origin: caller.origin(),
            leave: leave.clone(),
        });
        if let Some(gone) = strangers.make_room() {
            gone.leave.notify_one();
        }
        Arc::new(Visitor {
            visitors: self.clone(),
            caller,
            number,
            leave,
            seat: tokio::sync::OnceCell::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Strangers> {
        // Each change is a single insertion or removal.
        self.strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Strangers {
    /// The stranger that must go for the last one, if there are too many.
    fn make_room(&mut self) -> Option<Stranger> {
        let newest = self.here.back()?.origin;
        let mut by_origin: HashMap<Origin, usize> = HashMap::new();
        for stranger in &self.here {
            *by_origin.entry(stranger.origin).or_default() += 1;
        }
        // Who may use the socket at all is not limited by it.
        let is_over = newest != Origin::Local && by_origin[&newest] > OF_ONE_ADDRESS;
        let fullest = match is_over {
            true => newest,
            false if self.here.len() > STRANGERS => {
                let most = by_origin.into_iter().max_by_key(|(_, count)| *count);
                most.map(|(origin, _)| origin)?
            }
            false => return None,
        };
        let oldest = self.here.iter().position(|one| one.origin == fullest)?;
        self.here.remove(oldest)
    }

    /// False if it was made to leave, or is a stranger no more.
    fn remove(&mut self, number: u64) -> bool {
        let at = self.here.iter().position(|one| one.number == number);
        at.and_then(|at| self.here.remove(at)).is_some()
    }
}

impl Visitor {
    pub(crate) fn caller(&self) -> Caller {
        self.caller
    }

    /// A request of it is let in: it is a stranger no more, and has a seat when this returns.
    pub(crate) async fn let_in(&self) {
        self.visitors.lock().remove(self.number);
        let seat = || async {
            // Never closed: only an error of acquiring from a closed one is left out here.
            self.visitors.seats.clone().acquire_owned().await
        };
        // Without a seat it is served all the same: that is no reason to fail.
        let _ = self.seat.get_or_try_init(seat).await;
    }

    /// Whether it has not been let in so far.
    pub(crate) fn is_stranger(&self) -> bool {
        let strangers = self.visitors.lock();
        strangers.here.iter().any(|one| one.number == self.number)
    }

    /// Waits until it must leave for another.
    pub(crate) async fn must_leave(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.visitors.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(address: &str) -> Caller {
        Caller::Remote(format!("{address}:1").parse().expect("address"))
    }

    async fn is_sent_away(visitor: &Visitor) -> bool {
        let now = std::time::Duration::ZERO;
        tokio::time::timeout(now, visitor.must_leave())
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn strangers_push_out_their_own_and_no_visitor_who_was_let_in() {
        let visitors = Visitors::new();
        let known = visitors.enter(remote("10.0.0.1"));
        known.let_in().await;
        let other = visitors.enter(remote("10.0.0.2"));
        let mut many: Vec<_> = (0..OF_ONE_ADDRESS)
            .map(|_| visitors.enter(remote("10.0.0.1")))
            .collect();
        for visitor in &many {
            assert!(!is_sent_away(visitor).await);
        }
        many.push(visitors.enter(remote("10.0.0.1")));
        assert!(is_sent_away(&many[0]).await, "the oldest of its address");
        assert!(!many[0].is_stranger());
        assert!(!is_sent_away(&many[1]).await);
        // From many addresses: the whole house is full.
        for number in 0..500 {
            many.push(visitors.enter(remote(&format!("10.1.{}.1", number % 3))));
        }
        assert!(visitors.lock().here.len() <= STRANGERS);
        assert!(!is_sent_away(&known).await && !known.is_stranger());
        assert!(!is_sent_away(&other).await && other.is_stranger());
        drop(many);
        assert_eq!(visitors.lock().here.len(), 1, "who goes frees its place");
    }

    #[tokio::test]
    async fn those_who_are_let_in_take_turns() {
        let visitors = Visitors::new();
        let mut all: Vec<_> = (0..=SEATS)
            .map(|_| visitors.enter(remote("10.0.0.1")))
            .collect();
        let last = all.pop().expect("one");
        for visitor in &all {
            visitor.let_in().await;
            visitor.let_in().await;
        }
        let now = std::time::Duration::ZERO;
        assert!(tokio::time::timeout(now, last.let_in()).await.is_err());
        assert!(!last.is_stranger(), "it waits, and is not sent away");
        all.pop();
        last.let_in().await;
    }
}
