use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use ashlar_block::BlockDevice;
use ashlar_reactor::{Handle, Mailbox, Opener, Options, Reactor, listen, pin_to_core};
use uuid::Uuid;

use super::control::{Control, Link};
use super::error::ServeError;
use super::export::Export;
use super::mail::Mail;
use super::placement::Placement;
use super::resident::MakeResident;
use super::worker::{Common, Worker};
use crate::config::{HostAccess, Timeouts};
use crate::core::Core;
use crate::target::Target;

/// What to serve, where, and with what.
pub struct ServerConfig {
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The cores to run on, one thread each.
    pub cores: Vec<usize>,
    /// How each core's reactor is set up.
    pub reactor: Options,
    /// The subsystems to start with; there may be none.
    pub exports: Vec<Export>,
    /// How long hosts may keep the target waiting.
    pub timeouts: Timeouts,
    /// Hosts wait in the kernel's queue until [`Control::welcome`]. To one that is let in at once, a
    /// subsystem that is not there yet is one that is gone, and hosts take that for final.
    pub hold: bool,
    /// What the death of a core means.
    pub on_core_death: CoreDeath,
}

/// What is done when a core's thread panics, or the kernel refuses to go on with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoreDeath {
    /// [`Server::wait`] returns the error; the other cores go on until they are stopped.
    #[default]
    Report,
    /// The process ends at once with exit code 1. Its other cores would serve half of what it
    /// promises, and to end in order takes the core that is dead.
    EndProcess,
}

/// What a core tells the thread that started it.
enum Report {
    Ready(Mailbox<Mail>),
    Ended(usize, Result<(), ServeError>),
}

/// A running target.
pub struct Server {
    address: SocketAddr,
    control: Control,
    reports: Receiver<Report>,
    threads: Vec<JoinHandle<()>>,
}

/// A target whose cores are being started.
struct Starting {
    links: Vec<Link>,
    reports: Receiver<Report>,
    sender: Sender<Report>,
    threads: Vec<JoinHandle<()>>,
}

/// What a core's thread is started with.
struct Seat {
    index: usize,
    core: usize,
    options: Options,
    target: Arc<Target>,
    devices: Vec<Arc<dyn Opener>>,
    started: Receiver<Start>,
    on_death: CoreDeath,
}

/// Ends the process when its thread panics: before anything is dropped on the way out of the panic,
/// for that may wait for a drive.
struct DeathWatch {
    core: usize,
    on_death: CoreDeath,
}

impl Drop for DeathWatch {
    fn drop(&mut self) {
        if std::thread::panicking() && self.on_death == CoreDeath::EndProcess {
            end_process(self.core, "it has panicked (see above)");
        }
    }
}

/// Says why, and ends the process.
fn end_process(core: usize, why: &str) -> ! {
    static FIRST: AtomicBool = AtomicBool::new(true);
    if !FIRST.swap(false, Ordering::AcqRel) {
        // Two threads must not end a process at the same time.
        loop {
            std::thread::park();
        }
    }
    // A standard error that is closed is no reason to live on.
    let _ = writeln!(
        std::io::stderr(),
        "ashlar: the thread of core {core} has died: {why}. This process ends at once, with exit code 1; \
         what was acknowledged as durable is safe"
    );
    std::process::exit(1)
}

