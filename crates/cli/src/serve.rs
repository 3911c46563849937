//! `ashlar serve`.

use std::io::Write;
use std::path::Path;

use ashlar_device::Spec;
use ashlar_nvme::fabrics::Nqn;
use ashlar_nvme_target::server::{
    CoreDeath, Export, ReservationFile, ServeError, Server, ServerConfig,
};
use ashlar_nvme_target::{HostAccess, Reservations, Timeouts};
use ashlar_reactor::{Options, available_cores, raise_file_limit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::ServeArguments;
use crate::exit::Failure;
use crate::serve_shared;
use crate::stack;

/// Serves until SIGINT or SIGTERM.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    raise_file_limit();
    let server = Server::start(config(arguments)?).map_err(failure)?;
    stop_on_signals(server.stopper())?;
    announce(&server, &arguments.nqn)?;
    if arguments.shared.orders {
        serve_shared::take_orders(server.control(), arguments.nqn.clone())?;
    }
    server.wait().map_err(failure)
}

fn failure(error: ServeError) -> Failure {
    match error {
        ServeError::Config(error) => Failure::usage(error),
        other => Failure::environment(other),
    }
}

fn config(arguments: &ServeArguments) -> Result<ServerConfig, Failure> {
    let block = stack::block_size(arguments.block)?;
    warn_of_odd_nqn(&arguments.nqn);
    let mut devices = Vec::new();
    for text in &arguments.devices {
        let spec: Spec = text.parse()?;
        devices.push(stack::open(&spec, block)?);
    }
    for (index, device) in devices.iter().enumerate() {
        eprintln!("nsid {}: {}", index + 1, device.describe());
    }
    let export = Export {
        nqn: arguments.nqn.clone(),
        devices,
        identities: Vec::new(),
        access: access(arguments),
        advertise: arguments.advertise,
        reservations: reservations(arguments)?,
        shared: serve_shared::shared(&arguments.shared)?,
    };
    Ok(ServerConfig {
        listen: arguments.listen,
        cores: cores(arguments)?,
        reactor: Options {
            spin: arguments.spin,
            pool_bytes: arguments.buffer_mib.max(16) << 20,
            files: 8192,
            ..Options::default()
        },
        exports: vec![export],
        timeouts: Timeouts::default(),
        hold: false,
        on_core_death: CoreDeath::EndProcess,
    })
}

/// A file for each device: `NSID.reservations`.
fn reservations(arguments: &ServeArguments) -> Result<Vec<Option<Reservations>>, Failure> {
    let Some(folder) = &arguments.reservations else {
        return Ok(Vec::new());
    };
    let failed = |path: &Path, error: std::io::Error| {
        Failure::environment(format!("--reservations {}: {error}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let open = |nsid: usize| {
        let path = folder.join(format!("{nsid}.reservations"));
        let opened = ReservationFile::open(&path);
        let opened = opened.map_err(|error| failed(&path, error))?;
        Ok(Some(Reservations::Kept(opened)))
    };
    (1..=arguments.devices.len()).map(open).collect()
}

fn warn_of_odd_nqn(nqn: &str) {
    if let (Err(error), true) = (Nqn::new(nqn), Nqn::lenient(nqn).is_ok()) {
        eprintln!("ashlar: --nqn {nqn}: {error}; some hosts will refuse it");
    }
}

fn access(arguments: &ServeArguments) -> HostAccess {
    if arguments.allow_any_host {
        return HostAccess::Any;
    }
    if arguments.allow_hosts.is_empty() {
        eprintln!("ashlar: no host may connect: name some with --allow-host, or --allow-any-host");
    }
    HostAccess::Listed(arguments.allow_hosts.clone())
}

fn cores(arguments: &ServeArguments) -> Result<Vec<usize>, Failure> {
    let available = available_cores();
    if arguments.cores.is_empty() {
        return Ok(available.into_iter().take(1).collect());
    }
    let mut cores = arguments.cores.clone();
    cores.sort_unstable();
    cores.dedup();
    match cores.iter().find(|core| !available.contains(core)) {
        Some(core) => Err(Failure::usage(format!(
            "--cores: core {core} is not among those this process may use ({available:?})"
        ))),
        None => Ok(cores),
    }
}

fn stop_on_signals(stop: impl Fn() + Send + 'static) -> Result<(), Failure> {
    let signals = Signals::new([SIGINT, SIGTERM]);
    let mut signals = signals.map_err(|e| Failure::environment(format!("signals: {e}")))?;
    let wait = move || {
        for _ in signals.forever() {
            stop();
        }
    };
    let thread = std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait);
    thread
        .map(|_| ())
        .map_err(|e| Failure::environment(format!("cannot start a thread: {e}")))
}

fn announce(server: &Server, nqn: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready {} {nqn}", server.address())
        .and_then(|()| out.flush())
        .map_err(|e| Failure::environment(format!("standard output: {e}")))
}
