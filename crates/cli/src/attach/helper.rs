//! The processes behind an attachment, as `attach` starts them.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ashlar_attach::{Folder, PathStatus, Paths, ServerOptions, State};
use ashlar_block::ErrorKind;
use ashlar_nvme_initiator::{
    Config, PathBoard, PathReport, Remote, local_host, recorded_portals, url,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::namespace;
use crate::args::HelperArguments;
use crate::exit::Failure;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The file in the attachment's folder that names the association in use.
pub(super) const ASSOCIATION: &str = "association";
/// Most memory for data on its way.
const POOL_BYTES: usize = 256 << 20;
/// As good as for ever, and far from where sums of times overflow.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// `ashlar attach-guardian`.
pub(crate) fn guardian(arguments: &HelperArguments) -> Result<(), Failure> {
    let folder = Folder::at(&arguments.folder);
    let guarded = ashlar_attach::guard(&folder, |takes_over| {
        // This very program, even if its file has been replaced by a newer version, or is gone.
        let mut command = Command::new("/proc/self/exe");
        command.arg("attach-server").arg(folder.path());
        if takes_over {
            command.arg("--takes-over");
        }
        command
    });
    Ok(guarded?)
}

/// The initiator's paths, as attachments tell of them.
#[derive(Debug)]
struct Board(PathBoard);

impl Paths for Board {
    fn paths(&self) -> Vec<PathStatus> {
        let status = |path: PathReport| PathStatus {
            state: path.word().to_owned(),
            in_use: path.is_in_use,
            failure: path.failure.filter(|_| path.state.is_none()),
            address: path.address,
        };
        self.0.paths().into_iter().map(status).collect()
    }

    fn fenced(&self) -> Option<String> {
        self.0.fenced()
    }
}

/// `ashlar attach-server`.
pub(crate) fn server(arguments: &HelperArguments) -> Result<(), Failure> {
    let folder = Folder::at(&arguments.folder);
    let state = folder.state()?;
    // A write of a server that was killed may still be on its way when the next begins.
    let record = folder.path().join(ASSOCIATION);
    let remote = connect(&state, &record, arguments.takes_over)?
        .recorded_in(&record)
        .map_err(|error| Failure::environment(error.to_string()))?;
    let fuse = std::io::stdin().as_fd().try_clone_to_owned();
    let fuse = fuse.map_err(|error| Failure::environment(format!("/dev/fuse: {error}")))?;
    let options = ServerOptions {
        dir: folder.path(),
        spin: state.spin.0,
        pool_bytes: POOL_BYTES,
        trace: state.trace.as_deref(),
        paths: Some(Arc::new(Board(remote.board()))),
        takes_over: arguments.takes_over,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let signals = Signals::new([SIGINT, SIGTERM]);
    let mut signals = signals.map_err(|e| Failure::environment(format!("signals: {e}")))?;
    let ready = move |waker: ashlar_reactor::Waker| {
        ashlar_attach::announce();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                stopped.store(true, Ordering::Release);
                waker.wake();
            }
        });
    };
    Ok(ashlar_attach::serve(fuse, &remote, &options, stop, ready)?)
}

/// Connects; one that takes over waits for the volume, as requests do.
fn connect(state: &State, record: &Path, takes_over: bool) -> Result<Remote, Failure> {
    let config = url::parse(&state.url, &local_host()).map_err(Failure::usage)?;
    let limit = state.limit_seconds.map_or(FOR_EVER, Duration::from_secs);
    let limit = limit.min(FOR_EVER);
    let mut config = Config {
        loss: limit,
        patient: true,
        holds_reservation: state.reserved,
        ..config
    };
    // Those that were named at the attach may all be gone by now.
    let learned = recorded_portals(record);
    config.add_portals(learned.map_err(|error| Failure::environment(error.to_string()))?);
    let until = Instant::now() + limit;
    let mut pause = FIRST_PAUSE;
    loop {
        let failure = match namespace::connect(config.clone()) {
            Ok(remote) => return same(state, &config, remote),
            Err((ErrorKind::Denied, failure)) => failure,
            Err((_, failure)) if !takes_over || Instant::now() > until => failure,
            Err(_) => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            }
        };
        return Err(failure);
    }
}

/// The namespace must be the one that was attached.
fn same(state: &State, config: &Config, remote: Remote) -> Result<Remote, Failure> {
    let facts = remote.facts();
    let identity = namespace::identity(config, facts);
    let (bytes, block) = (facts.geometry.bytes(), facts.geometry.block_size.bytes());
    if identity != state.identity || bytes < state.bytes || block != state.block_bytes {
        return Err(Failure::environment(format!(
            "{}: another namespace answers: {identity} of {bytes} bytes, not {} of {}",
            config.peer(),
            state.identity,
            state.bytes
        )));
    }
    Ok(remote)
}
