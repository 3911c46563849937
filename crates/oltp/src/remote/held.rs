//! Users that stay logged in at an agent between turns, on a thread of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ashlar_lab::{LabError, Progress};

use super::words::{ShareWords, TurnWords};
use crate::database::Database;
use crate::run::{RunPlan, Users, Worked};

/// Whether what is waited for is to end is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A share whose users are logged in.
pub(super) struct Ready<'a> {
    pub(super) plan: RunPlan,
    pub(super) all_users: Users<'a>,
}

/// A database, and the share of its users.
struct Place {
    database: Arc<dyn Database>,
    share: ShareWords,
}

/// What the users are told.
enum Task {
    /// All work for their ramp, one database after the other.
    Ramp,
    Turn(TurnWords),
}

struct Order {
    task: Task,
    done: Sender<Result<Option<Worked>, LabError>>,
}

/// Users that are logged in. They log out when it is dropped.
pub(super) struct Held {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Held {
    /// Logs them in to what `open` opens. What says that they are to end is their own: they outlive what an agent is
    /// asked.
    pub(super) fn log_in(
        shares: Vec<ShareWords>,
        open: impl Fn(&ShareWords, &Progress) -> Result<Arc<dyn Database>, LabError>,
        progress: &Progress,
    ) -> Result<Self, LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        let own = Progress::silent().until(Arc::clone(&stop));
        let place = |share: ShareWords| {
            let database = open(&share, &own)?;
            Ok(Place { database, share })
        };
        let places = shares.into_iter().map(place);
        let places = places.collect::<Result<Vec<Place>, LabError>>()?;
        let (tell, told) = channel();
        let (orders, ordered) = channel();
        let thread = std::thread::Builder::new()
            .name("turns".to_owned())
            .spawn(move || live(&places, &tell, &ordered, &own))
            .map_err(|error| LabError::caused("a thread for users", error))?;
        let held = Self {
            orders: Some(orders),
            thread: Some(thread),
            stop,
        };
        held.await_from(&told, progress)?;
        Ok(held)
    }

    /// All work for their ramp, and rest.
    pub(super) fn ramp(&self, progress: &Progress) -> Result<(), LabError> {
        self.order(Task::Ramp, progress).map(drop)
    }

    /// Those of one database work, and rest.
    pub(super) fn turn(&self, turn: TurnWords, progress: &Progress) -> Result<Worked, LabError> {
        let worked = self.order(Task::Turn(turn), progress)?;
        worked.ok_or_else(|| LabError::environment("no turn"))
    }

    fn order(&self, task: Task, progress: &Progress) -> Result<Option<Worked>, LabError> {
        let (done, told) = channel();
        let sent = self.orders.as_ref().map(|to| to.send(Order { task, done }));
        match sent {
            Some(Ok(())) => self.await_from(&told, progress),
            _ => Err(ended()),
        }
    }

    /// If it is to end, its users are told to: they do not hear of it otherwise.
    fn await_from<T>(
        &self,
        told: &Receiver<Result<T, LabError>>,
        progress: &Progress,
    ) -> Result<T, LabError> {
        loop {
            match told.recv_timeout(LOOK_EVERY) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
                Err(RecvTimeoutError::Timeout) if progress.go_on().is_err() => {
                    self.stop.store(true, Ordering::SeqCst);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.orders = None;
        self.stop.store(true, Ordering::SeqCst);
        // One that panicked has ended, too.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn ended() -> LabError {
    LabError::environment("the users that take turns have ended")
}

impl<'a> Ready<'a> {
    pub(super) fn log_in(
        database: &Arc<dyn Database>,
        share: &ShareWords,
        progress: &'a Progress,
    ) -> Result<Self, LabError> {
        let (plan, setting) = (share.plan()?, share.setting());
        let of = (&plan, &setting);
        let all_users = Users::log_in_part(database, of, share.part, progress)
            .map_err(|error| LabError::caused(share.server.address, error))?;
        Ok(Self { plan, all_users })
    }
}

fn live(
    places: &[Place],
    tell: &Sender<Result<(), LabError>>,
    orders: &Receiver<Order>,
    progress: &Progress,
) {
    let log_in = |of: &Place| Ready::log_in(&of.database, &of.share, progress);
    let guests = places.iter().map(log_in);
    let mut guests = match guests.collect::<Result<Vec<Ready<'_>>, LabError>>() {
        Ok(guests) => guests,
        Err(error) => return drop(tell.send(Err(error))),
    };
    // Those that asked may have gone meanwhile: then there are no orders.
    let _ = tell.send(Ok(()));
    while let Ok(Order { task, done }) = orders.recv() {
        let _ = done.send(carry_out(&task, &mut guests));
    }
    for of in &guests {
        of.all_users.stop();
    }
}

fn carry_out(task: &Task, guests: &mut [Ready<'_>]) -> Result<Option<Worked>, LabError> {
    match task {
        Task::Ramp => {
            for of in guests {
                of.all_users.ramp(of.plan.ramp);
                of.all_users.rest();
            }
            Ok(None)
        }
        Task::Turn(turn) => {
            let none = || LabError::usage(format!("a turn of place {}", turn.place));
            let of = guests.get_mut(turn.place).ok_or_else(none)?;
            let TurnWords {
                slow_down,
                settle,
                measure,
                ..
            } = *turn;
            of.all_users.work_turn(slow_down, settle, measure).map(Some)
        }
    }
}
