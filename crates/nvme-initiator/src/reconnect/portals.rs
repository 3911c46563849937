//! Portals that come and go while a session uses the others.
//!
//! A path has a place for good: its streams are counted by it. One that is let go takes nothing more and keeps its
//! place until nothing of it is left, a lost association with writes under way included; then the place is another's.

use ashlar_block::Moment;

use super::Session;
use super::path::Path;
use crate::controller::Instance;

/// Most portals, those included that are on their way out.
pub(crate) const MOST_PORTALS: usize = 16;

/// The association that has used a path last, if one has: what a process that takes over must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInstance {
    /// `host:port`.
    pub address: String,
    pub instance: Option<Instance>,
}

impl Session {
    /// A further portal. Its place among the paths; `None` if there are too many.
    pub fn add_portal(&mut self, now: Moment, address: &str) -> Option<usize> {
        let path = Path::new(now, self.config.path(address), self.shape);
        let vacant = self.paths.iter().position(Path::is_vacant);
        if let Some(at) = vacant {
            self.paths[at] = path;
        } else if self.paths.len() < MOST_PORTALS {
            self.paths.push(path);
        } else {
            return None;
        }
        self.told.note_change();
        Some(vacant.unwrap_or(self.paths.len() - 1))
    }

    /// A portal is said to be gone: the path is let go, unless the namespace is reached by it all the same, or by no
    /// other. Whether it is.
    pub fn drop_portal(&mut self, at: usize) -> bool {
        let reaches = |path: &Path| path.reaches();
        let is_needed = self.paths.get(at).is_none_or(Path::reaches);
        if is_needed || !self.paths.iter().any(reaches) {
            return false;
        }
        self.paths[at].let_go();
        self.told.note_change();
        true
    }

    /// Whether a place among the paths is in use by a portal that has not been let go.
    pub fn has_portal(&self, at: usize) -> bool {
        self.paths.get(at).is_some_and(|path| !path.is_let_go())
    }

    /// The place of the path that requests take.
    pub fn best(&self) -> Option<usize> {
        self.told.best()
    }

    /// Whether a path reaches the namespace.
    pub fn reaches(&self, at: usize) -> bool {
        self.paths.get(at).is_some_and(Path::reaches)
    }

    /// The association of each path that carries requests, or did last: what a process that takes over
    /// must end.
    pub fn instances(&self) -> Vec<PathInstance> {
        let one = |path: &Path| PathInstance {
            address: path.config.address.clone(),
            instance: path.predecessor,
        };
        let known = self.paths.iter().filter(|path| !path.is_vacant());
        known.map(one).collect()
    }

    /// Takes over from a process that used these associations and has died; paths of other portals are not meant. To be
    /// called before the first poll.
    pub fn take_over(&mut self, now: Moment, predecessors: &[PathInstance]) {
        for one in predecessors {
            let mut paths = self.paths.iter_mut();
            let path = paths.find(|path| path.config.address == one.address);
            if let (Some(path), Some(_)) = (path, one.instance) {
                path.predecessor = one.instance;
                path.note_loss(now, std::time::Duration::ZERO);
                path.become_stale(now);
            }
        }
    }
}
