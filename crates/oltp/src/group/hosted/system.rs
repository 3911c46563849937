//! Faults of a group on given hosts: agents do them to what they have started; a switch-over is Patroni's to do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ashlar_lab::agent::Clients;
use ashlar_lab::{LabError, Progress};

use super::group::{HostedGroup, check_hosts, check_plan};
use super::words::{Break, Order};
use super::{HostedPlan, Keys};
use crate::faults::{Fault, System, Topology};
use crate::group::http::{moved, post_as};
use crate::group::node::{NodeName, Seat};
use crate::group::{Role, Tuning};

/// A fault is over so long after it was ordered, if nothing ends it before, and may last no longer: longer than a round
/// waits for its clients.
pub const OVER_AFTER_S: u32 = 300;
/// What lasts as long as it is said to has ended before, and the load has been looked at.
const MOST_HOLD: Duration = Duration::from_secs(OVER_AFTER_S as u64 - 60);

/// A group on the hosts of agents, which break it.
pub struct HostedSystem {
    group: HostedGroup,
    tuning: Tuning,
    /// What stands still does not answer, and is not asked.
    stands_still: Mutex<Option<NodeName>>,
    is_ended: bool,
}

/// Whether a group could be had on these hosts, and these faults done to it: before anything is there.
///
/// # Errors
/// Names what is wrong: of a fault, also the host that cannot do it.
pub fn check_hosted(
    clients: &Clients,
    (plan, faults): (&HostedPlan, &[Fault]),
    hold: Duration,
) -> Result<(), LabError> {
    check_plan(clients, plan)?;
    check_faults(clients, faults, hold)?;
    let is_done_there = |fault: &Fault| {
        let lacks = Topology::Group.lacks(*fault).is_some();
        !lacks && *fault != Fault::Move
    };
    let faults: Vec<Fault> = faults.iter().copied().filter(is_done_there).collect();
    check_hosts(clients, &faults)
}

/// Whether these faults could be over in time, and done between these hosts.
///
/// # Errors
/// A usage error that names the option.
pub fn check_faults(clients: &Clients, faults: &[Fault], hold: Duration) -> Result<(), LabError> {
    if faults.contains(&Fault::EtcdDown) && hold > MOST_HOLD {
        return Err(LabError::usage(format!(
            "--hold: on given hosts {} s at most: agents end a fault by themselves after {OVER_AFTER_S} s",
            MOST_HOLD.as_secs()
        )));
    }
    match faults.contains(&Fault::CutNetwork) {
        true => check_apart(clients),
        false => Ok(()),
    }
}

/// Hosts that could not be cut off from each other.
fn check_apart(clients: &Clients) -> Result<(), LabError> {
    let peers = clients.peers();
    let is_shared = |ip| peers.iter().filter(|other| *other == ip).count() > 1;
    match peers.iter().find(|ip| ip.is_loopback() || is_shared(*ip)) {
        None => Ok(()),
        Some(ip) => Err(LabError::usage(format!(
            "--fault cut-network: {ip} is no host of its own: it could not be cut off from the others"
        ))),
    }
}

impl HostedSystem {
    /// Starts a group on the hosts of three agents.
    ///
    /// # Errors
    /// An agent refuses, or it is not ready in time: what was started is ended again.
    pub fn make(
        clients: &Arc<Clients>,
        (plan, keys): (&HostedPlan, &Keys),
        progress: &Progress,
    ) -> Result<Self, LabError> {
        Ok(Self {
            group: HostedGroup::start(clients, (plan, keys), progress)?,
            tuning: plan.tuning,
            stands_still: Mutex::default(),
            is_ended: false,
        })
    }

    fn set_still(&self, node: Option<NodeName>) {
        *self.still() = node;
    }

    fn still(&self) -> MutexGuard<'_, Option<NodeName>> {
        // A name is whole.
        self.stands_still
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it done where a fault is: at all members of etcd, or at a node. An agent that does not do it keeps no other
    /// from it.
    fn order_at(&self, fault: Fault, node: NodeName, what: &Order) -> Result<(), LabError> {
        let own = usize::from(node == NodeName::B);
        let is_there = |number: &usize| fault == Fault::EtcdDown || *number == own;
        let all = (0..Seat::NODES.len()).filter(is_there);
        let each = all.map(|number| self.group.order(number, what));
        each.fold(Ok(()), Result::and)
    }

    fn switch_over_from(&self, node: NodeName) -> Result<(), LabError> {
        let keeper = self.group.sites.of(node.into()).keeper;
        let body = serde_json::json!({"leader": node, "candidate": node.other()});
        let as_keeper = ("ashlar", &*self.group.keys.keepers.password);
        moved(post_as(
            keeper,
            as_keeper,
            ("/switchover", &body.to_string()),
        ))
    }
}

impl System for HostedSystem {
    fn topology(&self) -> Topology {
        Topology::of(self.tuning)
    }

    fn told(&self) -> String {
        format!(
            "Patroni with two PostgreSQL, synchronous; three members of etcd, HAProxy as the listener, on the hosts of agents, \
             which break what they have started ({}); {}",
            self.group.names().join(", "),
            self.tuning.told()
        )
    }

    fn url(&self, database: &str) -> String {
        self.group.entry().url(database)
    }

    fn servers(&self, database: &str) -> Vec<(String, String)> {
        let of = |node: NodeName| {
            (
                node.to_string(),
                self.group.entry().node_url(node, database),
            )
        };
        vec![of(NodeName::A), of(NodeName::B)]
    }

    fn primary(&self) -> Option<String> {
        let still = *self.still();
        let mut nodes = [NodeName::A, NodeName::B].into_iter();
        let is_primary =
            |node: &NodeName| still != Some(*node) && self.group.role(*node) == Role::Primary;
        nodes.find(is_primary).map(|node| node.to_string())
    }

    fn inject(&self, fault: Fault, primary: &str) -> Result<(), LabError> {
        let node: NodeName = primary.parse()?;
        if fault == Fault::Move {
            return self.switch_over_from(node);
        }
        self.set_still((fault == Fault::StopNode).then_some(node));
        let seconds = OVER_AFTER_S;
        self.order_at(fault, node, &Order::Break(Break { fault, seconds }))
    }

    fn mend(&self, fault: Fault, broken: &str) -> Result<(), LabError> {
        if fault == Fault::Move {
            return Ok(());
        }
        self.order_at(fault, broken.parse()?, &Order::Mend)?;
        self.set_still(None);
        Ok(())
    }

    fn await_ready(&self, progress: &Progress) -> Result<(), LabError> {
        self.group.await_ready(progress)
    }

    fn end(mut self: Box<Self>) -> Result<(), LabError> {
        self.is_ended = true;
        self.group.end()
    }
}

impl Drop for HostedSystem {
    fn drop(&mut self) {
        // Ended in order before; this is for a panic on the way. Agents end it in any case, when we are gone.
        if !self.is_ended {
            let _ = self.group.end();
        }
    }
}
