//! `ashlar volume`.

use ashlar_node::model::{
    AllowHosts, ControlError, CreateVolume, DeleteVolume, DenyHosts, ErrorKind, IoCounters,
    MoveVolume, ReopenCache, ReplicateVolume, ResizeVolume, RunAlone, SetFollow, SetWhenDegraded,
    TierStatus, VolumeStats, VolumeStatus, WhenDegraded,
};

use super::table::{bytes, duration, lines, table, word};
use super::{Api, size};
use super::{cache, replication};
use crate::args::{self, CreateVolumeArguments, VolumeCommand};
use crate::exit::Failure;
use crate::output::print;

pub(crate) fn run(command: &VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create(arguments) => create(arguments),
        VolumeCommand::List { pool, api } => {
            let api = Api::new(api)?;
            let mut volumes = api.client.volumes()?;
            if let Some(pool) = pool {
                // A pool that is not there is an error, not an empty list.
                api.client.pool(pool)?;
                volumes.retain(|volume| volume.pool == *pool);
            }
            api.show(&volumes, |volumes| list(volumes))
        }
        VolumeCommand::Show { volume, api } => {
            let api = Api::new(api)?;
            api.show(&api.client.volume(volume)?, show)
        }
        VolumeCommand::Resize {
            volume,
            size: text,
            destroy_data,
            api,
        } => {
            let api = Api::new(api)?;
            let request = ResizeVolume {
                bytes: size(text)?,
                destroy_data: *destroy_data,
            };
            api.show(&api.client.resize_volume(volume, &request)?, |resized| {
                let left = crate::attach::after_growth(&volume.to_string(), resized.bytes);
                show(resized) + &left
            })
        }
        VolumeCommand::Set {
            volume,
            when_degraded,
            follow,
            api,
        } => {
            let api = Api::new(api)?;
            let mut status = None;
            if let Some(when) = when_degraded {
                let when_degraded = said(*when);
                let request = SetWhenDegraded { when_degraded };
                status = Some(api.client.set_when_degraded(volume, &request)?);
            }
            if let Some(follow) = follow {
                let follow = *follow == args::OnOff::On;
                status = Some(api.client.set_follow(volume, &SetFollow { follow })?);
            }
            status.map_or(Ok(()), |status| api.show(&status, show))
        }
        VolumeCommand::Replicate {
            volume,
            replicas,
            nodes,
            api,
        } => {
            let api = Api::new(api)?;
            let request = ReplicateVolume {
                replicas: *replicas,
                nodes: nodes.clone(),
            };
            api.show(&api.client.replicate_volume(volume, &request)?, show)
        }
        VolumeCommand::RunAlone {
            volume,
            accept_data_loss,
            force,
            api,
        } => {
            let api = Api::new(api)?;
            let request = RunAlone {
                accept_data_loss: *accept_data_loss,
                force: *force,
            };
            api.show(&api.client.run_alone(volume, &request)?, show)
        }
        VolumeCommand::Move { volume, to, api } => {
            let api = Api::new(api)?;
            let request = MoveVolume { to: to.clone() };
            api.show(&api.client.move_volume(volume, &request)?, show)
        }
        VolumeCommand::Verify { volume, api } => replication::verify(volume, api),
        VolumeCommand::Hosts { volume, api } => {
            let api = Api::new(api)?;
            api.show(&api.client.volume(volume)?, host_list)
        }
        VolumeCommand::Allow { volume, hosts, api } => {
            let api = Api::new(api)?;
            let request = AllowHosts {
                hosts: hosts.hosts.clone(),
                any_host: hosts.any_host,
            };
            api.show(&api.client.allow_hosts(volume, &request)?, host_list)
        }
        VolumeCommand::Deny {
            volume,
            hosts,
            disconnect,
            api,
        } => {
            let api = Api::new(api)?;
            let request = DenyHosts {
                hosts: hosts.hosts.clone(),
                any_host: hosts.any_host,
                disconnect: *disconnect,
            };
            api.show(&api.client.deny_hosts(volume, &request)?, host_list)
        }
        VolumeCommand::Delete {
            volume,
            destroy_data,
            force,
            accept_data_loss,
            api,
        } => {
            if *accept_data_loss {
                // What cannot be listed can be given up all the same.
                if let Err(failure) = cache::newer(volume, api) {
                    eprintln!(
                        "ashlar: what is lost cannot be listed: {}",
                        failure.message()
                    );
                }
            }
            let api = Api::new(api)?;
            let request = DeleteVolume {
                destroy_data: *destroy_data,
                force: *force,
                accept_data_loss: *accept_data_loss,
            };
            let deleted = api.client.delete_volume(volume, &request);
            let it = || api.client.volume(volume).map(|volume| vec![volume]);
            deleted.map_err(|error| with_mounts(error, it))?;
            match api.json {
                true => Ok(()),
                false => print(&format!("volume {volume} is deleted\n")),
            }
        }
        VolumeCommand::Flush { volume, api } => cache::flush(volume, api),
        VolumeCommand::Newer { volume, api } => cache::newer(volume, api),
        VolumeCommand::Reopen {
            volume,
            backing,
            other_device,
            accept_data_loss,
            api,
        } => {
            let api = Api::new(api)?;
            let backing = backing.as_deref().map(|text| api.device(text));
            let request = ReopenCache {
                backing: backing.transpose()?,
                other_device: *other_device,
                accept_data_loss: *accept_data_loss,
            };
            api.show(&api.client.reopen_volume(volume, &request)?, show)
        }
        VolumeCommand::Stats { volume, api } => {
            let api = Api::new(api)?;
            api.show(&api.client.volume_stats(volume)?, stats)
        }
    }
}

