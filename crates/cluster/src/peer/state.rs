use std::sync::Mutex;
use std::time::Instant;

use ashlar_replica::Incarnation;
use tokio::sync::Semaphore;

use crate::config::NodeConfig;
use crate::lock;
use crate::status::PeerStatus;

/// Calls to one peer that are under way at a time: below what its gate lets in.
const CALLS_AT_ONCE: usize = 32;

/// Another node, as this one knows it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) config: NodeConfig,
    pub(crate) calls: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_reachable: bool,
    last_seen: Option<Instant>,
    newest: Option<Incarnation>,
    /// The newest process that is certified dead.
    dead: Option<Incarnation>,
    problem: Option<String>,
    refused: Option<String>,
}

impl State {
    /// The newest process of which something is known.
    fn newest(&self) -> Option<Incarnation> {
        self.newest.max(self.dead)
    }

    /// Whether a process may still speak for its node.
    fn admit(&mut self, incarnation: Incarnation) -> Result<(), Incarnation> {
        let newest = self.newest().unwrap_or_default();
        if incarnation < newest || self.dead == Some(incarnation) {
            return Err(newest);
        }
        self.newest = Some(incarnation);
        Ok(())
    }
}

impl Peer {
    pub(crate) fn new(config: NodeConfig) -> Self {
        Self {
            config,
            calls: Semaphore::new(CALLS_AT_ONCE),
            state: Mutex::default(),
        }
    }

    /// It was called, and is this process. An error is the newest one that is known.
    pub(crate) fn reached(&self, incarnation: Incarnation) -> Result<(), Incarnation> {
        let mut state = lock(&self.state);
        state.admit(incarnation)?;
        if !state.is_reachable {
            let name = &self.config.name;
            tracing::info!("node {name} is reachable, incarnation {}", incarnation.0);
        }
        state.is_reachable = true;
        state.last_seen = Some(Instant::now());
        state.problem = None;
        Ok(())
    }

    /// It was called, and not reached.
    pub(crate) fn not_reached(&self, why: &str) {
        let mut state = lock(&self.state);
        if state.is_reachable || state.problem.as_deref() != Some(why) {
            tracing::warn!("{why}");
        }
        state.is_reachable = false;
        state.problem = Some(why.into());
    }

    /// One of its processes has proven itself here. An error is the newest one that is known.
    pub(crate) fn let_in(&self, incarnation: Incarnation) -> Result<(), Incarnation> {
        let mut state = lock(&self.state);
        let admitted = state.admit(incarnation);
        match admitted {
            Ok(()) => {
                state.last_seen = Some(Instant::now());
                state.refused = None;
            }
            Err(newest) => {
                let why = format!(
                    "incarnation {} came, and incarnation {} is known: an old process, or two daemons under one name",
                    incarnation.0, newest.0
                );
                if state.refused.as_ref() != Some(&why) {
                    tracing::warn!("node {} was refused: {why}", self.config.name);
                }
                state.refused = Some(why);
            }
        }
        admitted
    }

    /// One of its processes is certified dead.
    pub(crate) fn is_dead(&self, incarnation: Incarnation) {
        let mut state = lock(&self.state);
        state.dead = state.dead.max(Some(incarnation));
    }

    /// The newest process that is certified dead.
    pub(crate) fn dead(&self) -> Option<Incarnation> {
        lock(&self.state).dead
    }

    pub(crate) fn status(&self) -> PeerStatus {
        let state = lock(&self.state);
        PeerStatus {
            id: self.config.id,
            name: self.config.name.clone(),
            replication: self.config.replication,
            portal: self.config.portal,
            reachable: state.is_reachable,
            incarnation: state.newest,
            last_seen: state.last_seen.map(|at| at.elapsed()),
            problem: state.problem.clone(),
            refused: state.refused.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ashlar_replica::NodeId;

    use super::*;

    #[test]
    fn old_and_dead_processes_speak_for_no_node() {
        let peer = Peer::new(NodeConfig {
            id: NodeId(2),
            name: "b".into(),
            replication: "127.0.0.1:1".parse().expect("address"),
            portal: None,
        });
        assert_eq!(peer.let_in(Incarnation(3)), Ok(()));
        assert_eq!(peer.let_in(Incarnation(3)), Ok(()));
        assert_eq!(peer.let_in(Incarnation(2)), Err(Incarnation(3)));
        assert!(
            peer.status()
                .refused
                .expect("said")
                .contains("incarnation 2")
        );
        peer.is_dead(Incarnation(2));
        assert_eq!(peer.reached(Incarnation(3)), Ok(()), "an older one is dead");
        peer.is_dead(Incarnation(3));
        assert_eq!(peer.let_in(Incarnation(3)), Err(Incarnation(3)));
        assert_eq!(peer.reached(Incarnation(3)), Err(Incarnation(3)));
        assert_eq!(peer.let_in(Incarnation(4)), Ok(()));
        assert_eq!(peer.status().refused, None);
    }
}
