use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use ashlar_block::{BlockDevice, IoError};
use ashlar_reactor::{
    Handle, Mailbox, NetError, Opener, Options, Reactor, SetupError, listen, pin_to_core,
};
use uuid::Uuid;

use super::placement::Placement;
use super::worker::{Common, Mail, Worker};
use crate::config::{HostAccess, NamespaceConfig, SubsystemConfig, Timeouts};
use crate::core::Core;
use crate::target::{ConfigError, Target};

/// A subsystem and the devices behind its namespaces.
pub struct Export {
    /// Its NQN.
    pub nqn: String,
    /// Its devices: nsid 1, 2, …
    pub devices: Vec<Arc<dyn Opener>>,
    /// Who may connect.
    pub access: HostAccess,
    /// What discovery tells hosts to connect to, if not the address they used.
    pub advertise: Option<SocketAddr>,
}

/// What to serve, where, and with what.
pub struct ServerConfig {
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The cores to run on, one thread each.
    pub cores: Vec<usize>,
    /// How each core's reactor is set up.
    pub reactor: Options,
    /// The subsystems.
    pub exports: Vec<Export>,
    /// How long hosts may keep the target waiting.
    pub timeouts: Timeouts,
}

/// Why a server did not start, or ended.
#[derive(Debug)]
pub enum ServeError {
    /// The configuration makes no sense.
    Config(ConfigError),
    /// The address cannot be listened on.
    Net(NetError),
    /// A core's reactor cannot be made.
    Setup(SetupError),
    /// A device cannot be opened.
    Device(IoError),
    /// A core has died: a defect, or the kernel refused to go on.
    Core(usize, String),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Net(error) => error.fmt(f),
            Self::Setup(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Core(core, why) => write!(f, "the thread of core {core} has died: {why}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// The identity of a namespace: the same for the same subsystem and number after every restart, so
/// that hosts recognise it.
fn namespace_uuid(nqn: &str, nsid: usize) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("{nqn}#{nsid}").as_bytes())
}

fn subsystem_config(export: &Export) -> SubsystemConfig {
    let namespace = |(index, device): (usize, &Arc<dyn Opener>)| NamespaceConfig {
        geometry: device.geometry(),
        uuid: namespace_uuid(&export.nqn, index + 1),
    };
    SubsystemConfig {
        nqn: export.nqn.clone(),
        namespaces: export.devices.iter().enumerate().map(namespace).collect(),
        access: export.access.clone(),
        advertise: export.advertise,
    }
}

/// What a core tells whoever started it.
enum Report {
    Ready(Mailbox<Mail>),
    Ended(usize, Result<(), ServeError>),
}

/// A running target.
pub struct Server {
    address: SocketAddr,
    target: Arc<Target>,
    mailboxes: Vec<Mailbox<Mail>>,
    reports: Receiver<Report>,
    threads: Vec<JoinHandle<()>>,
}

/// What a core's thread is started with.
struct Seat {
    index: usize,
    core: usize,
    options: Options,
    target: Arc<Target>,
    devices: Vec<Arc<dyn Opener>>,
}

impl Server {
    /// Opens the devices on every core, listens, and returns when hosts can connect.
    pub fn start(config: ServerConfig) -> Result<Self, ServeError> {
        let subsystems = config.exports.iter().map(subsystem_config).collect();
        let target = Target::new(subsystems, config.timeouts).map_err(ServeError::Config)?;
        let (run, _) = Uuid::new_v4().as_u64_pair();
        let target = Arc::new(target.with_run(run));
        let (listener, address) = listen(config.listen).map_err(ServeError::Net)?;
        let devices: Vec<_> = config.exports.into_iter().flat_map(|e| e.devices).collect();
        let (sender, reports) = channel();
        let mut server = Self {
            address,
            target,
            mailboxes: Vec::new(),
            reports,
            threads: Vec::new(),
        };
        let mut starts = Vec::new();
        for (index, &core) in config.cores.iter().enumerate() {
            let (start, started) = channel();
            let seat = Seat {
                index,
                core,
                options: config.reactor.clone(),
                target: server.target.clone(),
                devices: devices.clone(),
            };
            server.spawn(seat, sender.clone(), started)?;
            starts.push(start);
            server.await_ready()?;
        }
        server.release(starts, listener);
        Ok(server)
    }