/// What is refused for a host that is connected to one of these volumes, with where that is if it is this one. This
/// machine may have a volume of that name from another daemon.
pub(super) fn with_mounts(
    mut error: ControlError,
    volumes: impl FnOnce() -> Result<Vec<VolumeStatus>, ControlError>,
) -> ControlError {
    if error.kind != ErrorKind::Refused {
        return error;
    }
    let volumes = volumes().unwrap_or_default().into_iter();
    let used = volumes.filter(|volume| !volume.connected_hosts.is_empty());
    let used: Vec<String> = used.map(|volume| volume.nqn).collect();
    if let Some(places) = crate::attach::where_attached(&used) {
        error.message = format!("{}. {places}", error.message);
    }
    error
}

fn create(arguments: &CreateVolumeArguments) -> Result<(), Failure> {
    if let Some(backing) = &arguments.cache.backing {
        return cache::create(arguments, backing);
    }
    let (Some(bytes), Some(layout)) = (&arguments.size, arguments.layout) else {
        return Err(Failure::usage("a volume has --size and --layout"));
    };
    let grain = arguments.grain.as_deref().map(size).transpose()?;
    let grain = grain.map(u32::try_from).transpose();
    let request = CreateVolume {
        grain_bytes: grain.map_err(|_| Failure::usage("--grain: say 8k, 16k, 32k or 64k"))?,
        class: arguments.class,
        hot: arguments.hot,
        hot_share_percent: arguments.hot_share,
        when_degraded: said(arguments.when_degraded),
        replicas: arguments.replicas,
        nodes: arguments.nodes.clone(),
        allow_hosts: arguments.hosts.allow_hosts.clone(),
        allow_any_host: arguments.hosts.allow_any_host,
        ..CreateVolume::new(&arguments.volume, size(bytes)?, layout)
    };
    let api = Api::new(&arguments.api)?;
    let volume = api.client.create_volume(&request)?;
    tell_of_hosts(&volume);
    api.show(&volume, show)
}

/// Says how a new volume can be used, if nothing may use it yet.
pub(super) fn tell_of_hosts(volume: &VolumeStatus) {
    if volume.allow_hosts.is_empty() && !volume.allow_any_host {
        eprintln!(
            "ashlar: no host may connect to {0} yet: `ashlar volume allow {0} --host NQN` lets one in, by \
             what is in its /etc/nvme/hostnqn; `ashlar attach {0}` lets this host in by itself",
            format_args!("{}/{}", volume.pool, volume.name)
        );
    }
}

fn said(when: args::WhenDegraded) -> WhenDegraded {
    match when {
        args::WhenDegraded::Continue => WhenDegraded::Continue,
        args::WhenDegraded::Stop => WhenDegraded::Stop,
    }
}

fn hosts(volume: &VolumeStatus) -> String {
    let listed = volume.allow_hosts.join(", ");
    match (volume.allow_any_host, volume.allow_hosts.is_empty()) {
        (true, true) => "any".into(),
        (true, false) => format!("any; listed: {listed}"),
        (false, true) => "none".into(),
        (false, false) => listed,
    }
}

/// Who may connect, and who is connected, one host a line.
fn host_list(volume: &VolumeStatus) -> String {
    let listed = &volume.allow_hosts;
    let connected = &volume.connected_hosts;
    let guests = connected.iter().filter(|host| !listed.contains(host));
    let row = |host: &String| {
        let allowed = match (listed.contains(host), volume.allow_any_host) {
            (true, _) => "by name",
            (false, true) => "as any host",
            (false, false) => "no",
        };
        let here = if connected.contains(host) {
            "yes"
        } else {
            "no"
        };
        vec![host.clone(), allowed.to_owned(), here.to_owned()]
    };
    let mut rows: Vec<Vec<String>> = listed.iter().chain(guests).map(row).collect();
    if volume.allow_any_host {
        rows.push(vec!["any other".into(), "as any host".into(), "-".into()]);
    }
    match rows.is_empty() {
        true => format!("no host may connect to {}/{}\n", volume.pool, volume.name),
        false => table(&["host", "allowed", "connected"], &rows),
    }
}

