//! The steps from a connected admin stream to a ready association, and down again.

use std::time::Duration;

use ashlar_block::{IoBuffer, Moment};
use ashlar_nvme::command::Identify;
use ashlar_nvme::fabrics::{
    CNTLID_DYNAMIC, Cap, Cc, Connect, ConnectData, Csts, InvalidParameter, property,
};
use ashlar_nvme::feature::{HANDS_NOTHING_ON, NumberOfQueues, fid};
use ashlar_nvme::identify::cns;
use ashlar_nvme::{Command, Completion, Status};

use super::{ADMIN, ADMIN_DEPTH, Association, Purpose, Stream, admin, facts};
use crate::failure::Failure;
use crate::queue_pair::{Data, Finished, Outcome, Submission};

/// How long to wait between two looks at CSTS.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The name of an I/O queue's Connect among its commands.
const IO_CONNECT: u64 = u64::MAX;

/// Where an association is. The order is that of bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    OpenAdmin,
    ConnectAdmin,
    ReadCapabilities,
    ReadVersion,
    ReadConfiguration,
    Enable,
    AwaitReady,
    IdentifyController,
    EndPredecessor,
    FindNamespace,
    IdentifyNamespace,
    Descriptors,
    NumberOfQueues,
    HereOnly,
    EventConfiguration,
    ReadPaths,
    OpenQueues,
    Ready,
    AskShutdown,
    AwaitShutdown,
}

impl Step {
    pub(super) fn is_shutdown(self) -> bool {
        self >= Self::AskShutdown
    }

    /// What is being done, for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OpenAdmin => "connecting",
            Self::ConnectAdmin => "connecting the admin queue",
            Self::ReadCapabilities | Self::ReadVersion | Self::ReadConfiguration => {
                "reading the controller's properties"
            }
            Self::Enable | Self::AwaitReady => "enabling the controller",
            Self::IdentifyController => "identifying the controller",
            Self::EndPredecessor => "ending the lost association",
            Self::FindNamespace | Self::IdentifyNamespace | Self::Descriptors => {
                "identifying the namespace"
            }
            Self::NumberOfQueues | Self::HereOnly | Self::EventConfiguration => "setting features",
            Self::ReadPaths => "reading how the namespace is reached (ANA)",
            Self::OpenQueues => "connecting I/O queues",
            Self::Ready => "in operation",
            Self::AskShutdown | Self::AwaitShutdown => "shutting down",
        }
    }
}

impl Association {
    /// Issues the current step's command, if it is time for it.
    pub(super) fn advance(&mut self, now: Moment) {
        if self.waiting || self.pause.is_some_and(|pause| now < pause) || self.failure.is_some() {
            return;
        }
        self.pause = None;
        let (command, data_bytes) = match self.step {
            Step::OpenAdmin | Step::OpenQueues | Step::Ready => return,
            Step::ConnectAdmin => return self.connect_queue(now, ADMIN),
            Step::ReadCapabilities => (Command::property_get(property::CAP, true), 0),
            Step::ReadVersion => (Command::property_get(property::VS, false), 0),
            Step::ReadConfiguration => (Command::property_get(property::CC, false), 0),
            Step::Enable => (set_cc(Cc::ENABLED), 0),
            Step::AwaitReady | Step::AwaitShutdown => {
                (Command::property_get(property::CSTS, false), 0)
            }
            Step::IdentifyController => identify(0, cns::CONTROLLER),
            Step::EndPredecessor => match self.end_predecessor() {
                Some(command) => (command, 0),
                None => return,
            },
            Step::FindNamespace => identify(0, cns::ACTIVE_NAMESPACES),
            Step::IdentifyNamespace => identify(self.nsid, cns::NAMESPACE),
            Step::Descriptors => identify(self.nsid, cns::NAMESPACE_DESCRIPTORS),
            Step::NumberOfQueues => {
                let wanted = NumberOfQueues::pairs(u32::from(self.config.queues.max(1)));
                (
                    Command::set_features(0, fid::NUMBER_OF_QUEUES, wanted.dword()),
                    0,
                )
            }
            Step::HereOnly => (
                Command::set_features(0, fid::HERE_ONLY, HANDS_NOTHING_ON),
                0,
            ),
            Step::EventConfiguration => (self.event_configuration(), 0),
            Step::ReadPaths => self.ask_paths(),
            Step::AskShutdown => (set_cc(self.cc.with_normal_shutdown()), 0),
        };
        let data = if data_bytes == 0 {
            Data::None
        } else {
            match self.buffer(data_bytes) {
                Ok(buffer) => Data::ToHost(buffer),
                Err(failure) => return self.fail(failure),
            }
        };
        if self
            .submit_admin(now, admin::BRING_UP, command, data)
            .is_ok()
        {
            self.waiting = true;
        }
    }

