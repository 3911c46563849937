//! A group over given hosts: an agent of each has a seat, and starts, watches and ends its programs.
//!
//! ```text
//! coordinator ── claim ─▶ agent: a folder, ports            once
//!             ── start ─▶ agent: etcd; Patroni; HAProxy     each of the programs of its seat
//!             ── look ──▶ agent: what runs                  every second
//!             ── end ───▶ agent: all ends, and is removed
//! ```
//!
//! The first two hosts have a database and a member of etcd each, the third has etcd's third member and the listener. The
//! coordinator stays while the group is there: when it goes, in order or not, each agent ends its part.
//!
//! The network is the hosts' own, so all that takes orders by it wants a password, which follows from the agents' token
//! and from what is drawn for a group. What members of etcd say to each other has none.

mod entry;
mod kept;
mod quorum;
mod seats;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ashlar_lab::agent::Clients;
use ashlar_lab::{LabError, Progress};
use serde::{Deserialize, Serialize};

use self::entry::Entry;
pub use self::entry::Keys;
use self::kept::Kept;
pub use self::kept::{end_hosted, hosted_status, is_hosted};
use self::quorum::Quorum;
pub use self::seats::GroupSeats;
use self::words::{Claim, Order, Seen, Site, Sites, Start, check_settings, read, text};
use super::node::{Member, NodeName, Seat};
use super::{READY_WITHIN, Role, Tuning, ask};
use crate::server::DATABASE;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often agents are asked while the group is there.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// What a group on given hosts is to be.
#[derive(Clone, Debug)]
pub struct HostedPlan {
    /// How fast it notices.
    pub tuning: Tuning,
    /// PostgreSQL's settings, `name=value`, of those that are known.
    pub set: Vec<String>,
}

/// What such a group is at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostedStatus {
    /// `hosted`, where others have none.
    pub kind: String,
    pub dir: PathBuf,
    /// What `--db` takes, and any client: the database through the listener, as its owner, with the password.
    pub url: String,
    /// The same as the superuser, who may have any program run on the hosts.
    pub superuser_url: String,
    /// In the order in which they were given.
    pub hosts: Vec<HostStatus>,
}

/// What a host is at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// The agent's address.
    pub host: String,
    /// `a`, `b` or `w`, the witness.
    pub seat: String,
    /// What its database says of itself, if it has one.
    pub role: Option<Role>,
    /// How many processes it has.
    pub processes: usize,
    /// The database past the listener, as its owner.
    pub url: Option<String>,
    /// What is wrong with it.
    pub trouble: Option<String>,
}

impl fmt::Display for HostedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "listener: {}", self.url)?;
        for HostStatus {
            host,
            seat,
            role,
            processes,
            trouble,
            ..
        } in &self.hosts
        {
            let role = role.map_or("witness, listener".into(), |role| format!("{role:?}"));
            let trouble = trouble
                .as_ref()
                .map_or(String::new(), |why| format!("; {why}"));
            writeln!(
                f,
                "{seat} at {host}: {role}, {processes} processes{trouble}"
            )?;
        }
        Ok(())
    }
}

/// Makes a group on the hosts of three agents, says so, and has it stay until this is to end. Then all of it ends.
///
/// # Errors
/// The directory is taken, an agent refuses, the group is not ready in time: what was started is ended again.
pub fn hold_hosted(
    clients: &Clients,
    (dir, plan, keys): (&Path, &HostedPlan, &Keys),
    progress: &Progress,
    tell: &mut dyn FnMut(&HostedStatus) -> Result<(), LabError>,
) -> Result<(), LabError> {
    check_settings(&plan.set)?;
    let names = clients.names();
    if names.len() != Seat::NODES.len() {
        return Err(LabError::usage(format!(
            "--host: {} given; a group takes three, of which the last is the witness and has the listener",
            names.len()
        )));
    }
    let kept = Kept::claim(dir)?;
    let mut held = Held {
        clients,
        names,
        sites: Vec::new(),
        keys,
        kept,
    };
    let done = held
        .start(plan, progress)
        .and_then(|sites| held.stay(&sites, progress, tell));
    let ended = held.end();
    done.and(ended)
}

/// A group that is held.
struct Held<'a> {
    clients: &'a Clients,
    names: Vec<String>,
    /// Of the agents that have claimed a seat.
    sites: Vec<Site>,
    keys: &'a Keys,
    kept: Kept,
}

