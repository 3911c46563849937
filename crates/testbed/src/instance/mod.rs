//! The nodes of an instance over given hosts: an agent of each has a part, and starts, breaks and ends its programs.
//!
//! The first two hosts have a node and a member of etcd each, the third has etcd's third member and the listener. Its
//! nodes' APIs are reached by TCP: what an instance is made of them is done there.

mod breaks;
mod seats;
mod words;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::agent::Clients;
use ashlar_lab::{LabError, Progress};
use ashlar_node::Token;
use ashlar_node::client::{Client, Endpoint};
use ashlar_oltp::database::Database;
use ashlar_oltp::faults::Fault;
use ashlar_oltp::group::{USER, check_faults, check_settings, make_user};
use ashlar_oltp::seat::Seen;
use ashlar_oltp::server::{DATABASE, OWNER};
use ashlar_oltp::{Logic, Postgres, Secret};
use uuid::Uuid;

pub(crate) use self::seats::AllSeats;
use self::words::{Able, Claim, Claimed, Host, OURS, Order, Plan, read, text};
use crate::nodes::{ON_HOSTS, Site};

/// The service that runs there.
pub const SERVICE: &str = "pg";
/// Below [`OWN_MOUNTS`](crate::nodes::OWN_MOUNTS): sockets, each node's in a folder of its name, and the password of the
/// database's superuser.
pub const RUN: &str = "run";
pub const PASSWORD: &str = "password";

/// A node that has not answered after so long does not.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// What the nodes are to be.
#[derive(Clone, Copy, Debug)]
pub struct HostedNodesPlan {
    /// Of each of a node's two drives, which are sparse files.
    pub drive_bytes: u64,
    /// Drives can be made to fail, and cost a little more.
    pub has_switches: bool,
}

/// What a host is at.
pub struct SeenHost {
    pub seen: Result<Seen, LabError>,
    pub url: String,
}

/// Nodes that run, until they are ended.
pub struct HostedNodes {
    clients: Arc<Clients>,
    /// Of the nodes.
    pub names: Vec<String>,
    sites: [Site; 3],
    secret: String,
    /// The password of the database's owner, who may do nothing to the servers and their machines.
    user: String,
    /// Where the hosts have PostgreSQL's programs.
    pub programs: PathBuf,
}

/// Whether these hosts could have an instance with these settings, and these faults be done to it: before anything is
/// there.
///
/// # Errors
/// Names what is wrong: of a fault, also the host that cannot do it.
pub(crate) fn check(
    clients: &Clients,
    set: &[String],
    faults: &[Fault],
    hold: Duration,
) -> Result<(), LabError> {
    check_settings(set)?;
    if let Some(setting) = set
        .iter()
        .find(|setting| setting.trim_start().starts_with("fsync"))
    {
        return Err(LabError::usage(format!(
            "--set {setting}: the node that takes an instance over has what was flushed, and nothing else"
        )));
    }
    if clients.count() != Host::ALL.len() {
        return Err(LabError::usage(format!(
            "--host: {} given; an instance takes three, of which the last is the witness and has the listener",
            clients.count()
        )));
    }
    check_faults(clients, faults, hold)?;
    let faults = faults.iter().copied().filter(|fault| *fault != Fault::Move);
    let faults: Vec<Fault> = faults.collect();
    for host in Host::ALL {
        // The witness has etcd and the listener.
        let is_its = |fault: &Fault| host != Host::Witness || *fault == Fault::EtcdDown;
        let faults = faults.iter().copied().filter(is_its).collect();
        order(clients, host, &Order::Able(Able { host, faults }))?;
    }
    Ok(())
}

/// Has a host's agent do it; what it says of it.
fn order(clients: &Clients, host: Host, order: &Order) -> Result<String, LabError> {
    clients.order(host.number(), &(OURS.to_owned() + &text(order)?))
}

impl HostedNodes {
    /// Starts them, with a pool each.
    ///
    /// # Errors
    /// An agent refuses, or does not get it done: what was started is ended again.
    pub(crate) fn start(
        clients: &Arc<Clients>,
        plan: HostedNodesPlan,
        secret: Secret,
        progress: &Progress,
    ) -> Result<Self, LabError> {
        let started = claim(clients, &secret.drawn).and_then(|(sites, programs)| {
            let nodes = Self {
                clients: Arc::clone(clients),
                names: ON_HOSTS.map(str::to_owned).into(),
                sites,
                secret: secret.password,
                user: Uuid::new_v4().simple().to_string(),
                programs,
            };
            nodes.start_all(plan, progress).map(|()| nodes)
        });
        started.inspect_err(|_| {
            // Who has no part has nothing to end; why it was not started says more than why it stays.
            let _ = end(clients);
        })
    }

    fn start_all(&self, plan: HostedNodesPlan, progress: &Progress) -> Result<(), LabError> {
        progress.say("etcd is started, three members");
        let plan = Plan {
            sites: self.sites,
            drive_bytes: plan.drive_bytes,
            has_switches: plan.has_switches,
        };
        let [a, b, witness] = Host::ALL;
        for host in [a, b, witness] {
            self.order(host, &Order::Etcd(Box::new(plan)))?;
        }
        progress.say("two nodes are started");
        for what in [Order::Node, Order::Ready, Order::Pool] {
            progress.go_on()?;
            self.order(a, &what)?;
            self.order(b, &what)?;
        }
        Ok(())
    }