    /// Sends the Connect of a queue whose stream has opened.
    pub(super) fn connect_queue(&mut self, now: Moment, stream: usize) {
        if let Err(failure) = self.try_connect_queue(now, stream) {
            self.fail(failure);
        }
    }

    fn try_connect_queue(&mut self, now: Moment, stream: usize) -> Result<(), Failure> {
        let admin = stream == ADMIN;
        let cntlid = if admin { CNTLID_DYNAMIC } else { self.cntlid };
        let host = &self.config.host;
        let data = ConnectData::new(host.id, cntlid, &self.config.nqn, &host.nqn);
        let mut buffer = self.buffer(ConnectData::BYTES)?;
        buffer.copy_from_slice(data.as_wire());
        let milliseconds = self.config.keep_alive.as_millis().min(u128::from(u32::MAX));
        let command = Command::connect(Connect {
            record_format: 0,
            qid: stream as u16,
            sqsize: if admin { ADMIN_DEPTH } else { self.io_depth() },
            attributes: 0,
            keep_alive_ms: if admin { milliseconds as u32 } else { 0 },
        });
        let submission = Submission {
            user: if admin { admin::BRING_UP } else { IO_CONNECT },
            command,
            data: Data::ToController(buffer),
            timed: true,
        };
        if admin {
            self.step = Step::ConnectAdmin;
            self.waiting = true;
        }
        let Some(pair) = self.pair(stream) else {
            return Ok(());
        };
        let full = |_| Failure::Network("no room for a Connect".into());
        pair.submit(now, submission).map_err(full)
    }

    /// Takes the answer to the current step's command.
    pub(super) fn bring_up_answer(&mut self, now: Moment, finished: Finished) {
        let Outcome::Answered(completion) = finished.outcome else {
            return;
        };
        self.waiting = false;
        if let Err(failure) = self.take_answer(now, &completion, finished.buffer) {
            self.fail(failure);
        }
    }

