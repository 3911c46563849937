//! Reservations: each node judges hosts, decides and asks with the code that ships ([`Reserve`]). A granule of the
//! register has room for a number here, so what it is to hold is kept beside, by numbers that are never used again.
//!
//! A host that has lost its rights is *fenced*: once the change is committed, or an owner has read it, nothing of what
//! the host has sent may take effect any more. Only a change that the host itself asks for gives it rights again.

use std::sync::Arc;

use ashlar_block::Provenance;
use ashlar_nvme::Status;
use ashlar_nvme_target::{
    Answer, DecidedReservations, Petition, ReservationDecider, Table, Wants, answer_to,
};
use ashlar_replica::{Content, Replica, is_forwarded};
use ashlar_rights::{Asker, Reserve};

use super::*;
use crate::cluster::hosts::registrant;

/// Bytes of a register on a node.
const REGISTER_BYTES: usize = 4096;
/// The model knows what a node's owner writes to the register by this number and the node's.
const FIRST_SEAT: usize = hosts::MOST_HOSTS;

/// A host's command on reservations, on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) attempt: CommandId,
    pub(crate) petition: Petition,
}

/// All nodes' parts, and what the register has been told to hold.
pub(super) struct Rights {
    seats: Vec<Seat>,
    /// By their numbers; 0 is what a new volume has.
    registers: Vec<Bytes>,
}

/// A process' part.
struct Seat {
    reserve: Reserve,
    asked: Vec<Asked>,
    written: Option<Written>,
}

/// A petition without a verdict.
struct Asked {
    attempt: CommandId,
    verdict: Box<dyn Fn() -> Option<Verdict>>,
}

/// What a node writes to the register.
#[derive(Clone, Copy)]
struct Written {
    command: CommandId,
    value: Value,
}

/// Targets decide by their replicas.
struct Nowhere;

impl ReservationDecider for Nowhere {
    fn decide(&self, _: Petition, _: Answer) {}
}

impl Seat {
    fn new() -> Self {
        Self {
            reserve: Reserve::new(DecidedReservations::new(Arc::new(Nowhere))),
            asked: Vec::new(),
            written: None,
        }
    }
}

impl Rights {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            seats: (0..nodes).map(|_| Seat::new()).collect(),
            registers: vec![Bytes::from_static(&[0; REGISTER_BYTES])],
        }
    }

    /// A node's process is gone.
    pub(super) fn crash(&mut self, node: usize) {
        self.seats[node] = Seat::new();
    }

    fn register(&self, value: Value) -> Result<&Bytes, String> {
        let register = self.registers.get(value as usize);
        register.ok_or_else(|| format!("the register holds {value}, which no owner has written"))
    }

    fn table(&self, value: Value) -> Result<Table, String> {
        match value {
            0 => Ok(Table::default()),
            _ => Table::decode_padded(self.register(value)?).map_err(|why| why.to_string()),
        }
    }
}

