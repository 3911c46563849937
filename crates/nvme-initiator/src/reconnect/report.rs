//! How the paths are, for people.

use std::fmt;

use ashlar_block::Moment;
use ashlar_nvme::log::AnaState;

use super::Session;
use super::path::{Path, name};

/// A path to the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// `host:port`.
    pub address: String,
    /// How the namespace is reached this way, by its target's word; `None` without a connection.
    pub state: Option<AnaState>,
    /// Requests go this way.
    pub is_in_use: bool,
    /// Why the last connection, or attempt at one, has ended.
    pub failure: Option<String>,
}

impl PathReport {
    /// Its state in words: `optimized`, `inaccessible`, …, or `down`.
    pub fn word(&self) -> &'static str {
        self.state.map_or("down", name)
    }
}

/// `ADDRESS optimized`, or `ADDRESS down: why`.
impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.address, self.word())?;
        match (self.state, &self.failure) {
            (None, Some(failure)) => write!(f, ": {failure}"),
            _ => Ok(()),
        }
    }
}

/// What there was to tell when it was looked at last.
#[derive(Debug, Default)]
pub(super) struct Told {
    states: Vec<Option<AnaState>>,
    best: Option<usize>,
    is_news: bool,
}

impl Told {
    /// The path that requests take.
    pub(super) fn best(&self) -> Option<usize> {
        self.best
    }

    /// Takes note of changes.
    pub(super) fn look(&mut self, paths: &[Path], best: Option<usize>) {
        self.states.resize(paths.len(), None);
        for (told, path) in self.states.iter_mut().zip(paths) {
            let state = path.state();
            self.is_news |= *told != state;
            *told = state;
        }
        self.is_news |= self.best != best;
        self.best = best;
    }

    /// One was lost, or an attempt at one, and it is told why; or one has come or goes.
    pub(super) fn note_change(&mut self) {
        self.is_news = true;
    }
}

impl Session {
    /// How its paths are, if that has changed since the last call.
    pub fn news(&mut self) -> Option<Vec<PathReport>> {
        std::mem::take(&mut self.told.is_news).then(|| self.paths())
    }

    /// How its paths are.
    pub fn paths(&self) -> Vec<PathReport> {
        let report = |(at, path): (usize, &Path)| PathReport {
            address: path.config.address.clone(),
            state: path.state(),
            is_in_use: self.told.best == Some(at),
            failure: path.failure().map(ToString::to_string),
        };
        let known = self.paths.iter().enumerate();
        let known = known.filter(|(_, path)| !path.is_let_go());
        known.map(report).collect()
    }

    /// Since when no path can be used; `None` while one can, and when it is over.
    pub fn without_path_since(&self) -> Option<Moment> {
        let lives = self.dead.is_none() && !self.closing;
        self.lost_since.filter(|_| lives)
    }

    /// Why every request fails from now on.
    pub fn given_up(&self) -> Option<&str> {
        let dead = self.dead.as_ref().filter(|_| !self.closing);
        dead.map(|dead| dead.why.as_str())
    }
}