    fn take_answer(
        &mut self,
        now: Moment,
        completion: &Completion,
        buffer: Option<IoBuffer>,
    ) -> Result<(), Failure> {
        let data = buffer.as_deref().unwrap_or_default();
        let ok = |what| check(what, completion);
        self.step = match self.step {
            Step::ConnectAdmin => {
                self.cntlid = connected(completion)?;
                Step::ReadCapabilities
            }
            Step::ReadCapabilities => {
                ok("reading the capabilities")?;
                self.cap = Cap(completion.result());
                Step::ReadVersion
            }
            Step::ReadVersion => {
                ok("reading the version")?;
                self.version = completion.dw0.get();
                Step::ReadConfiguration
            }
            Step::ReadConfiguration => {
                ok("reading the configuration")?;
                Step::Enable
            }
            Step::Enable => {
                ok("enabling the controller")?;
                self.cc = Cc::ENABLED;
                let units = u32::from(self.cap.ready_timeout()).max(2);
                self.step_deadline = Some(now + units * Duration::from_millis(500));
                Step::AwaitReady
            }
            Step::AwaitReady => self.ready_answer(now, completion)?,
            Step::IdentifyController => {
                ok("Identify Controller")?;
                let facts = facts::controller(data, self.version, self.cntlid)?;
                self.start_keep_alive(now, &facts);
                let next = self.succeed(now, &facts, self.after_identify());
                self.controller = Some(Box::new(facts));
                next
            }
            Step::EndPredecessor => {
                if self.predecessor_answer(now, completion)? {
                    self.after_identify()
                } else {
                    Step::EndPredecessor
                }
            }
            Step::FindNamespace => {
                ok("Identify Active Namespace List")?;
                self.nsid = facts::first_namespace(data)?;
                Step::IdentifyNamespace
            }
            Step::IdentifyNamespace => {
                ok("Identify Namespace")?;
                let limits = self.controller.as_deref();
                self.namespace = Some(facts::namespace(self.nsid, data, limits)?);
                Step::Descriptors
            }
            Step::Descriptors => {
                // Optional before version 1.3, so a refusal only means that less is known. Damage on
                // the way is no refusal: without the UUID it would be taken for another namespace.
                if completion.status().is(Status::TRANSIENT_TRANSPORT_ERROR) {
                    let (what, status) = ("Identify", completion.status());
                    return Err(Failure::Command { what, status });
                }
                if let (true, Some(facts)) = (completion.status().is_success(), &mut self.namespace)
                {
                    facts.identity.take_descriptors(data);
                }
                Step::NumberOfQueues
            }
            Step::NumberOfQueues => {
                ok("Set Features, Number of Queues")?;
                let granted = NumberOfQueues::parse(completion.dw0.get());
                let granted = granted.map_or(1, NumberOfQueues::usable_pairs) as usize;
                self.streams.truncate(1 + granted.max(1));
                match self.config.forwards {
                    true => Step::EventConfiguration,
                    false => Step::HereOnly,
                }
            }
            // A target that does not know it may hand on what it gets late.
            Step::HereOnly => Step::EventConfiguration,
            Step::EventConfiguration => {
                // Events are a convenience: a controller that refuses them can still be used.
                self.request_event(now);
                match (self.purpose, self.has_paths()) {
                    (Purpose::Admin | Purpose::Discovery, _) => Step::Ready,
                    (Purpose::Namespace, true) => Step::ReadPaths,
                    (Purpose::Namespace, false) => self.open_queues(now),
                }
            }
            Step::ReadPaths => {
                ok("Get Log Page, Asymmetric Namespace Access")?;
                self.take_paths(now, data)?;
                self.open_queues(now)
            }
            Step::AskShutdown => Step::AwaitShutdown,
            Step::AwaitShutdown => self.shutdown_answer(now, completion),
            step @ (Step::OpenAdmin | Step::OpenQueues | Step::Ready) => step,
        };
        Ok(())
    }

    fn after_identify(&self) -> Step {
        match (self.purpose, self.nsid) {
            (Purpose::Admin, _) => Step::Ready,
            (Purpose::Discovery, _) => Step::EventConfiguration,
            (Purpose::Namespace, 0) => Step::FindNamespace,
            (Purpose::Namespace, _) => Step::IdentifyNamespace,
        }
    }

    fn ready_answer(&mut self, now: Moment, completion: &Completion) -> Result<Step, Failure> {
        check("reading the status", completion)?;
        let csts = Csts(completion.dw0.get());
        if csts.fatal() {
            return Err(Failure::Network(
                "the controller reports a fatal error (CFS)".into(),
            ));
        }
        if !csts.ready() {
            self.pause = Some(now + LOOK_AGAIN);
            return Ok(Step::AwaitReady);
        }
        self.step_deadline = None;
        Ok(Step::IdentifyController)
    }

    fn shutdown_answer(&mut self, now: Moment, completion: &Completion) -> Step {
        let csts = Csts(completion.dw0.get());
        if csts.shutdown_complete() || !completion.status().is_success() {
            self.fail(Failure::Shutdown);
        } else {
            self.pause = Some(now + LOOK_AGAIN);
        }
        Step::AwaitShutdown
    }