fn list(volumes: &[VolumeStatus]) -> String {
    if volumes.is_empty() {
        return "there are no volumes\n".into();
    }
    let row = |volume: &VolumeStatus| {
        vec![
            format!("{}/{}", volume.pool, volume.name),
            word(volume.state),
            volume.layout.to_string(),
            bytes(volume.bytes),
            bytes(volume.used_bytes),
            volume.connected_hosts.len().to_string(),
            volume.nqn.clone(),
        ]
    };
    let head = ["volume", "state", "layout", "size", "used", "hosts", "nqn"];
    table(&head, &volumes.iter().map(row).collect::<Vec<_>>())
}

pub(super) fn show(volume: &VolumeStatus) -> String {
    let state = match &volume.reason {
        Some(reason) => format!("{}: {reason}", word(volume.state)),
        None => word(volume.state),
    };
    let atomic = match volume.atomic_bytes {
        0 => "nothing is promised".to_owned(),
        count => bytes(count.into()),
    };
    let grain = match volume.grain_bytes {
        0 => "none".to_owned(),
        count => bytes(count.into()),
    };
    let cache = match volume.volatile_cache {
        true => "volatile: hosts must flush",
        false => "none: what is acknowledged is durable",
    };
    let connected = match volume.connected_hosts.is_empty() {
        true => "none".to_owned(),
        false => volume.connected_hosts.join(", "),
    };
    let mut all = vec![
        ("volume", format!("{}/{}", volume.pool, volume.name)),
        ("state", state),
        ("nqn", volume.nqn.clone()),
        ("nsid", volume.nsid.to_string()),
        ("uuid", volume.uuid.to_string()),
        ("address", volume.address.clone()),
        ("layout", volume.layout.to_string()),
        (
            "class",
            volume
                .class
                .map_or("any".to_owned(), |class| class.to_string()),
        ),
        (
            "size",
            format!("{} ({} bytes)", bytes(volume.bytes), volume.bytes),
        ),
        ("used", bytes(volume.used_bytes)),
        ("block", bytes(volume.block_bytes.into())),
        ("grain", grain),
        ("atomic", atomic),
        ("write cache", cache.to_owned()),
        ("when degraded", word(volume.when_degraded)),
        ("allowed hosts", hosts(volume)),
        ("connected hosts", connected),
    ];
    all.extend(volume.tier.iter().flat_map(tier_lines));
    all.extend(cache::lines_of(volume));
    all.extend(replication::lines_of(volume));
    let mut text = lines(&all);
    for warning in &volume.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text
}

/// Lines about a volume's hot home.
fn tier_lines(tier: &TierStatus) -> Vec<(&'static str, String)> {
    let ratio = match tier.hit_ratio {
        None => "no reads yet".to_owned(),
        Some(ratio) => format!("{:.1} % of {} slots read", ratio * 100.0, tier.reads),
    };
    let cost = match tier.device_bytes_per_user_byte {
        None => "no writes yet".to_owned(),
        Some(cost) => format!("{cost:.2} (ring, homes and moves)"),
    };
    let demoting = if tier.demoting {
        "; cold slots leave it"
    } else {
        ""
    };
    vec![
        ("hot home", tier.hot.to_string()),
        (
            "hot",
            format!(
                "{} of {} ({} %){demoting}",
                bytes(tier.hot_bytes),
                bytes(tier.share_bytes),
                tier.share_percent
            ),
        ),
        ("hot reads", ratio),
        (
            "moved",
            format!(
                "{} to the hot home, {} from it",
                bytes(tier.promoted_bytes),
                bytes(tier.demoted_bytes)
            ),
        ),
        ("device bytes a user byte", cost),
    ]
}

fn stats(stats: &VolumeStats) -> String {
    let row = |(name, counters): (&str, IoCounters)| {
        let mean = match counters.operations {
            0 => "-".to_owned(),
            count => format!("{} us", counters.latency_total_us / count),
        };
        vec![
            name.to_owned(),
            counters.operations.to_string(),
            bytes(counters.bytes),
            counters.errors.to_string(),
            mean,
        ]
    };
    let rows = [
        ("read", stats.read),
        ("write", stats.write),
        ("flush", stats.flush),
        ("deallocate", stats.deallocate),
    ];
    let head = ["operation", "count", "bytes", "errors", "mean latency"];
    let online = duration(stats.since_seconds);
    format!(
        "online for {online}, {} in flight\n\n{}",
        stats.in_flight,
        table(&head, &rows.map(row))
    )
}
