//! Reservations of a replicated volume: decided by its owner, one petition after the other, and kept in the volume's
//! register, which is replicated like what hosts write.
//!
//! An owner knows the table when it has read the register, before it serves any host. A change counts when it is
//! committed; what is refused, or told, is answered when the register was read again: an owner that has been succeeded
//! and does not know it says nothing.

use std::collections::{BTreeMap, VecDeque};

use ashlar_block::Provenance;
use ashlar_nvme::Status;
use ashlar_nvme_target::{Answer, DecidedReservations, News, Petition, Table, Verdict, Wants};
use ashlar_replica::{
    CommandId, Content, Event, HostCommand, HostOperation, Label, NodeId, Origin, Outcome,
    Position, Registrant,
};
use bytes::Bytes;

use crate::words;

const GRANULE: usize = 4096;
/// Tells these commands from those of hosts.
const OURS: u64 = 1 << 63;

/// Who gets a verdict.
pub enum Asker {
    /// A connection of this node.
    Here(Answer),
    /// Another node, whose command it is.
    There { by: Position, command: CommandId },
}

/// What hosts are to be told of their reservations.
pub struct Decided {
    pub news: News,
    /// The node by which it was asked for, which tells its own hosts with the answer; this one, if there is none.
    pub by: Option<Position>,
}

/// The same, for the nodes whose hosts do not hear it with the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedNews {
    pub news: News,
    pub is_for_this_node: bool,
    /// Others.
    pub nodes: Vec<NodeId>,
}

impl ReservedNews {
    /// As another node is told.
    pub fn to_bytes(&self) -> Vec<u8> {
        words::of_news(&self.news)
    }
}

/// What another node has told.
pub fn news_from_bytes(bytes: &[u8]) -> Option<News> {
    words::to_news(bytes).ok()
}

/// A petition that is being decided.
struct Current {
    command: CommandId,
    verdict: Verdict,
    /// What is reserved if it is granted; nothing if that stays as it is.
    table: Option<Table>,
    asker: Asker,
}

/// What the owner was asked.
struct Sent {
    answer: Answer,
    /// It ends another association of a host.
    is_reset: bool,
}

/// A copy's part in its volume's reservations.
pub struct Reserve {
    shown: DecidedReservations,
    /// As the register says it, while this node owns the volume.
    table: Option<Table>,
    current: Option<Current>,
    waiting: VecDeque<(Petition, Asker)>,
    /// Petitions that the owner was sent.
    sent: BTreeMap<CommandId, Sent>,
    /// What another node that has asked is to hear.
    decided: Vec<Event>,
    /// What hosts are to be told that are not connected where it was asked for.
    news: Vec<Decided>,
    commands: u64,
}

impl Reserve {
    pub fn new(shown: DecidedReservations) -> Self {
        Self {
            shown,
            table: None,
            current: None,
            waiting: VecDeque::new(),
            sent: BTreeMap::new(),
            decided: Vec::new(),
            news: Vec::new(),
            commands: 0,
        }
    }

    /// What the register holds, at the beginning of an epoch.
    ///
    /// # Errors
    /// It is no table. What may be reserved is not served unreserved.
    pub fn learn(&mut self, register: &[u8]) -> Result<(), String> {
        let table = table_of(register)?;
        self.shown.publish(&table);
        self.table = Some(table);
        Ok(())
    }

    /// This node does not own the volume any more: it decides nothing. What it knew grows old, and refuses no host: the
    /// owner judges what is forwarded.
    pub fn forget(&mut self) {
        self.table = None;
        self.shown.publish(&Table::default());
        self.current = None;
        self.waiting.clear();
    }

    /// The copy goes out of service: nothing is answered any more.
    pub fn leave(&mut self) {
        self.forget();
        self.sent.clear();
    }

    /// A petition joins the line. On a node that does not decide it goes to the owner: what the replica is to hear.
    pub fn take(&mut self, petition: Petition, asker: Asker) -> Option<Event> {
        if self.table.is_some() {
            self.waiting.push_back((petition, asker));
            return None;
        }
        match asker {
            Asker::Here(answer) => self.send(petition, answer),
            Asker::There { .. } => {
                self.refuse(asker);
                None
            }
        }
    }

