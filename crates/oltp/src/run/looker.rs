//! One that looks on while users work: what the database and the machine count at a moment.

use std::sync::{Arc, Mutex, PoisonError};

use ashlar_lab::{LabError, Progress};

use super::span::Mark;
use crate::aside;
use crate::database::{Database, ServerPlace, Watcher};

type SharedWatcher = Arc<Mutex<Box<dyn Watcher>>>;

/// A connection of its own, shared with a thread that asks.
pub(super) struct Looker<'a> {
    /// Nothing once this ends.
    watcher: Option<SharedWatcher>,
    target: String,
    place: ServerPlace,
    progress: &'a Progress,
}

impl<'a> Looker<'a> {
    /// Logs in.
    ///
    /// # Errors
    /// The database lets it not in.
    pub(super) fn new(
        database: &Arc<dyn Database>,
        progress: &'a Progress,
    ) -> Result<Self, LabError> {
        let mut watcher = database.watcher()?;
        let place = watcher.place();
        Ok(Self {
            watcher: Some(Arc::new(Mutex::new(watcher))),
            target: database.target(),
            place,
            progress,
        })
    }

    /// Where the database is.
    pub(super) fn place(&self) -> &ServerPlace {
        &self.place
    }

    /// What is counted now.
    ///
    /// # Errors
    /// This is to end, and the database does not answer.
    pub(super) fn mark(&self) -> Result<Mark, LabError> {
        let (watcher, place) = (self.watcher.clone(), self.place.clone());
        let mark = move || {
            let watcher = watcher?;
            let mut watcher = watcher.lock().unwrap_or_else(PoisonError::into_inner);
            Some(Mark::now(watcher.as_mut(), &place))
        };
        let mark = aside::ask(&self.target, self.progress, mark)?;
        mark.ok_or_else(|| LabError::environment(format!("{}: logged out", self.target)))
    }

    /// The same at an end: where the database does not answer, without what it counts.
    pub(super) fn last_mark(&self) -> (Mark, Option<LabError>) {
        match self.mark() {
            Ok(mark) => (mark, None),
            Err(error) => (Mark::unanswered(&self.place, &error), Some(error)),
        }
    }
}

impl Drop for Looker<'_> {
    fn drop(&mut self) {
        // To log out may be to wait for storage, too.
        let watcher = self.watcher.take();
        let _ = aside::ask(&self.target, self.progress, move || drop(watcher));
    }
}
