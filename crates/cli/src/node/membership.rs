//! How a machine comes into a cluster and goes again: `ashlar cluster init`, `token`, `join`, `leave`, `ashlar witness`.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use ashlar_cluster::{Founding, Home, Newcomer, Role, Versions, found, join};
use ashlar_node::NodeDir;
use ashlar_node::model::{ForgetNode, NewToken};

use super::Api;
use super::daemon::failure;
use super::quorum::{self, ETCD};
use crate::args::{ApiOptions, PlaceArguments, WitnessArguments};
use crate::exit::Failure;
use crate::output::print;

const PEERS: u16 = 7000;
const HOSTS: u16 = 4420;
const ETCD_CLIENTS: u16 = 2379;

/// A machine that is to be a node.
pub(super) struct Machine<'a> {
    pub(super) place: &'a PlaceArguments,
    pub(super) listen: Option<SocketAddr>,
    pub(super) rejoins: bool,
}

/// The addresses of a machine, as far as they were said.
struct Addresses {
    replication: SocketAddr,
    portal: SocketAddr,
    etcd: SocketAddr,
}

impl Addresses {
    fn of(
        address: &str,
        listen: Option<SocketAddr>,
        etcd: Option<SocketAddr>,
    ) -> Result<Self, Failure> {
        let replication = match (address.parse::<IpAddr>(), address.parse::<SocketAddr>()) {
            (Ok(ip), _) => SocketAddr::new(ip, PEERS),
            (_, Ok(address)) => address,
            _ => {
                return Err(Failure::usage(format!(
                    "--address {address}: name an address of this machine, 10.0.0.1 or 10.0.0.1:{PEERS}"
                )));
            }
        };
        let ip = replication.ip();
        if let Err(error) = UdpSocket::bind((ip, 0))
            && error.kind() == ErrorKind::AddrNotAvailable
        {
            return Err(Failure::usage(format!(
                "--address {address}: {ip} is none of this machine's addresses"
            )));
        }
        Ok(Self {
            replication,
            portal: listen.unwrap_or(SocketAddr::new(ip, HOSTS)),
            etcd: etcd.unwrap_or(SocketAddr::new(ip, ETCD_CLIENTS)),
        })
    }
}

fn name(said: Option<&String>) -> String {
    said.cloned().unwrap_or_else(|| {
        let machine = rustix::system::uname();
        let name = machine.nodename().to_string_lossy();
        name.split('.').next().unwrap_or_default().to_owned()
    })
}

/// `ashlar cluster init`.
pub(super) fn init(
    cluster: &str,
    (place, listen): (&PlaceArguments, Option<SocketAddr>),
    quorum: &str,
) -> Result<(), Failure> {
    let addresses = Addresses::of(&place.address, listen, place.etcd)?;
    let quorum = match (quorum, quorum.strip_prefix("etcd://")) {
        ("local", _) => None,
        (_, Some(members)) => Some(members.split(',').map(str::to_owned).collect()),
        (other, None) => {
            return Err(Failure::usage(format!(
                "--quorum {other}: `local`, or `etcd://HOST:PORT[,HOST:PORT…]`"
            )));
        }
    };
    if quorum.is_none() {
        quorum::check_installed()?;
    }
    let plan = Founding {
        cluster: cluster.to_owned(),
        node: name(place.name.as_ref()),
        replication: addresses.replication,
        portal: addresses.portal,
        etcd: addresses.etcd,
        quorum,
    };
    let id = found(&place.dir, &plan).map_err(failure)?;
    let dir = place.dir.display();
    print(&format!(
        "cluster {cluster} ({id}) begins with node {}\nstart it: ashlar node --dir {dir}\n",
        plan.node
    ))
}

/// `ashlar cluster token`.
pub(super) fn token(minutes: u64, api: &ApiOptions) -> Result<(), Failure> {
    let api = Api::new(api)?;
    let seconds = minutes.saturating_mul(60);
    let made = api.client.cluster_token(&NewToken { seconds })?;
    api.show(&made, |made| format!("{}\n", made.token))
}

