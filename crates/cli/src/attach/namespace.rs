//! The namespace that is to be attached: a volume of a pool, as its daemon says, or a URL.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ashlar_attach::{Fabrics, Local, Namespace};
use ashlar_block::ErrorKind;
use ashlar_node::ATTACH_SOCKET;
use ashlar_node::client::Endpoint;
use ashlar_node::model::{
    LayoutSpec, ServiceState, ServiceStatus, VolumeName, VolumeState, VolumeStatus,
};
use ashlar_nvme::reservation::rescap;
use ashlar_nvme_initiator::controller::NamespaceFacts;
use ashlar_nvme_initiator::{Config, Host, Remote, local_host, url};

use super::allowance::{Allowance, GONE};
use super::reserve::{self, Wanted};
use crate::args::AttachArguments;
use crate::exit::Failure;
use crate::node::Api;

/// Finds out what there is to attach, and has `attach` do it. A host that had to be allowed on the volume for that
/// is so no longer if it is refused.
pub(super) fn with<T>(
    volume: &str,
    arguments: &AttachArguments,
    attach: impl FnOnce(Namespace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let host = match &arguments.hostnqn {
        Some(nqn) => Host::named(nqn),
        None => local_host(),
    };
    let (found, allowance) = match volume.starts_with(url::SCHEME) {
        true => (Found::url(volume), None),
        false => of_pool(&volume.parse()?, &host, arguments)?,
    };
    let attached = reserved(volume, arguments, &host, &found, attach);
    if let (Err(_), Some(allowance)) = (&attached, allowance) {
        allowance.take_back();
    }
    attached
}

/// Has `attach` do it with the volume reserved, where that is how: before there is a device.
fn reserved<T>(
    volume: &str,
    arguments: &AttachArguments,
    host: &Host,
    found: &Found,
    attach: impl FnOnce(Namespace) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut namespace = describe(volume, arguments, host, found)?;
    let config = url::parse(&namespace.shown.url, host).map_err(Failure::usage)?;
    let is_alone = !arguments.shared && !arguments.here;
    let is_meant = is_alone && (found.is_replicated || !config.others.is_empty());
    if !is_meant || !namespace.reservable {
        return match arguments.preempt {
            true => Err(Failure::usage(format!(
                "--preempt: {volume} is not reserved, as it has one copy, or a target without reservations"
            ))),
            false => attach(namespace.shown),
        };
    }
    let reserved = reserve::take(&Wanted {
        volume,
        config: &config,
        known: &found.known_hosts,
        preempt: arguments.preempt,
    })?;
    namespace.shown.reserved = true;
    let attached = attach(namespace.shown);
    if attached.is_err() {
        reserved.undo();
    }
    attached
}

fn describe(
    volume: &str,
    arguments: &AttachArguments,
    host: &Host,
    found: &Found,
) -> Result<Described, Failure> {
    let (url, used_bytes) = (&found.url, found.used_bytes);
    let config = url::parse(url, host).map_err(Failure::usage)?;
    let url = with_host(url, &config);
    let remote = connect(config.clone()).map_err(|(_, failure)| failure)?;
    let facts = remote.facts();
    let shown = Namespace {
        fabrics: fabrics(&config, facts)?,
        volume: volume.to_owned(),
        url,
        identity: identity(&config, facts),
        bytes: facts.geometry.bytes(),
        block_bytes: facts.geometry.block_size.bytes(),
        used_bytes,
        volatile_cache: facts.geometry.volatile_cache,
        reserved: false,
        local: local(volume, arguments, &config),
    };
    Ok(Described {
        reservable: facts.raw.rescap & rescap::ALL_TYPES != 0,
        shown,
    })
}

/// A namespace, before it is reserved.
struct Described {
    shown: Namespace,
    /// Its target has reservations.
    reservable: bool,
}

/// The daemon that has the volume, if it is on this machine for certain: a socket's file tells.
fn local(volume: &str, arguments: &AttachArguments, config: &Config) -> Result<Local, String> {
    if volume.starts_with(url::SCHEME) {
        return Err("a URL names no daemon".into());
    }
    if arguments.here {
        return Err("it is reached through this node's portal".into());
    }
    if !config.others.is_empty() {
        return Err(
            "it has copies on several nodes, and goes on where this one's daemon does not".into(),
        );
    }
    let Some(api) = api_socket(arguments) else {
        return Err("the API is not asked through its socket".into());
    };
    let beside = std::path::absolute(&api).map(|api| api.with_file_name(ATTACH_SOCKET));
    Ok(Local {
        socket: beside.map_err(|error| format!("{}: {error}", api.display()))?,
        host: config.host.nqn.clone(),
    })
}

/// The namespace as the kernel is told of it.
fn fabrics(config: &Config, facts: &NamespaceFacts) -> Result<Fabrics, Failure> {
    let unknown = |why: String| Failure::environment(format!("{}: {why}", config.address));
    let mut addresses = config
        .address
        .to_socket_addrs()
        .map_err(|error| unknown(error.to_string()))?;
    Ok(Fabrics {
        address: addresses
            .next()
            .ok_or_else(|| unknown("has no address".into()))?,
        // Nor would the kernel wait where commands are handed on.
        has_other_paths: !config.others.is_empty() || !config.forwards,
        nqn: config.nqn.clone(),
        nsid: facts.nsid,
        host_nqn: config.host.nqn.clone(),
        host_id: uuid::Uuid::from_bytes(config.host.id).to_string(),
    })
}

/// Connects once. An error comes with its kind, for a caller that may want to try again.
pub(super) fn connect(config: Config) -> Result<Remote, (ErrorKind, Failure)> {
    let nqn = config.host.nqn.clone();
    Remote::connect(config).map_err(|error| {
        let kind = error.kind();
        let why = match kind {
            ErrorKind::Denied => format!("{error}: it does not let this host in, which is {nqn}"),
            _ => error.to_string(),
        };
        (kind, Failure::environment(why))
    })
}

/// What makes a namespace the same one whatever it is reached by.
pub(super) fn identity(config: &Config, facts: &NamespaceFacts) -> String {
    let nameless = || format!("{} namespace {}", config.peer(), facts.nsid);
    facts.identity.name().unwrap_or_else(nameless)
}

/// The URL with who we are in it: a server that takes over must be the same host.
fn with_host(url: &str, config: &Config) -> String {
    if url.contains("hostnqn=") {
        return url.to_owned();
    }
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}hostnqn={}", config.host.nqn)
}

