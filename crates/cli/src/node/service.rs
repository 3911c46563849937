//! `ashlar service`.

use std::path::PathBuf;
use std::sync::Arc;

use ashlar_node::model::{CreateService, MoveService, ServiceStatus};
use ashlar_node::service::{GuardPlan, haproxy, make_cluster, postgres};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Api;
use super::table::{duration, table, word};
use crate::args::{CreateServiceArguments, FileSystemWord, ServiceCommand, ServiceGuardArguments};
use crate::exit::Failure;
use crate::output::print;

pub(crate) fn run(command: &ServiceCommand) -> Result<(), Failure> {
    match command {
        ServiceCommand::Create(arguments) => {
            let api = Api::new(&arguments.api)?;
            let made = api.client.create_service(&wanted(arguments)?)?;
            api.show(&made, show)
        }
        ServiceCommand::List { api } => {
            let api = Api::new(api)?;
            api.show(&api.client.services()?, |services| list(services))
        }
        ServiceCommand::Show { service, api } => {
            let api = Api::new(api)?;
            api.show(&api.client.service(service)?, show)
        }
        ServiceCommand::Start { service, api } => {
            let api = Api::new(api)?;
            api.show(&api.client.start_service(service)?, show)
        }
        ServiceCommand::Stop { service, api } => {
            let api = Api::new(api)?;
            api.show(&api.client.stop_service(service)?, show)
        }
        ServiceCommand::Move { service, to, api } => {
            let api = Api::new(api)?;
            let request = MoveService { to: to.clone() };
            api.show(&api.client.move_service(service, &request)?, show)
        }
        ServiceCommand::Delete { service, api } => {
            Ok(Api::new(api)?.client.delete_service(service)?)
        }
        ServiceCommand::Haproxy {
            service,
            listen,
            nodes,
            port,
            api,
        } => {
            let token = api.token_file.clone();
            if token.is_none() {
                eprintln!(
                    "ashlar: put the text of DIR/api.token in the place of TOKEN, or say --token-file: nodes answer \
                     nothing without it"
                );
            }
            let (known, address) = match nodes.is_empty() {
                true => {
                    let one = Api::new(api)?.client.service(service)?;
                    if !one.service.start.contains(&port.to_string()) {
                        eprintln!(
                            "ashlar: port {port} is not in the start command of {service}: --port says another"
                        );
                    }
                    (known_nodes(&one, *port)?, one.service.address)
                }
                false => (nodes.clone(), None),
            };
            let without = address.map_or_else(String::new, |address| {
                let ip = address.ip();
                format!("# Clients on its network need no proxy: {service} is at {ip} wherever it runs.\n")
            });
            let text = haproxy(service, listen, &known, token.as_deref())?;
            print(&(without + &text))
        }
    }
}

/// `ashlar service-guard`. It ends when its daemon does or says so, not with what ends all programs of this name, or of a
/// unit, and would end a healthy service with it.
pub(crate) fn guard(arguments: &ServiceGuardArguments) -> Result<(), Failure> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // It is noted where none looks.
        let ignored = signal_hook::flag::register(signal, Arc::default());
        ignored.map_err(|error| Failure::environment(format!("signals: {error}")))?;
    }
    let plan = GuardPlan {
        group: arguments.group.clone(),
        mounts: arguments.mounts.clone(),
        address: arguments.address.clone(),
    };
    ashlar_node::service::guard(&plan).map_err(Failure::environment)
}

fn wanted(arguments: &CreateServiceArguments) -> Result<CreateService, Failure> {
    let file_system = match arguments.fs {
        FileSystemWord::Xfs => "xfs",
        FileSystemWord::Ext4 => "ext4",
    };
    let mut service = CreateService {
        name: arguments.service.clone(),
        volumes: arguments.volumes.iter().map(ToString::to_string).collect(),
        // Shells append a slash.
        mounts: arguments
            .mounts
            .iter()
            .map(|mount| mount.components().collect())
            .collect(),
        user: arguments.user.clone(),
        start: arguments.start.clone().unwrap_or_default(),
        drain: arguments.drain.clone(),
        stop: arguments.stop.clone(),
        ready: arguments.ready.clone(),
        file_system: Some(file_system.into()),
        address: arguments.address.clone(),
    };
    if arguments.postgres {
        fill_in(&mut service, arguments.port)?;
    }
    Ok(service)
}