impl World<'_> {
    /// What a node answers a host of its own that may not do what it wants.
    pub(super) fn refusal(&self, node: usize, event: &Event) -> Option<Effect> {
        let Event::Host(host) = event else {
            return None;
        };
        let reserve = &self.rights.as_ref()?.seats[node].reserve;
        let command = host.command;
        // What other nodes have sent was judged when it came.
        let is_judged = !Reserve::asked(command) && !is_forwarded(command);
        let writes = !matches!(host.operation, HostOperation::Read { .. });
        let outcome = reserve.refuses(host.registrant, writes);
        let outcome = outcome.filter(|_| is_judged)?;
        Some(Effect::Answer { command, outcome })
    }

    /// A host's command has come from another node: what the replica is to hear.
    pub(super) fn judged(
        &mut self,
        node: usize,
        by: Position,
        command: HostCommand,
    ) -> Option<Event> {
        match &mut self.rights {
            Some(rights) => rights.seats[node].reserve.forwarded(by, command),
            None => Some(Event::Host(command)),
        }
    }

    /// A host's command on reservations has come to a node.
    pub(super) fn petition(&mut self, node: usize, asking: Asking) -> Result<(), String> {
        let is_there = self.nodes[node].replica.is_some();
        let Some(rights) = self.rights.as_mut().filter(|_| is_there) else {
            return Ok(());
        };
        if self.nodes[node].is_stopped {
            self.nodes[node]
                .waiting
                .push_back(Waiting::Petition(asking));
            return Ok(());
        }
        let Asking { attempt, petition } = asking;
        let (answer, verdict) = answer_to();
        let seat = &mut rights.seats[node];
        let verdict = Box::new(verdict);
        seat.asked.push(Asked { attempt, verdict });
        if let Some(event) = seat.reserve.take(petition, Asker::Here(answer)) {
            self.handle(node, event)?;
        }
        self.decide(node)
    }

    /// A node decides what it can now.
    pub(super) fn decide(&mut self, node: usize) -> Result<(), String> {
        loop {
            let replica = self.nodes[node].replica.as_ref();
            let Some((rights, replica)) = self.rights.as_mut().zip(replica) else {
                return Ok(());
            };
            let reserve = &mut rights.seats[node].reserve;
            let next = reserve.next(|origin| replica.label(origin));
            let mut events = reserve.take_decided();
            reserve.take_news();
            if let Some(event) = next {
                events.push(self.by_number(node, event)?);
            }
            if events.is_empty() {
                break;
            }
            for event in events {
                self.handle(node, event)?;
            }
        }
        self.tell_verdicts(node);
        Ok(())
    }

    fn tell_verdicts(&mut self, node: usize) {
        let Some(rights) = &mut self.rights else {
            return;
        };
        let mut verdicts = Vec::new();
        rights.seats[node].asked.retain(|asked| {
            let verdict = (asked.verdict)();
            let waits = verdict.is_none();
            verdicts.extend(verdict.map(|verdict| (asked.attempt, verdict)));
            waits
        });
        for (attempt, verdict) in verdicts {
            let after = Duration::from_micros(20) + self.chance.time(Duration::from_micros(300));
            self.at(after, Happening::Verdict { attempt, verdict });
        }
    }

    /// What an owner is about to write to the register goes by a number. Hosts that it lets in may have what they have
    /// sent done from now on.
    fn by_number(&mut self, node: usize, event: Event) -> Result<Event, String> {
        let Some(rights) = &mut self.rights else {
            return Ok(event);
        };
        let Event::Host(HostCommand {
            command,
            registrant,
            operation:
                HostOperation::SetRegister {
                    content: Content::Data(bytes),
                    origin,
                    label,
                },
        }) = event
        else {
            return Ok(event);
        };
        let value = rights.registers.len() as Value;
        rights.registers.push(bytes);
        rights.seats[node].written = Some(Written { command, value });
        let table = rights.table(value)?;
        let granules = self.hosts.shape().register..self.hosts.shape().register + 1;
        self.model.begin(FIRST_SEAT + node, granules, value);
        for writer in 0..self.hosts.writers.len() {
            if table.lets(hosts::registrant(writer), true) {
                self.model.unfence(writer);
            }
        }
        self.hosts.note(&self.model);
        let word = Bytes::from(value.to_le_bytes().to_vec());
        Ok(Event::Host(HostCommand {
            command,
            registrant,
            operation: HostOperation::SetRegister {
                content: Content::Data(word),
                origin,
                label,
            },
        }))
    }

    /// A replica has answered what was asked for reservations.
    pub(super) fn rights_answered(
        &mut self,
        node: usize,
        command: CommandId,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let Some(rights) = &mut self.rights else {
            return Err(format!("{command} is no host's"));
        };
        let is_it = |written: &mut Written| written.command == command;
        let written = rights.seats[node].written.take_if(is_it);
        if let (Some(written), Outcome::Written) = (written, outcome) {
            self.model.acknowledged(FIRST_SEAT + node)?;
            // Unless another owner has gone on with it.
            let owns = self.nodes[node].replica.as_ref().and_then(Replica::owns);
            if owns == Some(self.seen.key.epoch) {
                self.fence(written.value)?;
            }
        }
        if let Some(rights) = &mut self.rights {
            rights.seats[node].reserve.answered(command, outcome);
        }
        Ok(())
    }

    /// This is reserved from now on.
    fn fence(&mut self, value: Value) -> Result<(), String> {
        let Some(rights) = &self.rights else {
            return Ok(());
        };
        let table = rights.table(value)?;
        for writer in 0..self.hosts.writers.len() {
            if !table.lets(registrant(writer), true) && self.model.fence(writer) {
                self.summary.fenced += 1;
                self.say(|| format!("writer {writer} is fenced"));
            }
        }
        Ok(())
    }

    /// A new owner is about to read the register: what older ones were about to write there is there, or never will be.
    pub(super) fn settle_register(&mut self) {
        if self.rights.is_some() {
            (0..self.nodes.len()).for_each(|node| self.model.settle(FIRST_SEAT + node));
        }
    }

    /// A new owner has read it.
    pub(super) fn learn(&mut self, node: usize, value: Value) -> Result<(), String> {
        let Some(rights) = &mut self.rights else {
            return Ok(());
        };
        let register = rights.register(value)?.clone();
        let learnt = rights.seats[node].reserve.learn(&register);
        learnt.map_err(|why| format!("node {node}: {why}"))?;
        self.fence(value)
    }

    pub(super) fn forget_rights(&mut self, node: usize) {
        if let Some(rights) = &mut self.rights {
            rights.seats[node].reserve.forget();
        }
    }

    /// A host sends what it wants reserved.
    pub(super) fn ask(&mut self, writer: usize, wants: Wants, attempt: CommandId) -> Asking {
        let origin = self.hosts.origin(writer);
        let provenance = Provenance {
            host: origin.host,
            registrant: registrant(writer),
            association: origin.association,
            label: self.hosts.writers[writer].label,
            here_only: false,
        };
        let petition = Petition { provenance, wants };
        Asking { attempt, petition }
    }

    /// A host hears what has come of it.
    pub(super) fn decided(&mut self, attempt: CommandId, verdict: Verdict) -> Result<(), String> {
        let Some(writer) = self.hosts.whose(attempt) else {
            return Ok(());
        };
        let status = verdict.status;
        self.say(|| format!("writer {writer} hears of {attempt}: {status:?}"));
        let is_open = status.is_path_related() || status.is(Status::INTERNAL_ERROR);
        if is_open {
            self.try_again(writer, Duration::from_millis(2));
            return Ok(());
        }
        if status.is_success() {
            self.summary.granted += 1;
            self.hosts.writers[writer].is_fenced = false;
            self.check_report(writer, &verdict.report)?;
        }
        self.is_done(writer);
        Ok(())
    }

    /// Whichever node reports, it reports what the register holds.
    fn check_report(&self, writer: usize, report: &[u8]) -> Result<(), String> {
        let Doing::Busy(command) = &self.hosts.writers[writer].doing else {
            return Ok(());
        };
        let (Some(rights), What::Read(may)) = (&self.rights, &command.what) else {
            return Ok(());
        };
        for &value in may.iter().flatten() {
            let mut table = rights.table(value)?;
            if table.decide(registrant(writer), Wants::Report).report == report {
                return Ok(());
            }
        }
        Err(format!(
            "node {} reports what is none of the reservations of {may:?}",
            command.node
        ))
    }
}