/// What is to be attached, as far as it is known without connecting.
struct Found {
    url: String,
    /// The bytes that are written behind it.
    used_bytes: Option<u64>,
    /// It may have copies on several nodes.
    is_replicated: bool,
    /// Hosts that its daemon knows.
    known_hosts: Vec<String>,
}

impl Found {
    fn url(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            used_bytes: None,
            is_replicated: false,
            known_hosts: Vec::new(),
        }
    }
}

/// A pool's volume, which lets this host connect.
fn of_pool(
    name: &VolumeName,
    host: &Host,
    arguments: &AttachArguments,
) -> Result<(Found, Option<Allowance>), Failure> {
    let api = Api::new(&arguments.api)?;
    let mut volume = api.client.volume(name)?;
    refuse_deleted(name, &volume)?;
    // A service's own attachment says `here`. Of one copy all users are this node's, and known.
    let is_told = arguments.shared || arguments.here || arguments.preempt;
    if volume.replication.is_some() && !is_told {
        refuse_of_a_service(name, &api.client.services()?)?;
    }
    if !arguments.shared {
        volume = unused(&api, name, volume, (host, arguments.preempt))?;
    }
    let allowance = Allowance::give(&arguments.api, &volume, (name, &host.nqn))?;
    let (addresses, nqn, nsid) = (
        portals(&volume, arguments.here).join(","),
        &volume.nqn,
        volume.nsid,
    );
    let mut url = format!("{}{addresses}/{nqn}?ns={nsid}", url::SCHEME);
    if volume.replication.is_some() && arguments.here {
        // What comes late is not to reach the next owner by way of this node.
        url.push_str("&forwards=off");
    } else if volume.replication.is_some() {
        // Its nodes may be others tomorrow.
        url.push_str("&discover=on");
        url.push_str(&home(&volume, arguments));
    }
    let used_bytes = match (&volume.replication, volume.layout) {
        (Some(known), _) => known.written_bytes,
        // All of it is taken from the beginning, and what is written in it is not noted.
        (None, LayoutSpec::Stripe { .. }) => None,
        (None, _) => Some(volume.used_bytes),
    };
    let is_replicated = volume.replication.is_some();
    let known_hosts = [volume.connected_hosts, volume.allow_hosts].concat();
    let found = Found {
        url,
        used_bytes,
        is_replicated,
        known_hosts,
    };
    Ok((found, allowance))
}