    fn open_queues(&mut self, now: Moment) -> Step {
        for stream in &mut self.streams[1..] {
            *stream = Stream::Opening;
        }
        self.step_deadline = Some(now + self.config.timeout);
        Step::OpenQueues
    }

    /// Takes answers to the I/O queues' Connects; ready when all are there.
    pub(super) fn take_io_connects(&mut self) {
        if self.step != Step::OpenQueues {
            return;
        }
        for stream in 1..self.streams.len() {
            let Some(finished) = self.pair(stream).and_then(|pair| pair.finished()) else {
                continue;
            };
            let Outcome::Answered(completion) = finished.outcome else {
                continue;
            };
            match connected(&completion) {
                Ok(_) => self.io_connected += 1,
                Err(failure) => return self.fail(passing(failure)),
            }
        }
        if self.io_connected + 1 == self.streams.len() {
            self.step = Step::Ready;
            self.step_deadline = None;
        }
    }

    pub(super) fn check_step_time(&mut self, now: Moment) {
        let Some(deadline) = self.step_deadline.filter(|&deadline| deadline <= now) else {
            return;
        };
        let (what, after) = match self.step {
            Step::AskShutdown | Step::AwaitShutdown => return self.fail(Failure::Shutdown),
            Step::OpenAdmin | Step::OpenQueues => ("a connection attempt", self.config.timeout),
            Step::EndPredecessor => ("the end of the lost association", self.config.timeout),
            Step::AwaitReady => {
                let units = u32::from(self.cap.ready_timeout()).max(2);
                (
                    "enabling the controller",
                    units * Duration::from_millis(500),
                )
            }
            _ => {
                self.step_deadline = None;
                return;
            }
        };
        debug_assert!(deadline <= now);
        self.fail(Failure::Timeout { what, after });
    }
}

fn identify(nsid: u32, cns: u8) -> (Command, usize) {
    let parameters = Identify {
        cns,
        ..Identify::default()
    };
    (Command::identify(nsid, parameters), facts::IDENTIFY_BYTES)
}

fn set_cc(cc: Cc) -> Command {
    Command::property_set(property::CC, false, u64::from(cc.0))
}

fn check(what: &'static str, completion: &Completion) -> Result<(), Failure> {
    match completion.status() {
        status if status.is_success() => Ok(()),
        status => Err(Failure::Command { what, status }),
    }
}

/// A refused I/O queue of a controller whose admin queue was just connected: the target has given the
/// controller up meanwhile, or was restarted, and the admin connection's end is still on its way.
/// Whatever the refusal says (`do not retry`, mostly), a new association may well do better.
fn passing(refusal: Failure) -> Failure {
    let gone = [
        Status::CONNECT_INVALID_PARAMETERS,
        Status::COMMAND_SEQUENCE_ERROR,
    ];
    match refusal {
        Failure::Command { status, .. } if gone.iter().any(|&one| status.is(one)) => {
            Failure::Network(format!("{refusal}: the controller is gone"))
        }
        other => other,
    }
}

/// The controller identifier of a successful Connect.
fn connected(completion: &Completion) -> Result<u16, Failure> {
    let status = completion.status();
    if status.is(Status::CONNECT_INVALID_PARAMETERS) {
        let what = match completion.connect_invalid_parameter() {
            InvalidParameter::SUBNQN => "Connect to this subsystem NQN",
            InvalidParameter::HOSTNQN => "Connect with this host NQN",
            InvalidParameter::HOSTID => "Connect with this host identifier",
            InvalidParameter::SQSIZE => "Connect with this queue depth",
            InvalidParameter::KATO => "Connect with this keep-alive time-out",
            _ => "Connect",
        };
        return Err(Failure::Command { what, status });
    }
    check("Connect", completion)?;
    if completion.connected_needs_authentication() {
        let why = "the controller wants authentication, which is not supported";
        return Err(Failure::Unusable(why.into()));
    }
    Ok(completion.connected_cntlid())
}
