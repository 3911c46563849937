//! What is told of paths: a board that shows them, and lines in the log.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ashlar_block::Moment;
use tracing::{error, info, warn};

use crate::config::Config;
use crate::reconnect::{PathReport, Session};

/// How long there may be no path before that is said, and how often it is said again.
const FIRST_WORD: Duration = Duration::from_secs(5);
const NEXT_WORD: Duration = Duration::from_secs(60);
/// A limit of more than that is none.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// How a remote namespace's paths are; written by the thread that uses them, read by any thread.
#[derive(Clone, Debug, Default)]
pub struct PathBoard(Arc<Mutex<Shown>>);

#[derive(Debug, Default)]
struct Shown {
    paths: Vec<PathReport>,
    fenced: Option<String>,
}

impl PathBoard {
    /// How they are now; nothing before they were used.
    pub fn paths(&self) -> Vec<PathReport> {
        self.shown().paths.clone()
    }

    /// Why everything fails, if another host has taken the namespace over.
    pub fn fenced(&self) -> Option<String> {
        self.shown().fenced.clone()
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        // Each change is of a single field.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The paths have changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// One had a connection, and has none.
    pub path_is_lost: bool,
}

/// Watches a session's paths.
pub(super) struct Watch {
    config: Arc<Config>,
    board: PathBoard,
    last: Vec<PathReport>,
    /// The path by which requests went last.
    used: Option<String>,
    /// Since when there is no path, if that was said, and when it is to be said again.
    said: Option<(Moment, Moment)>,
    given_up: bool,
}

impl Watch {
    pub(super) fn new(config: Arc<Config>, board: PathBoard) -> Self {
        Self {
            config,
            board,
            last: Vec::new(),
            used: None,
            said: None,
            given_up: false,
        }
    }

    /// How the namespace is used.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Looks at the session after it was polled. What its paths are, if that is news.
    pub(super) fn look(&mut self, now: Moment, session: &mut Session) -> Option<Seen> {
        let mut seen = None;
        if let Some(paths) = session.news() {
            let path_is_lost = self.lost(&paths).next().is_some();
            // With one path there is nothing to choose, and its loss is told when it lasts.
            if paths.len() > 1 {
                self.tell(&paths);
            }
            self.board.shown().paths.clone_from(&paths);
            self.last = paths;
            seen = Some(Seen { path_is_lost });
        }
        match session.without_path_since() {
            Some(since) if self.next_word(since) <= now => self.tell_none(now, since, session),
            Some(_) => {}
            None => self.tell_again(now),
        }
        if let Some(why) = session.given_up().filter(|_| !self.given_up) {
            self.given_up = true;
            error!("{}: given up, every request fails: {why}", self.config.nqn);
            if session.is_fenced() {
                self.board.shown().fenced = Some(why.to_owned());
            }
        }
        seen
    }

    /// Paths that had a connection when they were looked at last.
    fn lost<'a>(&'a self, paths: &'a [PathReport]) -> impl Iterator<Item = &'a PathReport> {
        let was_there = |path: &&PathReport| {
            let before = self.last.iter().find(|one| one.address == path.address);
            before.is_some_and(|before| before.state.is_some())
        };
        let down = paths.iter().filter(|path| path.state.is_none());
        down.filter(was_there)
    }

    /// When it must be called next.
    pub(super) fn next_deadline(&self, session: &Session) -> Option<Moment> {
        Some(self.next_word(session.without_path_since()?))
    }

    fn next_word(&self, since: Moment) -> Moment {
        self.said.map_or(since + FIRST_WORD, |(_, next)| next)
    }

    fn tell(&mut self, paths: &[PathReport]) {
        let nqn = &self.config.nqn;
        for path in self.lost(paths) {
            warn!("{nqn}: lost a path, {path}");
        }
        let used = paths.iter().find(|path| path.is_in_use);
        if let Some(path) = used.filter(|path| self.used.as_ref() != Some(&path.address)) {
            info!("{nqn}: requests go by {path}");
            self.used = Some(path.address.clone());
        }
    }

    fn tell_none(&mut self, now: Moment, since: Moment, session: &Session) {
        self.said = Some((since, now + NEXT_WORD));
        let for_s = now.since(since).as_secs();
        let paths: Vec<String> = session.paths().iter().map(ToString::to_string).collect();
        let paths = paths.join("; ");
        let limit = match self.config.loss {
            loss if loss > LONGEST => "until there is one".to_owned(),
            loss => format!("for {} s at most", loss.as_secs()),
        };
        warn!(
            "{}: no path for {for_s} s: {paths}; requests wait {limit}",
            self.config.nqn
        );
    }

    fn tell_again(&mut self, now: Moment) {
        if let Some((since, _)) = self.said.take()
            && let Some(path) = self.last.iter().find(|path| path.is_in_use)
        {
            let after_s = now.since(since).as_secs();
            info!(
                "{}: a path again after {after_s} s, {path}",
                self.config.nqn
            );
        }
    }
}