impl Held<'_> {
    fn start(&mut self, plan: &HostedPlan, progress: &Progress) -> Result<Sites, LabError> {
        for (number, seat) in Seat::NODES.into_iter().enumerate() {
            let claim = Claim {
                seat,
                drawn: self.keys.keepers.drawn.clone(),
            };
            let site: Site = read(&self.order(number, &Order::Claim(claim))?)?;
            self.sites.push(site);
        }
        let sites: Result<[Site; 3], _> = self.sites.clone().try_into();
        let sites = Sites(sites.map_err(|_| LabError::usage("a group takes three hosts"))?);
        check_network(&sites)?;
        let start = |member: Member| {
            let number = match member {
                Member::Etcd(NodeName::A) | Member::Patroni(NodeName::A) => 0,
                Member::Etcd(NodeName::B) | Member::Patroni(NodeName::B) => 1,
                Member::Witness | Member::Listener => 2,
            };
            let start = Start {
                member,
                sites,
                tuning: plan.tuning,
                set: plan.set.clone(),
            };
            self.order(number, &Order::Start(Box::new(start))).map(drop)
        };
        progress.say("etcd is started, three members");
        Member::ETCD.into_iter().try_for_each(start)?;
        let quorum = Quorum {
            at: sites.of(Seat::A).etcd_clients,
            password: &self.keys.keepers.password,
            progress,
            last_words: &|| self.last_words(),
        };
        quorum.lock()?;
        progress.say("Patroni is started: a primary is made, and a standby from it");
        start(Member::Patroni(NodeName::A))?;
        start(Member::Patroni(NodeName::B))?;
        start(Member::Listener)?;
        self.await_ready(&sites, progress)?;
        self.entry(&sites).make_database()?;
        Ok(sites)
    }

    fn order(&self, number: usize, order: &Order) -> Result<String, LabError> {
        self.clients.order(number, &text(order)?)
    }

    fn look(&self, number: usize) -> Result<Seen, LabError> {
        read(&self.clients.order_soon(number, &text(&Order::Look)?)?)
    }

    fn await_ready(&self, sites: &Sites, progress: &Progress) -> Result<(), LabError> {
        let begun = Instant::now();
        loop {
            progress.go_on()?;
            let roles = [NodeName::A, NodeName::B].map(|node| self.role(sites, node));
            let listens = ask(&self.entry(sites).url("postgres"), IS_PRIMARY) == Some(1);
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

    fn role(&self, sites: &Sites, node: NodeName) -> Role {
        let url = |node| self.entry(sites).node_url(node, "postgres");
        match ask(&url(node), IS_PRIMARY) {
            Some(1) => Role::Primary,
            Some(_) => match ask(&url(node.other()), HAS_SYNC_STANDBY) {
                Some(1) => Role::SyncStandby,
                _ => Role::Standby,
            },
            None => Role::Silent,
        }
    }

    fn entry<'b>(&'b self, sites: &'b Sites) -> Entry<'b> {
        Entry {
            sites,
            keys: self.keys,
        }
    }

    /// Watches it until this is to end. A host that is lost does not end the others: that is what a group is for.
    fn stay(
        &self,
        sites: &Sites,
        progress: &Progress,
        tell: &mut dyn FnMut(&HostedStatus) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let mut is_told = false;
        loop {
            let status = self.status(sites);
            match self.kept.keep(&status) {
                // A group under a load is not ended because a disk is full for a while.
                Err(error) if is_told => progress.say(&error.to_string()),
                kept => kept?,
            }
            if !is_told {
                tell(&status)?;
                is_told = true;
            }
            let looked = Instant::now();
            while looked.elapsed() < WATCH_EVERY {
                if progress.go_on().is_err() {
                    return Ok(());
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    fn status(&self, sites: &Sites) -> HostedStatus {
        let entry = self.entry(sites);
        let host = |(number, name): (usize, &String)| {
            let node = [NodeName::A, NodeName::B].get(number).copied();
            let (processes, trouble) = match self.look(number) {
                Ok(seen) => (seen.processes, seen.ended.first().cloned()),
                Err(error) => (0, Some(error.to_string())),
            };
            HostStatus {
                host: name.clone(),
                seat: Seat::NODES
                    .get(number)
                    .map_or("", |seat| seat.letter())
                    .into(),
                role: node.map(|node| self.role(sites, node)),
                processes,
                url: node.map(|node| entry.user_node_url(node)),
                trouble,
            }
        };
        HostedStatus {
            kind: "hosted".into(),
            dir: self.kept.dir().to_owned(),
            url: entry.user_url(),
            superuser_url: entry.url(DATABASE),
            hosts: self.names.iter().enumerate().map(host).collect(),
        }
    }

    /// Ends it at all hosts that are there. One that is not ends its part by itself.
    fn end(&self) -> Result<(), LabError> {
        let mut ended = Ok(());
        for number in 0..self.sites.len() {
            let done = self.order(number, &Order::End).map(drop);
            ended = ended.and(done);
        }
        ended
    }
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