impl Server {
    /// Opens the devices on every core, listens, and returns when hosts can connect.
    ///
    /// # Errors
    /// The configuration makes no sense, or the machine does not give what it asks for.
    pub fn start(config: ServerConfig) -> Result<Self, ServeError> {
        let subsystems = config.exports.iter().map(Export::config).collect();
        let target = Target::new(subsystems, config.timeouts)?;
        let (run, _) = Uuid::new_v4().as_u64_pair();
        let target = Arc::new(target.with_run(run));
        let (listener, address) = listen(config.listen).map_err(ServeError::Net)?;
        let mut openers = HashMap::new();
        let mut devices = Vec::new();
        for export in config.exports {
            devices.extend(export.devices.iter().cloned());
            openers.insert(export.nqn, export.devices);
        }
        let (sender, reports) = channel();
        let mut starting = Starting {
            links: Vec::new(),
            reports,
            sender,
            threads: Vec::new(),
        };
        let mut starts = Vec::new();
        for (index, &core) in config.cores.iter().enumerate() {
            let (start, started) = channel();
            starting.spawn(Seat {
                index,
                core,
                options: config.reactor.clone(),
                target: target.clone(),
                devices: devices.clone(),
                started,
                on_death: config.on_core_death,
            })?;
            starts.push(start);
        }
        let (now, later) = match config.hold {
            true => (None, Some(listener)),
            false => (Some(listener), None),
        };
        starting.release(starts, now);
        Ok(Self {
            address,
            control: Control::new(target, starting.links, openers, later),
            reports: starting.reports,
            threads: starting.threads,
        })
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters and configuration.
    pub fn target(&self) -> &Target {
        self.control.target()
    }

    /// What changes the server, for other threads.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// See [`Control::add`].
    pub fn add(&self, export: Export) -> Result<(), ServeError> {
        self.control.add(export)
    }

    /// See [`Control::remove`].
    pub fn remove(&self, nqn: &str) -> Result<(), ServeError> {
        self.control.remove(nqn)
    }

    /// See [`Control::resized`].
    pub fn resized(&self, nqn: &str) -> Result<(), ServeError> {
        self.control.resized(nqn)
    }

    /// See [`Control::allow`].
    pub fn allow(&self, nqn: &str, access: HostAccess) -> Result<(), ServeError> {
        self.control.allow(nqn, access)
    }

    /// See [`Control::settle_in`].
    pub fn settle_in(&self, core: usize, name: &str, make: MakeResident) -> Result<(), ServeError> {
        self.control.settle_in(core, name, make)
    }

    /// See [`Control::move_out`].
    pub fn move_out(&self, name: &str) -> Result<(), ServeError> {
        self.control.move_out(name)
    }

    /// A handle that stops the server from another thread.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + use<> {
        let control = self.control.clone();
        move || control.stop()
    }

    /// Waits until the server was stopped, or one of its cores has died.
    ///
    /// # Errors
    /// A core has died.
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

impl Starting {
    /// Starts a core's thread and waits until it has opened everything.
    fn spawn(&mut self, seat: Seat) -> Result<(), ServeError> {
        let core = seat.core;
        let ended = Arc::new(AtomicBool::new(false));
        let (sender, end) = (self.sender.clone(), ended.clone());
        let thread = std::thread::Builder::new()
            .name(format!("core-{core}"))
            .spawn(move || {
                let reports = sender.clone();
                let run = AssertUnwindSafe(|| serve(seat, &reports));
                let result = catch_unwind(run).unwrap_or_else(|panic| {
                    Err(ServeError::Core(core, panic_text(panic.as_ref())))
                });
                end.store(true, Ordering::Release);
                // The server does not listen any more when it is gone itself.
                let _ = sender.send(Report::Ended(core, result));
            });
        let thread = thread.map_err(|error| ServeError::Core(core, error.to_string()))?;
        self.threads.push(thread);
        let mailbox = self.await_ready()?;
        self.links.push(Link {
            core,
            mailbox,
            ended,
        });
        Ok(())
    }

    fn await_ready(&mut self) -> Result<Mailbox<Mail>, ServeError> {
        match self.reports.recv() {
            Ok(Report::Ready(mailbox)) => Ok(mailbox),
            Ok(Report::Ended(_, Err(error))) => Err(error),
            Ok(Report::Ended(core, Ok(()))) => {
                Err(ServeError::Core(core, "it ended at once".into()))
            }
            Err(_) => Err(ServeError::Core(0, "it said nothing".into())),
        }
    }

    /// Lets the cores go, now that each can know the others.
    fn release(&self, starts: Vec<Sender<Start>>, mut listener: Option<OwnedFd>) {
        let common = Arc::new(Common {
            placement: Placement::new(starts.len()),
            mailboxes: self.links.iter().map(|l| l.mailbox.clone()).collect(),
        });
        for start in starts {
            let message = Start {
                common: common.clone(),
                listener: listener.take(),
            };
            // A thread that has died has reported it.
            let _ = start.send(message);
        }
    }
}

struct Start {
    common: Arc<Common>,
    listener: Option<OwnedFd>,
}

/// A core's thread.
fn serve(seat: Seat, reports: &Sender<Report>) -> Result<(), ServeError> {
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
    let Ok(start) = seat.started.recv() else {
        return Ok(());
    };
    let mut worker = Worker::new(seat.index, start.common, &handle, core);
    if let Some(listener) = start.listener {
        worker.listen(listener);
    }
    // The last of all locals, so that it is dropped first.
    let _watch = DeathWatch {
        core: seat.core,
        on_death: seat.on_death,
    };
    let ended = worker.run(&mut reactor).map_err(died);
    if let (Err(error), CoreDeath::EndProcess) = (&ended, seat.on_death) {
        end_process(seat.core, &error.to_string());
    }
    ended
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