/// What a PostgreSQL needs that was not said.
fn fill_in(service: &mut CreateService, port: u16) -> Result<(), Failure> {
    let programs = postgres()?;
    let bin = programs.display();
    let Some(mount) = service.mounts.first() else {
        return Err(Failure::usage(
            "--postgres: needs a volume and a mount point",
        ));
    };
    let log = service.mounts.get(1).map(PathBuf::as_path);
    let make = make_cluster(&programs, mount, log);
    let (mount, db) = (mount.display(), mount.join("db"));
    let db = db.display();
    if service.mounts.iter().any(|mount| {
        mount
            .to_string_lossy()
            .contains([' ', '\'', '"', '$', '\\'])
    }) {
        return Err(Failure::usage(
            "--postgres: a mount point has no spaces and no quotes; say --start yourself",
        ));
    }
    service.user.get_or_insert_with(|| "postgres".into());
    if service.start.is_empty() {
        service.start = format!(
            "{make} && rm -f {db}/postmaster.pid && \
             exec {bin}/postgres -D {db} -p {port} -k {mount} -c listen_addresses='*'"
        );
    }
    // What is left for the fast shutdown, and for recovery, is little. The second has what was written during the first.
    service.drain.get_or_insert_with(|| {
        format!("{bin}/psql -qX -h {mount} -p {port} -d postgres -c checkpoint -c checkpoint")
    });
    // Its end is waited for by its processes, sooner than pg_ctl would see it.
    service
        .stop
        .get_or_insert_with(|| format!("{bin}/pg_ctl -D {db} -W -m fast stop"));
    service
        .ready
        .get_or_insert_with(|| format!("{bin}/pg_isready -q -t 3 -h {mount} -p {port}"));
    Ok(())
}

fn list(services: &[ServiceStatus]) -> String {
    let rows = services.iter().map(|one| {
        vec![
            one.service.name.clone(),
            word(one.state),
            one.node.clone().unwrap_or_else(|| "-".into()),
            one.service.volumes.join(","),
            one.reason.clone().unwrap_or_default(),
        ]
    });
    table(
        &["service", "state", "node", "volumes", "reason"],
        &rows.collect::<Vec<_>>(),
    )
}

fn show(one: &ServiceStatus) -> String {
    let volumes = one.service.volumes.iter().zip(&one.service.mounts);
    let volumes: Vec<String> = volumes
        .map(|(volume, mount)| format!("{volume} on {}", mount.display()))
        .collect();
    let gap = one
        .last_gap_seconds
        .map_or_else(|| "none".into(), |gap| format!("{gap:.1} s"));
    let mut text = format!(
        "{}: {}{}\n  node      {} since epoch {}, {} moves\n  for       {}\n  volumes   {}\n  started   {} times, {} failures, last gap {gap}\n",
        one.service.name,
        word(one.state),
        one.reason
            .as_ref()
            .map_or_else(String::new, |why| format!(": {why}")),
        one.node.as_deref().unwrap_or("none"),
        one.epoch,
        one.moves,
        duration(one.since_seconds as u64),
        volumes.join(", "),
        one.starts,
        one.failures,
    );
    if let Some(address) = &one.service.address {
        let here = match one.address_here {
            Some(true) => "on this node",
            _ => "not on this node",
        };
        text.push_str(&format!("  address   {address}, {here}\n"));
    }
    for warning in &one.warnings {
        text.push_str(&format!("  warning   {warning}\n"));
    }
    text
}

/// The nodes of a service, as `--node` says them.
fn known_nodes(one: &ServiceStatus, port: u16) -> Result<Vec<String>, Failure> {
    let name = &one.service.name;
    if one.nodes.is_empty() {
        return Err(Failure::environment(format!(
            "service {name} is on volumes that are not replicated: say its node by --node"
        )));
    }
    let known = one.nodes.iter().map(|node| match node.api {
        Some(api) if !api.ip().is_unspecified() => Ok(format!("{api}:{port}")),
        Some(api) => Err(Failure::environment(format!(
            "node {}: its API listens on all addresses ({api}): say one by --node",
            node.name
        ))),
        None => Err(Failure::environment(format!(
            "node {}: its API listens on no TCP address that is known here: start it with --api ADDR:PORT, or say it \
             by --node",
            node.name
        ))),
    });
    known.collect()
}
