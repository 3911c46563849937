//! The agent's side: users of a server that is elsewhere.

use std::cell::Cell;

use ashlar_lab::agent::{OtherLoad, Start};
use ashlar_lab::{LabError, Progress};

use super::words::{HomeWords, ServerWords, ShareWords, read, text};
use crate::run::{NewOrders, Users};

/// Users of databases, as an agent's load.
pub struct UserLoad<'a> {
    /// The password that is made of what was drawn.
    pub password: &'a (dyn Fn(&str) -> String + Sync),
}

impl OtherLoad for UserLoad<'_> {
    fn look(&self, words: &str) -> Result<(), LabError> {
        let server: ServerWords = read(words)?;
        let password = (self.password)(&server.drawn);
        let database = server.open(&password, &Progress::silent())?;
        database.state().map(drop)
    }

    fn carry_out(&self, words: &str, start: &mut Start<'_>) -> Result<String, LabError> {
        let share: ShareWords = read(words)?;
        share.check()?;
        let progress = start.progress();
        let password = (self.password)(&share.server.drawn);
        let database = share.server.open(&password, &progress)?;
        let (plan, setting) = (share.plan(), share.setting());
        let mut all_users =
            Users::log_in_part(&database, (&plan, &setting), share.part, &progress)?;
        if !start.wait() {
            return Err(LabError::environment("called off"));
        }
        let told = Cell::new(NewOrders::default());
        let mut worked = all_users.work(&plan, &|orders: NewOrders| {
            let before = told.replace(orders);
            let ns = (orders.ns - before.ns).max(0.0) as u64;
            start.count(orders.count.saturating_sub(before.count), ns);
        })?;
        if let Some((users, problem)) = all_users.stop() {
            worked.measured.lost_users += users;
            worked.measured.problem(&problem);
        }
        text(&HomeWords::of(&worked)?)
    }
}