/// `ashlar cluster join`.
pub(super) fn join_as_node(token: &str, machine: &Machine<'_>) -> Result<(), Failure> {
    let place = machine.place;
    let addresses = Addresses::of(&place.address, machine.listen, place.etcd)?;
    // A daemon that still works in it would go on with what it was.
    let lock = machine.rejoins && place.dir.exists();
    let lock = lock.then(|| NodeDir::lock(&place.dir)).transpose()?;
    let newcomer = Newcomer {
        name: name(place.name.as_ref()),
        role: Role::Node,
        replication: addresses.replication,
        portal: addresses.portal,
        etcd: addresses.etcd,
        rejoins: machine.rejoins,
        versions: Versions::OURS,
    };
    let joined = join(&place.dir, token, &newcomer).map_err(failure)?;
    drop(lock);
    let mut text = format!(
        "node {} is in cluster {}\nstart it: ashlar node --dir {}\n",
        newcomer.name,
        joined.cluster,
        place.dir.display()
    );
    if joined.runs_etcd && quorum::check_installed().is_err() {
        text.push_str(&format!(
            "it runs a member of etcd, too: install {ETCD} first (Debian: etcd-server)\n"
        ));
    }
    print(&text)
}

/// `ashlar cluster leave`.
pub(super) fn leave(api: &ApiOptions) -> Result<(), Failure> {
    let api = Api::new(api)?;
    api.client.leave_cluster()?;
    api.show(&(), |()| {
        "this node has left its cluster, and its daemon ends; what its pools hold stays\n"
            .to_owned()
    })
}

/// `ashlar node forget`.
pub(super) fn forget(node: &str, api: &ApiOptions) -> Result<(), Failure> {
    let api = Api::new(api)?;
    let request = ForgetNode {
        node: node.to_owned(),
    };
    api.client.forget_node(&request)?;
    api.show(&(), |()| format!("{node} is in the cluster no more\n"))
}

/// `ashlar cluster recover`.
pub(super) fn recover(dir: &Path, others_are_lost: bool) -> Result<(), Failure> {
    let shown = dir.display();
    let home = Home::open(dir).map_err(failure)?;
    let home = home
        .ok_or_else(|| Failure::usage(format!("{shown} is no node's that has joined a cluster")))?;
    let Some(member) = home.etcd.as_ref().filter(|_| !home.is_witness) else {
        return Err(Failure::usage(format!(
            "{shown} is not of a node that runs a member of etcd: recover on one that does"
        )));
    };
    if !others_are_lost {
        return Err(Failure::usage(
            "what the other machines of the quorum have is given up: where one of them runs, or is started again as it \
             was, two clusters serve the same volumes. A machine that was cut off before the others were lost does not know what \
             they have acknowledged since: recover on the one that had contact last. Volumes of which another machine may \
             have known better are not served before `volume run-alone`. --others-are-lost says that this is so",
        ));
    }
    quorum::recover(&home, member, dir)?;
    print(&format!(
        "the quorum of cluster {} is this machine alone. Start its node (`ashlar node --dir {shown}`); then `ashlar \
         cluster status` says which volumes are in doubt and wait for `ashlar volume run-alone`, and what is lost: \
         `ashlar volume replicate` or `node replace`, and `node forget`, take it out\n",
        home.config.name
    ))
}

/// `ashlar witness`.
pub(crate) fn witness(arguments: &WitnessArguments) -> Result<(), Failure> {
    quorum::check_installed()?;
    if let (Some(token), Some(address)) = (&arguments.join, &arguments.address) {
        let addresses = Addresses::of(address, None, arguments.etcd)?;
        let newcomer = Newcomer {
            name: name(arguments.name.as_ref()),
            role: Role::Witness,
            replication: addresses.replication,
            portal: addresses.portal,
            etcd: addresses.etcd,
            rejoins: arguments.rejoin,
            versions: Versions::OURS,
        };
        join(&arguments.dir, token, &newcomer).map_err(failure)?;
    }
    let home = its_home(&arguments.dir)?;
    let name = &home.name;
    print(&format!(
        "witness {name} of cluster {} runs\n",
        home.config.name
    ))?;
    quorum::witness(&home, &arguments.dir)
}

fn its_home(dir: &Path) -> Result<Home, Failure> {
    let shown = dir.display();
    match Home::open(dir).map_err(failure)? {
        Some(home) if home.is_witness => Ok(home),
        Some(home) => Err(Failure::usage(format!(
            "{shown} is of node {}, not of a witness: `ashlar node --dir {shown}` starts it",
            home.name
        ))),
        None => Err(Failure::usage(format!(
            "{shown} has joined no cluster: `ashlar witness --dir {shown} --join TOKEN --address ADDR`"
        ))),
    }
}
