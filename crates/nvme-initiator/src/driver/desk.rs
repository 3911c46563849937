//! Reservations of a namespace, as a command line asks for them: each call waits for its end.
//!
//! A registration is the host's, not the connection's (Base 2.1, 8.1.22): what is reserved here holds for every
//! association of the same host identifier, through failovers and reconnects, until it is given back or another host
//! takes it away.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ashlar_block::{ErrorKind, IoError};
use ashlar_nvme::log::AnaState;
use ashlar_nvme::reservation::{
    AcquireAction, Ask, Persistence, RegisterAction, ReleaseAction, ReservationStatus,
    ReservationType,
};

use super::blocking::{IoCommand, Short};
use super::remote::resolve;
use crate::config::Config;
use crate::controller::Purpose;

/// How long a path has to answer before the next is tried.
const GLANCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);
/// Room for the registrants that Ashlar's targets have at most.
const REPORT_BYTES: u32 = 12 << 10;

/// A host's way to what is reserved of a namespace, by whichever path reaches it.
pub struct ReservationDesk {
    config: Config,
    /// Longest time that a path is looked for.
    patience: Duration,
    short: Option<Short>,
}

/// Whether a key that another host has must be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// If the reservation is free, or ours.
    IfFree,
    /// The host that has this key loses it, the reservation, and the commands that are under way.
    Preempt(u64),
}

impl ReservationDesk {
    /// For the namespace that `config` names; a path is looked for at each call, for so long at most.
    pub fn new(config: Config, patience: Duration) -> Self {
        let config = Config {
            queues: 1,
            timeout: config.timeout.min(GLANCE),
            ..config
        };
        Self {
            config,
            patience,
            short: None,
        }
    }

    /// Registers `key`, in place of one that this host had. It is kept through a loss of power.
    ///
    /// # Errors
    /// Names the namespace and what went wrong; `Unsupported` where there are no reservations.
    pub fn register(&mut self, key: u64) -> Result<(), IoError> {
        let register = |action, ignores_key| Ask::Register {
            action,
            ignores_key,
            persistence: Persistence::On,
            current: 0,
            new: key,
        };
        match self.ask(register(RegisterAction::Register, false)) {
            Err(error) if error.kind() == ErrorKind::Denied => {
                self.ask(register(RegisterAction::Replace, true))
            }
            registered => registered,
        }
    }

    /// Ends this host's registration, and with it what it holds.
    ///
    /// # Errors
    /// `Denied`: it is not registered. Otherwise as of [`register`](Self::register).
    pub fn unregister(&mut self) -> Result<(), IoError> {
        self.ask(Ask::Register {
            action: RegisterAction::Unregister,
            ignores_key: true,
            persistence: Persistence::Unchanged,
            current: 0,
            new: 0,
        })
    }

    /// Takes the reservation with our `key`.
    ///
    /// # Errors
    /// `Denied`: another host has it, or our key is another. Otherwise as of [`register`](Self::register).
    pub fn acquire(
        &mut self,
        key: u64,
        kind: ReservationType,
        how: Acquire,
    ) -> Result<(), IoError> {
        let (action, preempted) = match how {
            Acquire::IfFree => (AcquireAction::Acquire, 0),
            Acquire::Preempt(key) => (AcquireAction::PreemptAndAbort, key),
        };
        self.ask(Ask::Acquire {
            action,
            kind,
            current: key,
            preempted,
        })
    }

    /// Gives the reservation back; nothing is done if it is not ours.
    ///
    /// # Errors
    /// `Denied`: our key is another. Otherwise as of [`register`](Self::register).
    pub fn release(&mut self, key: u64, kind: ReservationType) -> Result<(), IoError> {
        self.ask(Ask::Release {
            action: ReleaseAction::Release,
            kind: kind as u8,
            current: key,
        })
    }

    /// Ends all registrations, this host's included, and the reservation.
    ///
    /// # Errors
    /// `Denied`: our key is another. Otherwise as of [`register`](Self::register).
    pub fn clear(&mut self, key: u64) -> Result<(), IoError> {
        self.ask(Ask::Release {
            action: ReleaseAction::Clear,
            kind: 0,
            current: key,
        })
    }

    /// Who is registered, and who holds the reservation.
    ///
    /// # Errors
    /// As of [`register`](Self::register).
    pub fn report(&mut self) -> Result<ReservationStatus, IoError> {
        let page = self.command(|nsid| IoCommand::Read {
            what: "Reservation Report",
            command: ReservationStatus::report(nsid, REPORT_BYTES),
            bytes: REPORT_BYTES as usize,
        })?;
        let short = || IoError::new(ErrorKind::Internal, "the reservation report ends early");
        ReservationStatus::parse(&page).ok_or_else(short)
    }

    fn ask(&mut self, ask: Ask) -> Result<(), IoError> {
        let what = match ask {
            Ask::Register { .. } => "Reservation Register",
            Ask::Acquire { .. } => "Reservation Acquire",
            Ask::Release { .. } => "Reservation Release",
        };
        let command = |nsid| {
            let (command, data) = ask.to_command(nsid);
            IoCommand::Write {
                what,
                command,
                data,
            }
        };
        self.command(command).map(drop)
    }

    /// Has a command answered, by another path if that is how. Each is such that twice is as good as once.
    fn command(&mut self, make: impl Fn(u32) -> IoCommand) -> Result<Vec<u8>, IoError> {
        let until = Instant::now() + self.patience;
        loop {
            match self.attempt(&make) {
                Err(error) if may_pass(error.kind()) && Instant::now() < until => {
                    self.short = None;
                    std::thread::sleep(PAUSE);
                }
                ended => return ended,
            }
        }
    }

    fn attempt(&mut self, make: impl Fn(u32) -> IoCommand) -> Result<Vec<u8>, IoError> {
        let short = match &mut self.short {
            Some(short) => short,
            none => none.insert(best(&self.config)?),
        };
        short.io(make(short.nsid()))
    }
}

impl Drop for ReservationDesk {
    fn drop(&mut self) {
        if let Some(short) = self.short.take() {
            short.finish();
        }
    }
}

/// Whether a failure is of the path, or passes by itself.
fn may_pass(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::Denied | ErrorKind::InvalidRequest | ErrorKind::Unsupported
    )
}

/// Connects by the path that reaches the namespace best.
fn best(config: &Config) -> Result<Short, IoError> {
    let mut second = None;
    let mut errors = Vec::new();
    for path in config.paths() {
        let connected = resolve(&path.address)
            .and_then(|peer: SocketAddr| Short::connect(path, peer, Purpose::Namespace));
        match connected {
            Ok(short) => match short.path() {
                AnaState::Optimized => return Ok(short),
                AnaState::NonOptimized if second.is_none() => second = Some(short),
                state => errors.push(format!("{}: the path is {state:?}", config.peer())),
            },
            // A host that one path does not let in is let in by none.
            Err(error) if error.kind() == ErrorKind::Denied => return Err(error),
            Err(error) => errors.push(error.to_string()),
        }
    }
    let none = || {
        IoError::new(
            ErrorKind::NotSent,
            format!("no path: {}", errors.join("; ")),
        )
    };
    second.ok_or_else(none)
}