    /// Starts the listener.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_listener(&self) -> Result<(), LabError> {
        self.order(Host::Witness, &Order::Listener)
    }

    fn order(&self, host: Host, what: &Order) -> Result<(), LabError> {
        order(&self.clients, host, what).map(drop)
    }

    fn site(&self, node: &str) -> &Site {
        &self.sites[host_of(node).number()]
    }

    /// Where a node's API is.
    pub fn api(&self, node: &str) -> SocketAddr {
        self.site(node).api
    }

    /// A client of a node's API.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn client(&self, node: &str) -> Result<Client, LabError> {
        let failed = |error| LabError::caused(format!("node {node}"), error);
        let token: Token = self.secret.parse().map_err(failed)?;
        let at = Endpoint::Tcp(self.api(node).to_string());
        let client = Client::new(at, Some(token)).map_err(failed)?;
        Ok(client.answered_within(ANSWERS_WITHIN))
    }

    /// Where the listener is.
    pub fn url(&self, database: &str) -> String {
        self.url_at(&self.sites[Host::Witness.number()], database)
    }

    /// A node's database past the listener.
    pub fn node_url(&self, node: &str, database: &str) -> String {
        self.url_at(self.site(node), database)
    }

    /// The same without the password, for commands, whose words are seen by all.
    pub fn bare_url(&self, node: &str, database: &str) -> String {
        format!("postgres://{OWNER}@{}/{database}", self.site(node).door)
    }

    /// Of the databases' superuser.
    pub fn password(&self) -> &str {
        &self.secret
    }

    /// Has the database have an owner of its own.
    ///
    /// # Errors
    /// The server refuses.
    pub fn make_owner(&self) -> Result<(), LabError> {
        let postgres = Postgres::new(&self.url("postgres"), Logic::Functions)?;
        make_user(&postgres, &self.user)?;
        postgres.execute(&format!("ALTER DATABASE {DATABASE} OWNER TO {USER}"))
    }

    /// What runs at each host, and the database there, as its owner, if it has one; the last is the listener.
    pub fn seen(&self) -> [SeenHost; 3] {
        Host::ALL.map(|host| SeenHost {
            seen: self.look(host),
            url: {
                let door = self.sites[host.number()].door;
                format!("postgres://{USER}:{}@{door}/{DATABASE}", self.user)
            },
        })
    }

    fn look(&self, host: Host) -> Result<Seen, LabError> {
        let look = OURS.to_owned() + &text(&Order::Look)?;
        read(&self.clients.order_soon(host.number(), &look)?)
    }

    fn url_at(&self, site: &Site, database: &str) -> String {
        format!(
            "postgres://{OWNER}:{}@{}/{database}",
            self.secret, site.door
        )
    }

    /// Where its hosts are.
    pub fn hosts(&self) -> Vec<String> {
        self.clients.names()
    }

    /// Has a fault done where it is: at all members of etcd, or at a node. An agent that does not do it keeps no other
    /// from it.
    ///
    /// # Errors
    /// It cannot be done.
    pub fn break_it(&self, fault: Fault, node: &str) -> Result<(), LabError> {
        self.order_at(fault, node, &Order::Break(fault))
    }

    /// Mends it.
    ///
    /// # Errors
    /// It cannot be done.
    pub fn mend(&self, fault: Fault, node: &str) -> Result<(), LabError> {
        self.order_at(fault, node, &Order::Mend)
    }

    fn order_at(&self, fault: Fault, node: &str, what: &Order) -> Result<(), LabError> {
        let is_there = |host: &Host| fault == Fault::EtcdDown || *host == host_of(node);
        let all = Host::ALL.into_iter().filter(is_there);
        let each = all.map(|host| self.order(host, what));
        each.fold(Ok(()), Result::and)
    }

    /// Ends them at all hosts that are there. One that is not ends its part by itself.
    ///
    /// # Errors
    /// Something stays, or a host cannot be told.
    pub fn end(&self) -> Result<(), LabError> {
        end(&self.clients)
    }

    /// Where a node's database finds its password.
    pub fn password_file() -> PathBuf {
        Path::new(crate::nodes::OWN_MOUNTS).join(PASSWORD)
    }
}

fn host_of(node: &str) -> Host {
    match node == ON_HOSTS[0] {
        true => Host::A,
        false => Host::B,
    }
}

fn claim(clients: &Clients, drawn: &str) -> Result<([Site; 3], PathBuf), LabError> {
    let claim = |host| -> Result<Claimed, LabError> {
        let drawn = drawn.to_owned();
        read(&order(clients, host, &Order::Claim(Claim { host, drawn }))?)
    };
    let [a, b, witness] = Host::ALL;
    let (a, b, witness) = (claim(a)?, claim(b)?, claim(witness)?);
    let all = [&a, &b, &witness].map(|one| one.site);
    if all
        .iter()
        .any(|site| site.door.ip().is_loopback() != all[0].door.ip().is_loopback())
    {
        return Err(LabError::usage(
            "--host: an address of this machine alone (127.0.0.0/8, ::1) beside one of another: the others could not reach it",
        ));
    }
    match a.programs {
        Some(programs) if b.programs.as_ref() == Some(&programs) => Ok((all, programs)),
        _ => Err(LabError::environment(format!(
            "--host: PostgreSQL is {:?} on the one host and {:?} on the other: both need the same version",
            a.programs.unwrap_or_default(),
            b.programs.unwrap_or_default()
        ))),
    }
}

fn end(clients: &Clients) -> Result<(), LabError> {
    let each = Host::ALL.map(|host| order(clients, host, &Order::End).map(drop));
    each.into_iter().fold(Ok(()), Result::and)
}
