//! A group on the hosts of three agents, as its coordinator has it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ashlar_lab::agent::Clients;
use ashlar_lab::{LabError, Progress};

use super::entry::{Entry, Keys};
use super::quorum::Quorum;
use super::words::{Claim, Order, Site, Sites, Start, check_settings, read, text};
use super::{Held, HostStatus, HostedPlan, HostedStatus, LOOK_EVERY};
use crate::faults::Fault;
use crate::group::node::{Member, NodeName, Seat};
use crate::group::{READY_WITHIN, Role, ask};
use crate::seat::Seen;

/// A group that runs, until it is ended.
pub(super) struct HostedGroup {
    clients: Arc<Clients>,
    names: Vec<String>,
    pub(super) sites: Sites,
    pub(super) keys: Keys,
}

impl HostedGroup {
    /// Starts one, and waits until it is ready.
    ///
    /// # Errors
    /// An agent refuses, or it is not ready in time: what was started is ended again.
    pub(super) fn start(
        clients: &Arc<Clients>,
        (plan, keys): (&HostedPlan, &Keys),
        progress: &Progress,
    ) -> Result<Self, LabError> {
        check_plan(clients, plan)?;
        let started = claim(clients, keys).and_then(|sites| {
            let group = Self {
                clients: Arc::clone(clients),
                names: clients.names(),
                sites,
                keys: keys.clone(),
            };
            group.start_members(plan, progress).map(|()| group)
        });
        started.inspect_err(|_| {
            // Who has no seat has nothing to end; why it was not started says more than why it stays.
            let _ = end(clients);
        })
    }

    fn start_members(&self, plan: &HostedPlan, progress: &Progress) -> Result<(), LabError> {
        let start = |member: Member| {
            let number = match member {
                Member::Etcd(NodeName::A) | Member::Patroni(NodeName::A) => 0,
                Member::Etcd(NodeName::B) | Member::Patroni(NodeName::B) => 1,
                Member::Witness | Member::Listener => 2,
            };
            let start = Start {
                member,
                sites: self.sites,
                tuning: plan.tuning,
                set: plan.set.clone(),
            };
            self.order(number, &Order::Start(Box::new(start)))
        };
        progress.say("etcd is started, three members");
        Member::ETCD.into_iter().try_for_each(start)?;
        let quorum = Quorum {
            at: self.sites.of(Seat::A).etcd_clients,
            password: &self.keys.keepers.password,
            progress,
            last_words: &|| self.last_words(),
        };
        quorum.lock()?;
        progress.say("Patroni is started: a primary is made, and a standby from it");
        start(Member::Patroni(NodeName::A))?;
        start(Member::Patroni(NodeName::B))?;
        start(Member::Listener)?;
        self.await_ready(progress)?;
        self.entry().make_database()
    }

