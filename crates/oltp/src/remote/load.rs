//! The agent's side: users and readers of servers that are elsewhere.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_lab::agent::{OtherLoad, Start};
use ashlar_lab::{LabError, Progress};

use super::held::{Held, Ready};
use super::words::{
    HomeWords, LoadWords, ReadWords, ReaderWords, ServerWords, ShareWords, TurnWords, read, text,
};
use crate::database::Database;
use crate::run::NewOrders;
use crate::scan::Readers;
use crate::usage::process_cpu_s;

/// Users and readers of databases, as an agent's load.
pub struct UserLoad<'a> {
    password: &'a (dyn Fn(&str) -> String + Sync),
    /// Users that take turns.
    held: Mutex<Option<Held>>,
}

impl<'a> UserLoad<'a> {
    /// With the password that is made of what was drawn.
    pub fn new(password: &'a (dyn Fn(&str) -> String + Sync)) -> Self {
        Self {
            password,
            held: Mutex::new(None),
        }
    }
}

impl OtherLoad for UserLoad<'_> {
    fn look(&self, words: &str) -> Result<(), LabError> {
        let server: ServerWords = read(words)?;
        let database = self.open(&server, &Progress::silent())?;
        database.state().map(drop)
    }

    fn carry_out(&self, words: &str, start: &mut Start<'_>) -> Result<String, LabError> {
        match read(words)? {
            LoadWords::Users(shares) => self.users(shares, start),
            LoadWords::Readers(readers) => self.readers(&readers, start),
            LoadWords::Enter(shares) => self.enter(shares, start),
            LoadWords::Turn(turn) => self.turn(turn, start),
            LoadWords::Leave => {
                self.held().take();
                begin(start).map(|()| String::new())
            }
        }
    }
}

impl UserLoad<'_> {
    fn users(&self, shares: Vec<ShareWords>, start: &mut Start<'_>) -> Result<String, LabError> {
        let progress = start.progress();
        let log_in = |share: ShareWords| {
            let database = self.open(&share.server, &progress)?;
            Ready::log_in(&database, &share, &progress)
        };
        let ready = at_once(shares, log_in)?;
        begin(start)?;
        let counting = start.counting();
        let homes = at_once(ready, |ready| ready.work(&counting))?;
        text(&homes)
    }

    fn readers(&self, of: &ReaderWords, start: &mut Start<'_>) -> Result<String, LabError> {
        let progress = start.progress();
        let database = self.open(&of.server, &progress)?;
        let readers = Readers::open(database.as_ref(), of.readers)?;
        begin(start)?;
        let cpu_s = process_cpu_s();
        let times = readers.read(of.rows, &progress)?;
        text(&ReadWords {
            run: times.run,
            quickest: times.quickest,
            cpu_s: process_cpu_s() - cpu_s,
        })
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, shares: Vec<ShareWords>, start: &mut Start<'_>) -> Result<String, LabError> {
        let mut held = self.held();
        *held = None;
        let progress = start.progress();
        let open = |share: &ShareWords, own: &Progress| self.open(&share.server, own);
        let entered = Held::log_in(shares, open, &progress)?;
        begin(start)?;
        entered.ramp(&progress)?;
        *held = Some(entered);
        Ok(String::new())
    }

    fn turn(&self, turn: TurnWords, start: &mut Start<'_>) -> Result<String, LabError> {
        let held = self.held();
        let none = || LabError::usage("a turn of users that have not entered");
        let entered = held.as_ref().ok_or_else(none)?;
        let progress = start.progress();
        begin(start)?;
        let worked = entered.turn(turn, &progress)?;
        text(&vec![HomeWords::of(&worked)?])
    }

    fn open(
        &self,
        server: &ServerWords,
        progress: &Progress,
    ) -> Result<Arc<dyn Database>, LabError> {
        server.open(&(self.password)(&server.drawn), progress)
    }
}

impl Ready<'_> {
    /// `counting` hears of new orders every second.
    fn work(mut self, counting: &(dyn Fn(u64, u64) + Sync)) -> Result<HomeWords, LabError> {
        let told = Cell::new(NewOrders::default());
        let mut worked = self.all_users.work(&self.plan, &|orders: NewOrders| {
            let before = told.replace(orders);
            let ns = (orders.ns - before.ns).max(0.0) as u64;
            counting(orders.count.saturating_sub(before.count), ns);
        })?;
        if let Some((users, problem)) = self.all_users.stop() {
            worked.measured.lost_users += users;
            worked.measured.problem(&problem);
        }
        HomeWords::of(&worked)
    }
}

/// All is ready; returns when it is time.
fn begin(start: &mut Start<'_>) -> Result<(), LabError> {
    match start.wait() {
        true => Ok(()),
        false => Err(LabError::environment("called off")),
    }
}

/// Does something with each, all at once; what came of it, in their order.
fn at_once<T: Send, R: Send>(
    all: Vec<T>,
    what: impl Fn(T) -> Result<R, LabError> + Sync,
) -> Result<Vec<R>, LabError> {
    let what = &what;
    std::thread::scope(|scope| {
        let begun = all.into_iter().map(|one| scope.spawn(move || what(one)));
        let begun: Vec<_> = begun.collect();
        let lost = |_| Err(LabError::environment("a thread panicked"));
        let ended = begun.into_iter();
        let ended = ended.map(|one| one.join().unwrap_or_else(lost));
        // All have ended before what the first of them failed by is told.
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}