    /// This node neither decides nor knows which does.
    pub fn refuse(&mut self, asker: Asker) {
        self.give(asker, Verdict::of(Status::ANA_INACCESSIBLE));
    }

    fn send(&mut self, petition: Petition, answer: Answer) -> Option<Event> {
        let provenance = petition.provenance;
        // What changes nothing that may be late, and what the admin queue brings, counts by any label.
        let label = provenance.label.or(match petition.wants {
            Wants::Change(_) => None,
            Wants::Persist(_) | Wants::Report | Wants::Succeed => Some(Label {
                epoch: 0,
                writes: 0,
            }),
        });
        let Some(label) = label else {
            answer.give(Verdict::of(Status::ANA_TRANSITION));
            return None;
        };
        let command = self.command();
        let is_reset = matches!(petition.wants, Wants::Succeed);
        self.sent.insert(command, Sent { answer, is_reset });
        Some(Event::Host(HostCommand {
            command,
            registrant: provenance.registrant,
            operation: HostOperation::Consult {
                question: words::of_wants(petition.wants).into(),
                origin: origin_of(&petition),
                label,
            },
        }))
    }

    fn command(&mut self) -> CommandId {
        self.commands += 1;
        CommandId(OURS | self.commands)
    }

    /// What a host is told that may not read, or write, now, as the owner knows; where that is another node, it says so
    /// itself. While a change is being made durable, a write of a host that will have lost its rights comes too late to
    /// be waited for, and may come again: it could wait for its range until the change is answered.
    pub fn refuses(&self, host: Registrant, writes: bool) -> Option<Outcome> {
        let lets = |table: Option<&Table>| table.is_none_or(|table| table.lets(host, writes));
        let next = self.current.as_ref().and_then(|one| one.table.as_ref());
        match (lets(self.table.as_ref()), lets(next.filter(|_| writes))) {
            (false, _) => Some(Outcome::Reserved),
            (true, false) => Some(Outcome::Stale),
            (true, true) => None,
        }
    }

    fn give(&mut self, asker: Asker, verdict: Verdict) {
        let by = match &asker {
            Asker::Here(_) => None,
            Asker::There { by, .. } => Some(*by),
        };
        if verdict.news != News::default() {
            let news = verdict.news.clone();
            self.news.push(Decided { news, by });
        }
        match asker {
            Asker::Here(answer) => answer.give(verdict),
            Asker::There { command, .. } => {
                let outcome = Outcome::Advice(words::of_verdict(&verdict).into());
                self.decided.push(Event::Decided { command, outcome });
            }
        }
    }

    /// A host's command has come from another node: whether it may is judged here, by what is reserved now. What the
    /// replica is to hear of it.
    pub fn forwarded(&mut self, by: Position, of_host: HostCommand) -> Option<Event> {
        let HostCommand {
            command,
            registrant,
            operation,
        } = of_host;
        if let HostOperation::Consult {
            question,
            origin,
            label,
        } = operation
        {
            let Ok(wants) = words::to_wants(&question) else {
                let outcome = Outcome::Failed;
                return Some(Event::Decided { command, outcome });
            };
            let provenance = Provenance {
                host: origin.host,
                registrant,
                association: origin.association,
                label: Some(label),
                here_only: false,
            };
            let petition = Petition { provenance, wants };
            return self.take(petition, Asker::There { by, command });
        }
        let writes = !matches!(operation, HostOperation::Read { .. });
        Some(match self.refuses(registrant, writes) {
            None => Event::Host(HostCommand {
                command,
                registrant,
                operation,
            }),
            Some(outcome) => Event::Decided { command, outcome },
        })
    }