    /// Has the agent of this number do it.
    pub(super) fn order(&self, number: usize, what: &Order) -> Result<(), LabError> {
        order(&self.clients, number, what).map(drop)
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    fn look(&self, number: usize) -> Result<Seen, LabError> {
        read(&self.clients.order_soon(number, &text(&Order::Look)?)?)
    }

    pub(super) fn await_ready(&self, progress: &Progress) -> Result<(), LabError> {
        let begun = Instant::now();
        loop {
            progress.go_on()?;
            let roles = [NodeName::A, NodeName::B].map(|node| self.role(node));
            let listens = ask(&self.entry().url("postgres"), IS_PRIMARY) == Some(1);
            let has = |role| roles.contains(&role);
            if has(Role::Primary) && has(Role::SyncStandby) && listens {
                return Ok(());
            }
            let ended = self.last_words();
            if begun.elapsed() > READY_WITHIN || !ended.is_empty() {
                return Err(LabError::environment(format!(
                    "the group is not ready after {} s: a is {:?}, b is {:?}{ended}",
                    begun.elapsed().as_secs(),
                    roles[0],
                    roles[1],
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Programs that have ended, with what they said last.
    fn last_words(&self) -> String {
        let told = |(number, name)| match self.look(number) {
            Ok(seen) => seen
                .ended
                .iter()
                .map(|one| format!("; {name}: {one}"))
                .collect(),
            Err(error) => format!("; {error}"),
        };
        self.names.iter().enumerate().map(told).collect()
    }

    pub(super) fn role(&self, node: NodeName) -> Role {
        let url = |node| self.entry().node_url(node, "postgres");
        match ask(&url(node), IS_PRIMARY) {
            Some(1) => Role::Primary,
            Some(_) => match ask(&url(node.other()), HAS_SYNC_STANDBY) {
                Some(1) => Role::SyncStandby,
                _ => Role::Standby,
            },
            None => Role::Silent,
        }
    }

    pub(super) fn entry(&self) -> Entry<'_> {
        Entry {
            sites: &self.sites,
            keys: &self.keys,
        }
    }

    /// Ends it at all hosts that are there. One that is not ends its part by itself.
    pub(super) fn end(&self) -> Result<(), LabError> {
        end(&self.clients)
    }
}

impl Held for HostedGroup {
    fn status(&self, dir: &Path) -> HostedStatus {
        let entry = self.entry();
        let host = |(number, name): (usize, &String)| {
            let node = [NodeName::A, NodeName::B].get(number).copied();
            let (processes, trouble) = match self.look(number) {
                Ok(seen) => (seen.processes, seen.trouble()),
                Err(error) => (0, Some(error.to_string())),
            };
            HostStatus {
                host: name.clone(),
                seat: Seat::NODES
                    .get(number)
                    .map_or("", |seat| seat.letter())
                    .into(),
                role: node.map(|node| self.role(node)),
                processes,
                url: node.map(|node| entry.user_node_url(node)),
                trouble,
            }
        };
        HostedStatus {
            kind: "hosted".into(),
            dir: dir.to_owned(),
            url: entry.user_url(),
            superuser_url: entry.superuser_url(),
            instance: None,
            hosts: self.names.iter().enumerate().map(host).collect(),
        }
    }

    fn end(self: Box<Self>) -> Result<(), LabError> {
        end(&self.clients)
    }
}

/// # Errors
/// A usage error: it is not for so many hosts, or takes settings that it may not be told.
pub(super) fn check_plan(clients: &Clients, plan: &HostedPlan) -> Result<(), LabError> {
    check_settings(&plan.set)?;
    match clients.count() {
        3 => Ok(()),
        count => Err(LabError::usage(format!(
            "--host: {count} given; a group takes three, of which the last is the witness and has the listener"
        ))),
    }
}

/// Asks all hosts whether they could have a seat, and these faults be done to them: before anything is there.
///
/// # Errors
/// Names the host, and what it lacks.
pub(super) fn check_hosts(clients: &Clients, faults: &[Fault]) -> Result<(), LabError> {
    for (number, seat) in Seat::NODES.into_iter().enumerate() {
        // The witness has etcd and the listener.
        let is_its = |fault: &Fault| seat != Seat::Witness || *fault == Fault::EtcdDown;
        let faults = faults.iter().copied().filter(is_its).collect();
        order(clients, number, &Order::Able(faults))?;
    }
    Ok(())
}

/// Has the agent of this number do it; what it says of it.
pub(super) fn order(clients: &Clients, number: usize, order: &Order) -> Result<String, LabError> {
    clients.order(number, &text(order)?)
}

fn claim(clients: &Clients, keys: &Keys) -> Result<Sites, LabError> {
    let mut sites = Vec::new();
    for (number, seat) in Seat::NODES.into_iter().enumerate() {
        let claim = Order::Claim(Claim {
            seat,
            drawn: keys.keepers.drawn.clone(),
        });
        sites.push(read(&order(clients, number, &claim)?)?);
    }
    let sites: Result<[Site; 3], _> = sites.try_into();
    let sites = Sites(sites.map_err(|_| LabError::usage("a group takes three hosts"))?);
    check_network(&sites)?;
    Ok(sites)
}

fn end(clients: &Clients) -> Result<(), LabError> {
    let mut ended = Ok(());
    for number in 0..clients.count() {
        let done = order(clients, number, &Order::End).map(drop);
        ended = ended.and(done);
    }
    ended
}

const IS_PRIMARY: &str = "select (not pg_is_in_recovery())::int::bigint";
const HAS_SYNC_STANDBY: &str = "select count(*) from pg_stat_replication where sync_state = 'sync'";

/// Hosts that are told of each other by addresses that lead elsewhere would wait for each other.
fn check_network(sites: &Sites) -> Result<(), LabError> {
    let ips = Seat::NODES.map(|seat| sites.of(seat).database.ip());
    let here = ips.iter().filter(|ip| ip.is_loopback()).count();
    match here {
        0 | 3 => Ok(()),
        _ => Err(LabError::usage(
            "--host: an address of this machine alone (127.0.0.0/8, ::1) beside one of another: the others could not reach it",
        )),
    }
}
