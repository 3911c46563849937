//! The end in order, as hosts see it: a server that is away for a while.
//!
//! ```text
//! no host gets in ─▶ others own what was owned here, and go on without its copies ─▶ logs empty, beside hosts
//!   ─▶ no command is taken, what was taken is answered ─▶ logs empty ─▶ connections close, drives are let go
//! ```
//!
//! No volume goes while hosts can ask for it: one that finds its volume gone takes that for final. A
//! connection closes when what was acknowledged on it is home.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use ashlar_block::{ErrorKind, IoError};
use ashlar_store::Manage;
use tracing::warn;
use uuid::Uuid;

use super::serve::{nqn, served};
use super::{Dismissal, Kept, LivePool, PoolManager};
use crate::model::ControlError;
use crate::pool::{PoolLink, View};

/// Longest time in which logs are emptied while hosts are still served.
const BESIDE_HOSTS_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether that is still of use.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Logs that do not get emptier in this time have hosts that fill them as fast.
const NO_PROGRESS_LIMIT: Duration = Duration::from_millis(500);
/// Logs that are less full than this are as good as empty.
const NEARLY_EMPTY: f64 = 0.02;
/// Longest time in which logs are emptied when hosts are put off. Another node that owns a volume, and could not go on
/// without its copy here, writes on to it, perhaps as fast as logs get empty; what is left in one is durable there, too.
const EMPTYING_LIMIT: Duration = Duration::from_secs(15);
/// Longest time in which connections and drives are closed: by then hosts have been let go, whatever their
/// devices do.
const CLOSING_LIMIT: Duration = Duration::from_secs(6);

impl PoolManager {
    /// Whether the daemon ends.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Everything in order: hosts are put off, logs empty, drives let go.
    pub(super) fn stop_all(&self) -> Result<(), ControlError> {
        self.stopping.store(true, Ordering::Release);
        let mut first = self.target.turn_away().map_err(served);
        let mut kept = self.lock();
        let pools: BTreeMap<String, LivePool> = std::mem::take(&mut *kept)
            .into_iter()
            .filter_map(|(name, kept)| match kept {
                Kept::Live(pool) => Some((name, pool)),
                Kept::Failed { .. } => None,
            })
            .collect();
        pools.values().for_each(|pool| self.hand_over(pool));
        self.leave_owners();
        drain_beside_hosts(&pools);
        for volume in pools.values().flat_map(|pool| pool.volumes.values()) {
            let why = Dismissal::ForNow("the daemon has ended".to_owned());
            first = first.and(self.send_away(&volume.nqn, why));
        }
        first = first.and(self.target.quiesce().map_err(served));
        for (name, pool) in &pools {
            self.unsettle_caches(pool);
            first = first.and(empty(name, pool)).and(self.unsettle(pool.id));
        }
        self.target.stop();
        // A process that ends leaves what its rings hold to the kernel, which may take minutes: hosts would
        // not see that their connections have ended, and the next daemon would find the drives in use.
        if !self.target.has_ended_within(CLOSING_LIMIT) {
            let seconds = CLOSING_LIMIT.as_secs();
            warn!("the target has not ended within {seconds} s: stopping without it");
        }
        first
    }

    /// Hosts of the volumes of a pool that is not in service are told to try again.
    pub(super) fn expect_volumes_of(&self, pool: Option<Uuid>) {
        let Some(pool) = pool else { return };
        let state = self.state.read();
        let volumes = state.volumes.iter().filter(|volume| volume.pool == pool);
        let nqns = volumes.map(|volume| nqn(volume.volume)).collect();
        self.target.target().expect(&pool.to_string(), nqns);
    }

    /// They are here, or the pool is not to come any more.
    pub(super) fn expect_no_volumes_of(&self, pool: Uuid) {
        self.target.target().expect_no_more(&pool.to_string());
    }
}

/// Empties a pool's logs, as far as that is quick.
fn empty(name: &str, pool: &LivePool) -> Result<(), ControlError> {
    let not_drained =
        |why: &str| ControlError::environment(format!("pool {name} was not drained: {why}"));
    match pool.link.begin(Manage::Drain).recv_timeout(EMPTYING_LIMIT) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(not_drained(&error.to_string())),
        Err(RecvTimeoutError::Timeout) => {
            warn!("pool {name}: its logs are not empty; the next start reads what is left");
            Ok(())
        }
        Err(RecvTimeoutError::Disconnected) => Err(not_drained("its core has ended")),
    }
}

/// Empties a pool's logs, however long that takes while they get emptier.
///
/// # Errors
/// The engine's, or [`ErrorKind::Timeout`] when they got no emptier for as long as an answer is waited for.
pub(super) fn empty_while_it_gets_on(link: &PoolLink) -> Result<(), IoError> {
    let answer = link.begin(Manage::Drain);
    let (mut ring, mut map, mut since) = (f64::INFINITY, f64::INFINITY, Instant::now());
    loop {
        match answer.recv_timeout(LOOK_EVERY) {
            Ok(emptied) => return emptied.map(drop),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(IoError::new(ErrorKind::Internal, "its core has ended"));
            }
        }
        // One of them may get fuller for a while, for the other's sake.
        if let Ok(View { status, .. }) = link.view()
            && (status.ring_fill < ring || status.map_fill < map)
        {
            (ring, map) = (ring.min(status.ring_fill), map.min(status.map_fill));
            since = Instant::now();
        }
        if since.elapsed() >= link.patience {
            let seconds = link.patience.as_secs();
            let why = format!("the pool's logs have got no emptier for {seconds} s");
            return Err(IoError::new(ErrorKind::Timeout, why));
        }
    }
}

/// How full the fullest log is, from 0 to 1. A pool that does not say holds nothing up.
fn fill(pools: &BTreeMap<String, LivePool>) -> f64 {
    let views = pools.values().filter_map(|pool| pool.link.view().ok());
    let fills = views.map(|view| view.status.ring_fill.max(view.status.map_fill));
    fills.fold(0.0, f64::max)
}

/// Empties logs as far as that goes while hosts write: the less is left, the shorter is the pause that
/// they see.
fn drain_beside_hosts(pools: &BTreeMap<String, LivePool>) {
    let asked = pools.values().map(|pool| pool.link.begin(Manage::Drain));
    let mut answers: Vec<_> = asked.collect();
    let start = Instant::now();
    let (mut least, mut since) = (f64::INFINITY, start);
    while start.elapsed() < BESIDE_HOSTS_LIMIT {
        // What they say is of no interest: it is asked for again when hosts write no more.
        answers.retain(|answer| {
            matches!(
                answer.recv_timeout(LOOK_EVERY),
                Err(RecvTimeoutError::Timeout)
            )
        });
        if answers.is_empty() {
            return;
        }
        let fill = fill(pools);
        if fill < NEARLY_EMPTY {
            return;
        }
        if fill < least * 0.9 {
            (least, since) = (fill, Instant::now());
        } else if since.elapsed() > NO_PROGRESS_LIMIT {
            return;
        }
    }
}