    /// What the replica is to hear of petitions that have come from other nodes.
    pub fn take_decided(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.decided)
    }

    /// What hosts are to be told.
    pub fn take_news(&mut self) -> Vec<Decided> {
        std::mem::take(&mut self.news)
    }

    /// What the replica is to hear for the next petition, if it is its turn. `label` is what its association would be
    /// given now.
    pub fn next(&mut self, label: impl Fn(Origin) -> Option<Label>) -> Option<Event> {
        while self.current.is_none() {
            let (petition, asker) = self.waiting.pop_front()?;
            if let Some(event) = self.begin(petition, asker, &label) {
                return Some(event);
            }
        }
        None
    }

    fn begin(
        &mut self,
        petition: Petition,
        asker: Asker,
        label: impl Fn(Origin) -> Option<Label>,
    ) -> Option<Event> {
        let before = self.table.as_ref()?;
        let mut table = before.clone();
        let registrant = petition.provenance.registrant;
        let verdict = table.decide(registrant, petition.wants);
        let is_changed = table != *before;
        let command = self.command();
        let origin = origin_of(&petition);
        let label = match petition.wants {
            // It comes by the admin queue, whose commands have no labels.
            Wants::Persist(_) | Wants::Succeed => label(origin),
            Wants::Change(_) | Wants::Report => petition.provenance.label,
        };
        // What succeeds counts among its host's writes even if it changes nothing: an older command of the host must not
        // take effect after it. For a host that takes over from an association that is all.
        let counts = matches!(petition.wants, Wants::Change(_) | Wants::Succeed)
            && verdict.status.is_success();
        let operation = match (is_changed || counts, label) {
            (false, _) => HostOperation::GetRegister,
            (true, Some(label)) => HostOperation::SetRegister {
                content: register_of(&table),
                origin,
                label,
            },
            (true, None) => {
                self.give(asker, Verdict::of(Status::ANA_TRANSITION));
                return None;
            }
        };
        self.current = Some(Current {
            command,
            verdict,
            table: is_changed.then_some(table),
            asker,
        });
        Some(Event::Host(HostCommand {
            command,
            registrant,
            operation,
        }))
    }

    /// Whether the replica's answer is to this.
    pub const fn asked(command: CommandId) -> bool {
        command.0 & OURS != 0
    }

    /// The replica has answered.
    pub fn answered(&mut self, command: CommandId, outcome: &Outcome) {
        let failed = match outcome {
            Outcome::NotOwner => Status::ANA_INACCESSIBLE,
            Outcome::Failed | Outcome::OutOfRange => Status::INTERNAL_ERROR,
            _ => Status::ANA_TRANSITION,
        };
        if let Some(Sent { answer, is_reset }) = self.sent.remove(&command) {
            // An owner of an older version does not know the question, and resets asked it nothing then.
            let failed = match outcome {
                Outcome::Failed if is_reset => Status::SUCCESS,
                _ => failed,
            };
            let verdict = match outcome {
                Outcome::Advice(bytes) => words::to_verdict(bytes).ok(),
                _ => None,
            };
            return answer.give(verdict.unwrap_or(Verdict::of(failed)));
        }
        let is_it = |current: &mut Current| current.command == command;
        let Some(current) = self.current.take_if(is_it) else {
            return;
        };
        match outcome {
            Outcome::Written | Outcome::Read(_) => {
                if let Some(table) = current.table {
                    self.shown.publish(&table);
                    self.table = Some(table);
                }
                self.give(current.asker, current.verdict);
            }
            _ => self.give(current.asker, Verdict::of(failed)),
        }
    }
}

fn origin_of(petition: &Petition) -> Origin {
    Origin {
        host: petition.provenance.host,
        association: petition.provenance.association,
    }
}

/// The table in a register; a new volume's holds zeroes.
fn table_of(register: &[u8]) -> Result<Table, String> {
    if register.iter().all(|&byte| byte == 0) {
        return Ok(Table::default());
    }
    Table::decode_padded(register).map_err(|error| format!("its register is damaged: {error}"))
}

fn register_of(table: &Table) -> Content {
    let mut bytes = table.encode();
    bytes.resize(GRANULE, 0);
    Content::Data(Bytes::from(bytes))
}

#[cfg(test)]
mod tests;