    fn spawn(
        &mut self,
        seat: Seat,
        sender: Sender<Report>,
        started: Receiver<Start>,
    ) -> Result<(), ServeError> {
        let core = seat.core;
        let thread = std::thread::Builder::new()
            .name(format!("core-{core}"))
            .spawn(move || {
                let reports = sender.clone();
                let run = AssertUnwindSafe(|| serve(seat, &reports, &started));
                let result = catch_unwind(run).unwrap_or_else(|panic| {
                    Err(ServeError::Core(core, panic_text(panic.as_ref())))
                });
                // Nobody listens any more when the server itself is gone.
                let _ = sender.send(Report::Ended(core, result));
            });
        let thread = thread.map_err(|error| ServeError::Core(core, error.to_string()))?;
        self.threads.push(thread);
        Ok(())
    }

    fn await_ready(&mut self) -> Result<(), ServeError> {
        match self.reports.recv() {
            Ok(Report::Ready(mailbox)) => {
                self.mailboxes.push(mailbox);
                Ok(())
            }
            Ok(Report::Ended(_, Err(error))) => Err(error),
            Ok(Report::Ended(core, Ok(()))) => {
                Err(ServeError::Core(core, "it ended at once".into()))
            }
            Err(_) => Err(ServeError::Core(0, "it said nothing".into())),
        }
    }

    /// Lets the cores go, now that each can know the others.
    fn release(&self, starts: Vec<Sender<Start>>, listener: OwnedFd) {
        let common = Arc::new(Common {
            placement: Placement::new(starts.len()),
            mailboxes: self.mailboxes.clone(),
        });
        let mut listener = Some(listener);
        for start in starts {
            let message = Start {
                common: common.clone(),
                listener: listener.take(),
            };
            // A thread that has died has reported it.
            let _ = start.send(message);
        }
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters and configuration.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// A handle that stops the server from another thread.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + use<> {
        let mailboxes = self.mailboxes.clone();
        move || {
            mailboxes
                .iter()
                .for_each(|mailbox| mailbox.post(Mail::Stop))
        }
    }

    /// Waits until the server was stopped, or one of its cores has died.
    pub fn wait(self) -> Result<(), ServeError> {
        let mut running = self.threads.len();
        while running > 0 {
            match self.reports.recv() {
                Ok(Report::Ended(_, Ok(()))) => running -= 1,
                Ok(Report::Ended(_, Err(error))) => return Err(error),
                Ok(Report::Ready(_)) => {}
                Err(_) => return Err(ServeError::Core(0, "it ended without a report".into())),
            }
        }
        for thread in self.threads {
            // It has reported its end; a panic was caught and reported too.
            let _ = thread.join();
        }
        Ok(())
    }
}

struct Start {
    common: Arc<Common>,
    listener: Option<OwnedFd>,
}

/// A core's thread.
fn serve(
    seat: Seat,
    reports: &Sender<Report>,
    started: &Receiver<Start>,
) -> Result<(), ServeError> {
    let died = |error: std::io::Error| ServeError::Core(seat.core, error.to_string());
    pin_to_core(seat.core).map_err(|error| {
        ServeError::Core(seat.core, format!("cannot run on this core: {error}"))
    })?;
    let mut reactor = Reactor::new(&seat.options).map_err(ServeError::Setup)?;
    let handle = reactor.handle().clone();
    let devices = open_all(&seat.devices, &handle)?;
    let core = Core::new(seat.target.clone(), devices, handle.buffers());
    let mailbox = Mailbox::new(handle.waker());
    if reports.send(Report::Ready(mailbox)).is_err() {
        return Ok(());
    }
    let Ok(start) = started.recv() else {
        return Ok(());
    };
    let mut worker = Worker::new(seat.index, start.common, &handle, core);
    if let Some(listener) = start.listener {
        worker.listen(listener);
    }
    worker.run(&mut reactor).map_err(died)
}

fn open_all(
    devices: &[Arc<dyn Opener>],
    handle: &Handle,
) -> Result<Vec<Box<dyn BlockDevice>>, ServeError> {
    devices
        .iter()
        .map(|device| device.open(handle).map_err(ServeError::Device))
        .collect()
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic".into())
}
