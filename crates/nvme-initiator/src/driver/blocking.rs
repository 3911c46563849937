//! Short associations on a reactor of their own, for the command line: the calling thread waits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{ErrorKind, IoError};
use ashlar_nvme::command::{GetLogPage, Identify};
use ashlar_nvme::fabrics::DISCOVERY_NQN;
use ashlar_nvme::identify::{
    BYTES, IdentifyController, IdentifyNamespace, NamespaceIdentity, cns, parse_namespace_list,
};
use ashlar_nvme::log::{AnaState, DiscoveryEntry, lid};
use ashlar_nvme::{Command, Status};
use ashlar_reactor::{Options, Reactor, Spin, Waker};

use super::remote::resolve;
use super::sockets::Sockets;
use crate::config::{Config, Host};
use crate::controller::discovery::{LogError, read_log};
use crate::controller::{Association, NamespaceFacts, Purpose};
use crate::failure::Failure;
use crate::queue_pair::{Data, Finished, Outcome, Submission};
use crate::status;
use crate::streams::Streams;
use crate::url;

/// A command line does not wait longer.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Namespaces listed of one subsystem.
const MOST_NAMESPACES: usize = 4096;

/// A subsystem's controller and its namespaces.
#[derive(Clone, Debug)]
pub struct Identification {
    /// Identify Controller.
    pub controller: IdentifyController,
    /// VS.
    pub version: u32,
    /// The active namespaces, ascending.
    pub namespaces: Vec<NamespaceIdentification>,
}

#[derive(Clone, Debug)]
pub struct NamespaceIdentification {
    /// NSID.
    pub nsid: u32,
    /// Identify Namespace.
    pub namespace: IdentifyNamespace,
    pub ids: NamespaceIdentity,
}

/// Asks the discovery service at `address` (`ADDR[:PORT]`) what there is for this host.
///
/// # Errors
/// Names the address and what went wrong.
pub fn discover(address: &str, host: &Host) -> Result<Vec<DiscoveryEntry>, IoError> {
    let mut admin = Short::admin(address, DISCOVERY_NQN, host)?;
    let entries = admin.discovery_log()?;
    admin.finish();
    Ok(entries)
}

/// Asks the subsystem `nqn` at `address` (`ADDR[:PORT]`) about its controller and namespaces.
///
/// # Errors
/// Names the address, the NQN and what went wrong.
pub fn identify(address: &str, nqn: &str, host: &Host) -> Result<Identification, IoError> {
    let mut admin = Short::admin(address, nqn, host)?;
    let facts = admin.association.controller().cloned();
    let facts = facts.ok_or_else(|| admin.error(ErrorKind::Internal, "not identified"))?;
    let mut namespaces = Vec::new();
    for nsid in admin.active_namespaces()? {
        let page = admin.identify(nsid, cns::NAMESPACE)?;
        let short = || admin.error(ErrorKind::Internal, "Identify data is too short");
        let namespace = IdentifyNamespace::parse(&page).ok_or_else(short)?.clone();
        // Optional before version 1.3: then the identifiers are those of Identify Namespace.
        let listed = admin.identify(nsid, cns::NAMESPACE_DESCRIPTORS);
        let mut ids = listed.map_or_else(
            |_| NamespaceIdentity::default(),
            |page| NamespaceIdentity::parse(&page),
        );
        let some = |id: &[u8]| id.iter().any(|&byte| byte != 0);
        ids.nguid = ids.nguid.or(Some(namespace.nguid).filter(|id| some(id)));
        ids.eui64 = ids.eui64.or(Some(namespace.eui64).filter(|id| some(id)));
        namespaces.push(NamespaceIdentification {
            nsid,
            namespace,
            ids,
        });
    }
    admin.finish();
    Ok(Identification {
        controller: facts.raw,
        version: facts.version,
        namespaces,
    })
}

/// Connects to the namespace, I/O queue included, and tells what it is.
pub(super) fn find_namespace(config: &Config, peer: SocketAddr) -> Result<NamespaceFacts, IoError> {
    let config = Config {
        queues: 1,
        ..config.clone()
    };
    let short = Short::connect(config, peer, Purpose::Namespace)?;
    let facts = short.association.namespace().cloned();
    let facts = facts.ok_or_else(|| short.error(ErrorKind::Internal, "not identified"))?;
    short.finish();
    Ok(facts)
}

/// An I/O command for [`Short::io`].
pub(super) enum IoCommand {
    /// One that reads so many bytes.
    Read {
        what: &'static str,
        command: Command,
        bytes: usize,
    },
    /// One that brings data.
    Write {
        what: &'static str,
        command: Command,
        data: Vec<u8>,
    },
}