/// Where a volume is served: by its node, or by all that have a copy.
fn portals(volume: &VolumeStatus, here: bool) -> Vec<String> {
    let known = volume.replication.as_ref().filter(|_| !here);
    let known = known.map(|known| &known.portals);
    match known.filter(|portals| !portals.is_empty()) {
        Some(portals) => portals.clone(),
        None => vec![volume.address.clone()],
    }
}

/// The URL's option for the portal of this machine's own node, if its daemon is here and has a copy: ownership is to
/// come here, unless it stays where it is.
fn home(volume: &VolumeStatus, arguments: &AttachArguments) -> String {
    let follows = volume
        .replication
        .as_ref()
        .is_some_and(|known| known.follow);
    let is_one = portals(volume, false).contains(&volume.address);
    match follows && is_one && api_socket(arguments).is_some() {
        true => format!("&prefer={}", volume.address),
        false => String::new(),
    }
}

/// The socket of the API, if it is asked through one: then its daemon is on this machine.
fn api_socket(arguments: &AttachArguments) -> Option<PathBuf> {
    let text = arguments.api.api.as_deref().unwrap_or(Endpoint::DEFAULT);
    match text.parse() {
        Ok(Endpoint::Socket(api)) => Some(api),
        _ => None,
    }
}

/// Refuses a volume that is served no more, although it is still listed.
fn refuse_deleted(name: &VolumeName, volume: &VolumeStatus) -> Result<(), Failure> {
    match volume.state {
        VolumeState::Deleting => Err(Failure::environment(format!(
            "volume {name} is being deleted: it cannot be attached, and is listed until its space is given back"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a volume that a service has mounted, or is to mount, on whatever node: it has no reservation that would say so.
fn refuse_of_a_service(name: &VolumeName, services: &[ServiceStatus]) -> Result<(), Failure> {
    let volume = name.to_string();
    // One that has failed here may run elsewhere.
    let may_have_it = |one: &&ServiceStatus| {
        one.state != ServiceState::Stopped && one.service.volumes.contains(&volume)
    };
    match services.iter().find(may_have_it) {
        None => Ok(()),
        Some(user) => Err(Failure::environment(format!(
            "{name} is in use by service {}: `ashlar service stop {0}` first; --preempt takes the volume from it, and \
             what it writes is refused",
            user.service.name
        ))),
    }
}

/// Refuses a volume that a host uses: another one, unless it is fenced before ours writes.
fn unused(
    api: &Api,
    name: &VolumeName,
    mut volume: VolumeStatus,
    (host, fences): (&Host, bool),
) -> Result<VolumeStatus, Failure> {
    let until = Instant::now() + GONE;
    let counts = |other: &&String| **other == host.nqn || !fences;
    while let Some(other) = volume.connected_hosts.iter().find(counts) {
        let ourselves = *other == host.nqn;
        if !ourselves || Instant::now() > until {
            let who = if ourselves { "this host" } else { "host" };
            let fenced = match volume.replication.is_some() && !ourselves {
                true => "; --preempt takes the volume over, and that host can write no more",
                false => "",
            };
            return Err(Failure::environment(format!(
                "{name} is in use: {who} {other} is connected to it; --shared if no file system \
                 of that host is on it{fenced}"
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
        volume = api.client.volume(name)?;
    }
    Ok(volume)
}

#[cfg(test)]
mod tests {
    use ashlar_node::Control;
    use ashlar_node::model::{CreatePool, CreateVolume};
    use ashlar_node::testing::FakeControl;

    use super::*;

    #[test]
    fn a_volume_that_is_being_deleted_is_refused_by_its_state() {
        let control = FakeControl::new();
        let pool = CreatePool {
            name: "tank".into(),
            drives: vec!["/dev/a".into(), "/dev/b".into()],
            ..CreatePool::default()
        };
        control.create_pool(pool).expect("made");
        let name: VolumeName = "tank/db".parse().expect("a name");
        let volume = CreateVolume {
            allow_any_host: true,
            ..CreateVolume::new(&name, 1 << 30, LayoutSpec::Mirror { copies: 2 })
        };
        let mut volume = control.create_volume(volume).expect("made");
        assert!(refuse_deleted(&name, &volume).is_ok());
        volume.state = VolumeState::Deleting;
        let refusal = refuse_deleted(&name, &volume).expect_err("refused");
        assert!(refusal.message().contains("tank/db is being deleted"));
    }
}
