//! The copies of a node that ends, or of a pool that is exported, leave the in-sync sets: else their owners would fill its
//! logs as fast as they get empty, and hosts would wait for it to the end.
//!
//! An owner is asked by an order, and goes on with the copy until the quorum has left it out. From then on it is given
//! nothing, so it goes out of service here; when it is back it gets what it has missed. Owners of a version that does not
//! know the order, that end themselves, or that are not reached at once, go on writing here until the pool is closed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ashlar_nvme::log::AnaState;
use ashlar_replica::{Incarnation, NodeId};
use tracing::{info, warn};
use uuid::Uuid;

use super::orders::Order;
use super::{CopyPlace, LOOK_EVERY, Replication};
use crate::manager::serve::nqn;
use crate::manager::{Dismissal, PoolManager};
use crate::model::ControlError;
use crate::pool::ReplicaMail;

/// How long a node that ends, or a pool that is exported, waits until its copies have left, all together.
const LEAVE_WAIT: Duration = Duration::from_secs(2);
/// How long an owner may take to hear of it.
const ORDER_WAIT: Duration = Duration::from_millis(500);

/// What becomes of a copy here.
enum Standing {
    /// Its owner, which writes to it.
    Under(NodeId),
    /// It is not in sync.
    Left,
    /// This node owns the volume, and no other has taken it over.
    Stays,
    /// Another takes it over, or the quorum does not say.
    Unsettled,
}

impl Replication {
    fn standing(&self, place: &CopyPlace) -> Standing {
        let look = |reply| ReplicaMail::Look { reply };
        let view = place.pool.ask_replica(place.number, look);
        if view.is_ok_and(|view| view.is_some_and(|view| view.owns.is_some())) {
            return Standing::Stays;
        }
        let Ok(Some(key)) = self.read_key(place.volume) else {
            return Standing::Unsettled;
        };
        let me = self.cluster.me();
        match key.position(me) {
            Some(_) if key.owner.node == me => Standing::Unsettled,
            Some(here) if key.in_sync.has(here) => Standing::Under(key.owner.node),
            _ => Standing::Left,
        }
    }
}

impl PoolManager {
    /// Has owners on other nodes go on without the copies here, as far as that is quick. Hosts of those that have left go
    /// on elsewhere.
    pub(in crate::manager) fn leave_owners(&self) {
        self.leave(self.copies());
    }

    /// The same of the copies in a pool.
    pub(in crate::manager) fn leave_owners_of(&self, pool: &str) {
        let mut copies = self.copies();
        copies.retain(|copy| copy.pool_name == pool);
        self.leave(copies);
    }

    fn leave(&self, copies: Vec<CopyPlace>) {
        let Ok(replication) = self.replication() else {
            return;
        };
        let (mut stay, end) = (copies, Instant::now() + LEAVE_WAIT);
        while !stay.is_empty() && Instant::now() < end && self.asks_who_decides().is_ok() {
            let mut asked: BTreeMap<NodeId, Vec<CopyPlace>> = BTreeMap::new();
            let mut left = Vec::new();
            for place in std::mem::take(&mut stay) {
                match replication.standing(&place) {
                    Standing::Under(owner) => asked.entry(owner).or_default().push(place),
                    Standing::Left => left.push(place),
                    Standing::Unsettled => stay.push(place),
                    Standing::Stays => {}
                }
            }
            for (owner, places) in asked {
                let order = Order::Leave {
                    incarnation: replication.cluster.incarnation(),
                    volumes: places.iter().map(|place| place.volume).collect(),
                };
                match replication.order_within(ORDER_WAIT, owner, &order) {
                    Ok(_) => stay.extend(places),
                    Err(error) => info!("its owner goes on writing here: {}", error.message),
                }
            }
            // The owners of those that have left need them until they have read that, too.
            std::thread::sleep(LOOK_EVERY);
            left.iter().for_each(|place| self.retire(place));
        }
    }

    /// A copy that is given nothing any more goes out of service: what hosts have asked for here is theirs to ask
    /// elsewhere.
    fn retire(&self, place: &CopyPlace) {
        let stop = |reply| ReplicaMail::Stop { reply };
        if let Err(error) = place.pool.ask_replica(place.number, stop) {
            warn!(volume = place.name, "volume {}: {error}", place.name);
        }
        self.set_path(place.volume, AnaState::Inaccessible);
        let why = Dismissal::ForNow("its copy here has left".to_owned());
        if let Err(ControlError { message, .. }) = self.send_away(&nqn(place.volume), why) {
            warn!(volume = place.name, "volume {}: {message}", place.name);
        }
    }

    /// A node ends or exports a pool, and asks that its copies are not waited for. One that ends itself lets none go:
    /// what both have when hosts are put off is in sync yet.
    pub(super) fn let_leave(
        &self,
        node: NodeId,
        incarnation: Incarnation,
        volumes: &[Uuid],
    ) -> Result<(), ControlError> {
        if self.is_stopping() {
            return Err(ControlError::conflict("this node ends itself"));
        }
        let copies = self.copies().into_iter();
        for copy in copies.filter(|copy| volumes.contains(&copy.volume)) {
            let mail = ReplicaMail::Leaves { node, incarnation };
            copy.pool.post_to_replica(copy.number, mail);
        }
        Ok(())
    }
}