/// A command's name, itself, and what it moves.
type Prepared = (&'static str, Command, Data);

/// An association that is ready, on a reactor of its own.
pub(super) struct Short {
    config: Arc<Config>,
    reactor: Reactor,
    sockets: Sockets,
    association: Association,
}

impl Short {
    fn admin(address: &str, nqn: &str, host: &Host) -> Result<Self, IoError> {
        let invalid =
            |error: url::UrlError| IoError::new(ErrorKind::InvalidRequest, error.to_string());
        let address = url::address(address).map_err(invalid)?;
        let peer = resolve(&address)?;
        let config = Config {
            keep_alive: Duration::ZERO,
            timeout: COMMAND_TIMEOUT,
            ..Config::new(&address, nqn, host.clone())
        };
        Self::connect(config, peer, Purpose::Admin)
    }

    pub(super) fn connect(
        config: Config,
        peer: SocketAddr,
        purpose: Purpose,
    ) -> Result<Self, IoError> {
        let options = Options {
            entries: 16,
            pool_bytes: 8 << 20,
            spin: Spin::Off,
            files: 8,
        };
        let reactor = Reactor::new(&options)
            .map_err(|error| IoError::with_source(ErrorKind::Internal, config.peer(), error))?;
        let handle = reactor.handle().clone();
        let config = Arc::new(config);
        let pool = handle.buffers();
        let association = Association::new(handle.now(), config.clone(), purpose, pool);
        let sockets = Sockets::new(handle.port(), vec![peer], association.streams());
        let mut short = Self {
            config,
            reactor,
            sockets,
            association,
        };
        while !short.association.is_ready() {
            short.turn()?;
        }
        Ok(short)
    }

    /// Ends a wait from another thread.
    pub(super) fn waker(&self) -> Waker {
        self.reactor.handle().waker()
    }

    /// Waits until something happens; whether it is that the discovery service has news.
    pub(super) fn heard(&mut self) -> Result<bool, IoError> {
        if !self.association.take_discovery_change() {
            self.sleep()?;
            self.turn()?;
            return Ok(self.association.take_discovery_change());
        }
        Ok(true)
    }

    /// The discovery log page.
    pub(super) fn discovery_log(&mut self) -> Result<Vec<DiscoveryEntry>, IoError> {
        let log = read_log(|offset, bytes| {
            let page = GetLogPage {
                lid: lid::DISCOVERY,
                lsp: 0,
                retain_event: false,
                bytes,
                offset,
                offset_type: false,
            };
            let command = Command::get_log_page(0, page);
            self.call("Get Log Page, Discovery", command, bytes as usize)
        });
        log.map_err(|error| match error {
            LogError::Read(error) => error,
            LogError::Malformed(why) => self.error(ErrorKind::Internal, why),
            LogError::Unsettled => self.error(ErrorKind::Exhausted, "the log page keeps changing"),
        })
    }

    /// One turn; an association that has failed is an error.
    fn turn(&mut self) -> Result<(), IoError> {
        self.progress();
        if let Some(failure) = self.association.failure() {
            let failure = failure.clone();
            self.wind_up();
            return Err(self.failed(&failure));
        }
        if self.association.is_ready() {
            return Ok(());
        }
        self.sleep()
    }

    fn progress(&mut self) {
        let now = self.reactor.handle().now();
        self.sockets.take_events(now, &mut self.association);
        self.association.poll(now);
        while self.sockets.serve(now, &mut self.association) {
            self.association.poll(now);
        }
    }

    fn sleep(&mut self) -> Result<(), IoError> {
        let deadlines = [
            self.association.next_deadline(),
            self.sockets.next_deadline(),
        ];
        let deadline = deadlines.into_iter().flatten().min();
        let peer = self.config.peer();
        let failed = |error| IoError::with_source(ErrorKind::Internal, peer, error);
        self.reactor.turn(deadline).map_err(failed)
    }

    /// Waits until nothing of the association is left.
    fn wind_up(&mut self) {
        while !self.association.is_over() {
            self.progress();
            if !self.association.is_over() && self.sleep().is_err() {
                return;
            }
        }
    }

    /// Shuts the controller down in order.
    pub(super) fn finish(mut self) {
        let now = self.reactor.handle().now();
        self.association.shutdown(now);
        self.wind_up();
    }

    fn error(&self, kind: ErrorKind, why: &str) -> IoError {
        IoError::new(kind, format!("{}: {why}", self.config.peer()))
    }

    fn failed(&self, failure: &Failure) -> IoError {
        let kind = match failure {
            Failure::Command { status, .. } => status::connect_kind(*status),
            Failure::Timeout { .. } => ErrorKind::Timeout,
            Failure::Unusable(_) => ErrorKind::Unsupported,
            _ => ErrorKind::NotSent,
        };
        self.error(
            kind,
            &format!("{failure} (while {})", self.association.stage()),
        )
    }

    /// An admin command with `bytes` of data from the controller.
    fn call(
        &mut self,
        what: &'static str,
        command: Command,
        bytes: usize,
    ) -> Result<Vec<u8>, IoError> {
        let now = self.reactor.handle().now();
        let buffer = self.association.buffer(bytes);
        let buffer = buffer.map_err(|failure| self.failed(&failure))?;
        if self
            .association
            .call(now, command, Data::ToHost(buffer))
            .is_err()
        {
            return Err(self.error(ErrorKind::Exhausted, what));
        }
        loop {
            self.progress();
            if let Some(finished) = self.association.called() {
                return self.answer(what, finished);
            }
            if let Some(failure) = self.association.failure().cloned() {
                self.wind_up();
                return Err(self.failed(&failure));
            }
            self.sleep()?;
        }
    }

    /// The namespace's number.
    pub(super) fn nsid(&self) -> u32 {
        let namespace = self.association.namespace();
        namespace.map_or(0, |namespace| namespace.nsid)
    }

    /// How the namespace is reached.
    pub(super) fn path(&self) -> AnaState {
        self.association.path()
    }

    /// An I/O command; what it reads.
    pub(super) fn io(&mut self, command: IoCommand) -> Result<Vec<u8>, IoError> {
        let (what, command, data) = self.prepared(command)?;
        let submission = Submission {
            user: 0,
            command,
            data,
            timed: true,
        };
        let now = self.reactor.handle().now();
        let queue = self.association.roomiest();
        let submitted = queue.map(|queue| self.association.submit(now, queue, submission));
        if !matches!(submitted, Some(Ok(()))) {
            return Err(self.error(ErrorKind::NotSent, what));
        }
        loop {
            self.progress();
            if let Some(finished) = self.association.finished() {
                return self.answer(what, finished);
            }
            if let Some(failure) = self.association.failure().cloned() {
                self.wind_up();
                return Err(self.failed(&failure));
            }
            self.sleep()?;
        }
    }

    fn prepared(&self, command: IoCommand) -> Result<Prepared, IoError> {
        let buffer = |bytes| {
            let buffer = self.association.buffer(bytes);
            buffer.map_err(|failure| self.failed(&failure))
        };
        Ok(match command {
            IoCommand::Read {
                what,
                command,
                bytes,
            } => (what, command, Data::ToHost(buffer(bytes)?)),
            IoCommand::Write {
                what,
                command,
                data,
            } => {
                let mut buffer = buffer(data.len())?;
                buffer.copy_from_slice(&data);
                (what, command, Data::ToController(buffer))
            }
        })
    }

    /// What a command has read, or why it has failed.
    fn answer(&self, what: &'static str, finished: Finished) -> Result<Vec<u8>, IoError> {
        let status = match finished.outcome {
            Outcome::Answered(completion) => completion.status(),
            Outcome::Lost { .. } => Status::ABORTED_SQ_DELETION,
        };
        if !status.is_success() {
            let failure = Failure::Command { what, status };
            return Err(self.error(status::kind(status), &failure.to_string()));
        }
        let buffer = finished.buffer;
        Ok(buffer.map_or_else(Vec::new, |buffer| buffer.to_vec()))
    }

    fn identify(&mut self, nsid: u32, cns: u8) -> Result<Vec<u8>, IoError> {
        let parameters = Identify {
            cns,
            ..Identify::default()
        };
        self.call("Identify", Command::identify(nsid, parameters), BYTES)
    }

    fn active_namespaces(&mut self) -> Result<Vec<u32>, IoError> {
        let mut found: Vec<u32> = Vec::new();
        loop {
            let after = found.last().copied().unwrap_or(0);
            let page = self.identify(after, cns::ACTIVE_NAMESPACES)?;
            let before = found.len();
            found.extend(parse_namespace_list(&page).filter(|&nsid| nsid > after));
            if found.len() - before < BYTES / 4 || found.len() >= MOST_NAMESPACES {
                return Ok(found);
            }
        }
    }
}
